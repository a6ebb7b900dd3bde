"""`ports.Telemetry` with Powertools: the lines that CloudWatch gets."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from aws_lambda_powertools.logging import Logger

from lab.benchmarks.world import context
from lab.local.metrics import embedded_metrics
from spotrelay.plane.aws.telemetry import PowertoolsTelemetry
from spotrelay.plane.core.names import Alarm, Env, Metric

_NUMBERS = count()


@pytest.fixture
def telemetry(monkeypatch: pytest.MonkeyPatch) -> PowertoolsTelemetry:
    """Telemetry of a function that just started."""
    for name in ("POWERTOOLS_DEV", Env.METRICS):
        monkeypatch.delenv(name, raising=False)
    return PowertoolsTelemetry()


def _lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return _parsed(capsys.readouterr().out)


def test_each_service_has_its_own_line(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was counted of several services, and of none, doesn't mix: each has one line with its name."""
    telemetry.count(Metric.SIGNALS_RECEIVED, 3)
    telemetry.count(Metric.DEREGISTERED, service="demo")
    telemetry.count(Metric.WARNING_TO_LAUNCHED_MS, 1234.5, service="llama3")
    telemetry.flush()
    assert _lines(capsys) == [
        {"message": "counted", "service": "SpotRelay", "SignalsReceived": 3},
        {"message": "counted", "service": "demo", "Deregistered": 1},
        {"message": "counted", "service": "llama3", "WarningToLaunchedMs": 1234.5},
    ]


def test_several_values_of_an_invocation_are_one(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    """Events are added up, of what is so many the last counts, and of durations the longest."""
    for value in (5, 1, 3):
        telemetry.count(Metric.DEREGISTERED, value, service="demo")
        telemetry.count(Metric.REPLICAS_READY, value, service="demo")
        telemetry.count(Metric.USD_PER_HOUR, value, service="demo")
        telemetry.count(Metric.WARNING_TO_READY_MS, value, service="demo")
        telemetry.count(Metric.GAP_S, value, service="demo")
    telemetry.flush()
    (line,) = _lines(capsys)
    names = ("Deregistered", "ReplicasReady", "UsdPerHour", "WarningToReadyMs", "GapS")
    assert [line[name] for name in names] == [9, 3, 3, 5, 5]


def test_what_alarms_look_at_is_a_metric_and_nothing_else(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    """A metric costs by the hour. The line says which of its fields are some, in CloudWatch's own format."""
    for metric in Metric:
        telemetry.count(metric, service="demo")
    telemetry.flush()
    (line,) = _lines(capsys)
    assert {metric.value for metric in Metric} <= line.keys()
    assert {datum.name for datum in embedded_metrics(json.dumps(line))} == {m for m in Metric if m.is_alarmed}
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"]) == ("SpotRelay", [["service"]])
    assert isinstance(line["_aws"]["Timestamp"], int)


@pytest.mark.parametrize("setting", ["all", "", None])
def test_who_asks_for_all_metrics_gets_them(
    setting: str | None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the function's environment."""
    monkeypatch.delenv(Env.METRICS, raising=False)
    if setting is not None:
        monkeypatch.setenv(Env.METRICS, setting)
    telemetry = PowertoolsTelemetry()
    telemetry.count(Metric.USD_PER_HOUR, 0.5, service="demo")
    telemetry.flush()
    (line,) = _lines(capsys)
    sent = [(datum.name, datum.value, datum.dimensions) for datum in embedded_metrics(json.dumps(line))]
    assert sent == ([("UsdPerHour", 0.5, {"service": "demo"})] if setting == "all" else [])


def test_all_of_a_service_is_sent_where_its_alarms_are_of_before(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    """By service, and said anew for each flush."""
    for said in (("old",), ("old", "new"), ()):
        for service in said:
            telemetry.send_all(service)
        for service in ("old", "new"):
            telemetry.count(Metric.REPLICAS_SPOT, service=service)
        telemetry.flush()
        assert {line["service"] for line in _lines(capsys) if "_aws" in line} == set(said)


def test_units(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is written with its own unit: a name that ends in Ms is milliseconds, one in which an S for
    seconds ends is seconds, money has none, and everything else is a count."""
    monkeypatch.setenv(Env.METRICS, "all")
    telemetry = PowertoolsTelemetry()
    for metric in Metric:
        telemetry.count(metric)
    telemetry.flush()
    (directive,) = _lines(capsys)[0]["_aws"]["CloudWatchMetrics"]
    units = {metric["Name"]: metric["Unit"] for metric in directive["Metrics"]}
    seconds, money = {"LongestFallbackS", "GapS"}, {"UsdPerHour", "OnDemandUsdPerHour"}
    wanted = {m.value: "Milliseconds" if m.endswith("Ms") else "Count" for m in Metric}
    assert units == wanted | dict.fromkeys(seconds, "Seconds") | dict.fromkeys(money, "None")
    assert len(units) <= 100, "a line takes no more"


def test_an_alarm_hears_of_its_incident_with_a_time(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    """One metric by service and alarm, each value of the moment that it was decided for, not of the flush."""
    at = (datetime.now(UTC) - timedelta(minutes=3)).replace(microsecond=0)
    telemetry.tell(Alarm.NOT_WHOLE, service="demo", lasts=True, at=at)
    telemetry.tell(Alarm.CRASH_LOOPING, service="demo", lasts=False, at=at + timedelta(minutes=1))
    telemetry.flush()
    telemetry.flush()
    lines = _lines(capsys)
    told = [(line["service"], line["alarm"], line["Incident"]) for line in lines]
    assert told == [("demo", "NotWhole", 1), ("demo", "CrashLooping", 0)]
    for line, minute in zip(lines, (0, 1), strict=True):
        assert line["_aws"]["Timestamp"] == (at + timedelta(minutes=minute)).timestamp() * 1000
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        assert (directive["Namespace"], directive["Dimensions"]) == ("SpotRelay", [["service", "alarm"]])


def test_a_flush_is_the_end(telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]) -> None:
    """What was flushed isn't written again by the next invocation, and nothing counted writes nothing."""
    telemetry.flush()
    assert _lines(capsys) == []
    telemetry.count(Metric.CONFLICTS, service="demo")
    telemetry.flush()
    telemetry.flush()
    assert len(_lines(capsys)) == 1
    telemetry.count(Metric.DEREGISTERED, service="demo")
    telemetry.flush()
    (line,) = _lines(capsys)
    assert "Conflicts" not in line


def test_a_record_is_one_line() -> None:
    """A log line is JSON: the event as its message, each fact under its own name, where it was recorded."""
    telemetry, log = _logged()
    telemetry.record("launch", service="demo", replicas=[1, 2], cooling={}, launch="l-1")
    (line,) = _parsed(log.getvalue())
    assert line["message"] == "launch"
    assert (line["service"], line["replicas"], line["cooling"], line["launch"]) == ("demo", [1, 2], {}, "l-1")
    assert line["level"] == "INFO"
    assert line["location"].startswith("test_a_record_is_one_line:")


def test_a_line_tells_its_invocation() -> None:
    """Each line says which invocation wrote it, and whether that was the process's first."""
    telemetry, log = _logged()
    for number in (1, 2):
        with telemetry.invocation(context(f"r-{number}")):
            telemetry.record("launch")
    first, second = _parsed(log.getvalue())
    assert (first["function_request_id"], first["cold_start"]) == ("r-1", True)
    assert (second["function_request_id"], second["cold_start"]) == ("r-2", False)
    assert second["function_name"] == "on_signal"
    assert second["function_arn"] == "arn:aws:lambda:us-east-1:000000000000:function:on_signal"
    assert second["function_memory_size"] == 1769


def test_an_invocation_that_fails_is_counted(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was counted is written even if the handler raises; the error passes on."""

    def handle() -> None:
        with telemetry.invocation(context("r-1")):
            telemetry.count(Metric.CONFLICTS, service="demo")
            raise LookupError("x")

    with pytest.raises(LookupError):
        handle()
    (line,) = _lines(capsys)
    assert (line["service"], line["Conflicts"]) == ("demo", 1)


def test_what_failed_stands_out() -> None:
    """A record of an error has the level of one."""
    telemetry, log = _logged()
    telemetry.record("signals_failed", error="Throttled('…')")
    assert [line["level"] for line in _parsed(log.getvalue())] == ["ERROR"]


def test_facts_of_any_name_and_kind() -> None:
    """Whatever its facts are called, and be they unknown to JSON, a line is written with all of them."""
    telemetry, log = _logged()
    telemetry.record("odd", error=ValueError("x"), name="demo", message="m", args=(1,), module="here")
    (line,) = _parsed(log.getvalue())
    assert line["message"] == "odd"
    assert (line["name_"], line["message_"], line["args_"], line["module_"]) == ("demo", "m", [1], "here")
    assert "x" in line["error"]


def _logged() -> tuple[PowertoolsTelemetry, io.StringIO]:
    """Telemetry, and where its log goes. Loggers of one name share their first stream: hence a new name."""
    stream = io.StringIO()
    logger: Logger = Logger(service=f"SpotRelay{next(_NUMBERS)}", stream=stream)
    return PowertoolsTelemetry(logger), stream


def _parsed(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line]
