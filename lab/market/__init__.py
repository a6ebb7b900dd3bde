"""A Spot market: capacity pools that fill up, dry up and come back, and a price for each.

Pure: no clock and no I/O. Time is passed in, and whatever looks random is a hash of the seed, so the same
calls give the same answers. The local cloud answers EC2's launch calls from it; a simulator can drive it from
a trace with `Market.set_capacity`.
"""

from lab.market.allocation import (
    Allocation,
    Candidate,
    MarketGrant,
    MarketRefusal,
    MarketRequest,
    RefusalCode,
    Strategy,
)
from lab.market.market import Market, PoolState

__all__ = [
    "Allocation",
    "Candidate",
    "Market",
    "MarketGrant",
    "MarketRefusal",
    "MarketRequest",
    "PoolState",
    "RefusalCode",
    "Strategy",
]
