"""The simulation itself: it repeats, it interleaves, it tries everything, and the controller stands it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.sim import scenario
from lab.sim.campaign import Summary, campaign
from lab.sim.course import play
from lab.sim.faults import OF_HELD, PAIRS, POSSIBLE, USUAL_PAIRS, Call, Fault
from lab.sim.rules import Rule
from lab.sim.run import run
from lab.sim.scheduler import Killed, Scheduler, Task
from lab.sim.world import SimWorld
from spotrelay.plane.core.notices import NoticeKind
from tests import schemas

HALF = 1500
"""Of the standard run's seeds: in these almost each port call goes wrong in each way."""

RARE = (2037, 2457, 2514, 2944)
"""Later seeds, for the four ways that those leave out: who asks for what has ended is killed, a note of what
is held back is denied or fails, and a stop is done though no answer comes."""

FEW = 200
"""What `make test` has time for."""

ROOT = Path(__file__).parents[2]


one_worker = pytest.mark.xdist_group("standard run")
"""So that the standard run is made once, not once by each worker of pytest."""


@pytest.fixture(scope="module")
def standard() -> Summary:
    """Half of the standard run, and its rare seeds."""
    summary = campaign(range(HALF), 5)
    for seed in RARE:
        summary.add(campaign(range(seed, seed + 1), 5))
    return summary


def test_no_rule_is_broken_in_a_few_runs() -> None:
    """Every rule holds, at every step and after settling, and the runs are what they are meant to be."""
    few = campaign(range(FEW), 5)
    assert few.violations == []
    assert few.overlaps > 5 * FEW


@pytest.mark.slow
@pytest.mark.timeout(1800)  # two minutes of two processors, on a machine that may be busy
@one_worker
def test_no_rule_is_broken(standard: Summary) -> None:
    """Over the standard run every rule holds, at every step and after settling."""
    assert standard.violations == []


@pytest.mark.slow
@one_worker
def test_every_fault_met_every_call(standard: Summary) -> None:
    """Over the standard run each port call has gone wrong in each way that it can."""
    assert standard.never_hit == []


@pytest.mark.slow
@one_worker
def test_invocations_overlap(standard: Summary) -> None:
    """Port calls are points where others overtake: several times in a run."""
    assert standard.overlaps > 5 * HALF


@pytest.mark.parametrize(("replicas", "seeds"), [(1, 100), (40, 40)])
def test_small_and_large_services_stand_it_too(replicas: int, seeds: int) -> None:
    """One replica, and more than one commit can take."""
    assert campaign(range(seeds), replicas).violations == []


def test_a_seed_repeats_exactly() -> None:
    """The same seed gives the same timeline, also in another process, where text hashes otherwise."""
    script = (
        "import json; from lab.sim.run import run; "
        "print(json.dumps([list(run(seed, trace=True).timeline) for seed in range(20)]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    answer = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(answer.stdout) == [list(run(seed, trace=True).timeline) for seed in range(20)]


def test_telling_changes_nothing() -> None:
    """A run that keeps a timeline is the run without."""
    for seed in range(20):
        told, silent = run(seed, trace=True), run(seed)
        assert (told.calls, told.overlaps, told.hits) == (silent.calls, silent.overlaps, silent.hits)


def test_every_pair_is_some_run_s_target() -> None:
    """Seeds take turns over calls and faults, so that the rare ones get theirs."""
    assert {scenario.draw(seed, 5).target for seed in range(5 * len(PAIRS))} == set(PAIRS)


def test_standbys_change_no_other_run() -> None:
    """Who has none draws what it drew before there were any."""
    drawn = [scenario.draw(seed, 5) for seed in range(len(PAIRS))]
    without = [one for one in drawn if not one.standbys.number]
    assert 0.5 < len(without) / len(drawn) < 0.9
    without = [one for one in without if one.loads.target is None and one.target[0] not in OF_HELD]
    assert {one.target for one in without} <= set(USUAL_PAIRS)
    auto = [one for one in drawn if one.standbys.is_auto]
    assert 0.05 < len(auto) / len(drawn) < 0.3
    assert all(spec.standby_auto is one.standbys.is_auto for one in drawn for spec in one.specs)
    fixed = [one for one in drawn if not one.standbys.is_auto]
    assert all(spec.standby == one.standbys.number for one in fixed for spec in one.specs)


def test_only_what_can_go_stale_does() -> None:
    """The table's reads are strongly consistent, so no stale answer is ever made up for them."""
    stale = {call for call, faults in POSSIBLE.items() if Fault.STALE in faults}
    assert stale == {Call.OBSERVE, Call.WARNED, Call.HEALTH, Call.GET}


def test_tasks_take_turns_in_order_of_time() -> None:
    """Who pauses for less goes on first; where nothing is due meanwhile, time just passes."""
    scheduler = Scheduler()
    order: list[tuple[str, float]] = []

    def body(name: str, pauses: list[float]) -> None:
        for pause in pauses:
            scheduler.pause(pause)
            order.append((name, scheduler.now))

    scheduler.at(0, lambda: scheduler.start(Task("a", 99), lambda: body("a", [2, 2])))
    scheduler.at(0, lambda: scheduler.start(Task("b", 99), lambda: body("b", [1, 2])))
    scheduler.run(10)
    assert order == [("b", 1), ("a", 2), ("b", 3), ("a", 4)]
    assert not scheduler.is_busy


def test_every_event_of_ours_fits_its_schema() -> None:
    """What the runs of a hundred seeds tell is what is published, of every kind."""
    told = []
    for seed in range(100):
        world = SimWorld(scenario.draw(seed, 3, None))
        play(world)
        told += [notice for _, notice in world.notices.told]
    schemas.check(told)
    assert {notice.kind for notice in told} == set(NoticeKind)


def test_the_dead_do_nothing_more() -> None:
    """An invocation that was killed while it waited never comes back, not even to clean up."""
    scheduler = Scheduler()
    task = Task("a", 99)
    reached: list[str] = []

    def body() -> None:
        try:
            scheduler.pause(5)
            reached.append("went on")
        except Killed:
            reached.append("killed")

    scheduler.at(0, lambda: scheduler.start(task, body))
    scheduler.at(0, lambda: scheduler.at(1, lambda: setattr(task, "is_dead", True)))
    scheduler.run(10)
    assert reached == ["killed"]


def test_the_document_says_what_is_checked() -> None:
    """docs/rules.md names every fault, and every rule in its own words."""
    text = " ".join((ROOT / "docs" / "rules.md").read_text().replace("**", "").split()).lower()
    assert [fault.value for fault in Fault if f"| {fault.value} |" not in text] == []
    assert [rule.value for rule in Rule if rule.value.lower() not in text] == []
