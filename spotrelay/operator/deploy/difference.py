"""What a deployment would change, from two templates: the one that is deployed and the one that would be."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from spotrelay.plane.core.names import service_parameter

Template = Mapping[str, Any]

LAUNCH_TEMPLATE = "AWS::EC2::LaunchTemplate"
PARAMETER = "AWS::SSM::Parameter"
SUBSCRIPTION = "AWS::SNS::Subscription"

THE_IMAGE = "the image"

_OF_INSTANCES = {
    "UserData": "what instances run (setup, run, envs, secrets or files)",
    "ImageId": THE_IMAGE,
    "BlockDeviceMappings": "the disk",
    "IamInstanceProfile": "the instance profile",
    "SecurityGroupIds": "the security groups",
    "TagSpecifications": "the labels of the disks",
    "CapacityReservationSpecification": "the capacity reservations",
}
"""What the parts of a launch template's data mean in a service file."""

_FROM_STACKS = ("version", "launch_template_id", "target_group_arn", "load_balancer", "address")
"""Of the document: what the stack's resources say and no setting does."""


class How(StrEnum):
    """What would happen to a resource."""

    ADDED = "new"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Change:
    """A resource that wouldn't stay as it is."""

    name: str
    """In the template."""
    type: str
    how: How

    def __str__(self) -> str:
        return f"{self.type.removeprefix('AWS::')} {self.name} {self.how}"


@dataclass(frozen=True, slots=True)
class Difference:
    """What would change of one service."""

    instances: tuple[str, ...]
    """Why its instances must change, so that there is a new version; empty: they stay."""
    settings: tuple[str, ...]
    """What takes effect without another instance: `replicas: 3 → 4`."""
    resources: tuple[Change, ...]
    """What else of its stack wouldn't stay as it is."""

    @property
    def is_new_version(self) -> bool:
        """Whether instances must change."""
        return bool(self.instances)

    @property
    def removed(self) -> tuple[Change, ...]:
        """What the service would lose."""
        return tuple(change for change in self.resources if change.how is How.REMOVED)

    @property
    def is_nothing(self) -> bool:
        """Whether all stays as it is."""
        return not (self.instances or self.settings or self.resources)


def changes(deployed: Template, new: Template) -> list[Change]:
    """Every resource that wouldn't stay as it is. What the CDK notes for itself doesn't count."""
    before, after = deployed.get("Resources", {}), new.get("Resources", {})
    found = []
    for name in sorted({*before, *after}):
        old, its = before.get(name), after.get(name)
        if old is None or its is None or _said(old) != _said(its):
            how = How.ADDED if old is None else How.REMOVED if its is None else How.CHANGED
            found.append(Change(name, str((its or old)["Type"]), how))
    return [change for change in found if change.type != "AWS::CDK::Metadata"]


def of_service(service: str, deployed: Template, new: Template, image: str | None = None) -> Difference:
    """What a deployment changes of a service; `image`: a newer one that it asks for. No template says it."""
    found = changes(deployed, new)
    instances = [
        words
        for change in found
        if change.type == LAUNCH_TEMPLATE and change.how is How.CHANGED
        for words in _of_instances(deployed["Resources"][change.name], new["Resources"][change.name])
    ]
    if image:
        instances.append(f"a newer image, {image}")
    document = _document_of(service, new)
    return Difference(
        instances=tuple(dict.fromkeys(instances)),
        settings=tuple(_settings(service, deployed, new)),
        resources=tuple(c for c in found if c.type != LAUNCH_TEMPLATE and c.name != document),
    )


def unsafe(deployed: Template, new: Template, *, is_network: bool) -> list[Change]:
    """Of a stack that all services share, what a deployment of one of them must not change in passing.

    Of the network that is all but additions: a zone less, or a NAT gateway, is other services' too. Of the
    control plane it is who gets the alarms: the rest changes with every release.
    """
    found = (change for change in changes(deployed, new) if change.how is not How.ADDED)
    return [c for c in found if is_network or (c.type == SUBSCRIPTION and c.how is How.REMOVED)]


def _said(resource: Mapping[str, Any]) -> tuple[Any, ...]:
    return resource["Type"], resource.get("Properties"), resource.get("Condition")


def _of_instances(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before, after = (r["Properties"].get("LaunchTemplateData", {}) for r in (old, new))
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield _OF_INSTANCES.get(name, name)


def _settings(service: str, deployed: Template, new: Template) -> Iterator[str]:
    """The document's settings that differ. One that stands in neither template can't be compared."""
    tokens: dict[str, str] = {}
    before, after = (_document(service, template, tokens) for template in (deployed, new))
    if before is None or after is None:
        return
    for name in sorted({*before, *after}):
        old, its = before.get(name), after.get(name)
        if old == its or name in _FROM_STACKS:
            continue
        both = f"{_short(old)} → {_short(its)}"
        yield f"{name}: {both}" if len(both) <= _LONGEST and name != "subnets" else f"{name}: changed"


_LONGEST = 60
"""Of a setting's two values: a probe's body says nothing at a glance."""


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _document_of(service: str, template: Template) -> str | None:
    """The document's name in the template."""
    for name, resource in template.get("Resources", {}).items():
        is_parameter = resource["Type"] == PARAMETER
        if is_parameter and resource["Properties"].get("Name") == service_parameter(service):
            return str(name)
    return None


def _document(service: str, template: Template, tokens: dict[str, str]) -> dict[str, Any] | None:
    """The runtime document, with a number for all that CloudFormation fills in: the same for the same."""
    name = _document_of(service, template)
    if name is None:
        return None
    value = template["Resources"][name]["Properties"]["Value"]
    parts = value["Fn::Join"][1] if isinstance(value, dict) and "Fn::Join" in value else [value]

    def text(part: Any) -> str:
        if isinstance(part, str):
            return part
        # A number stands well where the version is, and between quotes.
        return tokens.setdefault(json.dumps(part, sort_keys=True), str(1_000_000 + len(tokens)))

    try:
        read: dict[str, Any] = json.loads("".join(map(text, parts)))
    except ValueError:
        return None
    return read
