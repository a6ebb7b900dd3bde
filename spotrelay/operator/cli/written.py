"""`recommend --write`: accelerators, cpus and memory in a service file."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import typer
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.util import load_yaml_guess_indent

from spotrelay.file.service import ServiceFileError, load
from spotrelay.file.source.inputs import Inputs
from spotrelay.file.values import eligibility
from spotrelay.operator.advice.advising import Advice
from spotrelay.operator.cli.errors import CommandError
from spotrelay.plane.core.requirements import Amount, Requirements

OTHER_WAYS = ("any_of", "ordered", "instance_type", "instance_types", "accelerator_memory", "gpus")
"""Fields of `resources` that choose types in another way: two ways at once would contradict each other."""

NEW = """\
# Written by `spotrelay recommend`. Say what runs the model, how it is probed, and how many there should be.
service:
  replicas: 2
  readiness_probe:
    path: /health
    initial_delay_seconds: 1200

spotrelay: {}

resources:
  use_spot: true
  ports: 8081

run: |
  exec python3 server.py
"""


def write_into(path: Path, advice: Advice) -> str:
    """Put the recommended types into the file, as long as it validates then; what was done, in words.

    Raises:
        CommandError: the file can't be read or written, or wouldn't validate. It is then as it was.
    """
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 120
    is_new = not path.exists()
    try:
        text = NEW if is_new else path.read_text(encoding="utf-8")
        values, width, dash = load_yaml_guess_indent(text, yaml=yaml)
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise CommandError(f"--write: {path} can't be read: {' '.join(str(error).split())}") from error
    if not isinstance(values, CommentedMap):
        raise CommandError(
            f"--write: {path} is no service file: expected sections such as service and resources"
        )
    said = _put(path, values, advice)
    yaml.indent(mapping=2, sequence=width or 2, offset=dash or 0)
    stream = io.StringIO()
    yaml.dump(values, stream)
    _replace(path, stream.getvalue())
    return f"{path}: {'new, ' if is_new else ''}{said}"


def _put(path: Path, values: Any, advice: Advice) -> str:
    resources = values.setdefault("resources", CommentedMap())
    if not isinstance(resources, CommentedMap):
        raise CommandError(f"--write: {path}: resources is no section")
    if other := next((name for name in OTHER_WAYS if resources.get(name) is not None), None):
        raise CommandError(
            f"--write: {path}: resources.{other} chooses types in another way: remove it first"
        )
    types = [choice.fit.type for choice in advice.choices]
    cpus = advice.question.vcpus or Amount(min(type_.vcpus for type_ in types), at_least=True)
    memory = advice.question.host_gib
    accelerators = tuple(advice.groups())
    wanted = Requirements(accelerators, cpus=cpus, memory_gib=memory, arch=advice.question.arch)
    beyond = [t.name for t in eligibility.find(wanted).types if t.name not in {type_.name for type_ in types}]
    news = {
        "accelerators": _flow([str(one) for one in accelerators]),
        "cpus": str(cpus),
        "memory": str(memory),
    }
    for place, (name, value) in enumerate(news.items()):
        if name in resources:
            resources[name] = value
        else:
            resources.insert(place, name, value)
    said = f"accelerators [{', '.join(map(str, accelerators))}], cpus {cpus}, memory {memory}"
    section = values.get("spotrelay")
    if beyond and isinstance(section, dict):
        # Without this section the file is in SkyServe's format, which has no such field.
        kept = [name for name in section.get("exclude") or () if name not in beyond]
        section["exclude"] = _flow([*kept, *beyond])
        said += f", exclude [{', '.join(beyond)}]"
    return said


def _flow(names: list[str]) -> CommentedSeq:
    """A list on one line."""
    found = CommentedSeq(names)
    found.fa.set_flow_style()
    return found


def _replace(path: Path, text: str) -> None:
    """At once, and only by what validates; beside the file, since it may name others by where it is."""
    temporary = path.with_name(f"{path.stem}-{os.getpid()}.yaml")
    try:
        temporary.write_text(text, encoding="utf-8")
        service = load(temporary, Inputs(name="recommended"))
        temporary.replace(path)
    except ServiceFileError as error:
        problems = "; ".join(str(problem).replace(str(temporary), str(path)) for problem in error.problems)
        raise CommandError(f"--write: nothing was written, the file wouldn't validate: {problems}") from error
    except OSError as error:
        raise CommandError(f"--write: {path} can't be written: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
    for warning in service.warnings:
        typer.echo(f"warning: {str(warning).replace(str(temporary), str(path))}", err=True)
