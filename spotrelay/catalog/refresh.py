"""Renew `accelerators.json` from the copy of AWS's answers that the installed moto carries.

Run `python -m spotrelay.catalog.refresh` after an update of moto, read the diff, commit it.
"""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import fields
from datetime import UTC, datetime
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from spotrelay.catalog import DATA_FILE
from spotrelay.core.instance_types import InstanceType, described

COLUMNS = tuple(field.name for field in fields(InstanceType))


def types_from_moto() -> list[list[Any]]:
    """One row of COLUMNS per instance type with an accelerator, sorted as the catalog promises."""
    packed = resources.files("moto").joinpath("ec2/resources/instance_types.json.gz").read_bytes()
    answers: dict[str, dict[str, Any]] = json.loads(gzip.decompress(packed))
    types = [type_ for answer in answers.values() if (type_ := described(answer)) is not None]
    types.sort(key=lambda t: (t.accelerator, t.accelerator_count, t.vcpus, t.name))
    return [[getattr(type_, column) for column in COLUMNS] for type_ in types]


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
