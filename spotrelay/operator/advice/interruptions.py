"""How often EC2 takes Spot instances back: AWS's Spot Instance Advisor.

The file behind https://aws.amazon.com/ec2/spot/instance-advisor/ that anybody may read:

    {"ranges": [{"index": 0, "label": "<5%", "max": 5, …}, …],
     "spot_advisor": {"us-east-1": {"Linux": {"g5.xlarge": {"s": 63, "r": 4}, …}, …}, …}, …}

`r` is the range of how many instances were interrupted in the last 30 days, `s` the average saving against
on-demand, in percent. It tells neither zones nor times, so it doesn't rank: most GPU types share the top
range.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

BUCKET, KEY = "spot-bid-advisor", "spot-advisor-data.json"
URL = f"https://{BUCKET}.s3.amazonaws.com/{KEY}"

SPAN = timedelta(days=30)
"""What the ranges are about."""

MOST_BYTES = 64 * 1024 * 1024
"""It has a few megabytes."""

_LABELS = ("<5%", "5-10%", "10-15%", "15-20%", ">20%")
_LEAST, _MOST = (0, 5, 10, 15, 20), (5, 10, 15, 20, 100)


class UnreadableAdvisorError(Exception):
    """It isn't what AWS publishes."""


@dataclass(frozen=True, slots=True)
class Band:
    """What the advisor says of a type in a region."""

    index: int
    savings: int
    """Percent under on-demand."""

    def __str__(self) -> str:
        return _LABELS[self.index]

    @property
    def least(self) -> float:
        """Share of instances interrupted in `SPAN`, at least."""
        return _LEAST[self.index] / 100

    @property
    def most(self) -> float:
        """The same at most; nobody says how many more than 20 % the top range is."""
        return _MOST[self.index] / 100


def bands(text: bytes) -> Mapping[tuple[str, str], Band]:
    """Region and type → what the advisor says of it as Linux.

    Raises:
        UnreadableAdvisorError: it isn't the file described above.
    """
    try:
        told: Any = json.loads(text)
        return {
            (str(region), str(name)): Band(_index(row["r"]), int(row["s"]))
            for region, by_system in told["spot_advisor"].items()
            for name, row in by_system.get("Linux", {}).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableAdvisorError(f"not the Spot Instance Advisor's data: {error!r}") from error


def _index(value: Any) -> int:
    index = int(value)
    if not 0 <= index < len(_LABELS):
        raise ValueError(f"a range {index}")
    return index
