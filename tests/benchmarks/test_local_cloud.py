"""What the rows on the local cloud make of what they saw; no cloud in here."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lab.benchmarks import local_cloud_requests, local_cloud_warned, looking
from lab.benchmarks.figures import Figure
from lab.benchmarks.local_cloud import NeverHappenedError, percentile, the_only
from lab.benchmarks.local_cloud_warned import BY_HAND, DEREGISTERED, LAUNCHED, OURS, Supply
from lab.demo.load import Failure, LoadSnapshot, Percentiles


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([3.0, 1.0, 2.0], 50, 2.0),
        ([4.0, 1.0, 2.0, 3.0], 50, 2.0),
        ([1.0], 99, 1.0),
        (range(1, 101), 99, 99),
        (range(1, 201), 99, 198),
    ],
)
def test_a_percentile_is_a_value_that_was_measured(
    values: Sequence[float], percent: float, expected: float
) -> None:
    """Percentiles are taken by nearest rank, from values in any order."""
    assert percentile(values, percent) == expected


@pytest.mark.parametrize("times", [[], [1.5, 2.5]], ids=["none", "two"])
def test_a_warning_has_one_effect(times: Sequence[float]) -> None:
    """A loss that is never answered, or twice, is an error that tells the number."""
    assert the_only([1.5]) == 1.5
    with pytest.raises(NeverHappenedError, match=f"a warning had {len(times)} effects"):
        the_only(times)


def test_nobody_is_warned_twice() -> None:
    """A supply gives each instance once, and finds others when it has run out of them."""
    found = iter([["a", "b"], ["c"]])
    supply = Supply(lambda: next(found))
    assert [supply.take(), supply.take(), supply.take()] == ["a", "b", "c"]


def test_figures_of_the_rounds() -> None:
    """Ratios have a target and are guarded; times, of all rounds together, are shown only."""
    a_round = {
        (DEREGISTERED, OURS): 2.5,
        (DEREGISTERED, BY_HAND): 1.0,
        (LAUNCHED, OURS): 4.0,
        (LAUNCHED, BY_HAND): 3.2,
    }
    figures = {f.name: f for f in local_cloud_warned.figures([a_round] * 7)}
    ratios = [figure for figure in figures.values() if figure.unit == "x"]
    assert {f.name: (f.value, f.is_met) for f in ratios} == {
        DEREGISTERED: (2.5, False),
        LAUNCHED: (1.25, True),
    }
    assert all(figure.tolerance for figure in ratios)
    times = [figure for figure in figures.values() if figure.unit == "ms"]
    assert len(times) == 8
    assert not any(figure.tolerance or figure.target for figure in times)
    assert figures["launched: SpotRelay p99"].value == 4000


def the_requests(requests: LoadSnapshot, interruptions: int = 100) -> dict[str, Figure]:
    """The figures of a load, by name."""
    return {f.name: f for f in local_cloud_requests.figures(requests, interruptions)}


def test_no_request_may_fail() -> None:
    """A hundred interruptions that no client notices meet every target."""
    figures = the_requests(LoadSnapshot(sent=900, finished=900, first_token=Percentiles(p50_s=0.2)))
    assert all(figure.is_met for figure in figures.values())
    assert figures["first token p50"].value == pytest.approx(200)
    assert figures["sent"].value == 900


def test_what_failed_is_told() -> None:
    """One failed request misses the target, and the table says what came of it."""
    failure = Failure("failed", 1.0, 503, "no target", "127.0.0.1:8081")
    figures = the_requests(LoadSnapshot(sent=900, finished=898, failed=1, cut=1, failures=(failure,)))
    assert not figures["failed"].is_met
    assert not figures["cut"].is_met
    assert "503, no target" in figures["failed"].what


def test_all_interruptions_must_have_happened() -> None:
    """No failures mean nothing if EC2 took fewer instances than it should have."""
    figures = the_requests(LoadSnapshot(sent=900, finished=900), interruptions=99)
    assert not figures["interruptions"].is_met


def test_failures_are_guarded() -> None:
    """A single failed or cut request is a regression; how many were sent isn't."""
    figures = the_requests(LoadSnapshot(sent=900, finished=900))
    assert [name for name, figure in figures.items() if figure.tolerance is not None] == ["failed", "cut"]


def test_figures_of_a_look() -> None:
    """The ratio of processor times is guarded; seconds are shown, and have the target that people feel."""
    walls = {"ours": [1.6, 1.4, 1.8], "bare": [1.0, 1.0, 1.0], "help": [0.2, 0.2, 0.4]}
    cpus = {"ours": [0.9, 0.8, 0.6], "bare": [0.6, 0.4, 0.4]}
    figures = {f.name: f for f in looking.figures(walls, cpus)}
    assert figures["cpu_to_bare"].value == pytest.approx(1.5)
    assert figures["to_bare"].value == pytest.approx(1.6)
    assert (figures["ours"].value, figures["ours"].is_met) == (1.6, False)
    assert (figures["help"].value, figures["help"].is_met) == (0.2, True)
    assert [name for name, figure in figures.items() if figure.tolerance is not None] == ["cpu_to_bare"]
