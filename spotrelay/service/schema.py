"""The fields of a service file.

A field's description is what an error says was *expected* there, so it reads on from that word. Types are
strict: `replicas: "3"` is an error, because whoever writes it means something else or will be surprised
elsewhere. Defaults and limits are explained in docs/service-file.md; a test holds the two together.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, ValidationInfo, model_validator

from spotrelay.core.pools import LEAST_TYPES
from spotrelay.core.scaling import MAX_REPLICAS
from spotrelay.core.spec import OnRebalance, OnUpdate, OnWarning
from spotrelay.messages import shown
from spotrelay.service import brought, eligibility
from spotrelay.service.candidate import Fields
from spotrelay.service.draft import Dialect
from spotrelay.service.environment import PARAMETER_NAME
from spotrelay.service.evidence import BusySection
from spotrelay.service.file_fields import parse_file_mounts, parse_workdir
from spotrelay.service.files import FileMount, FilesError, GitRepository, target
from spotrelay.service.requirements import (
    MAX_PORT,
    ZONE,
    Finding,
    parse_names,
    parse_share,
    parse_types,
    rejected,
)
from spotrelay.service.resources import Resources
from spotrelay.service.scaling import ScalingSection
from spotrelay.service.scaling import findings as scaling_findings

INSTANCE_STORE = "/opt/dlami/nvme"
"""Where the default image mounts the disks of the host, which are empty after each stop."""

SET_BY_SPOTRELAY = {"HOST": "is always 0.0.0.0", "PORT": "is resources.ports"}


def _path_only(value: Any) -> Any:
    return {"path": value} if isinstance(value, str) else value


def _post_data(value: Any) -> Any:
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
        # YAML and Python's JSON have numbers and text that JSON hasn't: .inf, NaN, half of a surrogate pair.
        json.dumps(parsed, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise rejected(
            Finding((), f"expected fields, or the same as JSON text: not JSON: {error}")
        ) from error
    return parsed


def _headers(value: Any) -> Any:
    """Names and values as HTTP takes them. A number is taken as its text."""
    if not isinstance(value, dict):
        return value
    findings, headers = [], {}
    for name, content in value.items():
        text = str(content) if isinstance(content, int | float) and not isinstance(content, bool) else content
        if not re.fullmatch(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+", name):
            findings.append(Finding((name,), "expected a header's name, as in Content-Type"))
        elif not isinstance(text, str) or not re.fullmatch(r"[\t\x20-\x7e]*", text):
            findings.append(Finding((name,), f"expected a header's value, in ASCII, got {shown(content)}"))
        headers[name] = text
    if findings:
        raise rejected(*findings)
    return headers


def _nothing_is_empty(value: Any) -> Any:
    """A section whose entries are all commented out."""
    return {} if value is None else value


def _env_names(value: Any, info: ValidationInfo, *, secret: bool = False) -> Any:
    if not isinstance(value, dict):
        return value
    findings = []
    for name, content in value.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            findings.append(Finding((name,), "expected a name of letters, digits and _, as in MODEL_NAME"))
        elif name.startswith("SPOTRELAY_") or (name in SET_BY_SPOTRELAY and not _is_skyserves(info)):
            reason = SET_BY_SPOTRELAY.get(name, "starts with SPOTRELAY_")
            findings.append(Finding((name,), f"is set by SpotRelay ({reason}): use another name"))
        message = _bad_secret(content) if secret else _bad_env(content)
        if message:
            findings.append(Finding((name,), message))
    if findings:
        raise rejected(*findings)
    return value


def _is_skyserves(info: ValidationInfo) -> bool:
    """Whether the file is in SkyServe's format, in which it may set HOST and PORT for itself."""
    return (info.context or {}).get("dialect") is Dialect.SKYSERVE


def _bad_env(content: Any) -> str | None:
    if content is None:
        return (
            "has no value: give it with --env NAME=VALUE or --env-file (for cdk: -c env=NAME=VALUE), or write"
            ' "" for an empty one; what must stay secret belongs under `secrets`'
        )
    if not isinstance(content, str):
        return f"expected text or a number, got {shown(content)}"
    # systemd ignores an assignment with any other control character, and says so only in the journal.
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", content):
        return "control characters other than tab and newline can't stand in an environment variable"
    return None


def _bad_secret(content: Any) -> str | None:
    if isinstance(content, str) and re.fullmatch(PARAMETER_NAME, content):
        return None
    return f"expected the name of an SSM parameter, such as /spotrelay/llama3/hf-token, got {shown(content)}"


def _secret_names(value: Any, info: ValidationInfo) -> Any:
    return _env_names(value, info, secret=True)


AUTO = "auto"
"""As many standbys as pay."""

_STANDBYS = (
    f"{AUTO}, a whole number from 0 to {MAX_REPLICAS}, or a share of replicas from 1% to 999%, such as 100%"
)


def _standbys(value: Any) -> Any:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_REPLICAS
    is_share = isinstance(value, str) and re.fullmatch(r"[1-9][0-9]{0,2}%", value)
    if not (is_number or is_share or value == AUTO):
        raise rejected(Finding((), f"expected {_STANDBYS}, got {shown(value)}"))
    return value


RESERVATIONS = re.compile(
    r"arn:aws[a-z-]*:resource-groups:(?P<region>[a-z0-9-]+):(?P<account>[0-9]{12}):group/[A-Za-z0-9_.-]{1,300}"
)
"""A resource group, as AWS Resource Groups names it."""

_RESERVATIONS = (
    "the ARN of a resource group of capacity reservations, such as"
    " arn:aws:resource-groups:us-east-1:123456789012:group/chat"
)


def _reservations(value: Any) -> Any:
    if isinstance(value, str) and RESERVATIONS.fullmatch(value):
        return value
    message = f"expected {_RESERVATIONS}, got {shown(value)}"
    names = value if isinstance(value, list) else [value]
    if any(re.match(r"cr-|arn:.*:capacity-reservation/", str(name)) for name in names):
        # What targets one reservation isn't launched when that is full, nor started again once it has ended.
        message += ": put reservations into a group, which may be full or change: docs/cold-start.md says how"
    raise rejected(Finding((), message))


ROOTED = r"^/[\x21-\x7e]*$"
"""The path part of a URL, as ELB takes it."""


class ProbeSection(Fields):
    """A request that a replica answers with 200 once it can serve."""

    path: str = Field(
        default="/", pattern=ROOTED, max_length=1024, description="a path such as /v1/chat/completions"
    )
    post_data: Annotated[dict[str, JsonValue] | None, BeforeValidator(_post_data)] = Field(
        default=None, description="fields to be sent as a JSON object"
    )
    initial_delay_seconds: int = Field(
        default=1200, ge=1, le=86_400, description="whole seconds from 1 to 86400"
    )
    headers: Annotated[dict[str, str], BeforeValidator(_headers), BeforeValidator(_nothing_is_empty)] = Field(
        default_factory=dict, description="HTTP headers (NAME: value)"
    )
    timeout_seconds: int = Field(default=15, ge=1, le=3600, description="whole seconds from 1 to 3600")
    endpoint_probe_interval_seconds: int = Field(
        default=10, ge=1, le=3600, description="whole seconds from 1 to 3600"
    )
    consecutive_failure_threshold_timeout: int = Field(
        default=180, ge=1, le=86_400, description="whole seconds from 1 to 86400"
    )


_COUNT = f"a whole number from 0 to {MAX_REPLICAS}"


def _qps(value: Any) -> Any:
    """A number, or one for each accelerator."""
    if isinstance(value, dict) and value:
        wrong = [name for name, qps in value.items() if not _is_positive(qps)]
        if not wrong:
            return {name: float(qps) for name, qps in value.items()}
        findings = [
            Finding((name,), f"expected a number more than 0, got {shown(value[name])}") for name in wrong
        ]
        raise rejected(*findings)
    if not _is_positive(value):
        raise rejected(Finding((), f"expected {_QPS}, got {shown(value)}"))
    return float(value)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


_QPS = "requests a second, more than 0, or a mapping of accelerators to them"


class ReplicaPolicy(Fields):
    """A number of replicas that follows the load, in SkyServe's format; see `dialect` for the fallbacks."""

    min_replicas: int = Field(ge=0, le=MAX_REPLICAS, description=_COUNT)
    max_replicas: int | None = Field(default=None, ge=0, le=MAX_REPLICAS, description=_COUNT)
    target_qps_per_replica: Annotated[float | dict[str, float] | None, BeforeValidator(_qps)] = Field(
        default=None, description=_QPS
    )
    upscale_delay_seconds: int = Field(
        default=300, ge=0, le=86_400, description="whole seconds from 0 to 86400"
    )
    downscale_delay_seconds: int = Field(
        default=1200, ge=0, le=86_400, description="whole seconds from 0 to 86400"
    )
    num_overprovision: int = Field(default=0, ge=0, le=MAX_REPLICAS, description=_COUNT)
    spot_placer: str | None = Field(
        default=None, pattern="^dynamic_fallback$", description="dynamic_fallback"
    )

    @property
    def most(self) -> int:
        """The most replicas that there may be."""
        return self.min_replicas if self.max_replicas is None else self.max_replicas

    @model_validator(mode="after")
    def _in_order(self) -> ReplicaPolicy:
        if self.most < self.min_replicas:
            message = f"expected min_replicas, {self.min_replicas}, or more, got {self.most}"
            raise rejected(Finding(("max_replicas",), message))
        return self


class TlsSection(Fields):
    """SkyServe's certificate. Here it belongs into AWS Certificate Manager."""

    keyfile: str = Field(description="a path")
    certfile: str = Field(description="a path")


class LoadBalancerSection(Fields):
    """What `dialect` leaves of it: its one field is `spotrelay.idle_timeout_seconds`."""


class ServiceSection(Fields):
    """How many replicas, and when one is well."""

    replicas: int | None = Field(default=None, ge=0, le=MAX_REPLICAS, description=_COUNT)
    ports: int | None = Field(
        default=None, ge=1, le=MAX_PORT, description=f"one port from 1 to {MAX_PORT}, such as 8080"
    )
    replica_policy: ReplicaPolicy | None = Field(
        default=None, description="fields (min_replicas, max_replicas …)"
    )
    readiness_probe: Annotated[ProbeSection | None, BeforeValidator(_path_only)] = Field(
        default=None, description="a path, or fields (path, post_data …)"
    )
    load_balancing_policy: Literal["least_load", "round_robin", "instance_aware_least_load"] = Field(
        default="least_load", description="least_load, round_robin or instance_aware_least_load"
    )
    load_balancer: LoadBalancerSection | None = Field(
        default=None, description="fields (stream_timeout_seconds)"
    )
    tls: TlsSection | None = Field(default=None, description="fields (keyfile, certfile)")


_A_TARGET = "a target of file_mounts where a bucket is mounted, such as /results"
_REBALANCE_COST = "a share of a replica's own price from 5% to 90%, such as 20%"

MAX_DRAIN_S = 600
"""A removal waits for 15 minutes, Lambda's longest. In them a removed service drains, and a large GPU
instance shuts down, which takes minutes. What nobody removes has `drain_unhurried`."""


class SpotRelaySection(Fields):
    """What SkyServe's format has no place for, but for what an instance must have: that is in `Resources`."""

    health_check: str | None = Field(
        default=None, pattern=ROOTED, max_length=1024, description="a path such as /health"
    )
    drain_seconds: int = Field(
        default=30, ge=1, le=MAX_DRAIN_S, description=f"whole seconds from 1 to {MAX_DRAIN_S}"
    )
    drain_unhurried: int = Field(default=300, ge=1, le=3600, description="whole seconds from 1 to 3600")
    # strict=False: YAML has the text of a choice, not the enumeration's member.
    on_warning: OnWarning = Field(
        default=OnWarning.NEEDED, strict=False, description="needed, serve_on or leave"
    )
    base_on_demand: int = Field(
        default=0, ge=0, le=MAX_REPLICAS, description="a whole number from 0 to replicas"
    )
    on_demand_fallback: bool = Field(default=True, description="true or false")
    on_rebalance: OnRebalance = Field(
        default=OnRebalance.IGNORE, strict=False, description="ignore or replace"
    )
    surge: int = Field(default=1, ge=0, le=100, description="a whole number from 0 to 100")
    max_launches_per_minute: int = Field(
        default=100, ge=1, le=1000, description="a whole number from 1 to 1000"
    )
    # SkyServe's default, under the name stream_timeout_seconds. ELB takes 1 to 4000.
    idle_timeout_seconds: int = Field(default=120, ge=1, le=4000, description="whole seconds from 1 to 4000")
    certificate_arn: str | None = Field(
        default=None,
        pattern=r"^arn:[\w-]+:acm:[\w-]+:\d{12}:certificate/[\w-]+$",
        description="an ACM certificate's ARN, arn:aws:acm:REGION:ACCOUNT:certificate/…",
    )
    domain: str | None = Field(
        default=None,
        pattern=r"^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]$",
        max_length=253,
        description="a domain in lower case, such as chat.example.com",
    )
    standby: Annotated[int | str, BeforeValidator(_standbys)] = Field(default=0, description=_STANDBYS)
    standby_instance_types: Annotated[list[str] | None, BeforeValidator(parse_types)] = Field(
        default=None, min_length=1, description="a list of instance types"
    )
    standby_zones: Annotated[
        list[str] | None, BeforeValidator(parse_names(ZONE, "a zone such as us-east-1a"))
    ] = Field(default=None, min_length=1, description="a list of zones, such as [us-east-1a, us-east-1b]")
    capacity_reservations: Annotated[str | None, BeforeValidator(_reservations)] = Field(
        default=None, description=_RESERVATIONS
    )
    # Prices move by a few per cent all the time, and nothing is ever 90 % cheaper elsewhere.
    rebalance_cost: Annotated[
        float | None, BeforeValidator(parse_share(5, 90, _REBALANCE_COST), json_schema_input_type=str)
    ] = Field(default=None, description=_REBALANCE_COST)
    move_on_score: bool = Field(default=False, description="true or false")

    # strict=False: see `ServiceSection.on_warning`.
    on_update: OnUpdate = Field(
        default=OnUpdate.ROLLING, strict=False, description="rolling, blue_green or keep"
    )
    bake_seconds: int | None = Field(
        default=None, ge=0, le=86_400, description="whole seconds from 0 to 86400"
    )

    writable_mounts: Annotated[list[str] | None, BeforeValidator(parse_names(r"\S.*", _A_TARGET))] = Field(
        default=None, description="a list of targets of file_mounts, such as [/results]"
    )
    scaling: ScalingSection | None = Field(default=None, description="fields (metric, schedules …)")
    busy: BusySection | None = Field(default=None, description="fields (limit, finished …)")
    replicas_per_instance: Literal[1, "auto"] = Field(default=1, description="1 or auto")

    @property
    def moves(self) -> dict[str, str]:
        """The fields that let replicas move, each with where to."""
        fields = {
            "rebalance_cost": (self.rebalance_cost is not None, "cheaper Spot"),
            "move_on_score": (self.move_on_score, "a zone with a better score"),
        }
        return {field: words for field, (is_set, words) in fields.items() if is_set}

    @property
    def shares_instances(self) -> bool:
        """Whether an instance with several accelerators hosts as many replicas."""
        return self.replicas_per_instance == AUTO

    security_groups: Annotated[list[str] | None, BeforeValidator(brought.parse_security_groups)] = Field(
        default=None,
        min_length=1,
        max_length=brought.MAX_SECURITY_GROUPS,
        description=f"a list of at most {brought.MAX_SECURITY_GROUPS} security groups, such as"
        " [sg-0123456789abcdef0]",
    )
    instance_profile: brought.Profile = Field(
        default=None,
        description="an instance profile's ARN, arn:aws:iam::ACCOUNT:instance-profile/…, or fields"
        " (arn, role)",
    )
    listener: brought.ListenerSection | None = Field(
        default=None, description="fields (arn, priority, paths …)"
    )
    target_group: brought.TargetGroup = Field(
        default=None,
        description="an Application Load Balancer's target group,"
        " arn:aws:elasticloadbalancing:REGION:ACCOUNT:targetgroup/…",
    )

    @property
    def is_auto(self) -> bool:
        """Whether the control plane finds out how many standbys pay."""
        return self.standby == AUTO

    def standbys(self, replicas: int) -> int:
        """How many, to begin with if `is_auto`: one for each replica on Spot. A share is rounded up."""
        if isinstance(self.standby, int):
            return self.standby
        if self.is_auto:
            return replicas - self.base_on_demand
        return -(-replicas * int(self.standby.removesuffix("%")) // 100)


def _workdir(value: Any, info: ValidationInfo) -> Any:
    return parse_workdir(value, _places(info))


def _file_mounts(value: Any, info: ValidationInfo) -> Any:
    return parse_file_mounts(value, _places(info))


def _places(info: ValidationInfo) -> Sequence[Path]:
    """Where relative paths are looked for."""
    return (info.context or {}).get("places") or (Path.cwd(),)


class ServiceFile(Fields):
    """A whole service file."""

    name: str = Field(default="", description="text")
    num_nodes: int = Field(default=1, ge=1, le=1, description="1: a replica is one instance")
    service: ServiceSection = Field(description="fields (replicas, readiness_probe …)")
    resources: Resources = Field(description="fields (accelerators, ports …)")
    spotrelay: Annotated[SpotRelaySection, BeforeValidator(_nothing_is_empty)] = Field(
        default_factory=SpotRelaySection, description="fields (standby, drain_seconds …)"
    )
    envs: Annotated[dict[str, str], BeforeValidator(_env_names), BeforeValidator(_nothing_is_empty)] = Field(
        default_factory=dict, description="environment variables (NAME: value)"
    )
    secrets: Annotated[dict[str, str], BeforeValidator(_secret_names), BeforeValidator(_nothing_is_empty)] = (
        Field(default_factory=dict, description="SSM parameters (NAME: /parameter/name)")
    )
    workdir: Annotated[Path | GitRepository | None, BeforeValidator(_workdir)] = Field(
        default=None, description="a directory such as `.`, or fields (url, ref)"
    )
    file_mounts: Annotated[
        tuple[FileMount, ...], BeforeValidator(_file_mounts), BeforeValidator(_nothing_is_empty)
    ] = Field(default=(), description="targets, each with a path, s3://bucket/prefix or fields (source …)")
    setup: str | None = Field(default=None, description="a bash script")
    run: str = Field(pattern=r"\S", description="a bash script, such as: run: python3 serve.py --port $PORT")

    @property
    def replicas(self) -> int:
        """How many there are, to begin with if the number follows the load."""
        policy = self.service.replica_policy
        if policy is not None:
            return policy.min_replicas
        return 1 if self.service.replicas is None else self.service.replicas

    @property
    def mounts(self) -> tuple[FileMount, ...]:
        """`file_mounts`, with who of them is writable."""
        writable = {target(name) for name in self.spotrelay.writable_mounts or ()}
        return tuple(replace(mount, is_writable=mount.target in writable) for mount in self.file_mounts)

    @property
    def port(self) -> int:
        """The one that serves. `resources.port_findings` tells where there is none."""
        ports = self.resources.ports
        return self.service.ports or (ports and ports.only) or 0

    @model_validator(mode="after")
    def _env_or_secret(self) -> ServiceFile:
        both = [
            Finding(("secrets", name), "stands under envs, too: remove one")
            for name in self.secrets
            if name in self.envs
        ]
        if both:
            raise rejected(*both)
        return self

    @model_validator(mode="after")
    def _something_decides_the_number(self) -> ServiceFile:
        types = eligibility.find(self.resources.wanted).types
        if found := scaling_findings(self.service.replica_policy, self.spotrelay.scaling, types):
            raise rejected(*found)
        return self

    @model_validator(mode="after")
    def _what_is_brought_fits(self) -> ServiceFile:
        if found := tuple(brought.findings(self)):
            raise rejected(*found)
        return self

    @model_validator(mode="after")
    def _new_ones_can_be_told_to_be_up(self) -> ServiceFile:
        probe = self.service.readiness_probe
        if self.spotrelay.on_update is OnUpdate.BLUE_GREEN and (probe is None or probe.post_data is None):
            message = (
                "with blue_green new replicas wait outside the rotation, where only a service.readiness_probe"
                " with post_data tells that they are up: add one, or say rolling"
            )
            raise rejected(Finding(("spotrelay", "on_update"), message))
        return self

    @model_validator(mode="after")
    def _writable_is_what_is_mounted(self) -> ServiceFile:
        mounted = [mount.target for mount in self.file_mounts if mount.is_mounted]
        findings = []
        for index, name in enumerate(self.spotrelay.writable_mounts or ()):
            try:
                is_mounted = target(name) in mounted
            except FilesError:
                is_mounted = False
            if not is_mounted:
                there = ", ".join(mounted) or "none"
                message = f"expected {_A_TARGET}, got {shown(name)}: there are {there}"
                findings.append(Finding(("spotrelay", "writable_mounts", index), message))
        if findings:
            raise rejected(*findings)
        return self

    @model_validator(mode="after")
    def _base_is_a_part(self) -> ServiceFile:
        policy = self.service.replica_policy
        replicas, base = (policy.most if policy else self.replicas), self.spotrelay.base_on_demand
        if base > replicas:
            message = f"expected a whole number from 0 to replicas, {replicas}, got {base}"
            raise rejected(Finding(("spotrelay", "base_on_demand"), message))
        return self

    @model_validator(mode="after")
    def _one_get_check(self) -> ServiceFile:
        """A probe without post_data *is* the load balancer's check: two different ones would be at odds."""
        probe, health_check = self.service.readiness_probe, self.spotrelay.health_check
        if probe and probe.post_data is None and health_check not in (None, probe.path):
            message = (
                "a readiness probe without post_data is the load balancer's own check, "
                f"and that is {probe.path}: remove one of the two, or give the probe post_data"
            )
            raise rejected(Finding(("spotrelay", "health_check"), message))
        return self

    @model_validator(mode="after")
    def _instances_can_be_shared(self) -> ServiceFile:
        """Each replica has one accelerator and a port of its own."""
        own, wanted = self.spotrelay, self.resources.wanted
        if not own.shares_instances:
            return self
        messages = []
        counts = [{one.count for one in choice.accelerators} for choice in wanted.choices]
        if any(each != {1} for each in counts):
            messages.append(
                "instances are shared by replicas that have one accelerator each: name them in"
                " resources.accelerators, with no number or 1, or remove this"
            )
        if re.search(r"\bPORT\b", self.run) is None:
            messages.append(
                "each replica of an instance listens on a port of its own, and run doesn't name it: use"
                " $PORT there, or remove this"
            )
        if self.resources.container:
            messages.append(
                "with resources.image_id: docker:… an instance has one container: remove one of the two"
            )
        if own.is_auto or own.standbys(self.replicas):
            messages.append("a standby is an instance of its own: remove this, or spotrelay.standby")
        for field, move in own.moves.items():
            messages.append(
                f"a move to {move} is one replica's, and its instance's others would stay: remove this,"
                f" or spotrelay.{field}"
            )
        if messages:
            at = ("spotrelay", "replicas_per_instance")
            raise rejected(*(Finding(at, message) for message in messages))
        return self

    @model_validator(mode="after")
    def _standbys_are_where_replicas_may_be(self) -> ServiceFile:
        types = {type_.name for type_ in eligibility.find(self.resources.wanted).types}
        findings = [
            Finding(
                ("spotrelay", "standby_instance_types", index),
                f"{name} isn't a type that resources allow for a replica, and a standby becomes one: "
                "change one of the two",
            )
            for index, name in enumerate(self.spotrelay.standby_instance_types or ())
            if name not in types
        ]
        zones = self.resources.wanted.zones
        findings += [
            Finding(
                ("spotrelay", "standby_zones", index),
                f"{zone} is none of resources.zones, {', '.join(zones)}: change one of the two",
            )
            for index, zone in enumerate(self.spotrelay.standby_zones or ())
            if zones and zone not in zones
        ]
        if findings:
            raise rejected(*findings)
        return self

    @model_validator(mode="after")
    def _reservations_have_a_use(self) -> ServiceFile:
        """They are where replicas may be, and something may be launched that can use them."""
        found = RESERVATIONS.fullmatch(self.spotrelay.capacity_reservations or "")
        if found is None:
            return self
        region, resources, own = found["region"], self.resources, self.spotrelay
        messages = []
        for field, regions in (
            ("zones", [zone[:-1] for zone in resources.zones or ()]),
            ("regions", resources.regions or []),
        ):
            if regions and region not in regions:
                listed = ", ".join(getattr(resources, field))
                messages.append(
                    f"the group is in {region}, and resources.{field} is {listed}: change one of the two"
                )
        if resources.use_spot and not own.on_demand_fallback and not own.base_on_demand:
            messages.append(
                "only on-demand instances use capacity reservations, and this service has none: set"
                " spotrelay.base_on_demand, let spotrelay.on_demand_fallback be true, or remove this"
            )
        if messages:
            at = ("spotrelay", "capacity_reservations")
            raise rejected(*(Finding(at, message) for message in messages))
        return self

    @model_validator(mode="after")
    def _moves_have_a_use(self) -> ServiceFile:
        """There is Spot to move to, and room for the new replica beside the old one."""
        own = self.spotrelay
        if not own.moves:
            return self
        messages = []
        if not self.resources.use_spot:
            (move, *_) = own.moves.values()
            messages.append(
                f"replicas move to {move}, and resources.use_spot: false rules that out: "
                "remove one of the two"
            )
        if own.base_on_demand == self.replicas > 0:
            messages.append(
                f"all {self.replicas} replicas are on-demand (spotrelay.base_on_demand), and only"
                " those on Spot move: remove this, or make spotrelay.base_on_demand smaller"
            )
        if own.surge == 0:
            messages.append(
                "a replica moves once another runs beside it, which spotrelay.surge: 0 rules out: "
                "remove one of the two"
            )
        findings = [Finding(("spotrelay", field), message) for field in own.moves for message in messages]
        if own.move_on_score:
            at = ("spotrelay", "move_on_score")
            findings += [Finding(at, message) for message in self._why_scores_tell_nothing()]
        if findings:
            raise rejected(*findings)
        return self

    def _why_scores_tell_nothing(self) -> Iterator[str]:
        types, zones = eligibility.find(self.resources.wanted).types, self.resources.wanted.zones
        if 0 < len(types) < LEAST_TYPES:
            names = " and ".join(type_.name for type_ in types)
            yield (
                f"replicas move by EC2's placement scores, which tell nothing of fewer than {LEAST_TYPES}"
                f" instance types, and resources allow {names}: allow more of them, or remove this"
            )
        if len(zones) == 1:
            yield (
                f"replicas move to other zones, and resources.zones is {zones[0]}: name more of them,"
                " or remove this"
            )

    @model_validator(mode="after")
    def _standbys_have_a_use(self) -> ServiceFile:
        """They can be prepared, bridge something, and keep what they load."""
        service, setup = self.service, self.setup or ""
        if not (self.spotrelay.is_auto or self.spotrelay.standbys(self.replicas)):
            return self
        messages = []
        if service.readiness_probe is None or service.readiness_probe.post_data is None:
            messages.append(
                "a standby is prepared outside the rotation, where only a service.readiness_probe with"
                " post_data tells that it is: add one, or remove this"
            )
        if not self.spotrelay.on_demand_fallback:
            messages.append(
                "a standby is an on-demand instance that stands in for Spot, which"
                " spotrelay.on_demand_fallback: false rules out: remove one of the two"
            )
        if self.spotrelay.base_on_demand == self.replicas > 0:
            messages.append(
                f"all {self.replicas} replicas are on-demand (spotrelay.base_on_demand), so there is no"
                " interruption to bridge: remove this, or make spotrelay.base_on_demand smaller"
            )
        if not self.resources.wanted.use_spot:
            messages.append(
                "with resources.use_spot: false there is no interruption that a standby could bridge: "
                "remove one of the two"
            )
        findings = [Finding(("spotrelay", "standby"), message) for message in messages]
        if INSTANCE_STORE in setup:
            message = (
                f"a stopped standby loses what is below {INSTANCE_STORE}, and setup isn't run again when it"
                " is resumed: let it write to the root volume, or remove spotrelay.standby"
            )
            findings.append(Finding(("setup",), message))
        if findings:
            raise rejected(*findings)
        return self
