"""Which instance types can hold a model, and why the others can't."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from spotrelay.file import catalog
from spotrelay.operator.advice.gpu_memory import Need, Phase, Precision
from spotrelay.plane.core.instance_types import InstanceType
from spotrelay.plane.core.requirements import Accelerators, Amount

SYSTEM_GIB = 2
"""Host memory that the system and a server's own processes take beside the weights that pass through."""

TIGHT = 0.9
"""Of a GPU's memory vLLM takes so much by default (`gpu-memory-utilization`): for more it must be told."""


class Interconnect(Enum):
    """How several GPUs of an instance are to be connected."""

    ANY = "any"
    NVLINK = "nvlink"


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked."""

    need: Need
    precision: Precision
    phase: Phase = Phase.DECODE
    params: float | None = None
    """Those that each token uses: fewer than all of them where a model has experts. None: unknown."""
    read: float | None = None
    """Bytes of weights that each token, or each batch of tokens, reads at least; None: all that is needed."""
    batch: int = 1
    gpus: int | None = None
    """So many; None: as few as will do."""
    interconnect: Interconnect = Interconnect.ANY
    vcpus: Amount | None = None
    memory: Amount | None = None
    """Host memory, GiB; None: as much as the weights need on their way to the GPU."""
    arch: str = "x86_64"
    regions: tuple[str, ...] = ()
    budget_usd: float | None = None
    """For each instance, an hour."""

    @property
    def host_gib(self) -> Amount:
        """Host memory that a type must have.

        Weights pass through it while they are loaded: 2xlarge or larger, AWS's own advice for image models,
        is this rule for models of 16 GB.
        """
        if self.memory:
            return self.memory
        through = 0.0 if self.phase is Phase.TRAINING else self.need.weights / 1024**3
        return Amount(int(-(-(through + SYSTEM_GIB) // 1)), at_least=True)


@dataclass(frozen=True, slots=True)
class Fit:
    """A type that holds the model."""

    type: InstanceType
    used: int
    """Its GPUs, all of them."""
    computed_in: str
    zones: Mapping[str, tuple[str, ...]]
    """Region → zones, of the regions that were asked for."""

    @property
    def accelerators(self) -> Accelerators:
        """As a service file wants them."""
        return Accelerators(self.type.accelerator, self.used)

    @property
    def gpu_bytes(self) -> float:
        """Memory of all of its GPUs."""
        return float(self.used * catalog.memory_bytes(self.type))

    @property
    def pools(self) -> int:
        """How many capacity pools it makes."""
        return sum(map(len, self.zones.values()))

    def is_tight(self, need: Need) -> bool:
        """Whether the model needs more of it than servers take by default."""
        return need.total > TIGHT * self.gpu_bytes

    def further_requests(self, need: Need) -> int | None:
        """How many more requests of full length have room; None: unknown."""
        return int((self.gpu_bytes - need.total) // need.one_request) if need.one_request else None


class Cause(Enum):
    """Why a type is out, in the order in which it is asked: the first counts."""

    MAKER = "maker"
    ARCH = "arch"
    SHARE = "share"
    PRECISION = "precision"
    COUNT = "count"
    SMALL = "small"
    LINK = "link"
    MANY = "many"
    PLACE = "place"
    VCPUS = "vcpus"
    HOST = "host"
    BUDGET = "budget"
    LARGE = "large"
    """Its GPUs have much more memory than is needed."""
    OVERSIZED = "oversized"
    """Its host is much larger than another one's with the same GPUs."""
    DEAR = "dear"


@dataclass(frozen=True, slots=True)
class Out:
    """A type that isn't recommended."""

    type: InstanceType
    cause: Cause
    reason: str
    """A clause that is true of every type with the same words."""


def candidates() -> list[InstanceType]:
    """Every type with an accelerator."""
    return [type_ for type_ in catalog.all_types() if type_.accelerator]


def fitting(question: Question, types: Iterable[InstanceType]) -> tuple[list[Fit], list[Out]]:
    """Those that hold the model, as they stand in the catalog; and the others."""
    fits: list[Fit] = []
    outs: list[Out] = []
    types = list(types)
    least = _least_counts(question, types)
    for type_ in types:
        found = _judged(type_, question, least.get(type_.accelerator))
        if isinstance(found, Fit):
            fits.append(found)
        else:
            outs.append(found)
    return fits, outs


def _least_counts(question: Question, types: Iterable[InstanceType]) -> dict[str, int]:
    """Accelerator → the fewest on one instance that hold the model, of the numbers that AWS offers."""
    found: dict[str, int] = {}
    for type_ in types:
        count = type_.accelerator_count
        if count * catalog.memory_bytes(type_) >= question.need.total and count:
            if _link_problem(type_, question):
                continue
            found[type_.accelerator] = min(count, found.get(type_.accelerator, count))
    return found


def _judged(type_: InstanceType, question: Question, least: int | None) -> Fit | Out:
    problem = (
        _of_another_kind(type_, question)
        or _imprecise(type_, question)
        or _miscounted(type_, question, least)
        or _misplaced(type_, question)
        or _mishosted(type_, question)
    )
    if problem:
        return Out(type_, *problem)
    zones = catalog.offered(type_.name)
    there = {region: zones[region] for region in question.regions or tuple(zones) if region in zones}
    return Fit(type_, type_.accelerator_count, str(computed_in(type_, question.precision)), there)


Problem = tuple[Cause, str]


def _of_another_kind(type_: InstanceType, question: Question) -> Problem | None:
    if type_.manufacturer == "AWS":
        return Cause.MAKER, "AWS's own chips: they run models compiled with the Neuron SDK, not CUDA"
    if not type_.is_nvidia:
        return Cause.MAKER, f"{type_.accelerator} doesn't run CUDA"
    if type_.arch != question.arch:
        return Cause.ARCH, f"{type_.arch}, which needs an image of its own (--arch {type_.arch})"
    if not type_.accelerator_count:
        # A service file can ask for a share by the type's name only: accelerators are whole ones.
        holds = catalog.memory_bytes(type_) >= question.need.total
        how = "would hold it: resources.instance_types can name it" if holds else "is too little"
        return Cause.SHARE, f"a share of one {type_.accelerator} {how}"
    return None


def computed_in(type_: InstanceType, precision: Precision) -> str | None:
    """What the hardware computes in; None where it has none of what will do."""
    chip = catalog.all_chips()[type_.accelerator]
    return next(
        (one for one in precision.computed_in if one == "fp32" or chip.computes_in(one)),
        None,
    )


def _imprecise(type_: InstanceType, question: Question) -> Problem | None:
    if computed_in(type_, question.precision):
        return None
    chip = catalog.all_chips()[type_.accelerator]
    lacking = " or ".join(name.upper() for name in question.precision.computed_in)
    return Cause.PRECISION, f"{type_.accelerator} ({chip.architecture.value}) has no {lacking} in hardware"


def _link_problem(type_: InstanceType, question: Question) -> bool:
    if question.interconnect is Interconnect.ANY or type_.accelerator_count == 1:
        return False
    return not catalog.all_chips()[type_.accelerator].nvlink


def _miscounted(type_: InstanceType, question: Question, least: int | None) -> Problem | None:
    count, name = type_.accelerator_count, type_.accelerator
    if question.gpus is not None and count != question.gpus:
        return Cause.COUNT, f"{_gpus(count, name)}, where {question.gpus} {_are(question.gpus)} asked for"
    have = count * catalog.memory_bytes(type_)
    if have < question.need.total:
        return Cause.SMALL, f"{_gpus(count, name)} {_have(count)} {have / 1024**3:.1f} GiB"
    if _link_problem(type_, question):
        return Cause.LINK, f"no NVLink between the {_gpus(count, name)}"
    if question.gpus is None and least is not None and count > least:
        return Cause.MANY, f"{_gpus(count, name)}, of which {least} would be used"
    return None


def _misplaced(type_: InstanceType, question: Question) -> Problem | None:
    zones = catalog.offered(type_.name)
    if question.regions and not any(region in zones for region in question.regions):
        some = ", ".join(sorted(zones, key=lambda region: (-len(zones[region]), region))[:3])
        return Cause.PLACE, f"not offered in {' or '.join(question.regions)} (but in {some})"
    return None


def _mishosted(type_: InstanceType, question: Question) -> Problem | None:
    if question.vcpus and not question.vcpus.accepts(type_.vcpus):
        return Cause.VCPUS, f"{type_.vcpus} vCPU, where {question.vcpus} {_are(2)} asked for"
    if not question.host_gib.accepts(type_.memory_gib):
        asked = "are asked for" if question.memory else "are needed while the weights are loaded"
        return Cause.HOST, f"{type_.memory_gib:g} GiB of host memory, where {question.host_gib} {asked}"
    return None


def _gpus(count: int, name: str) -> str:
    return f"{count} {name}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


def relaxed(question: Question) -> list[tuple[str, Question]]:
    """The same question with one thing less asked for, in words: what would give an answer."""
    found = []
    if question.interconnect is not Interconnect.ANY:
        found.append(("without NVLink", replace(question, interconnect=Interconnect.ANY)))
    if question.gpus is not None:
        found.append(("with any number of GPUs", replace(question, gpus=None)))
    if question.vcpus:
        found.append(("with any number of vCPU", replace(question, vcpus=None)))
    if question.memory:
        found.append(("with any host memory", replace(question, memory=None)))
    if question.budget_usd is not None:
        found.append(("with a larger budget", replace(question, budget_usd=None)))
    if question.regions:
        found.append(("in another region", replace(question, regions=())))
    return found
