"""What a status says of a fleet, and how it judges."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from spotrelay.operator.cli.status import footer
from spotrelay.plane.core.pools import (
    CapacityPool,
    Cause,
    Cooldown,
    Image,
    Offering,
    PoolMemory,
    PurchaseOption,
    Scope,
    Survey,
)
from spotrelay.plane.core.replica import TRIAL, Replica, ReplicaState
from spotrelay.plane.core.requirements import Requirements
from spotrelay.plane.core.rows import Backoff, Rows, ScaleRequest, Source
from spotrelay.plane.core.scaling import Scaling, Schedule
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.view import start_failures
from spotrelay.plane.view.losses import outages
from spotrelay.plane.view.snapshot import Alarm, AlarmState, Part, ServiceSnapshot
from spotrelay.plane.view.status import Judgement, status
from tests.examples import demo_spec
from tests.operate.replicas import POOL, START, replica

NOW = START + seconds(3600)

SPEC = demo_spec()


def survey(**more: Any) -> PoolMemory:
    """A pool at 0.4 on Spot and 1.0 on-demand."""
    found = Survey("chat", Requirements(), START, (POOL,), {"g5.xlarge": 1.0}, {POOL: 0.4}, {})
    return PoolMemory(more.pop("cooldowns", ()), found)


def seen(*replicas: Replica, **more: Any) -> ServiceSnapshot:
    """A snapshot of a service that should have three replicas; ended ones are history."""
    rows = Rows(replicas={r.id: r for r in replicas if not r.state.is_ended}, **more.pop("rows", {}))
    ended = tuple(sorted((r for r in replicas if r.state.is_ended), key=lambda r: -r.id))
    facts: dict[str, Any] = {"spec": SPEC, "rows": rows, "history": ended, "memory": survey()} | more
    return ServiceSnapshot("chat", "us-east-1", NOW, **facts)


def on(id_: int, state: ReplicaState = ReplicaState.READY, **more: Any) -> Replica:
    """A replica with an instance."""
    entered = more.pop("entered", {"REQUESTED": 0, "PROVISIONING": 1, "STARTING": 2, "READY": 60})
    if state is not ReplicaState.READY and "entered" not in more:
        entered = {**entered, str(state): 3000}
    return replica(id_, state, entered=entered, instance_id=f"i-{id_}", **more)


def starting(id_: int, **more: Any) -> Replica:
    """One that is on its way."""
    entered: dict[str, float] = {"REQUESTED": 3500, "PROVISIONING": 3501, "STARTING": 3502}
    return replica(id_, ReplicaState.STARTING, entered=entered, instance_id=f"i-{id_}", **more)


def test_as_many_as_desired_are_whole() -> None:
    """Three of three, with what they cost and what on-demand would."""
    found = status(seen(on(1), on(2), on(3)))
    assert (found.judgement, found.ready, found.desired, found.why) == (Judgement.WHOLE, 3, 3, "")
    assert found.usd_per_hour == pytest.approx(1.2)
    assert found.share_saved == pytest.approx(0.6)
    assert found.serving_since == START + seconds(60)
    assert found.is_whole


@pytest.mark.parametrize(
    ("made_at", "told"),
    [(NOW - timedelta(days=80), "Image: ami-1, 80 d old."), (None, "Image: ami-1 is gone: nothing can be")],
)
def test_the_images_age_is_told(made_at: datetime | None, told: str) -> None:
    """Of the deployed version's, as the survey found it; before one has, nothing."""
    found = survey()
    assert found.survey
    known = replace(
        found.survey, images={SPEC.version: Image("ami-1", made_at), SPEC.version + 1: Image("ami-0", NOW)}
    )
    assert any(line.startswith(told) for line in footer(status(seen(on(1), memory=PoolMemory((), known)))))
    assert not any("Image" in line for line in footer(status(seen(on(1)))))


def test_what_is_missing_is_told_with_the_reason() -> None:
    """One was lost, its replacement starts."""
    lost = on(3, ReplicaState.DRAINING, warned_at=START + seconds(3490), replaced_by=4)
    lost = replace(lost, reason="interruption warning")
    found = status(seen(on(1), on(2), lost, starting(4, replaces=3)))
    assert found.judgement is Judgement.NOT_WHOLE
    assert "1 missing: 1 starting" in found.why
    assert "replica 3 was lost at" in found.why
    assert not found.is_whole


def test_a_replica_that_was_warned_and_serves_counts_as_serving() -> None:
    """Clients get their answers: the fleet is whole until it leaves."""
    warned = on(3, warned_at=START + seconds(3590), replaced_by=4)
    found = status(seen(on(1), on(2), warned, starting(4, replaces=3)))
    assert found.judgement is Judgement.WHOLE
    assert [row.state for row in found.replicas] == ["READY", "READY", "WARNED", "STARTING"]
    assert (found.why, found.tone) == ("EC2 takes back replica 3: 1 starting", "leaving")


def test_whole_is_no_calm_where_those_that_serve_are_taken_back() -> None:
    """Two of two, and none in two minutes; it is calm again once enough others serve."""
    warned = [on(id_, warned_at=NOW) for id_ in (1, 2, 3)]
    found = status(seen(*warned))
    assert found.judgement is Judgement.WHOLE
    assert found.why == "EC2 takes back replicas 1, 2, 3: no replacement is coming yet"
    assert (found.tone, found.is_whole, found.is_calm) == ("leaving", True, False)
    found = status(seen(*warned, on(4), on(5), on(6)))
    assert (found.why, found.tone) == ("", "good")


@pytest.mark.parametrize(
    ("running", "told"),
    [
        ([], "v{0}"),
        ([SPEC.version], "v{0}"),
        ([SPEC.version - 1], "v{1} (v{0} is deployed)"),
        ([SPEC.version, SPEC.version - 1], "v{1} and v{0} (v{0} is deployed)"),
    ],
)
def test_the_version_is_the_one_that_runs(running: Sequence[int], told: str) -> None:
    """And the deployed one, where that is another: it rolls out, was refused or was given up."""
    found = status(seen(*(replace(on(id_), version=version) for id_, version in enumerate(running, 1))))
    assert found.versions == told.format(SPEC.version, SPEC.version - 1)


def test_who_asks_for_the_number_is_told() -> None:
    """If it isn't the service file; and which schedule bounds what the load asks for."""
    assert status(seen(on(1))).asked == ""
    asked = {Source.OPERATOR: ScaleRequest(2, NOW + timedelta(hours=1))}
    found = status(seen(on(1), rows={"requests": asked}))
    assert found.asked.startswith("2 replicas until 02:00 UTC (operator), then 3 again")
    assert f"Wanted: {found.asked}." in footer(found)
    day = Schedule(cron="0 0 * * *", min_replicas=2, max_replicas=6)
    scaling = Scaling(min_replicas=1, max_replicas=9, target_qps_per_replica=1.0, schedules=(day,))
    load = {Source.LOAD: ScaleRequest(2, None)}
    found = status(seen(on(1), spec=replace(SPEC, scaling=scaling), rows={"requests": load}))
    assert found.asked == "2 replicas, as the load asks for, 2 to 6 by the schedule '0 0 * * *'"


def test_one_that_does_not_answer_is_missing() -> None:
    """It is ready by its state, and in nobody's rotation."""
    found = status(seen(on(1), on(2), on(3, unhealthy_since=NOW)))
    assert "1 missing: 1 ready but not answering" in found.why


def test_what_ec2_answered_is_quoted() -> None:
    """Nothing comes, because every pool refused: its own words are in the line."""
    words = "spot in 3 of 3 pools (rested); EC2: InsufficientInstanceCapacity: no g5.xlarge"
    waiting = replica(3, ReplicaState.REQUESTED, entered={"REQUESTED": 3000}, launch=words)
    waiting = replace(waiting, offering=None)
    found = status(seen(on(1), on(2), waiting))
    assert "replica 3: InsufficientInstanceCapacity: no g5.xlarge" in found.why
    assert found.replicas[-1].note == "InsufficientInstanceCapacity: no g5.xlarge"


def test_where_ec2_was_not_asked_the_reason_is_short() -> None:
    """A table's line has no room for every pool that rests: `explain` has all."""
    words = "no pool to ask; left out: us-east-1a/g5.xlarge (cools), us-east-1b/g5.xlarge (cools)"
    waiting = replica(3, ReplicaState.REQUESTED, entered={"REQUESTED": 3000}, launch=words)
    found = status(seen(on(1), on(2), replace(waiting, offering=None)))
    assert found.replicas[-1].note == "no pool to ask"


def test_launches_that_are_held_are_told() -> None:
    """Replicas failed in a row: until when nothing is launched."""
    backoff = Backoff(3, NOW + seconds(600), 1)
    found = status(seen(on(1), rows={"backoff": backoff}))
    assert "replicas failed 3 times in a row" in found.why
    assert "and none is coming" in found.why


def test_an_operators_number_counts() -> None:
    """Two were asked for, until later: two are whole."""
    request = ScaleRequest(2, NOW + seconds(60))
    found = status(seen(on(1), on(2), rows={"requests": {Source.OPERATOR: request}}))
    assert (found.judgement, found.desired, found.desired_by) == (Judgement.WHOLE, 2, "operator")


def test_none_wanted_and_none_there_is_fine() -> None:
    """A service that is scaled to none has nothing to mend."""
    found = status(seen(spec=replace(SPEC, replicas=0)))
    assert (found.judgement, found.is_whole) == (Judgement.NONE, True)


def test_what_could_not_be_read_is_not_judged() -> None:
    """Without rows nobody knows; without alarms everything else is told."""
    lacking = status(seen(missing={Part.ROWS: "missing dynamodb:Query"}))
    assert lacking.judgement is Judgement.UNKNOWN
    assert "dynamodb:Query" in lacking.why
    rest = status(seen(on(1), on(2), on(3), missing={Part.ALARMS: "missing cloudwatch:DescribeAlarms"}))
    assert rest.judgement is Judgement.WHOLE
    assert rest.not_read == ("alarms: missing cloudwatch:DescribeAlarms",)


def test_a_failure_shows_its_reason_and_old_ones_do_not_drown_the_rest() -> None:
    """Of six, the last three of this hour are shown; the others are counted."""
    failed = [
        replica(id_, ReplicaState.FAILED, entered={"REQUESTED": 0, "FAILED": at})
        for id_, at in enumerate((-7200, 100, 200, 300, 400, 500), 10)
    ]
    failed = [replace(r, reason=f"not ready in 20 min ({r.id})") for r in failed]
    found = status(seen(on(1), on(2), on(3), *failed))
    assert [row.note for row in found.failed] == [f"not ready in 20 min ({id_})" for id_ in (13, 14, 15)]
    assert found.failed_before == 3


def test_a_price_that_nobody_knows_is_none() -> None:
    """Rather than an on-demand price that is taken for Spot's, or a sum of some."""
    elsewhere = replace(on(3), offering=Offering(CapacityPool("us-east-1", "us-east-1b", "g6.xlarge"), SPOT))
    found = status(seen(on(1), on(2), elsewhere))
    assert found.usd_per_hour is None
    assert found.share_saved is None
    assert found.replicas[-1].usd_per_hour is None


SPOT = PurchaseOption.SPOT


def test_a_shared_instance_is_paid_once() -> None:
    """Each of four replicas has a quarter of its price."""
    shared = [replace(on(id_), instance_id=f"i-1:{8080 + id_}", slots=4) for id_ in (2, 3, 4)]
    found = status(seen(replace(on(1), slots=4), *shared))
    assert found.usd_per_hour == pytest.approx(0.4)
    found = status(seen(*shared))
    assert found.usd_per_hour == pytest.approx(0.4), "also where one of them is gone"
    assert found.on_demand_usd_per_hour == pytest.approx(1.0)
    assert [row.usd_per_hour for row in found.replicas] == pytest.approx([0.1] * 3)


def test_what_is_gone_costs_nothing_and_what_ec2_takes_back_costs_on() -> None:
    """As the metric has it, which asks EC2."""
    gone = replace(on(3, ReplicaState.DRAINING), reason="instance terminated", lost_at=START + seconds(3000))
    warned = replace(on(4, ReplicaState.DRAINING), warned_at=START + seconds(3000))
    assert status(seen(on(1), on(2), gone)).usd_per_hour == pytest.approx(0.8)
    assert status(seen(on(1), on(2), warned)).usd_per_hour == pytest.approx(1.2)
    given_up = on(9, ReplicaState.DRAINING, entered={"REQUESTED": 0, "STANDBY": 60, "DRAINING": 3000})
    assert status(seen(on(1), replace(given_up, is_standby=True))).usd_per_hour == pytest.approx(0.4)


def test_what_is_no_longer_eligible_keeps_its_on_demand_price() -> None:
    """As the metric has it: a list price is the type's, in whatever zone."""
    elsewhere = Offering(replace(POOL, zone="us-east-1f"), PurchaseOption.ON_DEMAND)
    assert status(seen(replace(on(1), offering=elsewhere))).usd_per_hour == pytest.approx(1.0)


def test_overprovisioned_replicas_are_wanted() -> None:
    """The metric, its alarm and the events count them as missing: so they are."""
    spec = replace(SPEC, overprovision=1)
    found = status(seen(on(1), on(2), on(3), spec=spec))
    assert (found.judgement, found.ready, found.desired) == (Judgement.NOT_WHOLE, 3, 4)
    assert status(seen(on(1), on(2), on(3), on(4), spec=spec)).is_whole


def test_a_standby_costs_nothing_and_is_not_missing() -> None:
    """It is stopped."""
    standby = replace(on(9, ReplicaState.STANDBY), is_standby=True)
    found = status(seen(on(1), on(2), on(3), standby))
    assert found.usd_per_hour == pytest.approx(1.2)
    assert found.replicas[-1].state == "STANDBY"
    found = status(seen(on(1), on(2), standby))
    assert "and none is coming" in found.why
    trial = replace(on(9, ReplicaState.STARTING), is_standby=True, reason=TRIAL)
    shown = status(seen(on(1), on(2), on(3), trial)).replicas[-1]
    assert (shown.state, shown.note) == ("STARTING (standby)", "is started once to see that it comes back")
    assert status(seen(on(1), replace(standby, reason=TRIAL))).replicas[-1].note == ""


def test_losses_pools_and_alarms_are_counted() -> None:
    """Of the last day; a pool that cools with the reason and until when; alarms that ring."""
    warned = replace(
        on(4, ReplicaState.TERMINATED, warned_at=START + seconds(2990)), reason="interruption warning"
    )
    cooldown = Cooldown(
        Scope.of(Offering(POOL, SPOT)), Cause.LOSS, START, NOW + timedelta(minutes=5), "interruption warning"
    )
    alarms = (Alarm("NotWhole", AlarmState.ALARM, NOW), Alarm("Elb5xx", AlarmState.OK, NOW))
    found = status(seen(on(1), on(2), on(3), warned, alarms=alarms, memory=survey(cooldowns=(cooldown,))))
    assert (found.lost, found.lost_unwarned) == (1, 0)
    assert found.cooling == ("us-east-1a/g5.xlarge until 01:05 (interruption warning)",)
    assert (found.alarms, found.ringing) == (("NotWhole",), "NotWhole")


def test_alarms_that_could_not_be_read_are_not_none() -> None:
    """Nobody knows then whether one rings."""
    assert "Alarms: none." in footer(status(seen(on(1))))
    found = status(seen(on(1), missing={Part.ALARMS: "missing cloudwatch:DescribeAlarms"}))
    assert found.alarms is None
    assert "Alarms: not known." in footer(found)


def test_serving_since_is_the_end_of_the_last_pause() -> None:
    """One served until it left, nobody did for a while, then another: since then."""
    before = on(1, ReplicaState.TERMINATED, entered={"PROVISIONING": 0, "READY": 10, "DRAINING": 100})
    before = replace(before, entered={**before.entered, ReplicaState.TERMINATED: START + seconds(130)})
    after = on(2, entered={"PROVISIONING": 150, "READY": 200})
    assert seen(before, after).serving_since == START + seconds(200)
    overlapping = on(2, entered={"PROVISIONING": 50, "READY": 90})
    assert seen(before, overlapping).serving_since == START + seconds(10)
    assert seen(before).serving_since is None


def test_one_that_does_not_answer_serves_nobody() -> None:
    """Then nobody has been in rotation without a pause, and it is said of the time before, too."""
    ill = replace(on(1), unhealthy_since=START + seconds(600))
    assert status(seen(ill)).serving_since is None
    later = on(2, entered={"REQUESTED": 0, "PROVISIONING": 1, "READY": 900})
    assert status(seen(ill, later)).serving_since == START + seconds(900)
    assert outages(seen(ill, later).replicas.values(), START + seconds(60), NOW) == [
        (START + seconds(600), START + seconds(900))
    ]


def test_it_is_json() -> None:
    """All of it, with times that a script can read."""
    found = json.loads(json.dumps(status(seen(on(1), on(2), on(3))).to_json()))
    assert found["judgement"] == "WHOLE"
    assert found["at"] == "2026-01-01T01:00:00.000+00:00"
    assert found["replicas"][0]["pool"] == "us-east-1a/g5.xlarge"


@pytest.mark.parametrize(
    ("before", "age_s", "is_slow"),
    [(300, 299, False), (300, 301, True), (None, SPEC.initial_delay_s / 2, False), (None, 3000, True)],
)
def test_a_start_that_takes_longer_than_usual_says_where_to_look(
    before: float | None, age_s: float, is_slow: bool
) -> None:
    """Longer than any of before, or, where there is none, than half of what it may take."""
    entered: dict[str, float] = {
        "REQUESTED": 3599 - age_s,
        "PROVISIONING": 3600 - age_s,
        "STARTING": 3600 - age_s,
    }
    late = replica(7, ReplicaState.STARTING, entered=entered, instance_id="i-7")
    others = [on(1, entered={"REQUESTED": 0, "PROVISIONING": 1, "READY": 1 + before})] if before else []
    why = status(seen(late, *others)).why
    assert ("spotrelay logs chat 7 shows its console" in why) is is_slow


@pytest.mark.parametrize(("minutes", "is_told"), [(9, False), (10, True)])
def test_a_load_that_nobody_can_measure_is_told(minutes: float, is_told: bool) -> None:
    """After ten minutes, of a service that goes by it: the number stays, and somebody must know why."""
    request = ScaleRequest(3, None, unknown_since=NOW - timedelta(minutes=minutes))
    rows = {"requests": {Source.LOAD: request}}
    scaled = replace(SPEC, scaling=Scaling(min_replicas=1, max_replicas=4, target_qps_per_replica=1))
    found = status(seen(on(1), on(2), on(3), rows=rows, spec=scaled)).load_unknown
    assert found.startswith("not all of its load is known since 00:50") is is_told
    assert status(seen(on(1), on(2), on(3), rows=rows)).load_unknown == ""


CRASH = "crashes: 3 starts have failed. It said last:\nTraceback:\n  OutOfMemoryError: CUDA out of memory"


def test_a_start_that_crashes_says_why_at_once() -> None:
    """What it said last, what usually mends it, and where more is: before any that is slow, or refuses."""
    crashes = starting(7, trouble=CRASH, is_crashing=True)
    refuses = starting(8, trouble="answers its probe with 404 Not Found")
    found = status(seen(crashes, refuses, on(1)))
    assert (
        "replica 7 crashes: 3 starts have failed. It said last: OutOfMemoryError: CUDA out of memory (give it"
        " more memory (resources.accelerators, resources.memory), or a smaller model or context; spotrelay"
        " logs chat 7 shows its console)" in found.why
    )
    assert {row.id: row.note for row in found.replicas} == {
        1: "",
        7: "crashes",
        8: "answers its probe with 404 Not Found",
    }


def test_what_was_given_up_says_why_too() -> None:
    """Beside how long it had."""
    entered: dict[str, float] = {"REQUESTED": 0, "PROVISIONING": 1, "FAILED": 3000}
    failed = replace(replica(7, ReplicaState.FAILED, entered=entered, trouble=CRASH), reason="not ready")
    (row,) = status(seen(failed)).failed
    assert row.note == (
        "not ready; it crashes: 3 starts have failed. It said last: OutOfMemoryError: CUDA out of memory"
    )


@pytest.mark.parametrize(
    ("said", "mends"),
    [
        ("RuntimeError: CUDA out of memory. Tried to allocate 2 GiB", "more memory"),
        ("OSError: [Errno 98] Address already in use", "listen on its port"),
        ("spotrelay: no GPU answers: NVIDIA-SMI has failed", "kernel and driver"),
        ("401 Client Error: gated repo", "token"),
        ("spotrelay: can't read parameter /chat/x: does it exist", "token"),
        ("run.sh: line 3: vllm: command not found", "have setup install it"),
        ("exec: serve: not found", "have setup install it"),
        ("ModuleNotFoundError: No module named 'vllm'", "have setup install it"),
        ("ValueError: bad", ""),
    ],
)
def test_what_usually_mends_it(said: str, mends: str) -> None:
    """By the words that engines and shells use; nothing where they say nothing of it."""
    found = start_failures.remedy(f"line before\n{said}")
    assert (mends in found) if mends else not found


def test_a_standby_that_is_prepared_takes_its_time() -> None:
    """Nobody waits for it, and what it takes is no measure of a start."""
    entered: dict[str, float] = {"REQUESTED": 0, "PROVISIONING": 1, "STARTING": 2}
    standby = replica(7, ReplicaState.STARTING, entered=entered, instance_id="i-7", is_standby=True)
    assert "logs" not in status(seen(on(1), standby)).why
