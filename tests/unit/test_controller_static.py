"""The controller fails static: damage, wrong answers and missing documents stop removals, no more."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace

import pytest

from spotrelay.plane.control.controller import Controller
from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import InstanceState, TargetState
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import OPTIONS, CapacityPool, Offering, PurchaseOption
from spotrelay.plane.core.ports import (
    Conflict,
    OtherControlPlane,
    PortError,
    Throttled,
    Unavailable,
    UnreadableDocument,
)
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import Changes
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.memory import MemoryStore
from tests.examples import demo_spec
from tests.unit.worlds import (
    Troubled,
    active,
    alive,
    counted,
    dry,
    in_rotation,
    instance_of,
    reclaim,
    recorded,
    rows,
    serving,
    settle,
    table,
    warn,
    word,
    world_of,
)

READY = ReplicaState.READY
GONE = UnreadableDocument("not JSON: deploy the service again")
STRANGER = OtherControlPlane("services belong to spotrelay-2")
SILENCE = Unavailable("Parameter Store doesn't answer")

UNTIL_ENDED = 20
"""Ticks, of three seconds: a removal is certain after 20 s, and a drain takes 20 s at least."""


def ticks(world: Troubled, controller: Controller, count: int = 10) -> None:
    """So many ticks of a service whose document may be missing."""
    for _ in range(count):
        world.clock.advance(timing.TICK_IN_TRANSITION_S)
        world.fleet.run()
        controller.tick("demo")
        world.router.pass_checks()


def untouched(world: Troubled) -> bool:
    """Whether the three replicas serve as they did, and nobody changed anything."""
    ids = {f"i-{n:017x}" for n in (1, 2, 3)}
    is_quiet = {"fleet.launch", "fleet.terminate", "router.deregister"}.isdisjoint(world.calls)
    return is_quiet and in_rotation(world) == alive(world) == ids


# The table.


def empty(world: Troubled, *, keep_history: bool = False) -> None:
    """Somebody empties the table."""
    history = table(world).history
    world.store = MemoryStore()
    if keep_history:
        world.store.load("demo")
        table(world).history = history


@pytest.mark.parametrize("keep_history", [False, True])
def test_an_emptied_table_ends_nobody(*, keep_history: bool) -> None:
    """Every serving instance is taken in READY, with IDs that were never given; nothing is launched."""
    world, controller = serving()
    controller.handle(warn(world, active(world)[0]))
    settle(world, controller)
    controller.handle(reclaim(world, world.store.load("demo").replicas[1]))
    serve = in_rotation(world)
    world.clock.advance(timing.ORPHAN_GRACE_S)
    world.calls.clear()
    empty(world, keep_history=keep_history)
    controller = Controller(world.ports())
    settle(world, controller)
    assert [(r.id, r.state) for r in active(world)] == [(i, READY) for i in (5, 6, 7)]
    assert in_rotation(world) == alive(world) == serve
    assert {"fleet.launch", "fleet.terminate", "router.deregister"}.isdisjoint(world.calls)
    assert world.telemetry.counts[Metric.ORPHANS_ADOPTED] == 3
    assert rows(world).serving == 3


def test_after_the_table_was_emptied_no_more_is_launched_than_is_missing() -> None:
    """Of four wanted three serve: one is launched, and a warning in the middle of it is replaced."""
    world, controller = serving()
    world.services.specs["demo"] = demo_spec(replicas=4)
    world.clock.advance(timing.ORPHAN_GRACE_S)
    empty(world)
    controller = Controller(world.ports())
    settle(world, controller)
    assert [launch.count for launch in world.fleet.launches] == [1]
    assert [r.state for r in active(world)] == [READY] * 4
    controller.handle(warn(world, active(world)[0]))
    settle(world, controller)
    assert [launch.count for launch in world.fleet.launches] == [1, 1]


def lose_entry(world: Troubled) -> None:
    """The service's own entry is gone: the highest ID, and how many serve."""
    kept = table(world)
    kept.highest_id = kept.serving = 0


@pytest.mark.parametrize("event_comes_first", [True, False])
def test_a_lost_counter_gives_nothing_twice(*, event_comes_first: bool) -> None:
    """Whether a tick or a warning finds it: everything goes on, and the next ID is a new one."""
    world, controller = serving()
    victim = active(world)[0]
    world.clock.advance(timing.LEASE_S)
    lose_entry(world)
    if not event_comes_first:
        controller.tick("demo")
        assert untouched(world)
    assert controller.handle(warn(world, victim)) == []
    assert counted(world) == [2, 3, 4]
    settle(world, controller)
    assert [(r.id, r.state) for r in active(world)] == [(i, READY) for i in (2, 3, 4)]
    assert (rows(world).highest_id, rows(world).serving) == (4, 3)
    assert len(alive(world)) == 4
    if event_comes_first:
        (line,) = recorded(world, "ids_mended")
        assert (line["was"], line["highest_id"]) == (0, 3)


def test_a_call_that_finds_the_counter_lost_gives_no_id_of_the_history_twice() -> None:
    """It writes the row of one that leaves: the highest ID isn't what the other rows say, but the history."""
    world, controller = serving(demo_spec(replicas=1))
    dry(world, *OPTIONS.values())
    controller.handle(warn(world, *active(world)))
    ended = replace(active(world)[0], id=9, state=ReplicaState.TERMINATED)
    table(world).history[ended.id] = ended
    world.clock.advance(110)
    lose_entry(world)
    controller.leave("demo")
    assert in_rotation(world) == set()
    assert rows(world).highest_id == 9


def test_a_call_that_somebody_else_mended_the_counter_for_goes_on() -> None:
    """Both found it lost. Who comes second takes out what is due, and isn't to be called again for that."""
    world, controller = serving(demo_spec(replicas=1))
    dry(world, *OPTIONS.values())
    controller.handle(warn(world, *active(world)))
    world.clock.advance(110)
    lose_entry(world)
    highest_id = max(rows(world).replicas)
    world.meddle("store.commit", lambda _: setattr(table(world), "highest_id", highest_id))
    controller.leave("demo")
    assert in_rotation(world) == set()


def test_a_restored_table_gives_no_id_twice() -> None:
    """The backup knows less than the instances bear on their tags: new IDs follow the highest of those."""
    world, controller = serving()
    world.services.specs["demo"] = demo_spec(replicas=5)
    settle(world, controller)
    world.clock.advance(timing.ORPHAN_GRACE_S)
    kept = table(world)
    for lost in (4, 5):
        del kept.replicas[lost]
    kept.highest_id, kept.serving = 3, 3
    settle(world, controller)
    assert [(r.id, r.state) for r in active(world)] == [(i, READY) for i in (1, 2, 3, 6, 7)]
    assert len(alive(world)) == 5


@pytest.mark.parametrize("left", [0, 3])
def test_a_lost_counter_gives_no_id_of_the_history_twice(left: int) -> None:
    """What ended had IDs, too, though nothing else knows of it: no row, and no instance's tag."""
    world, controller = serving(demo_spec(replicas=5))
    world.services.specs["demo"] = demo_spec(replicas=left)
    settle(world, controller, rounds=20)
    for ended in world.fleet.instances.keys() - alive(world):
        del world.fleet.instances[ended]  # EC2 shows what ended for an hour
    assert len(world.store.history("demo", 9)) == 5 - left
    if left:
        world.fleet.instances = {i: replace(one, highest_id=3) for i, one in world.fleet.instances.items()}
    world.clock.advance(timing.LEASE_S)
    lose_entry(world)
    world.services.specs["demo"] = demo_spec(replicas=left + 1)
    settle(world, controller)
    assert [r.id for r in active(world)] == [*range(1, left + 1), 6]


def test_a_warning_that_finds_the_counter_lost_knows_the_history() -> None:
    """Its replacement gets an ID of its own, though 4 and 5 ended, and no row tells of them."""
    world, controller = serving(demo_spec(replicas=5))
    world.services.specs["demo"] = demo_spec()
    settle(world, controller, rounds=20)
    world.clock.advance(timing.LEASE_S)
    lose_entry(world)
    assert controller.handle(warn(world, active(world)[0])) == []
    assert counted(world) == [2, 3, 6]


def test_one_lost_row_costs_nothing() -> None:
    """Its instance is taken in under a new ID, and stays in rotation."""
    world, controller = serving()
    world.clock.advance(timing.ORPHAN_GRACE_S)
    del table(world).replicas[2]
    ticks(world, controller)
    assert [(r.id, r.state) for r in active(world)] == [(i, READY) for i in (1, 3, 4)]
    assert untouched(world)
    assert rows(world).serving == 3


def test_an_orphan_is_drained_before_it_ends() -> None:
    """An instance of ours that serves nobody gets a row, its drain, and only then its end."""
    world, controller = serving()
    world.services.specs["demo"] = demo_spec(replicas=4)
    controller.tick("demo")
    orphan = next(r for r in active(world) if r.id == 4)
    world.services.specs["demo"] = demo_spec()
    kept = table(world)
    del kept.replicas[4]
    kept.intents.clear()
    world.clock.advance(timing.ORPHAN_GRACE_S)
    ticks(world, controller, 1)
    assert instance_of(orphan) in alive(world)
    assert world.telemetry.counts[Metric.ORPHANS_TERMINATED] == 1
    ticks(world, controller, int(timing.DRAIN_SETTLE_S / timing.TICK_IN_TRANSITION_S) + 2)
    assert instance_of(orphan) not in alive(world)
    assert [r.state for r in active(world)] == [READY] * 3


def test_what_a_replica_that_ended_left_behind_is_terminated_in_an_empty_rotation() -> None:
    """Its row ended, and who was to terminate the instance died over it: the record knows that it drained.

    An instance whose row got lost is in no history: it stays, because the load balancer shows nobody at all.
    """
    for is_on_record in (True, False):
        world, controller = serving(demo_spec(replicas=1))
        (replica,) = active(world)
        dry(world, PurchaseOption.SPOT, PurchaseOption.ON_DEMAND)
        kept = table(world)
        ended = replica.to(ReplicaState.DRAINING, world.clock.now()).to(
            ReplicaState.TERMINATED, world.clock.now()
        )
        del kept.replicas[replica.id]
        if is_on_record:
            kept.history[replica.id] = ended
        world.router.groups[demo_spec().target_group_arn].clear()
        world.clock.advance(timing.ORPHAN_GRACE_S)
        ticks(world, controller, int(timing.DRAIN_SETTLE_S / timing.TICK_IN_TRANSITION_S) + 2)
        assert (instance_of(replica) in alive(world)) is not is_on_record


def test_a_stranger_s_instance_is_left_alone() -> None:
    """Somebody tags an instance with our service: nobody ends it, and it is told about."""
    world, controller = serving()
    world.clock.advance(timing.ORPHAN_GRACE_S)
    mine = next(iter(world.fleet.instances.values()))
    offering = Offering(mine.offering.pool, PurchaseOption.ON_DEMAND)
    foreign = replace(mine, id="i-foreign", launch_template_id=None, offering=offering, launch_id="forged")
    world.fleet.instances["i-foreign"] = foreign
    world.fleet.services["i-foreign"] = "demo"
    ticks(world, controller)
    assert "i-foreign" in alive(world)
    assert [r.id for r in active(world)] == [1, 2, 3]
    (line, *_) = recorded(world, "held_back")
    assert line["what"] == "i-foreign is left alone"
    assert world.telemetry.counts[Metric.HELD_BACK] > 0
    others = replace(active(world)[0], service="other", instance_id="i-foreign")
    world.store.commit(Changes("other", highest_id=(0, 1), create=(others,)))
    ticks(world, controller, 1)
    assert [r.id for r in active(world)] == [1, 2, 3], "on record, but as another service's"
    ours = replace(others, service="demo", id=4)
    world.store.commit(Changes("demo", highest_id=(3, 4), create=(ours,)))
    del table(world).replicas[4]
    ticks(world, controller, 1)
    assert rows(world).replicas[5].instance_id == "i-foreign", "on record as ours, whatever its tags say"


@pytest.mark.parametrize(
    ("call", "error"), [("store.commit", Conflict("faster")), ("router.deregister", Unavailable("no answer"))]
)
def test_a_stranger_s_instance_slows_nothing_down(call: str, error: PortError) -> None:
    """What is held back may wait for a person; a loss beside it that went wrong is tried again in seconds."""
    world, controller = serving()
    world.clock.advance(timing.ORPHAN_GRACE_S)
    mine = next(iter(world.fleet.instances.values()))
    world.fleet.instances["i-foreign"] = replace(mine, id="i-foreign", launch_template_id=None)
    world.fleet.services["i-foreign"] = "demo"
    warn(world, active(world)[0])
    world.refuse(call, error)
    with suppress(Unavailable):
        controller.tick("demo")
    assert recorded(world, "held_back")
    ((_, _, delay_s),) = world.ticker.scheduled
    assert delay_s == timing.TICK_IN_TRANSITION_S


# What EC2 shows.


def test_an_empty_answer_of_ec2_deregisters_nobody() -> None:
    """Everybody is missing, and healthy for the load balancer: they serve on, as long as it lasts."""
    world, controller = serving()
    hidden = dict(world.fleet.instances)
    world.fleet.instances.clear()
    ticks(world, controller, 30)
    world.fleet.instances.update(hidden)
    assert untouched(world)
    assert [r.state for r in active(world)] == [READY] * 3
    assert world.telemetry.counts[Metric.HELD_BACK] == 90
    assert "spotrelay override demo" in recorded(world, "held_back")[0]["remedy"]
    assert not world.ticker.scheduled, "what is held back is looked at by the minute"


def test_an_operator_can_say_that_it_is_right() -> None:
    """The override carries out what is held back: the ones that EC2 doesn't show drain and are replaced."""
    world, controller = serving()
    world.fleet.instances.clear()
    controller.tick("demo")
    assert counted(world) == [1, 2, 3]
    controller.tick("demo", override=word(world))
    assert counted(world) == [4, 5, 6]


DISRUPTED = Unavailable("a zone is disrupted")


def disrupted(world: Troubled, zone: str) -> None:
    """EC2 describes instances by their IDs only, and none of this zone."""
    world.refuse("fleet.observe", DISRUPTED, times=None)

    def asked(ids: Collection[str]) -> None:
        if {world.fleet.instances[i].offering.pool.zone for i in ids} & {zone}:
            raise DISRUPTED

    world.meddle("fleet.look_up", asked, times=None)


def test_a_disrupted_zone_s_replica_is_replaced() -> None:
    """It is gone once neither EC2 nor the load balancer shows it well; the other zones' serve throughout."""
    world, controller = serving()
    victim = active(world)[0]
    hit = Offering(CapacityPool("us-east-1", "us-east-1z", "g5.xlarge"), PurchaseOption.SPOT)
    table(world).replicas[victim.id] = replace(victim, offering=hit)
    before = world.fleet.instances[instance_of(victim)]
    world.fleet.instances[before.id] = replace(before, offering=hit)
    others = in_rotation(world) - {before.id}
    disrupted(world, hit.pool.zone)
    for _ in range(30):
        world.router.groups[demo_spec().target_group_arn][before.id] = TargetState.UNHEALTHY
        world.clock.advance(timing.TICK_IN_TRANSITION_S)
        world.fleet.run()
        controller.tick("demo")
        assert in_rotation(world) >= others
        world.router.pass_checks()
    assert [(r.id, r.state) for r in active(world)] == [(i, READY) for i in (2, 3, 4)]
    assert not world.fleet.launches[2:]
    (line, *_) = recorded(world, "zones_looked_at")
    assert line["us-east-1z"] == repr(DISRUPTED)


def test_nothing_happens_while_no_zone_answers() -> None:
    """As where EC2 doesn't answer at all: the tick fails, and comes again."""
    world, controller = serving()
    (zone,) = {r.offering.pool.zone for r in active(world) if r.offering}
    disrupted(world, zone)
    with pytest.raises(Unavailable):
        controller.tick("demo")
    assert untouched(world)


def test_warnings_are_replaced_while_ec2_shows_nothing() -> None:
    """What EC2 announces itself needs no proof."""
    world, controller = serving()
    victim = active(world)[0]
    hidden = dict(world.fleet.instances)
    world.fleet.instances.clear()
    controller.tick("demo")
    assert controller.handle(warn(world, victim)) == []
    assert counted(world) == [2, 3, 4]
    world.fleet.instances.update(hidden)
    settle(world, controller)
    assert [r.state for r in active(world)] == [READY] * 3


# The document.


def missing(world: Troubled) -> None:
    """The parameter is gone, and nobody said that it was deleted."""
    del world.services.specs["demo"]


def unreadable(world: Troubled) -> None:
    """The parameter is there and can't be read."""
    world.refuse("services.get", GONE, times=None)


def silent(world: Troubled, error: PortError = SILENCE) -> None:
    """Parameter Store doesn't answer."""
    world.refuse("services.get", error, times=None)


def elsewhere(world: Troubled) -> None:
    """It names another target group than the one that the replicas are in."""
    world.services.specs["demo"] = replace(demo_spec(replicas=1), target_group_arn="arn:other")


@pytest.mark.parametrize("damage", [missing, unreadable, elsewhere])
def test_the_last_document_counts(damage: Callable[[Troubled], None]) -> None:
    """Missing, unreadable or with another target group: nothing ends, it is told, losses are replaced."""
    world, controller = serving()
    victim = active(world)[0]
    damage(world)
    ticks(world, controller, 10)
    world.services.specs["demo"], broken = demo_spec(), world.services.specs.get("demo")
    assert untouched(world)
    if broken is None:
        del world.services.specs["demo"]
    else:
        world.services.specs["demo"] = broken
    assert world.telemetry.counts[Metric.HELD_BACK] == 10
    warn(world, victim)
    ticks(world, controller, 10)
    assert [(r.id, r.state) for r in active(world)] == [(i, READY) for i in (2, 3, 4)]
    assert {instance_of(r) for r in active(world)} <= world.router.groups[demo_spec().target_group_arn].keys()
    assert "arn:other" not in world.router.groups


@pytest.mark.parametrize("damage", [missing, unreadable, silent])
def test_without_any_document_nothing_is_touched(damage: Callable[[Troubled], None]) -> None:
    """Where the last one is lost, too, nothing says what is wanted, nor that the service ended."""
    world, controller = serving()
    table(world).document = None
    damage(world)
    ticks(world, controller, 10)
    world.services.specs["demo"] = demo_spec()
    assert untouched(world)
    assert [(r.id, r.state) for r in active(world)] == [(i, READY) for i in (1, 2, 3)]


@pytest.mark.parametrize("damage", [missing, unreadable, silent])
def test_warnings_are_replaced_by_the_last_document(damage: Callable[[Troubled], None]) -> None:
    """Without a document that can be read a loss is a loss all the same."""
    world, controller = serving()
    victim = active(world)[0]
    damage(world)
    assert controller.handle(warn(world, victim)) == []
    assert [r.id for r in active(world)] == [2, 3, 4]
    assert instance_of(victim) not in {
        i for i, s in world.router.health(demo_spec()).items() if s.is_in_rotation
    }
    assert len(world.fleet.launches) == 1


@pytest.mark.parametrize("damage", [unreadable, silent])
def test_warnings_come_again_where_no_document_is_known(damage: Callable[[Troubled], None]) -> None:
    """None can be read and none is on record: that isn't taken for a removal, and nothing is lost."""
    world, controller = serving()
    table(world).document = None
    warned = warn(world, active(world)[0])
    damage(world)
    assert list(controller.handle(warned)) == list(warned)
    assert [(r.id, r.state) for r in active(world)] == [(i, READY) for i in (1, 2, 3)]


@pytest.mark.parametrize("damage", [missing, unreadable, silent])
def test_who_serves_on_leaves_by_the_last_document(damage: Callable[[Troubled], None]) -> None:
    """The call that takes it out needs no fresh one."""
    world, controller = serving(demo_spec(replicas=1))
    controller.handle(warn(world, *active(world)))
    damage(world)
    world.clock.advance(110)
    controller.leave("demo")
    assert not any(s.is_in_rotation for s in world.router.health(demo_spec()).values())


@pytest.mark.parametrize("error", [SILENCE, Throttled("40 reads a second")])
def test_ticks_go_on_by_the_last_document(error: PortError) -> None:
    """While Parameter Store is silent losses are replaced, and replacements let in; it is logged."""
    world, controller = serving()
    silent(world, error)
    warn(world, active(world)[0])
    ticks(world, controller, 10)
    assert [(r.id, r.state) for r in active(world)] == [(i, READY) for i in (2, 3, 4)]
    assert len(recorded(world, "document_unknown")) == 10
    assert not world.telemetry.counts[Metric.HELD_BACK]


def test_silence_is_no_sign_of_a_removal() -> None:
    """It was told, and nobody can say whether the document is gone: nothing is ended or started."""
    world, controller = serving()
    controller.note_removal("demo")
    silent(world)
    warn(world, active(world)[0])
    ticks(world, controller, UNTIL_ENDED)
    assert [(r.id, r.state) for r in active(world)] == [(i, READY) for i in (1, 2, 3)]
    assert untouched(world)
    assert rows(world).removal.absent == 0


def test_silence_gives_nobody_the_services_of_another() -> None:
    """Whoever was told that another has them stays off them, until it hears that they are its own again."""
    world, controller = serving()
    world.refuse("services.get", STRANGER, times=1)
    controller.tick("demo")
    assert not rows(world).is_claimed
    world.refuse("services.get", SILENCE, times=14)
    signals = warn(world, active(world)[0])
    before = rows(world)
    assert controller.handle(signals) == signals, "they come again"
    ticks(world, controller, 10)
    with pytest.raises(Unavailable):
        controller.leave("demo")
    assert untouched(world)
    assert rows(world) == before
    world.refuse("services.get", SILENCE, times=0)
    ticks(world, controller, 5)
    assert rows(world).is_claimed
    assert [r.state for r in active(world)] == [READY] * 3
    assert 4 in rows(world).replicas


def test_nobody_is_called_back_to_a_service_that_nobody_knows() -> None:
    """Without any document nothing says where its replicas are registered: the call is over."""
    world, controller = serving(demo_spec(replicas=1))
    controller.handle(warn(world, *active(world)))
    world.services.specs.clear()
    table(world).document = None
    world.clock.advance(110)
    before = rows(world)
    controller.leave("demo")
    assert rows(world) == before


def test_another_target_group_is_followed_once_it_is_vouched_for() -> None:
    """A person says that it is right; from then on it is the document that counts."""
    world, controller = serving()
    elsewhere(world)
    controller.tick("demo")
    controller.tick("demo", override=word(world))
    assert world.store.document("demo") == world.services.specs["demo"]


def test_another_target_group_is_fine_where_nobody_is_in_the_old_one() -> None:
    """A service without replicas has nothing to lose."""
    world, controller = serving(demo_spec(replicas=0))
    elsewhere(world)
    controller.tick("demo")
    assert [r.id for r in active(world)] == [1]
    assert Metric.HELD_BACK not in world.telemetry.counts


# The end of a service.


def test_a_removed_service_leaves_nothing_behind() -> None:
    """Told that its parameter was deleted, and found gone again and again: instances go, IDs don't."""
    world, controller = serving()
    del world.services.specs["demo"]
    controller.note_removal("demo")
    assert [service for service, _, _ in world.ticker.scheduled] == ["demo"]
    ticks(world, controller, UNTIL_ENDED)
    assert not alive(world)
    assert world.store.services() == []
    world.services.specs["demo"] = demo_spec()
    settle(world, controller)
    assert [(r.id, r.state) for r in active(world)] == [(i, READY) for i in (4, 5, 6)]


def test_a_removal_takes_the_event_and_more_than_three_ticks() -> None:
    """Neither the event nor the absence alone ends anybody; three ticks in a row may be a deployment."""
    world, controller = serving()
    controller.note_removal("demo")
    ticks(world, controller)
    assert untouched(world), "told, and the document is there"
    world.services.specs.clear()
    ticks(world, controller)
    world.services.specs["demo"] = demo_spec()
    assert untouched(world), "gone, and nobody told: the event before was taken back by the document"
    controller.note_removal("demo")
    del world.services.specs["demo"]
    ticks(world, controller, timing.REMOVED_TICKS)
    assert len(alive(world)) == 3
    assert [r.state for r in active(world)] == [READY] * 3
    ticks(world, controller, 1)
    assert [r.state for r in active(world)] == [READY] * 3, "four ticks within a moment are one look"
    world.clock.advance(timing.REMOVED_AFTER_S)
    ticks(world, controller, 1)
    assert active(world) == []


def test_a_document_that_comes_back_clears_the_removal() -> None:
    """Deleted and made again: the count of absent ticks begins anew with the next event."""
    world, controller = serving()
    controller.note_removal("demo")
    del world.services.specs["demo"]
    ticks(world, controller, timing.REMOVED_TICKS)
    world.services.specs["demo"] = demo_spec()
    ticks(world, controller, 1)
    assert untouched(world)
    del world.services.specs["demo"]
    ticks(world, controller, 10)
    world.services.specs["demo"] = demo_spec()
    assert untouched(world)


def test_a_document_that_nobody_can_read_clears_the_removal_too() -> None:
    """It is there: the service was deployed again, however badly, and is not gone."""
    world, controller = serving()
    controller.note_removal("demo")
    del world.services.specs["demo"]
    ticks(world, controller, timing.REMOVED_TICKS)
    world.refuse("services.get", GONE, times=1)
    ticks(world, controller, 10)
    assert untouched(world)


def test_nobody_comes_back_for_a_service_that_nobody_knows() -> None:
    """No document, none kept, and nothing told of a removal: the minute's tick will do."""
    world, controller = serving(demo_spec(replicas=0))
    world.services.specs.clear()
    table(world).document = None
    world.ticker.scheduled.clear()
    controller.tick("demo")
    assert world.ticker.scheduled == []


def test_ticks_follow_each_other_until_a_removal_is_certain() -> None:
    """Not by the minute: each absent one announces the next."""
    world, controller = serving()
    del world.services.specs["demo"]
    controller.note_removal("demo")
    world.ticker.scheduled.clear()
    controller.tick("demo")
    ((_, _, delay_s),) = world.ticker.scheduled
    assert delay_s == timing.TICK_IN_TRANSITION_S


def test_an_operator_can_end_a_service_without_the_event() -> None:
    """The override says that it was removed; it is found gone as often as ever."""
    world, controller = serving()
    del world.services.specs["demo"]
    controller.tick("demo")
    controller.tick("demo", override=word(world))
    assert len(active(world)) == 3
    ticks(world, controller, UNTIL_ENDED)
    assert not alive(world)


def test_to_say_a_removal_twice_delays_nothing() -> None:
    """The override of a removal that is on record already begins no new count of absent ticks."""
    world, controller = serving()
    del world.services.specs["demo"]
    controller.tick("demo")
    said = word(world)
    controller.note_removal("demo")
    ticks(world, controller, timing.REMOVED_TICKS)
    world.clock.advance(timing.REMOVED_AFTER_S - timing.REMOVED_TICKS * timing.TICK_IN_TRANSITION_S)
    controller.tick("demo", override=said)
    assert active(world) == []


def test_a_removed_service_s_requests_are_drained() -> None:
    """Its replicas leave the load balancer, and run on until it has let go of them."""
    world, controller = serving()
    controller.note_removal("demo")
    del world.services.specs["demo"]
    world.clock.advance(timing.REMOVED_AFTER_S)
    while in_rotation(world):
        ticks(world, controller, 1)
    ticks(world, controller, int(timing.DRAIN_SETTLE_S / timing.TICK_IN_TRANSITION_S) - 1)
    assert len(alive(world)) == 3
    assert "fleet.terminate" not in world.calls


def test_a_removed_service_s_load_balancer_may_be_gone() -> None:
    """Then there is nothing to leave, and the instances end all the same."""
    world, controller = serving()
    controller.note_removal("demo")
    del world.services.specs["demo"]
    world.router.groups.clear()
    ticks(world, controller, UNTIL_ENDED)
    assert not alive(world)


def test_a_removed_service_leaves_a_load_balancer_that_shows_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An empty answer may be wrong: nobody is ended in rotation."""
    world, controller = serving()
    monkeypatch.setattr(world.router, "health", lambda *_: {})
    controller.note_removal("demo")
    del world.services.specs["demo"]
    ticks(world, controller, UNTIL_ENDED)
    assert not alive(world)
    assert not [s for s in world.router.groups[demo_spec().target_group_arn].values() if s.is_in_rotation]


def test_a_warning_of_a_removed_service_is_not_replaced() -> None:
    """Its document is kept, but it was removed: what EC2 takes only drains."""
    world, controller = serving()
    controller.note_removal("demo")
    del world.services.specs["demo"]
    controller.handle(warn(world, active(world)[0]))
    assert world.fleet.launches == []
    assert counted(world) == [2, 3]


def test_a_removed_service_is_watched_until_nothing_is_left() -> None:
    """A launch that was under way when the stack went is found and ended, though EC2 shows it late."""
    world = world_of(demo_spec())
    controller = Controller(world.ports())
    settle(world, controller)
    hidden = world.fleet.instances.pop(instance_of(active(world)[2]))
    del world.services.specs["demo"]
    controller.note_removal("demo")
    world.clock.advance(timing.REMOVED_AFTER_S)
    ticks(world, controller, 6)
    world.fleet.instances[hidden.id] = hidden
    ticks(world, controller, UNTIL_ENDED)
    assert not alive(world)
    assert world.store.services() == []


# Two control planes.


def test_another_control_plane_s_services_are_not_touched() -> None:
    """Each of its ways in: a tick, a signal, a call; what it holds back is told, and nothing comes again."""
    world, controller = serving()
    signals = warn(world, *active(world))
    reclaimed = active(world)[0]
    world.fleet.enter(InstanceState.TERMINATED, [instance_of(reclaimed)])
    world.refuse("services.get", STRANGER, times=None)
    before = rows(world)
    assert controller.handle(signals) == []
    controller.tick("demo")
    controller.leave("demo")
    assert rows(world) == replace(before, is_claimed=False)
    assert {"fleet.launch", "fleet.terminate", "router.deregister", "store.commit"}.isdisjoint(world.calls)
    assert not world.ticker.scheduled
    assert world.telemetry.counts[Metric.HELD_BACK] == 3
    assert {line["what"] for line in recorded(world, "held_back")} == {"nothing is touched"}
    assert world.store.acquire("demo", "another", world.clock.now(), 1), "the lease was given back"


def test_one_service_of_another_control_plane_holds_up_no_other() -> None:
    """The signals of ours are handled, those of the other dropped."""
    ours, theirs = demo_spec("ours"), demo_spec("theirs")
    world, controller = serving(ours, theirs)

    def keep_off(service: str, **_: object) -> ServiceSpec | None:
        if service == "theirs":
            raise STRANGER
        return None

    world.meddle("services.get", keep_off, times=None)
    signals = [*warn(world, active(world, "theirs")[0]), *warn(world, active(world, "ours")[0])]
    assert controller.handle(signals) == []
    assert [r.id for r in active(world, "ours")] == [2, 3, 4]
    assert [r.id for r in active(world, "theirs")] == [1, 2, 3]
