"""Replicas that serve and don't answer their probe: hung, refusing, or busy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spotrelay.plane.core import timing
from spotrelay.plane.core.answers import Answers, BusyEvidence, Work
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.spec import ReadinessProbe
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import reconcile, silence, steps
from spotrelay.plane.serving.steps import Step
from tests.examples import demo_spec
from tests.unit.cases import NOW, a_replica, an_instance, rows_of, seen_of

READY = ReplicaState.READY
BUSY = BusyEvidence(limit=3, finished=("done",), ongoing=("running",), longest_s=600)
PROBED = replace(
    demo_spec(replicas=3), readiness_probe=ReadinessProbe("/", {}, failure_threshold_s=180), busy=BUSY
)
BEFORE = NOW - seconds(60)


def heard(*replicas: Replica, **answers: Any) -> list[Step]:
    """What is noted of them after such answers."""
    return silence.heard(PROBED, rows_of(*replicas), Answers(**answers), NOW)


def test_silence_is_noted_once() -> None:
    """With its beginning, and its end; a replica that doesn't serve has none."""
    well, silent = a_replica(1, READY), a_replica(2, READY, silent_since=BEFORE)
    others = a_replica(3, ReplicaState.STARTING), a_replica(4, READY, warned_at=NOW)
    assert heard(well, silent, *others, answering=frozenset({"i-1"})) == []
    noted = heard(well, silent, *others, answering=frozenset({"i-2"}))
    assert noted == [steps.note_silence(well, NOW), steps.note_silence(silent, None)]


# Refusing.


def test_refusals_in_a_row_are_counted() -> None:
    """Up to as many as matter; an answer ends them, and so does silence: that is no refusal."""
    row = a_replica(1, READY)
    for count in (1, timing.REFUSALS):
        (noted,) = heard(row, refusing=frozenset({"i-1"}))
        assert (noted.row.refusals, noted.row.silent_since) == (count, NOW)
        row = noted.row
    assert heard(row, refusing=frozenset({"i-1"})) == [], "nothing more to note"
    assert heard(row) == [steps.note_silence(row, NOW)]
    assert heard(row, answering=frozenset({"i-1"})) == [steps.note_silence(row, None)]


def refusing(id_: int, refusals: int = timing.REFUSALS, **facts: Any) -> Replica:
    """One that has refused its probe."""
    return a_replica(id_, READY, silent_since=BEFORE, refusals=refusals, **facts)


def decide(*replicas: Replica, wanted: int = 3, health: TargetState = TargetState.HEALTHY) -> list[Step]:
    """The tick's decision while the load balancer says this of all that are ready."""
    seen = seen_of(
        *replicas,
        instances=[an_instance(r.id) for r in replicas],
        health={r.id: health for r in replicas if r.state is READY},
    )
    return reconcile.decide(replace(PROBED, replicas=wanted, on_demand_fallback=False), seen, NOW)


def test_one_that_refuses_leaves_at_once_while_others_answer() -> None:
    """Having the fewest requests outstanding it would get the most. Its replacement comes with it."""
    row = refusing(1)
    actions = decide(row, a_replica(2, READY), a_replica(3, READY))
    assert actions[0] == steps.drain(row, NOW, silence.REFUSES)
    assert [a.reason for a in actions if a.name == "Replace"] == [silence.REFUSES]


def test_one_refusal_is_chance() -> None:
    """After the first look it stays."""
    assert decide(refusing(1, refusals=1), a_replica(2, READY), a_replica(3, READY)) == []


@pytest.mark.parametrize(
    ("answering", "wanted", "leaves"),
    [(0, 1, False), (1, 1, True), (1, 2, True), (1, 3, False), (2, 3, True), (2, 4, True), (2, 5, False)],
)
def test_it_stays_where_most_refuse(answering: int, wanted: int, *, leaves: bool) -> None:
    """Then the probe is wrong sooner than they are: half of those wanted must answer, and one at least."""
    well = [a_replica(id_, READY) for id_ in range(1, answering + 1)]
    ill = [refusing(id_) for id_ in range(answering + 1, max(wanted, answering + 1) + 1)]
    assert any(a.name == "Drain" for a in decide(*well, *ill, wanted=wanted)) == leaves


def test_a_warned_one_serves_on_for_those_that_leave_by_the_same_tick() -> None:
    """Two refuse their probe and go: with them enough others would have served, without them too few do."""
    replicas = [refusing(1), refusing(2), *(a_replica(i, ReplicaState.READY) for i in (3, 4, 5))]
    warned = a_replica(6, ReplicaState.READY, warned_at=NOW - seconds(5), replaced_by=7)
    ids = range(1, 7)
    seen = seen_of(
        *replicas,
        warned,
        instances=[an_instance(i) for i in ids],
        health=dict.fromkeys(ids, TargetState.HEALTHY),
    )
    leaving = [a.replica.id for a in reconcile.decide(demo_spec(replicas=5), seen, NOW) if a.name == "Drain"]
    assert leaving == [1, 2]


def test_one_that_ec2_takes_back_answers_for_nobody() -> None:
    """Its warning is found by this very tick: those that refuse their probe don't leave on its strength."""
    seen = seen_of(
        refusing(1),
        *(a_replica(i, ReplicaState.READY) for i in (2, 3)),
        instances=[an_instance(i) for i in (1, 2, 3)],
        health=dict.fromkeys((1, 2, 3), TargetState.HEALTHY),
        warned=[2, 3],
    )
    assert [*silence.take_out(demo_spec(replicas=3), seen, NOW)] == []


def test_who_answers_is_who_serves() -> None:
    """One that is silent, warned, or not healthy to the load balancer is no reason for another to leave."""
    row = refusing(1)
    for other in (
        a_replica(2, READY, silent_since=NOW),
        a_replica(2, READY, warned_at=NOW),
        a_replica(2, ReplicaState.STARTING),
    ):
        assert steps.drain(row, NOW, silence.REFUSES) not in decide(row, other, wanted=2)
    both = row, a_replica(2, READY)
    assert steps.drain(row, NOW, silence.REFUSES) not in decide(*both, wanted=2, health=TargetState.UNHEALTHY)


# Busy.


def test_a_busy_one_is_silent_anew_each_time_it_proves_it() -> None:
    """It has finished something since the last look, and is full; when that began is kept, and the count."""
    first = a_replica(1, READY)
    (noted,) = heard(first, work={"i-1": Work(40, 3)})
    assert noted == steps.note_silence(first, NOW, finished=40)
    row = a_replica(1, READY, silent_since=BEFORE, finished=40)
    assert heard(row, work={"i-1": Work(41, 3)}) == [
        steps.note_silence(row, NOW, busy_since=BEFORE, finished=41)
    ]


@pytest.mark.parametrize(
    ("facts", "work"),
    [
        ({"finished": 40}, Work(40, 9)),
        ({"finished": 40}, Work(41, 2)),
        ({"finished": 40}, Work(1, 9)),
        ({"finished": 40}, None),
        ({}, Work(41, 9)),
    ],
    ids=["an engine that is dead", "not full", "restarted", "unknown", "the first look"],
)
def test_without_evidence_silence_goes_on(facts: dict[str, Any], work: Work | None) -> None:
    """Nothing finished, nothing to do or nothing told: the old rule holds."""
    row = a_replica(1, READY, silent_since=BEFORE, **facts)
    (after,) = [n.row for n in heard(row, work={"i-1": work} if work else {})] or [row]
    assert after.silent_since == BEFORE
    assert after.busy_since == facts.get("busy_since")
    assert after.finished == (work.finished if work else 40)


def test_what_is_past_its_excuse_is_silent_and_written_no_more() -> None:
    """It may work on for hours where nothing can be launched in its place: the ticks rest meanwhile."""
    over = NOW - seconds(600)
    was_busy = a_replica(1, READY, silent_since=BEFORE, busy_since=over, finished=40)
    assert heard(was_busy, work={"i-1": Work(41, 9)}) == []
    never_full = a_replica(1, READY, silent_since=over, finished=40)
    assert heard(never_full, work={"i-1": Work(41, 0)}) == []


def test_an_answer_ends_it() -> None:
    """Nothing of it is left for the next time."""
    row = a_replica(1, READY, silent_since=NOW, busy_since=BEFORE, finished=40)
    assert heard(row, answering=frozenset({"i-1"})) == [steps.note_silence(row, None)]


def test_a_service_without_evidence_has_no_busy_ones() -> None:
    """Whatever its replicas tell."""
    row = a_replica(1, READY, silent_since=BEFORE, finished=40)
    spec = replace(PROBED, busy=None)
    assert silence.heard(spec, rows_of(row), Answers(work={"i-1": Work(41, 9)}), NOW) == []
