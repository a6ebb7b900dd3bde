"""What would keep a service's starts within what its file asks for, `spotrelay.start_within`, and what can't.

It chooses the simplest of the means, `start_ways`, and no more of them than are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from spotrelay.file.values.limits import LONGEST_START_S
from spotrelay.operator.advice.start_time import (
    NOT_OURS,
    VLLM,
    Estimate,
    Measured,
    Phase,
    Setting,
    Span,
    Weights,
    estimates,
    total,
)
from spotrelay.operator.advice.start_ways import WAYS, At, Way
from spotrelay.plane.core.instance_types import InstanceType
from spotrelay.plane.view.words import duration

MeasuredStarts = Mapping[str, Mapping[Phase, Measured]]
"""By accelerator."""

SLOWER = 1.5
"""So many times what was worked out is no more what a bucket usually takes."""


class Verdict(StrEnum):
    """Whether starts keep what is asked of them."""

    KEPT = "kept"
    """The longest, too."""
    OPEN = "open"
    """The shortest would. The longest wouldn't, or nobody knows it."""
    MISSED = "missed"
    """Not even the shortest."""


def judged(span: Span, within_s: float) -> Verdict:
    """A start beside its goal."""
    if span.shortest_s > within_s:
        return Verdict.MISSED
    return Verdict.KEPT if span.longest_s is not None and span.longest_s <= within_s else Verdict.OPEN


@dataclass(frozen=True, slots=True)
class Group:
    """Instance types whose starts are alike."""

    types: tuple[str, ...]
    phases: tuple[Estimate, ...]
    verdict: Verdict

    @property
    def took(self) -> Span:
        """All phases together."""
        return total(self.phases)


@dataclass(frozen=True, slots=True)
class Means:
    """What would shorten starts."""

    what: str
    """What to write or to run."""
    costs: str
    then: Span
    """With it, and with those before it: the shortest start of all types, and the longest."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a service's starts take, beside what its file asks for, and what would help."""

    service: str
    within_s: float
    groups: tuple[Group, ...]
    """As it is, in the order of the service's types."""
    means: tuple[Means, ...]
    """What helps, the simplest first, and no more than is needed. Empty: nothing is needed or helps."""
    ends: tuple[Group, ...]
    """With all of these."""
    others: tuple[str, ...]
    """What could help besides, where these don't do."""

    @property
    def verdict(self) -> Verdict:
        """As it is: of the type that does worst."""
        return _worst(self.groups)

    @property
    def at_best(self) -> Verdict:
        """With all means: of the type that does worst."""
        return _worst(self.ends)

    @property
    def left_behind(self) -> tuple[str, ...]:
        """Types that miss it in any case, while others don't."""
        missed = [name for group in self.ends if group.verdict is Verdict.MISSED for name in group.types]
        return tuple(missed) if any(g.verdict is not Verdict.MISSED for g in self.ends) else ()

    @property
    def not_ours(self) -> Span:
        """What EC2, the image and the load balancer take of the quickest start."""
        return _least(self.ends, lambda one: one.phase in NOT_OURS)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A goal, and all that is known."""

    within_s: float
    setting: Setting
    types: Sequence[InstanceType]
    known: MeasuredStarts
    path: str

    @property
    def kinds(self) -> frozenset[str]:
        """The accelerators of its types, without shares of one."""
        return frozenset(type_.accelerator for type_ in self.types if type_.accelerator_count)

    def after(self, ways: Iterable[Way]) -> At:
        """Where one stands with these means."""
        at = At(self.setting, self.kinds, self.path)
        for way in ways:
            at = replace(at, setting=way.change(at))
        return at

    def groups(self, ways: Sequence[Way] = ()) -> tuple[Group, ...]:
        """What starts take with them, by types."""
        setting = self.after(ways).setting
        changed = {phase for way in ways for phase in way.phases}
        found: dict[tuple[Estimate, ...], list[str]] = {}
        for type_ in self.types:
            of = {p: m for p, m in self.known.get(type_.accelerator, {}).items() if p not in changed}
            found.setdefault(estimates(setting, type_, of), []).append(type_.name)
        return tuple(
            Group(tuple(names), phases, judged(total(phases), self.within_s))
            for phases, names in found.items()
        )

    def are_possible(self, ways: Sequence[Way]) -> bool:
        """Whether each is to be had once those before it are there."""
        return all(way.applies(self.after(ways[:n])) for n, way in enumerate(ways))


def planned(
    service: str,
    path: str,
    within_s: float,
    setting: Setting,
    types: Sequence[InstanceType],
    known: MeasuredStarts = MappingProxyType({}),
) -> Plan:
    """What becomes of a goal, and which means would keep it: the simplest first, as many as it takes.

    `known`: what was measured of the service as it is, which counts more than what is worked out.
    """
    asked = _Asked(within_s, setting, types, known, path)
    chosen: list[Way] = []
    for way in WAYS:
        before = asked.groups(chosen)
        if _least(before, lambda one: one.phase in NOT_OURS).shortest_s >= within_s:
            break  # nothing helps
        more = [*chosen, way]
        if asked.are_possible(more) and _is_shorter(before, asked.groups(more)):
            chosen = more
    chosen = _needed(asked, chosen)
    means = tuple(
        Means(
            way.what(asked.after(chosen[:n])),
            way.costs(asked.after(chosen[:n])),
            _all_of(asked.groups(chosen[: n + 1])),
        )
        for n, way in enumerate(chosen)
    )
    ends = asked.groups(chosen)
    others = () if _is_all_kept(ends) else tuple(_others(asked, service, ends))
    return Plan(service, within_s, asked.groups(), means, ends, others)


def _needed(asked: _Asked, chosen: list[Way]) -> list[Way]:
    """Without those that bring nothing any more, now that others are there; rent isn't paid for seconds."""
    for way in chosen[::-1]:
        fewer = [one for one in chosen if one is not way]
        with_it, without = asked.groups(chosen), asked.groups(fewer)
        brings_nothing = way.is_rent or _is_all_kept(without) or not _is_shorter(without, with_it)
        if brings_nothing and _verdicts(without) == _verdicts(with_it) and asked.are_possible(fewer):
            chosen = fewer
    return chosen


def _verdicts(groups: Iterable[Group]) -> dict[str, Verdict]:
    return {name: group.verdict for group in groups for name in group.types}


def _is_all_kept(groups: Iterable[Group]) -> bool:
    return _worst(groups) is Verdict.KEPT


def _others(asked: _Asked, service: str, ends: Sequence[Group]) -> Iterator[str]:
    setting = asked.setting
    if _is_slow(asked) and setting.weights is Weights.BUCKET and not setting.has_peers:
        yield "spotrelay.peers: true, as the bucket is slower than worked out: docs/peers.md"
    if setting.may_be_packed and not setting.is_pack_declared:
        yield "a pack of what setup makes, where that takes long: docs/packs.md"
    if setting.is_in_container:
        yield "no container, but a pack of the same software: docs/cold-start.md, Images"
    if setting.engine == VLLM:
        yield (
            "an engine that compiles nothing: docs/cold-start.md, The same model in a minute or two"
            " (services/llama3-quick.yaml)"
        )
    if setting.may_have_standbys:
        yield (
            "spotrelay.standby: auto, by which starts are no shorter, but nobody waits for one, for 6 to 9 %"
            " more: docs/standbys.md"
        )
    longest = _all_of(ends).longest_s
    if longest is None:
        yield f"deploying it: spotrelay cold-start {service} then tells what it takes"
    elif longest <= LONGEST_START_S:
        yield f"spotrelay.start_within: {longest:.0f}"


def _is_slow(asked: _Asked) -> bool:
    """Whether models took much longer than they should on some type's accelerator."""
    for type_ in asked.types:
        took = asked.known.get(type_.accelerator, {}).get(Phase.MODELS)
        worked_out = [
            one.span.longest_s for one in estimates(asked.setting, type_) if one.phase is Phase.MODELS
        ]
        longest_s = worked_out[0] if worked_out else 0.0
        if took and longest_s is not None and (took.span.longest_s or 0.0) > max(longest_s * SLOWER, 1.0):
            return True
    return False


def _least(groups: Iterable[Group], counts: Callable[[Estimate], bool]) -> Span:
    """Some phases of the start that has least of them."""
    return min((total(filter(counts, group.phases)) for group in groups), key=lambda span: span.shortest_s)


def _worst(groups: Iterable[Group]) -> Verdict:
    return max((group.verdict for group in groups), key=list(Verdict).index)


def _all_of(groups: Sequence[Group]) -> Span:
    longest = [group.took.longest_s for group in groups]
    known = [one for one in longest if one is not None]
    return Span(
        min(group.took.shortest_s for group in groups), max(known) if len(known) == len(longest) else None
    )


def _is_shorter(before: Sequence[Group], after: Sequence[Group]) -> bool:
    """Whether some type's start is: at its shortest, or at its longest."""
    old, new = ({name: group.took for group in groups for name in group.types} for groups in (before, after))
    return any(_is_less(new[name], took) for name, took in old.items())


def _is_less(new: Span, old: Span) -> bool:
    """What nobody knows is no less than what is known."""
    if new.longest_s is None:
        return old.longest_s is None and new.shortest_s < old.shortest_s
    return old.longest_s is None or new.shortest_s < old.shortest_s or new.longest_s < old.longest_s


def told(plan: Plan) -> Iterator[str]:
    """All of it in lines: what is asked, what a start takes, what would help, what can't be."""
    yield f"{duration(plan.within_s)}: {_in_short(plan)}"
    for group in plan.groups:
        of = "each type" if len(plan.groups) == 1 else ", ".join(group.types)
        yield f"{of}: {group.took}"
        yield from (f"  {one}" for one in group.phases)
    for number, means in enumerate(plan.means, 1):
        yield f"{number}. {means.what}: then {means.then}. It costs {means.costs}"
    if plan.means and plan.at_best is Verdict.KEPT:
        yield "With this each start keeps it"
    elif plan.verdict is not Verdict.KEPT:
        yield f"{_why_not(plan)}. What could: {'; or '.join(plan.others)}" if plan.others else _why_not(plan)


def _in_short(plan: Plan) -> str:
    took = _all_of(plan.groups)
    marks = {one.is_measured for group in plan.groups for one in group.phases}
    how = "measured" if marks == {True} else "worked out" if marks == {False} else "partly measured"
    match plan.verdict:
        case Verdict.KEPT:
            return f"kept. A start takes {took}, {how}"
        case Verdict.OPEN:
            return f"within reach, and not certain. A start takes {took}, {how}"
        case Verdict.MISSED:
            by = " by each type" if any(g.verdict is not Verdict.MISSED for g in plan.groups) else ""
            return f"not kept{by} as it is. A start takes {took}, {how}"


def _why_not(plan: Plan) -> str:
    """What stands in the way, whatever else is done."""
    if plan.not_ours.shortest_s >= plan.within_s:
        return f"Nothing can keep it: EC2, the image and the load balancer alone take {plan.not_ours}"
    if plan.at_best is Verdict.OPEN:
        return "With all of this it isn't certain either" if plan.means else "Nothing makes it certain"
    ours = _least(plan.ends, lambda one: one.phase not in NOT_OURS)
    return (
        f"{'With all of this it' if plan.means else 'It'} is out of reach: EC2, the image and the load"
        f" balancer take {plan.not_ours}, and what else is left {ours}"
    )


def warning(plan: Plan) -> str | None:
    """Which types miss it in any case; None: all do, or none."""
    if not plan.left_behind:
        return None
    return (
        f"{plan.service}: spotrelay.start_within: {', '.join(plan.left_behind)} can't keep it, and others"
        " can: resources.exclude takes them away, which leaves fewer pools to be replaced in"
    )


def to_json(plan: Plan) -> dict[str, Any]:
    """It as JSON, durations in seconds."""
    return {
        "service": plan.service,
        "within_s": plan.within_s,
        "verdict": str(plan.verdict),
        "types": [_group_json(group) for group in plan.groups],
        "means": [{"what": m.what, "costs": m.costs, **_span_json(m.then)} for m in plan.means],
        "with_means": str(plan.at_best),
        "left_behind": list(plan.left_behind),
        "others": list(plan.others),
    }


def _group_json(group: Group) -> dict[str, Any]:
    return {
        "instance_types": list(group.types),
        "verdict": str(group.verdict),
        **_span_json(group.took),
        "phases": [
            {
                "name": str(one.phase),
                "is_measured": one.is_measured,
                "why": one.why,
                **_span_json(one.span.rounded),
            }
            for one in group.phases
        ],
    }


def _span_json(span: Span) -> dict[str, Any]:
    return {"shortest_s": span.shortest_s, "longest_s": span.longest_s}
