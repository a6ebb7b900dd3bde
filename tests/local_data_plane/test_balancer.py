"""The load balancer: who gets a request, what becomes of a stream, what targets look like from outside."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from itertools import pairwise

import aiohttp
import pytest
from yarl import URL

from lab.local.balancer import BalancerConfig, TargetGroup, UnknownTargetGroupError
from lab.local.balancer.relay import CONNECT_TIMEOUT_S
from tests.local_data_plane.support import (
    FRONT,
    GROUP,
    PORT,
    QUICK,
    FakeTarget,
    Site,
    free_address,
    site,
    soon,
    until,
)

IDLE_S = 2.0
"""Long enough for every answer here, on a busy machine, too."""


async def two_healthy(stack: AsyncExitStack) -> tuple[Site, FakeTarget, FakeTarget]:
    """A site with two healthy targets, i-1 and i-2."""
    here = await stack.enter_async_context(site())
    first = await stack.enter_async_context(FakeTarget().running())
    second = await stack.enter_async_context(FakeTarget().running())
    here.configure()
    here.add("i-1", first.address)
    here.add("i-2", second.address)
    await here.until_state("i-1", "healthy")
    await here.until_state("i-2", "healthy")
    return here, first, second


async def who_serves(here: Site, requests: int) -> Counter[str]:
    """Sends requests one after the other; how many each address served."""
    served: Counter[str] = Counter()
    for _ in range(requests):
        async with here.post("/quick") as response:
            served[(await response.json())["address"]] += 1
    return served


async def counted(here: Site, expected: dict[str, int]) -> None:
    """Waits for the counters, which count a request just after its client has the end of the response."""
    await until(lambda: here.balancer.counters(FRONT) == expected, f"counters are {expected}")


async def open_stream(here: Site, target: FakeTarget, others: list[FakeTarget]) -> aiohttp.ClientResponse:
    """A stream through the load balancer that `target` serves, with its first piece received."""
    while True:
        opening = asyncio.ensure_future(here.client.post(here.url + "/stream"))
        known = {id(stream) for each in (target, *others) for stream in each.streams}

        def arrived(known: set[int] = known) -> bool:
            return any(id(stream) not in known for each in (target, *others) for stream in each.streams)

        await until(arrived, "a target has the request")
        if target.streams and id(target.streams[-1]) not in known:
            target.streams[-1].pieces.put_nowait(b"first")
            response = await soon(opening)
            assert await soon(response.content.readany()) == b"first"
            return response
        for each in others:
            if each.streams and id(each.streams[-1]) not in known:
                each.streams[-1].pieces.put_nowait(None)
        (await soon(opening)).close()


def test_pieces_flow_one_by_one() -> None:
    """Each piece reaches the client before the target has the next one to send."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            here, first, second = await two_healthy(stack)
            response = await open_stream(here, first, [second])
            for number in range(20):
                piece = b"data: %d\n\n" % number
                first.streams[-1].pieces.put_nowait(piece)
                assert await soon(response.content.readany()) == piece
            first.streams[-1].pieces.put_nowait(None)
            assert await soon(response.content.read()) == b""

    asyncio.run(scenario())


def test_drain() -> None:
    """A drained target gets no new request, its stream ends in good order, and it is still shown."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            here, first, second = await two_healthy(stack)
            response = await open_stream(here, first, [second])
            here.balancer.deregister(GROUP, [("i-1", None)])
            (row,) = here.balancer.health(GROUP, [("i-1", None)])
            assert (row["state"], row["reason"]) == ("draining", "Target.DeregistrationInProgress")
            assert await who_serves(here, 10) == {second.address: 10}
            first.streams[-1].pieces.put_nowait(b"last")
            first.streams[-1].pieces.put_nowait(None)
            assert await soon(response.content.read()) == b"last"
            assert here.states() == {"i-1": "draining", "i-2": "healthy"}
            (logged,) = [row for row in here.balancer.requests(FRONT) if row["draining_since"] is not None]
            assert (logged["target"], logged["status"], logged["cut"]) == ("i-1", 200, False)
            assert logged["started"] <= logged["draining_since"] <= logged["ended"]

    asyncio.run(scenario())


def test_drain_without_requests() -> None:
    """A drained target that serves nothing is shown as draining for the whole delay, as at ELB."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            here, _, _ = await two_healthy(stack)
            here.configure(TargetGroup(GROUP, PORT, QUICK, deregistration_delay_s=0.1))
            here.balancer.deregister(GROUP, [("i-1", None)])
            assert here.states() == {"i-1": "draining", "i-2": "healthy"}
            await here.until_state("i-1", "gone")
            (row,) = here.balancer.health(GROUP, [("i-1", None)])
            assert (row["state"], row["reason"]) == ("unused", "Target.NotRegistered")

    asyncio.run(scenario())


def test_deregistration_delay() -> None:
    """What a drained target still serves when the delay is over is broken off."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            here, first, second = await two_healthy(stack)
            here.configure(TargetGroup(GROUP, PORT, QUICK, deregistration_delay_s=0.1))
            response = await open_stream(here, first, [second])
            here.balancer.deregister(GROUP, [("i-1", None)])
            with pytest.raises(aiohttp.ClientPayloadError):
                await soon(response.content.read())
            await here.until_state("i-1", "gone")
            await until(lambda: here.balancer.counters(FRONT).get("Cut") == 1, "the cut is counted")
            await soon(first.streams[-1].closed.wait())

    asyncio.run(scenario())


def test_reregister_while_draining() -> None:
    """A draining target that is registered again comes back and keeps what it is serving."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            here, first, second = await two_healthy(stack)
            response = await open_stream(here, first, [second])
            here.balancer.deregister(GROUP, [("i-1", None)])
            here.balancer.register(GROUP, [("i-1", None)])
            assert here.states()["i-1"] == "initial"
            await here.until_state("i-1", "healthy")
            first.streams[-1].pieces.put_nowait(None)
            assert await soon(response.content.read()) == b""
            assert here.states()["i-1"] == "healthy"

    asyncio.run(scenario())


def test_deregister_absent() -> None:
    """Deregistering what isn't registered succeeds; a port of its own must be named."""

    async def scenario() -> None:
        async with site() as here:
            here.configure()
            here.balancer.deregister(GROUP, [("i-9", None), ("i-9", 1)])
            here.balancer.register(GROUP, [("i-1", 9000)])
            here.balancer.deregister(GROUP, [("i-1", None)])
            assert [(row["id"], row["port"]) for row in here.balancer.health(GROUP)] == [("i-1", 9000)]
            here.balancer.deregister(GROUP, [("i-1", 9000)])
            assert [row["state"] for row in here.balancer.health(GROUP)] == ["draining"]
            with pytest.raises(UnknownTargetGroupError, match="arn:other"):
                here.balancer.deregister("arn:other", [("i-1", None)])

    asyncio.run(scenario())


def test_health() -> None:
    """A target goes initial, healthy, unhealthy with the code it answered, and healthy again."""

    async def scenario() -> None:
        async with site() as here, FakeTarget(status=503).running() as target:
            here.configure(TargetGroup(GROUP, PORT, replace(QUICK, unhealthy_threshold=1000)))
            here.add("i-1", target.address)
            (row,) = here.balancer.health(GROUP)
            assert (row["state"], row["reason"]) == ("initial", "Elb.RegistrationInProgress")
            await until(
                lambda: here.balancer.health(GROUP)[0]["reason"] == "Elb.InitialHealthChecking", "a check"
            )
            target.status = 200
            await here.until_state("i-1", "healthy")
            here.configure()
            target.status = 503
            await here.until_state("i-1", "unhealthy")
            assert here.balancer.health(GROUP) == [
                {
                    "id": "i-1",
                    "port": PORT,
                    "state": "unhealthy",
                    "reason": "Target.ResponseCodeMismatch",
                    "description": "Health checks failed with these codes: [503]",
                }
            ]
            target.status = 200
            await here.until_state("i-1", "healthy")

    asyncio.run(scenario())


def test_health_of_the_unreachable() -> None:
    """Nobody listening, an instance not running, and one that comes back show as on AWS."""

    async def scenario() -> None:
        async with site() as here, FakeTarget().running() as target:
            here.configure()
            here.add("i-1", free_address())
            here.balancer.register(GROUP, [("i-2", None)])
            await here.until_state("i-1", "unhealthy")
            await here.until_state("i-2", "unused")
            reasons = {row["id"]: row["reason"] for row in here.balancer.health(GROUP)}
            assert reasons == {"i-1": "Target.FailedHealthChecks", "i-2": "Target.InvalidState"}
            here.addresses["i-2"] = target.address
            await here.until_state("i-2", "healthy")

    asyncio.run(scenario())


def test_slow_health_check() -> None:
    """A target that accepts and doesn't answer fails by time-out."""

    async def scenario() -> None:
        async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        address = free_address()
        async with site() as here, await asyncio.start_server(swallow, address, PORT):
            here.configure(TargetGroup(GROUP, PORT, replace(QUICK, timeout_s=0.1)))
            here.add("i-1", address)
            await here.until_state("i-1", "unhealthy")
            assert here.balancer.health(GROUP)[0]["reason"] == "Target.Timeout"

    asyncio.run(scenario())


def test_health_checks_are_an_interval_apart() -> None:
    """The interval is from check to check: one that times out doesn't delay the next by its time-out."""

    async def scenario() -> None:
        checks: list[float] = []

        async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            checks.append(asyncio.get_running_loop().time())
            await reader.read()
            writer.close()

        def apart() -> bool:
            return any(later - check < 0.4 for check, later in pairwise(checks))

        address = free_address()
        async with site() as here, await asyncio.start_server(swallow, address, PORT):
            here.configure(TargetGroup(GROUP, PORT, replace(QUICK, interval_s=0.3, timeout_s=0.25)))
            here.add("i-1", address)
            await until(apart, "two checks at an interval of 0.3 s, and not of 0.55 s")

    asyncio.run(scenario())


def test_group_not_in_use() -> None:
    """Targets of a group without a load balancer are unused and unchecked until it gets one."""

    async def scenario() -> None:
        async with site() as here, FakeTarget().running() as target:
            here.balancer.configure([], [TargetGroup(GROUP, PORT, QUICK)])
            here.add("i-1", target.address)
            assert here.balancer.health(GROUP)[0]["reason"] == "Target.NotInUse"
            here.configure()
            await here.until_state("i-1", "healthy")
            here.balancer.configure([], [])
            with pytest.raises(UnknownTargetGroupError):
                here.balancer.health(GROUP)

    asyncio.run(scenario())


def test_round_robin() -> None:
    """Healthy targets take turns; an unhealthy one gets nothing."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            here, first, second = await two_healthy(stack)
            assert await who_serves(here, 10) == {first.address: 5, second.address: 5}
            first.status = 500
            await here.until_state("i-1", "unhealthy")
            assert await who_serves(here, 10) == {second.address: 10}
            await counted(here, {"RequestCount": 20, "HTTPCode_Target_2XX_Count": 20})
            times = here.balancer.take_response_times(FRONT)
            assert len(times) == 20
            assert all(0 <= seconds < 60 for seconds in times)
            assert here.balancer.take_response_times(FRONT) == [], "each is told once"

    asyncio.run(scenario())


def test_least_outstanding_requests() -> None:
    """With this algorithm a target that is busy gets nothing while another is idle."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            here, first, second = await two_healthy(stack)
            here.configure(TargetGroup(GROUP, PORT, QUICK, algorithm="least_outstanding_requests"))
            response = await open_stream(here, first, [second])
            assert await who_serves(here, 6) == {second.address: 6}
            response.close()

    asyncio.run(scenario())


def test_fail_open() -> None:
    """With unhealthy targets only, requests go to all of them; with none, they get 503."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            here, first, second = await two_healthy(stack)
            first.status = second.status = 500
            await here.until_state("i-1", "unhealthy")
            await here.until_state("i-2", "unhealthy")
            assert await who_serves(here, 10) == {first.address: 5, second.address: 5}
            here.balancer.deregister(GROUP, [("i-1", None), ("i-2", None)])
            async with here.post("/quick") as response:
                assert (response.status, response.headers["server"]) == (503, "awselb/2.0")

    asyncio.run(scenario())


def test_fail_open_reaches_who_is_still_booting() -> None:
    """A lone target that is late loses most requests to one where nothing listens yet: it refuses at once.

    That is why nothing is registered before it answers from inside.
    """

    async def scenario() -> None:
        async with site() as here, FakeTarget().running() as busy:
            here.configure(TargetGroup(GROUP, PORT, QUICK, algorithm="least_outstanding_requests"))
            here.add("i-1", busy.address)
            await here.until_state("i-1", "healthy")
            here.add("i-2", free_address())
            assert await who_serves(here, 4) == {busy.address: 4}, "while it is healthy, all are its"
            busy.status = 503
            await here.until_state("i-1", "unhealthy")
            stream = asyncio.ensure_future(here.client.post(here.url + "/stream"))
            other = asyncio.ensure_future(here.client.post(here.url + "/stream"))
            await until(lambda: bool(busy.streams), "it has a request in flight")
            answers = []
            for _ in range(10):
                async with here.post("/quick") as response:
                    answers.append(response.status)
            assert answers == [502] * 10
            busy.streams[-1].pieces.put_nowait(None)
            (await soon(stream)).close()
            (await soon(other)).close()

    asyncio.run(scenario())


def test_errors_of_the_load_balancer() -> None:
    """A refused connection and no answer are 502, silence is 504, and nothing is tried on another target.

    An instance that is gone is silent, too: nobody there refuses, and the load balancer gives up connecting.
    """

    async def scenario() -> None:
        async with site() as here, FakeTarget().running() as target:
            here.configure(
                TargetGroup(GROUP, PORT, replace(QUICK, interval_s=1000.0)),
                BalancerConfig(FRONT, GROUP, idle_timeout_s=0.2),
            )
            here.add("i-1", target.address)
            await here.until_state("i-1", "healthy")
            async with here.post("/silence") as response:
                assert response.status == 502
            here.addresses["i-1"] = free_address()
            async with here.post("/quick") as response:
                assert response.status == 502
            del here.addresses["i-1"]
            began = time.monotonic()
            async with here.post("/quick") as response:
                assert response.status == 504
            assert time.monotonic() - began >= CONNECT_TIMEOUT_S
            here.addresses["i-1"] = target.address

            async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await reader.read()
                writer.close()

            address = free_address()
            async with await asyncio.start_server(swallow, address, PORT):
                here.addresses["i-1"] = address
                async with here.post("/quick") as response:
                    assert response.status == 504
            log = here.balancer.requests(FRONT)
            assert [row["status"] for row in log] == [502, 502, 504, 504]
            assert all(row["error"] and row["ended"] and not row["cut"] for row in log)
            by_code = {"HTTPCode_ELB_502_Count": 2, "HTTPCode_ELB_504_Count": 2}
            await counted(here, {"RequestCount": 4, "HTTPCode_ELB_5XX_Count": 4, **by_code})

    asyncio.run(scenario())


def test_an_idle_connection_to_a_target_is_closed_after_the_idle_timeout() -> None:
    """One that is younger is used again: so a target must keep it for longer than that."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            here = await stack.enter_async_context(site())
            target = await stack.enter_async_context(FakeTarget().running())
            here.configure(front=BalancerConfig(FRONT, GROUP, idle_timeout_s=IDLE_S))
            here.add("i-1", target.address)
            await here.until_state("i-1", "healthy")
            for pause_s in (0.0, 1.1 * IDLE_S, 0.0):
                await who_serves(here, 1)
                await asyncio.sleep(pause_s)
            first, again, later = target.connections
            assert first == again != later

    asyncio.run(scenario())


def test_cut_is_visible() -> None:
    """When a target dies mid-stream the client's response breaks off instead of ending."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            here, first, second = await two_healthy(stack)
            response = await open_stream(here, first, [second])
            first.streams[-1].pieces.put_nowait(b"")
            with pytest.raises(aiohttp.ClientPayloadError):
                await soon(response.content.read())
            await until(lambda: here.balancer.counters(FRONT).get("Cut") == 1, "the cut is counted")
            (logged,) = [row for row in here.balancer.requests(FRONT) if row["cut"]]
            assert (logged["target"], logged["status"]) == ("i-1", 200)

    asyncio.run(scenario())


def test_client_leaves() -> None:
    """When a client closes its connection, the target's stream is closed, and nobody calls it a cut."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            here, first, second = await two_healthy(stack)
            response = await open_stream(here, first, [second])
            response.close()
            await soon(first.streams[-1].closed.wait())
            await until(lambda: all(row["ended"] for row in here.balancer.requests(FRONT)), "all have ended")
            assert not any(row["cut"] for row in here.balancer.requests(FRONT))

    asyncio.run(scenario())


def test_request_arrives_whole() -> None:
    """Path, query, body and headers arrive as sent, with what a load balancer adds."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            here, first, second = await two_healthy(stack)
            body = b"x" * 300_000
            async with here.client.put(
                URL(here.url + "/a%20b?c=d%2Fe", encoded=True),
                data=body,
                headers={"Host": "demo.example", "X-Mine": "1"},
            ) as response:
                assert response.status == 201
                assert (await response.json())["body"] == body.decode()
            (target,) = [each for each in (first, second) if each.paths]
            assert target.paths == ["/a%20b?c=d%2Fe"]
            (headers,) = target.headers
            assert (headers["host"], headers["x-mine"]) == ("demo.example", "1")
            assert headers["x-forwarded-for"] == "127.0.0.1"
            assert headers["x-amzn-trace-id"].startswith("Root=1-")

    asyncio.run(scenario())


def test_headers_with_invalid_names_are_dropped_if_asked() -> None:
    """A name with an underscore doesn't reach the target of a load balancer that drops such headers."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            here, first, second = await two_healthy(stack)
            sent = {"x_session": "1", "X-Session-2": "2"}
            for drops, expected in ((False, {"x_session", "x-session-2"}), (True, {"x-session-2"})):
                here.configure(front=BalancerConfig(FRONT, GROUP, drops_invalid_headers=drops))
                async with here.client.get(here.url + "/quick", headers=sent) as response:
                    assert response.status == 201
                (headers,) = first.headers + second.headers
                assert {name for name in headers if "session" in name} == expected
                first.headers.clear()
                second.headers.clear()

    asyncio.run(scenario())


def test_many_streams() -> None:
    """Fifty streams at once each get all their pieces, in order."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            here, first, second = await two_healthy(stack)

            async def read() -> bytes:
                async with here.post("/stream") as response:
                    return await response.content.read()

            clients = [asyncio.ensure_future(read()) for _ in range(50)]
            await until(lambda: len(first.streams) + len(second.streams) == 50, "all streams are open")
            for number in range(50):
                for stream in first.streams + second.streams:
                    stream.pieces.put_nowait(b"%d " % number)
                await asyncio.sleep(0)
            for stream in first.streams + second.streams:
                stream.pieces.put_nowait(None)
            expected = b"".join(b"%d " % number for number in range(50))
            assert await soon(asyncio.gather(*clients)) == [expected] * 50
            assert len(first.streams) == len(second.streams)

    asyncio.run(scenario())
