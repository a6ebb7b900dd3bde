"""What a user chooses at synth, from the CDK's context: cdk.json, or `-c name=value` on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

ID = r"([0-9a-f]{8}|[0-9a-f]{17})"
REGION = r"[a-z]{2}(-[a-z]+)+-\d"
ZONE = REGION + "[a-z]"
"""Not a Local Zone, whose name has more parts: the controller tells the region from the zone's name."""

DEFAULT_REGION = "CDK_DEFAULT_REGION"
"""Environment variable with the region that a stack without one is deployed to."""

SUBNETS_EXAMPLE = "subnet-0123456789abcdef0=us-east-1a,subnet-0123456789abcdef1=us-east-1b"

Context = Callable[[str], Any]
"""A context value by its name, None where there is none."""


class SettingsError(ValueError):
    """A context value can't be used: which, what was expected, what came."""


@dataclass(frozen=True)
class GivenNetwork:
    """A VPC that exists already. Everything is told, nothing looked up: synth asks AWS nothing."""

    vpc_id: str
    subnets: Mapping[str, str]
    """Subnet ID → zone, one subnet per zone: for the instances."""
    load_balancer_subnets: Mapping[str, str]
    """The same for the load balancer."""


@dataclass(frozen=True)
class Settings:
    """Every choice, with its default where none was made."""

    services: tuple[Path, ...] = ()
    account: str | None = None
    region: str | None = None
    target_region: str | None = None
    """The region that is deployed to, if it is known: `region`, or what the CDK's command line found."""
    network: GivenNetwork | None = None
    zones: tuple[str, ...] = ()
    """Zones of a VPC of our own; none: the region's first three."""
    internet_facing: bool = True
    certificate_arn: str | None = None
    access_logs_bucket: str | None = None
    alarm_email: str | None = None
    kms_key_arn: str | None = None
    """The customer-managed key of the instances' disks; none: AWS's own for EBS."""

    @classmethod
    def from_context(
        cls, context: Context, environment: Mapping[str, str] = MappingProxyType({})
    ) -> Settings:
        """Read every setting. The CDK's command line leaves the credentials' region in the environment.

        Raises:
            SettingsError: one of them can't be used.
        """
        account, region = (
            _text(context, "account", r"\d{12}", "twelve digits"),
            _text(context, "region", REGION, "a region such as us-east-1"),
        )
        if (account is None) != (region is None):
            raise SettingsError("context account and region belong together: give both, or neither")
        zones = tuple(_list(context, "zones"))
        if wrong := [zone for zone in zones if not re.fullmatch(ZONE, zone)]:
            raise SettingsError(f"context zones: expected zones such as us-east-1a, got {wrong[0]!r}")
        if len(set(zones)) == 1:
            raise SettingsError("context zones: a load balancer needs two zones or more, got 1")
        network = _network(context)
        if network and zones:
            raise SettingsError("context zones is for a VPC of its own: with vpc_id, subnets say the zones")
        return cls(
            services=tuple(Path(name) for name in _list(context, "services")),
            account=account,
            region=region,
            target_region=region or environment.get(DEFAULT_REGION) or None,
            network=network,
            zones=zones,
            internet_facing=_flag(context, "internet_facing", default=True),
            certificate_arn=_text(
                context, "certificate_arn", r"arn:[\w-]+:acm:\S+", "an ACM certificate's ARN"
            ),
            access_logs_bucket=_text(context, "access_logs_bucket", r"[a-z0-9.-]{3,63}", "a bucket's name"),
            alarm_email=_text(context, "alarm_email", r"\S+@\S+", "an e-mail address"),
            kms_key_arn=_text(
                context,
                "kms_key_arn",
                rf"arn:[\w-]+:kms:{REGION}:\d{{12}}:key/[\w-]+",
                "a KMS key's ARN, not an alias",
            ),
        )


def _network(context: Context) -> GivenNetwork | None:
    vpc_id = _text(context, "vpc_id", f"vpc-{ID}", "a VPC's ID")
    subnets = _subnets(context, "subnets")
    load_balancer_subnets = _subnets(context, "load_balancer_subnets")
    if vpc_id is None:
        if subnets or load_balancer_subnets:
            raise SettingsError("context subnets needs vpc_id: subnets of which VPC?")
        return None
    if not subnets:
        raise SettingsError(f"context vpc_id needs subnets, each with its zone: -c subnets={SUBNETS_EXAMPLE}")
    return GivenNetwork(vpc_id, subnets, load_balancer_subnets or subnets)


def _subnets(context: Context, name: str) -> dict[str, str]:
    subnets: dict[str, str] = {}
    for entry in _list(context, name):
        subnet, separator, zone = entry.partition("=")
        if not (separator and re.fullmatch(f"subnet-{ID}", subnet) and re.fullmatch(ZONE, zone)):
            raise SettingsError(f"context {name}: expected {SUBNETS_EXAMPLE}, got {entry!r}")
        if zone in subnets.values():
            raise SettingsError(f"context {name}: two subnets in {zone}: EC2 Fleet takes one per zone")
        subnets[subnet] = zone
    if subnets and len(subnets) < 2:
        raise SettingsError(f"context {name}: a load balancer needs two zones or more, got {len(subnets)}")
    return subnets


def _text(context: Context, name: str, pattern: str, expected: str) -> str | None:
    value = context(name)
    if value in (None, ""):
        return None
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise SettingsError(f"context {name}: expected {expected}, got {value!r}")
    return value


def _list(context: Context, name: str) -> list[str]:
    """Comma-separated text (all that a command line can say), or a list (in cdk.json)."""
    value = context(name)
    items = value.split(",") if isinstance(value, str) else [] if value is None else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise SettingsError(f"context {name}: expected a list or comma-separated text, got {value!r}")
    return [item.strip() for item in items if item.strip()]


def _flag(context: Context, name: str, *, default: bool) -> bool:
    value = context(name)
    if value is None:
        return default
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise SettingsError(f"context {name}: expected true or false, got {value!r}")
