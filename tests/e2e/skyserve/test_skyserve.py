"""Files in SkyServe's format are deployed as they are, and what answers is the file's own server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spotrelay.plane.core.replica import Replica, ReplicaState
from tests.e2e.clients import Answer, Client, Requests
from tests.e2e.skyserve.conftest import SECRET, Deployed

ASK: dict[str, Any] = {"model": "qwen", "prompt": "hello"}

REFUSALS = 3
"""Probes in turn that get 503: one alone could have come before any decision."""


def test_an_http_server_serves(deployed_files: Deployed) -> None:
    """Python's own, on two replicas: the list of the directory that SkyServe's scripts run in."""
    stand = deployed_files.stand("http-server")
    stand.whole(2)
    answer = Client(stand).ask("GET", "/")
    assert answer.status == 200
    assert "Directory listing for /" in answer.text


def test_a_work_directory_serves(deployed_files: Deployed) -> None:
    """Its server runs, and finds the file beside it."""
    stand = deployed_files.stand("http-workdir")
    (replica,) = stand.whole(1).ready
    answer = Client(stand).ask("GET", "/greeting")
    assert answer == Answer(200, f"{_address(deployed_files, replica)}: the work directory\n")


def test_a_probe_with_a_header_is_let_in(deployed_files: Deployed) -> None:
    """The server takes nobody without the key of the file's envs: the probe had it, and clients need it."""
    stand = deployed_files.stand("headers-and-key")
    (replica,) = stand.whole(1).ready
    address, client = _address(deployed_files, replica), Client(stand)
    assert client.ask("GET", "/v1/models", headers=_bearer("local-test")) == Answer(200, f"{address}: ")
    assert client.ask("GET", "/v1/models") == Answer(401, f"{address}: no key")


def test_a_secret_reaches_its_server(deployed_files: Deployed) -> None:
    """The instance fetches what the file leaves open with its own role; the server takes nobody without."""
    stand = deployed_files.stand("secrets-null")
    (replica,) = stand.whole(1).ready
    address, client = _address(deployed_files, replica), Client(stand)
    assert client.ask("GET", "/v1/models", headers=_bearer(SECRET)) == Answer(200, f"{address}: ")
    assert client.ask("GET", "/v1/models").status == 401


def test_a_probe_with_a_body_is_answered(deployed_files: Deployed) -> None:
    """The server knows one model, which the file's envs name to it and to the probe."""
    stand = deployed_files.stand("json-probe")
    ready = stand.whole(2).ready
    answer = Client(stand).ask("POST", "/generate", ASK)
    assert answer in {Answer(200, f"{_address(deployed_files, r)}: completed hello") for r in ready}
    assert Client(stand).ask("POST", "/generate", {**ASK, "model": "other"}).status == 404


def test_a_replica_gets_requests_once_it_has_answered_a_post(deployed_files: Deployed) -> None:
    """The third one's GET is fine from the start, its POST is 503 at first: no client ever gets that."""
    stand, gate = deployed_files.stand("json-probe"), deployed_files.gate
    before = {replica.id for replica in stand.whole(2).ready}
    refused = Path(f"{gate}.refused")
    gate.unlink()
    client = Client(stand)
    try:
        with Requests(lambda: client.ask("POST", "/generate", ASK), rate=10) as clients:
            stand.want(3)
            stand.eventually(lambda: _lines(refused) >= REFUSALS, f"{REFUSALS} probes that got 503")
            (third,) = (r for r in stand.watch.look().present if r.id not in before)
            address = _address(deployed_files, third)
            assert set(refused.read_text(encoding="utf-8").split()) == {address}, "who was asked"
            assert stand.watch.look().replicas[third.id].state is ReplicaState.STARTING
            assert third.instance_id not in stand.targets()
            gate.touch()
            stand.whole(3)
            assert third.instance_id in stand.targets()
            text = f"{address}: completed hello"
            stand.eventually(lambda: clients.answers[Answer(200, text)] > 0, "the third one answers clients")
        assert clients.statuses == {200}
    finally:
        gate.touch()
        # Nobody waits here for the drain of half a minute: each test waits for the number that it needs.
        stand.want(2)


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines()) if file.exists() else 0


def _address(deployed: Deployed, replica: Replica) -> str:
    """Of the replica's instance, which it says with each answer."""
    (found,) = (
        i["address"] for i in deployed.operator.cloud.instances() if i["instance_id"] == replica.instance_id
    )
    return str(found)
