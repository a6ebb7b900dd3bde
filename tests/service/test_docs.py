"""docs/service-file.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from spotrelay.service.disk import disk
from spotrelay.service.document import field_name
from spotrelay.service.schema import ServiceFile
from spotrelay.service.wording import fields, sections

from .conftest import GOOD, Loader

TEXT = (Path(__file__).parents[2] / "docs" / "service-file.md").read_text(encoding="utf-8")


def schema() -> dict[str, Any]:
    """Every field of the schema with its default, `...` where it has none."""
    return {
        field_name(place): ... if field.is_required() else field.default
        for place, field in fields().items()
        if place not in (("service",), ("resources",), ("spotrelay",))
    }


def documented() -> dict[str, str]:
    """Every field in the table with the text of its default."""
    return dict(re.findall(r"^\| `([a-z_.]+)` \| (.*?) \|", TEXT, re.MULTILINE))


def test_the_table_has_every_field_and_no_other() -> None:
    """A new field fails this test until it is documented."""
    assert set(documented()) >= set(schema())
    assert {name for name in documented() if "." in name} <= set(schema())


def test_the_table_gives_the_defaults_of_the_schema() -> None:
    """Where the schema has a default, the table has the same; where it has none, it says `required`."""
    table = documented()
    for name, default in schema().items():
        if default is ...:
            assert table[name] == "required", name
        elif isinstance(default, bool | int | str):
            assert table[name] == f"`{str(default).lower()}`", name


def test_the_whole_example_is_a_right_service_file(service: Loader) -> None:
    """The file at the top of the document validates without a warning."""
    example = re.search(r"```yaml\n(name: chat.*?)```", TEXT, re.DOTALL)
    assert example
    chat = service(example[1])
    assert chat.warnings == ()
    assert chat.name == "chat"


ACCELERATORS = re.findall(r"^accelerators: [^#\n]*[\]}]", TEXT, re.MULTILINE)


@pytest.mark.parametrize("line", ACCELERATORS)
def test_every_way_to_write_accelerators_means_the_same(service: Loader, line: str) -> None:
    """The three forms in the document give the same instance types; only the list states a preference."""
    assert len(ACCELERATORS) == 3
    chat = service(GOOD.replace("accelerators: {A10G, L4, L40S}", line))
    reference = service(GOOD.replace("{A10G, L4, L40S}", "[A10G:1, L4:1]"))
    assert chat.instance_types == reference.instance_types
    assert chat.ordered == ("[" in line)


def test_the_documents_alternatives_are_what_it_says(service: Loader) -> None:
    """The example of alternatives validates, and its third one is left out with a warning."""
    example = re.search(r"```yaml\nresources:\n(  cpus: 4\+\n  any_of:.*?)```", TEXT, re.DOTALL)
    assert example
    chat = service(GOOD.replace("  accelerators: {A10G, L4, L40S}\n", example[1]))
    assert {t.accelerator for t in chat.instance_types} == {"L4", "A10G"}
    assert "g5.xlarge" not in chat.instance_type_names
    assert [w.field for w in chat.warnings] == ["resources.any_of[2].infra"]


def test_the_disk_table_is_the_codes() -> None:
    """Throughput, IOPS and the time that follows from them are what a tier buys."""
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) s \|", TEXT, re.MULTILINE)
    assert [row[0] for row in rows] == ["low", "medium", "high", "best", "ultra"]
    for tier, throughput_mibps, iops, seconds in rows:
        bought = disk(tier, 256)
        assert (bought.throughput_mibps, bought.iops) == (int(throughput_mibps), int(iops))
        assert int(seconds) == round(16e9 / (bought.throughput_mibps * 2**20))


def test_every_section_of_the_schema_is_strict() -> None:
    """No section takes unknown fields or converts types silently."""
    models: list[type[BaseModel]] = [model for _, model in sections()]
    assert ServiceFile in models
    assert len(models) == 5
    assert all(model.model_config.get("extra") == "forbid" for model in models)
    assert all(model.model_config.get("strict") for model in models)
