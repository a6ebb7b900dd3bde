"""Models by name, and what their caches look like: `models.toml`."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from spotrelay.operator.advice.gpu_memory import Attention


@dataclass(frozen=True, slots=True)
class Model:
    """A published model."""

    name: str
    params: float
    precision: str
    """In which it is usually run."""
    source: str
    attention: Attention | None = None
    """None: it keeps no cache."""
    kept: float = 0.0
    """Parameters that a quantised copy leaves in 16 bits."""
    phase: str = "decode"
    context: int | None = None
    """The longest that it takes, where that is shorter than usual."""


@cache
def models() -> Mapping[str, Model]:
    """All that have a name here."""
    told = tomllib.loads(resources.files(__package__).joinpath("models.toml").read_text("utf-8"))
    found = {}
    for name, values in told.items():
        shape = values.pop("attention", None)
        found[name] = Model(name=name, attention=Attention(*shape) if shape else None, **values)
    return found


def nearest_language_model(params: float) -> Model:
    """The one with a cache whose size is nearest, by ratio: its shape is assumed of a model without a
    name."""
    candidates = [model for model in models().values() if model.name.startswith(("llama", "qwen"))]
    return min(candidates, key=lambda model: abs(math.log(model.params / params)))


_VARIANT = r"(?:-(?:Instruct|Chat|it|hf))*"
"""What names of the same weights end with. Other endings, such as `-AWQ`, are of other sizes."""


def on_hub(text: str) -> Model | None:
    """The model that a text names as Hugging Face does, `meta-llama/Meta-Llama-3-8B-Instruct`."""
    found = [
        model
        for model in models().values()
        if (repository := re.match(r"https://huggingface\.co/([\w.-]+/[\w.-]+)", model.source))
        and re.search(
            rf"(?<![\w./-]){re.escape(repository[1])}{_VARIANT}(?![\w/-]|\.\w)", text, re.IGNORECASE
        )
    ]
    return found[0] if len(found) == 1 else None
