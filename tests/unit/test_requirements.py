"""Which described types satisfy what a service file asks: one definition, for synth and for the survey."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay import catalog
from spotrelay.core.instance_types import described
from spotrelay.core.requirements import Accelerators, Amount, Requirements, find

TYPES = catalog.all_types()
KINDS = sorted({(t.accelerator, t.accelerator_count) for t in TYPES if t.accelerator_count})
NAMES = [t.name for t in TYPES]

amounts = st.builds(Amount, st.sampled_from([4, 8, 16, 24, 32, 64, 96]), st.booleans())
maybe = st.none() | amounts
requirements = st.builds(
    Requirements,
    accelerators=st.lists(
        st.sampled_from([Accelerators(*kind) for kind in KINDS]), min_size=1, max_size=4, unique=True
    ).map(tuple),
    accelerator_memory_gb=maybe,
    cpus=maybe,
    memory_gib=maybe,
    exclude=st.lists(st.sampled_from([*NAMES, "g5", "g6", "p4d"]), max_size=3, unique=True).map(tuple),
    zones=st.lists(st.sampled_from(["us-east-1a", "us-east-1b"]), unique=True).map(tuple),
    regions=st.lists(st.sampled_from(["us-east-1", "eu-west-1"]), unique=True).map(tuple),
    arch=st.sampled_from(["x86_64", "arm64"]),
    use_spot=st.booleans(),
)


def names(wanted: Requirements) -> set[str]:
    """The eligible types of the catalog."""
    return {t.name for t in find(wanted, TYPES).types}


@given(requirements)
def test_asking_for_less_never_loses_a_type(wanted: Requirements) -> None:
    """The eligible set is monotonic: a requirement dropped or relaxed loses no eligible type."""
    looser = [
        replace(wanted, accelerator_memory_gb=None),
        replace(wanted, cpus=None),
        replace(wanted, memory_gib=None),
        replace(wanted, exclude=wanted.exclude[1:]),
        replace(wanted, use_spot=False),
        replace(wanted, accelerators=(*wanted.accelerators, Accelerators("L4", 1))),
    ]
    if wanted.cpus:
        looser.append(replace(wanted, cpus=Amount(max(1, wanted.cpus.value // 2), at_least=True)))
    for other in looser:
        assert names(wanted) <= names(other)


@given(requirements, st.randoms())
def test_the_order_of_descriptions_makes_no_difference(wanted: Requirements, random: object) -> None:
    """EC2 describes types in any order; the answer, order included, is always the same."""
    shuffled = list(TYPES)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis' Random has no public type
    assert find(wanted, shuffled) == find(wanted, TYPES)


@given(requirements)
def test_every_candidate_is_eligible_or_told_why_not(wanted: Requirements) -> None:
    """Each type with the accelerators is in exactly one of the two lists."""
    found = find(wanted, TYPES)
    candidates = [t.name for t in TYPES if any(these.are_on(t) for these in wanted.accelerators)]
    assert sorted(candidates) == sorted([t.name for t in found.types] + [e.type.name for e in found.excluded])
    assert all(exclusion.reason for exclusion in found.excluded)


@given(requirements)
def test_requirements_survive_the_runtime_document(wanted: Requirements) -> None:
    """What the stack writes as JSON the survey reads as the same requirements."""
    assert Requirements.from_dict(json.loads(json.dumps(wanted.to_dict()))) == wanted


def test_nothing_asked_is_nothing_found() -> None:
    """Requirements that name neither types nor accelerators nor their memory match nothing, not all."""
    assert find(Requirements(), TYPES).types == ()
    assert Requirements.from_dict(Requirements().to_dict()) == Requirements()


def test_listed_types_keep_their_order_and_must_have_the_rest() -> None:
    """Types that EC2 doesn't describe here are left out; those without the accelerators are excluded."""
    wanted = Requirements(
        accelerators=(Accelerators("L4", 1),),
        instance_types=("g6.2xlarge", "g5.xlarge", "g9.none", "g6.xlarge"),
    )
    found = find(wanted, TYPES)
    assert [t.name for t in found.types] == ["g6.2xlarge", "g6.xlarge"]
    assert [(e.type.name, e.field, e.reason) for e in found.excluded] == [
        ("g5.xlarge", "accelerators", "A10G:1")
    ]


def test_a_type_that_is_new_is_found() -> None:
    """A family that no list of ours knows is eligible as soon as EC2 describes it."""
    new = replace(next(t for t in TYPES if t.name == "g6.2xlarge"), name="g99.2xlarge", accelerator="L99")
    wanted = Requirements(accelerator_memory_gb=Amount(24, at_least=True))
    assert "g99.2xlarge" in {t.name for t in find(wanted, (*TYPES, new)).types}


@pytest.mark.parametrize(
    "values",
    [{"gpus": 1}, {"cpus": "many"}, {"cpus": "0"}, {"accelerators": ["L4"]}, {"accelerators": ["L4:x"]}],
)
def test_requirements_that_cannot_be_read_are_an_error(values: dict[str, object]) -> None:
    """A requirement is never ignored: that would launch what the service file rules out."""
    with pytest.raises(ValueError, match=r"\w"):
        Requirements.from_dict(values)


def test_zones_and_regions_limit_only_where_they_are_named() -> None:
    """No list allows everything, a list only what is in it."""
    anywhere, somewhere = Requirements(), Requirements(zones=("us-east-1a",), regions=("us-east-1",))
    assert anywhere.allows_zone("eu-west-1c")
    assert anywhere.allows_region("eu-west-1")
    assert somewhere.allows_zone("us-east-1a")
    assert not somewhere.allows_zone("us-east-1b")
    assert not somewhere.allows_region("eu-west-1")


def test_a_description_without_an_accelerator_is_none() -> None:
    """m5.large is no candidate for anything, and a description with the least that EC2 says is read."""
    plain = {
        "InstanceType": "x9.large",
        "VCpuInfo": {"DefaultVCpus": 2},
        "MemoryInfo": {"SizeInMiB": 8192},
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
    }
    assert described(plain) is None
    with_gpu = described({**plain, "GpuInfo": {"Gpus": [{"Name": "X9", "Count": 1}]}})
    assert with_gpu is not None
    assert (with_gpu.accelerator, with_gpu.accelerator_count, with_gpu.spot) == ("X9", 1, False)
