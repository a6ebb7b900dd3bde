"""Values that must stay where they were put: planted in a deployment, and looked for in all it leaves."""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.demo.operator import Operator
from lab.demo.settings import ROOT, SERVICE_FILE

SECRET_PARAMETER = "/spotrelay/demo/planted"

AWS_COMMAND = '#!/bin/bash\ncat "$(dirname "$0")/secret"\n'
"""Stands for the AWS CLI of an image: local instances have no credentials to read Parameter Store with."""

Place = tuple[str, str]
"""What it is called, and the text that is in it."""


@dataclass(frozen=True, slots=True)
class Planted:
    """The demo's service with a secret and an environment variable of its own."""

    file: Path
    """Its service file."""
    secret: str
    """Value of the secret. Its parameter holds it, and nothing else does."""
    env: str
    """Value of the variable. It stands in the clear in the template that the instances are launched from."""

    @classmethod
    def into(cls, directory: Path) -> Planted:
        """Write the service file, and what its replicas get their secret from."""
        secret, env = (f"planted{secrets.token_hex(16)}" for _ in range(2))
        command = directory / "aws"
        command.write_text(AWS_COMMAND, encoding="utf-8")
        command.chmod(0o755)
        (directory / "secret").write_text(secret, encoding="utf-8")
        path = f"{directory}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        text = (ROOT / SERVICE_FILE).read_text(encoding="utf-8")
        text = text.replace("\nenvs:\n", f"\nenvs:\n  PLANTED_ENV: {env}\n  PATH: {json.dumps(path)}\n")
        file = directory / SERVICE_FILE.name
        file.write_text(f"{text}\nsecrets:\n  PLANTED: {SECRET_PARAMETER}\n", encoding="utf-8")
        return cls(file, secret, env)

    def store(self, operator: Operator) -> None:
        """Put the secret where a control plane that reads too much would find it."""
        operator.session.client("ssm").put_parameter(
            Name=SECRET_PARAMETER, Value=self.secret, Type="SecureString"
        )

    def must_not_have_leaked(self, operator: Operator, logs: Path) -> None:
        """Fail with the names of the places where one of the values is and shouldn't be."""
        secret_is_in, env_is_in, looked_at = set[str](), set[str](), set[str]()
        for place, text in (*_files(logs), *_places(operator)):
            looked_at.add(place.partition(" ")[0])
            if self.secret in text:
                secret_is_in.add(place)
            if self.env in text:
                env_is_in.add(place)
        # A search that doesn't find what is there finds nothing elsewhere, either.
        assert looked_at >= EVERYWHERE, f"not searched: {EVERYWHERE - looked_at}"
        home = f"parameter {SECRET_PARAMETER}"
        assert home in secret_is_in
        assert any(place.startswith("user-data ") for place in env_is_in)
        leaks = secret_is_in - {home}
        leaks |= {place for place in env_is_in if not place.startswith(("user-data ", "template "))}
        assert not leaks, f"a secret's or a variable's value is in: {', '.join(sorted(leaks))}"


LISTS = (
    ("metric", "cloudwatch", "list_metrics", "Metrics", "MetricName"),
    ("alarm", "cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
    ("stack", "cloudformation", "describe_stacks", "Stacks", "StackName"),
    ("function", "lambda", "list_functions", "Functions", "FunctionName"),
    ("instance", "ec2", "describe_instances", "Reservations", "ReservationId"),
)
"""What a list shows whole: kind, service, operation, and where the answer has the things and their names."""

EVERYWHERE = {kind for kind, *_ in LISTS} | {
    "log", "function-log", "row", "parameter", "dashboard", "template", "queue", "user-data",
    "launch-template",
}  # fmt: skip
"""The kinds of places; each is searched in every deployment."""


def _files(logs: Path) -> Iterator[Place]:
    """What the local cloud, the CDK, each instance and each function logged, line by line."""
    for file in (path for path in logs.rglob("*") if path.is_file()):
        kind = "function-log" if file.name.startswith("function-") else "log"
        with file.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                yield f"{kind} {file.relative_to(logs)}:{number}", line


def _places(operator: Operator) -> Iterator[Place]:
    """Everything in the account that can hold text."""
    for kind, service, list_, key, name in LISTS:
        for thing in _all(operator, service, list_, key):
            yield f"{kind} {thing[name]}", str(thing)
    client = operator.session.client
    for item in _all(operator, "dynamodb", "scan", "Items", TableName=operator.deployment.table):
        yield f"row {item['PK']['S']} {item['SK']['S']}", str(item)
    for parameter in _all(operator, "ssm", "describe_parameters", "Parameters"):
        name = parameter["Name"]
        yield f"parameter {name}", str(client("ssm").get_parameter(Name=name, WithDecryption=True))
    for board in client("cloudwatch").list_dashboards()["DashboardEntries"]:
        name = board["DashboardName"]
        yield f"dashboard {name}", str(client("cloudwatch").get_dashboard(DashboardName=name))
    for stack in _all(operator, "cloudformation", "describe_stacks", "Stacks"):
        name = stack["StackName"]
        yield f"template {name}", str(client("cloudformation").get_template(StackName=name))
    yield from _messages(operator)
    yield from _launch_templates(operator)


def _messages(operator: Operator) -> Iterator[Place]:
    """What waits or was set aside in any queue."""
    sqs = operator.session.client("sqs")
    for url in sqs.list_queues()["QueueUrls"]:
        place = f"queue {url}"
        yield place, str(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"]))
        # Each is hidden for long enough to see the next.
        while messages := sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=300, MessageAttributeNames=["All"]
        ).get("Messages"):
            yield place, str(messages)


def _launch_templates(operator: Operator) -> Iterator[Place]:
    """Every version, its user data decoded."""
    ec2 = operator.session.client("ec2")
    for template in _all(operator, "ec2", "describe_launch_templates", "LaunchTemplates"):
        id_ = template["LaunchTemplateId"]
        for version in ec2.describe_launch_template_versions(LaunchTemplateId=id_)["LaunchTemplateVersions"]:
            encoded = version["LaunchTemplateData"].pop("UserData", "")
            yield f"user-data {id_}", base64.b64decode(encoded).decode()
            yield f"launch-template {id_}", str(version)


def _all(operator: Operator, service: str, list_: str, key: str, **parameters: str) -> Iterator[Any]:
    """Everything that a call lists, over all of its pages."""
    for page in operator.session.client(service).get_paginator(list_).paginate(**parameters):
        yield from page[key]
