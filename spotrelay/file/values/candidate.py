"""What an instance must have and where it may be: `resources` itself, or one of its alternatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from spotrelay.file import catalog
from spotrelay.file.source.document import Location
from spotrelay.file.values import eligibility
from spotrelay.file.values.parsing import (
    FINDINGS,
    REGION,
    TYPE_OR_FAMILY,
    ZONE,
    Finding,
    Place,
    Wishes,
    findings_of,
    parse_accelerators,
    parse_cloud,
    parse_cpus,
    parse_infra,
    parse_memory,
    parse_names,
    parse_place,
    parse_type,
    parse_types,
)
from spotrelay.plane.core.instance_types import InstanceType
from spotrelay.plane.core.requirements import Amount, Exclusion, Requirements

MAX_REGIONS = 10
"""The most that EC2 takes in one question for placement scores."""

LEAST_CPUS = Amount(8, at_least=True)
"""Without a size and an accelerator: SkyServe's default."""


class Fields(BaseModel):
    """A section of the service file."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


# What may be written, for the JSON Schema; what it becomes is another type.
_ACCELERATORS = BeforeValidator(
    parse_accelerators, json_schema_input_type=str | list[str] | dict[str, float | None]
)
_CPUS = BeforeValidator(parse_cpus, json_schema_input_type=float | str)
_MEMORY = BeforeValidator(parse_memory, json_schema_input_type=float | str)
_INFRA = BeforeValidator(parse_infra, json_schema_input_type=str)

_a_region = parse_place(REGION, "a region such as us-east-1")
_a_zone = parse_place(ZONE, "a zone such as us-east-1a")

_PLACES = ("infra", "cloud", "region", "zone", "regions", "zones")
SAME = {"accelerators": ("gpus",), "gpus": ("accelerators",)} | dict.fromkeys(_PLACES, _PLACES)
"""Field of an alternative → fields outside that it replaces, too."""


class Candidate(Fields):
    """What an instance must have, and where it may be."""

    accelerators: Annotated[Wishes | None, _ACCELERATORS] = Field(
        default=None, description="accelerators such as A10G:1, or [A10G:1, L4:1]"
    )
    gpus: Annotated[Wishes | None, _ACCELERATORS] = Field(
        default=None, description="accelerators such as A10G:1, or [A10G:1, L4:1]"
    )
    accelerator_memory: Annotated[Amount | None, _MEMORY] = Field(default=None, description="24 or 24+")
    instance_type: Annotated[str | None, BeforeValidator(parse_type)] = Field(
        default=None, description="an instance type such as g5.2xlarge"
    )
    instance_types: Annotated[list[str] | None, BeforeValidator(parse_types)] = Field(
        default=None, min_length=1, description="a list of instance types, the preferred one first"
    )
    exclude: Annotated[
        list[str],
        BeforeValidator(parse_names(TYPE_OR_FAMILY, "a type such as g5.xlarge, or a family such as g5")),
    ] = Field(
        default_factory=list, description="a list of instance types or families, such as [g5.xlarge, g4dn]"
    )
    cpus: Annotated[Amount | None, _CPUS] = Field(default=None, description="8 or 8+")
    memory: Annotated[Amount | None, _MEMORY] = Field(default=None, description="32 or 32+")
    infra: Annotated[Place | None, _INFRA] = Field(default=None, description="aws, or aws/us-east-1")
    cloud: Annotated[str | None, BeforeValidator(parse_cloud)] = Field(default=None, description="aws")
    region: Annotated[str | None, BeforeValidator(_a_region)] = Field(
        default=None, description="a region such as us-east-1"
    )
    zone: Annotated[str | None, BeforeValidator(_a_zone)] = Field(
        default=None, description="a zone such as us-east-1a"
    )
    zones: Annotated[list[str] | None, BeforeValidator(parse_names(ZONE, "a zone such as us-east-1a"))] = (
        Field(default=None, min_length=1, description="a list of zones, such as [us-east-1a, us-east-1b]")
    )
    regions: Annotated[
        list[str] | None, BeforeValidator(parse_names(REGION, "a region such as us-east-1"))
    ] = Field(
        default=None,
        min_length=1,
        max_length=MAX_REGIONS,
        description=f"a list of at most {MAX_REGIONS} regions, such as [us-east-1, us-east-2]",
    )
    use_spot: bool = Field(default=True, description="true or false")

    @model_validator(mode="before")
    @classmethod
    def _nothing_is_not_said(cls, value: Any) -> Any:
        """A field whose value is commented out."""
        if not isinstance(value, dict):
            return value
        return {name: content for name, content in value.items() if content is not None}

    @property
    def wishes(self) -> Wishes:
        """Accelerators, under either name."""
        return self.accelerators or self.gpus or Wishes(())

    @property
    def has_order(self) -> bool:
        """Whether types are given in order of preference."""
        return self.instance_types is not None or (self.instance_type is None and self.wishes.ordered)

    @property
    def _all_regions(self) -> tuple[str, ...]:
        one = self.region or (self.infra.region if self.infra else None)
        return tuple(self.regions or ((one,) if one else ()))

    @property
    def _all_zones(self) -> tuple[str, ...]:
        one = self.zone or (self.infra.zone if self.infra else None)
        return tuple(self.zones or ((one,) if one else ()))

    @property
    def alone(self) -> Requirements:
        """The requirements on the instance type and where it is, without any alternatives."""
        types = (self.instance_type,) if self.instance_type else tuple(self.instance_types or ())
        is_open = not (self.wishes.accelerators or self.accelerator_memory or types or self.memory)
        return Requirements(
            accelerators=self.wishes.accelerators,
            accelerator_memory_gb=self.accelerator_memory,
            cpus=self.cpus or (LEAST_CPUS if is_open else None),
            memory_gib=self.memory,
            instance_types=types,
            exclude=tuple(self.exclude),
            zones=self._all_zones,
            regions=self._all_regions,
            use_spot=self.use_spot,
        )

    def findings(self) -> Iterator[Finding]:
        """What is at odds in it, each at its field; a lack where nothing is to be had."""
        found = list(self._said_twice())
        regions = self._all_regions
        for index, zone in enumerate(self._all_zones):
            if regions and zone[:-1] not in regions:
                at: Location = ("zones", index) if self.zones else ("zone",) if self.zone else ("infra",)
                found.append(Finding(at, f"{zone} is in none of the regions {', '.join(regions)}"))
        # Which types are left says nothing while it isn't clear which are meant.
        yield from found or self._without_types()

    def _said_twice(self) -> Iterator[Finding]:
        for one, others in {
            "gpus": ("accelerators",),
            "instance_type": ("instance_types",),
            "infra": ("cloud", "region", "regions", "zone", "zones"),
            "region": ("regions",),
            "zone": ("zones",),
        }.items():
            for other in others:
                if one in self.model_fields_set and other in self.model_fields_set:
                    yield Finding((other,), f"says the same as {one}, which is here, too: remove one")

    def _without_types(self) -> Iterator[Finding]:
        wanted = self.alone
        at_odds = [
            Finding(self._place_of(name), _why_not(type_, wanted))
            for name in wanted.instance_types
            if wanted.accelerators
            and (type_ := catalog.find_type(name))
            and not any(these.are_on(type_) for these in wanted.accelerators)
        ]
        if at_odds:
            yield from at_odds
            return
        found = eligibility.find(wanted)
        if not found.types:
            fields = {exclusion.field for exclusion in found.excluded} - {""}
            at = (fields.pop(),) if len(fields) == 1 else ()
            yield Finding(at, eligibility.why_none(wanted, found.excluded), is_lack=True)
        elif wanted.instance_types:
            yield from (self._excluded(exclusion) for exclusion in found.excluded)

    def _place_of(self, name: str) -> Location:
        """Where a named type stands."""
        return (
            ("instance_type",)
            if self.instance_type
            else ("instance_types", (self.instance_types or []).index(name))
        )

    def _excluded(self, exclusion: Exclusion) -> Finding:
        name = exclusion.type.name
        message = f"{name} doesn't satisfy {exclusion.field} ({exclusion.reason}): change one of the two"
        return Finding(self._place_of(name), message)


def _why_not(type_: InstanceType, wanted: Requirements) -> str:
    wishes = " or ".join(str(accelerator) for accelerator in wanted.accelerators)
    return f"{type_.name} has {_chips(type_)}, but accelerators asks for {wishes}: change one of the two"


def _chips(type_: InstanceType) -> str:
    if not type_.accelerator:
        return "no accelerator"
    return (
        f"{type_.accelerator}:{type_.accelerator_count}" if type_.accelerator_count else "a share of one GPU"
    )


@dataclass(frozen=True, slots=True)
class Lack:
    """An alternative that AWS hasn't."""

    findings: tuple[Finding, ...]


def _or_lack(value: Any, validate: Callable[[Any], Candidate]) -> Candidate | Lack:
    """An alternative; what else is wrong with one that AWS hasn't is of no interest."""
    if isinstance(value, dict) and (elsewhere := other_cloud(value)):
        return Lack((elsewhere,))
    try:
        return validate(value)
    except ValidationError as error:
        found = list(_findings_in(error))
        if len(found) == len(error.errors()) and all(finding.is_lack for finding in found):
            return Lack(tuple(found))
        raise


def _findings_in(error: ValidationError) -> Iterator[Finding]:
    for detail in error.errors(include_url=False):
        if detail["type"] == FINDINGS:
            for finding in detail["ctx"][FINDINGS]:
                yield finding._replace(at=(*detail["loc"], *finding.at))


def other_cloud(values: Mapping[str, Any]) -> Finding | None:
    """What says that these fields are for another cloud; None where nothing does."""
    for name, parse in (("infra", parse_infra), ("cloud", parse_cloud)):
        try:
            if values.get(name) is not None:
                parse(values[name])
        except PydanticCustomError as error:
            for finding in findings_of(error):
                if finding.is_lack:
                    return finding._replace(at=(name,))
    return None


ALTERNATIVES = ("any_of", "ordered")

Alternatives = Annotated[
    list[Annotated[Candidate, WrapValidator(_or_lack)]] | None,
    Field(min_length=1, description="a list of alternatives, each with fields such as accelerators"),
]
