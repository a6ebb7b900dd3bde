"""What a run adds up to: who counts as ready, gaps, and what is paid."""

import pytest

from lab.replay.cloud import ReplayCloud
from lab.replay.ledger import Ledger
from lab.replay.settings import ReplaySettings
from tests.replay.markets import ON_DEMAND, SPOT, market

ONE = ReplaySettings(replicas=1, cold_start_s=100.0)
"""Measured from 300 s on."""


def test_the_first_cold_starts_count_for_nothing() -> None:
    """Measuring starts three cold starts after the trace: launches, cost and gaps before are nobody's."""
    cloud = ReplayCloud(market([(0, 1)]), ONE)
    cloud.launch(SPOT, 1)
    ledger = cloud.close(1300)
    assert ledger.measured_s == ledger.full_s == ledger.spot_s == 1000
    assert ledger.gaps.lengths_s == []
    assert ledger.launches == 0
    assert ledger.cost == pytest.approx(1 / 3)


def test_a_warned_replica_serves_until_it_is_taken() -> None:
    """It leaves rotation when the policy says so, and counts as ready until EC2 takes it."""
    cloud = ReplayCloud(market([(0, 1), (1000, 0)]), ONE)
    (machine,), _ = cloud.launch(SPOT, 1)
    cloud.advance(881)
    cloud.drain(machine)
    ledger = cloud.close(1300)
    assert ledger.full_s == 700
    assert ledger.full_rotation_s == 581
    assert ledger.gaps.lengths_s == [300]
    assert ledger.losses == 1
    assert ledger.spot_s == 700


def test_what_is_drained_without_a_warning_is_ready_no_more() -> None:
    """A policy that takes a replica out of service has one fewer, though it pays until the end."""
    cloud = ReplayCloud(market([(0, 1)]), ONE)
    (machine,), _ = cloud.launch(SPOT, 1)
    cloud.advance(500)
    cloud.drain(machine)
    cloud.drain(machine)
    cloud.advance(530)
    cloud.terminate(machine)
    cloud.terminate(machine)
    ledger = cloud.close(1300)
    assert ledger.full_s == ledger.full_rotation_s == 200
    assert ledger.spot_s == 230
    assert ledger.losses == 0
    assert ledger.strength_s == {1: 200, 0: 800}


def test_a_machine_that_is_taken_before_it_is_up_was_never_ready() -> None:
    """Being warned, drained and lost while starting changes no count, though it came up meanwhile."""
    cloud = ReplayCloud(market([(0, 1), (1000, 0), (1500, 1), (1700, 0)]), ONE)
    cloud.launch(SPOT, 1)
    cloud.advance(1550)
    (machine,), _ = cloud.launch(SPOT, 1)
    cloud.advance(1590)
    cloud.drain(machine)
    ledger = cloud.close(2300)
    assert ledger.ready == ledger.in_rotation == 0
    assert ledger.full_s == ledger.full_rotation_s == 700


def test_whoever_ends_a_warned_machine_has_lost_it() -> None:
    """A loss counts once, whether EC2 or the policy is first."""
    cloud = ReplayCloud(market([(0, 1), (1000, 0)]), ONE)
    (machine,), _ = cloud.launch(SPOT, 1)
    cloud.advance(900)
    cloud.terminate(machine)
    ledger = cloud.close(1300)
    assert ledger.losses == 1
    assert ledger.full_s == 600


def test_gaps_are_the_periods_below_strength() -> None:
    """A handover at the same instant is no gap; one that is open at the end is closed there."""
    ledger = Ledger(ONE)
    for time, ready in [(0, 1), (400, 0), (450, 1), (500, 0), (500, 1), (600, 2), (700, 0), (710, 0)]:
        ledger.to(time)
        ledger.ready = ready
    ledger.close(800)
    assert ledger.gaps.lengths_s == [50, 100]
    assert ledger.full_s == 350
    assert ledger.strength_s == {1: 250, 0: 150, 2: 100}


def test_nobody_in_rotation_is_counted_apart_from_nobody_ready() -> None:
    """A warned replica that was taken out still counts as ready, though all new requests fail."""
    cloud = ReplayCloud(market([(0, 1), (1000, 0)], [(0, 0), (600, 1)]), ONE)
    (machine,), _ = cloud.launch(SPOT, 1)
    cloud.advance(881)
    cloud.drain(machine)
    cloud.launch(SPOT, 1)
    ledger = cloud.close(1300)
    assert ledger.zero.lengths_s == [100], "until the other is up"
    assert ledger.gaps.lengths_s == [], "the first was there until then"
    assert ledger.full_rotation_s == 900


def test_outages_are_told_apart_and_measured_like_gaps() -> None:
    """One counts from where measuring begins, one that is open at the end ends there, a handover is none."""
    ledger = Ledger(ONE)
    for time, in_rotation in [(0, 0), (350, 2), (400, 0), (460, 1), (500, 0), (500, 1), (700, 0)]:
        ledger.to(time)
        ledger.in_rotation = in_rotation
    ledger.close(800)
    assert ledger.zero.lengths_s == [50, 60, 100]


def test_mean_strength_counts_no_more_than_wanted() -> None:
    """A spare doesn't make up for a gap."""
    ledger = Ledger(ReplaySettings(replicas=2, cold_start_s=1))
    for time, ready in [(3, 1), (103, 4)]:
        ledger.to(time)
        ledger.ready = ready
    ledger.close(203)
    assert ledger.ready_share_s == 100 * 0.5 + 100


def test_cost_is_relative_to_on_demand() -> None:
    """A Spot second costs its share of an on-demand second."""
    cloud = ReplayCloud(market([(0, 1)]), ReplaySettings(replicas=2, cold_start_s=100, od_price_ratio=4))
    cloud.launch(SPOT, 1)
    (machine,), _ = cloud.launch(ON_DEMAND, 1)
    cloud.advance(800)
    cloud.terminate(machine)
    ledger = cloud.close(1300)
    assert ledger.cost == pytest.approx((1000 / 4 + 500) / 2000)
