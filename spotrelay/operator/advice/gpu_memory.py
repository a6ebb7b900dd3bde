"""GPU memory that a model needs: weights, cache, and what else a forward pass takes.

Sources of the formulas:

- Weights: parameters times bits. Of 4-bit integers each group of 128 has a scale of 16 bits and a zero of 4
  besides (AWQ, arXiv:2306.00978): 4.156 bits. Of NVIDIA's FP4 each 16 have a scale of 8 bits: 4.5 bits
  (NVIDIA, "Introducing NVFP4"). The vocabulary's tables of quantised models usually stay in 16 bits.
- KV cache: 2 (a key and a value) x layers x heads of these x their width x 2 bytes, for each token of each
  request (NVIDIA, "Mastering LLM Techniques: Inference Optimization"). With grouped-query attention
  (arXiv:2305.13245) these heads are fewer than the others.
- Overhead: up to 20 % of the weights, says EleutherAI's "Transformer Math 101"
  (https://blog.eleuther.ai/transformer-math/). All of it is taken here.
- Training: 16 bytes for each parameter, of Adam with mixed precision (ZeRO, arXiv:1910.02054, section 3.1): 2
  of the weights, 2 of the gradients, 12 of the optimizer, shared evenly among the GPUs; and the same
  overhead.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

OVERHEAD = 0.2
"""Of the weights; see the module."""

TRAINING_BYTES = 16
"""For each parameter; see the module."""

CACHE_BYTES = 2
"""For each element: servers keep keys and values in 16 bits unless told otherwise (vLLM's
`kv-cache-dtype`)."""


class Phase(StrEnum):
    """What the GPU spends its time on."""

    DECODE = "decode"
    """Producing tokens one by one: the weights are read for each, so memory bandwidth is the limit."""
    PREFILL = "prefill"
    """Reading prompts, or whatever else takes many tokens at once (embeddings): arithmetic is the limit."""
    TRAINING = "training"
    IMAGE = "image"
    """Diffusion: arithmetic, too."""


@dataclass(frozen=True, slots=True)
class Precision:
    """How weights are stored."""

    name: str
    bits: float
    computed_in: tuple[str, ...]
    """What the hardware computes in, the preferred one first: any of these will do."""


PRECISIONS = {
    one.name: one
    for one in (
        Precision("fp32", 32, ("fp32",)),
        Precision("tf32", 32, ("tf32",)),
        Precision("bf16", 16, ("bf16",)),
        Precision("fp16", 16, ("fp16",)),
        # Without FP8 in hardware they are stored so and computed in 16 bits: vLLM does from Ampere on.
        Precision("fp8", 8, ("fp8", "bf16")),
        Precision("int8", 8, ("int8", "fp16")),
        Precision("fp4", 4.5, ("fp4", "bf16")),
        # AWQ's and GPTQ's kernels unpack to 16 bits.
        Precision("int4", 4 + 20 / 128, ("fp16",)),
    )
}


@dataclass(frozen=True, slots=True)
class Attention:
    """What decides a cache's size."""

    layers: int
    kv_heads: int
    head_width: int

    @property
    def bytes_per_token(self) -> int:
        """Of one request."""
        return 2 * self.layers * self.kv_heads * self.head_width * CACHE_BYTES


@dataclass(frozen=True, slots=True)
class Need:
    """GPU memory, in bytes. All of it together, on however many GPUs."""

    weights: float
    cache: float = 0.0
    overhead: float = 0.0
    working: tuple[str, ...] = ()
    """How the figures came about, a line for each."""
    one_request: float = 0.0
    """Cache of one more request of full length; 0: unknown, or there is none."""

    @property
    def total(self) -> float:
        """All of it."""
        return self.weights + self.cache + self.overhead


def gib(size: float) -> str:
    """`15.0 GiB`."""
    return f"{size / 1024**3:,.1f} GiB"


def given(total: float) -> Need:
    """Somebody says how much it is, with everything."""
    return Need(total, working=(f"{gib(total)} of GPU memory, as given, with everything that it takes",))


def inference(
    params: float,
    precision: Precision,
    attention: Attention | None,
    context: int,
    batch: int,
    kept: float = 0.0,
) -> Need:
    """What serving takes: `batch` requests of `context` tokens at once."""
    quantised = precision.bits < 16
    kept = kept if quantised else 0.0
    weights = ((params - kept) * precision.bits + kept * 16) / 8
    lines = [
        f"weights {gib(weights)}: {params / 1e9:g} B parameters x {precision.bits:g} bits"
        + (f", {kept / 1e9:g} B of them in 16" if kept else "")
    ]
    one = float(attention.bytes_per_token * context) if attention else 0.0
    if attention and context:
        lines.append(
            f"KV cache {gib(one * batch)}: 2 x {attention.layers} layers x {attention.kv_heads} heads"
            f" x {attention.head_width} x {CACHE_BYTES} bytes"
            f" = {attention.bytes_per_token / 1024:g} KiB a token,"
            f" x {context} tokens x {batch} request{'s' if batch > 1 else ''}"
        )
    overhead = OVERHEAD * weights
    lines.append(
        f"overhead {gib(overhead)}: {OVERHEAD:.0%} of the weights, for the forward pass and the runtime"
    )
    return Need(weights, one * batch, overhead, tuple(lines), one)


def training(params: float) -> Need:
    """What Adam with mixed precision takes, all GPUs together."""
    states = params * TRAINING_BYTES
    overhead = OVERHEAD * states
    return Need(
        states,
        overhead=overhead,
        working=(
            f"weights, gradients and optimizer {gib(states)}: {params / 1e9:g} B parameters"
            f" x {TRAINING_BYTES} bytes (Adam, mixed precision), shared among the GPUs",
            f"overhead {gib(overhead)}: {OVERHEAD:.0%} of that; activations of long sequences take more",
        ),
    )
