"""A drill: what it refuses, what it interrupts, and how it judges."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pytest

from spotrelay.operator import drill
from spotrelay.operator.drill import Drill, Plan, RefusedError, plan, verdict
from spotrelay.operator.look.watch import Watch
from spotrelay.plane.aws.experiments import ExperimentState
from spotrelay.plane.aws.requests import Requests
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.ports import Denied, Unavailable
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import OnUpdate, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving.steps import WARNED
from spotrelay.plane.view.losses import losses
from tests.examples import demo_spec
from tests.operate.replicas import START, replica

FLEET = tuple(replica(n, instance_id=f"i-{n}") for n in (1, 2, 3))


def planned(*rows: Replica, count: int = 1, **settings: Any) -> Plan:
    """The plan for a fleet of these rows, which should be three."""
    return plan(replace(demo_spec(), **settings), Rows(9, replicas={r.id: r for r in rows}), count)


def test_it_interrupts_the_oldest_spot_replicas() -> None:
    """On-demand ones stay, and the rest is told to remain."""
    base = replica(1, instance_id="i-1", option=PurchaseOption.ON_DEMAND)
    found = planned(base, *FLEET[1:], count=1)
    assert ([r.id for r in found.victims], found.instance_ids, found.remaining) == ([2], ("i-2",), 2)
    assert [r.id for r in planned(*FLEET, count=2).victims] == [1, 2]


def test_replicas_of_one_instance_go_together() -> None:
    """Those alone on theirs go first; what shares an instance is interrupted with it, and told."""
    shared = [replica(n, instance_id=i) for n, i in ((1, "i-1"), (2, "i-1:1:8082"), (3, "i-3"))]
    assert [r.id for r in planned(*shared).victims] == [3]
    both = planned(*shared, count=2)
    assert ([r.id for r in both.victims], both.remaining) == ([1, 2, 3], 0)
    assert set(both.instance_ids) == {"i-1", "i-3"}


def test_a_standby_is_not_in_the_way() -> None:
    """It serves nobody, and is neither counted nor interrupted."""
    standby = replica(4, ReplicaState.STANDBY, instance_id="i-4", is_standby=True)
    assert planned(*FLEET, standby).remaining == 2


@pytest.mark.parametrize(
    ("rows", "settings", "said"),
    [
        (FLEET[:2], {}, "2 of 3 replicas serve"),
        ((), {"replicas": 0}, "0 of 0 replicas serve"),
        ((*FLEET, replica(4)), {}, "4 of 3 replicas serve"),
        ((*FLEET, replica(4, ReplicaState.DRAINING)), {}, "replica 4 is draining"),
        ((*FLEET[:2], replica(4, ReplicaState.STARTING)), {}, "replica 4 is STARTING"),
        ((*FLEET, replica(4, ReplicaState.REQUESTED)), {}, "replica 4 is REQUESTED"),
        ((*FLEET[:2], replace(FLEET[2], warned_at=START)), {}, "EC2 is taking replica 3 back"),
        ((*FLEET[:2], replace(FLEET[2], unhealthy_since=START)), {}, "replica 3 fails its checks"),
        ((*FLEET[:2], replace(FLEET[2], is_fallback=True)), {}, "replica 3 stands in"),
        (FLEET, {"version": 2, "on_update": OnUpdate.ROLLING}, "a roll-out is under way"),
    ],
)
def test_it_refuses_a_fleet_that_is_not_whole(
    rows: Sequence[Replica], settings: Mapping[str, Any], said: str
) -> None:
    """Whatever is missing, on its way or leaving is named; nothing is interrupted in addition."""
    with pytest.raises(RefusedError, match="the fleet isn't whole") as caught:
        planned(*rows, **settings)
    assert said in str(caught.value)


def test_kept_versions_are_no_roll_out() -> None:
    """Where a new version replaces nothing, old replicas are as they should be."""
    assert planned(*FLEET, version=2, on_update=OnUpdate.KEEP).victims


def test_it_refuses_more_than_are_on_spot() -> None:
    """On-demand instances can't be interrupted."""
    bought = [replace(r, offering=replica(9, option=PurchaseOption.ON_DEMAND).offering) for r in FLEET]
    with pytest.raises(RefusedError, match="0 of 3 replicas are on Spot, and 1 should"):
        planned(*bought)
    with pytest.raises(RefusedError, match="1 of 3 replicas are on Spot, and 2 should"):
        planned(*bought[:2], FLEET[2], count=2)


# The verdict.


def told(*rows: Replica, requests: Requests | None = None, problems: Sequence[str] = ()) -> drill.Verdict:
    """The verdict on what became of replica 1, from `START` on for 300 s."""
    by_id = {r.id: r for r in rows}
    return verdict(planned(*FLEET), by_id, START, START + seconds(300), requests, problems)


def gone(**more: Any) -> Replica:
    """Replica 1, interrupted 10 s after `START`."""
    facts = {"warned_at": START + seconds(10), "replaced_by": 4, **more}
    entered = {"READY": -100.0, "DRAINING": 10.1, "TERMINATED": 131.0}
    return replace(replica(1, ReplicaState.TERMINATED, entered=entered, **facts), reason=WARNED)


BACK = replica(4, entered={"REQUESTED": 10.1, "PROVISIONING": 10.9, "READY": 104.0}, replaces=1)
SERVED = Requests(512, 0)


def test_all_well_is_a_pass() -> None:
    """One line with the times of the rows, the requests and the gap."""
    found = told(gone(), *FLEET[1:], BACK, requests=SERVED)
    assert str(found) == "PASS: out 0.1 s, launched 0.9 s, ready 94 s, 0 of 512 requests failed, outage 0"
    assert found.is_pass
    built = found.to_json()
    assert json.loads(json.dumps(built)) == built
    (loss,) = losses([gone(), *FLEET[1:], BACK])
    assert (built["out_s"], built["ready_s"], built["whole_s"]) == (loss.out_s, loss.ready_s, loss.whole_s)
    assert built["requests"] == {"total": 512, "failed": 0}


def test_what_fails_a_drill() -> None:
    """Failed requests, nobody in rotation, no warning and no loss each fail it, and each is named."""
    rows = (*FLEET[1:], BACK)
    assert told(gone(), *rows, requests=Requests(9, 2)).problems == ("2 of 9 requests failed",)
    assert told(gone(), BACK, requests=SERVED).problems == ("nobody was in rotation for 94 s",)
    vanished = replace(gone(), reason="instance terminated", warned_at=None)
    assert told(vanished, *rows).problems == ("replica 1 was lost, and no warning arrived",)
    left = replace(gone(), reason="version 2")
    assert told(left, *rows).problems == ("replica 1 wasn't lost: version 2",)
    stopped = told(*FLEET, problems=["experiment EXP1 failed: why"])
    assert stopped.problems == ("experiment EXP1 failed: why",)
    assert str(stopped).startswith("FAIL: out never, launched never, ready never, requests unknown")


# The drill itself.


COMPLETED = ExperimentState("completed", "")


@dataclass
class World:
    """Rows, FIS and CloudWatch, as time passes while the drill waits; one loss unless told otherwise."""

    works: bool = True
    state_error: Exception | None = None
    state: ExperimentState = COMPLETED
    failed: int = 0
    interrupt_at: float | None = None
    """When the person in front of it gives up."""
    log: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    passed_s: float = 0.0

    def load(self, service: str) -> Rows:
        """Rows as of now."""
        return Rows(9, replicas={r.id: r for r in self._rows() if not r.state.is_ended})

    def history(self, service: str, limit: int) -> list[Replica]:
        """Ended rows."""
        return [r for r in self._rows() if r.state.is_ended]

    def _rows(self) -> Iterator[Replica]:
        yield from FLEET[1:]
        is_lost = self.works and self.passed_s >= 20
        yield gone() if is_lost else FLEET[0]
        if is_lost:
            yield BACK

    def start(self, instance_ids: Sequence[str], service: str) -> str:
        """As FIS would."""
        self.log.append(f"start {','.join(instance_ids)} of {service}")
        return "EXP1"

    def get_state(self, experiment: str) -> ExperimentState:
        """What became of it."""
        if self.state_error:
            raise self.state_error
        return self.state

    def stop(self, experiment: str) -> None:
        """No more."""
        self.log.append("stop")

    def between(self, spec: ServiceSpec, since: datetime, until: datetime) -> Requests | None:
        """As CloudWatch would."""
        return Requests(100, self.failed)

    def sleep(self, duration_s: float) -> None:
        """Time passes, faster than it seems."""
        self.passed_s += 5
        if self.interrupt_at is not None and self.passed_s >= self.interrupt_at:
            raise KeyboardInterrupt

    def drill(self, *, goes_on: bool = False) -> Drill:
        """A drill in this world."""
        watch = Watch(self, "demo", lambda _: None, sleep=self.sleep, clock=lambda: self.passed_s)
        fis = _Fis(self)
        return Drill(planned(*FLEET), watch, fis, self, self.said.append, goes_on)


@dataclass
class _Fis:
    """The part of the world that is FIS: its `state` is a method."""

    world: World

    def start(self, instance_ids: Sequence[str], service: str) -> str:
        """Start it in the world."""
        return self.world.start(instance_ids, service)

    def state(self, experiment: str) -> ExperimentState:
        """The state in the world."""
        return self.world.get_state(experiment)

    def stop(self, experiment: str) -> None:
        """Stop it in the world."""
        self.world.stop(experiment)


def test_a_drill_to_the_end() -> None:
    """It starts one experiment, tells what happens once, and leaves nothing behind."""
    world = World()
    found = world.drill().run()
    assert [loss.replica for loss in found.losses] == [1]
    assert world.log == ["start i-1 of demo"]
    assert world.said == [
        "experiment EXP1 interrupts i-1",
        "replica 1 is warned",
        "replica 1 is out of rotation after 0.1 s",
        "replica 4 is launched after 0.9 s",
        "replica 4 serves after 94 s",
        "replica 1 is gone",
    ]


def test_failed_requests_stop_it() -> None:
    """As soon as CloudWatch knows of them; unless it was told to go on, which ends in the same verdict."""
    world = World(failed=3)
    found = world.drill().run()
    assert found.problems == ("stopped because requests fail", "3 of 100 requests failed")
    assert world.log[1:] == ["stop"]
    patient = World(failed=3)
    assert patient.drill(goes_on=True).run().problems == ("3 of 100 requests failed",)
    assert patient.log[1:] == []


def test_an_experiment_that_fails() -> None:
    """FIS's own words are the verdict."""
    world = World(works=False, state=ExperimentState("failed", "Target resolution returned empty set"))
    assert world.drill().run().problems == ("experiment EXP1 failed: Target resolution returned empty set",)
    assert world.log[1:] == ["stop"]


def test_nothing_happens() -> None:
    """A fleet that never becomes whole, or is never warned, ends the wait with a FAIL."""
    world = World(works=False)
    (problem,) = world.drill().run().problems
    assert problem.startswith("the fleet whole again: not within")
    assert world.log[1:] == ["stop"]


def test_no_warning_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two minutes until the end the warning should come at once: nobody waits for a replica's start."""
    monkeypatch.setattr(drill, "WARNED_WITHIN_S", -1.0)
    world = World(works=False)
    (problem,) = world.drill().run().problems
    assert problem.startswith("no warning of replica 1 arrived within")
    assert world.log[1:] == ["stop"]


def test_control_c_stops_the_experiment() -> None:
    """Whoever gives up leaves no experiment and no template behind."""
    world = World(works=False, interrupt_at=10)
    with pytest.raises(KeyboardInterrupt):
        world.drill().run()
    assert world.log[1:] == ["stop"]


def test_a_permission_that_is_missing_ends_it() -> None:
    """It is told; what passes isn't: a throttled look leaves the drill running."""
    world = World(state_error=Denied("is not authorized to perform: fis:GetExperiment", "AccessDenied"))
    with pytest.raises(Denied):
        world.drill().run()
    assert world.log[1:] == ["stop"]
    assert World(state_error=Unavailable("busy")).drill().run().losses
