"""The demo's load, and the whole data plane under it: machines, chat servers, balancer."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from lab.demo.load import Load, LoadError, LoadSnapshot
from lab.demo.load_worker import percentiles
from lab.local.balancer.config import TargetGroup
from lab.local.machines import Machines
from tests.local_data_plane.support import (
    GROUP,
    PATIENCE_S,
    PORT,
    QUICK,
    Site,
    free_address,
    site,
    until,
    wait_until,
)
from tests.local_data_plane.test_machines import alive, user_data

RUN = "exec python -m lab.demo.chat_server"


async def boot(here: Site, machines: Machines, *instance_ids: str, pace: float = 0.002) -> None:
    """Starts chat servers as instances and waits until they are healthy."""
    for instance_id in instance_ids:
        address = free_address()
        machines.start(instance_id, address, user_data(RUN, TOKENS="20", TOKEN_S=str(pace)))
        here.add(instance_id, address)
    for instance_id in instance_ids:
        await here.until_state(instance_id, "healthy")


async def stopped(load: Load) -> LoadSnapshot:
    """Stops the load without stopping the loop that serves it."""
    return await asyncio.to_thread(load.stop, PATIENCE_S)


async def finished(load: Load, more: int) -> None:
    """Waits until so many more requests have been served."""
    goal = load.snapshot().finished + more
    await until(lambda: load.snapshot().finished >= goal, f"{more} more requests are served")


def test_drain_and_replace_under_load(tmp_path: Path) -> None:
    """A replica that is drained, killed once it is gone, and replaced costs no request."""

    async def scenario() -> None:
        machines = Machines(tmp_path)
        try:
            async with site() as here:
                # Many times what a request takes.
                here.configure(TargetGroup(GROUP, PORT, QUICK, deregistration_delay_s=5))
                await boot(here, machines, "i-1", "i-2")
                with Load(here.url, ["demo.example"], concurrency=20) as load:
                    await finished(load, 40)
                    here.balancer.deregister(GROUP, [("i-1", None)])
                    await here.until_state("i-1", "gone")
                    machines.stop("i-1")
                    await boot(here, machines, "i-3")
                    await finished(load, 40)
                    total = await stopped(load)
            assert (total.failed, total.cut, total.in_flight) == (0, 0, 0), total.failures
            assert total.sent == total.finished == sum(total.by_replica.values())
            assert len(total.by_replica) == 3
            assert total.tokens == 20 * total.finished
            assert 0 < total.first_token.p50_s <= total.latency.p50_s <= total.latency.p95_s
        finally:
            machines.stop_all()

    asyncio.run(scenario())


def test_kill_cuts(tmp_path: Path) -> None:
    """Killing an instance cuts the streams it serves, and the load counts every one of them."""

    async def scenario() -> None:
        machines = Machines(tmp_path)
        try:
            async with site() as here:
                here.configure()
                await boot(here, machines, "i-1", pace=0.1)  # two seconds each: none ends before the kill
                with Load(here.url, ["demo.example"], concurrency=5) as load:
                    await finished(load, 5)
                    machines.stop("i-1")
                    await until(lambda: load.snapshot().cut, "streams are cut")
                    await until(lambda: load.snapshot().failed, "requests fail")
                    total = await stopped(load)
            cut = [failure for failure in total.failures if failure.kind == "cut"]
            assert len(cut) == total.cut <= 5
            assert {failure.status for failure in cut} == {200}
            assert {failure.status for failure in total.failures if failure.kind == "failed"} <= {502, 503}
            assert total.sent == total.finished + total.failed + total.cut
        finally:
            machines.stop_all()

    asyncio.run(scenario())


def test_nobody_there() -> None:
    """Without a server every request fails, with the reason, and none is sent twice."""
    with socket.socket() as silent:
        silent.bind((free_address(), 0))  # so that no server of another test gets this port
        address, port = silent.getsockname()
        with Load(f"http://{address}:{port}", ["demo.example"], concurrency=2) as load:
            wait_until(lambda: load.snapshot().failed >= 2, "requests fail")
            total = load.stop(PATIENCE_S)
    assert total.sent == total.failed
    assert total.failures[0].status == 0
    assert "ClientConnectorError" in total.failures[0].error


def fails(call: Callable[[], object]) -> bool:
    """Whether the load is known to have failed."""
    try:
        call()
    except LoadError:
        return True
    return False


def test_a_pause_is_between_answers(tmp_path: Path) -> None:
    """The clients begin spread over it, and the end doesn't wait for it."""

    async def scenario() -> None:
        machines = Machines(tmp_path)
        try:
            async with site() as here:
                here.configure()
                await boot(here, machines, "i-1")
                with Load(here.url, ["demo.example"], concurrency=2, pause_s=1000.0) as load:
                    await finished(load, 1)
                    total = await stopped(load)
            assert (total.sent, total.finished) == (1, 1)
        finally:
            machines.stop_all()

    asyncio.run(scenario())


def test_dead_worker() -> None:
    """A load whose process has died says so instead of showing good numbers."""
    with Load(f"http://{free_address()}:{PORT}", ["demo.example"], concurrency=1) as load:
        wait_until(lambda: load.snapshot().sent, "the load runs")
        (worker,) = (
            child for child in psutil.Process().children() if "lab.demo.load_worker" in child.cmdline()
        )
        worker.kill()
        # A process of several threads is a zombie a moment before it can be reaped: wait for the error.
        wait_until(lambda: fails(load.snapshot), "the load notices")
        with pytest.raises(LoadError, match="ended with status -9"):
            load.snapshot()
        with pytest.raises(LoadError, match="ended with status -9"):
            load.stop(PATIENCE_S)


PARENT = """
import time
from lab.demo.load import Load
with Load("http://127.0.0.1:1", ["demo.example"], concurrency=1):
    time.sleep(1000)
"""


def test_dies_with_parent() -> None:
    """The load's process doesn't outlive its parent, even if that is SIGKILLed."""
    with subprocess.Popen([sys.executable, "-c", PARENT]) as parent:
        children = psutil.Process(parent.pid).children
        wait_until(children, "the worker runs")
        (worker,) = children()
        os.kill(parent.pid, signal.SIGKILL)
    wait_until(lambda: not alive(worker.pid), "the worker is gone")


def test_misuse() -> None:
    """A load is started once, and stopped only after that."""
    load = Load("http://127.0.0.1:1", ["demo.example"], concurrency=1)
    with pytest.raises(LoadError, match="never started"):
        load.stop()
    with load, pytest.raises(LoadError, match="once only"):
        load.start()


def test_percentiles() -> None:
    """Percentiles are values that were measured."""
    assert percentiles([]).max_s == 0
    found = percentiles([float(value) for value in range(100, 0, -1)])
    assert (found.p50_s, found.p95_s, found.max_s) == (50, 95, 100)
