"""The fields of a service file, and what is wrong between them. `sections` has those of its sections.

A field's description is what an error says was *expected* there, so it reads on from that word. Types are
strict: `replicas: "3"` is an error, because whoever writes it means something else or will be surprised
elsewhere. Defaults and limits are explained in docs/service-file.md; a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from spotrelay.file.fields import brought_checks
from spotrelay.file.fields.file_fields import parse_file_mounts, parse_workdir
from spotrelay.file.fields.resources import Resources
from spotrelay.file.fields.scaling import findings as scaling_findings
from spotrelay.file.fields.sections import (
    A_TARGET,
    RESERVATIONS,
    ServiceSection,
    SpotRelaySection,
    nothing_is_empty,
)
from spotrelay.file.source.draft import Dialect
from spotrelay.file.source.environment import PARAMETER_NAME
from spotrelay.file.values import eligibility
from spotrelay.file.values.candidate import Fields
from spotrelay.file.values.disk import INSTANCE_STORE
from spotrelay.file.values.files import (
    WORK_DIRECTORY,
    FileMount,
    FilesError,
    GitRepository,
    one_within_the_other,
    target,
)
from spotrelay.file.values.parsing import Finding, rejected
from spotrelay.messages import shown
from spotrelay.plane.core.pools import LEAST_TYPES
from spotrelay.plane.core.spec import OnUpdate

SET_BY_SPOTRELAY = {"HOST": "is always 0.0.0.0", "PORT": "is resources.ports"}


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
    spotrelay: Annotated[SpotRelaySection, BeforeValidator(nothing_is_empty)] = Field(
        default_factory=SpotRelaySection, description="fields (standby, drain_seconds …)"
    )
    envs: Annotated[dict[str, str], BeforeValidator(_env_names), BeforeValidator(nothing_is_empty)] = Field(
        default_factory=dict, description="environment variables (NAME: value)"
    )
    secrets: Annotated[dict[str, str], BeforeValidator(_secret_names), BeforeValidator(nothing_is_empty)] = (
        Field(default_factory=dict, description="SSM parameters (NAME: /parameter/name)")
    )
    workdir: Annotated[Path | GitRepository | None, BeforeValidator(_workdir)] = Field(
        default=None, description="a directory such as `.`, or fields (url, ref)"
    )
    file_mounts: Annotated[
        tuple[FileMount, ...], BeforeValidator(_file_mounts), BeforeValidator(nothing_is_empty)
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
        if found := tuple(brought_checks.findings(self.spotrelay, self.service, self.resources)):
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
                message = f"expected {A_TARGET}, got {shown(name)}: there are {there}"
                findings.append(Finding(("spotrelay", "writable_mounts", index), message))
        if findings:
            raise rejected(*findings)
        return self

    @model_validator(mode="after")
    def _models_have_places_of_their_own(self) -> ServiceFile:
        """What is put at a place, as a whole, takes away what was there."""
        taken = [mount.target for mount in self.file_mounts]
        findings = []
        for index, model in enumerate(one.compiled for one in self.spotrelay.models):
            for other in taken:
                if one_within_the_other(model.path, other):
                    message = f"{model.path} and {other} would lie one within the other: name another place"
                    findings.append(Finding(("spotrelay", "models", index, "path"), message))
            taken.append(model.path)
        if findings:
            raise rejected(*findings)
        return self

    @model_validator(mode="after")
    def _a_pack_stands_for_set_up(self) -> ServiceFile:
        """There is one, on the instance itself, and its paths are its alone."""
        own, at = self.spotrelay, ("spotrelay", "pack")
        if own.pack is None:
            return self
        findings = []
        if not self.setup:
            findings.append(Finding(at, "a pack has what setup makes, and there is no setup: remove this"))
        if self.resources.container:
            message = (
                "with resources.image_id: docker:… setup runs in the container, whose files no pack has:"
                " build them into its image, or remove this"
            )
            findings.append(Finding(at, message))
        if own.instance_profile is not None:
            message = (
                "who packs has a role of its own, made like the replicas', and spotrelay.instance_profile is"
                " yours: remove one of the two"
            )
            findings.append(Finding(at, message))
        taken = [*(mount.target for mount in self.file_mounts), *(one.compiled.path for one in own.models)]
        taken += ["/opt/spotrelay", INSTANCE_STORE, f"/root/{WORK_DIRECTORY}"]
        for index, path in enumerate(own.pack.compiled.paths):
            for other in taken:
                # The home directory is root's: that is who runs the scripts.
                if one_within_the_other(path, other.replace("~", "/root", 1)):
                    message = f"{path} and {other} would lie one within the other: name another place"
                    findings.append(Finding((*at, "paths", index), message))
            taken.append(path)
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
                f"{zone} isn't one of resources.zones, {', '.join(zones)}: change one of the two",
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
