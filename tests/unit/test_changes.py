"""Steps put into rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.core import timing
from spotrelay.plane.core.pools import OPTIONS, Cause, PoolMemory, PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff, Changes, LaunchIntent, LaunchWindow, Rows
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import changes, steps
from spotrelay.plane.serving.steps import Step
from tests.examples import demo_spec, on_demand_pool
from tests.unit.cases import LONG_AGO, NOW, a_replica, an_instance, losing, rows_of, told


@given(st.integers(0, 70), st.integers(0, 70))
def test_ids_rise_without_gaps_and_replacements_stay_with_their_losses(losses: int, missing: int) -> None:
    """However many at once: IDs are consecutive, and a loss and its replacement are in one commit."""
    rows = rows_of(*(a_replica(i, ReplicaState.READY) for i in range(1, losses + 1)), highest_id=100)
    actions = [action for r in rows.replicas.values() for action in losing(r, "lost")]
    actions += [steps.request(NOW, missing, "missing", PurchaseOption.SPOT, 1)] if missing else []
    names = (f"L{n}" for n in count())
    spec = replace(demo_spec(), max_launches_per_minute=1000)
    commits = changes.changes("demo", spec, rows, actions, NOW, lambda: next(names))
    created = [r for c in commits for r in c.create]
    assert [r.id for r in created] == list(range(101, 101 + losses + missing))
    for commit in commits:
        assert len(commit.create) + len(commit.update) <= Changes.MAX_ROWS
        by_id = {r.id: r for r in commit.create}
        for drained in commit.update:
            assert by_id[drained.replaced_by or 0].replaces == drained.id
        assert commit.open_intent is not None
        assert set(commit.open_intent.replica_ids) == set(by_id)
        assert {r.launch_id for r in commit.create} == {commit.open_intent.id}
        assert commit.highest_id == (min(by_id) - 1, max(by_id))


def test_the_items_of_a_commit_are_counted_with_all_that_they_may_bring() -> None:
    """The service's two entries; a row and its instance's; what ends has its place in the history, too."""
    states = (ReplicaState.REQUESTED, ReplicaState.READY, ReplicaState.FAILED)
    waiting, ready, ended = map(a_replica, (1, 2, 3), states)
    assert Changes("demo").size == 2
    assert Changes("demo", create=(waiting,), update=(ready,)).size == 6
    assert Changes("demo", update=(ended,), close_intents=("a", "b")).size == 7


@st.composite
def mixed(draw: st.DrawFn) -> tuple[Rows, list[Step]]:
    """Any decision about replicas that are bought either way and of two versions, in any order."""
    lives: list[list[Step]] = []
    rows: dict[int, Replica] = {}
    for id_ in range(1, draw(st.integers(0, 40)) + 1):
        option = draw(st.sampled_from(list(OPTIONS.values())))
        kind = draw(st.sampled_from(["Drain", "Replace", "Launch", "End", None]))
        state = ReplicaState.REQUESTED if kind in ("Launch", "End") else ReplicaState.READY
        version = draw(st.integers(1, 2))
        row = rows[id_] = a_replica(id_, state, purchase_option=option, version=version)
        if kind == "Drain":
            lives.append(
                losing(row, "lost", version) if draw(st.booleans()) else [steps.drain(row, NOW, "lost")]
            )
        elif kind == "Launch":
            lives.append([steps.launch(row, is_last_resort=draw(st.booleans()))])
        elif kind is not None:
            lives.append(
                [steps.end(row, NOW, "why") if kind == "End" else steps.replace(row, NOW, "why", version)]
            )
    for option in draw(st.lists(st.sampled_from(list(OPTIONS.values())), max_size=4)):
        is_fallback = option is PurchaseOption.ON_DEMAND and draw(st.booleans())
        request = steps.request(
            NOW, draw(st.integers(1, 40)), "missing", option, draw(st.integers(1, 2)), is_fallback=is_fallback
        )
        lives.append([request])
    return rows_of(*rows.values(), highest_id=200), list(chain(*draw(st.permutations(lives))))


@given(mixed(), st.integers(1, 200))
def test_one_launch_is_for_one_way_to_buy_one_version(
    decision: tuple[Rows, list[Step]], ceiling: int
) -> None:
    """However these are mixed: one way and one version per intent, and IDs without gaps over all commits."""
    rows, actions = decision
    names = (f"L{n}" for n in count())
    spec = replace(demo_spec(), max_launches_per_minute=ceiling)
    commits = changes.changes("demo", spec, rows, actions, NOW, lambda: next(names))
    created = [r for c in commits for r in c.create]
    assert [r.id for r in created] == list(range(201, 201 + len(created)))
    highest, launched = 200, 0
    for commit in commits:
        assert len(commit.create) + len(commit.update) + len(commit.close_intents) <= Changes.MAX_ROWS
        assert len({(r.purchase_option, r.version) for r in commit.to_launch}) <= 1
        if commit.create:
            assert commit.highest_id == (highest, highest + len(commit.create))
            highest += len(commit.create)
        else:
            assert commit.highest_id is None
        launched += len(commit.to_launch)
        assert commit.window is None or commit.window[1].launched == launched
    assert launched == min(ceiling, len([r for c in commits for r in c.stored if _waits(r)]))
    written = [r.id for c in commits for r in (*c.create, *c.update)]
    assert len(set(written)) == len(written), "every row once"


def _waits(row: Replica) -> bool:
    return row.state is ReplicaState.REQUESTED


@given(mixed())
def test_what_is_replaced_is_bought_the_same_way(decision: tuple[Rows, list[Step]]) -> None:
    """The loss of an on-demand replica brings an on-demand one, of the base as before; none is a fallback."""
    rows, actions = decision
    names = (f"L{n}" for n in count())
    commits = changes.changes("demo", demo_spec(), rows, actions, NOW, lambda: next(names))
    for created in (r for c in commits for r in c.create if r.replaces):
        assert created.purchase_option is rows.replicas[created.replaces or 0].purchase_option
        assert not created.is_fallback
    requested = [a for a in actions if a.name == "Request"]
    fallbacks = [r for c in commits for r in c.create if r.is_fallback]
    assert len(fallbacks) == sum(len(a.creates) for a in requested if a.creates[0].is_fallback)


def test_what_is_bought_on_demand_comes_last() -> None:
    """Requests and launches of both kinds, mixed, take one commit and one launch for each kind."""
    due = a_replica(1, ReplicaState.REQUESTED)
    bought = a_replica(2, ReplicaState.REQUESTED, purchase_option=PurchaseOption.ON_DEMAND)
    commits = commits_of(
        rows_of(due, bought),
        steps.launch(bought),
        steps.request(NOW, 1, "new", PurchaseOption.ON_DEMAND, 1),
        steps.launch(due),
        steps.request(NOW, 1, "new", PurchaseOption.SPOT, 1),
    )
    assert [{r.id for r in c.to_launch} for c in commits] == [{1, 10}, {2, 11}]


def test_a_service_that_gave_up_spot_replaces_it_on_demand() -> None:
    """What is lost on Spot after the service stopped wanting it comes back on-demand."""
    lost = a_replica(1, ReplicaState.READY)
    spec = demo_spec(use_spot=False)
    (commit,) = changes.changes(
        "demo", spec, rows_of(lost, highest_id=1), losing(lost, "lost"), NOW, lambda: "L1"
    )
    assert [r.purchase_option for r in commit.create] == [PurchaseOption.ON_DEMAND]


def test_a_launch_says_whether_it_is_a_last_resort() -> None:
    """What the decision allows one launch is not lost on the way to it, nor given to another."""
    due = a_replica(1, ReplicaState.REQUESTED)
    bought = a_replica(2, ReplicaState.REQUESTED, purchase_option=PurchaseOption.ON_DEMAND)
    actions: list[Step] = [steps.launch(due, is_last_resort=True), steps.launch(bought)]
    names = (f"L{n}" for n in count())
    commits = changes.changes("demo", demo_spec(), rows_of(due, bought), actions, NOW, lambda: next(names))
    assert [([r.id for r in c.to_launch], c.is_last_resort) for c in commits] == [([1], True), ([2], False)]


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 59))
def test_the_brake_holds_what_is_too_much_for_a_minute(ceiling: int, wanted: int, since_s: int) -> None:
    """Over the ceiling replicas are on record all the same, and due when the minute is over."""
    spec = replace(demo_spec(), max_launches_per_minute=ceiling)
    started = NOW - seconds(since_s)
    rows = Rows(0, window=LaunchWindow(started, 1))
    names = (f"L{n}" for n in count())
    commits = changes.changes(
        "demo",
        spec,
        rows,
        [steps.request(NOW, wanted, "new", PurchaseOption.SPOT, 1)],
        NOW,
        lambda: next(names),
    )
    created = [r for c in commits for r in c.create]
    held = [r for r in created if r.launch_id is None]
    assert len(created) == wanted
    assert len(created) - len(held) == min(wanted, ceiling - 1)
    assert sum(c.held for c in commits) == len(held)
    assert {r.retry_at for r in held} <= {started + seconds(timing.LAUNCH_WINDOW_S)}
    windows = [c.window[1] for c in commits if c.window]
    assert [w.since for w in windows] == [started] * len(windows)
    over = LaunchWindow(LONG_AGO, 99)
    later = changes.changes(
        "demo",
        spec,
        replace(rows, window=over),
        [steps.request(NOW, 1, "new", PurchaseOption.SPOT, 1)],
        NOW,
        str,
    )
    assert later[0].window == (over, LaunchWindow(NOW, 1))


def test_what_launches_nothing_takes_no_part_in_the_minute() -> None:
    """Two that write at the same time are no conflict unless both launch."""
    rows = rows_of(a_replica(1, ReplicaState.READY))
    (commit,) = changes.changes(
        "demo", demo_spec(), rows, [steps.drain(rows.replicas[1], NOW, "why")], NOW, lambda: "L"
    )
    assert commit.window is None


def commits_of(rows: Rows, *actions: Step) -> list[Changes]:
    """What is written of them."""
    names = (f"L{n}" for n in count())
    return changes.changes("demo", demo_spec(), rows, actions, NOW, lambda: next(names))


def ready(id_: int, **facts: Any) -> Replica:
    """One that serves, unless the facts say otherwise."""
    return a_replica(id_, ReplicaState.READY, **facts)


def test_new_ids_are_above_all_rows_even_if_the_highest_got_lost() -> None:
    """The service's entry may say less than its rows do: what it is raised to says it all."""
    rows = replace(rows_of(ready(9)), highest_id=5)
    (commit,) = commits_of(rows, steps.request(NOW, 1, "more", PurchaseOption.SPOT, 1))
    assert [row.id for row in commit.create] == [10]
    assert commit.highest_id == (5, 10)


def test_a_few_rows_do_not_raise_the_highest_that_got_lost() -> None:
    """Raised to one of a few, a newer row would count as created while it was read: its ID is given again."""
    some = replace(rows_of(ready(4), ready(5)), highest_id=0, is_whole=False)
    noted = steps.note_missing(some.replicas[5], NOW)
    (of_some,) = commits_of(some, noted)
    (of_all,) = commits_of(replace(some, is_whole=True), noted)
    assert (of_some.highest_id, of_all.highest_id) == (None, (0, 5))


# Who serves.


@pytest.mark.parametrize(
    ("action", "serving"),
    [
        (steps.drain(ready(1), NOW, "lost"), (3, 2)),
        (steps.serve_on(ready(1), NOW, "interruption warning", NOW), (3, 2)),
        (steps.note_health(ready(1), NOW), (3, 2)),
        (steps.drain(ready(1, warned_at=NOW), NOW, "interruption warning"), (3, 3)),
        (steps.note_health(ready(1, unhealthy_since=NOW), None), (3, 4)),
        (steps.mark_ready(a_replica(1, ReplicaState.STARTING), NOW), (3, 4)),
        (steps.take_in(NOW, an_instance(7), ReplicaState.READY, "serves", 1), (3, 4)),
        (steps.take_in(NOW, an_instance(7), ReplicaState.STARTING, "may serve", 1), None),
        (steps.drain(ready(1, unhealthy_since=NOW), NOW, "ill"), None),
        (steps.start(a_replica(1, ReplicaState.PROVISIONING), NOW), None),
        (steps.end(a_replica(1, ReplicaState.DRAINING), NOW, "gone"), None),
        (steps.replace(ready(1), NOW, "rebalance recommendation", 1), None),
    ],
)
def test_a_commit_says_how_many_serve(action: Step, serving: tuple[int, int] | None) -> None:
    """Whatever changes their number, or takes one out, fails if others have changed it since."""
    rows = replace(rows_of(*([action.before] if action.before else [])), serving=3)
    (commit,) = commits_of(rows, action)
    assert commit.serving == serving


def test_several_commits_pass_the_count_on() -> None:
    """Each one begins with what the one before has written, and a count that was wrong is set right first."""
    rows = rows_of(*(ready(i) for i in range(1, 32)), highest_id=40)
    drains = [losing(r, "lost") for r in rows.replicas.values()]
    assert [c.serving for c in commits_of(rows, *chain(*drains))] == [(31, 16), (16, 1), (1, 0)]
    wrong = replace(rows, serving=7)
    assert [c.serving for c in commits_of(wrong, steps.recount())] == [(7, 31)]
    assert [c.serving for c in commits_of(wrong, steps.recount(), *drains[0])] == [(7, 30)]
    lost = replace(rows, serving=0)
    assert [c.serving for c in commits_of(lost, *drains[0])] == [(0, 0)], "fewer than none serve never"


# What a launch writes.


def test_a_launch_is_of_the_version_that_was_decided_for_it() -> None:
    """Whatever version the replica was requested under: a failure of this one is this one's."""
    waiting = [a_replica(id_, ReplicaState.REQUESTED, version=1) for id_ in (1, 2)]
    newer = tuple(replace(r, version=2) for r in waiting)
    spec = replace(demo_spec(), version=2, max_launches_per_minute=1)
    (commit,) = changes.changes("demo", spec, rows_of(*waiting), [steps.launch(*newer)], NOW, lambda: "L")
    assert [(r.id, r.version, r.launch_id) for r in commit.update] == [(1, 2, "L"), (2, 2, None)], "one waits"


def test_each_version_is_launched_by_itself() -> None:
    """Two versions bought the same way take a launch each: a launch is of one version of the template."""
    older, newer = (a_replica(id_, ReplicaState.REQUESTED, version=id_) for id_ in (1, 2))
    commits = commits_of(
        rows_of(older, newer),
        steps.launch(newer),
        steps.request(NOW, 1, "new", PurchaseOption.SPOT, 2),
        steps.launch(older),
        steps.request(NOW, 1, "new", PurchaseOption.SPOT, 1),
    )
    assert [{(r.id, r.version) for r in c.to_launch} for c in commits] == [
        {(1, 1), (10, 1)},
        {(2, 2), (11, 2)},
    ]


# What fails static writes.


def test_a_raised_highest_id_is_what_new_ids_follow() -> None:
    """One commit takes the counter from what was read to beyond what was raised to, or fails."""
    rows = rows_of(highest_id=0)
    (only,) = commits_of(rows, steps.raise_highest_id(9))
    assert (only.highest_id, only.create, only.update) == ((0, 9), (), ())
    taken = steps.take_in(NOW, an_instance(7), ReplicaState.READY, "serves", 1)
    (both,) = commits_of(
        rows, steps.raise_highest_id(9), taken, steps.request(NOW, 1, "new", PurchaseOption.SPOT, 1)
    )
    assert both.highest_id == (0, 11)
    assert [r.id for r in both.create] == [10, 11]
    assert both.open_intent == LaunchIntent("L0", "demo", (11,), NOW, highest_id=11)


def test_an_instance_that_is_taken_in_gets_a_row_of_its_own() -> None:
    """As if it had just come to where it is, and as it was bought; nothing is launched for it."""
    offering = on_demand_pool("us-east-1a", "g5.xlarge")
    instance = an_instance(7, offering=offering, launch_id="L7", launched_at=NOW - seconds(600))
    (commit,) = commits_of(
        rows_of(), steps.take_in(NOW, instance, ReplicaState.READY, "serves", 1, is_fallback=True)
    )
    (row,) = commit.create
    assert (row.id, row.state, row.instance_id, row.launch_id) == (10, ReplicaState.READY, "i-7", "L7")
    assert (row.offering, row.purchase_option, row.is_fallback) == (offering, PurchaseOption.ON_DEMAND, True)
    assert row.entered[ReplicaState.PROVISIONING] == NOW - seconds(600)
    assert (row.since, row.version, row.reason) == (NOW, demo_spec().version, "serves")
    assert commit.open_intent is None
    skewed = replace(instance, launched_at=NOW + seconds(600))
    (commit,) = commits_of(rows_of(), steps.take_in(NOW, skewed, ReplicaState.READY, "serves", 1))
    assert commit.create[0].entered[ReplicaState.PROVISIONING] == NOW, "not from the future"


def test_who_serves_on_stays_where_it_is_and_is_replaced_at_once() -> None:
    """Its row says that it is warned and by whom it is replaced, in one commit with the replacement."""
    rows = rows_of(ready(1))
    serves_on = steps.serve_on(rows.replicas[1], NOW, "interruption warning", NOW)
    (commit,) = commits_of(rows, *told(serves_on))
    assert commit.update == (replace(rows.replicas[1], warned_at=NOW, lost_at=NOW, replaced_by=10),)
    assert [(r.id, r.replaces, r.reason) for r in commit.create] == [(10, 1, "interruption warning")]
    (commit,) = commits_of(rows, serves_on)
    assert (commit.create, commit.update[0].replaced_by) == ((), None)


def test_a_drain_keeps_the_warning_that_the_row_has() -> None:
    """Whoever drains it for whatever reason: EC2 ends the instance, and isn't to be forestalled."""
    row = ready(1, warned_at=LONG_AGO)
    for at, kept in ((None, LONG_AGO), (NOW, NOW)):
        (commit,) = commits_of(rows_of(row), steps.drain(row, NOW, "gone", warned_at=at))
        assert commit.update[0].warned_at == kept


def test_losses_and_failures_teach_about_their_pools() -> None:
    """What serves on teaches as what leaves does; a failure about on-demand, too; bad health nothing."""
    spot, bought = ready(1), ready(2, offering=on_demand_pool("us-east-1a", "g5.xlarge"))

    def causes(*actions: Step) -> list[Cause]:
        return [lesson.cause for lesson in changes.lessons(actions, PoolMemory(), NOW)]

    assert causes(steps.serve_on(spot, NOW, "interruption warning", NOW)) == [Cause.LOSS]
    assert causes(steps.drain(spot, NOW, "interruption warning", cool_pool=True)) == [Cause.LOSS]
    assert causes(steps.drain(spot, NOW, "unhealthy"), steps.serve_on(bought, NOW, "odd", NOW)) == []
    late = [replace(r, state=ReplicaState.STARTING) for r in (spot, bought)]
    assert causes(*(steps.fail(r, NOW, "late") for r in late)) == [Cause.FAILURE, Cause.FAILURE]


# Brakes and back-off.


def test_a_ready_replica_forgives_failures() -> None:
    """Back-off rises with every failure and is gone with the first success."""
    fresh, well = a_replica(1, ReplicaState.STARTING), a_replica(2, ReplicaState.STARTING)
    failed = changes.changes(
        "demo", demo_spec(), rows_of(fresh, highest_id=2), [steps.fail(fresh, NOW, "late")], NOW, str
    )
    assert failed[0].backoff == Backoff(1, NOW + seconds(timing.FAILURE_FIRST_S), version=1)
    rows = rows_of(well, backoff=Backoff(4, NOW, version=1))
    assert (
        changes.changes("demo", demo_spec(), rows, [steps.mark_ready(well, NOW)], NOW, str)[0].backoff
        == Backoff()
    )


def test_what_ec2_did_is_told_apart_from_what_the_version_did() -> None:
    """Of two failures after four in a row, the one that was EC2's makes no crash loop of it."""
    recently = dict.fromkeys(ReplicaState, NOW - seconds(30))
    fresh = a_replica(1, ReplicaState.STARTING, entered=recently)
    rows = rows_of(fresh, highest_id=1, backoff=Backoff(4, NOW, version=1))
    for is_ec2s, failed in ((True, timing.CRASH_LOOP_FAILURES - 1), (False, timing.CRASH_LOOP_FAILURES)):
        (commit,) = commits_of(rows, steps.fail(fresh, NOW, "died", is_ec2s=is_ec2s))
        assert commit.backoff is not None
        assert commit.backoff.failures == failed


def test_the_last_of_several_commits_has_the_back_off() -> None:
    """More failures than fit into one commit are all written, and hold the next launch once."""
    rows = rows_of(*(a_replica(i, ReplicaState.STARTING) for i in range(1, Changes.MAX_ROWS + 2)))
    first, last = commits_of(rows, *(steps.fail(r, NOW, "late") for r in rows.replicas.values()))
    assert [r.id for c in (first, last) for r in c.update] == list(rows.replicas)
    assert first.backoff is None
    assert last.backoff is not None


def test_the_back_off_is_written_before_what_is_launched_because_of_it() -> None:
    """A replica that gets ready ends it, and launches what waited; the commits of those may fail."""
    well, serves = a_replica(1, ReplicaState.STARTING), a_replica(2, ReplicaState.READY)
    waiting = a_replica(3, ReplicaState.REQUESTED, purchase_option=PurchaseOption.ON_DEMAND)
    rows = rows_of(well, serves, waiting, backoff=Backoff(4, NOW, version=1))
    first, last = commits_of(
        rows, steps.mark_ready(well, NOW), steps.replace(serves, NOW, "ill", 1), steps.launch(waiting)
    )
    assert (first.backoff, last.backoff) == (Backoff(), None)
    assert last.open_intent is not None


def test_the_back_off_waits_for_nobody_who_was_ready_before() -> None:
    """One that serves and is written again by a later commit has ended no back-off."""
    well = a_replica(1, ReplicaState.STARTING)
    serves = a_replica(2, ReplicaState.READY, purchase_option=PurchaseOption.ON_DEMAND)
    waiting = a_replica(3, ReplicaState.REQUESTED)
    rows = rows_of(well, serves, waiting, backoff=Backoff(4, NOW, version=1))
    first, last = commits_of(
        rows, steps.mark_ready(well, NOW), steps.launch(waiting), steps.replace(serves, NOW, "ill", 1)
    )
    assert [row.id for row in last.update] == [serves.id]
    assert (first.backoff, last.backoff) == (Backoff(), None)


@given(st.integers(1, 10_000))
def test_back_off_rises_to_its_ceiling(attempts: int) -> None:
    """Each wait is at least as long as the one before, and none beyond the ceiling."""
    waits = [timing.backoff_s(n, 5, 60) for n in (attempts, attempts + 1)]
    assert 5 <= waits[0] <= waits[1] <= 60
