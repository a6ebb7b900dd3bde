"""Running a baseline through a trace, and what the result says."""

import json
from collections.abc import Sequence
from typing import ClassVar

import pytest

from lab.replay.cloud import Event, Kind, ReplayCloud
from lab.replay.result import Gaps
from lab.replay.run import POLICIES, PRODUCTION, PolicyError, drive, run
from lab.replay.settings import ReplaySettings, ReplaySettingsError
from lab.replay.traces import Trace
from tests.replay.markets import SPOT, market


class Watcher:
    """Launches one instance, looks every hour, and notes what it is told."""

    name: ClassVar[str] = "watcher"
    summary: ClassVar[str] = ""
    source: ClassVar[str] = ""
    hears_warnings: ClassVar[bool] = True

    def __init__(self, trace: Trace, settings: ReplaySettings) -> None:
        self.told: list[tuple[float, list[Kind]]] = []

    def wake(self, cloud: ReplayCloud, events: Sequence[Event]) -> float:
        """Look."""
        self.told.append((cloud.now, [event.kind for event in events]))
        if not self.told[1:]:
            cloud.launch(SPOT, 1)
        return (cloud.now // 3600 + 1) * 3600


class Deaf(Watcher):
    """The same without warnings."""

    hears_warnings: ClassVar[bool] = False


class Hasty(Watcher):
    """Wants to be woken in the past."""

    name: ClassVar[str] = "hasty"

    def wake(self, cloud: ReplayCloud, events: Sequence[Event]) -> float:
        """Look."""
        return cloud.now - 1 if events else 10.0


ONE = ReplaySettings(replicas=1, cold_start_s=100)
DIPS = market([(0, 1), (1000, 0), (4000, 1)])


def test_a_baseline_is_woken_when_it_asked_for_it_and_when_something_happens() -> None:
    """At 0, at its own times, and at every event of its machines; not at changes that touch none of them."""
    watcher = Watcher(DIPS, ONE)
    drive(watcher, ReplayCloud(DIPS, ONE), 7201)
    assert watcher.told == [
        (0, []),
        (100, [Kind.UP]),
        (880, [Kind.WARNED]),
        (1000, [Kind.LOST]),
        (3600, []),
        (7200, []),
    ]


def test_warnings_are_for_those_who_hear_them() -> None:
    """A policy that doesn't subscribe to warnings isn't woken by one."""
    deaf = Deaf(DIPS, ONE)
    drive(deaf, ReplayCloud(DIPS, ONE), 2000)
    assert [kinds for _, kinds in deaf.told] == [[], [Kind.UP], [Kind.LOST]]


def test_a_baseline_that_wants_the_past_is_wrong() -> None:
    """It would stop time: it is told so."""
    with pytest.raises(ValueError, match="hasty wants to be woken at 9, but that is over at 10"):
        drive(Hasty(DIPS, ONE), _with_event_at_ten(), 2000)


def _with_event_at_ten() -> ReplayCloud:
    cloud = ReplayCloud(DIPS, ReplaySettings(replicas=1, cold_start_s=10))
    cloud.launch(SPOT, 1)
    return cloud


@pytest.mark.parametrize("policy", [p for p in POLICIES if p != PRODUCTION])
def test_every_policy_runs_and_repeats(policy: str) -> None:
    """Each runs through a small market, gives the same twice, and figures that can be."""
    trace = market(
        [(0, 4), (3000, 1), (6000, 0), (9000, 4)], [(0, 0), (5000, 2)], [(0, 1)], duration_s=20_000
    )
    settings = ReplaySettings(cold_start_s=100)
    first, second = run(trace, policy, settings).to_dict(), run(trace, policy, settings).to_dict()
    assert {**first, "wall_s": 0} == {**second, "wall_s": 0}
    assert 0 <= first["in_rotation"] <= first["availability"] <= first["mean_ready"] <= 1
    assert first["availability"] == first["in_rotation"], "none takes a warned replica out"
    assert sum(first["time_at_strength"].values()) == pytest.approx(1)
    zero_share = first["zero_s_per_30d"] / (30 * 86_400)
    assert zero_share == pytest.approx(first["time_at_strength"].get("0", 0))
    assert first["cost"] > 0
    assert json.loads(json.dumps(first)) == first


def test_what_nobody_serves_is_scaled_to_a_month() -> None:
    """The share of the measured time that is lost, times thirty days; an oracle loses none."""
    trace = market([(0, 1), (3000, 0), (4000, 1), (6000, 0), (8000, 1)], duration_s=10_300)
    single, optimal = (run(trace, policy, ONE) for policy in ("single-pool", "optimal"))
    assert single.zero_outages == 2
    # What it takes to see that there is capacity again, and to start.
    assert 2000 + 100 <= single.zero_longest_s <= 2000 + 60 + 100
    whole_s = (1 - sum(s for n, s in single.time_at_strength.items() if n)) * 10_000
    assert 3000 + 200 <= whole_s <= 3000 + 320
    assert single.zero_s_per_30d == pytest.approx(whole_s / 10_000 * 30 * 86_400)
    assert (optimal.zero_s_per_30d, optimal.zero_outages, optimal.zero_longest_s) == (0, 0, 0)


def test_progress_is_told_in_shares() -> None:
    """Whoever shows it hears of growing shares, about a hundred at most."""
    shares: list[float] = []
    run(
        market([(i * 10.0, i % 2) for i in range(1000)]),
        "spothedge",
        ReplaySettings(cold_start_s=100),
        shares.append,
    )
    assert shares == sorted(shares)
    assert 10 < len(shares) <= 101
    assert shares[-1] <= 1


def test_an_unknown_policy_is_named() -> None:
    """The error says which name is unknown, and those that are known."""
    with pytest.raises(
        PolicyError, match="policy 'spothedgehog' is unknown: give one of spotrelay, optimal, "
    ):
        run(DIPS, "spothedgehog", ONE)


def test_a_trace_must_outlast_the_first_cold_starts() -> None:
    """Where nothing could be measured, that is said."""
    with pytest.raises(ReplaySettingsError, match="lasts 10000 s, and measuring begins after 12000 s"):
        run(DIPS, "on-demand", ReplaySettings(cold_start_s=4000))


def test_gaps_are_told_by_nearest_rank() -> None:
    """Percentiles are lengths of gaps that there were; without gaps all are zero."""
    assert Gaps.of([5.0]) == Gaps(1, 5.0, 5.0, 5.0)
    assert Gaps.of([float(n) for n in range(200, 0, -1)]) == Gaps(200, 100.0, 198.0, 200.0)
    assert Gaps.of([]) == Gaps()
