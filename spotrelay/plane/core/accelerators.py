"""Accelerator names: AWS's, made usable in a service file. Every naming quirk is settled here.

What AWS calls a GPU isn't always what people call it, nor always one product:

- `A100` is two GPUs, 40 GB in p4d and 80 GB in p4de. A model that needs the larger one must be able to say
  so: the larger is `A100-80GB` here, as in SkyPilot's files.
- `RTX PRO Server 6000` and `RTX PRO 4500` have spaces, and the first a word that NVIDIA doesn't use:
  `RTX-PRO-6000` and `RTX-PRO-4500` here.
- People write `A10g`, `t4G`, `RTXPRO6000`: case, spaces and hyphens don't count when names are compared.
"""

from __future__ import annotations

import re

_OURS = {"RTX PRO Server 6000": "RTX-PRO-6000", "RTX PRO 4500": "RTX-PRO-4500"}

_A100_SMALL_MIB = 40_960
"""Memory of the A100 that keeps the plain name."""

_ALSO_KNOWN_AS = {
    "A100-40GB": "A100",
    "H100-80GB": "H100",
    "RTX-PRO-Server-6000": "RTX-PRO-6000",
    "V100-32GB": "V100",  # the 16 GB one (p3) is no longer offered
}


def canonical(aws_name: str, memory_mib: int) -> str:
    """Our name for what AWS calls `aws_name` and gives `memory_mib` MiB."""
    if aws_name == "A100" and memory_mib > _A100_SMALL_MIB:
        return f"A100-{memory_mib // 1024}GB"
    return _OURS.get(aws_name, aws_name)


def comparable(name: str) -> str:
    """The name with everything taken off that doesn't count in a comparison."""
    return re.sub(r"[^a-z0-9]", "", name.casefold())


ALIASES = {comparable(alias): name for alias, name in _ALSO_KNOWN_AS.items()}
"""Comparable form of other people's names → our name."""
