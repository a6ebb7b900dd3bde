"""The report: what it measures, and that no broken promise slips through."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from lab.demo import report
from lab.demo.report import Interruption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.timing import seconds
from tests.demo.theatre import ALL_STORIES, POOLS, Theatre

GOOD_REQUESTS = {"sent": 100, "finished": 100, "failed": 0, "cut": 0}


class Played:
    """A demo that was given on the miniature, and what it left."""

    def __init__(self, flaw: str = "") -> None:
        theatre = Theatre(POOLS[:3], flaw)
        stage = theatre.stage()
        for story in ALL_STORIES:
            story.play(stage)
        self.replicas: dict[int, Replica] = dict(stage.settle().replicas)
        self.end = theatre.now
        self._losses = stage.losses
        self.balanced: list[dict[str, Any]] = []
        self._records = {r["instance_id"]: r for r in theatre.interruptions()}
        self.interruptions: list[Interruption] = []
        self.measure()

    def measure(self) -> None:
        """Measure the interruptions, again if a replica was changed."""
        self.interruptions = report.interruptions_of(self._losses, self._records, self.replicas)

    def problems(self, requests: Mapping[str, Any] = GOOD_REQUESTS) -> list[str]:
        """What the report would call broken."""
        outages = self.outages()
        unservable = report.unservable_requests(self.balanced, outages)
        return [
            *report.broken_to_clients(requests, late=[], denied=[], unservable=unservable),
            *report.broken_in_fleet(self.interruptions, self.replicas, 3, 0, outages),
        ]

    def outages(self) -> list[report.Outage]:
        """When nobody was in rotation."""
        return report.outages(self.interruptions, self.replicas, self.end)

    def came(self, at: datetime) -> None:
        """A request came, and the load balancer had nobody for it."""
        self.balanced.append({"target": None, "started": at.timestamp()})


@pytest.fixture
def played() -> Played:
    """A demo in which every promise was kept."""
    return Played()


def test_a_good_demo_has_no_problem(played: Played) -> None:
    """Nothing is called broken that was kept."""
    assert played.problems() == []


@pytest.mark.parametrize(
    ("requests", "said"),
    [
        ({"sent": 0, "failed": 0, "cut": 0}, "no request was sent"),
        ({"sent": 9, "failed": 2, "cut": 0}, "2 of 9 requests failed"),
        ({"sent": 9, "failed": 0, "cut": 1}, "1 of 9 requests were cut"),
    ],
)
def test_requests_that_went_wrong(played: Played, requests: dict[str, int], said: str) -> None:
    """No load, failed and cut requests each break the demo's main promise."""
    assert played.problems(requests) == [said]


def test_a_fleet_that_is_not_whole(played: Played) -> None:
    """A replica that doesn't serve at the end is named with its state."""
    last = max(played.replicas)
    played.replicas[last] = replace(played.replicas[last], state=ReplicaState.STARTING)
    assert played.problems() == [
        "the fleet is not whole: 3 replicas should serve, and there are: 11 READY, 12 READY, 13 STARTING"
    ]


def test_a_second_replacement(played: Played) -> None:
    """A replica more than there should be is a broken promise, even once it has ended."""
    twin = replace(played.replicas[10], id=14, state=ReplicaState.TERMINATED)
    played.replicas[14] = twin
    assert played.problems() == [
        "replica 6 (story e) must have exactly one replacement, and has [10, 14]",
        f"replica IDs must be 1 to 13 with none left out, and are {list(range(1, 15))}",
    ]


def test_a_replica_of_an_earlier_version_has_a_row_more(played: Played) -> None:
    """The version after it brought another in its place, and nothing was lost."""
    played.replicas = {id_: replace(replica, version=2) for id_, replica in played.replicas.items()}
    earlier = replace(played.replicas[13], id=14, version=1, state=ReplicaState.TERMINATED, replaces=None)
    played.replicas[14] = earlier
    assert played.problems() == []


def test_a_fallback_counts_for_its_loss(played: Played) -> None:
    """Strength is restored when the fallback serves, long before the replacement has its Spot."""
    in_c = next(i for i in played.interruptions if i.story == "c")
    assert (in_c.replica, in_c.replaced_by, in_c.fallback) == (3, 7, 8)
    assert in_c.warned_to_launched_s == 1.1
    assert in_c.warned_to_ready_s == 7.1
    assert [i.fallback for i in played.interruptions if i.story != "c"] == [None] * 8


def test_two_losses_do_not_share_a_fallback(played: Played) -> None:
    """Of two losses that wait for Spot together, each gets its own fallback, or none."""
    theatre = Theatre(POOLS[:3])
    stage = theatre.stage()
    theatre.dry_up(warn=False)
    for victim in stage.spot_replicas()[:2]:
        stage.warn("c", victim)
    theatre.bring_back()
    replicas = dict(stage.settle().replicas)
    records = {r["instance_id"]: r for r in theatre.interruptions()}
    found = report.interruptions_of(stage.losses, records, replicas)
    assert [(i.replaced_by, i.fallback) for i in found] == [(4, 5), (6, 7)]
    del replicas[7]
    found = report.interruptions_of(stage.losses, records, replicas)
    assert [i.fallback for i in found] == [5, None]


def test_a_fallback_that_is_too_late_counts_for_nothing(played: Played) -> None:
    """One that the replacement was faster than didn't restore anything; it was justified all the same."""
    entered = played.replicas[8].entered
    played.replicas[8] = replace(
        played.replicas[8], entered={s: at for s, at in entered.items() if s is not ReplicaState.READY}
    )
    played.measure()
    in_c = next(i for i in played.interruptions if i.story == "c")
    assert in_c.fallback is None
    assert in_c.warned_to_ready_s == 36.1
    assert played.problems() == []


def test_a_fallback_without_a_reason(played: Played) -> None:
    """One that stands beside replicas that Spot refused nothing costs money for nothing."""
    played.replicas[7] = replace(played.replicas[7], attempts=0)
    assert played.problems() == ["fallback 8 had no reason: no replacement was refused by Spot, or late"]


def test_a_fallback_for_a_slow_replacement(played: Played) -> None:
    """A replacement that still starts when EC2 has taken the lost instance is reason enough."""
    played.replicas[7] = replace(played.replicas[7], attempts=0)
    in_c = next(n for n, i in enumerate(played.interruptions) if i.story == "c")
    played.interruptions[in_c] = replace(played.interruptions[in_c], warned_to_reclaimed_s=1.0)
    assert played.problems() == []


def test_a_fallback_that_is_not_gone(played: Played) -> None:
    """One that is left at the end is a replica too many, and named."""
    played.replicas[8] = replace(played.replicas[8], state=ReplicaState.DRAINING)
    assert played.problems() == [
        "the fleet is not whole: 3 replicas should serve, and there are:"
        " 8 DRAINING, 11 READY, 12 READY, 13 READY",
        "fallback 8 is DRAINING at the end, and should be gone",
    ]


def test_a_standby_that_stands_in(played: Played) -> None:
    """It is resumed for what EC2 takes, whatever becomes of the replacement; not before, and not later."""
    played.replicas[7] = replace(played.replicas[7], attempts=0)
    played.replicas[8] = replace(played.replicas[8], is_standby=True)
    played.measure()
    in_c = next(i for i in played.interruptions if i.story == "c")
    assert in_c.fallback == 8
    assert played.problems() == []
    warned_at = datetime.fromisoformat(in_c.warned_at)
    for resumed_at in (warned_at - seconds(1), played.replicas[7].entered[ReplicaState.READY]):
        entered = {**played.replicas[8].entered, ReplicaState.PROVISIONING: resumed_at}
        played.replicas[8] = replace(played.replicas[8], entered=entered)
        said = "fallback 8 had no reason: no replacement was refused by Spot, or late"
        others = [i for i in played.interruptions if i.story == "c"]
        assert report.broken_in_fleet(others, played.replicas, 3, 0, [])[0] == said


def test_standbys_that_are_missing(played: Played) -> None:
    """What stands by at the end is no replica that should serve, and has an ID like any row."""
    standby = replace(played.replicas[10], id=14, state=ReplicaState.STANDBY, is_standby=True, replaces=None)
    played.replicas[14] = standby
    whole = report.broken_in_fleet(played.interruptions, played.replicas, 3, 1, [])
    assert whole == []
    assert report.broken_in_fleet(played.interruptions, played.replicas, 3, 2, []) == [
        "2 standbys should be there, and there are [14]"
    ]


def test_a_fallback_on_spot(played: Played) -> None:
    """What stands in because Spot is dry can't be on Spot."""
    spot = played.replicas[7].offering
    played.replicas[8] = replace(played.replicas[8], offering=spot)
    assert played.problems() == [f"fallback 8 was not bought on-demand but as {spot}"]


def test_a_warned_instance_that_we_terminated(played: Played) -> None:
    """A warned instance is EC2's to take, even where it took it after all."""
    played.interruptions[1] = replace(played.interruptions[1], warned_to_terminated_s=3.0)
    assert played.problems() == ["replica 2 (story b) was not left for EC2 to take"]


def test_what_never_happened(played: Played) -> None:
    """A warned replica that stayed in rotation, or that EC2 found gone, is called out."""
    first = played.interruptions[0]
    played.interruptions[0] = replace(first, warned_to_deregistered_s=None, warned_to_reclaimed_s=None)
    assert played.problems() == [
        "replica 1 (story a) was never taken out of rotation",
        "replica 1 (story a) was not left for EC2 to take",
    ]


def test_durations_are_measured_from_the_warning(played: Played) -> None:
    """Each duration starts at EC2's own time of the warning, also where the event was lost."""
    lost_event = next(i for i in played.interruptions if i.story == "d")
    assert lost_event.event == "lost"
    assert lost_event.warned_to_deregistered_s == 10.0
    assert lost_event.warned_to_ready_s == 16.0
    assert lost_event.warned_to_reclaimed_s == 20.0


def test_summary_skips_what_never_happened(played: Played) -> None:
    """Median and maximum are over the interruptions that have the duration."""
    unready = [replace(i, warned_to_ready_s=None) for i in played.interruptions]
    found = report.summary(unready)
    assert "warned_to_ready_s" not in found
    assert found["warned_to_deregistered_s"] == {"median": 0.1, "max": 10.0}


def test_only_the_products_own_calls_are_counted() -> None:
    """What `cdk deploy` and the operator call is no part of what SpotRelay costs."""
    calls = [
        {"role": role, "service": "ec2", "action": "CreateFleet", "error_code": ""}
        for role in ("SpotRelay-Reconcile", "SpotRelay-OnSignal", "", "cdk-hnb659fds-deploy-role-0-us-east-1")
    ]
    assert report.call_counts(calls) == {"ec2:CreateFleet": 2}


def test_a_denied_call_is_named() -> None:
    """A call of ours that IAM refuses says which function lacks which right."""
    call = {"service": "ec2", "action": "CreateFleet", "error_code": "UnauthorizedOperation"}
    calls = [{**call, "role": "SpotRelay-OnSignal"}, {**call, "role": ""}, {**call, "error_code": ""}]
    assert report.denied_calls([c for c in calls if "role" in c]) == [
        "SpotRelay-OnSignal: ec2:CreateFleet (UnauthorizedOperation)"
    ]


def test_requests_after_deregistration_are_late() -> None:
    """A request may finish on a target that was deregistered meanwhile; one that starts after is a fault."""
    interruptions: list[report.Record] = [
        {"instance_id": "i-1", "deregistered_at": 100.0},
        {"instance_id": "i-2", "deregistered_at": None},
    ]
    requests: list[report.Record] = [
        {"target": "i-1", "started": 99.9},
        {"target": "i-1", "started": 100.1},
        {"target": "i-2", "started": 200.0},
        {"target": "i-3", "started": 200.0},
        {"target": None, "started": 200.0},
    ]
    assert report.late_requests(requests, interruptions) == ["i-1 got 1 requests after it was deregistered"]


def test_somebody_was_always_in_rotation(played: Played) -> None:
    """All three are warned at once in story (f), and the last one serves until a replacement does."""
    in_f = [i for i in played.interruptions if i.story == "f"]
    assert [i.served_on_s for i in in_f] == [1.9, 1.9, 6.0]
    assert [i.served_on_s for i in played.interruptions if i.story in "acde"] == [None] * 4
    assert played.outages() == []


def test_nobody_in_rotation_while_somebody_could_be() -> None:
    """A product that takes all of them out at once breaks the promise, whatever the requests say."""
    played = Played("hasty")
    (outage,) = played.outages()
    assert outage.duration_s == 6.0
    assert outage.could_serve == played.interruptions[-1].replica
    played.came(outage.since + seconds(1))
    assert played.problems({**GOOD_REQUESTS, "failed": 1}) == [
        "1 of 100 requests failed",
        f"nobody was in rotation for 6.0 s, and replica {outage.could_serve} could have been",
    ]


def test_requests_that_nobody_could_have_served() -> None:
    """Where EC2 is faster than any replacement, only what came after the last one's time is forgiven."""
    played = Played("slow")
    (outage,) = played.outages()
    assert (outage.duration_s, outage.could_serve) == (20.1, None)
    for after_s in (-1, 1, 2, 21):
        played.came(outage.since + seconds(after_s))
    played.balanced.append({"target": "i-1", "started": (outage.since + seconds(3)).timestamp()})
    assert played.problems({**GOOD_REQUESTS, "failed": 2}) == []
    assert played.problems({**GOOD_REQUESTS, "failed": 3}) == ["1 of 100 requests failed"]


def test_who_could_serve_is_who_was_there(played: Played) -> None:
    """Neither a replica that wasn't ready yet, nor one that has reached its end, could have helped."""
    last = played.interruptions[-1]
    warned_at = datetime.fromisoformat(last.warned_at)
    played.interruptions[-1] = replace(last, warned_to_deregistered_s=3.0)
    assert [(g.since, g.could_serve) for g in played.outages()] == [(warned_at + seconds(3), last.replica)]
    played.interruptions = [
        replace(i, warned_to_reclaimed_s=14.0) if i.story == "f" else i for i in played.interruptions
    ]
    assert [g.could_serve for g in played.outages()] == [None], "four seconds later each was at its end"
    later = (warned_at + seconds(100)).isoformat()
    played.interruptions.append(replace(last, replica=max(played.replicas), warned_at=later))
    assert [g.could_serve for g in played.outages()] == [None], "who is warned later is who was ready later"


def test_the_report_is_json(played: Played) -> None:
    """Everything in the report can be written, and read again as it was."""
    built = report.build(
        settings={"warning_s": 20.0},
        requests=GOOD_REQUESTS,
        interruptions=played.interruptions,
        replicas=played.replicas.values(),
        calls=[],
        bill={"metric_hours": {"SpotRelay Incident": 2}, "usd": 0.0008},
        stories=[],
        problems=["one"],
        outages=[],
        unservable=0,
    )
    assert json.loads(json.dumps(built)) == built
    assert built["ok"] is False
    assert [row["id"] for row in built["replicas"]] == list(range(1, 14))
    assert built["replicas"][3]["replaces"] == 1
    assert [row["id"] for row in built["replicas"] if row["is_fallback"]] == [8]


def test_an_interruption_is_marked_when_it_happened(played: Played) -> None:
    """In the timeline, each is flagged with its story, and its times are those that were measured."""
    in_f = next(i for i in played.interruptions if i.story == "f" and i.served_on_s is not None)
    mark, warned_at = in_f.mark, datetime.fromisoformat(in_f.warned_at)
    assert (mark.label, mark.replica, mark.warned_at) == ("f", in_f.replica, warned_at)
    assert mark.out_at == warned_at + seconds(in_f.warned_to_deregistered_s or 0)
    assert mark.serves_on_since == mark.out_at - seconds(in_f.served_on_s or 0)
    assert mark.taken_at == warned_at + seconds(in_f.warned_to_reclaimed_s or 0)
    in_c = next(i for i in played.interruptions if i.story == "c")
    assert (in_c.mark.fallback, in_c.mark.serves_on_since) == (8, None)
