"""When a warned replica leaves the rotation: early where others are enough, late where not."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.ports import Conflict
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes, Rows
from spotrelay.plane.core.spec import OnWarning, ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import MemoryStore
from spotrelay.plane.serving import changes, interruption, reconcile, steps
from spotrelay.plane.serving.holding import overridable
from spotrelay.plane.serving.observation import Observation
from tests.examples import demo_spec
from tests.unit.cases import LONG_AGO, NOW, RECENTLY, a_replica, an_instance, rows_of, seen_of

READY, DRAINING = ReplicaState.READY, ReplicaState.DRAINING
NEEDED, SERVE_ON, LEAVE = OnWarning.NEEDED, OnWarning.SERVE_ON, OnWarning.LEAVE
MOMENT = seconds(0.001)
HEALTHY_ALL = {f"i-{number}": TargetState.HEALTHY for number in (1, 2, 3)}


def spec_of(replicas: int, on_warning: OnWarning = NEEDED, drain_s: float = 30) -> ServiceSpec:
    """A service that wants so many."""
    return replace(demo_spec(replicas=replicas), on_warning=on_warning, drain_s=drain_s)


def warned(id_: int, ago_s: float, **facts: Any) -> Replica:
    """A replica that serves on, warned so many seconds before `NOW`."""
    return a_replica(id_, READY, warned_at=NOW - seconds(ago_s), **facts)


def leaving(spec: ServiceSpec, *replicas: Replica, gone: Collection[int] = ()) -> list[int]:
    """Who leaves."""
    return sorted(r.id for r in interruption.leaving(spec, rows_of(*replicas), gone, NOW))


@pytest.mark.parametrize(
    ("on_warning", "enough"),
    [(NEEDED, [0, 1, 1, 2]), (SERVE_ON, [0, 1, 2, 3])],
)
def test_how_many_others_are_enough(on_warning: OnWarning, enough: list[int]) -> None:
    """All but one of those wanted, and at least one; or as many as wanted. Nobody, if none is wanted."""
    assert [interruption.enough(spec_of(n, on_warning)) for n in range(4)] == enough


@pytest.mark.parametrize("on_warning", OnWarning)
@pytest.mark.parametrize("replicas", range(4))
def test_one_that_others_make_up_for_leaves_at_once(on_warning: OnWarning, replicas: int) -> None:
    """As soon as enough others stay, and not with one fewer, unless its answers are too long to wait."""
    spec = spec_of(replicas, on_warning)
    enough = interruption.enough(spec)
    for staying in range(5):
        may = interruption.may_leave(spec, NOW, staying, NOW, is_last=staying == 0)
        assert may is (staying >= enough or on_warning is LEAVE)


@pytest.mark.parametrize("drain_s", [0, 30, 40])
@pytest.mark.parametrize("is_last", [True, False])
def test_nobody_serves_on_beyond_the_last_moment(drain_s: float, is_last: bool) -> None:
    """120 s less the drain and 20 s of the balancer's lag; the very last one until 10 s before its end."""
    spec = spec_of(3, SERVE_ON, drain_s)
    last = NOW + seconds(110 if is_last else 120 - drain_s - 20)
    assert (interruption.last_moment(NOW) if is_last else interruption.drain_deadline(spec, NOW)) == last
    assert not interruption.may_leave(spec, NOW, 2, last - MOMENT, is_last=is_last)
    assert interruption.may_leave(spec, NOW, 2, last, is_last=is_last)


def test_somebody_looks_at_both_moments() -> None:
    """A second after the drain deadline, and after the last moment, until which only the very last stays."""
    assert interruption.looks_due(spec_of(3), NOW) == (NOW + seconds(71), NOW + seconds(111))


def test_who_looks_shortly_before_a_moment_has_somebody_look_at_it() -> None:
    """Within the last seconds, and no more once the moment is there: then it is this very look."""
    spec, within = spec_of(3), seconds(timing.LOOK_AGAIN_WITHIN_S)
    for at in interruption.looks_due(spec, NOW):
        for now, is_soon in ((at - within - MOMENT, False), (at - within, True), (at, False)):
            assert interruption.is_due_soon(spec, NOW, now) is is_soon


def test_of_several_with_nobody_else_one_stays() -> None:
    """The one whose end is latest, of equals the one with the highest ID, and only until its last moment."""
    spec = spec_of(3)
    assert leaving(spec, warned(1, 80), warned(2, 75), warned(3, 80)) == [1, 3]
    assert leaving(spec, warned(1, 80), warned(2, 80), warned(3, 80)) == [1, 2]
    assert leaving(spec, warned(1, 69), warned(2, 69)) == [], "before their drain deadline none needs to"
    assert leaving(spec, warned(1, 111), warned(2, 109)) == [1]
    assert leaving(spec, warned(1, 111), warned(2, 110)) == [1, 2]


@pytest.mark.parametrize("by_a_tick", [True, False])
def test_who_leaves_stays_if_the_one_that_serves_on_has_gone_meanwhile(by_a_tick: bool) -> None:
    """Its row is written as it was read, once, so the commit fails if somebody else has written it."""
    rows = rows_of(warned(1, 80), warned(2, 75), warned(3, 80))
    if by_a_tick:
        decided = list(reconcile.warned(spec_of(3), Observation(rows, health=HEALTHY_ALL), NOW))
    else:
        decided = interruption.due(spec_of(3), rows, NOW)
    (commit,) = changes.changes("demo", spec_of(3), rows, decided, NOW, lambda: "launch")
    assert [row.id for row in commit.update if row.state is DRAINING] == [1, 3]
    assert [row for row in commit.update if row.state is not DRAINING] == [rows.replicas[2]]
    store = MemoryStore()
    store.commit(Changes("demo", create=tuple(rows.replicas.values())))
    read = store.load("demo")
    store.commit(Changes("demo", update=(read.replicas[2].to(DRAINING, NOW, "instance terminated"),)))
    late = changes.changes("demo", spec_of(3), read, interruption.due(spec_of(3), read, NOW), NOW, str)
    with pytest.raises(Conflict):
        store.commit(late[0])


def test_who_serves_on_is_written_once_and_not_beside_a_change_of_its_own() -> None:
    """A second time, its revision would be an old one, and the commit would fail for nothing."""
    last = warned(50, 75)
    rows = rows_of(*(warned(i, 80) for i in range(1, 41)), last)
    leave = [interruption.leave(r, NOW, last) for r in rows.replicas.values() if r is not last]
    commits = changes.changes("demo", spec_of(3), rows, leave, NOW, str)
    assert len(commits) == 2
    assert [row for commit in commits for row in commit.update if row.id == last.id] == [last]
    assert all(commit.size <= Changes.MAX_SIZE for commit in commits)
    ill = steps.note_health(last, NOW)
    commits = changes.changes("demo", spec_of(3), rows, [*leave, ill], NOW, str)
    assert [row for commit in commits for row in commit.update if row.id == last.id] == [ill.row]


def test_one_that_stays_is_enough_for_all_to_leave_in_time() -> None:
    """Where anybody serves who isn't warned nobody is the very last: all leave at the drain deadline."""
    spec = spec_of(3)
    stays = a_replica(4, READY)
    assert leaving(spec, warned(1, 80), warned(2, 70), stays) == [1, 2]
    assert leaving(spec, warned(1, 80), warned(2, 70), warned(3, 69), stays) == [1, 2]
    assert leaving(spec, warned(1, 80), warned(2, 70), warned(3, 69), stays, gone=[4]) == [1, 2]
    assert leaving(spec, warned(1, 80), warned(2, 70), stays, gone=[4]) == [1], (
        "the one that is lost helps nobody"
    )


def test_what_does_not_answer_does_not_count_as_serving() -> None:
    """Neither as one of those who are enough, nor as the last one: it would refuse every request."""
    ill: dict[str, Any] = {"unhealthy_since": NOW}
    spec = spec_of(2)
    assert leaving(spec, warned(1, 5), a_replica(2, READY)) == [1]
    assert leaving(spec, warned(1, 5), a_replica(2, READY, **ill)) == []
    assert leaving(spec, warned(1, 80), a_replica(2, READY, **ill)) == [], "it is the last one that serves"
    assert leaving(spec, warned(1, 80), warned(2, 5, **ill)) == []
    assert leaving(spec, warned(1, 80), a_replica(2, ReplicaState.STARTING)) == []


@st.composite
def fleets(draw: st.DrawFn) -> tuple[ServiceSpec, Rows, set[int]]:
    """Replicas in any state, warned at any time, some of them lost."""
    replicas = []
    for id_ in range(1, draw(st.integers(0, 6)) + 1):
        state = draw(st.sampled_from([READY, READY, READY, ReplicaState.STARTING, ReplicaState.DRAINING]))
        at = draw(st.none() | st.integers(0, 130).map(lambda ago_s: NOW - seconds(ago_s)))
        ill = draw(st.sampled_from([None, None, NOW]))
        replicas.append(a_replica(id_, state, warned_at=at, unhealthy_since=ill))
    spec = spec_of(draw(st.integers(0, 4)), draw(st.sampled_from(OnWarning)), draw(st.integers(0, 90)))
    return spec, rows_of(*replicas), set(draw(st.lists(st.integers(1, 6), max_size=2)))


@given(fleets())
def test_the_rotation_is_never_emptied_before_the_last_moment(
    fleet: tuple[ServiceSpec, Rows, set[int]],
) -> None:
    """If anybody serves, somebody does afterwards, unless the last moment of all of them has come.

    Or answers are so long that the service wants warned replicas to leave at once, whatever happens; or it
    wants nobody.
    """
    spec, rows, gone = fleet
    before = {r.id: r for r in rows.replicas.values() if r.serves and r.id not in gone}
    left = {r.id for r in interruption.leaving(spec, rows, gone, NOW)}
    on = {r.id for r in rows.replicas.values() if r.is_warned and interruption.may_serve_on(r)}
    assert left <= on - gone, "only what serves on leaves"
    if before and spec.replicas and spec.on_warning is not LEAVE:
        ends = [interruption.last_moment(r.warned_at) if r.warned_at else None for r in before.values()]
        assert before.keys() - left or all(end is not None and end <= NOW for end in ends)


@pytest.mark.parametrize(
    ("drain_s", "unhurried_s", "longest_s", "delay_s"),
    [(30, 300, 300, 300), (30, 60, 60, 120), (600, 300, 600, 600), (30, None, 30, 30), (30, 0, 30, 120)],
)
def test_the_target_groups_delay_is_the_longest_way_out(
    drain_s: float, unhurried_s: float | None, longest_s: float, delay_s: float
) -> None:
    """No way out is shorter than `drain_seconds`, and a warned replica has until its end: two minutes."""
    spec = replace(demo_spec(), drain_s=drain_s, drain_unhurried_s=unhurried_s)
    assert (spec.longest_drain_s, spec.deregistration_delay_s) == (longest_s, delay_s)


@given(fleets())
def test_everybody_who_is_warned_is_out_in_time(fleet: tuple[ServiceSpec, Rows, set[int]]) -> None:
    """Nobody serves on until EC2 takes it; beyond the drain deadline only the very last one does."""
    spec, rows, gone = fleet
    left = {r.id for r in interruption.leaving(spec, rows, gone, NOW)}
    there = [r for r in rows.replicas.values() if r.serves and r.id not in gone | left]
    warned_at = [r.warned_at for r in there if r.warned_at]
    assert all(interruption.last_moment(at) > NOW for at in warned_at)
    late = [at for at in warned_at if interruption.drain_deadline(spec, at) <= NOW]
    assert len(late) <= (1 if len(there) == len(warned_at) else 0)


# Coming back.


def left(id_: int, since_s: float = 5, **facts: Any) -> Replica:
    """One that has served, has left, and still finishes its requests."""
    row = a_replica(id_, DRAINING, since_s=since_s, **facts)
    return replace(row, entered={READY: LONG_AGO, **row.entered})


def back(*replicas: Replica, wanted: int = 2, **seen: Any) -> list[int]:
    """The replicas that come back."""
    instances = [an_instance(r.id) for r in replicas]
    observed = seen_of(*replicas, **{"instances": instances, **seen})
    actions = reconcile.decide(demo_spec(replicas=wanted), observed, NOW)
    return [a.replica.id for a in actions if a.name == "ComeBack"]


def test_what_has_left_comes_back_while_nobody_serves() -> None:
    """It runs, and may answer; as many as are wanted, and those first that EC2 leaves longest."""
    warned, long_warned = (left(i, warned_at=NOW - seconds(ago_s)) for i, ago_s in ((2, 30), (3, 90)))
    assert back(warned, long_warned) == [2], "the other one's requests would be cut"
    assert back(left(1), warned, long_warned) == [1, 2]
    assert back(left(1), wanted=0) == [], "nobody is to serve"


def test_no_more_are_on_their_way_back_than_are_wanted() -> None:
    """Else all that was ever replaced would be kept. What came back in vain gives the others their turn."""
    on_its_way = [replace(left(i), state=ReplicaState.STARTING) for i in (4, 5)]
    assert back(left(1), left(2), *on_its_way[:1]) == [2]
    assert back(left(1), left(2), *on_its_way) == []
    assert back(left(1), *on_its_way, health={1: TargetState.HEALTHY}) == [1], "it answers"
    assert back(left(1), left(2, reason=steps.IN_VAIN), wanted=1) == [1]
    assert back(left(1), left(2), wanted=1, health=dict.fromkeys((1, 2), TargetState.HEALTHY)) == [2]


def test_nothing_comes_back_beside_one_that_serves() -> None:
    """By its row, or by the load balancer's word: that is ahead of the rows."""
    starting = a_replica(4, ReplicaState.STARTING)
    assert back(left(1), a_replica(4, READY), health={4: TargetState.HEALTHY}) == []
    assert back(left(1), starting, health={4: TargetState.HEALTHY}) == []
    assert back(left(1), starting, health={4: TargetState.UNHEALTHY}) == [1]
    assert back(left(1), a_replica(4, READY, warned_at=NOW), health={4: TargetState.HEALTHY}) == []
    assert back(left(1), instances=[an_instance(1), an_instance(9)], health={9: TargetState.HEALTHY}) == []


def test_a_row_vouches_for_nobody_who_was_just_seen_to_be_gone() -> None:
    """What only this tick finds ill or dead is no reason to take out, once more, what still answers."""
    kept, other = left(1), a_replica(4, READY)
    for seen in (
        {"health": {1: TargetState.HEALTHY, 4: TargetState.UNHEALTHY}},
        {"health": {1: TargetState.HEALTHY, 4: TargetState.UNUSED}},
        {"health": {1: TargetState.HEALTHY}},
        {"health": {1: TargetState.HEALTHY, 4: TargetState.DRAINING}},
        {"instances": [an_instance(1), an_instance(4, InstanceState.TERMINATED)]},
    ):
        assert back(kept, other, **seen) == [1]
    assert back(kept, other, instances=[an_instance(1)], health={4: TargetState.HEALTHY}) == []
    late, dead = left(1, warned_at=NOW - seconds(109)), replace(other, warned_at=NOW - seconds(100))
    assert back(late, dead, instances=[an_instance(1), an_instance(4, InstanceState.TERMINATED)]) == [1]


def test_what_comes_back_stays_while_nobody_is_seen_to_serve() -> None:
    """The other one is ready by its row, too young for EC2 to show it, and fails its checks."""
    kept = left(1, warned_at=NOW - seconds(100))
    young = replace(a_replica(4, READY), entered={ReplicaState.PROVISIONING: NOW - seconds(5), READY: NOW})
    health = {1: TargetState.HEALTHY, 4: TargetState.UNHEALTHY}
    seen = seen_of(kept, young, instances=[an_instance(1)], health=health)
    actions = reconcile.decide(demo_spec(replicas=1), seen, NOW)
    assert [a.name for a in actions] == ["ComeBack"]


def test_what_has_left_comes_back_as_a_person_ends_the_last_one() -> None:
    """EC2 doesn't show what serves, and a person says that it is gone: the one that left serves at once."""
    kept, other = left(1, warned_at=NOW - seconds(20)), a_replica(4, READY)
    seen = seen_of(
        kept, other, instances=[an_instance(1)], health={1: TargetState.HEALTHY, 4: TargetState.HEALTHY}
    )
    held = overridable(reconcile.decide(demo_spec(replicas=2), seen, NOW))
    actions = reconcile.decide(demo_spec(replicas=2), replace(seen, vouched=held), NOW)
    assert [a.replica.id for a in actions if a.name == "Drain"] == [4]
    assert [a.replica.id for a in actions if a.name == "ComeBack"] == [1]


def test_what_ec2_does_not_show_comes_back_if_it_answers() -> None:
    """The load balancer's word is enough for who serves."""
    assert back(left(1), instances=[an_instance(9)], health={1: TargetState.HEALTHY}) == [1]
    assert back(left(1), instances=[an_instance(9)], health={1: TargetState.UNAVAILABLE}) == []


def test_what_is_ending_or_never_served_does_not_come_back() -> None:
    """Nor one at its last moment, unless EC2 spares it; a standby is resumed instead."""
    ending = [an_instance(1, InstanceState.SHUTTING_DOWN)]
    assert back(left(1), instances=ending) == []
    assert back(left(1), instances=[]) == []
    assert back(a_replica(1, DRAINING)) == []
    standby = left(1, is_standby=True, is_fallback=True)
    assert back(standby) == []
    assert back(standby, health={1: TargetState.HEALTHY}) == [1], "it answers, and takes no start"
    past = left(1, warned_at=NOW - seconds(110))
    assert back(past) == []
    assert back(past, spared=frozenset({"i-1"})) == [1]
    assert back(left(1, warned_at=NOW - seconds(109)), left(2, warned_at=NOW - seconds(100))) == [2], (
        "one of them"
    )
    both = left(1, warned_at=NOW - seconds(109)), left(2, warned_at=NOW - seconds(100))
    health = {1: TargetState.HEALTHY, 2: TargetState.UNHEALTHY}
    assert back(*both, health=health) == [1], "the one that answers"
    later = a_replica(3, ReplicaState.STARTING, warned_at=NOW - seconds(100))
    assert back(left(1, warned_at=NOW - seconds(109)), later) == [], "another one may still come to serve"


def test_one_that_comes_back_is_asked_like_any_that_starts() -> None:
    """Whatever was noted of it is over; what it left for, and by whom it is replaced, stays on record."""
    row = left(1, unhealthy_since=NOW, silent_since=NOW, refusals=2, missing_since=NOW, replaced_by=7)
    after = steps.come_back(row, NOW).row
    assert (after.state, after.since, after.replaced_by) == (ReplicaState.STARTING, NOW, 7)
    assert (after.unhealthy_since, after.silent_since, after.missing_since, after.refusals) == (None,) * 3 + (
        0,
    )
    for loss in (
        steps.drain(after, NOW, "instance gone", is_gone=True),
        steps.serve_on(after, NOW, "warned", NOW),
    ):
        assert not loss.is_loss, "it is there beside those that should be"
    assert not after.is_counted


def test_what_comes_back_leaves_once_as_many_as_wanted_serve() -> None:
    """Until it serves nothing counts on it, and nothing replaces it. Then it is like any other."""
    row = replace(left(1), state=ReplicaState.STARTING)
    row = replace(row, entered={**row.entered, ReplicaState.STARTING: NOW})
    assert row.comes_back
    others = [a_replica(i, READY) for i in (2, 3)]
    for serving, leaves in ((others[:1], []), (others, [1])):
        seen = seen_of(
            row,
            *serving,
            instances=[an_instance(r.id) for r in (row, *serving)],
            health={1: TargetState.INITIAL, **dict.fromkeys((r.id for r in serving), TargetState.HEALTHY)},
        )
        actions = reconcile.decide(demo_spec(replicas=2), seen, NOW)
        assert [a.replica.id for a in actions if a.name == "Drain"] == leaves
        assert [len(a.creates) for a in actions if a.name == "Request"] == [1] * (not leaves)
        assert not [a for a in actions if a.name == "Replace"]
    assert row.to(READY, NOW).is_counted


def test_one_that_comes_back_and_is_warned_is_on_record() -> None:
    """It goes on, as any that starts; nothing replaces it."""
    row = replace(left(1), state=ReplicaState.STARTING)
    row = replace(row, entered={**row.entered, ReplicaState.STARTING: NOW})
    actions = reconcile.decide(
        demo_spec(replicas=1), seen_of(row, instances=[an_instance(1)], warned=[1]), NOW
    )
    assert [a.row.warned_at for a in actions if a.name == "ServeOn"] == [NOW]
    assert not [a for a in actions if a.name == "Replace"]


def test_one_that_came_back_and_fails_is_no_failure_of_its_version() -> None:
    """It had served: it leaves again, and no launch waits for that."""
    row = replace(a_replica(1, ReplicaState.STARTING), entered=dict.fromkeys((*RECENTLY, READY), LONG_AGO))
    silent = reconcile.late(demo_spec(), rows_of(row), {"i-1"}, NOW)
    dead = seen_of(row, instances=[an_instance(1, InstanceState.TERMINATED)])
    ended = reconcile.decide(demo_spec(replicas=1), dead, NOW)
    assert [a.name for a in (*silent, ended[0])] == ["Drain", "Drain"]


# Spared.


def test_the_last_one_stays_at_its_last_moment_if_ec2_spares_it() -> None:
    """While nobody else serves, and for that one only."""
    spec, over = spec_of(2, OnWarning.NEEDED, 30), NOW - seconds(115)
    rows = rows_of(a_replica(1, READY, warned_at=over), a_replica(2, READY, warned_at=over))
    leaving = {r.id for r in interruption.leaving(spec, rows, (), NOW, dict.fromkeys(("i-1", "i-2")))}
    assert leaving == {1}
    assert {r.id for r in interruption.leaving(spec, rows, (), NOW, {"i-1": None})} == {1, 2}
    served = rows_of(*rows.replicas.values(), a_replica(3, READY), a_replica(4, READY))
    assert {r.id for r in interruption.leaving(spec, served, (), NOW, dict.fromkeys(("i-1", "i-2")))} == {
        1,
        2,
    }


def test_the_last_one_stays_if_ec2_has_warned_it_once_more() -> None:
    """It took the first warning back: by the second the last one has time."""
    rows = rows_of(a_replica(1, READY, warned_at=NOW - seconds(115)))
    for ago_s, leaves in ((115, True), (109, False), (110, True)):
        said = {"i-1": NOW - seconds(ago_s)}
        assert bool([*interruption.leaving(spec_of(1), rows, (), NOW, said)]) is leaves
    earlier = {"i-1": NOW - seconds(999)}
    fresh = rows_of(a_replica(1, READY, warned_at=NOW))
    assert [*interruption.leaving(spec_of(1), fresh, (), NOW, earlier)] == [], (
        "what is on record may be later"
    )


def test_where_no_row_says_who_serves_all_stay_until_their_last_moment() -> None:
    """Each may be the one that the load balancer finds healthy. Where one serves by its row, those leave that
    would not outlive it.
    """
    rising = [a_replica(i, ReplicaState.STARTING, warned_at=NOW - seconds(100)) for i in (1, 2)]
    ill = a_replica(3, READY, warned_at=NOW - seconds(100), unhealthy_since=NOW)
    assert leaving(spec_of(3), *rising, ill) == []
    serves = a_replica(4, READY, warned_at=NOW - seconds(100))
    assert leaving(spec_of(3), *rising, ill, serves) == [1, 2, 3]
    serves = a_replica(4, READY, warned_at=NOW - seconds(110))
    assert leaving(spec_of(3), *rising, ill, serves) == [4], "somebody serves after it, or comes to"


def test_who_has_left_may_be_the_last_only_while_nobody_serves() -> None:
    """EC2 is asked about few: about who serves on, and who was to leave where nobody does by their rows."""
    left = a_replica(1, ReplicaState.DRAINING, warned_at=NOW)
    rising, serves = a_replica(2, ReplicaState.STARTING), a_replica(3, READY)
    assert interruption.last_in_rotation([left, rising]) == [left]
    assert interruption.last_in_rotation([left, rising, serves]) == []
    serves_on = replace(serves, warned_at=NOW)
    assert interruption.last_in_rotation([left, rising, serves_on]) == [serves_on]


def test_the_log_says_which_instance_is_taken_out() -> None:
    """No replica has it, so nothing else in the line would."""
    assert steps.take_out("i-1").says == {"instance_id": "i-1"}
