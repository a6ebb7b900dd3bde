"""The tables of a replay."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from lab.replay.report import WIDTH, tables
from lab.replay.result import Gaps, Result
from lab.replay.settings import ReplaySettings
from lab.replay.traces import Trace
from lab.replay.wording import DAY_S, span
from spotrelay.plane.core.spec import OnWarning

from .markets import market

TRACE = replace(
    market([(0.0, 3)], [(0.0, 1)], duration_s=10 * DAY_S), name="mine", notes=("a thing to know",)
)


def result(policy: str = "asg", settings: ReplaySettings | None = None, **changes: object) -> Result:
    """A result like many."""
    settings = settings or ReplaySettings()
    some = Result(
        trace="mine",
        policy=policy,
        settings=settings,
        availability=0.99912,
        in_rotation=0.99,
        zero_s_per_30d=1234.5,
        zero_outages=12,
        zero_longest_s=300.0,
        mean_ready=0.9999,
        cost=0.42,
        optimal_cost=0.40,
        losses=20,
        launches=1234,
        refusals=5678,
        gaps=Gaps(3, 75.0, 600.0, 3 * 3600.0),
        time_at_strength={2: 0.00088, 3: 0.9, 4: 0.09912},
        measured_from_s=0.0,
        simulated_s=10 * DAY_S,
        wall_s=1.0,
    )
    return replace(some, **changes)  # type: ignore[arg-type]


def printed(trace: Trace, *results: Result) -> str:
    """What a text file would hold."""
    file = io.StringIO()
    console = Console(file=file, width=WIDTH)
    for part in tables(trace, results):
        console.print(part)
    return file.getvalue()


def row(text: str, policy: str, nth: int = 0) -> list[str]:
    """The words of the policy's line in the nth table."""
    return [line.split() for line in text.splitlines() if line.split()[:1] == [policy]][nth]


def test_each_number_has_its_place_and_unit() -> None:
    """Shares as percents, cost as a fraction and beside the optimum, gaps in the unit that suits them."""
    text = printed(TRACE, result())
    assert row(text, "asg") == [
        *("asg", "99.912%", "99.000%", "1,234", "12", "5.0", "min", "99.990%"),
        *("0.420", "1.050", "2.0", "1,234", "5,678", "75", "s", "10.0", "min", "3.0", "h"),
    ]


def test_time_at_each_strength_has_a_table_of_its_own() -> None:
    """From none to all and more; a strength that never was is a dash."""
    assert row(printed(TRACE, result()), "asg", 1) == ["asg", "-", "-", "0.088%", "90.000%", "9.912%"]


def test_many_replicas_are_shown_by_quarters() -> None:
    """A hundred columns are none; every strength is in exactly one of them, so that shares add up to one."""
    settings = ReplaySettings(replicas=10)
    shares = dict.fromkeys(range(12), 1 / 12)
    text = printed(TRACE, result(settings=settings, time_at_strength=shares))
    assert "1 to 2" in text
    numbers = [float(word.rstrip("%")) for word in row(text, "asg", 1)[1:]]
    assert sum(numbers) > 99.9
    assert numbers[-2:] == [8.333, 8.333]


def test_settings_have_tables_each_under_a_title_that_says_them() -> None:
    """What was assumed stands beside what came out."""
    text = printed(
        TRACE,
        result(settings=ReplaySettings(cold_start_s=90)),
        result(settings=ReplaySettings(replicas=1, warning_s=0)),
        result(settings=ReplaySettings(warning_loss=0.05)),
    )
    assert "3 replicas, cold start 90 s, warning 120 s, on-demand = 3 times Spot" in text
    assert "1 replica, cold start 120 s, no warnings" in text
    assert "warning 120 s, 5% of them lost" in text
    assert "dry" not in text
    dry = printed(TRACE, result(settings=ReplaySettings(on_demand_dry=0.1)))
    assert "on-demand = 3 times Spot, dry in 10% of the spells without Spot; cost relative" in dry
    advised = ReplaySettings(recommendations=0.5, false_recommendations=0.25)
    assert "warning 120 s, 50% of losses recommended (25% false, ignore), on-demand" in printed(
        TRACE, result(settings=advised)
    )
    assert "on_warning" not in text, "nobody here knows it"
    text = printed(TRACE, result("spotrelay", ReplaySettings(on_warning=OnWarning.SERVE_ON, drain_s=45)))
    assert "spotrelay: on_warning serve_on, drain 45 s" in text


def test_the_trace_and_its_notes_come_first() -> None:
    """Whoever quotes a figure sees what it is from."""
    lines = printed(TRACE, result()).splitlines()
    assert lines[0] == "mine: 10.0 days, 2 capacity pools in 1 region, equal Spot prices"
    assert lines[1] == "  a thing to know"


def test_nothing_is_cut_off() -> None:
    """Long names and large numbers fit, too."""
    large = replace(
        result("spothedge-warned", launches=123_456, refusals=1_234_567, losses=99_999),
        zero_s_per_30d=2_591_999.0,
        gaps=Gaps(9_999, 99.9 * 60, 47.9 * 3600, 44.4 * DAY_S),
        zero_outages=12_345,
        zero_longest_s=44.4 * DAY_S,
    )
    text = printed(TRACE, large)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= WIDTH


def test_durations_are_in_the_unit_that_suits_them() -> None:
    """Seconds below two minutes, days from two days on."""
    assert [span(s) for s in (75, 119, 120, 7200, 2 * DAY_S)] == [
        "75 s",
        "119 s",
        "2.0 min",
        "2.0 h",
        "2.0 days",
    ]
