"""How long a service's starts take, phase by phase. `start_plan` has what would shorten them.

Worked out of `start_rates.toml`, the catalog and what is known of the service; what was measured counts more.
A phase has a shortest and a longest time. What nobody can know has no longest one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from spotrelay.file.catalog import find_type, host_of
from spotrelay.messages import in_gb
from spotrelay.plane.core.instance_types import InstanceType
from spotrelay.plane.view.starts import Part, Start

GB = 1e9
MIB = 1024**2
GBIT = 1e9 / 8


@cache
def rates() -> Mapping[str, Any]:
    """The data file."""
    return tomllib.loads(resources.files(__package__).joinpath("start_rates.toml").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds, from the shortest to the longest; None: nobody knows how long."""

    shortest_s: float
    longest_s: float | None

    def __add__(self, other: Span) -> Span:
        unknown = self.longest_s is None or other.longest_s is None
        longest_s = None if unknown else (self.longest_s or 0.0) + (other.longest_s or 0.0)
        return Span(self.shortest_s + other.shortest_s, longest_s)

    @property
    def rounded(self) -> Span:
        """In whole seconds."""
        return Span(round(self.shortest_s), None if self.longest_s is None else round(self.longest_s))

    def __str__(self) -> str:
        least, most = self.rounded.shortest_s, self.rounded.longest_s
        if most is None:
            return f"{least:.0f} s or more"
        return f"{least:.0f} s" if least == most else f"{least:.0f} to {most:.0f} s"


NOTHING = Span(0, 0)
UNKNOWN = Span(0, None)


class Phase(StrEnum):
    """What a start is told as, in order."""

    BOOT = "boot"
    FILES = "files"
    SET_UP = "set-up"
    MODELS = "models"
    LOAD = "load"
    BALANCER = "load balancer"


PARTS: Mapping[Phase, frozenset[Part]] = MappingProxyType(
    {
        Phase.BOOT: frozenset({Part.REQUEST, Part.LAUNCH, Part.BOOT}),
        Phase.FILES: frozenset({Part.FILES}),
        Phase.SET_UP: frozenset({Part.SET_UP}),
        Phase.MODELS: frozenset({Part.MODELS}),
        Phase.LOAD: frozenset({Part.LOAD}),
        Phase.BALANCER: frozenset({Part.REGISTRATION, Part.CHECK}),
    }
)
"""The parts that `spotrelay cold-start` measures of each."""

NOT_OURS = (Phase.BOOT, Phase.BALANCER)
"""What a service's own files and engine have no part in."""


class Image(StrEnum):
    """What an instance boots."""

    GPU = "gpu"
    """AWS's Deep Learning image."""
    PLAIN = "plain"
    """Canonical's Ubuntu."""
    OWN = "own"
    """Nobody knows how long."""


class Weights(StrEnum):
    """Where they are from."""

    HUB = "hub"
    """`run` fetches them from Hugging Face."""
    BUCKET = "bucket"
    """Fetched since the boot: `spotrelay.models`."""
    ELSEWHERE = "elsewhere"
    """Set-up has them, or nobody knows."""


VLLM, LLAMA_CPP = "vllm", "llama-server"
"""Engines, as scripts name them."""


@dataclass(frozen=True, slots=True)
class Packed:
    """The size of a pack; None: unknown."""

    unpacked_bytes: float | None
    packed_bytes: float | None


def usual_pack(engine: str | None) -> Packed:
    """That of a set-up which makes the environment of an engine."""
    known = rates()["pack"]
    return Packed(known["unpacked_bytes"], known["packed_bytes"]) if engine == VLLM else Packed(None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a service's start depends on, as far as it is known."""

    image: Image = Image.GPU
    is_in_container: bool = False
    copies: bool = False
    """Whether `file_mounts` has buckets that are copied first."""
    sets_up: bool = True
    """Whether there is a `setup`."""
    pack: Packed | None = None
    """What replicas start from; None: they run set-up."""
    is_pack_declared: bool = False
    is_pack_known: bool = True
    """Whether somebody has looked if there is one."""
    may_be_packed: bool = True
    """Whether there is a set-up for which a pack may stand."""
    engine: str | None = None
    """`VLLM`, `LLAMA_CPP`; None: another, of which nothing is known."""
    is_cache_kept: bool = False
    """Whether `spotrelay.pack.warm` is on."""
    may_keep_cache: bool = True
    """Whether it may be: a probe tells when the engine is up, and there is a whole accelerator."""
    caches: frozenset[str] = frozenset()
    """The accelerators that have an engine cache."""
    cached_start_s: Mapping[str, float] = field(default_factory=dict)
    """By accelerator: what `run` took with its cache, on the instance that made it."""
    weights: Weights = Weights.ELSEWHERE
    weights_bytes: float | None = None
    is_on_volume: bool = True
    """Whether weights lie on the root volume, not on an instance store."""
    may_use_store: bool = False
    """Whether they may lie on an instance store: no standby would lose them."""
    disk_tier: str | None = None
    """None: not one of them."""
    throughput_mibps: float = 125
    """Of the root volume."""
    has_peers: bool = False
    may_have_standbys: bool = True
    """Whether it uses Spot, and has none yet."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one phase takes, and why."""

    phase: Phase
    span: Span
    why: str
    is_measured: bool = False

    def __str__(self) -> str:
        return f"{self.phase} {self.span}{', measured' if self.is_measured else ''} ({self.why})"


@dataclass(frozen=True, slots=True)
class Measured:
    """What starts took for a phase."""

    span: Span
    starts: int


def measured(
    starts: Iterable[Start], phases: Iterable[Phase] = tuple(Phase)
) -> dict[str, dict[Phase, Measured]]:
    """By accelerator, what cold starts took that are over and of which every part is known."""
    wanted = set(phases)
    took: dict[str, list[dict[Phase, float]]] = {}
    for start in starts:
        offering = start.replica.offering
        type_ = find_type(offering.pool.instance_type) if offering else None
        parts = [one.parts for one in start.stretches]
        if start.took_s is None or start.is_resume or type_ is None or any(len(p) > 1 for p in parts):
            continue
        if any(Part.INSTANCE in p for p in parts):
            continue
        each = {
            phase: sum(one.took_s or 0.0 for one in start.stretches if one.parts[0] in PARTS[phase])
            for phase in Phase
        }
        took.setdefault(type_.accelerator, []).append(each)
    return {
        kind: {
            phase: Measured(Span(min(o[phase] for o in found), max(o[phase] for o in found)), len(found))
            for phase in Phase
            if phase in wanted
        }
        for kind, found in took.items()
    }


@dataclass(frozen=True, slots=True)
class _Host:
    """What an instance type moves, in bytes a second; None: unknown."""

    network: float | None
    steady_network: float | None
    volume: float
    vcpus: int
    has_store: bool


def _host(type_: InstanceType, setting: Setting) -> _Host:
    volume = setting.throughput_mibps * MIB
    if not type_.accelerator:
        return _Host(None, None, volume, type_.vcpus, has_store=False)
    host = host_of(type_.name)
    # A start is within the half hour for which every instance has its burst.
    volume = min(volume, host.ebs_burst_mb_s * 1e6) if host.ebs_burst_mb_s else volume
    return _Host(
        host.network_burst_gbps * GBIT or None,
        host.network_gbps * GBIT or None,
        volume,
        type_.vcpus,
        has_store=host.local_disk_gb > 0,
    )


def estimates(
    setting: Setting, type_: InstanceType, known: Mapping[Phase, Measured] = MappingProxyType({})
) -> tuple[Estimate, ...]:
    """A start on an instance type, phase by phase; what takes no time is left out."""
    host = _host(type_, setting)
    set_up = _set_up(setting, host)
    found = [_boot(setting), _files(setting), set_up, _models(setting, host, set_up.span)]
    took = rates()["balancer"]["took"]
    found += [_load(setting, type_, host), Estimate(Phase.BALANCER, Span(*took), "probe, check")]
    for index, one in enumerate(found):
        if of := known.get(one.phase):
            many = f"{of.starts} start{'s' if of.starts > 1 else ''}"
            found[index] = Estimate(one.phase, of.span, f"{many}", is_measured=True)
    return tuple(one for one in found if one.span != NOTHING)


def total(found: Iterable[Estimate]) -> Span:
    """All of it, in the whole seconds in which each phase is told."""
    return sum((one.span.rounded for one in found), start=NOTHING)


def _boot(setting: Setting) -> Estimate:
    if setting.image is Image.OWN:
        return Estimate(Phase.BOOT, Span(rates()["boot"]["plain"][0], None), "EC2, an image of your own")
    return Estimate(Phase.BOOT, Span(*rates()["boot"][setting.image]), "EC2 and the image")


def _files(setting: Setting) -> Estimate:
    if setting.is_in_container:
        return Estimate(
            Phase.FILES,
            Span(*rates()["container"]["pull"]),
            "docker pull of 15 to 20 GB, if it is that large",
        )
    if setting.copies:
        return Estimate(Phase.FILES, UNKNOWN, "copies of buckets, file_mounts")
    return Estimate(Phase.FILES, NOTHING, "")


def _set_up(setting: Setting, host: _Host) -> Estimate:
    if not setting.sets_up:
        return Estimate(Phase.SET_UP, NOTHING, "")
    if setting.pack is not None:
        return Estimate(Phase.SET_UP, _unpacking(setting.pack, host), "from its pack")
    if setting.engine == VLLM and not setting.is_in_container:
        return Estimate(Phase.SET_UP, Span(*rates()["vllm"]["set_up"]), "vLLM from PyPI")
    return Estimate(Phase.SET_UP, UNKNOWN, "what setup does, nobody can read")


def _unpacking(pack: Packed, host: _Host) -> Span:
    """All of it passes at once in the shortest, and what isn't written yet stays in memory."""
    known = rates()["pack"]
    if pack.unpacked_bytes is None:
        return Span(known["begin_s"], None)
    packed = pack.packed_bytes
    if packed is None:
        packed = pack.unpacked_bytes * known["packed_bytes"] / known["unpacked_bytes"]
    fetched_s = packed / host.network if host.network else 0.0
    processor_s = known["processor_s"] * pack.unpacked_bytes / known["unpacked_bytes"] / host.vcpus
    shortest_s = known["begin_s"] + fetched_s + processor_s
    longest_s = known["begin_s"] + fetched_s + max(pack.unpacked_bytes / host.volume, processor_s)
    return Span(shortest_s, longest_s if host.network else None)


def _models(setting: Setting, host: _Host, set_up: Span) -> Estimate:
    """What of them is still missing when set-up has ended: they are fetched since the boot."""
    if setting.weights is not Weights.BUCKET:
        return Estimate(Phase.MODELS, NOTHING, "")
    size = setting.weights_bytes
    if size is None or host.network is None or host.steady_network is None:
        return Estimate(Phase.MODELS, UNKNOWN, f"{_gb(size)} from the bucket, beside set-up")
    shares = setting.is_on_volume or not host.has_store
    shortest_s = max(size / host.network - set_up.shortest_s, 0.0)
    longest_s = max(size / host.steady_network, size / host.volume if shares else 0.0)
    # A pack writes to the same volume meanwhile; a set-up that installs waits for the network mostly.
    meanwhile_s = 0.0 if shares and setting.pack else set_up.longest_s or 0.0
    least_s = min(shortest_s, longest_s)
    after = Span(least_s, max(longest_s - meanwhile_s, least_s))
    return Estimate(Phase.MODELS, after, f"{_gb(size)} from the bucket, beside set-up")


def _load(setting: Setting, type_: InstanceType, host: _Host) -> Estimate:
    parts, whys = NOTHING, list[str]()
    if setting.weights is Weights.HUB:
        span, words = fetched_from_hub(setting)
        parts, whys = parts + span, [words]
    if took_s := setting.cached_start_s.get(type_.accelerator):
        # The instance that packed has fetched the weights once before.
        why = [*whys, f"with its engine cache, as {type_.accelerator} took when it was made"]
        return Estimate(Phase.LOAD, parts + Span(took_s, took_s), ", ".join(why), is_measured=not whys)
    return Estimate(Phase.LOAD, *_engine(setting, type_, host, parts, whys))


def fetched_from_hub(setting: Setting) -> tuple[Span, str]:
    """What Hugging Face takes to send them."""
    size = setting.weights_bytes
    words = f"{_gb(size)} from Hugging Face"
    if size is None:
        return UNKNOWN, words
    quick, slow = rates()["hub"]["gbit_s"]
    return Span(size / (quick * GBIT), size / (slow * GBIT)).rounded, words


def _engine(
    setting: Setting, type_: InstanceType, host: _Host, parts: Span, whys: list[str]
) -> tuple[Span, str]:
    known, size = rates(), setting.weights_bytes
    if setting.engine == VLLM:
        per_gb = known["vllm"]["to_gpu_s_per_gb"]
        to_gpu = UNKNOWN if size is None else Span(*(size / GB * s for s in per_gb)).rounded
        compiling = Span(*known["vllm"]["compile"])
        words = "compiling and CUDA graphs"
        if type_.accelerator in setting.caches:
            compiling = Span(compiling.shortest_s - known["vllm"]["cached"], compiling.longest_s)
            words = "engine cache and CUDA graphs"
        parts = parts + Span(*known["vllm"]["imports"]) + to_gpu + compiling
        whys += ["imports", f"{_gb(size)} to the GPU", words]
        return parts, ", ".join(whys)
    to_gpu = UNKNOWN
    if size is not None:
        disk = host.volume if setting.is_on_volume else known["store"]["gb_s"] * GB
        to_gpu = Span(size / (known["memory"]["gb_s"] * GB), size / disk).rounded
    if setting.engine == LLAMA_CPP:
        return parts + to_gpu + Span(*known[LLAMA_CPP]["warm_up"]), ", ".join(
            [*whys, f"{_gb(size)} to the GPU", "an empty run"]
        )
    why = [*whys, f"{_gb(size)} to the GPU, and what else run does, of which nothing is known"]
    return parts + to_gpu + UNKNOWN, ", ".join(why)


def _gb(size: float | None) -> str:
    return "weights of unknown size" if size is None else in_gb(size)
