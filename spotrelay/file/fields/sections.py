"""The sections `service` and `spotrelay` of a service file, each field by itself.

`schema` has the whole file, what is wrong between fields, and why types are strict.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from spotrelay.file.fields.evidence import BusySection
from spotrelay.file.fields.scaling import ReplicaPolicy, ScalingSection
from spotrelay.file.values import brought
from spotrelay.file.values.candidate import Fields
from spotrelay.file.values.files import (
    HOW_TO_HASH,
    FilesError,
    Model,
    Pack,
    SecretError,
    WebFile,
    model_path,
    model_source,
    pack_path,
    sha256,
)
from spotrelay.file.values.limits import LEAST_START_S, LONGEST_START_S
from spotrelay.file.values.parsing import (
    MAX_PORT,
    ZONE,
    Finding,
    parse_names,
    parse_seconds,
    parse_share,
    parse_types,
    rejected,
)
from spotrelay.messages import shown
from spotrelay.plane.core.scaling import MAX_REPLICAS
from spotrelay.plane.core.spec import OnRebalance, OnUpdate, OnWarning


def nothing_is_empty(value: Any) -> Any:
    """A section whose entries are all commented out."""
    return {} if value is None else value


def nothing_is_a_list(value: Any) -> Any:
    """A list whose entries are all commented out."""
    return [] if value is None else value


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
        message += ": put reservations into a group, which may be full or change: docs/standbys.md says how"
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
    headers: Annotated[dict[str, str], BeforeValidator(_headers), BeforeValidator(nothing_is_empty)] = Field(
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


def _model_source(value: Any) -> Any:
    return _looked_at(model_source, value)


def _model_path(value: Any) -> Any:
    return _looked_at(model_path, value)


def _looked_at(look: Callable[[str], object], value: Any) -> Any:
    """The value, unless what looks at it refuses it."""
    if isinstance(value, str):
        try:
            look(value)
        except SecretError as error:
            raise rejected(Finding((), str(error))) from error
        except FilesError as error:
            raise rejected(Finding((), f"{error}, got {shown(value)}")) from error
    return value


def _sha256(value: Any) -> Any:
    return _looked_at(sha256, value)


class ModelSection(Fields):
    """A model that instances fetch from a bucket or a web server, from the boot on."""

    source: Annotated[str, BeforeValidator(_model_source)] = Field(
        description="s3://bucket/prefix, or a file's https:// address"
    )
    path: Annotated[str, BeforeValidator(_model_path)] = Field(
        description="an absolute path such as /models/llama3-8b"
    )
    sha256: Annotated[str, BeforeValidator(_sha256)] | None = Field(
        default=None, description="the SHA-256 of what https:// names, 64 hexadecimal digits"
    )

    @model_validator(mode="after")
    def _a_file_has_a_hash(self) -> ModelSection:
        is_file = isinstance(model_source(self.source), str)
        if is_file and self.sha256 is None:
            message = (
                f"is missing, and what comes from a web server is used only if it is right: {HOW_TO_HASH}"
            )
            raise rejected(Finding(("sha256",), message))
        if not is_file and self.sha256 is not None:
            message = (
                "is of a file at an https:// address; what is in a bucket `up` pins by itself: remove this"
            )
            raise rejected(Finding(("sha256",), message))
        if is_file and self.path.endswith("/"):
            name = posixpath.basename(urlsplit(self.source).path)
            message = f"expected the file's own path, such as {self.path}{name}, got {shown(self.path)}"
            raise rejected(Finding(("path",), message))
        return self

    @property
    def compiled(self) -> Model:
        """As instances get it."""
        source = model_source(self.source)
        path = model_path(self.path)
        if isinstance(source, str):
            return Model(WebFile(source, sha256(self.sha256 or "")), path)
        return Model(source, path)


MAX_PACKED = 10
"""Directories of a pack: more would be one directory above them."""


def _pack_paths(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    findings = []
    for index, one in enumerate(value):
        try:
            pack_path(one if isinstance(one, str) else "")
        except FilesError as error:
            findings.append(Finding((index,), f"{error}, got {shown(one)}"))
    if findings:
        raise rejected(*findings)
    return value


class PackSection(Fields):
    """What set-up makes, which instances may have from a pack instead."""

    paths: Annotated[list[str], BeforeValidator(_pack_paths)] = Field(
        min_length=1,
        max_length=MAX_PACKED,
        description=f"a list of at most {MAX_PACKED} directories, such as [/opt/vllm]",
    )
    warm: bool | None = Field(default=None, description="true or false")

    @property
    def compiled(self) -> Pack:
        """As instances get it."""
        return Pack(tuple(map(pack_path, self.paths)), warm=bool(self.warm))


A_TARGET = "a target of file_mounts where a bucket is mounted, such as /results"
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
    start_within: Annotated[
        int | None, BeforeValidator(parse_seconds, json_schema_input_type=int | str | None)
    ] = Field(
        default=None,
        ge=LEAST_START_S,
        le=LONGEST_START_S,
        description=f"whole seconds from {LEAST_START_S}, before which no instance can serve, to"
        f" {LONGEST_START_S}, such as 100, 100s or 2m",
    )
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

    writable_mounts: Annotated[list[str] | None, BeforeValidator(parse_names(r"\S.*", A_TARGET))] = Field(
        default=None, description="a list of targets of file_mounts, such as [/results]"
    )
    models: Annotated[list[ModelSection], BeforeValidator(nothing_is_a_list)] = Field(
        default_factory=list, description="a list of models, each with fields (source, path)"
    )
    pack: PackSection | None = Field(default=None, description="fields (paths, warm)")
    peers: bool = Field(default=False, description="true or false")
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
