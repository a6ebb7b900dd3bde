"""Engine caches: what an engine compiles at its first start, for one kind of accelerator.

`warm` makes one, on the instance that packs; `unpack` puts it in place before `run` is started. It isn't
keyed by `run`: engines know by themselves what of it fits, and compile the rest.
"""

from __future__ import annotations

from collections.abc import Iterable

from spotrelay.file.instance.unpack import ENGINE
from spotrelay.file.model import Service
from spotrelay.plane.core.instance_types import InstanceType

VARIABLES = {
    "VLLM_CACHE_ROOT": "/vllm",
    "TORCHINDUCTOR_CACHE_DIR": "/inductor",
    "TRITON_CACHE_DIR": "/triton",
    "FLASHINFER_WORKSPACE_BASE": "",
    "CUDA_CACHE_PATH": "/cuda",
}
"""By which engines and compilers are told where to keep what they compile, and where that is below one
directory. All by default somewhere in the home directory, Inductor's in /tmp. vLLM 0.33 sets Inductor's below
its own, and Triton's only where it doesn't compile ahead of time; none of them is in the key of what it keeps
(`compile_factors` in vllm/envs.py). FlashInfer's is the directory above its .cache."""

EXPORT = (
    f"spotrelay_engine=$SPOTRELAY_DIR/{ENGINE}\n"
    f"export {' '.join(f'{name}=$spotrelay_engine{at}' for name, at in VARIABLES.items())}\n"
)
"""In run.sh, before the file's `run`. Nowhere else, so that packs of a set-up fit as before."""


def is_kept(service: Service) -> bool:
    """Whether what its engine compiles is packed."""
    return service.pack is not None and service.pack.warm


def may_be_kept(service: Service) -> bool:
    """Whether it could be: a probe tells when the engine is up, and nothing else where it compiles to."""
    return service.readiness_probe is not None and not VARIABLES.keys() & service.envs.keys()


def families(types: Iterable[InstanceType]) -> dict[str, str]:
    """The families of instance types, such as g6, each with its accelerator.

    A family has one kind. Shares of an accelerator are left out: they are no such device to an engine.
    """
    return {type_.family: type_.accelerator for type_ in types if type_.accelerator_count}


def kinds(service: Service) -> tuple[str, ...]:
    """The accelerators for which there can be caches, each once, in the order of its types."""
    return tuple(dict.fromkeys(families(service.instance_types).values())) if is_kept(service) else ()
