"""Small markets made by hand, for the tests of the replay."""

from lab.replay.traces import PoolTrace, Trace
from spotrelay.plane.core.pools import CapacityPool, PurchaseOption

SPOT, ON_DEMAND = PurchaseOption.SPOT, PurchaseOption.ON_DEMAND

ZONES = tuple(f"us-east-1{letter}" for letter in "abcdefghi")


def pool(zone: str = "us-east-1a") -> CapacityPool:
    """The pool of that zone in the traces made here."""
    return CapacityPool(zone[:-1], zone, "v100:1")


def market(*capacities: list[tuple[float, int]], duration_s: float = 10_000.0) -> Trace:
    """A trace with one pool for each list of (second, instances held from then on)."""
    pools = zip(ZONES, capacities, strict=False)
    return Trace("by hand", tuple(PoolTrace(pool(z), tuple(c)) for z, c in pools), duration_s)
