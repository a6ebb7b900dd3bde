"""Writes small recordings for tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path


def pool_json(folder: Path, name: str, data: object, gap_seconds: object = 300) -> Path:
    """A file as the published sets have it, right or wrong."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(json.dumps({"metadata": {"gap_seconds": gap_seconds}, "data": data}), encoding="utf-8")
    return file


def three_zones(folder: Path) -> Path:
    """Two days of three zones; each is dry for some hours, two of them together."""
    steps = 2 * 288
    for zone, dry in (("us-east-1a", (60, 90)), ("us-east-1b", (70, 100)), ("us-west-2a", (300, 320))):
        data = [0 if dry[0] <= step < dry[1] else 4 for step in range(steps)]
        pool_json(folder, f"{zone}_v100_1.json", data)
    return folder


def lines(file: Path, *content: str) -> Path:
    """A text file of these lines."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(content) + "\n", encoding="utf-8")
    return file


def capacity_csv(file: Path, rows: Sequence[str]) -> Path:
    """A file in our own format."""
    return lines(file, "second,zone,instance_type,capacity", *rows)


def price(zone: str, at: str, usd: str, type_: str = "p3.2xlarge", product: str = "Linux/UNIX") -> object:
    """A price as EC2 tells it."""
    return {
        "AvailabilityZone": zone,
        "InstanceType": type_,
        "ProductDescription": product,
        "SpotPrice": usd,
        "Timestamp": at,
    }


def price_history(file: Path, *prices: object) -> Path:
    """An answer of DescribeSpotPriceHistory."""
    return lines(file, json.dumps({"NextToken": "", "SpotPriceHistory": prices}))
