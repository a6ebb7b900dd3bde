"""What a run adds up to: strength, gaps and cost, exact between events and only there."""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.replay.settings import ReplaySettings
from spotrelay.plane.core.pools import PurchaseOption


@dataclass(slots=True)
class Periods:
    """How long each period lasted in which something was so."""

    lengths_s: list[float] = field(default_factory=list)
    """Of those that are over, in order."""
    _since: float | None = None

    def note(self, is_so: bool, time: float) -> None:
        """From this time on it is so, or isn't."""
        if is_so and self._since is None:
            self._since = time
        elif not is_so and self._since is not None:
            self.lengths_s.append(time - self._since)
            self._since = None


@dataclass(slots=True)
class Ledger:
    """Integrates over time what the cloud tells it.

    Nothing before `settings.measured_from_s` counts. Whoever changes a number calls `to` first.
    """

    settings: ReplaySettings
    now: float = 0.0
    ready: int = 0
    """Replicas that serve: those that are warned do until EC2 takes them."""
    in_rotation: int = 0
    """Replicas that get new requests."""
    spot: float = 0
    """Spot instances that are paid for, each times its pool's price now, in mean Spot prices."""
    on_demand: int = 0
    """On-demand instances that are paid for."""
    stopped: int = 0
    """Standbys that are stopped: their disks are paid for."""
    measured_s: float = 0.0
    full_s: float = 0.0
    """With at least N ready."""
    full_rotation_s: float = 0.0
    """With at least N in rotation."""
    ready_share_s: float = 0.0
    """Integral of min(ready, N) / N."""
    spot_s: float = 0.0
    """Instance seconds on Spot, each times its price then."""
    on_demand_s: float = 0.0
    """Instance seconds on-demand."""
    stopped_s: float = 0.0
    """Instance seconds of stopped standbys."""
    strength_s: dict[int, float] = field(default_factory=dict)
    """By number of ready replicas: for how long."""
    gaps: Periods = field(default_factory=Periods)
    """With fewer than N ready."""
    zero: Periods = field(default_factory=Periods)
    """With nobody in rotation: every request fails then."""
    losses: int = 0
    """Spot instances that EC2 took."""
    launches: int = 0
    """Instances that started."""
    refusals: int = 0
    """Launch requests that got less than they asked for."""

    @property
    def is_measuring(self) -> bool:
        """Whether what happens now counts."""
        return self.now >= self.settings.measured_from_s

    def to(self, time: float) -> None:
        """Everything has been as it is until this time."""
        begin = max(self.now, self.settings.measured_from_s)
        self.now = max(time, self.now)
        duration_s = time - begin
        if duration_s <= 0:
            return
        wanted = self.settings.replicas
        self.measured_s += duration_s
        self.strength_s[self.ready] = self.strength_s.get(self.ready, 0.0) + duration_s
        self.ready_share_s += duration_s * min(self.ready, wanted) / wanted
        self.spot_s += duration_s * self.spot
        self.on_demand_s += duration_s * self.on_demand
        self.stopped_s += duration_s * self.stopped
        if self.in_rotation >= wanted:
            self.full_rotation_s += duration_s
        if self.ready >= wanted:
            self.full_s += duration_s
        self.gaps.note(self.ready < wanted, begin)
        self.zero.note(self.in_rotation == 0, begin)

    def close(self, time: float) -> None:
        """The run is over: what still lasts ends here."""
        self.to(time)
        self.gaps.note(False, time)
        self.zero.note(False, time)

    def paid(self, option: PurchaseOption, change: int, price: float = 1.0) -> None:
        """So many more instances are paid for, or fewer; on Spot at this price, in mean Spot prices."""
        if option is PurchaseOption.SPOT:
            self.spot += change * price
        else:
            self.on_demand += change

    @property
    def cost(self) -> float:
        """Relative to N on-demand replicas for as long."""
        disks = self.stopped_s * self.settings.standby_price
        paid = self.spot_s / self.settings.od_price_ratio + self.on_demand_s + disks
        return paid / (self.settings.replicas * self.measured_s)
