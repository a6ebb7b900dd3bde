"""Which described types satisfy what a service file asks: one definition, for synth and for the survey."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.file import catalog
from spotrelay.plane.core.instance_types import described
from spotrelay.plane.core.requirements import Accelerators, Amount, Requirements, find

TYPES = catalog.all_types()
KINDS = sorted({(t.accelerator, t.accelerator_count) for t in TYPES if t.accelerator_count})
NAMES = [t.name for t in TYPES if t.accelerator]

amounts = st.builds(Amount, st.sampled_from([4, 8, 16, 24, 32, 64, 96]), st.booleans())
maybe = st.none() | amounts
simple = st.builds(
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
requirements = simple | st.builds(
    Requirements,
    alternatives=st.lists(simple, min_size=1, max_size=3).map(tuple),
    arch=st.sampled_from(["x86_64", "arm64"]),
    use_spot=st.booleans(),
)


def names(wanted: Requirements) -> set[str]:
    """The eligible types of the catalog."""
    return {t.name for t in find(wanted, TYPES).types}


@given(simple)
def test_asking_for_less_never_loses_a_type(wanted: Requirements) -> None:
    """The eligible set is monotonic: a requirement dropped or relaxed loses no eligible type."""
    looser = [
        replace(wanted, accelerator_memory_gb=None),
        replace(wanted, cpus=None),
        replace(wanted, memory_gib=None),
        replace(wanted, exclude=wanted.exclude[1:]),
        replace(wanted, use_spot=False),
        replace(wanted, accelerators=(*wanted.accelerators, Accelerators("L4", 1))),
        Requirements(alternatives=(Requirements((L4,)), wanted), arch=wanted.arch, use_spot=wanted.use_spot),
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
    kinds = [these for choice in wanted.choices for these in choice.accelerators]
    candidates = [t.name for t in TYPES if any(these.are_on(t) for these in kinds)]
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


def test_the_least_that_ec2_describes_is_read() -> None:
    """A type may have no accelerator, or one of which no memory is told; old types say i386 first."""
    plain = {
        "InstanceType": "x9.large",
        "VCpuInfo": {"DefaultVCpus": 2},
        "MemoryInfo": {"SizeInMiB": 8192},
        "ProcessorInfo": {"SupportedArchitectures": ["i386", "x86_64"]},
    }
    without = described(plain)
    assert (without.accelerator, without.accelerator_count, without.arch) == ("", 0, "x86_64")
    with_gpu = described({**plain, "GpuInfo": {"Gpus": [{"Name": "X9", "Count": 1}]}})
    assert (with_gpu.accelerator, with_gpu.accelerator_count, with_gpu.spot) == ("X9", 1, False)


PLAIN = [t for t in TYPES if not t.accelerator]
eight = Amount(8, at_least=True)


def test_size_alone_takes_types_without_an_accelerator() -> None:
    """`8+` takes general and memory types on x86_64 with 4 GiB per vCPU, none twice as large as needed."""
    found = find(Requirements(cpus=eight), TYPES)
    assert [t.name for t in found.types] == [
        *(f"{family}.2xlarge" for family in ("m6a", "m6i", "m7a", "m7i", "m8a", "m8i")),
        *(f"{family}.2xlarge" for family in ("r6a", "r6i", "r7a", "r7i", "r8a", "r8i")),
        *(f"{family}.4xlarge" for family in ("m6a", "m6i", "m7a", "m7i", "m8a", "m8i")),
    ]
    reasons = {e.type.name: (e.field, e.reason) for e in found.excluded}
    assert reasons["m7i.xlarge"] == ("cpus", "4 vCPU")
    assert reasons["c7i.4xlarge"] == ("", "less than 4 GiB per vCPU")
    assert reasons["m7i.8xlarge"] == ("", "more than 2 times as large as m6a.2xlarge")


@given(
    st.builds(Amount, st.integers(1, 192), st.booleans()),
    st.none() | st.integers(1, 768).map(lambda gib: Amount(gib, at_least=True)),
)
def test_whatever_is_asked_the_smallest_that_does_is_there(cpus: Amount, memory: Amount | None) -> None:
    """The limit on size never empties the choice, and nothing that is chosen lacks what was asked."""
    wanted = Requirements(cpus=cpus, memory_gib=memory)
    found = find(wanted, PLAIN)
    assert all(cpus.accepts(t.vcpus) and (not memory or memory.accepts(t.memory_gib)) for t in found.types)
    assert {t.arch for t in found.types} <= {"x86_64"}
    fit = [e for e in found.excluded if not e.field and "as large" in e.reason]
    assert found.types or not fit


def test_a_gpu_is_never_launched_for_a_service_without_one() -> None:
    """No type with an accelerator, bare metal, burstable or of another architecture is general."""
    for memory in (1, 16, 64, 512):
        types = find(Requirements(memory_gib=Amount(memory, at_least=True)), TYPES).types
        assert types
        assert not [t.name for t in types if t.accelerator or t.bare_metal or t.arch != "x86_64"]
        assert {t.family[0] for t in types} <= set("cmr")


def test_named_types_need_not_be_general() -> None:
    """A burstable type and an arm64 one are taken if they are named."""
    assert names(Requirements(instance_types=("t3.large",))) == {"t3.large"}
    assert names(Requirements(instance_types=("m7g.large", "c7g.large"))) == {"m7g.large", "c7g.large"}


L4, A10G = Accelerators("L4", 1), Accelerators("A10G", 1)


def test_alternatives_are_taken_in_their_order() -> None:
    """Each asks on its own; a type that one takes isn't excluded because another doesn't."""
    wanted = Requirements(
        alternatives=(
            Requirements((L4,), cpus=Amount(8, at_least=False)),
            Requirements((A10G,), exclude=("g5.xlarge",)),
            Requirements((L4,), cpus=Amount(4, at_least=False)),
        )
    )
    found = find(wanted, TYPES)
    g5 = [f"g5.{size}" for size in ("2xlarge", "4xlarge", "8xlarge", "16xlarge")]
    assert [t.name for t in found.types] == ["g6.2xlarge", *g5, "g6.xlarge"]
    assert {e.type.name: e.field for e in found.excluded}["g5.xlarge"] == "exclude"
    assert "g6.2xlarge" not in {e.type.name for e in found.excluded}


def test_alternatives_share_one_architecture_and_the_way_of_buying() -> None:
    """One image serves all: T4g beside L4 adds nothing, and what isn't sold as Spot is no Spot candidate."""
    both = (Requirements((Accelerators("T4g", 1),)), Requirements((L4,)))
    assert {t.accelerator for t in find(Requirements(alternatives=both), TYPES).types} == {"L4"}
    unsold = [replace(t, spot=False) for t in TYPES]
    assert not find(Requirements(alternatives=both), unsold).types
    assert find(Requirements(alternatives=both, use_spot=False), unsold).types


def test_alternatives_of_alternatives_cannot_be_read() -> None:
    """One level is all that there is; a document that is deeper would recurse."""
    inner = Requirements(alternatives=(Requirements((L4,)),))
    with pytest.raises(ValueError, match="alternatives of alternatives"):
        Requirements.from_dict(Requirements(alternatives=(inner,)).to_dict())
