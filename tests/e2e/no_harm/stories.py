"""What happens to replicas that start, are alone, are busy, or fail, while clients use them.

Each story is a function of its service. It fails if a request failed that a living replica could have served.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lab.demo.operator import Operator
from lab.local.environment import EC2_WARNING_S
from spotrelay.plane.core import timing
from spotrelay.plane.core.replica import Replica, ReplicaState
from tests.e2e.clients import CLIENTS, Client, Clients
from tests.e2e.faults.bench import Bench
from tests.e2e.no_harm.server import CHECKS_WAIT, REFUSES, SERIAL, Moods
from tests.e2e.stand import WITHIN_S
from tests.e2e.updating import update

SINGLE, PAIR, LONE, REFUSING, BUSY_SERVICE, LONG = "single", "pair", "lone", "refusing", "busy", "long"
"""The services, by what their stories are about."""

FIRST_IMAGE, NEXT_IMAGE = "ami-0123456789abcdef1", "ami-0123456789abcdef2"
"""Of the service whose image goes."""

MANY = 8
"""Clients that are too many for a replica that answers one a second: a check waits for longer than the load
balancer does."""

LIMIT = 4
"""So many requests at once make a replica of the busy service full."""

FOREVER_S = 600.0
"""The story ends the fault itself, once it has seen what it wanted to."""

BLIND_S = timing.MISSING_S + 15
"""Longer than what is missing must be missing to count as gone."""

BOOT_S = 15
"""From an instance's start until anything listens, where that matters."""

COLD_START_S = 60
"""Of who is launched after half of the warning: too long to serve before its end."""

LONG_TOKENS = 800
"""An answer of 40 s. Its service has five as `drain_seconds`, and is patient only where nobody hurries."""

NEW_S = 5.0
"""So little of such an answer is given that the rest takes much longer than `drain_seconds`."""


class Stage:
    """A service, its moods, and what its stories need to know of it."""

    def __init__(self, operator: Operator, service: str, moods: Path) -> None:
        # A boto3 session is for one thread, and each service's stories have one.
        self.bench = Bench(Operator(operator.deployment), service)
        self.moods = Moods(moods / service)

    def grown(self, replicas: int) -> list[Replica]:
        """Ask for so many replicas, and wait until they serve."""
        if self.bench.spec.replicas != replicas:
            self.bench.want(replicas)
        return self.serving(replicas)

    def serving(self, replicas: int) -> list[Replica]:
        """Wait until exactly so many serve and stay, and nobody comes; others may be on their way out."""
        seen = self.bench.watch.until(
            lambda seen: (
                sum(r.stays for r in seen.ready) == replicas
                and sum(r.state.is_active and not r.is_warned for r in seen.present) == replicas
            ),
            f"{replicas} that serve and stay",
            WITHIN_S,
        )
        return [r for r in seen.ready if r.stays]

    def until(
        self, is_so: Callable[[Mapping[int, Replica]], bool], what: str, within_s: float = WITHIN_S
    ) -> Mapping[int, Replica]:
        """The replicas, by ID, once it is so."""
        return self.bench.watch.until(lambda seen: is_so(seen.replicas), what, within_s).replicas

    def health(self, replica: Replica) -> str | None:
        """What the load balancer says of a replica."""
        elb = self.bench.operator.session.client("elbv2")
        answer = elb.describe_target_health(TargetGroupArn=self.bench.spec.target_group_arn)
        states = {t["Target"]["Id"]: t["TargetHealth"]["State"] for t in answer["TargetHealthDescriptions"]}
        return states.get(replica.instance_id or "")

    def hide(self, action: str, about: str, **how_long: Any) -> None:
        """Have a tick's answers about this service be successful and empty."""
        self.bench.cloud.inject_fault(
            action, answer="empty", role=self.bench.reconcile, about=about, **how_long
        )

    def is_struck(self, about: str) -> bool:
        """Whether the faults about something have all happened."""
        return all(fault["about"] != about for fault in self.bench.cloud.faults())

    def put(self, replica: Replica, *moods: str) -> None:
        """Change the mood of one replica."""
        instances = {i["instance_id"]: i["address"] for i in self.bench.cloud.instances()}
        self.moods.put(instances[replica.instance_id], *moods)


Story = Callable[[Stage], None]


def a_burst_while_all_starts(stage: Stage) -> None:
    """All that serve are warned; EC2 doesn't show what starts, for longer than others may be missing.

    What would be launched in place of those starts too late to serve before EC2 has taken the others.
    """
    bench, service = stage.bench, stage.bench.service
    before = stage.grown(2)
    gate = stage.moods.place / "gate"
    gate.touch()
    stage.moods.boot(f"while [ -e {gate} ]; do sleep 0.2; done")
    with Clients(bench) as clients:
        bench.cloud.warn_all([str(r.instance_id) for r in before])
        ids = {r.id for r in before}
        seen = stage.until(
            lambda seen: (
                sum(r.replaces in ids and r.state is ReplicaState.STARTING for r in seen.values()) == 2
            ),
            "both have replacements that start",
        )
        coming = [r for r in seen.values() if r.replaces in ids]
        stage.moods.boot(f"sleep {COLD_START_S}")  # of whoever is launched from now on
        stage.hide("DescribeInstances", service, for_s=BLIND_S)
        bench.eventually(lambda: stage.is_struck(service), "EC2 shows them")
        gate.unlink()
        stage.until(
            lambda seen: all(r.state.is_ended for r in seen.values() if r.id in ids),
            "EC2 has taken what it warned",
            EC2_WARNING_S + WITHIN_S,
        )
        clients.were_served()
    assert {r.id for r in stage.serving(2)} == {r.id for r in coming}
    stage.moods.boot("")


def an_image_is_gone(stage: Stage) -> None:
    """All that serve are warned, and no launch finds the image; a version with another one is deployed."""
    bench = stage.bench
    before = stage.serving(2)
    with Clients(bench) as clients:
        bench.cloud.lose_image(FIRST_IMAGE)
        bench.cloud.warn_all([str(r.instance_id) for r in before])
        ids = {r.id for r in before}
        stage.until(
            lambda seen: sum(r.replaces in ids and r.attempts > 0 for r in seen.values()) == 2,
            "EC2 refuses to launch their replacements",
        )
        update(bench, lambda template: template.replace(FIRST_IMAGE, NEXT_IMAGE))
        assert {r.version for r in stage.serving(2)} == {bench.spec.version}
        clients.were_served()


def a_row_is_behind(stage: Stage) -> None:
    """The only replica serves, its row says that it starts, and EC2 warns it."""
    bench, group = stage.bench, stage.bench.spec.target_group_arn
    stage.hide("DescribeTargetHealth", group, for_s=FOREVER_S)
    bench.want(1)
    client = Client(bench)
    bench.eventually(lambda: client.ask("GET", "/v1/models").status == 200, "it serves")
    with Clients(bench) as clients:
        (first,) = bench.watch.look().present
        assert first.state is ReplicaState.STARTING
        bench.warn(first)
        stage.until(lambda seen: seen[first.id].is_warned, "the warning is on record")
        bench.cloud.clear_faults(about=group)
        (other,) = stage.serving(1)
        assert other.id != first.id
        clients.were_served()


def nobody_shows_the_only_one(stage: Stage) -> None:
    """EC2 and the load balancer both show nothing, for longer than what is gone is waited for."""
    bench, group = stage.bench, stage.bench.spec.target_group_arn
    (only,) = stage.serving(1)
    _grow_old(only)
    with Clients(bench) as clients:
        stage.hide("DescribeInstances", bench.service, for_s=BLIND_S)
        stage.hide("DescribeTargetHealth", group, for_s=BLIND_S)
        bench.eventually(lambda: stage.is_struck(group), "both show it again")
        (still,) = stage.serving(1)
        clients.were_served()
    assert still.id == only.id


def overloaded_beside_one_that_boots(stage: Stage) -> None:
    """The only replica is late for its checks, and serves; on another one nothing listens yet.

    Nobody is healthy then, and the load balancer sends requests to all that are registered.
    """
    bench = stage.bench
    stage.until(
        lambda seen: not _draining(seen), "none is left that could come back", EC2_WARNING_S + WITHIN_S
    )
    (only,) = stage.serving(1)
    stage.moods.boot(f"sleep {BOOT_S}")
    stage.put(only, SERIAL, CHECKS_WAIT)
    with Clients(bench, MANY) as clients:
        bench.eventually(lambda: stage.health(only) == "unhealthy", "it is late for its checks")
        bench.want(2)
        seen = stage.until(
            lambda seen: any(r.serves and r.id != only.id for r in seen.values()), "another serves"
        )
        clients.were_served()
    (other,) = (r for r in seen.values() if r.serves and r.id != only.id)
    began = other.entered[ReplicaState.STARTING].timestamp()
    stage.put(only)
    answered = [r for r in clients.requests() if r["target"] == only.instance_id and r["started"] > began]
    assert answered, "while the other booted the overloaded one served"


def no_event_of_a_reclaim(stage: Stage) -> None:
    """EC2 takes the only replica, and the warning's event is lost: a tick asks, another serves in time."""
    bench = stage.bench
    stage.moods.boot("")
    (only,) = stage.grown(1)
    with Clients(bench) as clients:
        bench.warn(only, deliver="lost")
        stage.until(lambda seen: seen[only.id].state is ReplicaState.DRAINING, "it leaves")
        stage.serving(1)
        clients.were_served()
    assert bench.interruption(only)["deregistered_at"]
    assert not bench.interruption(only)["reclaimed_at"], "it left before EC2 took it"


def a_lone_fallback_is_overloaded(stage: Stage) -> None:
    """It is late for its checks for longer than a fallback may be, and goes when another one serves."""
    bench = stage.bench
    bench.dry_up(has_on_demand=True)
    bench.want(1)
    seen = stage.until(lambda seen: any(r.serves for r in seen.values()), "a fallback serves")
    (lone,) = (r for r in seen.values() if r.serves)
    assert lone.is_fallback
    stage.moods.boot(f"sleep {BOOT_S}")
    stage.put(lone, SERIAL, CHECKS_WAIT)
    with Clients(bench, MANY) as clients:
        seen = stage.until(
            lambda seen: seen[lone.id].state is ReplicaState.DRAINING,
            "it goes",
            timing.UNHEALTHY_GIVEN_UP_S + WITHIN_S,
        )
        clients.were_served()
    (other,) = (r for r in seen.values() if r.is_fallback and r.id != lone.id)
    served = other.entered.get(ReplicaState.READY)
    assert served, "another one serves"
    assert served <= seen[lone.id].entered[ReplicaState.DRAINING]


def one_fails_fast(stage: Stage) -> None:
    """Healthy to the load balancer, it fails every request at once; no cold start comes to its end meanwhile.

    It is out after two looks, and what it failed until then is all that fails.
    """
    bench = stage.bench
    bad = stage.grown(3)[0]
    stage.moods.boot("sleep 600")
    with Clients(bench) as clients:
        stage.put(bad, REFUSES)
        seen = stage.until(lambda seen: seen[bad.id].state is ReplicaState.DRAINING, "it leaves")
        bench.eventually(lambda: stage.health(bad) == "draining", "it is out of rotation")
        left = time.time()
        time.sleep(BOOT_S)
        told = clients.stop()
        seen = bench.watch.look().replicas
    assert told.failed > 0, "it has failed some"
    assert [f for f in told.failures if f.time > left or f.status != 500] == []
    assert (told.cut, told.finished) == (0, told.sent - told.failed)
    assert ReplicaState.READY not in next(r for r in seen.values() if r.replaces == bad.id).entered


def one_is_busy(stage: Stage) -> None:
    """Its probe waits behind real requests, for longer than silence is borne with, and nobody replaces it."""
    bench, probe = stage.bench, stage.bench.spec.readiness_probe
    assert probe
    assert probe.failure_threshold_s
    (only,) = stage.grown(1)
    stage.put(only, SERIAL)
    with Clients(bench, LIMIT + 2) as clients:
        stage.until(lambda seen: seen[only.id].busy_since is not None, "it proves to be busy")
        time.sleep(probe.failure_threshold_s + BOOT_S)
        seen = bench.watch.look().replicas
        clients.were_served()
    assert [r.id for r in seen.values()] == [only.id]
    assert seen[only.id].busy_since, "and says so"


def long_answers(stage: Stage) -> None:
    """A warned replica that isn't needed, and one too many, finish what takes longer than `drain_seconds`."""
    bench = stage.bench
    stage.grown(3)
    with Clients(bench, 2 * CLIENTS, LONG_TOKENS) as clients:

        def begun() -> bool:
            new = [r for r in clients.requests() if not r["ended"] and time.time() - r["started"] < NEW_S]
            return {r.instance_id for r in stage.serving(3)} <= {r["target"] for r in new}

        def left(number: int) -> list[Replica]:
            seen = stage.until(lambda seen: len(_draining(seen)) == number, f"{number} on the way out")
            return _draining(seen)

        bench.eventually(begun, "each replica has an answer before it")
        bench.warn(bench.victim())
        left(1)
        bench.eventually(begun, "each of the three has an answer before it again")
        bench.want(2)
        gone = left(2)
        clients.were_served()
    late = (
        r for r in clients.requests() if (r["draining_since"] or r["ended"]) < r["ended"] - bench.spec.drain_s
    )
    assert {r["target"] for r in late} == {r.instance_id for r in gone}, "each was given the time"


def _grow_old(replica: Replica) -> None:
    """Wait until EC2 must show its instance: what is new, it may not."""
    launched = replica.entered[ReplicaState.PROVISIONING].timestamp()
    time.sleep(max(launched + timing.VISIBLE_WITHIN_S + 1 - time.time(), 0))


def _draining(seen: Mapping[int, Replica]) -> list[Replica]:
    return [r for r in seen.values() if r.state is ReplicaState.DRAINING]


STORIES: Mapping[str, Sequence[Story]] = {
    SINGLE: (
        a_row_is_behind,
        nobody_shows_the_only_one,
        overloaded_beside_one_that_boots,
        no_event_of_a_reclaim,
    ),
    PAIR: (a_burst_while_all_starts, an_image_is_gone),
    LONE: (a_lone_fallback_is_overloaded,),
    REFUSING: (one_fails_fast,),
    BUSY_SERVICE: (one_is_busy,),
    LONG: (long_answers,),
}
"""By service, in their order: most of a story is waiting, so all services have theirs at the same time."""


class Told:
    """All stories, under way."""

    def __init__(self, operator: Operator, moods: Path) -> None:
        self._threads = [ThreadPoolExecutor(1, service) for service in STORIES]
        self._ends: dict[Story, Future[None]] = {}
        for thread, (service, stories) in zip(self._threads, STORIES.items(), strict=True):
            stage = Stage(operator, service, moods)
            self._ends |= {story: thread.submit(story, stage) for story in stories}

    def __call__(self, story: Story) -> None:
        """Wait for the end of a story; raises what went wrong in it."""
        self._ends[story].result()

    def end(self) -> None:
        """Begin no further story, and wait for those under way."""
        for thread in self._threads:
            thread.shutdown(cancel_futures=True)
