"""How busy the GPUs are: what instances run for services whose number of replicas follows it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # what cloud-init reads with

from spotrelay.file.instance import gpu
from spotrelay.file.service import Service, user_data

from .conftest import Loader
from .test_scaling import POLICY, QUEUE, file

AGENT = "/opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl"


def config(service: Service) -> dict[str, Any]:
    """The cloud-config, as cloud-init reads it."""
    loaded: dict[str, Any] = yaml.safe_load(user_data(service, "us-east-1"))
    return loaded


@pytest.fixture
def busy(service: Loader) -> Service:
    """A service that follows its GPUs."""
    return service(file({"min_replicas": 1, "max_replicas": 5}, {"gpu_utilization": 60}))


def test_the_agent_reports_what_the_controller_reads(busy: Service) -> None:
    """The very metric, of all the service's GPUs in one, and none of each GPU."""
    assert busy.scaling
    read = busy.scaling.metric
    assert read
    metrics = json.loads(gpu.agent_config(busy))["metrics"]
    assert metrics["namespace"] == read.namespace
    assert metrics["aggregation_dimensions"] == [list(read.dimensions)]
    (section,) = metrics["metrics_collected"].values()
    assert section["append_dimensions"] == read.dimensions
    assert section["measurement"] == section["drop_original_metrics"] == ["utilization_gpu"]
    assert read.name == "nvidia_smi_utilization_gpu"
    assert read.statistic == "Average"


def test_the_agent_is_beside_the_service(busy: Service) -> None:
    """A unit of its own comes after the service's, and neither needs the other."""
    found = config(busy)
    files = {Path(f["path"]).name: f["content"] for f in found["write_files"]}
    assert json.loads(files["gpu.json"]) == json.loads(gpu.agent_config(busy))
    assert "gpu" not in files["spotrelay.service"]
    unit = files["spotrelay-gpu.service"].splitlines()
    assert "After=network-online.target spotrelay.service" in unit
    assert not any(line.startswith(("Requires", "BindsTo", "PartOf")) for line in unit)
    assert "ExecStart=/bin/bash /opt/spotrelay/gpu.sh" in unit
    assert unit[-1] == "WantedBy=multi-user.target"
    enabled = [command[-1] for command in found["runcmd"] if command[:2] == ["systemctl", "enable"]]
    assert enabled == ["spotrelay.service", "spotrelay-gpu.service"]
    assert all("--no-block" in command for command in found["runcmd"] if "enable" in command)


@pytest.mark.parametrize("scaling", [None, {"metric": QUEUE}, {"ongoing": {"target_per_replica": 8}}])
def test_no_other_service_has_it(service: Loader, scaling: Any) -> None:
    """Its user data is as before."""
    chat = service(file(POLICY, scaling))
    assert not chat.reports_gpus
    assert not any(
        Path(entry["path"]).name.startswith(("gpu", "spotrelay-gpu")) for entry in config(chat)["write_files"]
    )
    assert config(chat)["runcmd"][-1][-1] == "spotrelay.service"


def ran(directory: Path, signer: str = gpu.SIGNER, **commands: str) -> tuple[int, list[str]]:
    """Run the script where these commands are all there is, each a line of bash; its status, who was called.

    `agent` is the agent's own, present from the beginning. `signer`: whose key AWS's is.
    """
    programs, opt, log = directory / "bin", directory / "opt", directory / "log"
    programs.mkdir()
    opt.mkdir()
    for name in ("chmod", "cp", "dirname", "gpg", "grep", "mkdir", "rm"):
        (programs / name).symlink_to(f"/usr/bin/{name}")

    def write(path: Path, line: str) -> None:
        path.write_text(f'#!/bin/bash\necho "{path.name} $*" >> {log}\n{line}\n', encoding="utf-8")
        path.chmod(0o755)

    for name, line in commands.items():
        write(opt / name if name == "agent" else programs / name, line.replace("OPT", str(opt)))
    script = directory / "gpu.sh"
    text = gpu.SCRIPT.replace(AGENT, f"{opt}/agent").replace(gpu.SIGNER, signer)
    script.write_text(text, encoding="utf-8")
    done = subprocess.run(
        ["/bin/bash", str(script)],
        env={"PATH": str(programs), "TMPDIR": str(directory)},
        check=False,
        capture_output=True,
    )
    said = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return done.returncode, said


INSTALLS = "printf '#!/bin/bash\\nexit 0\\n' > OPT/agent; chmod +x OPT/agent"


def test_an_image_that_has_the_agent_installs_nothing(tmp_path: Path) -> None:
    """It gets its configuration and is started, also where it ran with another one."""
    status, said = ran(tmp_path, agent=":", dnf=":", curl=":", dpkg=":")
    assert status == 0
    assert said == [f"agent -a fetch-config -m ec2 -s -c file:{tmp_path}/gpu.json"]


def test_amazon_linux_has_it_as_a_package(tmp_path: Path) -> None:
    """With dnf, which checks who signed it."""
    status, said = ran(tmp_path, dnf=INSTALLS)
    assert (status, said) == (0, ["dnf install -y -q amazon-cloudwatch-agent"])


def dpkg(arch: str = "amd64", then: str = INSTALLS) -> str:
    """The program that says which architecture this is, and installs."""
    return f'if [ "$1" = --print-architecture ]; then echo {arch}; else {then}; fi'


@dataclass(frozen=True)
class Signer:
    """Who has a key, and signs packages."""

    home: Path

    def fingerprint(self) -> str:
        """Of its key, which it makes if it has none."""
        if not self.home.exists():
            self.home.mkdir(mode=0o700)
            self._gpg("--passphrase", "", "--quick-generate-key", "agent@example.com", "ed25519", "sign", "0")
        lines = self._gpg("--with-colons", "--list-keys").splitlines()
        return next(line.split(":")[9] for line in lines if line.startswith("fpr:"))

    def publishes(self, folder: Path, package: str, *, in_place_of: str = "") -> str:
        """What is to be fetched: a package, its signature and the key; the line that fetches it."""
        self.fingerprint()
        folder.mkdir()
        (folder / "agent.deb").write_text(package, encoding="utf-8")
        self._gpg("--detach-sign", "--output", str(folder / "agent.sig"), str(folder / "agent.deb"))
        self._gpg("--armor", "--output", str(folder / "agent.gpg"), "--export")
        (folder / "agent.deb").write_text(in_place_of or package, encoding="utf-8")
        return f"cp {folder}/* agent"

    def _gpg(self, *arguments: str) -> str:
        command = ["gpg", "--homedir", str(self.home), "--batch", "--quiet", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def aws() -> Iterator[Signer]:
    """Who signs as AWS does."""
    if not shutil.which("gpg"):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("gpg isn't installed here")
    with tempfile.TemporaryDirectory() as place:  # a short path: gpg's agent has a socket there
        yield Signer(Path(place) / "aws")


@pytest.mark.parametrize("arch", ["amd64", "arm64"])
def test_ubuntu_gets_aws_s_package(tmp_path: Path, aws: Signer, arch: str) -> None:
    """From AWS's own bucket, for its architecture, with AWS's signature; nothing is left of it."""
    curl = aws.publishes(tmp_path / "bucket", "the agent")
    status, said = ran(tmp_path, aws.fingerprint(), curl=curl, dpkg=dpkg(arch))
    assert status == 0
    assert said[-1] == "dpkg -i agent/agent.deb"
    assert not (tmp_path / "agent").exists()
    urls = [word for line in said if line.startswith("curl") for word in line.split() if "://" in word]
    base = "https://amazoncloudwatch-agent.s3.amazonaws.com"
    package = f"{base}/ubuntu/{arch}/latest/amazon-cloudwatch-agent.deb"
    assert urls == [package, f"{package}.sig", f"{base}/assets/amazon-cloudwatch-agent.gpg"]


def test_what_somebody_else_signed_is_not_installed(tmp_path: Path, aws: Signer) -> None:
    """Whoever can put a package there can put a key beside it."""
    other = Signer(aws.home.parent / "other")
    curl = other.publishes(tmp_path / "bucket", "not the agent")
    status, said = ran(tmp_path, aws.fingerprint(), curl=curl, dpkg=dpkg())
    assert status != 0
    assert not any(line.startswith(("dpkg -i", "agent")) for line in said)


def test_what_was_changed_after_it_was_signed_is_not_installed(tmp_path: Path, aws: Signer) -> None:
    """On its way, or in the bucket."""
    curl = aws.publishes(tmp_path / "bucket", "the agent", in_place_of="not the agent")
    status, said = ran(tmp_path, aws.fingerprint(), curl=curl, dpkg=dpkg())
    assert status != 0
    assert not any(line.startswith(("dpkg -i", "agent")) for line in said)


def test_a_package_that_cannot_be_installed_is_tried_again(tmp_path: Path, aws: Signer) -> None:
    """It is fetched anew, beside what is left of the first try."""
    curl = aws.publishes(tmp_path / "bucket", "the agent")
    (tmp_path / "agent").mkdir()
    status, said = ran(tmp_path, aws.fingerprint(), curl=curl, dpkg=dpkg(then="exit 1"))
    assert status != 0
    assert not any(line.startswith("agent") for line in said)
    assert any(line.startswith("dpkg -i") for line in said)


@pytest.mark.parametrize(
    "commands",
    [
        {"dnf": "exit 1"},
        {"curl": "exit 22", "dpkg": "echo amd64"},
        {"curl": ":", "dpkg": "echo amd64"},
    ],
)
def test_a_failure_is_one_and_nothing_is_started(tmp_path: Path, commands: dict[str, str]) -> None:
    """Its own unit tries again later."""
    status, said = ran(tmp_path, **commands)
    assert status != 0
    assert not any(line.startswith("agent") for line in said)
    assert not any(line.startswith("dpkg -i") for line in said), "what was fetched in part"


def test_the_script_is_bash() -> None:
    """No slip in it."""
    subprocess.run(["/bin/bash", "-n"], input=gpu.SCRIPT, text=True, check=True, env=dict(os.environ))
