"""An instance's console: what EC2 shows of it, and what of a service's words gets there."""

from __future__ import annotations

import base64
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import ClientError

from spotrelay.file.service import load, user_data
from spotrelay.operator.aws.console import console_output
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.core.ports import Denied
from spotrelay.plane.core.replica import CONSOLE_MARK, TOLD_BY_INSTANCES, Phase
from tests.local.conftest import USER_DATA, Aws, Ground, eventually

pytestmark = pytest.mark.xdist_group("local")

SERVICE = """\
name: talks
resources: {accelerators: A10G, ports: 8081}
service: {replicas: 1}
run: echo ready to serve; exec python -m http.server --bind "$HOST" "$PORT"
"""


def clients(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Clients:
    """What a command asks with."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", aws.endpoint)
    key, secret, token = aws.credentials
    return Clients(boto3.Session(key, secret, token, region_name="us-east-1"))


def launched(ground: Ground, text: str, instance_type: str = "g5.2xlarge") -> str:
    """An instance with this user data, which runs."""
    answer = ground.aws.ec2.run_instances(
        MinCount=1,
        MaxCount=1,
        ImageId="ami-1",
        InstanceType=instance_type,  # type: ignore[arg-type]
        SubnetId=ground.subnets[0],
        UserData=base64.b64encode(text.encode()).decode(),
    )
    id_ = answer["Instances"][0]["InstanceId"]
    eventually(lambda: ground.states([id_]) == ["running"], f"{id_} runs")
    return id_


def test_the_words_of_a_service_are_on_the_console(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in the latest output, and in none that EC2 kept when the instance came to run."""
    path = tmp_path / "talks.yaml"
    path.write_text(SERVICE, encoding="utf-8")
    id_ = launched(ground, user_data(load(path), "us-east-1"))
    ask = clients(ground.aws, monkeypatch)
    eventually(lambda: "ready to serve" in console_output(ask, id_), "it says so")
    kept = ground.aws.ec2.get_console_output(InstanceId=id_)["Output"]
    assert "boots" in kept
    assert "ready to serve" not in kept
    ground.aws.ec2.terminate_instances(InstanceIds=[id_])
    eventually(lambda: ground.states([id_]) == ["terminated"], "it ends")
    assert "ready to serve" in console_output(ask, id_)


def test_a_unit_writes_to_its_journal_alone(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """User data that copies nothing to the console leaves the kernel's words there, and no others."""
    loud = USER_DATA.replace("exec python", "echo ready to serve; exec python")
    id_ = launched(ground, loud)
    assert console_output(clients(ground.aws, monkeypatch), id_).splitlines() == [
        f"[    0.000000] {id_} boots"
    ]


PHASES = """\
name: phases
resources: {accelerators: A10G, ports: 8081}
service: {replicas: 1}
setup: sleep 0.2
run: exec python -m http.server --bind "$HOST" "$PORT"
"""


def told(output: str) -> dict[str, float]:
    """What the last line of a start says."""
    lines = [line for line in output.splitlines() if line.startswith(CONSOLE_MARK)]
    return {name: float(at) for name, at in (word.split("=") for word in lines[-1].split()[1:])}


def test_what_a_start_has_reached_is_on_the_console(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each phase with its time, in order; the console that EC2 kept when it came to run has none of it."""
    path = tmp_path / "phases.yaml"
    path.write_text(PHASES, encoding="utf-8")
    id_ = launched(ground, user_data(load(path), "us-east-1"))
    ask = clients(ground.aws, monkeypatch)
    eventually(lambda: Phase.LOADS in console_output(ask, id_), "it tells")
    phases = told(console_output(ask, id_))
    assert list(phases) == [*TOLD_BY_INSTANCES]
    assert list(phases.values()) == sorted(phases.values())
    assert phases["is_set_up"] - phases["has_files"] > 0.15, "that is the set-up"
    kept = ground.aws.ec2.get_console_output(InstanceId=id_)["Output"]
    assert CONSOLE_MARK not in kept


def test_types_without_latest_output(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """EC2 refuses the latest output of types before Nitro: what it kept is shown."""
    id_ = launched(ground, USER_DATA, "c4.large")
    with pytest.raises(ClientError, match="UnsupportedOperation"):
        ground.aws.ec2.get_console_output(InstanceId=id_, Latest=True)
    assert "boots" in console_output(clients(ground.aws, monkeypatch), id_)


def test_who_may_not(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A permission that is missing is said so."""
    (id_,) = ground.running(1)
    nobody = clients(ground.aws.assume(), monkeypatch)
    with pytest.raises(Denied, match="ec2:GetConsoleOutput"):
        console_output(nobody, id_)
