"""What the clients change about boto3."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader
from botocore.utils import parse_timestamp
from moto import mock_aws

from spotrelay.plane.aws.clients import REST_S, SERVICES, Clients, Models, parsed_time


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-21T07:00:00.000Z",
        "2026-11-21T07:00:00Z",
        "2026-11-21T08:00:00+01:00",
        "2026-11-21T07:00:00",
        "20261121T070000Z",
        "Sat, 21 Nov 2026 07:00:00 GMT",
        "1795000000",
        "1795000000.123",
        1795000000,
        1795000000.123,
        0,
    ],
)
def test_a_time_is_what_botocore_reads(value: Any) -> None:
    """Every format that AWS uses gives the moment that botocore's own parser gives."""
    assert parsed_time(value) == parse_timestamp(value)


def test_what_is_no_time_is_an_error_as_in_botocore() -> None:
    """Neither parser makes a time of a text that is none."""
    with pytest.raises(ValueError, match="soon"):
        parsed_time("soon")


def test_described_times_are_read_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of a function's own session gives the times of `datetime`, not those of botocore's parser."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        ec2 = Clients().ec2
        ec2.create_volume(AvailabilityZone="us-east-1a", Size=1)
        (volume,) = ec2.describe_volumes()["Volumes"]
    assert volume["CreateTime"].tzinfo is UTC


def test_models_are_those_that_botocore_reads(tmp_path: Path) -> None:
    """A model has the same content in the same order, in plain dicts; what there is no file of is None."""
    ours, theirs = Models.FILE_LOADER_CLASS(), JSONFileLoader()
    named = [Path(Models.BUILTIN_DATA_PATH, name) for name in ("endpoints", "partitions", "_retry")]
    models = Path(Models.BUILTIN_DATA_PATH, "elbv2")
    named += {Path(str(path).partition(".json")[0]) for path in models.rglob("*.json*")}
    assert len(named) > 3
    for path in map(str, named):
        assert json.dumps(ours.load_file(path)) == json.dumps(theirs.load_file(path)), path
        assert type(ours.load_file(path)) is dict
    assert ours.load_file(str(tmp_path / "none")) is theirs.load_file(str(tmp_path / "none")) is None


def test_every_client_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function's own session knows each service that there is a client for."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    names = [name for name, made in vars(Clients).items() if isinstance(made, cached_property)]
    public = [name for name in names if not name.startswith("_")]
    clients = Clients()
    clients.make(*public)
    assert {getattr(clients, name).meta.service_model.service_name for name in public} == {*SERVICES}


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-amz-json-1.0\r\nContent-Length: 2\r\n\r\n{}"


class Dropping:
    """Answers so many requests on each connection, all of which it keeps, and swallows what comes later."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError):
            for _ in range(self._answers):
                # The body of these requests is "{}".
                request = b""
                while not request.endswith(b"\r\n\r\n{}"):
                    request += connection.recv(65_536)
                connection.sendall(ANSWER)

    def close(self) -> None:
        """What is open is cut."""
        for one in (self._listener, *self.connections):
            one.close()


@pytest.fixture
def dropping(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Dropping]:
    """In place of AWS."""
    server = Dropping(request.param)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    yield server
    server.close()


@pytest.mark.parametrize("dropping", [1], indirect=True)
def test_no_call_waits_on_a_connection_that_has_rested(dropping: Dropping) -> None:
    """After hours in a frozen sandbox a call goes out on a new connection, not on one that nobody keeps."""
    now_s = 1000.0
    clients = Clients(now_s=lambda: now_s)
    for invocations in range(1, 4):
        with clients.in_use(60):
            clients.dynamodb.list_tables()
        assert len(dropping.connections) == invocations
        now_s += REST_S + 1
    assert dropping.connections[0].recv(1) == b"", "it was closed, and nothing was sent on it"


@pytest.mark.parametrize("dropping", [2], indirect=True)
def test_a_connection_is_kept_for_the_next_tick(dropping: Dropping) -> None:
    """Ticks at rest come every minute, and don't pay for a new connection each time."""
    now_s = 1000.0
    clients = Clients(now_s=lambda: now_s)
    for _ in range(2):
        with clients.in_use(60):
            clients.dynamodb.list_tables()
        now_s += REST_S
    assert len(dropping.connections) == 1
