"""The boards: what is on them, in the form that CloudWatch takes, and metrics that somebody emits.

The form is that of "Dashboard Body Structure and Syntax" in CloudWatch's reference:
https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spotrelay import palette
from spotrelay.core.names import METRICS_NAMESPACE, Metric
from stacks.application import SERVICE_PREFIX
from tests.template.conftest import ROOT, SERVICE_FILES
from tests.template.support import Template, flat, metrics_of

WIDTH = 24
MOST_WIDGETS = 500

PROPERTIES = {
    "metric": {
        "annotations", "end", "legend", "liveData", "metrics", "period", "region", "setPeriodToTimeRange",
        "sparkline", "stacked", "start", "stat", "title", "view", "yAxis",
    },
    "text": {"background", "markdown"},
    "alarm": {"alarms", "sortBy", "states", "title"},
    "log": {"query", "region", "title", "view"},
    "custom": {"endpoint", "params", "title", "updateOn"},
}  # fmt: skip
"""Those of each kind of widget that the reference names and that may be used here."""

OPTIONS = {"color", "expression", "id", "label", "period", "region", "stat", "visible", "yAxis"}
"""Of a metric on a widget."""

AWS_METRICS = {
    # https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-cloudwatch-metrics.html
    "AWS/ApplicationELB": {
        "RequestCount", "HTTPCode_ELB_5XX_Count", "HTTPCode_Target_5XX_Count", "TargetResponseTime",
    },
    # https://docs.aws.amazon.com/lambda/latest/dg/monitoring-metrics-types.html
    "AWS/Lambda": {"Invocations", "Errors", "Throttles", "RecursiveInvocationsDropped"},
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-available-cloudwatch-metrics.html
    "AWS/SQS": {"ApproximateNumberOfMessagesVisible", "ApproximateAgeOfOldestMessage"},
}  # fmt: skip
"""AWS's own, as its pages name them."""

PUBLISHED = {
    "ActionRequired", "AllZonesScoreLow", "BestPlacementScore", "BetterElsewhere", "CallsDenied",
    "CrashLooping", "EligiblePools", "EventsUnsent",
    "ForeignInstances", "GapS", "HeldBack", "ImagesGone", "LaunchErrors", "LaunchRefusals", "LaunchesBlocked",
    "LaunchesHeld", "LongestFallbackS", "LossesUnwarned", "LossesWarned", "MessagesMalformed",
    "OnDemandUsdPerHour", "OngoingRequests", "OngoingUnknown", "OrphansAdopted", "OrphansTerminated",
    "PoolsCooling", "TicksMalformed", "QuotasShort", "ReplicasFailed", "ReplicasLaunched", "ReplicasMissing",
    "ReplicasOnDemand", "ReplicasReady", "ReplicasSpot", "ReplicasUnlaunched", "RolloutStopped",
    "SignalsIgnored", "SignalsReceived", "Standbys", "SurveyRefused", "SurveyUnanswered", "UsdPerHour",
    "WarningToDeregisteredMs", "WarningToLaunchedMs", "WarningToReadyMs",
}  # fmt: skip
"""Ours, as boards and alarms have them. Users' own have them, too, and the past is kept under these names:
another name would leave all of them without data."""

MODULES = ("spotrelay", "lambdas")


@dataclass(frozen=True)
class Board:
    """A dashboard of a template."""

    name: str
    body: dict[str, Any]

    @classmethod
    def of(cls, template: Template) -> Board:
        """The one of a stack."""
        properties = template.only("AWS::CloudWatch::Dashboard")
        return cls(flat(properties["DashboardName"]), json.loads(flat(properties["DashboardBody"])))

    @property
    def widgets(self) -> list[dict[str, Any]]:
        """In the order of the template."""
        found: list[dict[str, Any]] = self.body["widgets"]
        return found

    def metrics(self) -> Iterator[tuple[str, str, dict[str, str], dict[str, Any]]]:
        """(namespace, name, dimensions, options) of each that a widget names."""
        for widget in self.widgets:
            for entry in widget["properties"].get("metrics", ()):
                *names, options = entry if isinstance(entry[-1], dict) else [*entry, {}]
                if names:
                    namespace, name, *pairs = names
                    yield namespace, name, dict(zip(pairs[::2], pairs[1::2], strict=True)), options

    def expressions(self) -> list[str]:
        """Every metric math on it."""
        entries = [entry for w in self.widgets for entry in w["properties"].get("metrics", ())]
        return [entry[-1]["expression"] for entry in entries if "expression" in entry[-1]]

    def titles(self) -> list[str]:
        """From the top."""
        ordered = sorted(self.widgets, key=lambda w: (w["y"], w["x"]))
        return [w["properties"].get("title", "") for w in ordered]


@pytest.fixture
def board(service_stack: Template) -> Board:
    """A service's."""
    return Board.of(service_stack)


@pytest.fixture
def fleet_board(control_plane: Template) -> Board:
    """The control plane's."""
    return Board.of(control_plane)


def named_metrics(*templates: Template) -> set[tuple[str, str]]:
    """(namespace, name) of each metric that a board or an alarm of the templates names."""
    found = set[tuple[str, str]]()
    for template in templates:
        for alarm in template.all("AWS::CloudWatch::Alarm").values():
            found |= {(metric["Namespace"], metric["MetricName"]) for metric in metrics_of(alarm)}
        board = Board.of(template)
        found |= {(namespace, name) for namespace, name, _, _ in board.metrics()}
        for expression in board.expressions():
            searched = re.findall(r"SEARCH\('\{(\w+),\w+\} MetricName=\"(\w+)\"'", expression)
            assert len(searched) == expression.count("SEARCH"), expression
            found |= set(searched)
    return found


def emitted() -> set[str]:
    """The names of the metrics that the product's code counts, by where it says `Metric.NAME`."""
    found = set[str]()
    for file in (path for top in MODULES for path in (ROOT / top).rglob("*.py")):
        if file != ROOT / "spotrelay" / "core" / "names.py":
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Metric":
                    found.add(Metric[node.attr].value)
    return found


def test_every_metric_that_is_named_is_one_that_is_emitted(
    control_plane: Template, service_stack: Template, scaled: Template
) -> None:
    """Boards and alarms name what the code counts, under published names, and AWS's metrics as AWS does."""
    named = named_metrics(control_plane, service_stack, scaled)
    ours = {name for namespace, name in named if namespace == METRICS_NAMESPACE}
    assert ours <= PUBLISHED, "renamed, or new: users' own boards go by these names"
    assert ours <= emitted()
    for namespace, name in named:
        assert namespace == METRICS_NAMESPACE or name in AWS_METRICS[namespace], (namespace, name)


def test_what_is_published_is_on_a_board_or_behind_an_alarm(
    control_plane: Template, scaled: Template, assembly: Path
) -> None:
    """Each metric costs 0.30 USD a month: what nobody looks at isn't worth it."""
    services = [Template.read(assembly, SERVICE_PREFIX + name) for name in SERVICE_FILES]
    named = named_metrics(control_plane, scaled, *services)
    assert {name for namespace, name in named if namespace == METRICS_NAMESPACE} == PUBLISHED


def test_boards_have_the_form_that_cloudwatch_takes(
    board: Board, fleet_board: Board, scaled: Template
) -> None:
    """Known kinds and properties only, within the grid, with IDs that metric math can use."""
    for one in (board, fleet_board, Board.of(scaled)):
        assert re.fullmatch("[A-Za-z0-9_-]{1,255}", one.name.replace("<AWS::Region>", "us-east-1"))
        assert set(one.body) <= {"start", "end", "periodOverride", "widgets", "variables"}
        assert one.body["periodOverride"] == "inherit", "without it no widget's own period counts"
        assert 0 < len(one.widgets) <= MOST_WIDGETS
        taken = set[tuple[int, int]]()
        for widget in one.widgets:
            assert set(widget) == {"type", "width", "height", "x", "y", "properties"}
            assert set(widget["properties"]) <= PROPERTIES[widget["type"]], widget
            cells = {
                (widget["x"] + dx, widget["y"] + dy)
                for dx in range(widget["width"])
                for dy in range(widget["height"])
            }
            assert max(x for x, _ in cells) < WIDTH
            assert not cells & taken, "one lies over another"
            taken |= cells
            entries = widget["properties"].get("metrics", [])
            ids = [entry[-1].get("id") for entry in entries if isinstance(entry[-1], dict)]
            given = [id_ for id_ in ids if id_]
            assert len(given) == len(set(given))
            for entry in entries:
                options = entry[-1] if isinstance(entry[-1], dict) else {}
                assert set(options) <= OPTIONS, options
                assert options.get("id") is None or re.fullmatch(r"[a-z]\w*", options["id"])
                if expression := options.get("expression"):
                    operands = re.findall(r"\b[a-z]\w*", re.sub(r"'[^']*'", "", expression))
                    assert set(operands) <= set(given), expression
            if "start" in widget["properties"]:
                assert re.fullmatch(r"-PT\d+[HM]|-P\d+D", widget["properties"]["start"])


def test_a_services_board_says_first_whether_it_is_whole(board: Board, service_name: str) -> None:
    """Large numbers first, then alarms; its own metrics are named one by one, and of this service."""
    assert board.name == f"spotrelay-{service_name}-<AWS::Region>"
    now, day = board.widgets[:2]
    for widget in (now, day):
        assert widget["properties"]["view"] == "singleValue"
        assert widget["y"] == 0
    labels = [entry[-1]["label"] for w in (now, day) for entry in w["properties"]["metrics"]]
    shown = ["missing", "ready", "on demand", "USD an hour", "saved, %", "lost", "worst gap, s"]
    assert [label for label in labels if label in shown] == shown
    assert day["properties"]["setPeriodToTimeRange"] is True
    assert day["properties"]["start"] == "-PT24H"
    assert board.widgets[2]["type"] == "alarm"
    assert "SEARCH" not in json.dumps(board.body)
    for namespace, _, dimensions, _ in board.metrics():
        if namespace == METRICS_NAMESPACE:
            assert dimensions == {"service": service_name}


def test_what_clients_felt_is_beside_what_was_lost(board: Board) -> None:
    """Spot and on-demand stacked, losses, and requests with 5xx at the same height; then whether Spot is to
    be had, before the table of replicas.
    """
    by_title = {w["properties"].get("title", ""): w for w in board.widgets}
    replicas = by_title["Replicas: on Spot, on demand, missing"]
    assert replicas["properties"]["stacked"] is True
    beside = [w for w in board.widgets if w["y"] == replicas["y"]]
    assert [w["properties"]["title"] for w in beside] == [
        "Replicas: on Spot, on demand, missing",
        "Lost; seconds from the warning until",
        "Requests, and answers of 5xx",
    ]
    titles = board.titles()
    latency = titles.index("Seconds until an answer's headers")
    assert latency < titles.index("Placement score of the best zone (of 10)")
    assert titles.index("Capacity pools: eligible, left alone") < titles.index("Replicas and last losses")


def test_alarms_of_a_board_are_those_that_tell(
    control_plane: Template, service_stack: Template, board: Board, fleet_board: Board
) -> None:
    """Each that sends messages, and no part of one."""
    for template, one in ((control_plane, fleet_board), (service_stack, board)):
        (shown,) = (set(w["properties"]["alarms"]) for w in one.widgets if w["type"] == "alarm")
        telling = {
            f"<{id_}.Arn>"
            for kind in ("Alarm", "CompositeAlarm")
            for id_, alarm in template.all(f"AWS::CloudWatch::{kind}").items()
            if alarm.get("AlarmActions")
        }
        assert shown == telling


def test_the_fleets_board_asks_for_all_services(fleet_board: Board, board: Board) -> None:
    """The function that draws one service's table draws one of all where none is named."""
    (of_all,), (of_one,) = (
        [w["properties"] for w in one.widgets if w["type"] == "custom"] for one in (fleet_board, board)
    )
    assert of_all["endpoint"] == of_one["endpoint"]
    assert "service" not in of_all.get("params", {})
    assert of_one["params"] == {"service": board.name.split("-")[1]}


def test_each_axis_has_one_unit_and_each_line_words(fleet_board: Board, board: Board) -> None:
    """Seconds are seconds, and no line is called as its metric is."""
    for one in (fleet_board, board):
        for entry in (e for w in one.widgets for e in w["properties"].get("metrics", ())):
            label = entry[-1].get("label", "")
            if entry[-1].get("visible") is not False:
                assert label not in set(Metric), label
        assert not [title for title in one.titles() if "illisecond" in title]
    (lost,) = (w["properties"] for w in board.widgets if w["properties"].get("title", "").startswith("Lost;"))
    axes = {side: axis["label"] for side, axis in lost["yAxis"].items()}
    assert axes == {"left": "replicas", "right": "seconds"}
    divided = [e for e in fleet_board.expressions() if "WarningTo" in e]
    assert len(divided) == 3
    assert all(e.startswith("MAX(") and e.endswith(") / 1000") for e in divided)


def test_colours_mean_one_thing(board: Board) -> None:
    """On every graph and number of a service: its words have the palette's colour, the same each time."""
    by_words: dict[str, set[str]] = {}
    for _, _, _, options in board.metrics():
        if color := options.get("color"):
            by_words.setdefault(options["label"], set()).add(color)
    assert {words: colors for words, colors in by_words.items() if len(colors) > 1} == {}
    assert by_words["missing"] == by_words["lost, no warning"] == {palette.BAD}
    assert by_words["on demand"] == {palette.ON_DEMAND}
    assert by_words["on Spot"] == {palette.SERVING}


def test_only_services_that_have_it_show_it(board: Board, scaled: Template) -> None:
    """Requests by the replicas' own account, of who follows them; standbys, of who may have any."""
    names = {name for _, name, _, _ in board.metrics()}
    assert not names & {Metric.ONGOING_REQUESTS, Metric.ONGOING_UNKNOWN, Metric.STANDBYS}
    assert {Metric.ONGOING_REQUESTS, Metric.ONGOING_UNKNOWN} <= {
        n for _, n, _, _ in Board.of(scaled).metrics()
    }


def test_the_fleets_board_begins_with_numbers_and_ends_with_noise(fleet_board: Board) -> None:
    """Sums over all services, then alarms; foreign instances and the survey's details come last."""
    assert fleet_board.widgets[2]["type"] == "alarm"
    titles = fleet_board.titles()
    assert titles[:2] == ["All services now", "Last 24 hours"]
    assert titles[3] == "Services, and their alarms"
    assert titles[4].startswith("Replicas missing")
    assert titles[-2:] == ["Signals, and what the controller was kept from", "Surveys"]
    of_services = [e for e in fleet_board.expressions() if "SEARCH" in e]
    assert of_services
    named = {name for _, name, _, _ in fleet_board.metrics()}
    assert Metric.REPLICAS_MISSING not in named
