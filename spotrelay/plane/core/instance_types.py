"""One instance type as EC2 describes it: what requirements are held against, at synth and at run time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spotrelay.plane.core.accelerators import canonical


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One instance type, as AWS describes it."""

    name: str
    accelerator: str
    """Our name of the GPU or chip; see `spotrelay.plane.core.accelerators`. Empty: the type has none."""
    accelerator_count: int
    """Whole accelerators on one instance; 0 where the instance has only a share of one (g6f, gr6f)."""
    accelerator_memory_mib: int
    """Of one accelerator, or of the share."""
    manufacturer: str
    vcpus: int
    memory_mib: int
    arch: str
    """`x86_64` or `arm64`."""
    spot: bool
    """Sold as Spot at all."""
    bare_metal: bool

    @property
    def family(self) -> str:
        """`g5` of g5.xlarge."""
        return self.name.partition(".")[0]

    @property
    def memory_gib(self) -> float:
        """Host memory."""
        return self.memory_mib / 1024

    @property
    def accelerator_memory_gb(self) -> int:
        """Memory of one accelerator as its maker counts it: T4 16, A10G and L4 24, L40S 48, A100 40.

        AWS gives an A10G 22,888 MiB, which is 24 GB in thousands, and a T4 16,384 MiB, which is 16 in 1024s.
        """
        if self.accelerator_memory_mib % 1024 == 0:
            return self.accelerator_memory_mib // 1024
        return round(self.accelerator_memory_mib * 1024**2 / 1e9)

    @property
    def is_nvidia(self) -> bool:
        """Runs CUDA; other makes match a service only if it names them."""
        return self.manufacturer == "NVIDIA"


def described(answer: Mapping[str, Any]) -> InstanceType:
    """A type from its entry in DescribeInstanceTypes' answer."""
    chip = _chip(answer)
    memory_mib = int(chip.get("MemoryInfo", {}).get("SizeInMiB", 0))
    archs = answer["ProcessorInfo"]["SupportedArchitectures"]
    return InstanceType(
        name=answer["InstanceType"],
        accelerator=canonical(chip["Name"], memory_mib) if chip else "",
        accelerator_count=int(chip.get("Count", 0)),
        accelerator_memory_mib=memory_mib,
        manufacturer=chip.get("Manufacturer", ""),
        vcpus=int(answer["VCpuInfo"]["DefaultVCpus"]),
        memory_mib=int(answer["MemoryInfo"]["SizeInMiB"]),
        # Small old types run i386, too, which stands first.
        arch="x86_64" if "x86_64" in archs else archs[0],
        spot="spot" in answer.get("SupportedUsageClasses", ()),
        bare_metal=bool(answer.get("BareMetal")),
    )


def _chip(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The accelerator; empty if the type has none. No type has two kinds.

    AWS describes GPUs, Neuron chips and other inference chips under three names; inf2 has two of them.
    """
    if gpus := answer.get("GpuInfo", {}).get("Gpus"):
        return dict(gpus[0])
    if devices := answer.get("NeuronInfo", {}).get("NeuronDevices"):
        return {"Manufacturer": "AWS", **devices[0]}
    if chips := answer.get("InferenceAcceleratorInfo", {}).get("Accelerators"):
        return dict(chips[0])
    return {}
