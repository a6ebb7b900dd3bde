"""`ports.Store`."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest

from spotrelay.plane.aws.store import COOLDOWNS_KEPT_S, SURVEY_KEPT_S
from spotrelay.plane.core.answers import BusyEvidence
from spotrelay.plane.core.held import Answer, Held, HeldBack
from spotrelay.plane.core.incidents import AlarmState, Incidents
from spotrelay.plane.core.names import Alarm
from spotrelay.plane.core.notices import Notice, NoticeKind
from spotrelay.plane.core.pools import (
    Cause,
    Cooldown,
    Image,
    Offering,
    PoolMemory,
    PurchaseOption,
    Reading,
    Scope,
    Survey,
)
from spotrelay.plane.core.ports import Conflict, Denied, Store
from spotrelay.plane.core.replica import Phase, ReplicaState
from spotrelay.plane.core.requirements import Accelerators, Amount, Requirements
from spotrelay.plane.core.rows import (
    Backoff,
    Changes,
    LaunchIntent,
    LaunchWindow,
    Removal,
    Rollback,
    Rows,
    ScaleRequest,
    Source,
    Told,
)
from spotrelay.plane.core.scaling import MetricTarget, OngoingTotal, Scaling, Schedule
from spotrelay.plane.core.spec import (
    LaunchTemplate,
    OnRebalance,
    OnUpdate,
    OnWarning,
    ReadinessProbe,
    ServiceSpec,
)
from spotrelay.plane.core.timing import seconds
from tests.contract.conftest import Monotonic
from tests.contract.rows import NOW, OFFERING, create, ended, provisioned, row, update
from tests.examples import demo_spec, on_demand_pool, spot_pool

INTENT = LaunchIntent("launch-1", "demo", (1, 2), NOW, 17)
SPEC = demo_spec()
BACKOFF = Backoff(2, NOW + seconds(60), 3, NOW + seconds(90))
WINDOW = LaunchWindow(NOW, 2)
REMOVAL = Removal(NOW + seconds(1 / 7), 2)
NOTHING = Rows(is_whole=True)
"""What is loaded of a service that nobody has heard of."""


def test_an_unknown_service_has_no_rows(store: Store) -> None:
    """Reading about a service that never was is no error."""
    assert store.load("demo") == NOTHING
    assert store.read("demo", {1, 2}) == Rows()
    assert store.document("demo") is None
    assert list(store.history("demo", 5)) == []
    assert list(store.services()) == []


def test_an_empty_commit_does_nothing(store: Store) -> None:
    """A commit without changes succeeds and leaves no trace."""
    store.commit(Changes("demo"))
    assert store.load("demo") == NOTHING
    assert list(store.services()) == []


def test_rows_come_back_as_written(store: Store) -> None:
    """Every field of a replica survives the store, set or not."""
    full = row(
        1,
        purchase_option=PurchaseOption.ON_DEMAND,
        is_fallback=True,
        launch="on-demand in 4 of 4 pools (rested); EC2: us-east-1b/g6.xlarge/on-demand",
        rebalance_at=NOW + seconds(8),
        is_adopted=True,
        phases={phase: NOW + seconds(n / 7) for n, phase in enumerate(Phase)},
        silent_since=NOW + seconds(7.5),
        refusals=2,
        busy_since=NOW + seconds(7.25),
        finished=123456789012.0,
        address="10.0.0.7",
        lost_at=NOW + seconds(6.5),
        max_price=0.3125,
        min_score=5,
        move_tried_at=NOW + seconds(9),
        state=ReplicaState.DRAINING,
        reason="interruption warning",
        entered={state: NOW + seconds(n / 7) for n, state in enumerate(ReplicaState)},
        offering=on_demand_pool("us-east-1b", "g6.xlarge"),
        instance_id="i-1",
        launch_id="launch-1",
        attempts=3,
        retry_at=NOW + seconds(5),
        is_denied=True,
        is_proven=True,
        replaces=7,
        replaced_by=8,
        warned_at=NOW,
        unhealthy_since=NOW + timedelta(microseconds=1),
        revision=4,
    )
    store.commit(Changes("demo", highest_id=(0, 2), create=(full, row(2))))
    assert store.load("demo").replicas == {1: full, 2: row(2)}


def test_load_is_everything_that_is_no_history(store: Store) -> None:
    """A load gives all that is current about a service: of this one only, and knows that it is the whole."""
    rows = row(1), row(2)
    store.commit(
        Changes(
            "demo",
            highest_id=(0, 2),
            serving=(0, 2),
            create=rows,
            open_intent=INTENT,
            backoff=BACKOFF,
            window=(LaunchWindow(), WINDOW),
        )
    )
    store.keep_document(SPEC)
    store.note_removal("demo", REMOVAL)
    create(store, 1, service="demo-2")
    store.keep_document(demo_spec("demo-2"))
    assert store.load("demo") == Rows(
        2,
        2,
        is_whole=True,
        removal=REMOVAL,
        document=SPEC,
        replicas={1: rows[0], 2: rows[1]},
        intents={INTENT.id: INTENT},
        backoff=BACKOFF,
        window=WINDOW,
    )


def test_read_is_what_was_asked_for(store: Store) -> None:
    """A read gives the named replicas that haven't ended and what is counted: no intents, no document."""
    rows = create(store, 3)
    counted = Changes("demo", serving=(0, 1), backoff=BACKOFF, window=(LaunchWindow(), WINDOW))
    store.commit(replace(counted, open_intent=INTENT))
    store.keep_document(SPEC)
    store.note_removal("demo", REMOVAL)
    update(store, ended(rows[2]))
    assert store.read("demo", {2, 3, 99}) == Rows(3, 1, replicas={2: rows[1]}, backoff=BACKOFF, window=WINDOW)


def test_more_rows_than_one_page(store: Store) -> None:
    """A load and a read are complete where DynamoDB answers in several pages (1 MB each) or batches (100)."""
    reason = "x" * 20_000
    for start in range(0, 120, 20):
        rows = tuple(row(n, reason=reason) for n in range(start + 1, start + 21))
        store.commit(Changes("demo", highest_id=(start, start + 20), create=rows))
    everything = set(range(1, 121))
    assert store.load("demo").replicas.keys() == everything
    assert store.read("demo", everything).replicas.keys() == everything


def test_an_update_raises_the_revision(store: Store) -> None:
    """An updated row is stored with its revision + 1, so that the next decider must have seen it."""
    (first,) = create(store, 1)
    (second,) = update(store, provisioned(first))
    assert second.revision == first.revision + 1
    assert store.load("demo").replicas == {1: second}


def test_of_two_deciders_one_wins(store: Store) -> None:
    """Two updates decided on one revision: the second is a conflict, and nothing of it is written."""
    (seen,) = create(store, 1)
    (winner,) = update(store, provisioned(seen, "i-winner"))
    with pytest.raises(Conflict):
        update(store, provisioned(seen, "i-loser"))
    assert store.load("demo").replicas == {1: winner}
    assert store.locate({"i-winner", "i-loser"}) == {"i-winner": ("demo", 1)}


def test_a_revision_that_is_still_to_come_is_a_conflict(store: Store) -> None:
    """A conflict is any other revision, not only an older one."""
    (seen,) = create(store, 1)
    with pytest.raises(Conflict):
        update(store, replace(seen, revision=5))


def test_a_stale_update_takes_everything_with_it(store: Store) -> None:
    """Of a commit with one stale row nothing is written: no row, no ID, no intent, no back-off."""
    first, second = create(store, 2)
    update(store, provisioned(first))
    before = store.load("demo")
    with pytest.raises(Conflict):
        store.commit(
            Changes(
                "demo",
                highest_id=(2, 3),
                create=(row(3),),
                update=(provisioned(second), provisioned(first, "i-late")),
                open_intent=INTENT,
                backoff=Backoff(1, NOW),
            )
        )
    assert store.load("demo") == before
    assert not store.locate({"i-00000002", "i-late"})


def test_a_lost_race_for_ids_takes_everything_with_it(store: Store) -> None:
    """A commit that creates on a highest ID of the past writes none of its updates either."""
    (seen,) = create(store, 1)
    create(store, 1)
    before = store.load("demo")
    with pytest.raises(Conflict):
        store.commit(
            Changes(
                "demo", highest_id=(1, 3), create=(row(3),), update=(provisioned(seen),), close_intents=("x",)
            )
        )
    assert store.load("demo") == before


def test_the_first_ids_are_given_once(store: Store) -> None:
    """Two deciders that both saw an empty service don't both fill it."""
    store.commit(Changes("demo", highest_id=(0, 1), create=(row(1),)))
    with pytest.raises(Conflict):
        store.commit(Changes("demo", highest_id=(0, 3), create=(row(2), row(3))))
    assert store.load("demo") == Rows(1, is_whole=True, replicas={1: row(1)})


def test_launches_count_on_what_was_read(store: Store) -> None:
    """Two deciders can't both use what is left of a minute's launches; nor can the first ever two."""
    none, one, two = LaunchWindow(), LaunchWindow(NOW, 1), LaunchWindow(NOW, 2)
    store.commit(Changes("demo", window=(none, one)))
    assert store.load("demo").window == one
    for stale in (none, two):
        with pytest.raises(Conflict):
            store.commit(Changes("demo", window=(stale, two)))
    store.commit(Changes("demo", window=(one, two)))
    assert store.load("demo").window == two


def test_who_leaves_relies_on_what_was_read_of_the_others(store: Store) -> None:
    """Two deciders can't both take out one of the last two that serve: the second finds them fewer."""
    first, second = create(store, 2)
    store.commit(Changes("demo", serving=(0, 2)))
    store.commit(Changes("demo", serving=(2, 1), update=(provisioned(first),)))
    before = store.load("demo")
    assert before.serving == 1
    for stale in (2, 0, 3):
        with pytest.raises(Conflict):
            store.commit(Changes("demo", serving=(stale, 1), update=(provisioned(second),)))
        assert store.load("demo") == before, "nothing of it is written"
    store.commit(Changes("demo", serving=(1, 0)))
    with pytest.raises(Conflict):
        store.commit(Changes("demo", serving=(1, 0)))
    store.commit(Changes("demo", serving=(0, 1)))
    assert store.read("demo", ()).serving == 1


def test_how_many_serve_is_left_by_a_commit_that_does_not_say(store: Store) -> None:
    """What doesn't concern those that serve neither changes their number nor minds it."""
    store.commit(Changes("demo", serving=(0, 2)))
    create(store, 1)
    assert store.load("demo").serving == 2


def test_ids_are_not_given_on_a_highest_id_that_never_was(store: Store) -> None:
    """A highest ID of a service that has none must be 0."""
    with pytest.raises(Conflict):
        store.commit(Changes("demo", highest_id=(5, 6), create=(row(6),)))
    assert store.load("demo") == NOTHING


def test_a_row_is_created_once(store: Store) -> None:
    """Creating a row that exists is a conflict, even where the highest ID would allow it."""
    (existing,) = create(store, 1)
    with pytest.raises(Conflict):
        store.commit(Changes("demo", highest_id=(1, 2), create=(row(1, reason="again"), row(2))))
    assert store.load("demo") == Rows(1, is_whole=True, replicas={1: existing})


def test_an_ended_row_is_history(store: Store) -> None:
    """A row that ends is neither loaded nor read any more; the history has it with its last state."""
    first, second = create(store, 2)
    (over,) = update(store, ended(first))
    assert store.load("demo").replicas == {2: second}
    assert store.read("demo", {1, 2}).replicas == {2: second}
    assert list(store.history("demo", 5)) == [over]
    assert over.state is ReplicaState.TERMINATED


def test_history_is_newest_first(store: Store) -> None:
    """The history gives the highest IDs first, as many as asked for, of this service only."""
    rows = create(store, 12)
    update(store, *(ended(r) for r in rows))
    update(store, ended(create(store, 1, service="demo-2")[0]))
    assert [r.id for r in store.history("demo", 3)] == [12, 11, 10]
    assert [r.id for r in store.history("demo", 100)] == list(range(12, 0, -1))


def test_ended_ones_are_found_by_id(store: Store) -> None:
    """By ID, of this service only; what lives, or never was, isn't among them."""
    rows = create(store, 12)
    update(store, *(ended(r) for r in rows[:3]))
    update(store, ended(create(store, 4, service="demo-2")[3]))
    assert [r.id for r in store.ended("demo", [3, 2, 4, 99])] == [2, 3]
    assert store.ended("demo", [2])[0].state.is_ended
    assert list(store.ended("demo", [])) == []


def test_what_was_told_comes_back_as_written(store: Store) -> None:
    """Every field of it, and the next writer must have read it; a service that is forgotten forgets it."""
    notice = Notice(NoticeKind.FLEET_WHOLE, "demo", "2026", NOW, {"gap_s": 1.5, "ready": None})
    lost = row(3, lost_at=NOW, warned_at=NOW - seconds(1))
    told = Told(0, 17, {1: True, 2: False}, {3: lost}, 3, NOW + seconds(1 / 7), (notice,))
    store.note_told("demo", told)
    assert store.load("demo").told == replace(told, revision=1)
    assert store.read("demo", {1}).told == Told()
    with pytest.raises(Conflict):
        store.note_told("demo", told)
    store.note_told("demo", Told(1, 18))
    with pytest.raises(Conflict):
        store.note_told("demo", Told(3, 19))
    assert store.load("demo").told == Told(2, 18)
    store.forget("demo")
    assert store.load("demo").told == Told()


def test_what_alarms_were_told_comes_back_as_written(store: Store) -> None:
    """Every field of it, and the next writer must have read it; a service that is forgotten forgets it."""
    rings = AlarmState(rings=True, since=NOW)
    ended = AlarmState(since=NOW, zeros=2, minute=NOW + seconds(60))
    alarms = {Alarm.NOT_WHOLE: rings, Alarm.CRASH_LOOPING: ended, Alarm.CANNOT_LAUNCH: AlarmState(zeros=3)}
    times = [NOW + seconds(number / 7) for number in range(5)]
    written = Incidents(0, 7, alarms, True, *times)
    store.note_incidents("demo", written)
    assert store.load("demo").incidents == replace(written, revision=1)
    assert store.read("demo", {1}).incidents == Incidents()
    with pytest.raises(Conflict):
        store.note_incidents("demo", written)
    store.note_incidents("demo", Incidents(1))
    with pytest.raises(Conflict):
        store.note_incidents("demo", Incidents(3))
    assert store.load("demo").incidents == Incidents(2)
    store.forget("demo")
    assert store.load("demo").incidents == Incidents()


def test_what_is_held_back_comes_back_as_written(store: Store) -> None:
    """Only who reads all of a service sees it; it is replaced whole, and goes with the service."""
    back = HeldBack('replica 7 is "kept"', "EC2 doesn't show it", "it goes", NOW + seconds(1 / 7))
    held = Held((back,), Answer(NOW, ("replica 3 is kept",), "it wasn't given for this"))
    store.note_held("demo", held)
    assert store.load("demo").held == held
    assert store.read("demo", {1}).held == Held()
    for other in (Held((), held.answer), Held((back, replace(back, what="another"))), Held()):
        store.note_held("demo", other)
        assert store.load("demo").held == other
    store.note_held("demo", held)
    store.forget("demo")
    assert store.load("demo").held == Held()


def test_whose_a_service_is_comes_back_as_written(store: Store) -> None:
    """It is ours until somebody says otherwise; another's document is none of ours."""
    store.keep_document(SPEC)
    assert store.load("demo").is_claimed
    store.note_claim("demo", is_ours=False)
    assert not store.load("demo").is_claimed
    assert store.document("demo") is None
    store.note_claim("demo", is_ours=True)
    assert store.load("demo").is_claimed
    assert store.document("demo") == SPEC


def test_requests_in_progress_come_back_as_written(store: Store) -> None:
    """Only who reads all of a service sees them; the last look counts, and goes with the service."""
    assert store.load("demo").ongoing is None
    for total in (OngoingTotal(NOW + seconds(1 / 7), 12.5, 2), OngoingTotal(NOW, 0.0, 0)):
        store.note_ongoing("demo", total)
        assert store.load("demo").ongoing == total
    assert store.read("demo", {1}).ongoing is None
    store.forget("demo")
    assert store.load("demo").ongoing is None


def test_what_instances_told_of_starts_comes_back_as_written(store: Store) -> None:
    """As requests in progress do: the last word counts, and goes with the service."""
    assert store.load("demo").starts == {}
    for starts in (
        {1: {Phase.BOOTED: NOW, Phase.LOADS: NOW + seconds(1 / 7)}, 7: {}},
        {2: {Phase.LOADS: NOW}},
    ):
        store.note_starts("demo", starts)
        assert store.load("demo").starts == starts
    assert store.read("demo", {2}).starts == {}
    store.forget("demo")
    assert store.load("demo").starts == {}


def test_an_ended_row_changes_no_more(store: Store) -> None:
    """An update of a row that ended meanwhile is a conflict and doesn't bring it back."""
    (seen,) = create(store, 1)
    (over,) = update(store, ended(seen))
    for late in (provisioned(seen), replace(over, state=ReplicaState.DRAINING)):
        with pytest.raises(Conflict):
            update(store, late)
    assert store.load("demo").replicas == {}


def test_the_largest_commit_fits(store: Store) -> None:
    """`Changes.MAX_ROWS` rows that all end, with new IDs, an intent and a back-off, fit into one commit."""
    rows = [provisioned(r) for r in create(store, Changes.MAX_ROWS - 1)]
    seen = update(store, *rows)
    store.commit(
        Changes(
            "demo",
            highest_id=(len(rows), len(rows) + 1),
            create=(row(Changes.MAX_ROWS),),
            update=tuple(ended(r) for r in seen),
            open_intent=INTENT,
            backoff=Backoff(1, NOW),
        )
    )
    assert store.load("demo").replicas.keys() == {Changes.MAX_ROWS}
    assert len(store.history("demo", 100)) == len(rows)


def test_a_commit_too_large_is_refused_whole(store: Store) -> None:
    """A transaction takes a hundred items: one more, and nothing of it is written."""
    ids = tuple(f"launch-{n}" for n in range(Changes.MAX_SIZE - 6))
    fits = Changes("demo", highest_id=(0, 2), create=(row(1), row(2)), close_intents=ids)
    one_more = replace(fits, close_intents=(*ids, "launch-x"))
    # A commit like this has no instance for the created rows yet: DynamoDB counts two items fewer.
    two_more = replace(one_more, close_intents=(*ids, "x", "y", "z"))
    assert (fits.size, one_more.size) == (100, 101)
    with pytest.raises((ValueError, Denied)):
        store.commit(two_more)
    assert store.load("demo") == NOTHING
    store.commit(fits)
    assert store.load("demo").replicas.keys() == {1, 2}


def test_an_instance_is_found_from_its_first_record_on(store: Store) -> None:
    """An instance is located as soon as its row has it, and still when its row has ended."""
    (requested,) = create(store, 1)
    assert not store.locate({"i-1"})
    (with_instance,) = update(store, provisioned(requested, "i-1"))
    assert store.locate({"i-1", "i-foreign"}) == {"i-1": ("demo", 1)}
    update(store, ended(with_instance))
    assert store.locate({"i-1"}) == {"i-1": ("demo", 1)}


@pytest.mark.parametrize("state", [ReplicaState.PROVISIONING, ReplicaState.STARTING, ReplicaState.READY])
def test_an_instance_is_found_if_its_row_is_made_with_it(store: Store, state: ReplicaState) -> None:
    """A row that is made for an instance that had none is found by it at once, whatever state that is in."""
    taken_in = row(1, state=state, instance_id="i-1", offering=OFFERING)
    store.commit(Changes("demo", highest_id=(0, 1), create=(taken_in,)))
    assert store.locate({"i-1"}) == {"i-1": ("demo", 1)}


def test_any_number_of_instances_is_located(store: Store) -> None:
    """More instances than one BatchGetItem takes are located, foreign ones among them left out."""
    ours = set()
    for _ in range(5):
        for provisioned_row in update(store, *(provisioned(r) for r in create(store, 25))):
            ours.add(provisioned_row.instance_id)
    asked = {i for i in ours if i} | {f"i-foreign{n}" for n in range(130)}
    assert store.locate(asked).keys() == ours
    assert store.locate(()) == {}


def test_an_instance_is_located_with_all_of_its_slots(store: Store) -> None:
    """An event names the instance; each replica that it hosts is found, and each slot by itself."""
    created = [replace(provisioned(r), port=8081, slots=3) for r in create(store, 3)]
    slots = ("i-7", "i-7:8082", "i-7:8083")
    rows = [replace(r, instance_id=slot) for r, slot in zip(created, slots, strict=True)]
    update(store, *rows)
    everyone = {slot: ("demo", row.id) for slot, row in zip(slots, rows, strict=True)}
    assert store.locate({"i-7"}) == everyone
    assert store.locate({"i-7", "i-foreign"}) == everyone, "from memory, too"
    assert store.locate({"i-7:8082"}) == {"i-7:8082": everyone["i-7:8082"]}


def test_an_intent_is_open_until_closed(store: Store) -> None:
    """A launch intent is loaded until a commit closes it."""
    store.commit(Changes("demo", open_intent=INTENT))
    assert store.load("demo").intents == {INTENT.id: INTENT}
    store.commit(Changes("demo", close_intents=(INTENT.id,)))
    assert store.load("demo").intents == {}


def test_closing_a_closed_intent_is_no_conflict(store: Store) -> None:
    """Whoever closes an intent second still gets everything else of its commit written."""
    (seen,) = create(store, 1)
    store.commit(Changes("demo", update=(provisioned(seen),), close_intents=("never-was",)))
    assert store.load("demo").replicas[1].state is ReplicaState.PROVISIONING


def test_one_intent_follows_another(store: Store) -> None:
    """A commit may close one intent and open the next."""
    store.commit(Changes("demo", open_intent=INTENT))
    second = replace(INTENT, id="launch-2")
    store.commit(Changes("demo", open_intent=second, close_intents=(INTENT.id,)))
    assert store.load("demo").intents == {"launch-2": second}


def test_a_backoff_is_kept_and_taken_back(store: Store) -> None:
    """The back-off is what the last commit that named one said; a commit that names none leaves it."""
    store.commit(Changes("demo", backoff=Backoff(3, NOW)))
    create(store, 1)
    assert store.load("demo").backoff == Backoff(3, NOW)
    store.commit(Changes("demo", standby_backoff=Backoff(2, NOW, 7)))
    assert store.load("demo").standby_backoff == store.read("demo", {1}).standby_backoff == Backoff(2, NOW, 7)
    assert store.load("demo").backoff == Backoff(3, NOW)
    store.commit(Changes("demo", backoff=Backoff(), standby_backoff=Backoff()))
    assert store.load("demo").standby_backoff == Backoff()
    assert store.load("demo").backoff == Backoff()


@pytest.mark.parametrize(
    "backoff",
    [
        Backoff(3, NOW, 7, NOW + seconds(1 / 7)),
        Backoff(3, NOW),
        Backoff(version=7),
        Backoff(fallback_until=NOW),
    ],
)
def test_every_part_of_a_backoff_is_kept(store: Store, backoff: Backoff) -> None:
    """Failures, version, and until when launches and fallbacks are held: each set or not."""
    store.commit(Changes("demo", backoff=Backoff(1, NOW + seconds(9), 2, NOW + seconds(10))))
    store.commit(Changes("demo", backoff=backoff))
    assert store.load("demo").backoff == backoff
    assert store.read("demo", ()).backoff == backoff


OTHER_SPEC = ServiceSpec(
    service="demo",
    version=7,
    replicas=5,
    use_spot=False,
    instance_types=("g6.xlarge", "g5.xlarge"),
    ordered=True,
    busy=BusyEvidence(limit=2, finished=("done",), ongoing=("running",), path="/stats", longest_s=60),
    subnets={"subnet-c": "eu-west-1c"},
    launch_template_id="lt-2",
    target_group_arn="arn:aws:elasticloadbalancing:eu-west-1:000000000000:targetgroup/demo/2",
    on_demand_template=LaunchTemplate("lt-3", "4"),
    on_update=OnUpdate.ROLLING,
    bake_s=77.0,
    port=9000,
    on_demand_fallback=False,
    base_on_demand=2,
    max_price_share=0.7,
    requirements=Requirements(
        accelerators=(Accelerators("L4", 1), Accelerators("A10G", 4)),
        accelerator_memory_gb=Amount(24, at_least=True),
        cpus=Amount(4, at_least=False),
        memory_gib=Amount(16, at_least=True),
        instance_types=("g6.xlarge", "g5.xlarge"),
        exclude=("g4dn", "g5.48xlarge"),
        zones=("us-east-1a",),
        regions=("us-east-1",),
        arch="arm64",
        use_spot=False,
        alternatives=(Requirements(cpus=Amount(8, at_least=True)), Requirements(zones=("us-east-1a",))),
    ),
    drain_s=12.5,
    drain_unhurried_s=250.0,
    start_within_s=75.5,
    on_warning=OnWarning.LEAVE,
    initial_delay_s=333.25,
    readiness_probe=ReadinessProbe("/v1/chat", {"max_tokens": 1, "messages": [{"role": "ü"}]}, 7),
    on_rebalance=OnRebalance.REPLACE,
    surge=3,
    standby=2,
    standby_auto=True,
    standby_instance_types=("g6.xlarge",),
    standby_zones=("us-east-1a",),
    rebalance_cost=0.15,
    move_on_score=True,
    max_launches_per_minute=9,
    disk_usd_per_hour=0.05,
    scaling=Scaling(
        min_replicas=1,
        max_replicas=9,
        target_qps_per_replica=1.5,
        qps_by_instance_type={"g6.xlarge": 1.5, "g5.xlarge": 3.0},
        metric=MetricTarget(
            namespace="AWS/SQS",
            name="ApproximateNumberOfMessagesVisible",
            target=100.0,
            dimensions={"QueueName": "work"},
            statistic="Maximum",
            is_total=True,
        ),
        upscale_delay_s=60.5,
        downscale_delay_s=600.5,
        schedules=(
            Schedule(cron="0 8 * * MON-FRI", min_replicas=2, max_replicas=4, time_zone="Europe/Berlin"),
        ),
    ),
    overprovision=1,
    load_balancer="app/demo/2",
    address="https://demo.example.com",
    alarms=("NotWhole",),
    labels={"team": "search"},
    peers=True,
    slots={"g5.12xlarge": 4},
)
"""No field is as by default, nor as in `demo_spec`: one that gets lost on the way is seen."""


def test_documents_of_before_are_kept_until_others_are(store: Store) -> None:
    """Beside the last one, and read with all of the service; a document that is kept alone changes none."""
    before = {1: SPEC, 2: OTHER_SPEC}
    earlier = {version: replace(spec, service="demo", version=version) for version, spec in before.items()}
    store.keep_document(replace(SPEC, version=3), earlier)
    store.keep_document(replace(SPEC, version=3, replicas=7))
    assert store.load("demo").earlier == earlier
    store.keep_document(SPEC, {})
    assert store.load("demo").earlier == {}


def test_a_rollback_is_on_record_until_it_is_taken_back(store: Store) -> None:
    """Whoever reads a few rows sees it, too; it goes with the service."""
    asked = Rollback(5, 4, 9000)
    store.note_rollback("demo", asked)
    assert store.load("demo").rollback == store.read("demo", ()).rollback == asked
    store.note_rollback("demo", None)
    assert store.load("demo").rollback is None
    store.note_rollback("demo", asked)
    store.forget("demo")
    assert store.load("demo").rollback is None


def test_the_other_document_is_other_in_every_field() -> None:
    """`OTHER_SPEC` keeps what its docstring says, also for fields that are added later."""
    plain, said = demo_spec(), OTHER_SPEC.requirements
    assert said is not None
    same = {f.name for f in fields(ServiceSpec) if getattr(plain, f.name) == getattr(OTHER_SPEC, f.name)}
    assert same == {"service"}
    assert not [f for f in fields(Requirements) if getattr(said, f.name) == getattr(Requirements(), f.name)]


@pytest.mark.parametrize("spec", [demo_spec(), OTHER_SPEC])
def test_a_document_comes_back_as_kept(store: Store, spec: ServiceSpec) -> None:
    """Every field of it, asked for alone or with everything; the one that was kept last."""
    store.keep_document(demo_spec(replicas=99))
    store.keep_document(spec)
    assert store.document("demo") == spec
    assert store.load("demo").document == spec
    assert store.document("other") is None


def test_a_document_counts_no_more_once_a_removal_was_told(store: Store) -> None:
    """It is still loaded, because one word alone ends nothing, and counts again once that is taken back."""
    store.keep_document(SPEC)
    store.note_removal("demo", REMOVAL)
    assert store.document("demo") is None
    assert (store.load("demo").document, store.load("demo").removal) == (SPEC, REMOVAL)
    store.keep_document(replace(SPEC, replicas=7))
    assert store.load("demo").removal == REMOVAL, "a document that is kept takes nothing back"
    store.note_removal("demo", Removal())
    assert store.load("demo").removal == Removal()
    assert store.document("demo") == replace(SPEC, replicas=7)


def test_a_removal_may_be_told_before_any_document(store: Store) -> None:
    """What is told about a service that nobody kept a document of is on record all the same."""
    store.note_removal("demo", REMOVAL)
    assert store.load("demo") == replace(NOTHING, removal=REMOVAL)
    assert store.load("other") == NOTHING
    assert list(store.services()) == [], "a removal is no replica"


ASKED = ScaleRequest(5, NOW + seconds(90.5))


def test_a_request_comes_back_as_noted(store: Store) -> None:
    """Asked for with everything or with a few rows, of its own service; the last one, until it is reset."""
    store.note_request("demo", Source.OPERATOR, ScaleRequest(7, NOW))
    store.note_request("demo", Source.OPERATOR, ASKED)
    assert store.load("demo") == replace(NOTHING, requests={Source.OPERATOR: ASKED})
    assert store.read("demo", ()) == Rows(requests={Source.OPERATOR: ASKED})
    assert store.load("other").requests == {}
    store.note_request("demo", Source.OPERATOR, None)
    assert store.load("demo") == NOTHING


def test_the_load_s_number_comes_back_as_noted(store: Store) -> None:
    """Without an end, with since when the load has been asking for another, and beside a person's."""
    store.note_request("demo", Source.OPERATOR, ASKED)
    for load in (
        ScaleRequest(4, None),
        ScaleRequest(4, None, rising_since=NOW),
        ScaleRequest(0, None, falling_since=NOW + seconds(0.5)),
        ScaleRequest(2, None, unknown_since=NOW + seconds(0.5)),
    ):
        store.note_request("demo", Source.LOAD, load)
        assert store.read("demo", ()).requests == {Source.LOAD: load, Source.OPERATOR: ASKED}


def test_requests_are_no_concern_of_commits(store: Store) -> None:
    """A request makes no decision conflict, and no commit touches it."""
    create(store, 1)
    store.note_request("demo", Source.OPERATOR, ASKED)
    store.commit(Changes("demo", serving=(0, 1), backoff=BACKOFF, window=(LaunchWindow(), WINDOW)))
    rows = store.load("demo")
    assert (rows.requests, rows.highest_id, rows.serving) == ({Source.OPERATOR: ASKED}, 1, 1)


def test_a_forgotten_service_has_no_requests(store: Store) -> None:
    """One that is deployed anew doesn't begin with what was asked of the one before; IDs go on."""
    create(store, 1)
    store.note_request("demo", Source.OPERATOR, ASKED)
    store.forget("demo")
    rows = store.load("demo")
    assert (rows.requests, rows.highest_id) == ({}, 1)


def test_a_document_is_no_concern_of_commits(store: Store) -> None:
    """Keeping one or noting a removal makes no decision conflict, and no commit touches either."""
    rows = create(store, 1)
    store.keep_document(SPEC)
    store.note_removal("demo", REMOVAL)
    update(store, provisioned(rows[0]))
    create(store, 1)
    store.forget("demo")
    found = store.load("demo")
    assert (found.document, found.removal, found.highest_id) == (SPEC, REMOVAL, 2)


def test_services_are_those_with_replicas(store: Store) -> None:
    """A service is listed from its first replica until it is forgotten, and again with its next replica."""
    create(store, 1)
    create(store, 1, service="other")
    assert sorted(store.services()) == ["demo", "other"]
    store.forget("demo")
    store.forget("never-was")
    assert list(store.services()) == ["other"]
    create(store, 1)
    assert sorted(store.services()) == ["demo", "other"]


def test_forgetting_gives_no_id_twice(store: Store) -> None:
    """The highest ID outlives a service that was forgotten."""
    update(store, ended(create(store, 1)[0]))
    store.forget("demo")
    assert store.load("demo").highest_id == 1


REGION = "us-east-1"


def cooldown(scope: Scope | Offering, seconds_: float, since_s: float = 0, **facts: Any) -> Cooldown:
    """Something to leave alone from `since_s` on, for so many seconds after `NOW`."""
    about = Scope.of(scope) if isinstance(scope, Offering) else scope
    since, until = NOW + seconds(since_s), NOW + seconds(seconds_)
    return replace(Cooldown(about, Cause.REFUSAL, since, until, "dry"), **facts)


def recalled(store: Store, at_s: float = 0, region: str = REGION) -> list[Cooldown]:
    """The cooldowns that are remembered so many seconds after `NOW`."""
    return list(store.recall("demo", region, NOW + seconds(at_s)).cooldowns)


SCOPES = [
    Scope.of(OFFERING),
    Scope.of(on_demand_pool("us-east-1a", "g5.xlarge")),
    Scope(REGION, zone="us-east-1a"),
    Scope(REGION, zone="us-east-1a", purchase_option=PurchaseOption.SPOT),
    Scope(REGION, instance_type="g5.xlarge", purchase_option=PurchaseOption.SPOT),
    Scope(REGION, quota="g", purchase_option=PurchaseOption.SPOT),
    Scope(REGION, quota="g", purchase_option=PurchaseOption.ON_DEMAND),
    Scope(REGION, quota="p", purchase_option=PurchaseOption.SPOT),
    Scope(REGION, purchase_option=PurchaseOption.SPOT),
    Scope(REGION),
]


def test_nothing_is_known_at_first(store: Store) -> None:
    """Recalling what nobody noted is no error."""
    assert store.recall("demo", REGION, NOW) == PoolMemory()


def test_cooldowns_come_back_as_noted(store: Store, monotonic: Monotonic) -> None:
    """Every field survives, whatever it is about; no two scopes are mistaken for one."""
    noted = [
        cooldown(scope, 60 + n / 7, n, cause=list(Cause)[n % 5], strikes=n, reason=f"reason {n}")
        for n, scope in enumerate(SCOPES)
    ]
    store.cool(noted)
    for _ in ("by this function", "by any other"):
        assert {c.scope: c for c in recalled(store)} == {c.scope: c for c in noted}
        assert len(recalled(store)) == len(SCOPES)
        monotonic.advance(COOLDOWNS_KEPT_S)


def test_a_cooldown_is_remembered_for_as_long_again(store: Store) -> None:
    """After its end, too, because it counts if another follows; not in another region, nor for ever."""
    lesson = cooldown(OFFERING, 60)
    store.cool([lesson])
    assert recalled(store, 60) == [lesson]
    assert recalled(store, 119.999) == [lesson]
    assert recalled(store, 120) == []
    assert recalled(store, 0, "eu-west-1") == []
    assert store.recall("other", REGION, NOW).cooldowns == (lesson,), "pools are everybody's"


def test_the_later_end_of_a_cooldown_counts(store: Store) -> None:
    """A later end replaces an earlier one; an earlier one that comes afterwards changes nothing."""
    soon, later = cooldown(OFFERING, 180, reason="soon"), cooldown(OFFERING, 1800, reason="later", strikes=4)
    other = cooldown(on_demand_pool("us-east-1a", "g5.xlarge"), 60)
    store.cool([soon, other])
    store.cool([later])
    assert {c.scope: c for c in recalled(store)} == {later.scope: later, other.scope: other}
    longer = replace(other, until=NOW + seconds(90))
    store.cool([soon, longer])
    assert {c.scope: c for c in recalled(store)} == {later.scope: later, other.scope: longer}


def test_a_cooldown_follows_one_that_is_over(store: Store) -> None:
    """What is only remembered gives way to what lasts, with its strikes."""
    store.cool([cooldown(OFFERING, 60)])
    again = cooldown(OFFERING, 200, 80, strikes=2)
    store.cool([again])
    assert recalled(store, 80) == [again]


def test_cooldowns_of_one_scope_in_one_call(store: Store) -> None:
    """Of several in one call the latest end counts."""
    store.cool([cooldown(OFFERING, s, reason=f"{s}") for s in (60, 180, 90)])
    assert [c.reason for c in recalled(store)] == ["180"]


def test_many_cooldowns_at_once(store: Store) -> None:
    """A launch that more pools refuse than a transaction takes cools them all; none cools nothing."""
    scopes = [Scope.of(spot_pool(f"us-east-1{zone}", f"g{n}.xlarge")) for zone in "abcdef" for n in range(40)]
    store.cool([cooldown(scope, 60) for scope in scopes])
    assert sorted(str(c.scope) for c in recalled(store)) == sorted(map(str, scopes))
    store.cool([])
    store.forgive(scopes)
    assert recalled(store) == []


def test_what_is_forgiven_is_forgotten(store: Store, monotonic: Monotonic) -> None:
    """Only what is named; naming what never was, or nothing, or one twice, is fine."""
    lessons = [cooldown(scope, 60) for scope in SCOPES]
    store.cool(lessons)
    store.forgive([SCOPES[0], SCOPES[0], Scope(REGION, quota="trn"), SCOPES[5]])
    store.forgive([])
    for _ in ("by this function", "by any other"):
        assert {c.scope for c in recalled(store)} == set(SCOPES) - {SCOPES[0], SCOPES[5]}
        monotonic.advance(COOLDOWNS_KEPT_S)
    store.cool([replace(lessons[0], until=NOW + seconds(1))])
    assert SCOPES[0] in {c.scope for c in recalled(store)}, "forgotten is also when it ended"


SURVEY = Survey(
    "demo",
    Requirements(instance_types=("g5.xlarge",), cpus=Amount(8, at_least=True)),
    NOW + timedelta(microseconds=1),
    (OFFERING.pool, spot_pool("us-east-1b", "g6e.2xlarge").pool),
    {"g5.xlarge": 1.006, "g6e.2xlarge": 2.24208},
    {OFFERING.pool: 0.4159},
    {"us-east-1a": 9, "us-east-1b": 1},
    {"us-east-1c": 8, "us-east-1": 4, "eu-west-1": 9},
    (Reading(NOW - seconds(3600), {"us-east-1a": 8}), Reading(NOW - seconds(3660), {})),
    {3: Image("ami-3", None), 4: Image("ami-4", NOW - seconds(86_400))},
)


def test_a_survey_comes_back_as_noted(store: Store) -> None:
    """Every field of it, to the service that it is about, in whatever region it is."""
    store.note_survey(SURVEY)
    assert store.recall("demo", REGION, NOW) == PoolMemory((), SURVEY)
    assert store.recall("other", REGION, NOW) == PoolMemory()


def test_an_empty_survey_is_one(store: Store) -> None:
    """What nothing could be found out about is known to be unknown."""
    empty = Survey("demo", Requirements(), NOW, ())
    store.note_survey(empty)
    assert store.recall("demo", REGION, NOW).survey == empty


def test_the_last_survey_counts(store: Store, monotonic: Monotonic) -> None:
    """A newer one takes the place of the old one, at the latest after the minute that it may be kept."""
    store.note_survey(SURVEY)
    assert store.recall("demo", REGION, NOW).survey == SURVEY
    newer = replace(SURVEY, asked=Requirements(), pools=(), at=NOW + seconds(300))
    store.note_survey(newer)
    monotonic.advance(SURVEY_KEPT_S)
    assert store.recall("demo", REGION, NOW + seconds(300)).survey == newer


def test_who_noted_a_survey_knows_it_at_once(store: Store) -> None:
    """Whatever it kept of before: the next survey follows it, and the day is written by it."""
    store.note_survey(SURVEY)
    assert store.recall("demo", REGION, NOW).survey == SURVEY
    newer = replace(SURVEY, at=NOW + seconds(5))
    store.note_survey(newer)
    assert store.recall("demo", REGION, NOW + seconds(5)).survey == newer


def test_a_large_survey_fits(store: Store) -> None:
    """Every type of a large catalog in six zones, with prices, is still one item of DynamoDB's."""
    pools = tuple(
        spot_pool(f"us-east-1{zone}", f"family{n}.24xlarge").pool for zone in "abcdef" for n in range(150)
    )
    large = Survey(
        "demo",
        Requirements(),
        NOW,
        pools,
        {p.instance_type: 12.34567 for p in pools},
        dict.fromkeys(pools, 3.45678),
    )
    store.note_survey(large)
    assert store.recall("demo", REGION, NOW).survey == large


def test_a_lease_has_one_holder(store: Store) -> None:
    """A lease is refused to others until it expires or is given back, and not to its holder."""
    assert store.acquire("demo", "first", NOW, 60)
    assert not store.acquire("demo", "second", NOW + seconds(59), 60)
    assert store.acquire("demo", "first", NOW + seconds(30), 60)
    assert not store.acquire("demo", "second", NOW + seconds(60), 60)
    assert store.acquire("other", "second", NOW, 60)
    store.release("demo", "first")
    assert store.acquire("demo", "second", NOW + seconds(31), 60)


def test_a_lease_expires(store: Store) -> None:
    """The lease of a holder that died is free at its end."""
    assert store.acquire("demo", "first", NOW, 60)
    assert store.acquire("demo", "second", NOW + seconds(60), 60)


def test_only_the_holder_gives_a_lease_back(store: Store) -> None:
    """A holder that comes late doesn't take the lease from the one that has it now."""
    store.acquire("demo", "first", NOW, 60)
    store.acquire("demo", "second", NOW + seconds(60), 60)
    store.release("demo", "first")
    store.release("never-was", "first")
    assert not store.acquire("demo", "third", NOW + seconds(61), 60)


def test_one_tick_is_announced_at_a_time(store: Store) -> None:
    """A tick is claimed when none is announced for a time to come; one whose time is over counts no more."""
    assert store.claim_tick("demo", NOW + seconds(3), NOW, None)
    assert not store.claim_tick("demo", NOW + seconds(4), NOW + seconds(1), None)
    assert not store.claim_tick("demo", NOW + seconds(3), NOW + seconds(1), None)
    assert store.claim_tick("demo", NOW + seconds(2), NOW + seconds(1), None), "sooner than announced"
    assert not store.claim_tick("demo", NOW + seconds(3), NOW + seconds(1), None)
    assert store.claim_tick("other", NOW + seconds(4), NOW + seconds(1), None)
    assert store.claim_tick("demo", NOW + seconds(6), NOW + seconds(3), None)


def test_the_announced_tick_announces_the_next(store: Store) -> None:
    """A tick that runs before its announced time claims the next one; any other tick doesn't."""
    due = NOW + seconds(3.123456)
    store.claim_tick("demo", due, NOW, None)
    assert not store.claim_tick("demo", NOW + seconds(5), NOW + seconds(2), NOW + seconds(3))
    assert store.claim_tick("demo", NOW + seconds(5), NOW + seconds(2), due)
    assert not store.claim_tick("demo", NOW + seconds(6), NOW + seconds(2), due)


def test_lease_and_tick_are_no_concern_of_commits(store: Store) -> None:
    """Taking the lease and announcing a tick changes nothing that a commit or a load looks at."""
    rows = create(store, 2)
    store.acquire("demo", "first", NOW, 60)
    store.claim_tick("demo", NOW + seconds(3), NOW, None)
    assert store.load("demo") == Rows(2, is_whole=True, replicas={r.id: r for r in rows})
    create(store, 1)
