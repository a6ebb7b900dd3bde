"""What can be chosen, and what must not leak into the demo from the user's own environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lab.demo import environment, settings
from lab.demo.errors import DemoError
from lab.demo.settings import ROOT, DemoSettings, ShownService, service_of, warning_s_of


def test_the_schedule_is_shortened_like_the_warning() -> None:
    """The relation of warning and tick stays that of AWS: 120 s to 60 s."""
    assert DemoSettings(warning_s=20).schedule_s == 10
    assert DemoSettings(warning_s=120).schedule_s == 60


@pytest.mark.parametrize("text", ["9.9", "601", "soon", "nan", "-20", ""])
def test_a_warning_out_of_range_is_refused(text: str) -> None:
    """A duration that can't work is refused before anything starts, with what can."""
    with pytest.raises(DemoError, match=f"WARNING_S={text}: expected seconds, 10 to 600"):
        warning_s_of(text)


def test_another_service_is_named_by_its_file() -> None:
    """The slow one that the documents name can be shown; the demo's own can, too."""
    for name in ("slow-start", "demo"):
        shown = service_of(str(ROOT / "services" / f"{name}.yaml"))
        assert (shown.name, shown.file.name) == (name, f"{name}.yaml")
        assert (shown.is_engine, shown.has_pack) == (False, False)


@pytest.mark.parametrize("is_own", [True, False])
def test_a_pack_is_shown_where_instances_have_disks(is_own: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What several unpack at one place at once would break: it is refused before anything starts."""
    monkeypatch.setattr(settings, "give_own_disks", lambda: is_own)
    file = str(ROOT / "services" / "llm-like.yaml")
    if is_own:
        assert service_of(file) == ShownService(Path(file), "llm-like", is_engine=True, has_pack=True)
    else:
        with pytest.raises(DemoError, match=r"need a /srv of their own, .* inside `unshare -Urn`"):
            service_of(file)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("services/nowhere.yaml", "there is no such file; services/slow-start.yaml is one"),
        ("services", "there is no such file"),
        ("Makefile", "Makefile:"),
        (
            "services/llama3.yaml",
            r"run must start lab\.demo\.chat_server or lab\.engine\.server, and envs\.MODEL_NAME be",
        ),
    ],
)
def test_a_service_that_cannot_be_shown_is_refused(file: str, said: str) -> None:
    """No file, no service file, one whose scripts nobody wants to run here: said before anything starts."""
    with pytest.raises(DemoError, match=f"SERVICE={ROOT / file}: .*{said}"):
        service_of(str(ROOT / file))


def test_nothing_of_a_real_account_gets_in() -> None:
    """Profiles, keys, endpoints and proxies of the user are taken out; the rest stays."""
    users = {
        "AWS_PROFILE": "production",
        "AWS_ACCESS_KEY_ID": "AKIA",
        "CDK_DEFAULT_ACCOUNT": "123456789012",
        "https_proxy": "http://proxy:3128",
        "MAKEFLAGS": "-j8",
        "LANG": "de_DE.UTF-8",
        "PATH": "/usr/bin",
    }
    kept = environment.clean(users)
    assert kept.keys() == {"LANG", "PATH", "PYTHONUNBUFFERED"}
    assert kept["PATH"].endswith(":/usr/bin")


def test_a_wrong_setting_is_one_line(tmp_path: object) -> None:
    """The command says what is wrong in one line, with exit status 2, and starts nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "lab.demo", "--warning-s", "2", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "demo: WARNING_S=2: expected seconds, 10 to 600; EC2's own warning is make demo WARNING_S=120\n"
    )
