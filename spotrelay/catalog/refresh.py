"""Renew `accelerators.json` from the copy of AWS's answers that the installed moto carries.

Run `python -m spotrelay.catalog.refresh` after an update of moto, read the diff, commit it.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from spotrelay.catalog import DATA_FILE
from spotrelay.catalog.names import canonical

COLUMNS = (
    "name",
    "accelerator",
    "accelerator_count",
    "accelerator_memory_mib",
    "manufacturer",
    "vcpus",
    "memory_mib",
    "arch",
    "network",
    "efa",
    "nvme_gb",
    "spot",
    "bare_metal",
)


def types_from_moto() -> list[list[Any]]:
    """One row of COLUMNS per instance type with an accelerator, sorted as the catalog promises."""
    packed = resources.files("moto").joinpath("ec2/resources/instance_types.json.gz").read_bytes()
    answers: dict[str, dict[str, Any]] = json.loads(gzip.decompress(packed))
    rows = [_row(name, answer, chip) for name, answer in answers.items() for chip in _chip(answer)]
    return sorted(rows, key=lambda row: (row[1], row[2], row[5], row[0]))


def _chip(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The accelerator of a type, if it has one. No type has two kinds.

    AWS describes GPUs, Neuron chips and other inference chips under three names; inf2 has two of them.
    """
    if "GpuInfo" in answer:
        yield answer["GpuInfo"]["Gpus"][0]
    elif "NeuronInfo" in answer:
        yield {"Manufacturer": "AWS", **answer["NeuronInfo"]["NeuronDevices"][0]}
    elif "InferenceAcceleratorInfo" in answer:
        yield answer["InferenceAcceleratorInfo"]["Accelerators"][0]


def _row(name: str, answer: dict[str, Any], chip: dict[str, Any]) -> list[Any]:
    memory_mib = chip["MemoryInfo"]["SizeInMiB"]
    return [
        name,
        canonical(chip["Name"], memory_mib),
        chip["Count"],
        memory_mib,
        chip["Manufacturer"],
        answer["VCpuInfo"]["DefaultVCpus"],
        answer["MemoryInfo"]["SizeInMiB"],
        answer["ProcessorInfo"]["SupportedArchitectures"][0],
        answer["NetworkInfo"]["NetworkPerformance"],
        answer["NetworkInfo"]["EfaSupported"],
        answer.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
        "spot" in answer["SupportedUsageClasses"],
        answer["BareMetal"],
    ]


def render(rows: list[list[Any]], date: str) -> str:
    """The data file: one line per type, so that a diff shows what AWS changed."""
    head = {
        "source": f"moto {metadata.version('moto')}, moto/ec2/resources/instance_types.json.gz "
        "(https://github.com/getmoto/moto): AWS's answers to DescribeInstanceTypes, reduced to these columns",
        "licence": "Apache-2.0",
        "date": date,
        "columns": COLUMNS,
    }
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    return json.dumps(head, indent=1)[:-2] + f',\n "types": [\n{lines}\n ]\n}}\n'


def main() -> None:
    """Write the data file next to this module."""
    rows = types_from_moto()
    path = Path(__file__).with_name(DATA_FILE)
    path.write_text(render(rows, datetime.now(UTC).date().isoformat()), encoding="utf-8")
    sys.stdout.write(f"{path}: {len(rows)} instance types\n")


if __name__ == "__main__":
    main()
