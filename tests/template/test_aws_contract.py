"""docs/aws-contract.md has a row for all of AWS that the product relies on, and none for what it doesn't.

What it relies on is read out of the product: calls, error codes, event patterns, synthesized templates.
What a row says is for people to judge. That it names a place, a source and an imitation is judged here.
"""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest
from botocore import xform_name

from spotrelay.plane.aws.clients import Clients
from stacks.settings import AppSettings
from tests.template.conftest import ROOT, synthesize
from tests.template.support import Template
from tests.template.test_bring_your_own import GROUP, LISTENER
from tests.template.test_bring_your_own import settings as brought_settings
from tests.template.test_bring_your_own import write as write_brought
from tests.template.test_document import BRIDGED, FILE, KEY

PAGE = ROOT / "docs" / "aws-contract.md"
PRODUCT = ("spotrelay", "lambdas", "stacks")

COLUMNS = ["We rely on", "AWS says", "Where", "Stand-in"]

NOT_IMITATED = "*Not imitated"
"""How a cell says that the stand-in is without; the reason that this is safe follows."""

OWN_TYPES = ("Custom::", "AWS::CDK::")
"""Resources that are the product's own, or a note of the CDK's, and none of AWS's."""


OF_OUR_OWN = {
    "account": "000000000000",
    "region": "us-east-1",
    "zones": "us-east-1a,us-east-1b",
    "public_addresses": "true",
    "internet_facing": "true",
    "allowed_cidrs": "203.0.113.0/24",
    "api_keys": "web",
    "certificate_arn": "arn:aws:acm:us-east-1:000000000000:certificate/mine",
    "access_logs_bucket": "my-logs",
    "alarm_email": "me@example.org",
    "kms_key_arn": KEY,
}
"""Each setting as it isn't by default."""

PERMISSIONS = "spotrelay/operator/look/denied.py"
"""The one place outside of the adapters that reads AWS's codes."""


@dataclass(frozen=True)
class Row:
    """One line of one table."""

    service: str
    kind: str
    """The table's heading: Calls, Errors, Events, Resources or Behaviour."""
    names: tuple[str, ...]
    says: str
    where: str
    stand_in: str
    line: int

    def __str__(self) -> str:
        return f"docs/aws-contract.md:{self.line}: {self.names}"


@cache
def rows() -> tuple[Row, ...]:
    """Every row of the page."""
    return tuple(_rows(PAGE.read_text(encoding="utf-8")))


def _rows(text: str) -> Iterator[Row]:
    service = kind = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("## "):
            service = line.removeprefix("## ")
        elif line.startswith("### "):
            kind = line.removeprefix("### ")
        elif line.startswith("|") and kind:
            cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            assert len(cells) == len(COLUMNS), f"docs/aws-contract.md:{number} has {len(cells)} cells"
            if cells != COLUMNS and set("".join(cells)) - set("-"):
                relied, says, where, stand_in = cells
                yield Row(service, kind, tuple(_quoted(relied)), says, where, stand_in, number)


def _quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def named(kind: str) -> set[tuple[str, str]]:
    """What rows of a kind name, with the service they stand under."""
    return {(row.service, name) for row in rows() if row.kind == kind for name in row.names}


# --- what the product relies on ---


@dataclass(frozen=True)
class Module:
    """A file of the product."""

    path: str
    tree: ast.Module


@cache
def modules() -> tuple[Module, ...]:
    """Every file of the product."""
    files = sorted(path for part in PRODUCT for path in (ROOT / part).rglob("*.py"))
    return tuple(Module(str(f.relative_to(ROOT)), ast.parse(f.read_text(encoding="utf-8"))) for f in files)


@cache
def clients() -> Mapping[str, str]:
    """The name of each client in `Clients` → boto3's name for its service."""
    made = Clients(boto3.Session(region_name="us-east-1"))
    once = [name for name, value in vars(Clients).items() if isinstance(value, cached_property)]
    return {name: getattr(made, name).meta.service_model.service_name for name in once if name[0] != "_"}


@cache
def operations_of(service: str) -> Mapping[str, str]:
    """boto3's method → AWS's operation."""
    model = botocore.session.get_session().get_service_model(service)
    return {xform_name(name): name for name in model.operation_names}


@cache
def operations() -> Mapping[tuple[str, str], frozenset[str]]:
    """(boto3's name of a service, operation) → the files that call it."""
    found: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for module in modules():
        if module.path == "spotrelay/plane/aws/clients.py":
            continue
        services, methods = _asked(module.tree)
        for service in services:
            called = {operations_of(service)[m] for m in methods & operations_of(service).keys()}
            is_settled = called or {"meta"} & methods
            assert is_settled, f"{module.path} has a client of {service}, and nothing shows what it calls"
            for operation in called:
                found[service, operation].add(module.path)
    return {key: frozenset(paths) for key, paths in found.items()}


def _asked(tree: ast.Module) -> tuple[set[str], set[str]]:
    """The services that a file has clients of, and every method that it calls or has paged."""
    services, methods = set[str](), set[str]()
    built = {
        id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "_"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            methods.add(node.attr)
            is_client = "clients" in ast.unparse(node.value)
            if is_client and node.attr in clients() and id(node) not in built:
                services.add(clients()[node.attr])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            match node.func.attr, node.args:
                case "client", [ast.Constant(value=str(service))]:
                    services.add(service)
                case "get_paginator" | "get_waiter", [ast.Constant(value=str(method))]:
                    methods.add(method)
    return services, methods


@cache
def codes() -> frozenset[str]:
    """What the product compares a code or a reason of AWS's with."""
    asking = [m for m in modules() if m.path.startswith(("spotrelay/plane/aws/", "lambdas/", PERMISSIONS))]
    constants = _constants(asking)
    compared = [node for module in asking for node in ast.walk(module.tree) if _is_comparison(node)]
    parts = [part for node in compared for part in ast.walk(node)]
    found = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    for part in parts:
        if isinstance(part, ast.Name):
            found |= constants.get(part.id, set())
    return frozenset(found)


def _is_comparison(node: ast.AST) -> bool:
    match node:
        # `"kms" in f"{code} {message}".lower()` looks for a word in a sentence.
        case ast.Compare(left=left, comparators=[right]):
            return _is_code(left) or _is_code(right)
        case ast.Call(func=ast.Attribute(attr="startswith", value=whose), args=[ast.Name(id=prefixes)]):
            return _is_code(whose) and prefixes.isupper()
        case ast.Call(func=ast.Attribute(attr="intersection"), args=[ast.Name(id="reasons")]):
            return True
        case ast.GeneratorExp(elt=ast.Compare(comparators=[right])):
            return _is_code(right)
        case _:
            return False


def _is_code(node: ast.AST) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in ("code", "reason")


def _constants(asking: Iterable[Module]) -> Mapping[str, set[str]]:
    """A module's constant → the strings in it; of a dictionary, its keys."""
    found: dict[str, set[str]] = {}
    for module in asking:
        for node in module.tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                values = node.value.keys if isinstance(node.value, ast.Dict) else [node.value]
                found[node.targets[0].id] = {
                    part.value
                    for value in values
                    if value
                    for part in ast.walk(value)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                }
    return found


@pytest.fixture(scope="module")
def templates(
    assembly: Path, scaled: Template, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Mapping[str, Any], ...]:
    """Every kind of template: by default, with every setting, and with every field of a service file."""
    directory = tmp_path_factory.mktemp("contract")
    files = {"tuned": FILE, "bridged": BRIDGED}
    for name, values in files.items():
        text = json.dumps({**values, "name": name})  # JSON is YAML
        (directory / f"{name}.yaml").write_text(text, encoding="utf-8")
    context = {**OF_OUR_OWN, "services": [str(directory / f"{name}.yaml") for name in files]}
    rule = {"arn": LISTENER, "priority": 7, "paths": ["/chat/*"], "hosts": ["a.example.com"]}
    chat = write_brought(directory, {"security_groups": [GROUP], "listener": rule})
    assemblies = (
        assembly,
        synthesize(directory / "own", AppSettings.from_context(context.get)),
        synthesize(directory / "given", brought_settings(chat)),
    )
    made = [file for assembly in assemblies for file in sorted(assembly.glob("*.template.json"))]
    return scaled.body, *(json.loads(file.read_text(encoding="utf-8")) for file in made)


def resources(templates: Iterable[Mapping[str, Any]]) -> set[tuple[str, str]]:
    """(type, property) of everything in them; `""` is the resource itself."""
    found = set[tuple[str, str]]()
    for template in templates:
        for resource in template["Resources"].values():
            type_ = str(resource["Type"])
            if not type_.startswith(OWN_TYPES):
                found.add((type_, ""))
                found |= {(type_, name) for name in _properties(resource.get("Properties", {}))}
    return found


def _properties(properties: Mapping[str, Any]) -> Iterator[str]:
    """Names of properties; of those that are a whole request or a list of settings, what is in them."""
    for name, value in properties.items():
        if name == "LaunchTemplateData":
            yield from (f"{name}.{field}" for field in value)
        elif name.endswith("Attributes") and isinstance(value, list):
            yield from (f"{name}.{attribute['Key']}" for attribute in value if "Key" in attribute)
        else:
            yield name


def patterns(templates: Iterable[Mapping[str, Any]]) -> set[str]:
    """The detail-types that rules match, and the fields of `detail` that they look at."""
    found = set[str]()
    for template in templates:
        for resource in template["Resources"].values():
            pattern = resource.get("Properties", {}).get("EventPattern")
            if resource["Type"] == "AWS::Events::Rule" and pattern:
                found |= {*pattern["detail-type"], *(f"detail.{name}" for name in pattern.get("detail", {}))}
    return found


# --- and what the page says ---

SERVICES = {
    "CloudFormation": ("cloudformation",),
    "CloudWatch": ("cloudwatch", "logs"),
    "DynamoDB": ("dynamodb",),
    "EC2": ("ec2",),
    "Elastic Load Balancing": ("elbv2",),
    "EventBridge": ("events",),
    "Fault Injection Service": ("fis",),
    "IAM and STS": ("iam", "sts"),
    "Lambda": ("lambda",),
    "Prices and quotas": ("pricing", "service-quotas"),
    "Queues and topics": ("sqs",),
    "Parameter Store": ("secretsmanager", "ssm"),
    "S3": ("s3",),
}
"""The page's headings → boto3's names."""


def test_every_call_has_a_row() -> None:
    """What the product calls is in the contract, and what it doesn't call isn't."""
    heading = {service: name for name, services in SERVICES.items() for service in services}
    called = {(heading.get(service, service), operation) for service, operation in operations()}
    assert named("Calls") == called


def test_every_error_code_has_a_row() -> None:
    """What the product tells apart by its code is in the contract, and nothing else is."""
    assert {name for _, name in named("Errors")} == codes()


def test_every_event_pattern_has_a_row(templates: tuple[Mapping[str, Any], ...]) -> None:
    """What rules wait for is in the contract, and nothing else is."""
    assert {name for _, name in named("Events")} == patterns(templates)


def test_every_resource_has_a_row(templates: tuple[Mapping[str, Any], ...]) -> None:
    """What stacks ask CloudFormation for is in the contract, property by property, and nothing else is."""
    found = set[tuple[str, str]]()
    for row in rows():
        if row.kind == "Resources":
            type_, *properties = row.names
            found |= {(type_, ""), *((type_, name) for name in properties)}
    assert found == resources(templates)


def test_a_row_names_where_it_is_relied_on() -> None:
    """The files are there, and what the row names is in one of them."""
    for row in rows():
        files = [ROOT / name for name in _quoted(row.where)]
        assert files, f"{row} names no file"
        assert all(file.exists() for file in files), f"{row}: no such file in {row.where}"
        if row.kind != "Resources":  # those are CDK's words
            text = "".join(file.read_text(encoding="utf-8") for file in files)
            missing = [name for name in row.names if not _is_in(name, text)]
            assert not missing, f"{row}: {missing} not in {row.where}"


def _is_in(name: str, text: str) -> bool:
    return name in text or xform_name(name) in text or name.removeprefix("detail.") in text


def test_a_row_has_a_source() -> None:
    """What AWS says is linked."""
    for row in rows():
        assert re.search(r"\]\(https://[^)]+\)", row.says), f"{row} has no source"


def test_a_row_says_what_the_stand_in_does() -> None:
    """It names files or tests that are there, or says why it is safe that nothing imitates it."""
    for row in rows():
        named_paths = [name for name in _quoted(row.stand_in) if "/" in name]
        for path in named_paths:
            file, _, test = path.partition("::")
            assert (ROOT / file).exists(), f"{row}: no {file}"
            assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), (
                f"{row}: no {path}"
            )
        if not named_paths:
            reason = row.stand_in.partition(NOT_IMITATED)[2]
            assert len(reason) > len("*: why"), f"{row}: neither imitated nor said why it needn't be"
