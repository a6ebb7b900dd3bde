"""Whether a command that the docs show exists, with the options that it is given. Nothing is run."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

import botocore.session
import jmespath  # type: ignore[import-untyped]
import typer
from botocore import xform_name
from botocore.model import OperationModel
from jmespath.exceptions import JMESPathError  # type: ignore[import-untyped]
from typer.exceptions import TyperException

from spotrelay.operator.cli.app import app
from stacks.settings import AppSettings

from .blocks import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")

CDK_CLI = ROOT / "node_modules" / "aws-cdk" / "lib" / "cli" / "cli-type-registry.json"
"""The CDK's commands and their options, as its own CLI reads them."""

AWS_GLOBAL = (
    *(
        "region",
        "profile",
        "endpoint-url",
        "output",
        "query",
        "debug",
        "dry-run",
        "no-dry-run",
        "no-verify-ssl",
    ),
    *("no-cli-pager", "no-paginate", "max-items", "page-size", "starting-token"),
    *("cli-input-json", "cli-binary-format", "generate-cli-skeleton"),
)
"""Options that each command of the AWS CLI takes, or each one that lists something."""

AWS_OF_THE_CLI = {
    ("logs", "tail"): {"log-group-name", "since", "follow", "format", "filter-pattern", "log-stream-names"},
    ("sso", "login"): {"sso-session", "no-browser", "use-device-code"},
}
"""Commands that the AWS CLI adds to what the services have, and their options."""

AWS_RENAMED = {("sns", "subscribe", "endpoint"): "notification-endpoint"}
"""Options to which the AWS CLI gives another name than the service does: there `--endpoint` is a URL's."""

AWS_S3 = ("cp", "ls", "mb", "mv", "rb", "rm", "sync", "presign")

Check = Callable[[list[str], bool], str | None]


def complaint(words: tuple[str, ...], *, is_whole: bool = True) -> str | None:
    """What is wrong with a command; None if nothing is, or if nobody here knows it.

    One that is only mentioned (not `is_whole`) may lack arguments.
    """
    check = CHECKS.get(words[0].removeprefix(".venv/bin/")) if words else None
    return check(list(words[1:]), is_whole) if check else None


def is_known(words: tuple[str, ...]) -> bool:
    """Whether somebody here knows it."""
    return bool(words) and words[0].removeprefix(".venv/bin/") in CHECKS


def _spotrelay(words: list[str], is_whole: bool) -> str | None:
    group: Any = typer.main.get_command(app)
    if not words or words[0].startswith("-"):
        return _parse(group, words, is_whole=False)
    name, *rest = words
    if name not in group.commands:
        return f"spotrelay has no command {name}: it has {', '.join(sorted(group.commands))}"
    return _parse(group.commands[name], rest, is_whole=is_whole)


def _parse(command: Any, words: list[str], *, is_whole: bool) -> str | None:
    if "--help" in words or "-h" in words:
        return None
    if not is_whole and words and words[-1].startswith("-"):
        words = [*words, "VALUE"]  # an option that is only named
    try:
        values, rest, _ = command.make_parser(command.context_class(command)).parse_args(list(words))
    except TyperException as error:
        return f"{error} (spotrelay {command.name} --help has them)"
    if not is_whole:
        return None
    lacking = [one.name for one in command.params if one.required and values.get(one.name) in (None, ())]
    if lacking:
        return f"spotrelay {command.name} needs {lacking[0].upper()}"
    unknown = [word for word in rest if word.startswith("-")]
    return f"spotrelay {command.name} doesn't take {(unknown or rest)[0]}" if rest else None


def _make(words: list[str], _is_whole: bool) -> str | None:
    for word in words:
        variable = re.match(r"(\w+)=", word)
        if variable and f"$({variable[1]})" not in MAKEFILE:
            return f"the Makefile knows no variable {variable[1]}"
        if not variable and not re.search(rf"^{re.escape(word)}:", MAKEFILE, re.MULTILINE):
            return f"the Makefile has no target {word}"
    return None


@cache
def _settings() -> frozenset[str]:
    """The names of all context values that the app asks for."""
    asked: set[str] = set()
    AppSettings.from_context(asked.add)
    return frozenset(asked)


@cache
def _cdk_cli() -> dict[str, Any]:
    known: dict[str, Any] = json.loads(CDK_CLI.read_text(encoding="utf-8"))
    return known


def _cdk(words: list[str], _is_whole: bool) -> str | None:
    if not words or words[0].startswith("-"):
        return None
    commands, name = _cdk_cli()["commands"], words[0]
    if name not in commands:
        return f"cdk has no command {name}: it has {', '.join(commands)}"
    known = set()
    for option, what in {**_cdk_cli()["globalOptions"], **commands[name].get("options", {})}.items():
        alias = what.get("alias", [])
        known |= {
            f"--{option}",
            f"--no-{option}",
            *(f"-{a}" for a in ([alias] if isinstance(alias, str) else alias)),
        }
    given = [word.partition("=")[0] for word in words if word.startswith("-")]
    if unknown := [option for option in given if option not in known]:
        return f"cdk {name} has no option {unknown[0]}"
    for option, value in itertools.pairwise(words):
        setting = value.partition("=")[0]
        if option in ("-c", "--context") and setting not in _settings():
            return f"there is no setting {setting}: stacks/settings.py has them all"
    return None


def _python(words: list[str], _is_whole: bool) -> str | None:
    if words[:1] == ["-m"] and words[1:] and not find_spec(words[1]):
        return f"there is no module {words[1]}"
    if words and words[0].endswith(".py") and not (ROOT / words[0]).exists():
        return f"there is no {words[0]}"
    return None


def _aws(words: list[str], is_whole: bool) -> str | None:
    while words and words[0].startswith("--"):
        del words[: 1 if words[0].startswith("--no-") else 2]
    if len(words) < 2:  # a service and a command
        return "aws takes a service and a command" if is_whole else None
    service, name, *rest = words
    if service == "s3":
        return None if name in AWS_S3 else f"aws s3 has no command {name}"
    try:
        known, required = _aws_options("s3" if service == "s3api" else service, name, rest)
    except LookupError as error:
        return str(error)
    given = [word[2:].partition("=")[0] for word in rest if word.startswith("--")]
    if unknown := [option for option in given if option not in known and option not in AWS_GLOBAL]:
        return f"aws {service} {name} has no option --{unknown[0]}"
    lacking = sorted(required.difference(given))
    if is_whole and lacking and "cli-input-json" not in given:
        return f"aws {service} {name} needs --{lacking[0]}"
    return _query(rest)


def _aws_options(service: str, name: str, rest: list[str]) -> tuple[set[str], set[str]]:
    """The options of a command of the AWS CLI, and those that it needs, by botocore's model."""
    if options := AWS_OF_THE_CLI.get((service, name)):
        return options, set()
    if service not in _session().get_available_services():
        raise LookupError(f"aws has no service {service}")
    model = _session().get_service_model(service)
    operations = {xform_name(operation, "-"): operation for operation in model.operation_names}
    if name == "wait":
        waiters = _session().get_waiter_model(service)
        waits = {
            xform_name(waiter, "-"): waiters.get_waiter(waiter).operation for waiter in waiters.waiter_names
        }
        if not rest or rest[0] not in waits:
            raise LookupError(f"aws {service} wait knows no {rest[0] if rest else 'nothing'}")
        return _options(model.operation_model(waits[rest[0]]), service, name)
    if name not in operations:
        raise LookupError(f"aws {service} has no command {name}")
    return _options(model.operation_model(operations[name]), service, name)


def _options(operation: OperationModel, service: str, name: str) -> tuple[set[str], set[str]]:
    shape = operation.input_shape
    if shape is None:
        return set(), set()
    own = {member: xform_name(member, "-") for member in shape.members}
    names = {member: AWS_RENAMED.get((service, name, option), option) for member, option in own.items()}
    flags = {f"no-{names[member]}" for member, of in shape.members.items() if of.type_name == "boolean"}
    return {*names.values(), *flags}, {names[member] for member in shape.required_members}


def _query(words: list[str]) -> str | None:
    for option, value in itertools.pairwise(words):
        if option == "--query":
            try:
                jmespath.compile(value)
            except JMESPathError as error:
                return f"--query {value}: {str(error).splitlines()[0]}"
    return None


@cache
def _session() -> botocore.session.Session:
    return botocore.session.Session()


CHECKS: dict[str, Check] = {
    "spotrelay": _spotrelay,
    "make": _make,
    "cdk": _cdk,
    "python": _python,
    "python3": _python,
    "aws": _aws,
}
"""The commands that are known, by name."""
