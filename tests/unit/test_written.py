"""What steps make of rows: one row for each replica, the same for the next stage as for the commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, count

from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.core import timing
from spotrelay.plane.core.pools import OPTIONS, Cause, PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff, Changes, Rows
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import changes, reconcile, steps
from spotrelay.plane.serving.steps import NEEDLESS, Step
from tests.examples import demo_spec
from tests.unit.cases import LONG_AGO, NOW, a_replica, an_instance, losing, replacing, rows_of, without
from tests.unit.strengths import DRAINING, PROVISIONING, READY, REQUESTED, STARTING

SPOT = PurchaseOption.SPOT
SPEC = replace(demo_spec(), max_launches_per_minute=1000)


def written(rows: Rows, *actions: Step) -> list[Changes]:
    """The commits of the steps."""
    names = (f"L{n}" for n in count())
    return changes.changes("demo", SPEC, rows, actions, NOW, lambda: next(names))


def test_a_closed_intent_takes_its_place_in_a_commit() -> None:
    """It is an item of the transaction, as each row is."""
    (step,) = changes.written("demo", SPEC, rows_of(), [steps.close_intent("L1")])
    assert changes._size(step) == 1


def test_what_is_taken_in_without_a_document_has_no_version() -> None:
    """The service's stack is gone: nobody launches it again."""
    for spec, version in ((None, 0), (replace(SPEC, version=3), 3)):
        assert reconcile._version_of(an_instance(7), spec) == version


# One row for each replica.


def test_steps_that_are_joined_have_all_that_each_of_them_has() -> None:
    """What a loss takes out and teaches, and what its replacement creates and says."""
    row = a_replica(1, READY)
    ill = steps.note_health(row, NOW)
    drain = steps.drain(ill.row, NOW, "lost", cool_pool=True)
    asked = steps.replace(drain.row, NOW, "lost", 2)
    joined = ill.then(drain).then(asked)
    assert (joined.name, joined.before, joined.after) == ("NoteHealth, Drain, Replace", row, drain.after)
    assert (joined.takes_out, joined.teaches, joined.creates) == ("i-1", Cause.LOSS, asked.creates)
    assert joined.reason == "lost"


def test_what_gets_ready_and_drains_is_written_once() -> None:
    """Both steps are in its row, and its count of who serves hasn't changed."""
    row = a_replica(1, STARTING)
    became = steps.mark_ready(row, NOW)
    (commit,) = written(rows_of(row), became, steps.drain(became.row, NOW, "more replicas than wanted"))
    expected = row.to(READY, NOW).to(DRAINING, NOW, "more replicas than wanted")
    assert (commit.update, commit.create, commit.serving) == ((expected,), (), None)


def test_what_is_adopted_and_drains_is_written_once() -> None:
    """Its row has the instance, so that it can be ended."""
    row, instance = a_replica(1, REQUESTED, launch_id="L"), an_instance(7)
    adopt = steps.adopt(row, NOW, instance)
    (commit,) = written(rows_of(row), adopt, steps.drain(adopt.row, NOW, "more replicas than wanted"))
    assert commit.update == (row.provisioned(instance, NOW).to(DRAINING, NOW, "more replicas than wanted"),)


def test_what_does_not_answer_and_serves_on_is_written_once() -> None:
    """With both facts and with its replacement, which a later stage requested."""
    row = a_replica(1, READY)
    ill = replace(row, unhealthy_since=NOW)
    serves_on = steps.serve_on(ill, NOW, "interruption warning", LONG_AGO)
    (commit,) = written(rows_of(row), steps.note_health(row, NOW), serves_on, replacing(serves_on))
    assert commit.update == (replace(ill, warned_at=LONG_AGO, lost_at=NOW, replaced_by=10),)
    assert [(r.id, r.replaces, r.version) for r in commit.create] == [(10, 1, 1)]


def test_a_registration_alone_writes_nothing() -> None:
    """The row says already that it starts; what else happens to the replica is written."""
    row = a_replica(1, STARTING)
    assert list(changes.written("demo", SPEC, rows_of(row), [steps.register(row)])) == []
    (step,) = changes.written(
        "demo", SPEC, rows_of(row), [steps.register(row), steps.drain(row, NOW, "lost")]
    )
    assert step.after == row.to(DRAINING, NOW, "lost")


def test_what_goes_without_a_replacement_says_so() -> None:
    """Its row does, for people; one that serves on still says it when it leaves."""
    row = a_replica(1, READY)
    drain = steps.drain(row, NOW, "lost")
    rows = changes.after(SPEC, rows_of(row), [drain, without(drain)], NOW)
    assert rows.replicas[1] == row.to(DRAINING, NOW, f"lost{NEEDLESS}")
    serves_on = steps.serve_on(row, NOW, "interruption warning", NOW)
    rows = changes.after(SPEC, rows_of(row), [serves_on, without(serves_on)], NOW)
    assert rows.replicas[1] == replace(row, warned_at=NOW, lost_at=NOW)


def test_what_happens_to_others_in_between_changes_nothing() -> None:
    """A stage names all replicas before the next stage names them again."""
    rows = [a_replica(i, READY) for i in (1, 2)]
    one, other = (losing(r, "lost") for r in rows)
    assert written(rows_of(*rows), one[0], other[0], one[1], other[1]) == written(
        rows_of(*rows), *one, *other
    )


# What the next stage reads.


def test_what_has_ended_is_no_longer_there() -> None:
    """A failure and an end take the row away, as reading the table again would."""
    rows = rows_of(*(a_replica(i, state) for i, state in ((1, STARTING), (2, DRAINING), (3, READY))))
    left = changes.after(
        SPEC, rows, [steps.fail(rows.replicas[1], NOW, "late"), steps.end(rows.replicas[2], NOW, "gone")], NOW
    )
    assert list(left.replicas) == [3]
    assert left.backoff == Backoff(1, NOW + seconds(timing.FAILURE_FIRST_S), version=1)


def test_what_is_created_is_there_with_an_id_of_its_own() -> None:
    """Above every ID that was given or is in use, whatever the service's own entry says."""
    row = a_replica(12, READY)
    taken = steps.take_in(NOW, an_instance(7), READY, "serves", 1)
    rows = replace(rows_of(row), highest_id=9)
    for raised, first in ((9, 13), (20, 21)):
        actions = [
            steps.raise_highest_id(raised),
            taken,
            *losing(row, "lost"),
            steps.request(NOW, 1, "missing", SPOT, 3),
        ]
        left = changes.after(SPEC, rows, actions, NOW)
        assert left.highest_id == raised
        assert list(left.replicas) == [12, first, first + 1, first + 2]
        by_reason = {r.reason: r for r in left.replicas.values() if r.id != 12}
        assert by_reason["serves"].stays
        assert (by_reason["lost"].replaces, by_reason["lost"].version) == (12, 1)
        assert by_reason["missing"].version == 3
        assert left.replicas[12].replaced_by == by_reason["lost"].id


def test_an_instance_that_changes_its_row_keeps_what_it_was_launched_as() -> None:
    """A standby that is resumed, and a fallback that stands by again: the next row has what the last had."""
    standby = replace(
        a_replica(9, ReplicaState.STANDBY, is_standby=True), launch_id="launch-9", port=8081, attempts=2
    )
    standby = replace(standby, purchase_option=PurchaseOption.ON_DEMAND, version=3)
    kept = ("offering", "instance_id", "launch_id", "port", "purchase_option", "version")
    for before, action in (
        (standby, steps.resume(standby, NOW, "a replica is missing")),
        (fallback := replace(standby, state=DRAINING, is_fallback=True), steps.stand_by(fallback, NOW)),
    ):
        left = changes.after(SPEC, rows_of(before), [action], NOW).replicas
        (row,) = (r for r in left.values() if r.id != 9 and not r.state.is_ended)
        assert [getattr(row, name) for name in kept] == [getattr(before, name) for name in kept]
        assert row.entered[ReplicaState.REQUESTED] == before.entered[ReplicaState.REQUESTED]


def test_nothing_is_created_for_a_service_that_is_gone() -> None:
    """Without a document a loss is written, and what was to replace it isn't."""
    row = a_replica(1, READY)
    left = list(
        changes.written(
            "demo", None, rows_of(row), [*losing(row, "lost"), steps.request(NOW, 1, "missing", SPOT, 1)]
        )
    )
    assert [(step.after, step.creates) for step in left] == [(row.to(DRAINING, NOW, "lost"), ())]


# The same for the next stage as for the commit.


def _lives(row: Replica) -> list[list[Step]]:
    """What one tick may decide about a replica: its steps in order, over all stages."""
    id_ = row.id
    ill = replace(row, unhealthy_since=NOW)
    match row.state:
        case ReplicaState.REQUESTED:
            adopt = steps.adopt(row, NOW, an_instance(id_))
            adopted = adopt.row
            launch = steps.launch(row)
            return [
                [steps.end(row, NOW, "needless")],
                [adopt],
                [adopt, steps.drain(adopted, NOW, "needless")],
                [launch],
            ]
        case ReplicaState.PROVISIONING:
            started = row.to(STARTING, NOW)
            return [
                [steps.start(row, NOW)],
                [steps.start(row, NOW), *losing(started, "lost")],
                [steps.fail(row, NOW, "late")],
                [steps.drain(row, NOW, "lost")],
            ]
        case ReplicaState.STARTING:
            drain = steps.drain(row, NOW, "lost")
            became = row.to(READY, NOW)
            return [
                [steps.mark_ready(row, NOW)],
                [steps.mark_ready(row, NOW), steps.drain(became, NOW, "needless")],
                [steps.mark_ready(row, NOW), *losing(became, "lost")],
                [steps.register(row)],
                [steps.register(row), drain, without(drain)],
                [steps.fail(row, NOW, "late")],
            ]
        case ReplicaState.READY:
            drain = steps.drain(row, NOW, "lost")
            serves_on = steps.serve_on(row, NOW, "interruption warning", NOW)
            ill_on = steps.serve_on(ill, NOW, "interruption warning", NOW)
            return [
                losing(row, "lost"),
                [drain, without(drain)],
                [serves_on, replacing(serves_on)],
                [serves_on, without(serves_on)],
                [steps.note_health(row, NOW), ill_on, replacing(ill_on)],
                [
                    steps.note_health(row, NOW),
                    steps.drain(ill, NOW, "needless"),
                    steps.go_without(ill.to(DRAINING, NOW, "needless")),
                ],
                [better := steps.note_health(row, None), steps.replace(better.row, NOW, "a new version", 2)],
                [steps.note_rebalance(row, NOW)],
            ]
        case _:
            instance_id = f"i-{id_}"
            return [
                [steps.end(row, NOW, "gone")],
                [steps.take_out(instance_id), steps.note_warning(row, NOW)],
                [steps.take_out(instance_id), steps.terminate(row, instance_id, "drained")],
            ]


_OTHERS: list[Step] = [
    steps.request(NOW, 2, "missing", SPOT, 1),
    steps.request(NOW, 1, "missing", PurchaseOption.ON_DEMAND, 2, is_fallback=True),
    steps.take_in(NOW, an_instance(50), READY, "serves", 1),
    steps.take_in(NOW, an_instance(51), DRAINING, "an orphan", 1),
    steps.raise_highest_id(60),
    steps.recount(),
    steps.close_intent("L"),
]


@st.composite
def decided(draw: st.DrawFn) -> tuple[Rows, list[Step]]:
    """Any decision of a tick: the steps of each replica are in order, between those of others."""
    states = [REQUESTED, PROVISIONING, STARTING, READY, DRAINING]
    rows, lives = [], []
    for id_ in range(1, draw(st.integers(0, 8)) + 1):
        option = draw(st.sampled_from(list(OPTIONS.values())))
        row = a_replica(
            id_, draw(st.sampled_from(states)), purchase_option=option, version=draw(st.integers(1, 2))
        )
        rows.append(row)
        lives.append(draw(st.sampled_from(_lives(row))))
    lives += [[other] for other in draw(st.lists(st.sampled_from(_OTHERS), unique_by=repr))]
    order = draw(st.permutations(list(chain(*([i] * len(life) for i, life in enumerate(lives))))))
    left = [iter(life) for life in lives]
    backoff = draw(st.sampled_from([Backoff(), Backoff(3, NOW, version=1), Backoff(1, NOW, version=2)]))
    earlier = {2: replace(SPEC, version=2)}  # or which port it has would depend on what is there at a stage
    return rows_of(*rows, highest_id=20, backoff=backoff, earlier=earlier), [next(left[i]) for i in order]


def _as_committed(rows: Rows, commits: Sequence[Changes]) -> Rows:
    """The rows as a table has them after the commits, but for how they are launched."""
    replicas = dict(rows.replicas)
    for row in (row for commit in commits for row in (*commit.create, *commit.update)):
        if row.state.is_ended:
            del replicas[row.id]
        else:
            is_new = row.id not in rows.replicas
            before = rows.replicas.get(row.id)
            launch_id = row.launch_id if before is None else before.launch_id
            replicas[row.id] = replace(
                row, launch_id=None if is_new and row.instance_id is None else launch_id
            )
    backoff = next((c.backoff for c in commits if c.backoff), rows.backoff)
    return replace(rows, replicas=replicas, backoff=backoff)


@given(decided())
def test_the_next_stage_reads_what_the_commit_writes(decision: tuple[Rows, list[Step]]) -> None:
    """Whatever is decided, of whatever replicas: the same rows, the same new IDs, the same back-off."""
    rows, actions = decision
    stored = _as_committed(rows, written(rows, *actions))
    left = changes.after(SPEC, rows, actions, NOW)
    assert left.replicas == stored.replicas
    assert left.backoff == stored.backoff


@given(decided(), st.data())
def test_stages_leave_what_all_of_them_together_write(
    decision: tuple[Rows, list[Step]], data: st.DataObject
) -> None:
    """However a decision is divided into stages; only the IDs of new rows follow from all of it."""
    rows, actions = decision
    stored = _as_committed(rows, written(rows, *actions))
    left, rest = rows, actions
    while rest:
        cut = data.draw(st.integers(1, len(rest)))
        left, rest = changes.after(SPEC, left, rest[:cut], NOW), rest[cut:]
    assert _without_ids(left, rows) == _without_ids(stored, rows)


def _without_ids(rows: Rows, before: Rows) -> list[str]:
    """What is in the rows, with new ones named by what they replace."""
    successors = {r.replaced_by: r.id for r in rows.replicas.values() if r.replaced_by}
    for successor, id_ in successors.items():
        assert rows.replicas[successor].replaces == id_
    return sorted(
        repr(
            replace(
                row,
                id=row.id if row.id in before.replicas else 0,
                replaced_by=None if row.replaced_by is None else 0,
            )
        )
        for row in rows.replicas.values()
    )


@given(decided())
def test_every_row_is_written_once(decision: tuple[Rows, list[Step]]) -> None:
    """Whatever happens to it: a second write would be refused, as one of a row that has changed."""
    rows, actions = decision
    ids = [r.id for c in written(rows, *actions) for r in (*c.create, *c.update)]
    assert len(set(ids)) == len(ids)
    changed = {a.after.id for a in actions if a.after}
    launched = {r.id for a in actions if a.name == "Launch" for r in a.launches}
    assert {id_ for id_ in ids if id_ in rows.replicas} == changed | launched
