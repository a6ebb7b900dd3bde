"""What would keep a goal: the simplest means, no more than it takes, and nothing that doesn't help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from spotrelay.file.values.disk import TIERS
from spotrelay.operator.advice.start_plan import Plan, Verdict, judged, planned, told, warning
from spotrelay.operator.advice.start_time import (
    LLAMA_CPP,
    VLLM,
    Image,
    Measured,
    Packed,
    Phase,
    Setting,
    Span,
    Weights,
    usual_pack,
)
from tests.advice.test_start_time import BUCKET, G6, LLAMA3, MEDIUM, type_of

TYPES = (G6, type_of("g5.2xlarge"))

DECLARED = replace(LLAMA3, is_pack_declared=True, is_cache_kept=True, may_use_store=True)
"""services/llama3.yaml."""

PACKED = replace(DECLARED, pack=usual_pack(VLLM), caches=frozenset({"L4", "A10G"}))


def plan(
    within_s: float,
    setting: Setting = DECLARED,
    known: Mapping[str, Mapping[Phase, Measured]] | None = None,
    types: tuple[str, ...] = (),
) -> Plan:
    """Of a service with two kinds of GPU, unless other types are named."""
    return planned("chat", "chat.yaml", within_s, setting, [*map(type_of, types)] or TYPES, known or {})


def said(found: Plan) -> list[str]:
    """All lines of it."""
    return list(told(found))


def means(found: Plan) -> list[str]:
    """The beginning of each: what to do."""
    return [one.what for one in found.means]


@pytest.mark.parametrize(
    ("span", "verdict"),
    [
        (Span(10, 20), Verdict.KEPT),
        (Span(10, 21), Verdict.OPEN),
        (Span(20, None), Verdict.OPEN),
        (Span(21, 30), Verdict.MISSED),
        (Span(21, None), Verdict.MISSED),
    ],
)
def test_a_goal_is_kept_by_the_longest_start(span: Span, verdict: Verdict) -> None:
    """And missed by the shortest; what nobody knows keeps none."""
    assert judged(span, 20) is verdict


def test_a_goal_that_is_kept_needs_nothing() -> None:
    """No means, and one line beside what a start takes."""
    found = plan(795)
    assert (found.verdict, found.means, found.others) == (Verdict.KEPT, (), ())
    assert said(found)[0] == "13 min 15 s: kept. A start takes 464 to 795 s, worked out"
    assert len(said(found)) == 1 + 1 + 4
    assert plan(794).means


def test_what_is_simplest_is_chosen_first() -> None:
    """A command is enough for ten minutes; for eight it takes a bucket, too, and what each brings is told."""
    assert [what[:15] for what in means(plan(600))] == ["spotrelay pack "]
    found = plan(480)
    assert [what[:15] for what in means(found)] == ["spotrelay pack ", "copy the model "]
    assert [str(one.then) for one in found.means] == ["302 to 595 s", "244 to 438 s"]
    assert found.means[1].costs == "0.37 USD a month"
    assert "path: /opt/dlami/nvme/NAME" in found.means[1].what
    assert found.at_best is Verdict.KEPT
    assert said(found)[-1] == "With this each start keeps it"


def test_what_a_later_one_makes_needless_is_left_out() -> None:
    """A pack is simpler than a bucket. Where the bucket alone does, and is needed, nobody packs."""
    slow = replace(DECLARED, is_cache_kept=False, weights_bytes=60e9)
    known = {kind: {Phase.SET_UP: Measured(Span(5, 5), 9)} for kind in ("L4", "A10G")}
    found = plan(700, slow, known)
    assert [what[:15] for what in means(found)] == ["copy the model "]
    assert found.at_best is Verdict.KEPT


def test_each_kind_of_gpu_gets_its_cache() -> None:
    """Only those that lack one, by a command each; none for a share of a GPU."""
    found = plan(300, replace(PACKED, caches=frozenset({"L4"})))
    assert means(found)[0] == "spotrelay pack chat.yaml --accelerator A10G"
    assert "accelerator" not in " ".join(means(plan(300, PACKED)))
    shares = plan(300, replace(PACKED, caches=frozenset()), types=("g6f.2xlarge",))
    assert "accelerator" not in " ".join(means(shares))


def test_a_file_without_a_pack_is_told_the_lines() -> None:
    """With a goal vLLM's cache is kept by itself then; where it can't be, no command is told for it."""
    bare = replace(LLAMA3, may_use_store=True)
    (first, *_) = means(plan(600, bare))
    assert first == (
        "write spotrelay.pack: {paths: [the directories that setup makes]}, deploy it, then spotrelay pack"
        " chat.yaml, and --accelerator NAME for each GPU that it says has no cache: A10G, L4"
    )
    (first, *_) = means(plan(600, replace(bare, may_keep_cache=False)))
    assert first.endswith("then spotrelay pack chat.yaml")
    assert not means(plan(600, replace(bare, may_be_packed=False)))[0].startswith("write spotrelay.pack")


def test_who_said_no_to_caches_is_told_of_them() -> None:
    """If nothing else speaks against one."""
    without = replace(PACKED, is_cache_kept=False, caches=frozenset())
    assert any(what.startswith("write spotrelay.pack.warm: true") for what in means(plan(300, without)))
    assert "warm" not in " ".join(means(plan(300, replace(without, may_keep_cache=False))))
    unpacked = replace(without, pack=None)
    (first, second, *_) = plan(100, unpacked).means
    assert (str(first.then), str(second.then)) == ("354 to 595 s", "302 to 595 s"), (
        "the pack has none by itself"
    )


def test_a_pack_that_nobody_has_looked_for_may_be_there() -> None:
    """Without an account the file alone is known."""
    assert "validate --account looks" in means(plan(600, replace(DECLARED, is_pack_known=False)))[0]
    assert "--account" not in means(plan(600))[0]


def test_weights_that_a_standby_would_lose_stay_on_the_volume() -> None:
    """And those that lie there are told of the instance store, where nothing is lost by it."""
    found = plan(480, replace(DECLARED, may_use_store=False))
    assert "path: /models/NAME" in means(found)[1]
    assert str(found.means[1].then) == "244 to 496 s"
    there = replace(PACKED, weights=Weights.BUCKET)
    assert means(plan(460, there)) == [
        "write a path below /opt/dlami/nvme into spotrelay.models of chat.yaml, and let run serve that"
    ]
    assert "nvme" not in " ".join(means(plan(460, replace(there, may_use_store=False))))


def test_rent_is_paid_only_for_a_goal_that_it_keeps() -> None:
    """A faster disk brings seconds at any goal, and is named where they make the difference."""
    there = replace(PACKED, weights=Weights.BUCKET, may_use_store=False)
    found = plan(460, there)
    assert [what.partition(" instead")[0] for what in means(found)] == ["write resources.disk_tier: high"]
    assert found.at_best is Verdict.KEPT
    assert found.means[0].costs == "0.014 USD an hour for each instance"
    assert means(plan(100, there)) == []
    assert means(plan(460, replace(there, disk_tier=None))) == []


def test_a_goal_below_what_aws_takes_is_kept_by_nothing() -> None:
    """It says so, names nothing to do for it, and what could help instead."""
    found = plan(45)
    assert found.verdict is Verdict.MISSED
    assert not found.means
    last = said(found)[-1]
    assert last.startswith(
        "Nothing can keep it: EC2, the image and the load balancer alone take 50 to 85 s. What could: an"
    )
    assert last.endswith("or spotrelay.start_within: 795")
    assert "spotrelay.standby: auto" in last
    assert "standby" not in said(plan(45, replace(DECLARED, may_have_standbys=False)))[-1]


def test_a_goal_that_the_engine_stands_in_the_way_of() -> None:
    """What is left with all means, whose it is, and what else there is."""
    found = plan(100)
    assert (found.verdict, found.at_best, len(found.means)) == (Verdict.MISSED, Verdict.MISSED, 2)
    last = said(found)[-1]
    assert last.startswith(
        "With all of this it is out of reach: EC2, the image and the load balancer take 50 to 85 s, and what"
        " else is left 194 to 353 s. What could: an engine that compiles nothing"
    )
    assert last.endswith("or spotrelay.start_within: 438")


def test_what_nobody_knows_is_to_be_measured() -> None:
    """A set-up that only its script describes, a container: no figure is made up."""
    found = plan(90, replace(MEDIUM, engine=LLAMA_CPP))
    assert (found.verdict, found.means) == (Verdict.OPEN, ())
    assert said(found)[-1] == (
        "Nothing makes it certain. What could: a pack of what setup makes, where that takes long:"
        " docs/packs.md; or spotrelay.standby: auto, by which starts are no shorter, but nobody waits for"
        " one, for 6 to 9 % more: docs/standbys.md; or deploying it: spotrelay cold-start chat then tells"
        " what it takes"
    )
    boxed = plan(90, replace(MEDIUM, is_in_container=True, sets_up=False, may_be_packed=False))
    assert "no container, but a pack" in said(boxed)[-1]


def test_types_that_miss_it_are_named_if_others_do_not() -> None:
    """A warning with the line to write, and what that costs; nobody is left out by it."""
    known = {"A10G": {Phase.LOAD: Measured(Span(900, 900), 3)}}
    setting = replace(PACKED, weights=Weights.ELSEWHERE, may_be_packed=False, engine=None, weights_bytes=None)
    found = plan(300, setting, known)
    assert found.left_behind == ("g5.2xlarge",)
    words = warning(found)
    assert words is not None
    assert "g5.2xlarge can't keep it, and others can: resources.exclude" in words
    assert {name for group in found.groups for name in group.types} == {"g6.2xlarge", "g5.2xlarge"}
    assert "not kept by each type as it is. A start takes 60 s or more" in said(found)[0]
    assert warning(plan(100)) is None, "none of them can"
    assert warning(plan(795)) is None


def test_what_was_measured_counts_until_a_means_changes_it() -> None:
    """A pack makes the measured set-up and load void, and EC2's boot not."""
    phases = (Phase.BOOT, Phase.SET_UP, Phase.LOAD, Phase.BALANCER)
    known = {kind: {phase: Measured(Span(200, 200), 5) for phase in phases} for kind in ("L4", "A10G")}
    found = plan(800, known=known)
    assert found.verdict is Verdict.KEPT
    assert said(found)[0].endswith("A start takes 800 s, measured")
    packed = plan(760, replace(DECLARED, weights=Weights.ELSEWHERE), known)
    (first, *_) = packed.means
    assert str(first.then) == "591 to 750 s"
    assert "partly measured" in said(plan(800, known={"L4": known["L4"]}))[0]


def test_peers_are_named_where_the_bucket_was_slow() -> None:
    """Measured, and much slower than worked out; not for who has them already."""
    there = replace(PACKED, weights=Weights.BUCKET, is_on_volume=False)
    slow = {"L4": {Phase.MODELS: Measured(Span(90, 200), 4)}}
    assert "spotrelay.peers: true" in said(plan(300, there, slow))[-1]
    assert "peers" not in said(plan(300, replace(there, has_peers=True), slow))[-1]
    assert "peers" not in said(plan(300, there))[-1]
    quick = {"L4": {Phase.MODELS: Measured(Span(1, 3), 4)}}
    assert "peers" not in said(plan(300, there, quick))[-1]


def test_types_whose_starts_are_alike_are_told_together() -> None:
    """The rest in the order of the service's types."""
    found = plan(300, PACKED, types=("g6.8xlarge", "g6.2xlarge", "g6e.2xlarge"))
    names = [group.types for group in found.groups]
    assert [name for group in names for name in group] == ["g6.8xlarge", "g6.2xlarge", "g6e.2xlarge"]
    lines = said(found)
    assert any(line.startswith("g6.8xlarge: ") for line in lines)
    assert any(line.startswith("each type: ") for line in told(plan(300)))


def test_a_pack_of_unknown_size_promises_nothing() -> None:
    """Of a set-up that nobody knows."""
    unknown = replace(MEDIUM, is_pack_declared=True, weights=Weights.ELSEWHERE)
    assert plan(300, unknown).means == ()
    sized = replace(unknown, pack=Packed(6.9e9, None), engine=LLAMA_CPP, weights_bytes=4.9e9)
    assert plan(300, sized).verdict is Verdict.KEPT


def test_weights_that_set_up_has_need_no_bucket() -> None:
    """Nobody knows where they are from."""
    assert not any("bucket" in what for what in means(plan(300, replace(PACKED, weights=Weights.ELSEWHERE))))


def test_no_goal_is_named_that_a_file_may_not_have() -> None:
    """An hour is the longest."""
    assert "start_within" in said(plan(100))[-1]
    assert "start_within" not in said(plan(100, replace(PACKED, weights_bytes=1e12)))[-1]


def test_what_another_means_stands_on_stays() -> None:
    """A pack that a slow bucket makes needless is what an engine cache is made on."""
    slow = replace(DECLARED, is_cache_kept=False, may_use_store=False, weights_bytes=300e9)
    found = means(plan(1000, slow))
    assert found[0] == "spotrelay pack chat.yaml"
    assert found[1].startswith("write spotrelay.pack.warm: true")


def test_an_image_of_ones_own_is_unknown() -> None:
    """How long it boots nobody can say before it has."""
    assert plan(3600, replace(BUCKET, image=Image.OWN)).verdict is Verdict.OPEN


def test_the_tiers_of_a_disk_rise() -> None:
    """The slowest is first: of two that do, the cheaper one is named."""
    speeds = [mibps for _, mibps in TIERS.values()]
    assert speeds == sorted(speeds)
