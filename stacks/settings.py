"""What a user chooses at synth, from the CDK's context: cdk.json, or `-c name=value` on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import AddressValueError, IPv4Network, NetmaskValueError
from pathlib import Path
from types import MappingProxyType
from typing import Any

from spotrelay.file.source.environment import PARAMETER_NAME
from spotrelay.file.source.inputs import NOTHING, Inputs, InputsError, inputs
from spotrelay.plane.core.names import ALL_METRICS, SETTINGS_METADATA

ID = r"([0-9a-f]{8}|[0-9a-f]{17})"
REGION = r"[a-z]{2}(-[a-z]+)+-\d"
ZONE = REGION + "[a-z]"
"""Not a Local Zone, whose name has more parts: the controller tells the region from the zone's name."""

DEFAULT_REGION = "CDK_DEFAULT_REGION"
"""Environment variable with the region that a stack without one is deployed to."""

LOAD_BALANCER_ZONES = 2
"""The least that a load balancer takes."""

DEFAULT_ZONES = 3
"""Every zone is another set of capacity pools. `zones` names more."""

FEWER_ZONES = {"us-west-1": 2}
"""Regions in which most accounts don't see three zones."""

MAX_ZONES = 8
"""A VPC of our own has room for a public and a private subnet of 4,096 addresses in each."""

WIDEST_CIDR = 8
"""Prefix length. Nobody is assigned more than a /8: whatever is wider means everybody, or half of them."""

MAX_API_KEYS = 3
"""A listener rule compares a header with at most three values."""

SUBNETS_EXAMPLE = "subnet-0123456789abcdef0=us-east-1a,subnet-0123456789abcdef1=us-east-1b"

OF_CONTROL_PLANE = ("alarm_email", "kms_key_arn", "metrics", "template_conditions")
OF_NETWORK = ("zones", "nat_gateways", "public_addresses")
OF_SERVICE = (
    "vpc_id",
    "subnets",
    "load_balancer_subnets",
    "internet_facing",
    "allowed_cidrs",
    "api_keys",
    "certificate_arn",
    "access_logs_bucket",
)
"""The settings that each kind of stack keeps for the next deployment: those that change resources of its own.
CloudFormation takes no template in which nothing but metadata is new."""

Context = Callable[[str], Any]
"""A context value by its name, None where there is none."""


class SettingsError(ValueError):
    """A context value can't be used: which, what was expected, what came."""


def zones_of_default(region: str | None) -> int:
    """How many zones a VPC of our own has where none are named."""
    return FEWER_ZONES.get(region or "", DEFAULT_ZONES)


@dataclass(frozen=True)
class GivenNetwork:
    """A VPC that exists already. Everything is told, nothing looked up: synth asks AWS nothing."""

    vpc_id: str
    subnets: Mapping[str, str]
    """Subnet ID → zone, one subnet per zone: for the instances."""
    load_balancer_subnets: Mapping[str, str]
    """The same for the load balancer, which must be in every zone of the instances."""

    @property
    def zones(self) -> tuple[str, ...]:
        """Of the instances and of the load balancer, each once."""
        return tuple(dict.fromkeys((*self.subnets.values(), *self.load_balancer_subnets.values())))


@dataclass(frozen=True)
class AppSettings:
    """Every choice, with its default where none was made."""

    services: tuple[Path, ...] = ()
    inputs: Inputs = NOTHING
    """Values for what the service files leave open."""
    secret_versions: Mapping[str, int] = field(default_factory=dict)
    """SSM parameter → the version that replicas read; of others the latest, at each start."""
    model_versions: Mapping[str, str] = field(default_factory=dict)
    """Address of a model in a bucket → the digest of what replicas fetch; of others what is there then."""
    pack_versions: Mapping[str, str] = field(default_factory=dict)
    """Service → SHA-256 of the manifest of the pack that its replicas start from; others run `setup`. With
    an accelerator, service/accelerator → that of its engine cache."""
    account: str | None = None
    region: str | None = None
    target_region: str | None = None
    """The region that is deployed to, if it is known: `region`, or what the CDK's command line found."""
    network: GivenNetwork | None = None
    zones: tuple[str, ...] = ()
    """Zones of a VPC of our own; none: the region's first three, or as many as it has."""
    nat_gateways: int = 1
    """Of a VPC of our own: the replicas' way out. None with `public_addresses`."""
    public_addresses: bool = False
    """Whether replicas in a VPC of our own have public addresses instead of a NAT gateway."""
    internet_facing: bool = False
    """Whether load balancers have public addresses."""
    allowed_cidrs: tuple[str, ...] = ()
    """Who may connect to them; none: private addresses or, where `api_keys` are asked for, everybody."""
    api_keys: tuple[str, ...] = ()
    """Names of the keys of which a request must carry one; none: no key is asked for."""
    certificate_arn: str | None = None
    access_logs_bucket: str | None = None
    alarm_email: str | None = None
    kms_key_arn: str | None = None
    """The key that encrypts the instances' volumes; None: the account's default key for EBS."""
    all_metrics: bool = False
    """Whether all that is counted is a metric of CloudWatch's, for people's own tools: docs/cost.md says what
    that costs."""
    template_conditions: bool = True
    """Whether launches are tied to our templates by condition keys, too: AWS documents these for
    RunInstances, and nowhere for a launch that CreateFleet makes."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """Those that were chosen, by name, as the context has them."""

    def kept(self, names: Sequence[str]) -> dict[str, Any]:
        """A template's metadata that has those of these that were chosen."""
        found = {name: self.given[name] for name in names if name in self.given}
        return {SETTINGS_METADATA: found} if found else {}

    @classmethod
    def from_context(
        cls, context: Context, environment: Mapping[str, str] = MappingProxyType({})
    ) -> AppSettings:
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
        target_region = region or environment.get(DEFAULT_REGION) or None
        network = _network(context)
        zones = _zones(context)
        public_addresses = _flag(context, "public_addresses", default=False)
        nat_gateways = _nat_gateways(
            context, len(zones) or zones_of_default(target_region), public_addresses=public_addresses
        )
        if network:
            _refuse_of_own_vpc(context)
            _refuse_two_regions("subnets", network.zones, target_region)
        _refuse_two_regions("zones", zones, target_region)
        internet_facing = _flag(context, "internet_facing", default=False)
        api_keys = _api_keys(context)
        allowed_cidrs = _cidrs(context, is_public=internet_facing, has_key=bool(api_keys))
        return cls(
            services=tuple(Path(name) for name in _list(context, "services")),
            inputs=_inputs(context),
            secret_versions=_secret_versions(context),
            model_versions=_model_versions(context),
            pack_versions=_pack_versions(context),
            account=account,
            region=region,
            target_region=target_region,
            network=network,
            zones=zones,
            nat_gateways=nat_gateways,
            public_addresses=public_addresses,
            internet_facing=internet_facing,
            allowed_cidrs=allowed_cidrs,
            api_keys=api_keys,
            certificate_arn=_certificate(context, account, target_region),
            access_logs_bucket=_text(context, "access_logs_bucket", r"[a-z0-9.-]{3,63}", "a bucket's name"),
            alarm_email=_text(context, "alarm_email", r"\S+@\S+", "an e-mail address"),
            kms_key_arn=_kms_key_arn(context, target_region),
            all_metrics=_text(context, "metrics", ALL_METRICS, f"{ALL_METRICS}, or nothing") is not None,
            template_conditions=_flag(context, "template_conditions", default=True),
            given={
                name: value
                for name in (*OF_CONTROL_PLANE, *OF_NETWORK, *OF_SERVICE)
                if (value := context(name)) not in (None, "", [])
            },
        )


def _kms_key_arn(context: Context, region: str | None) -> str | None:
    # Not an alias: IAM grants hold for keys.
    pattern = rf"arn:[\w-]+:kms:{REGION}:\d{{12}}:key/[\w-]+"
    key = _text(context, "kms_key_arn", pattern, "a KMS key's ARN (arn:aws:kms:us-east-1:…:key/…)")
    if key and region and key.split(":")[3] != region:
        raise SettingsError(f"context kms_key_arn: {key} isn't in {region}, which this would deploy to")
    return key


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
    load_balancer_subnets = load_balancer_subnets or subnets
    if lacking := set(subnets.values()) - set(load_balancer_subnets.values()):
        zone = min(lacking)
        raise SettingsError(
            f"context load_balancer_subnets has none in {zone}, and subnets has: a replica there would get no"
            " request. Add one, or take that zone out of subnets"
        )
    return GivenNetwork(vpc_id, subnets, load_balancer_subnets)


def _inputs(context: Context) -> Inputs:
    file = context("env_file")
    if file is not None and not isinstance(file, str):
        raise SettingsError(f"context env_file: expected a path, got {file!r}")
    # `spotrelay up` says where it was run: the CDK runs in the working copy.
    directory = _text(context, "working_directory", "/.*", "an absolute path")
    try:
        said = inputs(_list(context, "env"), Path(file) if file else None)
        return replace(said, directory=Path(directory) if directory else None)
    except InputsError as error:
        message = str(error).replace("--env-file", "context env_file").replace("--env", "context env")
        raise SettingsError(message) from error


def _secret_versions(context: Context) -> dict[str, int]:
    what = "parameters with their versions, such as /spotrelay/chat/HF_TOKEN=3"
    pinned = _pinned(context, "secret_versions", PARAMETER_NAME, r"[1-9]\d{0,8}", what)
    return {parameter: int(version) for parameter, version in pinned.items()}


def _pack_versions(context: Context) -> dict[str, str]:
    what = "services with the SHA-256 of their pack's manifest, such as chat=0123…, 64 digits"
    return _pinned(context, "pack_versions", "[^=]+", _SHA256, what, _FOUND_BY_UP)


def _model_versions(context: Context) -> dict[str, str]:
    what = "models with their digests, such as s3://bucket/prefix=0123…, 64 digits"
    return _pinned(context, "model_versions", "s3://.*", _SHA256, what, _FOUND_BY_UP)


_SHA256 = "[0-9a-f]{64}"

_FOUND_BY_UP = ": spotrelay up finds them by itself"


def _pinned(
    context: Context, name: str, key: str, version: str, what: str, remedy: str = ""
) -> dict[str, str]:
    """Entries such as `KEY=VERSION`, each a pattern, as a mapping."""
    versions: dict[str, str] = {}
    for entry in _list(context, name):
        found = re.fullmatch(f"(?P<key>{key})=(?P<version>{version})", entry, re.DOTALL)
        if found is None:
            raise SettingsError(f"context {name}: expected {what}, got {entry!r}{remedy}")
        versions[found["key"]] = found["version"]
    return versions


def _zones(context: Context) -> tuple[str, ...]:
    zones = tuple(_list(context, "zones"))
    if wrong := [zone for zone in zones if not re.fullmatch(ZONE, zone)]:
        raise SettingsError(f"context zones: expected zones such as us-east-1a, got {wrong[0]!r}")
    if twice := _first_repeated(zones):
        raise SettingsError(f"context zones: {twice} stands there twice: remove one")
    if zones and not LOAD_BALANCER_ZONES <= len(zones) <= MAX_ZONES:
        raise SettingsError(
            f"context zones: a load balancer needs two zones or more, and the VPC has room for {MAX_ZONES},"
            f" got {len(zones)}"
        )
    return zones


def _refuse_two_regions(name: str, zones: Sequence[str], target_region: str | None) -> None:
    for zone in zones:
        if target_region and zone[:-1] != target_region:
            raise SettingsError(
                f"context {name}: {zone} isn't in {target_region}, which this would deploy to: change one"
            )
        if zone[:-1] != zones[0][:-1]:
            raise SettingsError(f"context {name}: {zones[0]} and {zone} are of two regions: name one's")


def _nat_gateways(context: Context, most: int, *, public_addresses: bool) -> int:
    text = str(value) if (value := context("nat_gateways")) is not None else ""
    if not text:
        return 0 if public_addresses else 1
    if public_addresses:
        raise SettingsError(
            "context nat_gateways: with public_addresses there is no NAT gateway: give one of the two"
        )
    if not re.fullmatch(r"[1-9]", text) or int(text) > most:
        raise SettingsError(
            f"context nat_gateways: expected 1 to {most}, at most one per zone, got {value!r}. For more, name"
            " the zones, -c zones=…; for none, give the replicas public addresses, -c public_addresses=true"
        )
    return int(text)


def _refuse_of_own_vpc(context: Context) -> None:
    """With a VPC that exists already, its subnets decide."""
    meanings = {
        "zones": "subnets say the zones",
        "nat_gateways": "the subnets' routes decide how replicas get out",
        "public_addresses": "the subnets decide who gets a public address",
    }
    for name, meaning in meanings.items():
        if context(name) not in (None, ""):
            raise SettingsError(f"context {name} is for a VPC of SpotRelay's own: with vpc_id, {meaning}")


def _api_keys(context: Context) -> tuple[str, ...]:
    names = tuple(_list(context, "api_keys"))
    if wrong := [name for name in names if not re.fullmatch(r"[A-Za-z][A-Za-z0-9]{0,31}", name)]:
        raise SettingsError(
            "context api_keys: expected names for keys, such as web,batch: a letter, then at most 31 letters"
            f" and digits, got {wrong[0]!r}. The keys themselves are made at deployment"
        )
    if twice := _first_repeated(name.lower() for name in names):
        raise SettingsError(f"context api_keys: {twice} stands there twice: remove one")
    if len(names) > MAX_API_KEYS:
        raise SettingsError(f"context api_keys: at most {MAX_API_KEYS}, got {len(names)}")
    return names


def _cidrs(context: Context, *, is_public: bool, has_key: bool) -> tuple[str, ...]:
    texts = _list(context, "allowed_cidrs")
    networks = [_ipv4_network(text) for text in texts]
    if is_public and not has_key:
        if not networks:
            raise SettingsError(
                "context internet_facing: anybody could use the service. Say who may connect"
                " (-c allowed_cidrs=203.0.113.0/24,…), ask for a key (-c api_keys=web), or both"
            )
        if wide := [network for network in networks if network.prefixlen < WIDEST_CIDR]:
            raise SettingsError(
                f"context allowed_cidrs: {wide[0]} is everybody, or nearly: ask for a key, -c api_keys=web,"
                f" or name networks of /{WIDEST_CIDR} and smaller"
            )
    return tuple(map(str, networks))


def _ipv4_network(text: str) -> IPv4Network:
    try:
        return IPv4Network(text)
    except (AddressValueError, NetmaskValueError, ValueError) as error:
        reason = str(error) if "host bits" in str(error) else "not an IPv4 network"
        raise SettingsError(
            "context allowed_cidrs: expected IPv4 networks such as 203.0.113.0/24, or addresses,"
            f" got {text!r}: {reason}"
        ) from error


def _certificate(context: Context, account: str | None, region: str | None) -> str | None:
    arn = _text(
        context,
        "certificate_arn",
        r"arn:[\w-]+:acm:[\w-]+:\d{12}:certificate/\S+",
        "an ACM certificate's ARN, arn:aws:acm:REGION:ACCOUNT:certificate/…",
    )
    if arn is None:
        return None
    its_region, its_account = arn.split(":")[3:5]
    if region and its_region != region:
        raise SettingsError(
            f"context certificate_arn: the certificate is in {its_region}, and this would deploy to {region}:"
            " a load balancer takes its own region's. Request one there"
        )
    if account and its_account != account:
        raise SettingsError(
            f"context certificate_arn: the certificate belongs to {its_account}, and this would deploy"
            f" to {account}: a load balancer takes its own account's. Request one there"
        )
    return arn


def _first_repeated(names: Iterable[str]) -> str | None:
    seen = set[str]()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


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
    if value in (None, ""):
        return default
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise SettingsError(f"context {name}: expected true or false, got {value!r}")
