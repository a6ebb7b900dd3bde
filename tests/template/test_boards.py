"""The board: what is on it, in the form that CloudWatch takes, and fields that somebody writes.

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

from lab.pictures.board import chosen
from lab.pictures.insights import Query
from spotrelay.plane.core.names import (
    ALARM_DIMENSION,
    COUNTED,
    EVERY_SERVICE,
    INCIDENT,
    METRICS_DIMENSION,
    METRICS_NAMESPACE,
    METRICS_NO_SERVICE,
    Metric,
)
from stacks.application import SERVICE_PREFIX
from stacks.dashboard import BLOCKED_TITLE
from tests.template.conftest import ROOT, SERVICE_FILES
from tests.template.support import Template, flat, metrics_of

WIDTH = 24
MOST_WIDGETS = 500

PROPERTIES = {
    "alarm": {"alarms", "sortBy", "states", "title"},
    "log": {"query", "region", "stacked", "title", "view"},
    "custom": {"endpoint", "params", "title", "updateOn"},
}
"""Those of each kind of widget that the reference names and that may be used here."""

VARIABLE = {"defaultValue", "id", "inputType", "label", "pattern", "populateFrom", "search", "type"}
"""What the reference says of a variable that replaces a pattern by what a search finds."""

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
    "ReplicasOnDemand", "ReplicasReady", "ReplicasSpot", "RolloutStopped",
    "SignalsIgnored", "SignalsReceived", "Standbys", "SurveyRefused", "SurveyUnanswered", "UsdPerHour",
    "WarningToDeregisteredMs", "WarningToLaunchedMs", "WarningToReadyMs",
}  # fmt: skip
"""Ours, as the board and alarms have them. Users' own queries and, with `-c metrics=all`, their boards have
them, too, and the past is kept under these names: another name would leave all of them without data."""

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

    def queries(self) -> Iterator[Query]:
        """What its graphs and tables ask of the logs."""
        return (Query.of(w["properties"]["query"]) for w in self.widgets if w["type"] == "log")

    def titles(self) -> list[str]:
        """From the top."""
        ordered = sorted(self.widgets, key=lambda w: (w["y"], w["x"]))
        return [w["properties"].get("title", "") for w in ordered]

    def chosen(self, service: str) -> Board:
        """As it is when somebody has chosen a service."""
        return Board(self.name, dict(chosen(self.body, service)))


@pytest.fixture
def board(control_plane: Template) -> Board:
    """The one."""
    return Board.of(control_plane)


def alarmed(*templates: Template) -> set[tuple[str, str]]:
    """(namespace, name) of each metric that an alarm of the templates looks at."""
    return {
        (metric["Namespace"], metric["MetricName"])
        for template in templates
        for alarm in template.all("AWS::CloudWatch::Alarm").values()
        for metric in metrics_of(alarm)
    }


def counted() -> set[str]:
    """The names of what the product's code counts: those that follow "Metric." in it."""
    found = set[str]()
    for file in (path for top in MODULES for path in (ROOT / top).rglob("*.py")):
        if file != ROOT / "spotrelay" / "plane" / "core" / "names.py":
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Metric":
                    found.add(Metric[node.attr].value)
    return found


@pytest.fixture
def templates(control_plane: Template, scaled: Template, assembly: Path) -> list[Template]:
    """All that have alarms."""
    return [
        control_plane,
        scaled,
        *(Template.read(assembly, SERVICE_PREFIX + name) for name in SERVICE_FILES),
    ]


def test_every_name_is_one_that_is_counted(board: Board, templates: list[Template]) -> None:
    """Queries and alarms name what the code counts, under published names, and AWS's metrics as AWS does."""
    named = alarmed(*templates)
    ours = {name for namespace, name in named if namespace == METRICS_NAMESPACE}
    ours |= {field for query in board.queries() for field in query.counted}
    ours.remove(INCIDENT)
    assert ours == PUBLISHED, "renamed, or new: users' own queries go by these names"
    assert ours <= counted()
    for namespace, name in named:
        assert namespace == METRICS_NAMESPACE or name in AWS_METRICS[namespace], (namespace, name)


def test_cloudwatch_gets_what_alarms_look_at(templates: list[Template]) -> None:
    """Each metric costs 0.30 USD a month: one that no alarm looks at isn't worth it, and one that is missing
    would leave its alarm without data.
    """
    looked_at = {name for namespace, name in alarmed(*templates) if namespace == METRICS_NAMESPACE}
    of_before = {Metric.LAUNCHES_BLOCKED, Metric.BETTER_ELSEWHERE}
    assert {metric.value for metric in Metric if metric.is_alarmed} == looked_at - {INCIDENT} | of_before


def test_the_board_has_the_form_that_cloudwatch_takes(board: Board) -> None:
    """Known kinds and properties only, within the grid, none over another."""
    assert board.name == "spotrelay-<AWS::Region>"
    assert set(board.body) == {"start", "widgets", "variables"}
    assert 0 < len(board.widgets) <= MOST_WIDGETS
    taken = set[tuple[int, int]]()
    for widget in board.widgets:
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


def test_a_service_is_chosen_among_those_that_there_are(board: Board) -> None:
    """By a search for a metric that every service has, and none at first: the board is then of all."""
    (variable,) = board.body["variables"]
    assert set(variable) == VARIABLE
    assert (variable["type"], variable["inputType"]) == ("pattern", "select")
    assert variable["pattern"] == variable["defaultValue"] == EVERY_SERVICE
    assert re.fullmatch(r"[\w ]+", EVERY_SERVICE), "as a regular expression it is itself"
    searched = re.fullmatch(r'\{(\w+),([\w,]+)\} MetricName="(\w+)"', variable["search"])
    assert searched is not None
    namespace, dimensions, metric = searched.groups()
    assert namespace == METRICS_NAMESPACE
    assert variable["populateFrom"] == METRICS_DIMENSION in dimensions.split(",")
    assert (metric, dimensions) == (INCIDENT, f"{METRICS_DIMENSION},{ALARM_DIMENSION}"), "each has this one"


def lines(*services: str) -> list[dict[str, Any]]:
    """What was counted: of each service a line, and one of none."""
    return [
        {"message": COUNTED, "service": service, **{metric.value: 1 for metric in Metric}}
        for service in (*services, METRICS_NO_SERVICE)
    ]


def test_a_choice_reaches_each_widget(board: Board) -> None:
    """Until somebody chooses, queries see each service; then that one, be its name the end of another's."""
    services = ("chat", "a-chat", "chat-b")
    for query, after in zip(board.queries(), board.chosen("chat").queries(), strict=True):
        if query.message != COUNTED:
            continue
        every, one = (
            {line["service"] for line in lines(*services) if asked.takes(line)} for asked in (query, after)
        )
        if every == {METRICS_NO_SERVICE}:
            assert one == every, "what belongs to no service is the same whoever is chosen"
            continue
        assert one == {"chat"}, after
        assert every in (set(), {*services, METRICS_NO_SERVICE}), query


def test_the_first_widget_is_of_who_was_chosen(board: Board) -> None:
    """All services with their alarms, or one: at the top, and drawn anew with each look and other time."""
    first, chosen = (one.widgets[0]["properties"] for one in (board, board.chosen("chat")))
    assert (board.widgets[0]["type"], board.widgets[0]["y"]) == ("custom", 0)
    assert first["endpoint"].endswith(":function:spotrelay-widget")
    assert (first["params"], chosen["params"]) == ({"service": EVERY_SERVICE}, {"service": "chat"})
    assert chosen["title"] == "Now: chat"
    assert first["updateOn"] == {"refresh": True, "resize": False, "timeRange": True}


def test_ec2s_words_are_of_who_was_chosen(board: Board) -> None:
    """The table of refused launches, too."""
    (refused,) = (w for w in board.chosen("chat").widgets if w["properties"].get("title") == BLOCKED_TITLE)
    query = Query.of(refused["properties"]["query"])
    taken = [query.takes({"message": "launch_blocked", "service": name}) for name in ("chat", "web")]
    assert taken == [True, False]


def test_graphs_are_in_the_form_that_queries_have_lines(board: Board) -> None:
    """Logs Insights draws lines of what is grouped by `bin`, and where there is a field besides only one."""
    for widget in board.widgets:
        if widget["type"] == "log" and widget["properties"].get("title") != BLOCKED_TITLE:
            query = Query.of(widget["properties"]["query"])
            assert widget["properties"]["view"] == "timeSeries"
            assert query.period_s in (60, 3600)
            assert query.by_service is False or len(query.stats) == 1
            assert all(re.fullmatch(r"[a-z_0-9]+", stat.name) for stat in query.stats), "no name needs quotes"


def test_what_is_asked_first_is_seen_first(board: Board) -> None:
    """Now, then what is missing, was lost and is paid beside each other; the survey's details come last."""
    titles = board.titles()
    assert titles[0] == f"Now: {EVERY_SERVICE}"
    assert titles[1:4] == [
        "Replicas missing, by service",
        f"Lost: {EVERY_SERVICE}",
        "USD an hour, by service",
    ]
    assert titles[-2:] == ["Signals, and what the controller was kept from", "Surveys"]
    assert not [title for title in titles if "illisecond" in title]


def test_alarms_of_the_board_are_those_that_tell(control_plane: Template, board: Board) -> None:
    """Each of the control plane's that sends messages. Services' own are in the first widget."""
    (shown,) = (set(w["properties"]["alarms"]) for w in board.widgets if w["type"] == "alarm")
    telling = {
        f"<{id_}.Arn>"
        for kind in ("Alarm", "CompositeAlarm")
        for id_, alarm in control_plane.all(f"AWS::CloudWatch::{kind}").items()
        if alarm.get("AlarmActions")
    }
    assert shown == telling


def test_a_service_has_no_board_of_its_own(service_stack: Template, scaled: Template) -> None:
    """A dashboard costs 3 USD a month."""
    for template in (service_stack, scaled):
        assert not template.all("AWS::CloudWatch::Dashboard")
