"""The report: what it measures, and that no broken promise slips through."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from spotrelay.demo import report, stories, timeline
from spotrelay.demo.report import Interruption
from spotrelay.model import Replica, ReplicaState, seconds
from tests.demo.theatre import POOLS, START, Theatre

GOOD_REQUESTS = {"sent": 100, "finished": 100, "failed": 0, "cut": 0}


class Played:
    """A demo that was given on the miniature, and what it left."""

    def __init__(self) -> None:
        theatre = Theatre(POOLS[:3])
        stage = theatre.stage()
        for story in stories.STORIES:
            story.play(stage)
        self.replicas: dict[int, Replica] = dict(stage.settle().replicas)
        records = {r["instance_id"]: r for r in theatre.interruptions()}
        self.interruptions = [
            report.interruption_of(loss, records[loss.instance_id], self.replicas) for loss in stage.losses
        ]

    def problems(self, requests: Mapping[str, Any] = GOOD_REQUESTS) -> list[str]:
        """What the report would call broken."""
        return report.problems(
            requests=requests,
            interruptions=self.interruptions,
            replicas=self.replicas,
            wanted=3,
            late=[],
            denied=[],
        )


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
        "the fleet is not whole: 3 replicas should serve, and there are: 7 READY, 8 READY, 9 STARTING"
    ]


def test_a_second_replacement(played: Played) -> None:
    """A replica more than there should be is a broken promise, even once it has ended."""
    twin = replace(played.replicas[9], id=10, state=ReplicaState.TERMINATED)
    played.replicas[10] = twin
    assert played.problems() == [
        "replica 6 (story e) must have exactly one replacement, and has [9, 10]",
        "replica IDs must be 1 to 9 without a gap, and are [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]",
    ]


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


def test_the_report_is_json(played: Played) -> None:
    """Everything in the report can be written, and read again as it was."""
    built = report.build(
        settings={"warning_s": 20.0},
        requests=GOOD_REQUESTS,
        interruptions=played.interruptions,
        replicas=played.replicas,
        calls=[],
        stories=[],
        problems=["one"],
    )
    assert json.loads(json.dumps(built)) == built
    assert built["ok"] is False
    assert [row["id"] for row in built["replicas"]] == list(range(1, 10))
    assert built["replicas"][3]["replaces"] == 1


def _draw(played: Played, interruptions: list[Interruption]) -> ET.Element:
    rows = list(played.replicas.values())
    return ET.fromstring(  # noqa: S314 - our own picture
        timeline.draw(rows, interruptions, START, START + seconds(90), "A <title> & more", "of it")
    )


def test_the_timeline_shows_every_replica_and_every_warning(played: Played) -> None:
    """The picture is well-formed SVG, names each replica, and flags each warning with its story."""
    texts = [element.text for element in _draw(played, played.interruptions).iter() if element.text]
    assert [f"#{id_}" for id_ in range(1, 10)] == [text for text in texts if text.startswith("#")]
    assert [text for text in texts if text in ("b", "c", "d", "e")] == ["b", "b", "c", "d", "e"]
    assert "A <title> & more" in texts


def test_the_timeline_stays_within_its_frame(played: Played) -> None:
    """A replica that outlives the picture ends at its edge."""
    picture = _draw(played, [])
    boxes = [e for e in picture.iter() if e.tag.endswith("rect")]
    assert max(float(b.attrib["x"]) + float(b.attrib["width"]) for b in boxes) <= timeline.WIDTH
