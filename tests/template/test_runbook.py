"""The runbook, docs/operations.md: whoever an alarm wakes finds its section, and a command first."""

from __future__ import annotations

import re

from tests.template.conftest import ROOT
from tests.template.support import Template, alarms_of, flat

RUNBOOK = "docs/operations.md"

COMMAND = re.compile(r"(spotrelay|aws) \S+")


def sections() -> dict[str, str]:
    """Each alarm's section: its name → its text."""
    text = (ROOT / RUNBOOK).read_text(encoding="utf-8")
    parts = re.split(r"^#{1,2} .*$|^### (\w+)$", text, flags=re.MULTILINE)
    return {name: body for name, body in zip(parts[1::2], parts[2::2], strict=True) if name}


def test_every_alarm_has_its_section_and_every_section_its_alarm(
    control_plane: Template, service_stack: Template, service_name: str
) -> None:
    """Sections are named as what tells somebody: none lacks one, and none is of a former alarm."""
    alarms = [*alarms_of(control_plane, "ControlPlane"), *alarms_of(service_stack, service_name)]
    assert sorted(sections()) == sorted(name for name in alarms if "/" not in name)


def test_every_section_begins_with_a_command() -> None:
    """Whoever reads it at night runs something before they read on."""
    for name, body in sections().items():
        first = re.match(r"\s*```sh account\n(.*)\n```\n", body)
        assert first, f"{name} doesn't begin with a command"
        assert COMMAND.match(first[1]), f"{name}: {first[1]}"


def test_every_description_begins_with_the_sections_command(
    control_plane: Template, service_stack: Template, service_name: str
) -> None:
    """An alarm's text begins with a command, the one that its section begins with, and names the section."""
    texts = sections()
    for template, of in ((control_plane, "ControlPlane"), (service_stack, service_name)):
        for name, alarm in alarms_of(template, of).items():
            section, text = name.partition("/")[0], flat(alarm["AlarmDescription"])
            found = re.match(r"Run `((?:spotrelay|aws) [\w-]+)", text)
            assert found, f"{name}: {text}"
            if "/" not in name:
                assert texts[section].lstrip().startswith(f"```sh account\n{found[1]}"), name
            assert text.endswith(f" Runbook: {RUNBOOK}, {section}."), name
