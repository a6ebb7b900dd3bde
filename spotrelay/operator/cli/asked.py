"""From the options of `recommend` to the question that they ask."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from spotrelay.file.catalog import amounts
from spotrelay.file.catalog.amounts import AmountError
from spotrelay.operator.advice.fitting import Interconnect, Question
from spotrelay.operator.advice.gpu_memory import (
    PRECISIONS,
    Attention,
    Need,
    Phase,
    Precision,
    given,
    inference,
    training,
)
from spotrelay.operator.advice.models import Model, models, nearest_language_model
from spotrelay.operator.cli.errors import CommandError
from spotrelay.operator.cli.nearest import unknown
from spotrelay.plane.core.requirements import Amount

DEFAULT_PRECISION = "bf16"
DEFAULT_CONTEXT = 8192

ARCHS = ("x86_64", "arm64")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options as they were given."""

    model: str | None = None
    params: str | None = None
    model_memory: str | None = None
    precision: str | None = None
    phase: str | None = None
    context: int | None = None
    batch: int = 1
    active_params: str | None = None
    attention: str | None = None
    gpus: int | None = None
    interconnect: str = "any"
    vcpus: str | None = None
    memory: str | None = None
    arch: str = "x86_64"
    budget: str | None = None


def question(asked: Asked) -> Question:
    """What they ask.

    Raises:
        CommandError: one can't be, or they contradict each other.
    """
    said = [name for name in ("model", "params", "model_memory") if getattr(asked, name) is not None]
    if len(said) != 1:
        ways = "--model NAME, --params N or --model-memory SIZE"
        raise CommandError(
            f"{' and '.join('--' + name.replace('_', '-') for name in said)} say the same: leave one"
            if said
            else f"how large is the model? Say {ways}"
        )
    if asked.model_memory is not None and (asked.active_params or asked.attention):
        raise CommandError(
            "--model-memory is all that the model takes: leave out --attention, --active-params"
        )
    model = _model(asked.model)
    precision = known_precision(asked.precision or (model.precision if model else DEFAULT_PRECISION))
    phase = one_of(Phase, "--phase", "phase", asked.phase or (model.phase if model else Phase.DECODE))
    params = model.params if model else _count("--params", asked.params)
    active = _count("--active-params", asked.active_params) if asked.active_params else params
    if params and active and active > params:
        raise CommandError(f"--active-params: {asked.active_params} is more than the model has")
    need = _need(asked, model, params, precision, phase)
    # Of a mixture of experts a token reads its own experts only.
    read = need.weights * active / params if params and active else None
    return Question(
        need,
        precision,
        phase,
        active,
        read,
        asked.batch,
        asked.gpus,
        one_of(Interconnect, "--interconnect", "interconnect", asked.interconnect),
        _amount("--vcpus", asked.vcpus, amounts.cpus),
        _amount("--memory", asked.memory, amounts.memory),
        _arch(asked.arch),
        budget_usd=_usd(asked.budget),
    )


def smaller(asked: Asked) -> dict[str, Asked]:
    """The same about a model that takes less, in words; where nothing holds it as it is."""
    found: dict[str, Asked] = {}
    if asked.model_memory is None and (asked.phase or "decode") != Phase.TRAINING:
        model = _model(asked.model)
        bits = known_precision(asked.precision or (model.precision if model else DEFAULT_PRECISION)).bits
        for fewer in ("fp8", "int4"):
            if PRECISIONS[fewer].bits < bits:
                found[f"with --precision {fewer}"] = replace(asked, precision=fewer)
    if asked.batch > 1:
        found["with --batch 1"] = replace(asked, batch=1)
    return found


def _need(
    asked: Asked, model: Model | None, params: float | None, precision: Precision, phase: Phase
) -> Need:
    if params is None:
        return given(_bytes(asked.model_memory or ""))
    if phase is Phase.TRAINING:
        return training(params)
    shape = _attention(asked.attention) if asked.attention else model.attention if model else None
    context = asked.context
    if context is None:
        context = (model.context if model else None) or DEFAULT_CONTEXT
    like = None
    if shape is None and model is None and phase is not Phase.IMAGE and context:
        like = nearest_language_model(params)
        shape = like.attention
    need = inference(params, precision, shape, context, asked.batch, model.kept if model else 0.0)
    if like is None:
        return need
    words = (
        f"the cache is that of {like.name}, the nearest in size:"
        " --attention LAYERSxKV_HEADSxHEAD_DIM says it better"
    )
    return Need(need.weights, need.cache, need.overhead, (*need.working, words), need.one_request)


def _model(name: str | None) -> Model | None:
    if name is None:
        return None
    found = models().get(name.casefold())
    if found is None:
        raise CommandError(f"--model: {unknown('model', name, models())}; of others say --params")
    return found


def known_precision(name: str) -> Precision:
    """The precision of that name.

    Raises:
        CommandError: there is none.
    """
    found = PRECISIONS.get(name.casefold())
    if found is None:
        raise CommandError(f"--precision: {unknown('precision', name, PRECISIONS)}")
    return found


E = TypeVar("E", bound=Enum)


def one_of(kind: type[E], option: str, what: str, name: str) -> E:
    """The member of that name.

    Raises:
        CommandError: there is none.
    """
    try:
        return kind(name.casefold())
    except ValueError:
        raise CommandError(f"{option}: {unknown(what, name, [str(one.value) for one in kind])}") from None


def _arch(name: str) -> str:
    if name not in ARCHS:
        raise CommandError(f"--arch: {unknown('architecture', name, ARCHS)}")
    return name


_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


def _count(option: str, text: str | None) -> float | None:
    """`8B` as 8e9."""
    if text is None:
        return None
    written = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([kKmMbBtT]?)", text)
    number = float(written[1]) * _SCALES[written[2].lower()] if written else 0.0
    if not 1e6 <= number <= 1e14:
        raise CommandError(f"{option}: expected a number of parameters such as 8B or 350M, got {text!r}")
    return number


_SIZES = {"gib": 1024**3, "gb": 1e9, "mib": 1024**2, "mb": 1e6, "tib": 1024**4, "tb": 1e12}


def _bytes(text: str) -> float:
    """`24GiB`, or `24GB`: the makers' GB of a GPU are either, so both are taken for what they are."""
    written = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?([A-Za-z]+)", text)
    unit = _SIZES.get(written[2].lower()) if written else None
    if written is None or unit is None or not float(written[1]):
        raise CommandError(f"--model-memory: expected a size such as 24GiB or 24GB, got {text!r}")
    return float(written[1]) * unit


def _attention(text: str) -> Attention:
    written = re.fullmatch(r"([1-9][0-9]{0,3})x([1-9][0-9]{0,3})x([1-9][0-9]{0,3})", text)
    if written is None:
        raise CommandError(
            f"--attention: expected LAYERSxKV_HEADSxHEAD_DIM such as 32x8x128, from the model's config.json"
            f" (num_hidden_layers, num_key_value_heads, head_dim), got {text!r}"
        )
    return Attention(int(written[1]), int(written[2]), int(written[3]))


def _amount(option: str, text: str | None, parse: Callable[[str], Amount]) -> Amount | None:
    if text is None:
        return None
    try:
        return parse(text)
    except AmountError as error:
        raise CommandError(f"{option}: {error}") from None


def _usd(text: str | None) -> float | None:
    if text is None:
        return None
    written = re.fullmatch(r"\$?([0-9]{1,6}(?:\.[0-9]{1,6})?)(?: ?/ ?h)?", text)
    if written is None or not float(written[1]):
        raise CommandError(f"--budget: expected USD an hour such as 1.5/h, got {text!r}")
    return float(written[1])
