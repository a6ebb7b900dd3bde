"""The section `resources`: what an instance must have, in one way or another, and what it boots from.

Of several alternatives (`any_of`, `ordered`) each is a `Candidate`: the fields outside are its defaults. What
AWS lacks is left out with a notice as long as another remains.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from spotrelay.file.fields.file_fields import parse_container
from spotrelay.file.model import (
    DEFAULT_IMAGE,
    DEFAULT_ROOT_DEVICE,
    IMAGES_GIB,
    PLAIN_IMAGE,
    Image,
)
from spotrelay.file.source.document import Location
from spotrelay.file.source.environment import PARAMETER_NAME
from spotrelay.file.values import eligibility
from spotrelay.file.values.candidate import ALTERNATIVES, MAX_REGIONS, SAME, Alternatives, Candidate, Lack
from spotrelay.file.values.parsing import (
    FINDINGS,
    REGION,
    Finding,
    Ports,
    parse_ports,
    parse_share,
    parse_size,
    rejected,
)
from spotrelay.messages import shown
from spotrelay.plane.core.requirements import Eligibility, Requirements

AMI = r"ami-[0-9a-f]{8,17}"

MAX_LABELS = 40
"""EC2 takes 50 tags; the rest is for SpotRelay's own and the account's."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What the alternatives amount to."""

    choices: tuple[Candidate, ...]
    """Those that AWS has, the preferred one first; with the defaults from outside."""
    left_out: tuple[Finding, ...] = ()
    """What AWS lacks, beside what it has."""
    problems: tuple[Finding, ...] = ()
    """Why there is nothing to launch, or what is at odds."""


_WITHOUT_EFFECT = {
    "autostop": "a service's instances run until it needs them no more",
    "job_recovery": "lost replicas are always replaced",
    "spot_recovery": "lost replicas are always replaced",
    "priority": "a service doesn't queue",
    "network_tier": "replicas don't talk to each other",
    "accelerator_args": "they are for TPUs",
}
"""SkyServe's fields that mean nothing to a service here, and why."""

_Ignored = Field(default=None, description="anything: it has no effect")

_COMMON = ("disk_size", "disk_tier", "ports", "image_id", "image", "labels", "root_device", "max_price")
"""What a service has once: alternatives may say it only if all say the same."""


_PORTS = BeforeValidator(parse_ports, json_schema_input_type=int | str | list[int | str])
_IMAGE = BeforeValidator(lambda value: _image_id(value), json_schema_input_type=str | dict[str, str])


_MAX_PRICE = "a share of the on-demand price from 1% to 100%, such as 70%"


class Resources(Candidate):
    """What an instance must have, in one way or another, and what it boots from."""

    any_of: Alternatives = None
    ordered: Alternatives = None
    max_price: Annotated[
        float | None, BeforeValidator(parse_share(1, 100, _MAX_PRICE), json_schema_input_type=str)
    ] = Field(default=None, description=_MAX_PRICE)
    disk_size: Annotated[int, BeforeValidator(parse_size, json_schema_input_type=float | str)] = Field(
        default=256, ge=8, le=16_384, description="GiB from 8 to 16384, such as 256, 256GB or 1TB"
    )
    disk_tier: Literal["low", "medium", "high", "ultra", "best"] = Field(
        default="medium", description="low, medium, high, best or ultra"
    )
    disk_initialization_rate: int | None = Field(
        default=None, ge=100, le=300, description="a whole number of MiB/s from 100 to 300"
    )
    ports: Annotated[Ports | None, _PORTS] = Field(
        default=None, description="a port such as 8080, a range or a list"
    )
    image: str | None = Field(
        default=None,
        pattern=rf"^({AMI}|{PARAMETER_NAME})$",
        description="an AMI (ami-0123456789abcdef0) or the SSM parameter that holds one (/aws/service/…)",
    )
    image_id: Annotated[Image | str | None, _IMAGE] = Field(
        default=None, description="docker:IMAGE, an AMI (ami-0123456789abcdef0), or one for each region"
    )
    root_device: str = Field(
        default=DEFAULT_ROOT_DEVICE,
        pattern=r"^/dev/(sd|xvd)[a-z][0-9]{0,2}$",
        description="a device name such as /dev/sda1 or /dev/xvda",
    )
    labels: Annotated[dict[str, str], BeforeValidator(lambda value: _labels(value))] = Field(
        default_factory=dict, description="tags for the instances (NAME: value)"
    )
    autostop: JsonValue = _Ignored
    job_recovery: JsonValue = _Ignored
    spot_recovery: JsonValue = _Ignored
    priority: JsonValue = _Ignored
    network_tier: JsonValue = _Ignored
    accelerator_args: JsonValue = _Ignored

    @model_validator(mode="before")
    @classmethod
    def _what_all_say_is_said_once(cls, value: Any) -> Any:
        """Alternatives that all have the same disk have one disk."""
        if not isinstance(value, dict):
            return value
        value = dict(value)
        for way in ALTERNATIVES:
            inner = value.get(way)
            if not isinstance(inner, list) or not inner or not all(isinstance(one, dict) for one in inner):
                continue
            for name in _COMMON:
                said = [one.get(name) for one in inner]
                if said[0] is not None and all(one == said[0] for one in said):
                    value[name] = said[0]
                    inner = [{k: v for k, v in one.items() if k != name} for one in inner]
            value[way] = inner
        return value

    @property
    def has_order(self) -> bool:
        """Whether types are given in order of preference."""
        if self.any_of is None and self.ordered is None:
            return super().has_order
        return self.ordered is not None and len(self.settled.choices) > 1

    @property
    def wanted(self) -> Requirements:
        """The requirements on the instance type and where it is."""
        choices = [self._where_an_image_is(one.alone) for one in self.settled.choices]
        if len(choices) == 1:
            return choices[0]
        return Requirements(
            zones=_union([one.zones for one in choices]),
            regions=_union([one.regions for one in choices]),
            use_spot=choices[0].use_spot,
            alternatives=tuple(choices),
        )

    def _where_an_image_is(self, wanted: Requirements) -> Requirements:
        if wanted.regions or not isinstance(self.image_id, Image):
            return wanted
        return replace(wanted, regions=tuple(self.image_id.by_region))

    @property
    def field_of_choice(self) -> str:
        """The field that the choice of types starts from, as the file has it."""
        names = (
            *ALTERNATIVES,
            "instance_types",
            "instance_type",
            "accelerators",
            "gpus",
            "accelerator_memory",
        )
        return next((name for name in names if getattr(self, name) is not None), "cpus")

    @cached_property
    def found(self) -> Eligibility:
        """The instance types."""
        return eligibility.find(self.wanted)

    @property
    def container(self) -> str | None:
        """The image in which the scripts run, if there is one."""
        return self.image_id if isinstance(self.image_id, str) else None

    @cached_property
    def boot_image(self) -> Image:
        """What the instances boot."""
        if isinstance(self.image_id, Image):
            return replace(self.image_id, root_device=self.root_device)
        if self.image:
            return Image(self.image, self.root_device)
        types = self.found.types
        arch = types[0].arch if types else "x86_64"
        # Docker comes with the Deep Learning AMI only.
        is_plain = self.container is None and not any(type_.accelerator for type_ in types)
        if is_plain:
            return Image(PLAIN_IMAGE.format(arch="arm64" if arch == "arm64" else "amd64"), self.root_device)
        return Image(DEFAULT_IMAGE.format(arch=arch), self.root_device)

    @cached_property
    def settled(self) -> Settled:
        """The alternatives, or this alone."""
        way = "any_of" if self.any_of is not None else "ordered"
        # The schema can't say that an alternative may be a lack: of a union pydantic tells every error twice.
        alternatives: Sequence[Candidate | Lack] | None = getattr(self, way)
        if alternatives is None:
            problems = tuple(self.findings())
            return Settled((self,), () if problems else self._skipped(self, ()), problems)
        if self.any_of is not None and self.ordered is not None:
            return Settled((), (), (Finding(("ordered",), "stands beside any_of: keep one of the two"),))
        choices: list[Candidate] = []
        left_out: list[Finding] = []
        problems_: list[Finding] = []
        for index, one in enumerate(alternatives):
            at = (way, index)
            if isinstance(one, Lack):
                left_out += (finding._replace(at=(*at, *finding.at)) for finding in one.findings)
                continue
            merged = self._with_defaults(one)
            # What stands outside is wrong there, for all of them.
            found = [
                finding._replace(at=(*at, *finding.at) if _is_said(finding.at, one) else finding.at)
                for finding in merged.findings()
            ]
            if found and all(finding.is_lack for finding in found):
                left_out += found
            elif found:
                problems_ += found
            else:
                choices.append(merged)
                left_out += self._skipped(one, at)
        if len({one.use_spot for one in choices}) > 1:
            message = (
                "some alternatives use Spot and some don't: say use_spot once, outside; on-demand stands in"
                " for Spot by itself with service.replica_policy.dynamic_ondemand_fallback: true"
            )
            problems_.append(Finding((way,), message))
        if not choices and not problems_:
            (first, *others) = left_out
            message = "AWS has none of these: " + "; ".join(finding.message for finding in left_out)
            problems_.append(Finding((way,), message, is_lack=True) if others else first)
        return Settled(tuple(choices), tuple(left_out), tuple(dict.fromkeys(problems_)))

    def _with_defaults(self, one: Candidate) -> Candidate:
        said = {name: getattr(one, name) for name in one.model_fields_set}
        replaced = {other for name in said for other in SAME.get(name, ())}
        outside = {
            name: getattr(self, name)
            for name in self.model_fields_set & set(Candidate.model_fields)
            if name not in replaced
        }
        return Candidate.model_construct(_fields_set=None, **(outside | said))

    @staticmethod
    def _skipped(one: Candidate, at: Location) -> tuple[Finding, ...]:
        return tuple(
            finding._replace(at=(*at, name, *finding.at))
            for name in ("accelerators", "gpus")
            if (wishes := getattr(one, name))
            for finding in wishes.lacks
        )

    def warnings(self) -> Iterator[Finding]:
        """What is left out."""
        for finding in self.settled.left_out:
            yield finding._replace(message=f"is left out, as others remain: {finding.message}")

    def notices(self) -> Iterator[Finding]:
        """What has no effect, or less than in SkyServe."""
        for name, why in _WITHOUT_EFFECT.items():
            if name in self.model_fields_set:
                yield Finding((name,), f"has no effect: {why}")
        for way in ALTERNATIVES:
            if getattr(self, way) is not None and len(self.wanted.regions) > 1:
                regions = ", ".join(self.wanted.regions)
                message = f"a service runs in one region: deploy it to each of {regions} that you want"
                yield Finding((way,), message)

    def _too_many_regions(self) -> Iterator[Finding]:
        if len(self.wanted.regions) > MAX_REGIONS:
            at = next(
                name for name in (*ALTERNATIVES, "image_id", "regions") if getattr(self, name) is not None
            )
            message = f"expected at most {MAX_REGIONS} regions, got {len(self.wanted.regions)}"
            yield Finding((at,), message)

    def _problems_of_the_image(self) -> Iterator[Finding]:
        """Only of the default images do we know the size and the root device."""
        if self.image is not None and self.image_id is not None:
            yield Finding(("image_id",), "says the same as image, which is here, too: remove one")
            return
        if isinstance(self.image_id, Image):
            regions = {region for one in self.settled.choices for region in one.alone.regions}
            if self.image_id.by_region and (without := sorted(regions - set(self.image_id.by_region))):
                yield Finding(("image_id",), f"has no AMI for {', '.join(without)}: add it")
            return
        if self.image is not None:
            return
        least = IMAGES_GIB[self.boot_image.reference]
        if self.disk_size < least:
            yield Finding(
                ("disk_size",),
                f"expected {least} GiB or more, which the default image takes, got {self.disk_size}:"
                " EC2 would refuse every launch",
            )
        if self.root_device != DEFAULT_ROOT_DEVICE:
            yield Finding(
                ("root_device",),
                f"the default image's root device is {DEFAULT_ROOT_DEVICE}:"
                " remove this, or name the image that has another in resources.image",
            )
        if foreign := next((t for t in self.found.types if t.accelerator and not t.is_nvidia), None):
            yield Finding(
                ("accelerators",),
                f"the default image has NVIDIA's driver only, and {foreign.name} has {foreign.accelerator}: "
                "name an image that suits it in resources.image",
            )

    @model_validator(mode="after")
    def _there_is_something_to_launch(self) -> Resources:
        problems = self.settled.problems or (*self._too_many_regions(), *self._problems_of_the_image())
        if problems:
            raise rejected(*problems)
        return self

    @model_validator(mode="wrap")
    @classmethod
    def _all_in_one_round(cls, value: Any, validate: Callable[[Any], Resources]) -> Resources:
        """What is wrong beside a field that can't be read is told with it, unless it may come of it."""
        try:
            return validate(value)
        except ValidationError as error:
            wrong = {detail["loc"][0] for detail in error.errors() if detail["loc"]}
            decisive = {*Candidate.model_fields, *ALTERNATIVES, "image", "image_id"}
            if not isinstance(value, dict) or not wrong or wrong & decisive:
                raise
            try:
                validate({name: content for name, content in value.items() if name not in wrong})
            except ValidationError as more:
                details = [*error.errors(include_url=False), *more.errors(include_url=False)]
                raise ValidationError.from_exception_data(
                    cls.__name__, [_again(one) for one in details]
                ) from error
            raise


def _again(detail: Any) -> InitErrorDetails:
    kind = rejected(*detail["ctx"][FINDINGS]) if detail["type"] == FINDINGS else detail["type"]
    return InitErrorDetails(type=kind, loc=detail["loc"], input=detail["input"], ctx=detail.get("ctx", {}))


def _union(lists: list[tuple[str, ...]]) -> tuple[str, ...]:
    """All of them, if each alternative names some."""
    return tuple(dict.fromkeys(name for names in lists for name in names)) if all(lists) else ()


def _is_said(at: Location, one: Candidate) -> bool:
    return not at or at[0] in one.model_fields_set


def _image_id(value: Any) -> Image | str:
    """An AMI, one for each region, or the name of a container's image.

    Raises:
        PydanticCustomError: it is none of these.
    """
    if isinstance(value, dict) and value:
        findings = []
        for region, image in value.items():
            if not re.fullmatch(REGION, str(region)):
                findings.append(
                    Finding((region,), f"expected a region such as us-east-1, got {shown(region)}")
                )
            elif not isinstance(image, str) or not re.fullmatch(AMI, image):
                findings.append(
                    Finding((region,), f"expected an AMI (ami-0123456789abcdef0), got {shown(image)}")
                )
        if findings:
            raise rejected(*findings)
        return Image("", by_region=value)
    if isinstance(value, str):
        kind = value.partition(":")[0]
        if kind == "docker":
            return parse_container(value)
        if re.fullmatch(AMI, value):
            return Image(value)
        if kind == "skypilot":
            raise rejected(Finding((), f"{value!r} is SkyPilot's own image: remove it, or name one of yours"))
    expected = "docker:IMAGE, an AMI (ami-0123456789abcdef0), or one for each region"
    raise rejected(Finding((), f"expected {expected}, got {shown(value)}"))


_TAG = r"[\w .:/=+@-]"


def _labels(value: Any) -> Any:
    """What EC2 takes for tags."""
    if not isinstance(value, dict):
        return value
    findings = []
    for name, content in value.items():
        if not re.fullmatch(rf"{_TAG}{{1,128}}", name) or name.lower().startswith(("aws:", "spotrelay:")):
            message = (
                "expected up to 128 letters, digits, spaces, . : / = + @ _ -, not aws: or spotrelay: first"
            )
            findings.append(Finding((name,), message))
        elif name == "Name":
            findings.append(Finding((name,), "is set by SpotRelay: use another name"))
        elif not isinstance(content, str) or not re.fullmatch(rf"{_TAG}{{0,256}}", content):
            expected = "text of letters, digits, spaces and . : / = + @ _ -, at most 256"
            findings.append(Finding((name,), f"expected {expected}, got {shown(content)}"))
    if len(value) > MAX_LABELS:
        findings.append(Finding((), f"expected at most {MAX_LABELS} labels, got {len(value)}"))
    if findings:
        raise rejected(*findings)
    return value


def port_findings(values: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with the ports of a whole file: there are none, or several and none that serves."""
    resources, service = values.get("resources"), values.get("service")
    if not isinstance(resources, dict) or not isinstance(service, dict):
        return
    serving = service.get("ports")
    try:
        opened = None if resources.get("ports") is None else parse_ports(resources["ports"])
    except PydanticCustomError:
        return  # the schema says so
    if opened is None and serving is None:
        yield Finding(
            ("resources", "ports"), "missing: expected the port that `run` listens on, such as 8080"
        )
    elif opened and serving is None and opened.only is None:
        message = "several ports, and service.ports doesn't say which one serves: add it, or leave one here"
        yield Finding(("resources", "ports"), message)
    elif opened and isinstance(serving, int) and serving not in opened:
        yield Finding(("service", "ports"), f"{serving} isn't one of resources.ports: change one of the two")
