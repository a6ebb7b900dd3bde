"""The catalog: AWS's data, unchanged but for the names of a few GPUs."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.file import catalog
from spotrelay.file.catalog import refresh
from spotrelay.plane.core.instance_types import described


def test_the_data_files_are_what_refresh_makes_of_the_installed_moto() -> None:
    """The committed data is not edited by hand, and not older than the pinned moto."""
    source = refresh.source_of_moto(catalog.origin().date)
    fresh_files = refresh.files(refresh.answers_of_moto(), refresh.offerings_of_moto(), source)
    for name, fresh in fresh_files.items():
        committed = resources.files("spotrelay.file.catalog").joinpath(name).read_text(encoding="utf-8")
        assert json.loads(committed) == json.loads(fresh), "run: python -m spotrelay.file.catalog.refresh"


def test_ec2_itself_may_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a region, refresh reads every page of EC2's own answer; the rows are made as of moto's."""
    (sample,) = [a for a in refresh.answers_of_moto() if a["InstanceType"] == "m7i.2xlarge"]
    asked: list[str] = []

    class Ec2:
        def get_paginator(self, name: str) -> Ec2:
            asked.append(name)
            return self

        def paginate(self) -> list[dict[str, object]]:
            return [{"InstanceTypes": []}, {"InstanceTypes": [sample]}]

    def client(name: str, region_name: str) -> Ec2:
        asked.extend((name, region_name))
        return Ec2()

    monkeypatch.setattr("boto3.client", client)
    answers = refresh.answers_of_ec2("us-east-1")
    assert asked == ["ec2", "us-east-1", "describe_instance_types"]
    assert refresh.plain(answers) == [["m7i", "x86_64", {"2xlarge": [8, 32768]}]]


def test_ec2_itself_may_be_asked_where_types_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zones by their IDs, which are the same in every account; Local Zones and other types are left out."""
    asked: list[dict[str, str]] = []

    class Ec2:
        def get_paginator(self, name: str) -> Ec2:
            assert name == "describe_instance_type_offerings"
            return self

        def paginate(self, **question: str) -> list[dict[str, object]]:
            asked.append(question)
            rows = [("g6.xlarge", "use1-az4"), ("g6.xlarge", "use1-az1"), ("m7i.large", "use1-az1")]
            rows.append(("g6.xlarge", "use1-atl2-az1"))
            return [{"InstanceTypeOfferings": [{"InstanceType": t, "Location": z} for t, z in rows]}]

    monkeypatch.setattr("boto3.client", lambda *_, **__: Ec2())
    found = refresh.offered(["g6.xlarge", "g5.xlarge"], refresh.offerings_of_ec2("us-east-1"))
    assert asked == [{"LocationType": "availability-zone-id"}]
    assert found == {"g5.xlarge": {}, "g6.xlarge": {"us-east-1": ["use1-az1", "use1-az4"]}}


def test_the_catalog_reads_a_plain_type_as_ec2_describes_it() -> None:
    """A line for each family loses nothing that a type without an accelerator has."""
    told = {type_.name: type_ for type_ in map(described, refresh.answers_of_moto())}
    plain = [type_ for type_ in catalog.all_types() if not type_.accelerator]
    assert len(plain) > 500
    assert all(told[type_.name] == type_ for type_ in plain)


def test_no_type_with_an_accelerator_can_hibernate() -> None:
    """EC2 says so of each; once it says otherwise, standbys may hibernate: see the record on standbys."""
    able = {answer["InstanceType"] for answer in refresh.answers_of_moto() if answer["HibernationSupported"]}
    assert able, "EC2 says it at all"
    assert not [t.name for t in catalog.all_types() if t.accelerator and t.name in able]


def test_the_data_says_where_it_comes_from_and_when() -> None:
    """Origin, licence and date stand in the data file."""
    origin = catalog.origin()
    assert "getmoto/moto" in origin.source
    assert origin.licence == "Apache-2.0"
    assert date.fromisoformat(origin.date) >= date(2026, 11, 1)


def test_list_prices_say_of_what_day_and_region_they_are() -> None:
    """With licence and source; all are of types with an accelerator. Three beside AWS's page of that time."""
    found = catalog.list_prices()
    assert "karpenter-provider-aws" in found.origin.source
    assert (found.origin.licence, found.region) == ("Apache-2.0", "us-east-1")
    assert date(2026, 2, 9) <= date.fromisoformat(found.origin.date)
    assert found.usd.keys() <= {type_.name for type_ in catalog.all_types() if type_.accelerator}
    assert len(found.usd) >= 68
    assert [found.usd[name] for name in ("g5.xlarge", "g6e.xlarge", "p5.48xlarge")] == [1.006, 1.861, 55.04]


def test_list_prices_are_read_from_karpenters_file() -> None:
    """Those of the types that are asked for; another file is refused."""
    text = (
        "// generated at 2026-02-09T13:43:35Z for us-east-1\n\n"
        '\t\t"c5.large": 0.085000, "g5.xlarge": 1.006000,\n\t\t"p6-b200.48xlarge": 113.932800,\n'
    )
    found = refresh.listed(text, ["g5.xlarge", "p6-b200.48xlarge", "g7.2xlarge"])
    assert (found["date"], found["region"], found["licence"]) == ("2026-02-09", "us-east-1", "Apache-2.0")
    assert found["usd_per_hour"] == {"g5.xlarge": 1.006, "p6-b200.48xlarge": 113.9328}
    for other in ("package pricing", text.replace("generated", "made"), text.split("\n")[0]):
        with pytest.raises(ValueError, match="no prices"):
            refresh.listed(other, ["g5.xlarge"])


@pytest.mark.parametrize(
    ("name", "accelerator", "count", "vcpus", "memory_gib"),
    [
        ("g5.12xlarge", "A10G", 4, 48, 192),  # more GPUs than the larger g5.16xlarge
        ("g5.16xlarge", "A10G", 1, 64, 256),
        ("g6e.2xlarge", "L40S", 1, 8, 64),
        ("g4dn.xlarge", "T4", 1, 4, 16),
        ("p4d.24xlarge", "A100", 8, 96, 1152),
        ("p4de.24xlarge", "A100-80GB", 8, 96, 1152),
        ("p5e.48xlarge", "H200", 8, 192, 2048),
        ("inf2.xlarge", "Inferentia2", 1, 4, 16),
        ("m7i.2xlarge", "", 0, 8, 32),
        ("c7a.4xlarge", "", 0, 16, 32),
        ("r6i.large", "", 0, 2, 16),
        ("t3.medium", "", 0, 2, 4),
    ],
)
def test_well_known_types_are_as_aws_publishes_them(
    name: str, accelerator: str, count: int, vcpus: int, memory_gib: int
) -> None:
    """A sample of types, checked against AWS's published tables."""
    found = catalog.find_type(name)
    assert found is not None
    assert (found.accelerator, found.accelerator_count, found.vcpus) == (accelerator, count, vcpus)
    assert found.memory_gib == memory_gib


def test_a_share_of_a_gpu_counts_as_none() -> None:
    """g6f has an eighth of an L4, so it must never satisfy `L4:1`."""
    found = catalog.find_type("g6f.xlarge")
    assert found is not None
    assert (found.accelerator, found.accelerator_count) == ("L4", 0)


def test_only_nvidias_chips_count_as_nvidias() -> None:
    """Inferentia, Trainium and other makes are told apart from CUDA GPUs."""
    assert {t.accelerator for t in catalog.all_types() if t.accelerator and not t.is_nvidia} == {
        "Inferentia",
        "Inferentia2",
        "Qualcomm AI100",
        "Trainium",
        "Trainium2",
    }


@given(st.sampled_from(catalog.accelerator_names()), st.randoms(use_true_random=False))
def test_case_spaces_and_hyphens_do_not_count_in_accelerator_names(name: str, random: object) -> None:
    """Every name is found however it is capitalised and separated."""
    choice = random.choice  # type: ignore[attr-defined]  # hypothesis' Random has no public type
    written = "".join(choice((c.lower(), c.upper())) for c in name).replace("-", choice(("-", " ", "")))
    assert catalog.find_accelerator(written) == name


def test_other_peoples_names_are_understood() -> None:
    """SkyPilot's and NVIDIA's names lead to ours; unknown ones to nothing."""
    assert catalog.find_accelerator("A100-40GB") == "A100"
    assert catalog.find_accelerator("RTXPRO6000") == "RTX-PRO-6000"
    assert catalog.find_accelerator("RTX PRO Server 6000") == "RTX-PRO-6000"
    assert catalog.find_accelerator("GTX1080") is None
    assert catalog.find_accelerator("") is None
    assert catalog.find_type("m4.large") is None


def test_the_catalog_needs_the_standard_library_only() -> None:
    """Runtime code may use the catalog: it pulls in neither pydantic nor ruamel.yaml nor moto."""
    code = (
        "import sys, spotrelay.file.catalog as c; c.all_types(); "
        "print(sorted({'pydantic', 'ruamel', 'moto', 'boto3'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
