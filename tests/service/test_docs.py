"""docs/service-file.md says what the code does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from spotrelay.file.compile.wording import fields, sections
from spotrelay.file.fields.schema import ServiceFile
from spotrelay.file.reference import END, SCHEMA_FILE, entries, json_schema, schema_text, with_table
from spotrelay.file.source.document import field_name
from spotrelay.file.values.disk import disk

from .conftest import GOOD, Loader

ROOT = Path(__file__).parents[2]

TEXT = (ROOT / "docs" / "service-file.md").read_text(encoding="utf-8")


def test_the_table_of_fields_is_current() -> None:
    """`python -m spotrelay.file.reference` would write what is there."""
    assert with_table(TEXT) == TEXT


def test_the_schema_is_current() -> None:
    """The file that editors read is what the models say."""
    shipped = (ROOT / "spotrelay" / "file" / SCHEMA_FILE).read_text(encoding="utf-8")
    assert shipped == schema_text()


def test_every_entry_of_the_reference_is_a_field() -> None:
    """A field that went is taken out of reference.toml, too."""
    written = tomllib.loads((ROOT / "spotrelay" / "file" / "reference.toml").read_text(encoding="utf-8"))
    assert written.keys() == entries().keys()


def test_a_default_that_the_reference_words_is_the_models() -> None:
    """Where it gives a value in code, it is the model's own or that of what is made of it."""
    for place, field in fields().items():
        entry = entries().get(field_name(place))
        worded = re.fullmatch(r"`([a-z0-9_/]+)`", entry.default) if entry else None
        if worded and field.default not in (None, ""):
            assert worded[1] == str(field.default).lower(), place


def unknown(values: Any, schema: dict[str, Any], way: str = "") -> list[str]:
    """Every key that the schema lacks."""
    if not isinstance(values, dict):
        return []
    section = next((one for one in (schema, *schema.get("anyOf", ())) if "properties" in one), None)
    if section is None:
        return []
    known = section["properties"]
    lacking = [f"{way}{name}" for name in values if name not in known]
    return lacking + [
        found
        for name in values
        if name in known
        for found in unknown(values[name], known[name], f"{way}{name}.")
    ]


@pytest.mark.parametrize("file", sorted((ROOT / "services").glob("*.yaml")), ids=lambda file: file.name)
def test_the_schema_has_every_field_of_our_service_files(file: Path) -> None:
    """What validates isn't underlined in an editor; a slip is."""
    values = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
    assert unknown(values, json_schema()) == []
    assert unknown({**values, "service": {"replica": 1}}, json_schema()) == ["service.replica"]


def test_the_schema_has_the_older_places_and_skyserves() -> None:
    """The older ones as deprecated; SkyServe's format is as good as ours."""
    schema = json_schema()
    sections = {
        name: schema["properties"][name]["anyOf"][0]["properties"] for name in ("service", "resources")
    }
    assert sections["service"]["drain_seconds"]["deprecated"]
    assert sections["resources"]["exclude"]["deprecated"]
    policy = sections["service"]["replica_policy"]["anyOf"][0]["properties"]
    assert policy["dynamic_ondemand_fallback"]["type"] == "boolean"
    assert "deprecated" not in policy["dynamic_ondemand_fallback"]


def test_the_page_begins_with_what_everybody_sets(service: Loader) -> None:
    """Ten fields, each with an example and what to know of it; together they are a right service file."""
    first = TEXT.split("\n## ")[1]
    example = first.partition("```yaml\n")[2].partition("```")[0]
    assert first.startswith("What everybody sets\n\n```yaml\n")
    fields_shown = re.findall(r"^ *(\w+):.*# (\d+): ", example, re.MULTILINE)
    # An env's and a secret's name stand for the section that has them.
    named = [{"MODEL_NAME": "envs", "HF_TOKEN": "secrets"}.get(name, name) for name, _ in fields_shown]
    assert [number for _, number in fields_shown] == [str(n) for n in range(1, 11)]
    assert re.findall(r"^\d+\. `(\w+)`", first, re.MULTILINE) == named
    assert {name.rpartition(".")[2] for name in entries()} >= set(named)
    chat = service(example)
    assert chat.warnings == ()
    assert chat.name == "chat"


def test_all_fields_come_last() -> None:
    """Nothing follows the table that is made from the schema but its end."""
    assert TEXT.split("\n## ")[-1].startswith("All fields\n")
    assert TEXT.endswith(f"{END}\n")


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
    assert len(models) == 17
    assert all(model.model_config.get("extra") == "forbid" for model in models)
    assert all(model.model_config.get("strict") for model in models)
