"""A replica that doesn't start tells why, on its own port: the scripts of an instance, run for real."""

from __future__ import annotations

import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest

from lambdas import probe
from spotrelay.file.instance import crash
from spotrelay.file.service import user_data
from tests.local_data_plane.support import free_address, wait_until

from .conftest import GOOD, Loader
from .test_boot import Instance
from .test_userdata import files

PORT = 8172
"""Of no service file: other tests' servers may listen everywhere."""

SAID = "Traceback\nRuntimeError: no kernel image"


class Told:
    """An instance whose server ends; its `address` is its own, so that its port is."""

    def __init__(self, booted: Instance) -> None:
        self.booted, self.address = booted, free_address()
        self.ends_file = booted.directory / f".ends-{PORT}"

    def after_an_end(self) -> subprocess.Popen[str]:
        """What systemd runs then."""
        return subprocess.Popen(
            ["bash", str(self.booted.directory / "crash.sh")],
            env={**self.booted.environment, "PORT": "1", "HOST": self.address},  # the file's own
            stderr=subprocess.PIPE,
            text=True,
        )

    def ends(self, times: int) -> None:
        """It has ended so often, and the script told nothing of it."""
        for _ in range(times):
            assert self.after_an_end().wait(60) == 0
        assert self.booted.calls("journalctl") == []

    def until_it_tells(self) -> None:
        """Wait until somebody listens."""

        def listens() -> bool:
            with socket.socket() as asking:
                return asking.connect_ex((self.address, PORT)) == 0

        wait_until(listens, "somebody listens")

    def ask(
        self, method: str = "GET", body: str | None = None, **headers: str
    ) -> tuple[int, str | None, str]:
        """Its answer: status, how many starts have failed, what was said."""
        asking = HTTPConnection(self.address, PORT, timeout=60)
        asking.request(method, "/health", body, {k.replace("_", "-"): v for k, v in headers.items()})
        answer = asking.getresponse()
        return answer.status, answer.headers[crash.HEADER], answer.read().decode()


def stop(told: subprocess.Popen[str]) -> None:
    """As systemd does with a whole control group."""
    for process in psutil.Process(told.pid).children(recursive=True):
        process.kill()
    told.communicate()


@pytest.fixture
def instance(tmp_path: Path, service: Loader) -> Told:
    """One whose service has said something."""
    (tmp_path / "instance").mkdir()
    booted = Instance(tmp_path / "instance")
    booted.boot(service(GOOD.replace("8081", str(PORT))))
    booted.command("journalctl", f"echo -n {shlex.quote(SAID)}")
    return Told(booted)


@pytest.fixture
def crashing(instance: Told) -> Iterator[Told]:
    """One that has just ended for the third time."""
    instance.ends(2)
    told = instance.after_an_end()
    try:
        instance.until_it_tells()
        yield instance
    finally:
        stop(told)


def test_the_third_end_is_told(crashing: Told) -> None:
    """By whatever method it is asked: what the service said last, and that it is a crash."""
    assert crashing.ask() == (503, "3", SAID)
    assert crashing.ask("POST", "x" * 100_000) == (503, "3", SAID)


@pytest.mark.parametrize("header", ["X-Forwarded-For", "x-amzn-trace-id"])
def test_a_client_is_told_nothing(crashing: Told, header: str) -> None:
    """Whoever comes through a load balancer gets no lines of a log."""
    assert crashing.ask(**{header: "1"}) == (503, "3", "")


@pytest.mark.usefixtures("on_loopback")
def test_the_prober_hears_it(crashing: Told) -> None:
    """It isn't ready, doesn't refuse, and its words reach the controller."""
    urls = {"i-1": f"http://{crashing.address}:{PORT}/v1"}
    said = probe.handler({"urls": urls, "post_data": {"max_tokens": 1}, "timeout_s": 30}, None)
    assert said == {"answering": [], "refusing": [], "crashing": {"i-1": [3, SAID]}}


def test_the_next_end_is_told_too(crashing: Told) -> None:
    """Each further one, while the last three are close."""
    assert len(crashing.ends_file.read_text().splitlines()) == crash.ENDS


def test_ends_that_lie_apart_are_no_crash_loop(instance: Told) -> None:
    """A server that fails once in a while is started again without delay."""
    long_ago = int(time.time()) - crash.WITHIN_S - 1
    instance.ends_file.write_text(f"{long_ago}\n" * 2)
    instance.ends(2)
    told = instance.after_an_end()
    instance.until_it_tells()
    stop(told)


def test_an_instance_that_is_going_down_is_left_alone(instance: Told) -> None:
    """Its stop would wait for it."""
    instance.ends(2)
    instance.booted.command("systemctl", "echo stopping")
    instance.ends(2)


def test_a_port_that_is_taken_is_said(instance: Told) -> None:
    """In the log, which is all that is left: nobody can be told on that port."""
    instance.ends(2)
    with socket.create_server((instance.address, PORT)):
        assert "something else listens on port 8172" in instance.after_an_end().communicate(timeout=60)[1]


def test_without_python_it_is_silent(instance: Told) -> None:
    """An image of one's own may have none: the service is started again as ever."""
    env = {"PATH": instance.booted.without("python3"), "HOST": instance.address}
    ended = [instance.booted.run("crash.sh", **env) for _ in range(3)]
    assert [(done.returncode, done.stderr) for done in ended] == [(0, "")] * 3


def test_every_instance_has_it(service: Loader) -> None:
    """After each end, also of a set-up that failed, which is when systemd runs ExecStopPost."""
    found = files(user_data(service(GOOD), "us-east-1"))
    assert "ExecStopPost=/bin/bash /opt/spotrelay/crash.sh\n" in found["spotrelay.service"]
    assert {"crash.sh", "crash.py"} <= found.keys()
    assert "\nport=${1-8081}\n" in found["crash.sh"]
