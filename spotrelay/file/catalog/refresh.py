"""Renew the catalog's data files from the copy of AWS's answers that the installed moto carries, or from EC2.

Run `python -m spotrelay.file.catalog.refresh` after an update of moto, read the diff, commit it. With a
region, `python -m spotrelay.file.catalog.refresh us-east-1`, EC2 itself is asked: for types that moto doesn't
have yet. No region has all types.

`python -m spotrelay.file.catalog.refresh FILE` renews the list prices from Karpenter's generated Go file,
which has those of us-east-1; `KARPENTER` says where it is.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from spotrelay.file.catalog import ACCELERATED, OFFERED, PLAIN, PRICED
from spotrelay.file.catalog.hosts import COLUMNS as HOST_COLUMNS
from spotrelay.file.catalog.hosts import hosted
from spotrelay.plane.core.instance_types import InstanceType, described

COLUMNS = (*(field.name for field in fields(InstanceType)), *HOST_COLUMNS)

ZONE_ID = re.compile(r"[a-z]+[0-9]+-az[0-9]+")
"""Of an availability zone, such as `use1-az4`; Local Zones have longer ones. Unlike a zone's name its ID is
the same in every account."""

PLAIN_FAMILIES = re.compile(r"([cmr]([5-9]|\d\d)|t[3-9]|x[2-9]|z\d)[a-z0-9-]*")
"""Without an accelerator: compute, general purpose and memory, their burstable, large and fast relatives.
Older generations run on Xen, where disks have other names."""

KARPENTER = "https://github.com/aws/karpenter-provider-aws/blob/main/pkg/providers/pricing/zz_generated.pricing_aws.go"
"""AWS's price list, as a bot of Karpenter's writes it down now and then. Apache-2.0."""

GENERATED = re.compile(r"// generated at (\d{4}-\d\d-\d\d)T\S+ for (\S+)")
LISTED = re.compile(r'"([a-z0-9-]+\.[a-z0-9-]+)": ([0-9.]+)')
"""That file's lines: of what day and region it is, and the price of a type."""

Answer = Mapping[str, Any]
Offerings = Mapping[str, Mapping[str, list[str]]]
"""Type → region → IDs of zones."""


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


def offerings_of_moto() -> dict[str, list[Answer]]:
    """Region → DescribeInstanceTypeOfferings' answer, by zone ID."""
    packed = resources.files("moto").joinpath("ec2/resources/instance_type_offerings/availability-zone-id")
    return {
        file.name.removesuffix(".json.gz"): json.loads(gzip.decompress(file.read_bytes()))
        for file in sorted(packed.iterdir(), key=lambda file: file.name)
    }


def offerings_of_ec2(region: str) -> dict[str, list[Answer]]:
    """The same from EC2, for one region.

    Raises:
        BotoCoreError, ClientError: there are no credentials, or EC2 refuses.
    """
    import boto3

    paginator = boto3.client("ec2", region_name=region).get_paginator("describe_instance_type_offerings")
    pages = paginator.paginate(LocationType="availability-zone-id")
    return {region: [dict(answer) for page in pages for answer in page["InstanceTypeOfferings"]]}


def accelerated(answers: Iterable[Answer]) -> list[list[Any]]:
    """One row of COLUMNS per instance type with an accelerator, sorted as the catalog promises."""
    types = [(type_, hosted(answer)) for answer in answers if (type_ := described(answer)).accelerator]
    types.sort(key=lambda both: (both[0].accelerator, both[0].accelerator_count, both[0].vcpus, both[0].name))
    return [list({**asdict(type_), **asdict(host)}.values()) for type_, host in types]


def offered(names: Iterable[str], offerings: Mapping[str, Iterable[Answer]]) -> Offerings:
    """Where each of the types is offered."""
    found: dict[str, dict[str, list[str]]] = {name: {} for name in sorted(names)}
    for region in sorted(offerings):
        for row in offerings[region]:
            if row["InstanceType"] in found and ZONE_ID.fullmatch(row["Location"]):
                found[row["InstanceType"]].setdefault(region, []).append(row["Location"])
    return {
        name: {region: sorted(zones) for region, zones in by_region.items()}
        for name, by_region in found.items()
    }


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


def render_offered(source: Mapping[str, str], found: Offerings) -> str:
    """The data file of where types are offered: one line for each."""
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(regions)}" for name, regions in found.items())
    return json.dumps(dict(source), indent=1)[:-2] + f',\n "types": {{\n{lines}\n }}\n}}\n'


def files(
    answers: Iterable[Answer], offerings: Mapping[str, Iterable[Answer]], source: Mapping[str, str]
) -> dict[str, str]:
    """Every data file's name and text."""
    answers = list(answers)
    rows = accelerated(answers)
    return {
        ACCELERATED: render(source, COLUMNS, rows),
        OFFERED: render_offered(source, offered((row[0] for row in rows), offerings)),
        PLAIN: render(source, ("family", "arch", "sizes"), plain(answers)),
    }


def listed(text: str, names: Iterable[str]) -> dict[str, Any]:
    """The data file of list prices: those of the types in Karpenter's file.

    Raises:
        ValueError: it isn't that file.
    """
    generated = GENERATED.search(text)
    usd = {name: float(price) for name, price in LISTED.findall(text)}
    if generated is None or not usd:
        raise ValueError("no prices, or no `// generated at …` before them")
    return {
        "source": f"Karpenter's AWS provider ({KARPENTER}): AWS's price list, reduced to what is used",
        "licence": "Apache-2.0",
        "date": generated[1],
        "region": generated[2],
        "usd_per_hour": {name: usd[name] for name in names if name in usd},
    }


def source_of_moto(date: str) -> dict[str, str]:
    """What the data files say of where they came from."""
    return {
        "source": f"moto {metadata.version('moto')}, moto/ec2/resources (https://github.com/getmoto/moto): "
        "AWS's answers to DescribeInstanceTypes and DescribeInstanceTypeOfferings, reduced to what is used",
        "licence": "Apache-2.0",
        "date": date,
    }


def main(source_or_region: str | None = None) -> None:
    """Write the data files next to this module."""
    if source_or_region and source_or_region.endswith(".go"):
        names = [row[0] for row in accelerated(answers_of_moto())]
        found = listed(Path(source_or_region).read_text(encoding="utf-8"), names)
        Path(__file__).with_name(PRICED).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        sys.stdout.write(f"{PRICED}: {len(found['usd_per_hour'])} prices of {found['date']}\n")
        return
    region = source_or_region
    date = datetime.now(UTC).date().isoformat()
    if region is None:
        made = files(answers_of_moto(), offerings_of_moto(), source_of_moto(date))
    else:
        source = (
            f"EC2 in {region}: its answers to DescribeInstanceTypes and DescribeInstanceTypeOfferings, "
            "reduced to what is used"
        )
        told = {"source": source, "licence": "AWS's own data", "date": date}
        made = files(answers_of_ec2(region), offerings_of_ec2(region), told)
    for name, text in made.items():
        path = Path(__file__).with_name(name)
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path}: {len(json.loads(text)['types'])} rows\n")


if __name__ == "__main__":
    main(*sys.argv[1:2])
