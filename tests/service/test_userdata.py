"""What an instance gets: the cloud-config, its scripts, its environment."""

from __future__ import annotations

import base64
import gzip
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # what cloud-init reads with; no other use here is worth its stubs
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spotrelay.file.instance import envfile
from spotrelay.file.instance.userdata import LONGEST_REGION, LONGEST_VERSION, environment, size
from spotrelay.file.service import pinned, user_data

from .conftest import GOOD, Loader, on_cpus

ENABLED = [
    "systemctl", "enable", "--now", "--no-block", "spotrelay-console.service", "spotrelay.service"
]  # fmt: skip
TOKEN = "${Token[AWS.Region.12]}"
SECRETS = "secrets:\n  HF_TOKEN: /chat/hf-token\n  KEY: /chat/key\nsetup: echo setup\n"

# What the schema lets into an environment variable.
values = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters=[chr(c) for c in range(32)] + ["\x7f"])
    | st.sampled_from("\t\n\"'\\$`!{}[]#=; ")
)
environments = st.dictionaries(st.from_regex(r"[A-Z_][A-Z0-9_]{2,9}", fullmatch=True), values, max_size=4)


def config(text: str) -> dict[str, Any]:
    """The cloud-config as cloud-init reads it: with PyYAML, so as YAML 1.1."""
    assert text.startswith("#cloud-config\n")
    loaded: dict[str, Any] = yaml.safe_load(text)
    for entry in loaded["write_files"]:
        if entry.get("encoding") == "gz+b64":
            entry["content"] = gzip.decompress(base64.b64decode(entry["content"])).decode()
    return loaded


def files(text: str) -> dict[str, str]:
    """File name → content."""
    return {Path(entry["path"]).name: entry["content"] for entry in config(text)["write_files"]}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=50)
@given(environments)
@example({"A_A": '"; touch x; "', "B_B": "$HOME `id` $(id) ${X} \\", "C_C": "two\nlines\\\n'", "D_D": ""})
def test_bash_reads_back_exactly_what_was_written(tmp_path: Path, env: dict[str, str]) -> None:
    """No value is expanded, run or changed when bash sources service.env."""
    file = tmp_path / "service.env"
    file.write_text(envfile.render({f"SR_{name}": value for name, value in env.items()}), encoding="utf-8")
    script = 'set -a; . "$1"; env -0'
    done = subprocess.run(
        ["bash", "-c", script, "bash", str(file)],
        capture_output=True,
        check=True,
        env={"PATH": "/usr/bin:/bin"},
    )
    read = dict(entry.split("=", 1) for entry in done.stdout.decode().split("\0") if entry)
    assert {name: value for name, value in read.items() if name.startswith("SR_")} == {
        f"SR_{name}": value for name, value in env.items()
    }


@given(environments)
def test_an_env_file_parses_to_what_was_rendered(env: dict[str, str]) -> None:
    """`parse` is the inverse of `render`."""
    assert envfile.parse(envfile.render(env)) == env


@pytest.mark.parametrize("text", ["A=b\n", 'A="b', 'A="b"c"\n', 'A="b"\nx\nB="c"\n'])
def test_an_env_file_in_another_form_is_refused(text: str) -> None:
    """What `render` doesn't write, `parse` doesn't guess at."""
    with pytest.raises(ValueError, match=r'service.env line \d: expected NAME="value"'):
        envfile.parse(text)


def test_the_cloud_config_has_environment_scripts_and_a_unit_that_runs_them(service: Loader) -> None:
    """The files that the contract with the instance names are all there, with their permissions."""
    text = user_data(service(GOOD + "setup: make install\nenvs: {MODEL: 'a b'}"), TOKEN)
    entries = {entry["path"]: entry["permissions"] for entry in config(text)["write_files"]}
    assert entries == {
        "/opt/spotrelay/service.env": "0600",
        "/opt/spotrelay/setup.sh": "0755",
        "/opt/spotrelay/run.sh": "0755",
        "/opt/spotrelay/once.sh": "0755",
        "/opt/spotrelay/stop.sh": "0755",
        "/opt/spotrelay/crash.sh": "0755",
        "/opt/spotrelay/crash.py": "0755",
        "/etc/systemd/system/spotrelay.service": "0644",
        "/opt/spotrelay/console.sh": "0755",
        "/etc/systemd/system/spotrelay-console.service": "0644",
        "/etc/needrestart/conf.d/spotrelay.conf": "0644",
    }
    written = files(text)
    assert envfile.parse(written["service.env"]) == {
        "HOST": "0.0.0.0",
        "PORT": "8081",
        "SPOTRELAY_SERVICE": "chat",
        "MODEL": "a b",
    }
    assert written["setup.sh"] == "#!/bin/bash\nmake install\n"
    assert written["run.sh"].endswith("\npython3 serve.py\n")
    unit = written["spotrelay.service"].splitlines()
    assert "EnvironmentFile=/opt/spotrelay/service.env" in unit
    assert "ExecStart=/bin/bash /opt/spotrelay/run.sh" in unit
    assert "Restart=always" in unit
    assert "ExecStartPre=/bin/bash /opt/spotrelay/once.sh" in unit
    assert "ExecStop=/bin/bash /opt/spotrelay/stop.sh" in unit
    assert config(text)["runcmd"][-1] == ENABLED


def test_an_instance_that_was_stopped_runs_again_and_is_not_set_up_again(
    service: Loader, tmp_path: Path
) -> None:
    """systemd starts the unit with every boot; before it, setup runs until it has succeeded once."""
    text = user_data(service(GOOD + "setup: |\n  echo set up >> log; test -e prepared\n"), "us-east-1")
    written = files(text)
    unit = written["spotrelay.service"].splitlines()
    assert unit[unit.index("[Install]") + 1] == "WantedBy=multi-user.target"
    # cloud-init runs these with an instance's first boot only: `enable` is what holds for the others.
    assert config(text)["runcmd"][-1] == ENABLED
    (before,) = (line.partition("=")[2] for line in unit if line.startswith("ExecStartPre=/"))
    for name in ("setup.sh", "once.sh", "service.env"):
        (tmp_path / name).write_text(written[name], encoding="utf-8")

    def boot() -> int:
        command = shlex.split(before.replace("/opt/spotrelay", str(tmp_path)))
        return subprocess.run(command, cwd=tmp_path, check=False).returncode

    assert boot() == boot() == 1, "it failed twice"
    (tmp_path / "prepared").touch()
    assert boot() == boot() == boot() == 0
    assert (tmp_path / "log").read_text(encoding="utf-8").splitlines() == ["set up"] * 3
    # An image that was made from this replica, for a version with another environment.
    (tmp_path / "service.env").write_text('MODEL="another"\n', encoding="utf-8")
    assert boot() == boot() == 0
    assert (tmp_path / "log").read_text(encoding="utf-8").splitlines() == ["set up"] * 4


def test_what_a_replica_says_is_on_the_console(service: Loader, tmp_path: Path) -> None:
    """systemd's journal has it, and EC2 shows the console: the last 16 KiB are copied there, again and again.

    Nothing of the service waits for it: it is another unit, which reads the journal. After what it copies
    stands what the start has reached, so that is never further from the end than what is copied once.
    """
    written = files(user_data(service(GOOD), TOKEN))
    assert "StandardOutput" not in written["spotrelay.service"]
    unit = written["spotrelay-console.service"].splitlines()
    assert {"ExecStart=/bin/bash /opt/spotrelay/console.sh", "Restart=always"} <= set(unit)
    assert unit[unit.index("[Install]") + 1] == "WantedBy=multi-user.target"
    commands = tmp_path / "commands"
    commands.mkdir()
    # It notes what it is asked, and says more than is copied; the second sleep is the last.
    ask = """printf '%s|' "$@" >>asked; echo >>asked; head -c 20000 /dev/zero | tr '\\0' x; wc -l <asked"""
    date = "echo >>looks; echo $(wc -l <looks) UTC"
    sleep = 'test "$(wc -l <asked)" -lt 2'
    for name, text in {"journalctl": ask, "date": date, "sleep": sleep}.items():
        (commands / name).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        (commands / name).chmod(0o755)
    (tmp_path / "asked").touch()
    (tmp_path / "phases").write_text("PHASES", encoding="utf-8")
    script = written["console.sh"].replace("/dev/console", "console").replace("/run/spotrelay-", "")
    path = f"{commands}:{os.environ['PATH']}"
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env={"PATH": path}, check=False)
    copied = (tmp_path / "console").read_bytes()
    assert len(copied) == 2 * (16384 + len("PHASES"))
    assert copied.replace(b"x", b"").split() == [b"1", b"PHASES2", b"PHASES"]
    asked = [line.split("|")[:-1] for line in (tmp_path / "asked").read_text(encoding="utf-8").splitlines()]
    assert asked == [
        ["-qau", "spotrelay", "-o", "short-iso", "--since", since, "--until", until]
        for since, until in (("1 UTC", "2 UTC"), ("2 UTC", "3 UTC"))
    ]


def test_without_setup_nothing_is_set_up(service: Loader) -> None:
    """`setup` is optional: no script, no ExecStartPre."""
    written = files(user_data(service(GOOD), TOKEN))
    assert "setup.sh" not in written
    assert "once.sh" not in written["spotrelay.service"]


def test_a_cdk_token_for_the_region_survives_in_one_piece(service: Loader) -> None:
    """The region's token stands in the text verbatim wherever secrets are fetched, and nowhere else."""
    assert user_data(service(GOOD + SECRETS), TOKEN).count(f"--region '{TOKEN}'") == 2
    assert TOKEN not in user_data(service(GOOD), TOKEN)


def test_secrets_are_fetched_with_the_instances_role_and_never_fallback_user_data(
    service: Loader, tmp_path: Path
) -> None:
    """Both scripts ask Parameter Store for each secret before they start, and export it."""
    # A fallback for the AWS CLI, called with: ssm get-parameter --region R --name N --with-decryption …
    aws = tmp_path / "aws"
    aws.write_text(
        '#!/bin/bash\n[ "$7" = --with-decryption ] && echo "value of $6 in $4"\nexit "${AWS_EXIT:-0}"\n'
    )
    aws.chmod(0o755)
    chat = service(GOOD.replace("python3 serve.py", "bash -c 'echo run $HF_TOKEN, $KEY'") + SECRETS)
    script = tmp_path / "run.sh"
    script.write_text(files(user_data(chat, "eu-west-1"))["run.sh"])
    (tmp_path / "nvidia-smi").symlink_to("/bin/true")
    path = f"{tmp_path}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", str(script)], capture_output=True, text=True, check=True, env={"PATH": path}
    )
    assert done.stdout == "run value of /chat/hf-token in eu-west-1, value of /chat/key in eu-west-1\n"
    assert done.stderr == ""  # what the log gets of a secret is what the service itself says

    failed = subprocess.run(
        ["bash", str(script)],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": path, "AWS_EXIT": "1"},
    )
    assert (failed.returncode, failed.stdout) == (1, "")
    assert "spotrelay: can't read parameter /chat/hf-token" in failed.stderr


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=50)
@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("\t\n'\"#:-%|>"), max_size=40))
@example("echo é 模型 🦙")
@example("  indented first\nthen not")
@example("trailing spaces  \n\n\n")
@example("\u2028 line separator and \u0085 next line")
def test_cloud_init_reads_scripts_back_as_they_were_written(service: Loader, body: str) -> None:
    """Any script that a service file can hold reaches the instance unchanged but for newlines at its end."""
    if not body.strip():
        body += "true"
    escaped = "".join(f"\\U{ord(c):08x}" for c in body)
    chat = service(GOOD.replace("python3 serve.py", f'"{escaped}"'))
    script = files(user_data(chat, TOKEN))["run.sh"]
    # In between, the environment of one that calls conda or uv.
    assert script.startswith("#!/bin/bash\n")
    assert script.endswith("\n" + chat.run.rstrip("\n") + "\n")
    assert chat.run == body


def test_the_size_is_taken_with_the_longest_region_name_and_versions(service: Loader) -> None:
    """A file that fits here fits in every region, with any versions of its secrets: both are unknown then."""
    chat = service(GOOD + SECRETS)
    longest = pinned(chat, dict.fromkeys(chat.secrets.values(), LONGEST_VERSION), {}, {})
    assert size(chat) == len(user_data(longest, LONGEST_REGION).encode())
    assert size(chat) == size(longest) > len(user_data(chat, LONGEST_REGION).encode())
    assert len(LONGEST_REGION) >= len("ap-southeast-7")


def test_spotrelays_own_variables_come_first(service: Loader) -> None:
    """HOST, PORT and SPOTRELAY_SERVICE are always there; the schema keeps envs from hiding them."""
    assert list(environment(service(GOOD + "envs: {A: 1}"))) == ["HOST", "PORT", "SPOTRELAY_SERVICE", "A"]


def test_the_kernel_and_the_driver_stay_as_the_image_has_them(service: Loader, tmp_path: Path) -> None:
    """What is installed of them is held before any set-up, on images with apt, where there is a GPU."""
    chat = service(GOOD)
    assert len(config(user_data(on_cpus(chat), TOKEN))["bootcmd"]) == 1
    held = config(user_data(chat, TOKEN))["bootcmd"][1]
    commands = {
        "dpkg-query": r"""echo "$@" > asked
            printf 'ii  linux-image-1\nun  nvidia-340\nii  libnvidia-x\nrc  linux-0\n'""",
        "apt-mark": 'echo "$@" > held',
    }
    (tmp_path / "bin").mkdir()
    for name, script in commands.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    subprocess.run(held, cwd=tmp_path, env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}, check=True)
    assert (tmp_path / "held").read_text(encoding="utf-8") == "hold linux-image-1 libnvidia-x\n"
    assert "linux-* *nvidia*" in (tmp_path / "asked").read_text(encoding="utf-8")
    (tmp_path / "held").unlink()
    for name in ("sh", "sed", "xargs"):
        (tmp_path / "other").mkdir(exist_ok=True)
        (tmp_path / "other" / name).symlink_to(shutil.which(name) or name)
    subprocess.run(held, cwd=tmp_path, env={"PATH": f"{tmp_path}/other"}, check=True)
    assert not (tmp_path / "held").exists()
