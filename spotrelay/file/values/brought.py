"""What a service may bring that exists already: security groups, an instance profile, a way in.

All of it is told by ID or ARN, and AWS isn't asked. What can be known without it is checked here, field by
field, and in `brought_checks` against the rest of the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from spotrelay.file.source.document import Location
from spotrelay.file.values.candidate import Fields
from spotrelay.file.values.parsing import Finding, parse_names, rejected

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
