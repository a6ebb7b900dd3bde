"""Renew the catalog's data files from the copy of AWS's answers that the installed moto carries, or from EC2.

Run `python -m spotrelay.catalog.refresh` after an update of moto, read the diff, commit it. With a region,
`python -m spotrelay.catalog.refresh us-east-1`, EC2 itself is asked: for types that moto doesn't have yet. No
region has all types.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from spotrelay.catalog import ACCELERATED, PLAIN
from spotrelay.core.instance_types import InstanceType, described

COLUMNS = tuple(field.name for field in fields(InstanceType))

PLAIN_FAMILIES = re.compile(r"([cmr]([5-9]|\d\d)|t[3-9]|x[2-9]|z\d)[a-z0-9-]*")
"""Without an accelerator: compute, general purpose and memory, their burstable, large and fast relatives.
Older generations run on Xen, where disks have other names."""

Answer = Mapping[str, Any]


def answers_of_moto() -> list[Answer]:
    """DescribeInstanceTypes' entry of every type, from all regions."""
    packed = resources.files("moto").joinpath("ec2/resources/instance_types.json.gz").read_bytes()
    answers: dict[str, Answer] = json.loads(gzip.decompress(packed))
    return list(answers.values())


def answers_of_ec2(region: str) -> list[Answer]:
    """The same from EC2, for what the region has.

    Raises:
        BotoCoreError, ClientError: there are no credentials, or EC2 refuses.
    """
    import boto3

    pages = boto3.client("ec2", region_name=region).get_paginator("describe_instance_types").paginate()
    return [dict(answer) for page in pages for answer in page["InstanceTypes"]]


def accelerated(answers: Iterable[Answer]) -> list[list[Any]]:
    """One row of COLUMNS per instance type with an accelerator, sorted as the catalog promises."""
    types = [type_ for answer in answers if (type_ := described(answer)).accelerator]
    types.sort(key=lambda t: (t.accelerator, t.accelerator_count, t.vcpus, t.name))
    return [[getattr(type_, column) for column in COLUMNS] for type_ in types]


def plain(answers: Iterable[Answer]) -> list[list[Any]]:
    """Family, architecture, and vCPU and MiB of each size that is sold as Spot: what has no accelerator."""
    families: dict[tuple[str, str], dict[str, list[int]]] = {}
    for type_ in sorted(map(described, answers), key=lambda t: (t.family, t.vcpus, t.memory_mib, t.name)):
        if type_.accelerator or type_.bare_metal or not type_.spot:
            continue
        if PLAIN_FAMILIES.fullmatch(type_.family):
            sizes = families.setdefault((type_.family, type_.arch), {})
            sizes[type_.name.partition(".")[2]] = [type_.vcpus, type_.memory_mib]
    return [[family, arch, sizes] for (family, arch), sizes in families.items()]


def render(source: Mapping[str, str], columns: Iterable[str], rows: list[list[Any]]) -> str:
    """A data file: one line per row, so that a diff shows what AWS changed."""
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    head = json.dumps({**source, "columns": list(columns)}, indent=1)
    return head[:-2] + f',\n "types": [\n{lines}\n ]\n}}\n'


def files(answers: Iterable[Answer], source: Mapping[str, str]) -> dict[str, str]:
    """Every data file's name and text."""
    answers = list(answers)
    return {
        ACCELERATED: render(source, COLUMNS, accelerated(answers)),
        PLAIN: render(source, ("family", "arch", "sizes"), plain(answers)),
    }


def source_of_moto(date: str) -> dict[str, str]:
    """What the data files say of where they came from."""
    return {
        "source": f"moto {metadata.version('moto')}, moto/ec2/resources/instance_types.json.gz "
        "(https://github.com/getmoto/moto): AWS's answers to DescribeInstanceTypes, reduced to these columns",
        "licence": "Apache-2.0",
        "date": date,
    }


def main(region: str | None = None) -> None:
    """Write the data files next to this module."""
    date = datetime.now(UTC).date().isoformat()
    if region is None:
        made = files(answers_of_moto(), source_of_moto(date))
    else:
        source = f"EC2 in {region}: its answers to DescribeInstanceTypes, reduced to these columns"
        made = files(answers_of_ec2(region), {"source": source, "licence": "AWS's own data", "date": date})
    for name, text in made.items():
        path = Path(__file__).with_name(name)
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path}: {len(json.loads(text)['types'])} rows\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
