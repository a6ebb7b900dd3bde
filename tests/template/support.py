"""Reads CloudFormation templates the way a test wants to ask about them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotrelay.plane.core.names import VERSION_RESOURCE, alarms_prefix

Properties = dict[str, Any]

LOOK_BACKS = (0, 2, 5)
"""How many periods before the evaluated ones CloudWatch may take for those without data: it says only that
there are some, and alarms must be right whatever it is."""


@dataclass(frozen=True)
class Template:
    """A synthesized stack."""

    body: Mapping[str, Any]

    @classmethod
    def read(cls, assembly: Path, stack: str) -> Template:
        """The template of a stack of a cloud assembly."""
        return cls(json.loads((assembly / f"{stack}.template.json").read_text(encoding="utf-8")))

    def all(self, type_: str) -> dict[str, Properties]:
        """Every resource of a type: logical ID → properties."""
        return {
            id_: resource.get("Properties", {})
            for id_, resource in self.body["Resources"].items()
            if resource["Type"] == type_
        }

    @property
    def alarms(self) -> dict[str, Properties]:
        """Alarms of both kinds: name → properties."""
        kinds = ("AWS::CloudWatch::Alarm",)
        return {str(alarm["AlarmName"]): alarm for kind in kinds for alarm in self.all(kind).values()}

    def only(self, type_: str) -> Properties:
        """The one resource of a type."""
        (properties,) = self.all(type_).values()
        return properties

    def resource(self, id_: str) -> Mapping[str, Any]:
        """A whole resource, its attributes besides the properties included."""
        found: Mapping[str, Any] = self.body["Resources"][id_]
        return found

    def id_with(self, type_: str, start: str) -> str:
        """The logical ID of the one resource of a type whose ID starts like this."""
        (found,) = (id_ for id_ in self.all(type_) if id_.startswith(start))
        return found

    def comes_after(self, id_: str) -> set[str]:
        """The logical IDs of all that CloudFormation has made or updated before it touches this one."""
        waiting, found = [id_], set[str]()
        while waiting:
            for other in _mentioned(self.body["Resources"][waiting.pop()]) & set(self.body["Resources"]):
                if other not in found:
                    found.add(other)
                    waiting.append(other)
        return found

    @property
    def policies(self) -> dict[str, Properties]:
        """By logical ID."""
        return {**self.all("AWS::IAM::Policy"), **self.all("AWS::IAM::ManagedPolicy")}

    def statements(self, role: str) -> list[Properties]:
        """Every policy statement attached to a role."""
        return [
            statement
            for policy in self.policies.values()
            if {"Ref": role} in policy.get("Roles", [])
            for statement in policy["PolicyDocument"]["Statement"]
        ]


def warnings_of(assembly: Path) -> list[str]:
    """What `cdk synth` warns of."""
    manifest = json.loads((assembly / "manifest.json").read_text(encoding="utf-8"))
    return [
        str(entry["data"])
        for artifact in manifest["artifacts"].values()
        if "additionalMetadataFile" in artifact
        for entries in json.loads((assembly / artifact["additionalMetadataFile"]).read_text("utf-8")).values()
        for entry in entries
        if entry["type"] == "aws:cdk:warning"
    ]


def alarms_of(template: Template, of: str) -> dict[str, Properties]:
    """The alarms of a service, or of the control plane, by what comes after the prefix of their names."""
    prefix = alarms_prefix(of)
    assert all(name.startswith(prefix) for name in template.alarms)
    return {name.removeprefix(prefix): alarm for name, alarm in template.alarms.items()}


def metrics_of(alarm: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a metric alarm looks at: each with Namespace, MetricName, Dimensions, Period and Stat."""
    if "Metrics" not in alarm:
        stat = alarm.get("Statistic") or alarm["ExtendedStatistic"]
        return [{**alarm, "Stat": stat, "Id": ""}]
    return [
        {**query["MetricStat"]["Metric"], **query["MetricStat"], "Id": query["Id"]}
        for query in alarm["Metrics"]
        if "MetricStat" in query
    ]


def refers_to(value: Any) -> str:
    """The logical ID behind a `Ref` or a `Fn::GetAtt`."""
    if "Ref" in value:
        return str(value["Ref"])
    return str(value["Fn::GetAtt"][0])


def _mentioned(value: Any) -> set[str]:
    """What a resource refers to or names under DependsOn."""
    match value:
        case {"Ref": str(id_)}:
            return {id_}
        case {"Fn::GetAtt": [str(id_), _]}:
            return {id_}
        case dict():
            depends = set(as_list(value.get("DependsOn", [])))
            return depends.union(*(_mentioned(v) for k, v in value.items() if k != "DependsOn"))
        case list():
            return set[str]().union(*map(_mentioned, value))
        case _:
            return set()


def as_list(value: Any) -> list[Any]:
    """IAM writes a list of one without the list."""
    return value if isinstance(value, list) else [value]


def flat(value: Any) -> str:
    """Text with the intrinsic functions in it replaced by `<name>`: enough to read ARNs and documents."""
    match value:
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(flat(part) for part in parts)
        case {"Fn::Base64": inner}:
            return flat(inner)
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::Sub": str(text)}:
            return re.sub(r"\$\{(.*?)\}", r"<\1>", text)
        case {"Fn::GetAtt": [id_, attribute]}:
            return f"<{id_}.{attribute}>"
        case {"Fn::ImportValue": name}:
            return f"<{name}>"
        case {"Fn::Select": [index, _]}:
            return f"<zone {index}>"
        case _:
            return str(value)


def document_text(template: Template, version: str = "7") -> str:
    """What a service's stack writes for the controller, if the version to deploy is this one."""
    (kept,) = template.all(VERSION_RESOURCE)
    text = flat(template.only("AWS::SSM::Parameter")["Value"])
    return text.replace(f"<{kept}.Version>", version)


def exported(template: Template, token: str) -> str:
    """What a stack exports under the name that `flat` left in the text of another, flat itself."""
    (found,) = (
        output["Value"]
        for output in template.body["Outputs"].values()
        if f"<{output.get('Export', {}).get('Name')}>" == token
    )
    return flat(found)


def ingress(template: Template) -> set[tuple[str, int]]:
    """Who may connect to the load balancer: addresses and port."""
    balancer = template.only("AWS::ElasticLoadBalancingV2::LoadBalancer")
    group = template.all("AWS::EC2::SecurityGroup")[refers_to(balancer["SecurityGroups"][0])]
    assert {rule["FromPort"] - rule["ToPort"] for rule in group["SecurityGroupIngress"]} == {0}
    return {(rule["CidrIp"], rule["FromPort"]) for rule in group["SecurityGroupIngress"]}


def matches(pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Whether an event satisfies an EventBridge pattern made of values and prefixes, all that we use."""
    return all(
        matches(wanted, event.get(key, {}))
        if isinstance(wanted, Mapping)
        else any(_is_matched(event.get(key), one) for one in wanted)
        for key, wanted in pattern.items()
    )


def _is_matched(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return str(value).startswith(wanted["prefix"])
    return bool(value == wanted)


def denials_of_plain_http(template: Template, policy_type: str, resources: str) -> Iterator[str]:
    """Logical IDs whose resource policy refuses everything that doesn't come over TLS."""
    for properties in template.all(policy_type).values():
        for statement in properties["PolicyDocument"]["Statement"]:
            insecure = statement.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport") == "false"
            if statement["Effect"] == "Deny" and insecure:
                yield from (refers_to(resource) for resource in properties[resources])


def function_id(template: Template, name: str) -> str:
    """The logical ID of a function, by its module in lambdas/."""
    (found,) = (
        id_
        for id_, f in template.all("AWS::Lambda::Function").items()
        if f["Handler"] == f"lambdas.{name}.handler"
    )
    return found


def function(template: Template, name: str) -> dict[str, Any]:
    """The properties of a function."""
    return template.all("AWS::Lambda::Function")[function_id(template, name)]


LEAVES = "Leaves"
"""The queue of looks at who must leave; the other one of `reconcile` is that of its ticks."""


def mapping_of(template: Template, name: str, queue: str = "") -> dict[str, Any]:
    """What feeds a function: from the queue of signals or of ticks, unless another is named."""
    (found,) = (
        m
        for m in template.all("AWS::Lambda::EventSourceMapping").values()
        if refers_to(m["FunctionName"]) == function_id(template, name)
        if refers_to(m["EventSourceArn"]).startswith(LEAVES) == (queue == LEAVES)
    )
    return found


def targets_of(template: Template, rule: Mapping[str, Any]) -> set[str]:
    """What a rule wakes: the logical IDs of queues and functions."""
    return {refers_to(target["Arn"]) for target in rule["Targets"]}


def queue_of(template: Template, name: str, queue: str = "") -> str:
    """The queue that feeds a function, as for `mapping_of`."""
    return refers_to(mapping_of(template, name, queue)["EventSourceArn"])
