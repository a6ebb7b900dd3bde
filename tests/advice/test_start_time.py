"""What a start takes is worked out as docs/cold-start.md says it, and what was measured counts more."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from spotrelay.file.catalog import find_type
from spotrelay.operator.advice.start_time import (
    LLAMA_CPP,
    NOT_OURS,
    PARTS,
    UNKNOWN,
    VLLM,
    Estimate,
    Image,
    Measured,
    Packed,
    Phase,
    Setting,
    Span,
    Weights,
    estimates,
    fetched_from_hub,
    measured,
    rates,
    total,
    usual_pack,
)
from spotrelay.plane.core.instance_types import InstanceType
from spotrelay.plane.core.replica import Phase as Told
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.view.starts import Part, Start, start_of
from tests.examples import spot_pool
from tests.operate.replicas import START, replica

PAGE = Path("docs/cold-start.md").read_text(encoding="utf-8")


def type_of(name: str) -> InstanceType:
    """From the catalog."""
    found = find_type(name)
    assert found is not None
    return found


G6 = type_of("g6.2xlarge")
"""Of which the page's figures are."""

MEDIUM = Setting(disk_tier="medium", throughput_mibps=250)
LLAMA3 = replace(MEDIUM, engine=VLLM, weights=Weights.HUB, weights_bytes=16e9)
SDXL = replace(MEDIUM, weights=Weights.HUB, weights_bytes=6.9e9)
QUICK = replace(MEDIUM, engine=LLAMA_CPP, weights_bytes=4.9e9)
BUCKET = replace(LLAMA3, weights=Weights.BUCKET)


def rows(title: str) -> dict[str, list[str]]:
    """The cells of the tables below a title of the page, by their first one; the first of equals."""
    (below,) = re.findall(rf"^##+ {re.escape(title)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    found: dict[str, list[str]] = {}
    for line in below.splitlines():
        if line.startswith("| "):
            first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            found.setdefault(first.strip("* "), [cell.strip("* ") for cell in cells])
    return found


def span(cells: list[str]) -> Span:
    """A row's shortest and longest."""
    return Span(float(cells[0].partition(":")[0]), float(cells[1].partition(":")[0]))


def within(cell: str) -> Span:
    """A cell's `40 to 60`."""
    numbers = re.match(r"(\d+) to (\d+)", cell)
    assert numbers, cell
    return Span(float(numbers[1]), float(numbers[2]))


def took(setting: Setting, type_: InstanceType = G6) -> dict[Phase, Span]:
    """By phase, in whole seconds."""
    return {one.phase: one.span.rounded for one in estimates(setting, type_)}


FIRST = rows("The first start of llama3.yaml")
ACCESS = span(FIRST["access to the model is asked for"])
"""A request of its set-up, which only its file says."""


def test_llama3_takes_what_the_page_says() -> None:
    """Each row of its table, and the sum."""
    found = took(LLAMA3)
    assert found[Phase.BOOT] == span(FIRST["EC2's answer, boot, driver, `nvidia-smi`"])
    assert found[Phase.SET_UP] == span(FIRST["uv, Python 3.12, 199 packages: 4 GB, 9 GB unpacked"])
    assert fetched_from_hub(LLAMA3)[0] == span(FIRST["16 GB of weights to the instance store"])
    own = ("vLLM: imports", "weights to the GPU", "`torch")
    load = sum((span(FIRST[n]) for n in FIRST if n.startswith(own)), start=fetched_from_hub(LLAMA3)[0])
    assert found[Phase.LOAD] == load
    assert found[Phase.BALANCER] == span(FIRST["probe, health check, registration"])
    assert total(estimates(LLAMA3, G6)) + ACCESS == span(FIRST["sum"])


def test_a_pack_and_a_bucket_make_of_llama3_what_the_page_says() -> None:
    """Its sums with a pack, with a bucket, and with both."""
    packed = replace(LLAMA3, pack=usual_pack(VLLM))
    assert f"**{total(estimates(packed, G6))}** in all" in PAGE
    both = replace(packed, weights=Weights.BUCKET, is_on_volume=False)
    assert f"on the instance store: **{total(estimates(both, G6))}**" in PAGE
    its = rows("Its model from a bucket")
    alone = replace(BUCKET, sets_up=False)
    assert took(alone)[Phase.MODELS] == span(its["16 GB of weights, from the boot on"])
    assert Phase.MODELS not in took(BUCKET), "set-up takes longer"
    assert total(estimates(BUCKET, G6)) + ACCESS == span(its["sum of the table above, without its row"])


@pytest.mark.parametrize(("column", "name"), [(0, "g6.2xlarge"), (1, "g6e.2xlarge")])
def test_all_means_make_of_llama3_what_the_page_says(column: int, name: str) -> None:
    """On both instances, phase by phase, and what the sums would be with the engine's best published rows."""
    its = {phase: cells[column] for phase, cells in rows("All of it, on two instances").items()}
    everything = replace(BUCKET, pack=usual_pack(VLLM), is_on_volume=False, caches=frozenset({"L4", "L40S"}))
    found = took(everything, type_of(name))
    assert found[Phase.BOOT] == within(its["EC2's answer, boot, driver, `nvidia-smi`"])
    assert found[Phase.SET_UP] == within(its["its pack"])
    left = float(its["of the weights after the pack"])
    assert found.get(Phase.MODELS, Span(0, 0)) == Span(left, left)
    engine = [
        within(its[n]) for n in its if n.startswith(("vLLM: imports", "weights to", "compiled already"))
    ]
    assert found[Phase.LOAD] == sum(engine[1:], start=engine[0])
    assert found[Phase.BALANCER] == within(its["probe, health check, registration"])
    whole = total(estimates(everything, type_of(name)))
    assert whole == within(its["sum"])
    begins = whole.shortest_s - found[Phase.LOAD].shortest_s
    ((published, *told),) = re.findall(
        r"\*\*(\d+) s\*\* for the engine's.*begin at (\d+) and (\d+) s", PAGE, re.DOTALL
    )
    assert begins + float(published) == float(told[column])


def test_a_pack_takes_what_was_worked_out_for_it() -> None:
    """Of vLLM as docs/packs.md says; of SDXL by its bytes, as docs/cold-start.md does."""
    page = Path("docs/packs.md").read_text(encoding="utf-8")
    set_up = took(replace(LLAMA3, pack=usual_pack(VLLM)))[Phase.SET_UP]
    assert f"**{set_up} instead of 120 to 240**" in page
    assert f"{rates()['pack']['unpacked_bytes'] / 1e9:.2f} GB" in page
    assert f"{rates()['pack']['packed_bytes'] / 1e9:.2f} GB" in page
    assert f"{rates()['pack']['processor_s']} s of processors" in page
    (its,) = (cells for name, cells in rows("An image model").items() if name.startswith("set-up"))
    assert took(replace(SDXL, pack=Packed(6.9e9, None)))[Phase.SET_UP] == within(its[1])


def test_sdxl_takes_what_the_page_says() -> None:
    """What can be worked out of it; what its server imports and draws nobody can read out of its file."""
    its = rows("An image model")
    found = took(SDXL)
    assert found[Phase.BOOT] == within(its["EC2's answer, boot, driver, `nvidia-smi`"][0])
    assert found[Phase.BALANCER] == within(its["probe, health check, registration"][0])
    assert fetched_from_hub(SDXL)[0] == within(its["weights, 6.9 GB"][0])
    assert found[Phase.SET_UP] == UNKNOWN
    packed = replace(SDXL, weights=Weights.BUCKET, pack=Packed(6.9e9, None))
    assert took(packed)[Phase.MODELS] == within(its["of it after the set-up"][1])
    assert took(replace(packed, sets_up=False))[Phase.MODELS] == within(its["weights, 6.9 GB"][1])
    at_best = within(its["weights to the GPU"][0])
    assert found[Phase.LOAD] == fetched_from_hub(SDXL)[0] + Span(at_best.shortest_s, None)


def test_the_quick_llama3_takes_what_the_page_says() -> None:
    """But for what its set-up fetches, which only its script says."""
    its = rows("The same model in a minute or two")
    found = took(QUICK)
    assert found[Phase.BOOT] == span(its["EC2's answer, boot, driver, `nvidia-smi`"])
    loads = span(its["weights to the GPU"]) + span(its["an empty run, to warm up"])
    assert found[Phase.LOAD] == loads
    assert found[Phase.SET_UP] == UNKNOWN
    fetched = span(its["engine and weights, 5.7 GB at once"])
    assert total(estimates(replace(QUICK, sets_up=False), G6)) + fetched == span(its["sum"])


def test_the_pages_container_takes_what_is_worked_out() -> None:
    """In minutes, as AWS says it."""
    assert "**15 to 20 GB take [four to six\nminutes]" in PAGE
    assert took(replace(MEDIUM, is_in_container=True))[Phase.FILES] == Span(4 * 60, 6 * 60)


def test_what_nobody_knows_has_no_longest_time() -> None:
    """And all together none either: it is never taken for nothing."""
    for setting in (
        replace(MEDIUM, copies=True, sets_up=False),
        replace(MEDIUM, image=Image.OWN, sets_up=False),
        replace(LLAMA3, weights_bytes=None),
        replace(BUCKET, weights_bytes=None),
        replace(LLAMA3, pack=Packed(None, None)),
        MEDIUM,
    ):
        found = total(estimates(setting, G6))
        assert found.longest_s is None, setting
        assert str(found).endswith(" s or more")


def test_a_type_without_an_accelerator_has_an_unknown_network() -> None:
    """The catalog doesn't say what it moves."""
    plain = type_of("c7i.2xlarge")
    found = took(replace(BUCKET, image=Image.PLAIN, pack=usual_pack(VLLM)), plain)
    assert found[Phase.BOOT] == Span(*rates()["boot"]["plain"])
    assert (found[Phase.SET_UP].longest_s, found[Phase.MODELS].longest_s) == (None, None)


def test_a_cache_shortens_the_shortest_start_alone() -> None:
    """How much of compiling is left with one nobody has measured, but where one was made."""
    cached = replace(LLAMA3, weights=Weights.ELSEWHERE, caches=frozenset({"L4"}))
    without = took(replace(cached, caches=frozenset()))[Phase.LOAD]
    found = took(cached)[Phase.LOAD]
    assert found == Span(without.shortest_s - 52, without.longest_s)
    assert took(cached, type_of("g5.2xlarge"))[Phase.LOAD] == without, "another kind's is of no use"
    (made,) = [
        one for one in estimates(replace(cached, cached_start_s={"L4": 31.0}), G6) if one.phase is Phase.LOAD
    ]
    assert (made.span, made.is_measured) == (Span(31, 31), True)
    hub = replace(cached, weights=Weights.HUB, cached_start_s={"L4": 31.0})
    (made,) = [one for one in estimates(hub, G6) if one.phase is Phase.LOAD]
    assert (made.span, made.is_measured) == (Span(31 + 61, 31 + 160), False), "it was there already"


def test_a_larger_type_moves_more() -> None:
    """Network, processors and disk are its own."""
    packed = replace(BUCKET, pack=usual_pack(VLLM), disk_tier="best", throughput_mibps=1000)
    small, large = took(packed)[Phase.SET_UP], took(packed, type_of("g6.8xlarge"))[Phase.SET_UP]
    assert large.shortest_s < small.shortest_s
    assert (large.longest_s or 0) < (small.longest_s or 0)


def test_a_volume_is_no_faster_than_its_instance_lets_it_be() -> None:
    """A g5.xlarge moves 437 MB/s to its volumes, whatever tier they are of."""
    best = replace(BUCKET, sets_up=False, disk_tier="best", throughput_mibps=1000)
    assert took(best, type_of("g5.xlarge"))[Phase.MODELS].longest_s == 51  # its network: 2.5 Gbit/s
    assert took(replace(best, weights_bytes=1e9), type_of("g5.xlarge"))[Phase.MODELS].longest_s == 3
    packed = replace(LLAMA3, pack=usual_pack(VLLM), disk_tier="best", throughput_mibps=1000)
    assert took(packed, type_of("g5.xlarge"))[Phase.SET_UP].longest_s == round(
        0.5 + 4.2e9 / 1.25e9 + 9.36e9 / 437.5e6
    )


def test_weights_are_on_the_instance_store_where_there_is_one() -> None:
    """There they load at its rate, and the volume is the pack's alone; elsewhere it is on the volume."""
    there = replace(QUICK, is_on_volume=False)
    assert took(there)[Phase.LOAD].longest_s == round(4.9e9 / 0.5e9) + 3
    packed = replace(BUCKET, pack=usual_pack(VLLM), is_on_volume=False)
    without_store = type_of("inf2.8xlarge")
    assert took(packed, without_store) == took(replace(packed, is_on_volume=True), without_store)
    assert took(packed) != took(replace(packed, is_on_volume=True))


def test_what_a_container_sets_up_is_unknown() -> None:
    """Its image has the engine."""
    assert took(replace(LLAMA3, is_in_container=True))[Phase.SET_UP] == UNKNOWN


def started(id_: int = 1, type_: str = "g6.2xlarge", load_s: float = 100) -> Start:
    """A start of which each part is known."""
    at_s = {"booted": 12, "sets_up": 30, "has_files": 70, "is_set_up": 100, "loads": 125}
    until_s = 125 + load_s
    phases = {Told(name): START + seconds(at) for name, at in at_s.items()}
    phases |= {Told.ANSWERED: START + seconds(until_s), Told.REGISTERED: START + seconds(until_s + 1)}
    entered = {"REQUESTED": 0.0, "PROVISIONING": 2.0, "STARTING": 15.0, "READY": until_s + 11}
    one = replica(id_, entered=entered, phases=phases, instance_id=f"i-{id_}")
    found = start_of(replace(one, offering=spot_pool("us-east-1a", type_)))
    assert found is not None
    return found


def test_what_was_measured_is_told_by_accelerator() -> None:
    """The shortest and the longest of those starts, in the phases of this page."""
    found = measured([started(), started(2, load_s=140), started(3, "g5.2xlarge")])
    assert found.keys() == {"L4", "A10G"}
    assert found["L4"] == {
        Phase.BOOT: Measured(Span(30, 30), 2),
        Phase.FILES: Measured(Span(40, 40), 2),
        Phase.SET_UP: Measured(Span(30, 30), 2),
        Phase.MODELS: Measured(Span(25, 25), 2),
        Phase.LOAD: Measured(Span(100, 140), 2),
        Phase.BALANCER: Measured(Span(11, 11), 2),
    }
    assert measured([started()], NOT_OURS)["L4"].keys() == {Phase.BOOT, Phase.BALANCER}


def test_only_starts_of_which_all_is_known_are_measured() -> None:
    """None that nobody can tell apart, is a resume, isn't over, or is of a type that nobody knows."""
    known = started()
    untold = replace(
        known.replica, phases={k: v for k, v in known.replica.phases.items() if k == Told.REGISTERED}
    )
    of_before = start_of(untold)
    assert of_before is not None
    instance = start_of(replace(known.replica, phases={
        k: v for k, v in known.replica.phases.items() if k in (Told.ANSWERED, Told.REGISTERED)
    }))  # fmt: skip
    assert instance is not None
    assert any(Part.INSTANCE in one.parts for one in instance.stretches)
    under_way = replace(known, stretches=(*known.stretches[:-1], replace(known.stretches[-1], ends=None)))
    unknown = started(4, "z9.large")
    kept = {**known.replica.phases}
    del kept[Told.HAS_FILES]
    one_stretch = start_of(replace(known.replica, phases=kept))
    assert one_stretch is not None
    assert [len(one.parts) for one in one_stretch.stretches].count(2) == 1
    untold_parts = [of_before, instance, one_stretch]
    assert measured([*untold_parts, replace(known, is_resume=True), under_way, unknown]) == {}


def test_what_was_measured_counts_more() -> None:
    """In its phases; what took no time then isn't told."""
    known = {Phase.SET_UP: Measured(Span(0, 0), 3), Phase.LOAD: Measured(Span(41, 44), 1)}
    found = {one.phase: one for one in estimates(LLAMA3, G6, known)}
    assert Phase.SET_UP not in found
    assert found[Phase.LOAD] == Estimate(Phase.LOAD, Span(41, 44), "1 start", is_measured=True)
    assert str(found[Phase.LOAD]) == "load 41 to 44 s, measured (1 start)"
    assert not found[Phase.BOOT].is_measured


def test_every_part_of_a_start_is_of_one_phase() -> None:
    """But for the one that nobody can tell apart."""
    parts = [part for phase in Phase for part in PARTS[phase]]
    assert sorted(parts) == sorted({*Part} - {Part.INSTANCE})


@pytest.mark.parametrize("name", [*rates()])
def test_every_rate_says_where_it_is_from(name: str) -> None:
    """Each table of the data has a source."""
    assert rates()[name]["source"]
