"""Reading what an instance is told to run."""

from __future__ import annotations

import base64

import pytest

from lab.local.user_data import ServiceFiles, UserDataError, parse, parse_environment

OURS = """#cloud-config
write_files:
  - path: /etc/motd
    content: hello
  - path: /opt/spotrelay/service.env
    permissions: "0600"
    content: |
      HOST="0.0.0.0"
      PORT="8081"
  - path: /opt/spotrelay/setup.sh
    encoding: b64
    content: ZWNobyBvbmNlCg==
  - path: /opt/spotrelay/run.sh
    content: |
      exec sleep 1
runcmd: [[systemctl, enable, --now, spotrelay]]
"""
EXPECTED = ServiceFiles(
    run="exec sleep 1\n",
    environment={"HOST": "0.0.0.0", "PORT": "8081"},
    others={"setup.sh": "echo once\n"},
)


def test_our_files() -> None:
    """The service's scripts and environment are found among everything else in a cloud-config."""
    assert parse(OURS) == EXPECTED


def test_base64() -> None:
    """User data is read in base64, too, as launch templates carry it."""
    assert parse(base64.b64encode(OURS.encode()).decode()) == EXPECTED


@pytest.mark.parametrize(
    "text",
    ["", "#!/bin/bash\necho hello\n", "#cloud-config\n", "#cloud-config\npackages: [git]\n", "garbage", "é"],
)
def test_not_ours(text: str) -> None:
    """User data of somebody else's is no error: it is nothing to run."""
    assert parse(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#cloud-config\na: [", "not valid YAML"),
        ("#cloud-config\n- a\n", "is a mapping, this is a list"),
        ("#cloud-config\nwrite_files: 3\n", "write_files is a list, this is a int"),
        ("#cloud-config\nwrite_files: [{content: x}]\n", r"write_files\[0\] has no path"),
        (
            "#cloud-config\nwrite_files: [{path: /opt/spotrelay/run.sh, encoding: rot13, content: x}]\n",
            "encoding 'rot13'",
        ),
        (
            "#cloud-config\nwrite_files: [{path: /opt/spotrelay/run.sh, encoding: b64, content: '!'}]\n",
            "not base64",
        ),
        ("#cloud-config\nwrite_files: [{path: /opt/spotrelay/run.sh, content: [x]}]\n", "content is text"),
        (OURS.replace('PORT="8081"', "PORT 8081"), "service.env, line 2: expected"),
    ],
)
def test_unreadable(text: str, said: str) -> None:
    """What can't be read is refused with the place and what was expected there."""
    with pytest.raises(UserDataError, match=said):
        parse(text)


def test_environment_as_systemd_reads_it() -> None:
    """Quotes, escapes, comments and blank lines mean what they mean to systemd; nothing is expanded."""
    text = (
        "# a comment\n\n; another\n"
        'A="two words"\n'
        'B="a \\"quote\\", a \\\\, a \\$HOME, a \\n"\n'
        "C='$HOME \\'\n"
        "D=bare words  \n"
        "E=\n"
        'F="two\nlines"\n'
        'A2="# no comment"\n'
        'A="later wins"'
    )
    assert parse_environment(text) == {
        "A": "later wins",
        "B": 'a "quote", a \\, a $HOME, a \\n',
        "C": "$HOME \\",
        "D": "bare words",
        "E": "",
        "F": "two\nlines",
        "A2": "# no comment",
    }
