"""A replica that doesn't start tells why, on its own port: the scripts of an instance, run for real."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import psutil
import pytest

from lambdas import probe
from spotrelay.service import crash, user_data

from .conftest import GOOD, Loader
from .test_userdata import files

PORT = 8172
"""Of no service file: other tests' servers may listen everywhere."""

SAID = "Traceback\nRuntimeError: no kernel image"

JOURNAL = f"""\
#!/bin/sh
printf '{SAID}' | sed 's/\\\\n/\\n/g'
"""

RUNNING, STOPPING = "#!/bin/sh\necho running\n", "#!/bin/sh\necho stopping\n"


class Instance:
    """A directory with the two scripts; `address` is its own, so that its port is."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.address = f"127.{secrets.randbelow(200) + 10}.{secrets.randbelow(250) + 1}.1"
        for name, text in crash.scripts(PORT).items():
            (directory / name).write_text(text, encoding="utf-8")
        self.command("journalctl", JOURNAL)
        self.command("systemctl", RUNNING)

    def command(self, name: str, text: str) -> None:
        """Put a program of the instance's."""
        path = self.directory / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)

    def after_an_end(self) -> subprocess.Popen[str]:
        """What systemd runs then."""
        path = f"{self.directory / 'bin'}:{os.environ['PATH']}"
        return subprocess.Popen(
            ["bash", str(self.directory / "crash.sh")],
            env={"PATH": path, "PORT": "1", "HOST": self.address},  # the file's own
            stderr=subprocess.PIPE,
            text=True,
        )

    def ends(self, times: int) -> None:
        """It has ended so often, and the script ended each time at once."""
        for _ in range(times):
            assert self.after_an_end().wait(60) == 0

    def until_it_tells(self) -> None:
        """Wait until somebody listens."""
        for _ in range(600):
            with socket.socket() as asking:
                if asking.connect_ex((self.address, PORT)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("nobody listens")

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
def instance(tmp_path: Path) -> Instance:
    """One whose service has said something."""
    return Instance(tmp_path)


@pytest.fixture
def crashing(instance: Instance) -> Iterator[Instance]:
    """One that has just ended for the third time."""
    instance.ends(2)
    told = instance.after_an_end()
    try:
        instance.until_it_tells()
        yield instance
    finally:
        stop(told)


def test_the_third_end_is_told(crashing: Instance) -> None:
    """By whatever method it is asked: what the service said last, and that it is a crash."""
    assert crashing.ask() == (503, "3", SAID)
    assert crashing.ask("POST", "x" * 100_000) == (503, "3", SAID)


@pytest.mark.parametrize("header", ["X-Forwarded-For", "x-amzn-trace-id"])
def test_a_client_is_told_nothing(crashing: Instance, header: str) -> None:
    """Whoever comes through a load balancer gets no lines of a log."""
    assert crashing.ask(**{header: "1"}) == (503, "3", "")


@pytest.mark.usefixtures("on_loopback")
def test_the_prober_hears_it(crashing: Instance) -> None:
    """It isn't ready, doesn't refuse, and its words reach the controller."""
    urls = {"i-1": f"http://{crashing.address}:{PORT}/v1"}
    said = probe.handler({"urls": urls, "post_data": {"max_tokens": 1}, "timeout_s": 30}, None)
    assert said == {"answering": [], "refusing": [], "crashing": {"i-1": [3, SAID]}}


def test_the_next_end_is_told_too(crashing: Instance) -> None:
    """Each further one, while the last three are close."""
    assert len((crashing.directory / f".ends-{PORT}").read_text().splitlines()) == crash.ENDS


def test_ends_that_lie_apart_are_no_crash_loop(instance: Instance) -> None:
    """A server that fails once in a while is started again without delay."""
    long_ago = int(time.time()) - crash.WITHIN_S - 1
    (instance.directory / f".ends-{PORT}").write_text(f"{long_ago}\n" * 2)
    instance.ends(2)
    told = instance.after_an_end()
    instance.until_it_tells()
    stop(told)


def test_an_instance_that_is_going_down_is_left_alone(instance: Instance) -> None:
    """Its stop would wait for it."""
    instance.ends(2)
    instance.command("systemctl", STOPPING)
    instance.ends(2)


def test_a_port_that_is_taken_is_said(instance: Instance) -> None:
    """In the log, which is all that is left: nobody can be told on that port."""
    instance.ends(2)
    with socket.create_server((instance.address, PORT)):
        assert "something else listens on port 8172" in instance.after_an_end().communicate(timeout=60)[1]


def test_without_python_it_is_silent(instance: Instance, tmp_path: Path) -> None:
    """An image of one's own may have none: the service is started again as ever."""
    bare = tmp_path / "bin"
    for name in ("bash", "dirname", "date", "tail", "timeout"):
        (bare / name).symlink_to(f"/usr/bin/{name}")
    script = ["/bin/bash", str(tmp_path / "crash.sh")]
    env = {"PATH": str(bare), "HOST": instance.address}
    ended = [subprocess.run(script, env=env, capture_output=True, check=True, timeout=60) for _ in range(3)]
    assert [done.stderr for done in ended] == [b""] * 3


def test_every_instance_has_it(service: Loader) -> None:
    """After each end, also of a set-up that failed, which is when systemd runs ExecStopPost."""
    found = files(user_data(service(GOOD), "us-east-1"))
    assert "ExecStopPost=/bin/bash /opt/spotrelay/crash.sh\n" in found["spotrelay.service"]
    assert {"crash.sh", "crash.py"} <= found.keys()
    assert "\nport=${1-8081}\n" in found["crash.sh"]
