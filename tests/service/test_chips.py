"""What AWS's API doesn't tell of accelerators: every value has a source, and none is missing unnoticed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from spotrelay.file import catalog
from spotrelay.file.catalog.chips import all_chips, document

MAKERS = re.compile(
    r"https://((docs|images|www)\.nvidia\.com|github\.com/NVIDIA"  # the maker of most
    r"|aws\.amazon\.com|d1\.awsstatic\.com|awsdocs-neuron\.readthedocs-hosted\.com)/\S+"
)

PRECISIONS = {"fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8", "int4"}


def pairs() -> Iterator[tuple[str, Any]]:
    """Every value of the data file, as it stands there."""
    told = document()
    for kind in ("architectures", "chips"):
        for name, values in told[kind].items():
            for key, value in values.items():
                inner = value.items() if isinstance(value, dict) else [("", value)]
                yield from ((f"{kind}.{name}.{key}.{sub}", pair) for sub, pair in inner)


@pytest.mark.parametrize(
    ("place", "pair"), list(pairs()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_no_value_is_without_a_source(place: str, pair: Any) -> None:
    """Each is a pair of the value and the key of a source that is there."""
    assert len(pair) == 2, place
    assert pair[1] in document()["sources"], place


def test_sources_are_the_makers_own_pages_with_a_date() -> None:
    """Their address, when the value was checked, and what it says there; none is there for nothing."""
    sources = document()["sources"]
    for key, source in sources.items():
        assert MAKERS.fullmatch(source["url"]), key
        assert date(2026, 11, 1) <= source["date"] <= date(2030, 1, 1), key
        assert source["says"], key
    assert sources.keys() == {pair[1] for _, pair in pairs()}


def test_every_accelerator_that_ec2_names_has_its_table() -> None:
    """A new one in the bundled data fails here until somebody has looked it up; none is left over."""
    assert set(all_chips()) == set(catalog.accelerator_names())


def test_rates_are_of_precisions_that_the_matrix_units_have() -> None:
    """Nothing is said of a precision that the architecture lacks; fp32 is of the ordinary units."""
    for chip in all_chips().values():
        assert set(chip.tflops) <= PRECISIONS, chip.name
        vector = {"fp32"} | ({"fp64"} if chip.name == "V100" else set())
        for precision in set(chip.tflops) - vector:
            assert chip.computes_in(precision), f"{chip.name} {precision}"


def test_dense_rates_double_as_the_width_halves() -> None:
    """A rate "with sparsity" that slipped in would be four times the next wider one's."""
    for chip in all_chips().values():
        for wide, narrow in (
            ("tf32", "bf16"),
            ("bf16", "fp8"),
            ("bf16", "int8"),
            ("fp8", "fp4"),
            ("int8", "int4"),
        ):
            one, other = chip.rate(wide), chip.rate(narrow)
            if one and other and not chip.architecture.value.startswith("Neuron"):
                # Blackwell Ultra's FP4 is three times its FP8: it was made for that.
                most = 3 if chip.name == "B300" and narrow == "fp4" else 2.05
                assert 1.9 <= other / one <= most, f"{chip.name} {wide} {narrow}"


@pytest.mark.parametrize(
    ("name", "bandwidth", "bf16", "fp8", "nvlink"),
    [
        ("L4", 300, 121, 242.5, 0),  # NVIDIA prints 242 and 485, with sparsity
        ("A10G", 600, 70, None, 0),
        ("L40S", 864, 362.05, 733, 0),
        ("A100", 1555, 312, None, 600),
        ("A100-80GB", 2039, 312, None, 600),
        ("H100", 3350, 989.5, 1979, 900),
        ("H200", 4800, 989.5, 1979, 900),
        ("T4", 320, None, None, 0),  # Turing has no BF16
        ("RTX-PRO-6000", 1597, None, None, 0),  # NVIDIA's rates of it are rounded, and unclear about sparsity
        ("RTX-PRO-4500", None, None, None, None),
        ("T4g", None, None, None, None),
    ],
)
def test_well_known_values_are_as_the_makers_print_them(
    name: str, bandwidth: float | None, bf16: float | None, fp8: float | None, nvlink: float | None
) -> None:
    """A sample, and that what couldn't be confirmed stays unknown."""
    chip = all_chips()[name]
    assert (chip.bandwidth, chip.rate("bf16"), chip.rate("fp8"), chip.nvlink) == (
        bandwidth,
        bf16,
        fp8,
        nvlink,
    )


def test_precisions_follow_nvidias_table() -> None:
    """BF16 from Ampere on, FP8 from Ada on, FP4 from Blackwell on; FP64 where there are units for it."""
    having = {
        precision: {chip.name for chip in all_chips().values() if chip.computes_in(precision)}
        for precision in PRECISIONS
    }
    assert having["bf16"].isdisjoint({"T4", "T4g", "V100"})
    assert {"A10G", "A100", "L4", "H100", "RTX-PRO-4500"} <= having["bf16"]
    assert having["fp8"].isdisjoint({"A10G", "A100", "A100-80GB", "T4"})
    assert {"L4", "L40S", "H100", "B200"} <= having["fp8"]
    assert having["fp4"] == {"B200", "B300", "RTX-PRO-4500", "RTX-PRO-6000"}
    assert having["fp64"] == {"A100", "A100-80GB", "H100", "H200", "B200"}


def test_a_type_has_what_ec2_says_of_its_host() -> None:
    """Disk, network and EBS of a sample, checked against AWS's published tables."""
    host = catalog.host_of("g6e.2xlarge")
    assert (host.local_disk_gb, host.network_gbps, host.network_burst_gbps) == (450, 5, 20)
    assert (host.ebs_mb_s, host.ebs_burst_mb_s, host.efa_interfaces) == (250, 625, 0)
    assert catalog.host_of("g6f.xlarge").share == 0.125
    assert catalog.host_of("p5.48xlarge").network_burst_gbps == 3200
    # Its four cards promise 400 each.
    assert catalog.host_of("g6e.48xlarge").network_gbps == 400
    assert catalog.host_of("p4d.24xlarge").network_gbps == 400


def test_no_host_lacks_its_network_or_disk_speed() -> None:
    """EC2 words it in a way that is read for every type."""
    for type_ in catalog.all_types():
        if type_.accelerator:
            host = catalog.host_of(type_.name)
            assert 0 < host.network_gbps <= host.network_burst_gbps, type_.name
            assert 0 < host.ebs_mb_s <= host.ebs_burst_mb_s, type_.name


def test_offerings_are_by_region_and_zone_id() -> None:
    """Every type is somewhere; a type without an accelerator isn't told."""
    assert all(catalog.offered(t.name) for t in catalog.all_types() if t.accelerator)
    assert catalog.offered("p5.4xlarge").keys() <= set(catalog.regions())
    assert catalog.offered("m7i.large") == {}
    zones = catalog.offered("g6.2xlarge")["us-east-1"]
    assert len(zones) >= 3
    assert all(zone.startswith("use1-az") for zone in zones)


def test_trainium2s_memory_is_what_aws_documents() -> None:
    """EC2's API gives each chip 512 GiB; AWS's documentation 96."""
    found = catalog.find_type("trn2.48xlarge")
    assert found is not None
    assert found.accelerator_memory_mib == 512 * 1024
    assert catalog.memory_bytes(found) == 96 * 1024**3
