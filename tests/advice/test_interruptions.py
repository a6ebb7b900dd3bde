"""AWS's Spot Instance Advisor, as it is read."""

from __future__ import annotations

import json

import pytest

from spotrelay.file.catalog import find_type
from spotrelay.operator.advice.comparing import Side, loss
from spotrelay.operator.advice.interruptions import Band, UnreadableAdvisorError, bands

FILE = {
    "ranges": [{"index": 0, "label": "<5%", "dots": 0, "max": 5}],
    "instance_types": {"g5.xlarge": {"cores": 4, "ram_gb": 16, "emr": True}},
    "spot_advisor": {
        "us-east-1": {
            "Linux": {"g5.xlarge": {"s": 63, "r": 4}, "g6.xlarge": {"s": 55, "r": 0}},
            "Windows": {"g5.xlarge": {"s": 20, "r": 1}},
        },
        "eu-west-1": {"Windows": {"g5.xlarge": {"s": 20, "r": 1}}},
    },
}
"""Made up, in the form of AWS's."""


def test_savings_and_range_are_read_of_linux() -> None:
    """By region and type."""
    assert bands(json.dumps(FILE).encode()) == {
        ("us-east-1", "g5.xlarge"): Band(4, 63),
        ("us-east-1", "g6.xlarge"): Band(0, 55),
    }
    assert [str(Band(index, 0)) for index in range(5)] == ["<5%", "5-10%", "10-15%", "15-20%", ">20%"]
    assert (Band(1, 0).least, Band(1, 0).most) == (0.05, 0.1)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>moved</html>",
        b"[]",
        b"{}",
        b'{"spot_advisor": []}',
        b'{"spot_advisor": {"us-east-1": {"Linux": {"g5.xlarge": {"s": 1}}}}}',
        b'{"spot_advisor": {"us-east-1": {"Linux": {"g5.xlarge": {"s": 1, "r": 5}}}}}',
        b'{"spot_advisor": {"us-east-1": {"Linux": {"g5.xlarge": {"s": 1, "r": -1}}}}}',
        b'{"spot_advisor": {"us-east-1": {"Linux": {"g5.xlarge": {"s": "x", "r": 1}}}}}',
        b"\xff\xfe",
    ],
)
def test_what_is_no_such_file_is_told(text: bytes) -> None:
    """Half of a file counts as none."""
    with pytest.raises(UnreadableAdvisorError, match="not the Spot Instance Advisor's data"):
        bands(text)


def side(name: str, count: int, usd: float | None) -> Side:
    """So many of a type."""
    found = find_type(name)
    assert found is not None
    return Side(found, count, usd)


def test_a_side_adds_up_its_instances() -> None:
    """Eight L40S: 8 x 44.7 GiB, 8 x 362.05 TFLOP/s, 8 x 864 GB/s; an unknown rate stays unknown."""
    group = side("g6e.xlarge", 8, 0.7)
    assert group.gpus == 8
    assert group.hourly == pytest.approx(5.6)
    assert group.gpu_bytes == 8 * 45_776 * 1024**2
    assert group.tflops("bf16") == pytest.approx(2896.4)
    assert group.bandwidth_gb_s == 6912
    assert group.link == "network 2.5 Gbit/s"
    one = side("p4d.24xlarge", 1, None)
    assert (one.gpus, one.hourly, one.link) == (8, None, "NVLink 600 GB/s")
    assert one.tflops("fp8") is None
    assert side("g5.12xlarge", 2, None).link == "PCIe, then network 40 Gbit/s"
    assert side("g5.xlarge", 1, None).link == "one GPU"


def test_what_a_group_loses_to_interruptions() -> None:
    """10 to 15 % of instances in 720 hours, 8 of them for 72 hours: 0.08 to 0.12 times.

    Each costs at most half of 30 minutes and 10 more: 25 minutes, so 0.12 x 25/60 hours.
    """
    lost = loss(Band(2, 60), 8, 72, 30, 10)
    assert lost.least == pytest.approx(0.08)
    assert lost.most == pytest.approx(0.12)
    assert lost.hours_lost == pytest.approx(0.05)
