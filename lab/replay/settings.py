"""What a replay assumes of the service and of EC2: the same for every policy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from spotrelay.plane.core.spec import OnRebalance, OnWarning

SETTLED_AFTER_COLD_STARTS = 3.0
"""Measuring begins so many cold starts after the trace does, for every policy alike. A fleet that is launched
for the first time is empty for one cold start, which is nobody's interruption; a second one is for what polls
before it launches on-demand, the third is slack."""


class ReplaySettingsError(ValueError):
    """A setting that no replay can be run with: which, its value, what to give instead."""


MOST_FALSE = 0.99
"""With this share of false recommendations there are ninety-nine for a true one: more is noise only."""


@dataclass(frozen=True, slots=True)
class ReplaySettings:
    """What holds throughout a run.

    Raises:
        SettingsError: a value that makes no sense.
    """

    replicas: int = 3
    """The service's target, N."""
    cold_start_s: float = 120.0
    """From EC2's answer to the launch until the replica can serve: model loaded, health checks passed."""
    warning_s: float = 120.0
    """How long before it takes an instance EC2 says so; 0 for never."""
    warning_loss: float = 0.0
    """Share of the warnings whose event reaches nobody."""
    recommendations: float = 0.0
    """Share of the moments in which a pool comes to hold less that rebalance recommendations announce."""
    false_recommendations: float = 0.0
    """Share of all the recommendations that nothing follows."""
    od_price_ratio: float = 3.0
    """On-demand price / mean Spot price, in every pool."""
    on_demand_dry: float = 0.0
    """Share of the spells without any Spot in which on-demand can't be had either."""
    seed: int = 0
    """Decides everything that is left to chance."""
    on_warning: OnWarning = OnWarning.NEEDED
    """When the production controller takes a warned replica out of rotation. No other policy knows it."""
    on_rebalance: OnRebalance = OnRebalance.IGNORE
    """What the production controller does about recommendations. No other policy hears them."""
    standby: int | Literal["auto"] = 0
    """Standbys of the production controller: stopped on-demand instances that it resumes; auto: as many as it
    finds to pay. No other policy has any."""
    standby_start_s: float = 60.0
    """From EC2's answer to a resume until the replica can serve, health checks passed."""
    standby_refusal: float = 0.0
    """Share of the resumes that EC2 refuses, each by itself."""
    standby_price: float = 0.03
    """What a stopped one costs, its disk, as a share of the on-demand price: 2 to 4 % for disks of 100 to
    200 GB beside one GPU."""
    drain_s: float = 30.0
    """How long its replicas may finish their requests: 30 s for short answers, as a chat's."""
    rebalance_cost: float | None = None
    """By which share Spot must be cheaper elsewhere for the production controller to move a replica; None: it
    moves none. No other policy does."""

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise ReplaySettingsError(f"replicas is {self.replicas}: give 1 or more")
        _check("cold start", self.cold_start_s, "more than 0 seconds", self.cold_start_s > 0)
        _check("warning", self.warning_s, "0 seconds (no warnings) or more", self.warning_s >= 0)
        _check("warning loss", self.warning_loss, "a share from 0 to 1", 0 <= self.warning_loss <= 1)
        _check("recommendations", self.recommendations, "a share from 0 to 1", 0 <= self.recommendations <= 1)
        false = self.false_recommendations
        _check("false recommendations", false, "a share from 0 to 0.99", 0 <= false <= MOST_FALSE)
        _check("on-demand price ratio", self.od_price_ratio, "more than 0", self.od_price_ratio > 0)
        _check("on-demand dry", self.on_demand_dry, "a share from 0 to 1", 0 <= self.on_demand_dry <= 1)
        if self.standby != "auto":
            _check("standbys", self.standby, "0 or more", self.standby >= 0)
        _check("standby start", self.standby_start_s, "more than 0 seconds", self.standby_start_s > 0)
        _check("standby refusal", self.standby_refusal, "a share from 0 to 1", 0 <= self.standby_refusal <= 1)
        _check("standby price", self.standby_price, "a share from 0 to 1", 0 <= self.standby_price <= 1)
        if self.rebalance_cost is not None:
            share = self.rebalance_cost
            _check("rebalance cost", share, "a share from 0.05 to 0.9", 0.05 <= share <= 0.9)
        _check("drain", self.drain_s, "0 seconds or more", self.drain_s >= 0)

    @property
    def measured_from_s(self) -> float:
        """When measuring begins, in seconds since the trace's start."""
        return SETTLED_AFTER_COLD_STARTS * self.cold_start_s


def _check(name: str, value: float, wanted: str, is_fine: bool) -> None:
    if not (is_fine and math.isfinite(value)):
        raise ReplaySettingsError(f"{name} is {value:g}: give {wanted}")
