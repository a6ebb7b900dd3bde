"""What a service may bring that exists already: security groups, an instance profile, a way in.

All of it is told by ID or ARN, and AWS isn't asked: what can be known without it is checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from spotrelay.core.names import instances_namespace
from spotrelay.service.candidate import Fields
from spotrelay.service.document import Location
from spotrelay.service.requirements import Finding, parse_names, rejected

if TYPE_CHECKING:
    from spotrelay.service.model import Service
    from spotrelay.service.schema import ServiceFile

MAX_SECURITY_GROUPS = 4
"""A network interface takes five by default, and one may be SpotRelay's own."""

MAX_CONDITION_VALUES = 3
MAX_RULE_VALUES = 5
MAX_WILDCARDS = 5
"""What a listener's rule takes: paths, or hosts; both together; `*` and `?` in all of them. CreateRule
refuses more. Source: https://docs.aws.amazon.com/elasticloadbalancing/latest/application/rule-condition-types.html"""

_ELB = r"^arn:aws[a-z-]*:elasticloadbalancing:[a-z0-9-]+:[0-9]{12}:"
_IAM = r"^arn:aws[a-z-]*:iam::[0-9]{12}:"

_GROUP = r"sg-([0-9a-f]{8}|[0-9a-f]{17})"

parse_security_groups = parse_names(_GROUP, "a security group's ID such as sg-0123456789abcdef0")


@dataclass(frozen=True, slots=True)
class Arn:
    """Where something is, as its ARN says."""

    partition: str
    region: str
    """Empty for what IAM has: it is in all regions."""
    account: str

    @classmethod
    def of(cls, arn: str) -> Arn:
        """Read from an ARN, whose form has been checked."""
        _, partition, _, region, account, _ = arn.split(":", 5)
        return cls(partition, region, account)

    def disagrees(self, other: Arn) -> tuple[str, str, str] | None:
        """Why no stack can have both: what differs, this one's and the other's; None if one can."""
        for what in ("partition", "account", "region"):
            ours, theirs = getattr(self, what), getattr(other, what)
            if ours and theirs and ours != theirs:
                return what, ours, theirs
        return None


class ListenerSection(Fields):
    """A listener that exists, and the rule by which it sends requests to the service."""

    arn: str = Field(
        pattern=_ELB + r"listener/app/[A-Za-z0-9-]{1,32}/[0-9a-f]{16}/[0-9a-f]{16}$",
        description="an Application Load Balancer's listener,"
        " arn:aws:elasticloadbalancing:REGION:ACCOUNT:listener/app/…",
    )
    priority: int = Field(ge=1, le=50_000, description="a whole number from 1 to 50000")
    # The characters that ELB takes; `&` it wants as it is.
    paths: list[Annotated[str, Field(pattern=r"^/[A-Za-z0-9_\-.$/~\"'@:+&*?]{0,127}$")]] = Field(
        default_factory=list, description="a list of path patterns, such as [/chat/*]"
    )
    hosts: list[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9.*?-]*\.[A-Za-z*?][A-Za-z0-9*?-]*$", max_length=128)]
    ] = Field(default_factory=list, description="a list of host names, such as [chat.example.com]")

    @property
    def balancer(self) -> str:
        """Its load balancer's name in metrics, `app/name/id`."""
        return self.arn.partition(":listener/")[2].rpartition("/")[0]

    @model_validator(mode="after")
    def _has_a_condition(self) -> ListenerSection:
        values = [*self.paths, *self.hosts]
        if not values:
            message = "a rule needs a condition: say paths, such as [/chat/*], hosts, or both"
            raise rejected(Finding((), message))
        for what, most, count in (
            ("paths", MAX_CONDITION_VALUES, len(self.paths)),
            ("hosts", MAX_CONDITION_VALUES, len(self.hosts)),
            ("paths and hosts together", MAX_RULE_VALUES, len(values)),
            ("wildcards", MAX_WILDCARDS, sum(value.count("*") + value.count("?") for value in values)),
        ):
            if count > most:
                message = (
                    f"a rule takes {most} {what}, got {count}: remove some, or say several with one pattern"
                )
                raise rejected(Finding((), message))
        return self


class ProfileSection(Fields):
    """An instance profile that exists, and the role in it."""

    arn: str = Field(
        pattern=_IAM + r"instance-profile/[\w+=,.@/-]+$",
        description="an instance profile's ARN, arn:aws:iam::ACCOUNT:instance-profile/…",
    )
    role: str | None = Field(
        default=None,
        pattern=_IAM + r"role/[\w+=,.@/-]+$",
        description="its role's ARN, arn:aws:iam::ACCOUNT:role/…",
    )

    @property
    def role_arn(self) -> str:
        """The role's ARN; where the file doesn't say, that of the same name, as EC2's console makes it."""
        return self.role or self.arn.replace(":instance-profile/", ":role/", 1)


def _arn_only(value: Any) -> Any:
    return {"arn": value} if isinstance(value, str) else value


Profile = Annotated[ProfileSection | None, BeforeValidator(_arn_only)]

TargetGroup = Annotated[str | None, Field(pattern=_ELB + r"targetgroup/[A-Za-z0-9-]{1,32}/[0-9a-f]{16}$")]

_OF_OUR_BALANCER: Mapping[Location, str] = {
    ("spotrelay", "certificate_arn"): "your load balancer's listener has its certificate",
    ("spotrelay", "domain"): "your load balancer has its names",
    ("spotrelay", "idle_timeout_seconds"): "your load balancer has its idle time-out",
    ("service", "tls"): "your load balancer's listener has its certificate",
}
_OF_OUR_GROUP: Mapping[Location, str] = {
    ("spotrelay", "health_check"): "your target group has its health check",
    ("service", "load_balancing_policy"): "your target group has its algorithm",
}


def findings(file: ServiceFile) -> Iterator[Finding]:
    """What contradicts what a service brings, each at its field."""
    own = file.spotrelay
    ways = [name for name in ("target_group", "listener") if getattr(own, name) is not None]
    if len(ways) > 1:
        message = (
            "spotrelay.listener is here, too, and for that one SpotRelay makes a target group: remove one"
        )
        yield Finding(("spotrelay", "target_group"), message)
    elif ways:
        yield from _unused(file, ways[0])
        if not own.security_groups:
            message = (
                "SpotRelay doesn't know the security group of your load balancer, so it can't let it in:"
                " name the groups that do in spotrelay.security_groups"
            )
            yield Finding(("spotrelay", ways[0]), message)
    yield from _apart(file)


def _unused(file: ServiceFile, way: str) -> Iterator[Finding]:
    """What says something of a load balancer or a target group that SpotRelay doesn't make."""
    without = {**_OF_OUR_BALANCER, **(_OF_OUR_GROUP if way == "target_group" else {})}
    for place, why in without.items():
        section = getattr(file, str(place[0]))
        if place[1] in section.model_fields_set and getattr(section, str(place[1])) is not None:
            yield Finding(place, f"with spotrelay.{way}, {why}: set it there, and remove this")


def arns(
    *,
    certificate: str | None,
    reservations: str | None,
    profile: ProfileSection | None,
    listener: ListenerSection | None,
    target_group: str | None,
) -> dict[Location, str]:
    """Every ARN of a file, by its place."""
    found = {
        ("certificate_arn",): certificate,
        ("capacity_reservations",): reservations,
        ("target_group",): target_group,
        ("listener", "arn"): listener and listener.arn,
        ("instance_profile", "arn"): profile and profile.arn,
        ("instance_profile", "role"): profile and profile.role,
    }
    return {("spotrelay", *place): arn for place, arn in found.items() if arn}


def _apart(file: ServiceFile) -> Iterator[Finding]:
    """ARNs of two regions, accounts or partitions: no stack can have both."""
    own = file.spotrelay
    there = arns(
        certificate=own.certificate_arn,
        reservations=own.capacity_reservations,
        profile=own.instance_profile,
        listener=own.listener,
        target_group=own.target_group,
    )
    seen: dict[str, Location] = {}
    for place, arn in there.items():
        for other, first in seen.items():
            if apart := Arn.of(arn).disagrees(Arn.of(other)):
                what, ours, theirs = apart
                message = f"its {what} is {ours}, and that of {'.'.join(map(str, first))} is {theirs}"
                yield Finding(place, f"{message}: change one of the two")
                break
        seen.setdefault(arn, place)
    resources = file.resources
    for name, regions in (
        ("zones", [zone[:-1] for zone in resources.zones or ()]),
        ("regions", resources.regions or []),
    ):
        for place in (("spotrelay", "target_group"), ("spotrelay", "listener", "arn")):
            if regions and place in there and Arn.of(there[place]).region not in regions:
                listed = ", ".join(getattr(resources, name))
                message = f"is in {Arn.of(there[place]).region}, and resources.{name} is {listed}"
                yield Finding(place, f"{message}: change one of the two")


def notices(service: Service) -> Iterator[tuple[Location, str]]:
    """What has to be so, and what SpotRelay can't see."""
    if service.target_group:
        yield (
            ("spotrelay", "target_group"),
            "your target group's own settings count: it needs the target type instance, HTTP, a health check"
            f" that a replica answers, such as GET {service.health_check_path}, and a deregistration delay of"
            f" {service.deregistration_delay_s:g} s, the longest way out. What else is in it is left"
            " alone, until `spotrelay adopt` makes replicas of it",
        )
    if service.security_groups and service.is_behind_a_given_balancer:
        yield (
            ("spotrelay", "security_groups"),
            f"one of them must let your load balancer reach port {service.port}, which SpotRelay can't see",
        )
    if service.instance_profile and (needed := _permissions(service)):
        yield (
            ("spotrelay", "instance_profile"),
            f"its role, {service.instance_profile.role_arn}, must be allowed {', '.join(needed)}: SpotRelay"
            " doesn't change it",
        )


def _permissions(service: Service) -> Sequence[str]:
    """What an instance does with its role."""
    needed = [f"ssm:GetParameter on {name} and {name}:*" for name in sorted(set(service.secrets.values()))]
    if service.file_mounts or service.workdir is not None or service.scripts_in_bundle:
        needed.append("s3:GetObject on its files (the CDK's bucket, and those of file_mounts)")
    if service.container and re.search(r"\.dkr\.ecr\.", service.container):
        needed.append(f"to pull {service.container} from ECR")
    if service.reports_gpus:
        needed.append(f"cloudwatch:PutMetricData into the namespace {instances_namespace(service.name)}")
    return needed
