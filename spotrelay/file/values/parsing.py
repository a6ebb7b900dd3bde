"""Values in `resources` that are written in several ways: accelerators, `8+`, `16GB`, `aws/us-east-1`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic_core import PydanticCustomError

from spotrelay.file import catalog
from spotrelay.file.catalog import amounts
from spotrelay.file.catalog.amounts import AmountError
from spotrelay.file.source.document import Location
from spotrelay.messages import did_you_mean, shown
from spotrelay.plane.core.accelerators import comparable
from spotrelay.plane.core.requirements import Accelerators, Amount

FINDINGS = "findings"
"""Type of the pydantic errors that carry `Finding`s."""


class Finding(NamedTuple):
    """Something wrong, at a place relative to the value that was validated."""

    at: Location
    message: str
    is_lack: bool = False
    """The value means something, which AWS lacks. Beside an alternative that AWS has it is no error."""


def rejected(*findings: Finding) -> PydanticCustomError:
    """The error by which a validator of ours reports several findings at once."""
    return PydanticCustomError(FINDINGS, "see findings", {FINDINGS: findings})


def findings_of(error: PydanticCustomError) -> tuple[Finding, ...]:
    """What `rejected` was given."""
    found: tuple[Finding, ...] = (error.context or {})[FINDINGS]
    return found


def parse_cpus(value: Any) -> Amount:
    """An amount of vCPUs, such as `8+`, from a service file.

    Raises:
        PydanticCustomError: it is no such amount.
    """
    return _parsed(amounts.cpus, value)


def parse_memory(value: Any) -> Amount:
    """An amount of memory, such as `32+`, from a service file.

    Raises:
        PydanticCustomError: it is no such amount.
    """
    return _parsed(amounts.memory, value)


def _parsed(parse: Callable[[Any], Amount], value: Any) -> Amount:
    try:
        return parse(value)
    except AmountError as error:
        raise rejected(Finding((), str(error), error.is_lack)) from None


def parse_size(value: Any) -> Any:
    """Whole GiB, see `amounts.size`; else the value as it is."""
    found = amounts.size(value)
    return value if found is None else found


def parse_seconds(value: Any) -> Any:
    """A whole number of seconds, or text such as `100s`, `2m` or `1m30s`; anything else stays as it is."""
    written = r"(?=.)(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?"
    match = re.fullmatch(written, value) if isinstance(value, str) else None
    return int(match[1] or 0) * 60 + int(match[2] or 0) if match else value


def parse_share(least: int, most: int, expected: str) -> Callable[[Any], float]:
    """A validator that reads `70%` as 0.7. It takes no bare number, which might be meant as dollars."""

    def parse(value: Any) -> float:
        written = re.fullmatch(r"([1-9][0-9]{0,2}) ?%", value) if isinstance(value, str) else None
        if written is None or not least <= int(written[1]) <= most:
            raise rejected(Finding((), f"expected {expected}, got {shown(value)}"))
        return int(written[1]) / 100

    return parse


def parse_type(value: Any) -> str:
    """The name of an instance type that the catalog has.

    Raises:
        PydanticCustomError: it isn't that.
    """
    if not isinstance(value, str):
        raise rejected(Finding((), f"expected an instance type such as g5.2xlarge, got {shown(value)}"))
    if catalog.find_type(value) is None:
        hint = did_you_mean(value, [type_.name for type_ in catalog.all_types()])
        raise rejected(Finding((), f"{shown(value)} is no known instance type{hint}", is_lack=not hint))
    return value


def parse_types(value: Any) -> Any:
    """A validator of lists of instance types, each once. What is no list it leaves to the schema."""
    if not isinstance(value, list):
        return value
    findings: list[Finding] = []
    for index, name in enumerate(value):
        try:
            parse_type(name)
        except PydanticCustomError as error:
            findings += (finding._replace(at=(index,)) for finding in findings_of(error))
            continue
        if name in value[:index]:
            findings.append(Finding((index,), f"{name} stands in the list twice: remove one"))
    if findings:
        raise rejected(*findings)
    return value


REGION = r"[a-z]{2}(-[a-z]+)+-\d"
ZONE = REGION + "[a-z]"
TYPE_OR_FAMILY = r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)?"


def parse_names(pattern: str, expected: str) -> Callable[[Any], Any]:
    """A validator of lists of names of this form, each once. What is no list it leaves to the schema."""

    def parse(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        findings = []
        for index, name in enumerate(value):
            if not isinstance(name, str) or not re.fullmatch(pattern, name):
                findings.append(Finding((index,), f"expected {expected}, got {shown(name)}"))
            elif name in value[:index]:
                findings.append(Finding((index,), f"{name} stands in the list twice: remove one"))
        if findings:
            raise rejected(*findings)
        return value

    return parse


@dataclass(frozen=True, slots=True)
class Wishes:
    """Accelerators, any of which will do."""

    accelerators: tuple[Accelerators, ...]
    ordered: bool = False
    """Whether the first is preferred."""
    lacks: tuple[Finding, ...] = ()
    """Those that AWS hasn't, left out of the above."""


def parse_accelerators(value: Any) -> Wishes:
    """`A10G` or `A10G:1`; any of `{A10G: 1, L4: 1}` or `{A10G, L4:1}`; `[A10G, L4:1]`, the first preferred.

    Raises:
        PydanticCustomError: another form, a name that looks like a slip, or nothing that AWS has.
    """
    match value:
        case str():
            written: list[tuple[Location, Any, Any]] = [((), value, None)]
        case list() if value:
            written = [((index,), item, None) for index, item in enumerate(value)]
        case dict() if value:
            written = [((name,), name, count) for name, count in value.items()]
        case _:
            message = f"expected accelerators such as A10G:1, or [A10G:1, L4:1], got {shown(value)}"
            raise rejected(Finding((), message))
    parsed = [_one(at, name, count) for at, name, count in written]
    findings = [item for item in parsed if isinstance(item, Finding)]
    found = tuple(dict.fromkeys(item for item in parsed if isinstance(item, Accelerators)))
    if any(not finding.is_lack for finding in findings):
        raise rejected(*findings)
    if not found:
        # One line for a file that can't run on AWS.
        (at, message, _), *others = findings
        if others:
            at, message = (), f"AWS has none of these: {'; '.join(one.message for one in findings)}"
        if any(": there are " not in one.message for one in findings):
            message += f". There are {', '.join(catalog.accelerator_names())}"
        raise rejected(Finding(at, message, is_lack=True))
    return Wishes(found, isinstance(value, list) and len(found) > 1, tuple(findings))


_ELSEWHERE = re.compile(
    r"tpu.*|rtx.*|gtx.*|titan.*|quadro.*|gaudi.*|mi[0-9]+.*|g[bh][0-9]+|.*(sxm|pcie|mega|nvl)[0-9a-z]*|"
    r"a(2|10|16|30|40|800|4000|4500|5000|6000)|b100|h20|h800|k80|l2|l20|l40|m40|m60|p4|p40|p100"
)
"""What other clouds have, in comparable form. The names are near to those of AWS, and no slips."""


def _one(at: Location, name: Any, count: Any) -> Accelerators | Finding:
    if isinstance(name, str) and count is None:
        name, colon, number = name.partition(":")
        whole = re.fullmatch(r"([0-9]{1,4})(\.0+)?", number)
        count = (int(whole[1]) if whole else number) if colon else 1
    if not isinstance(name, str):
        return Finding(at, f"expected an accelerator such as A10G:1, got {shown(name)}")
    if isinstance(count, float) and count.is_integer():
        count = int(count)  # SkyServe's own output says 1.0
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        return Finding(at, f"expected a whole number of accelerators, as in {name}:1, got {shown(count)}")
    known = catalog.find_accelerator(name)
    if known is None:
        names = list(catalog.accelerator_names())
        is_elsewhere = _ELSEWHERE.fullmatch(comparable(name)) is not None
        hint = "" if is_elsewhere else did_you_mean(name, names)
        if hint:
            return Finding(at, f"no instance type has {shown(name)}{hint}: there are {', '.join(names)}")
        return Finding(at, f"no instance type has {shown(name)}", is_lack=True)
    counts = sorted({t.accelerator_count for t in catalog.all_types() if t.accelerator == known} - {0})
    if count not in counts:
        offered = ", ".join(f"{known}:{offered}" for offered in counts)
        message = f"no instance type has exactly {count} {known}: there are {offered}"
        return Finding(at, message, is_lack=True)
    return Accelerators(known, count)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an instance may be: all that isn't named, anywhere."""

    region: str | None = None
    zone: str | None = None


def parse_infra(value: Any) -> Place:
    """`aws`, `aws/us-east-1` or `aws/us-east-1/us-east-1a`; `*` stands for any, at each place.

    Raises:
        PydanticCustomError: it isn't that, or another cloud, which is a lack.
    """
    if not isinstance(value, str) or not value:
        raise rejected(Finding((), f"expected aws, or aws/us-east-1, got {shown(value)}"))
    cloud, *places = value.strip().strip("/").split("/")
    parse_cloud(cloud)
    expected = ((REGION, "a region such as us-east-1"), (ZONE, "a zone such as us-east-1a"))
    if len(places) > len(expected):
        raise rejected(Finding((), f"expected aws/REGION/ZONE at most, got {shown(value)}"))
    found: list[str | None] = []
    for place, (pattern, what) in zip(places, expected, strict=False):
        if place != "*" and not re.fullmatch(pattern, place):
            raise rejected(Finding((), f"expected {what}, or *, in aws/REGION/ZONE, got {shown(place)}"))
        found.append(None if place == "*" else place)
    return Place(*found)


def parse_cloud(value: Any) -> str:
    """`aws`, or `*` for any.

    Raises:
        PydanticCustomError: it is another, which is a lack.
    """
    if not isinstance(value, str) or not value:
        raise rejected(Finding((), f"expected aws, got {shown(value)}"))
    if value.lower() not in ("aws", "*"):
        message = f"SpotRelay runs on AWS only, and this asks for {shown(value)}: say aws, or leave it out"
        raise rejected(Finding((), message, is_lack=True))
    return "aws"


def parse_place(pattern: str, expected: str) -> Callable[[Any], str | None]:
    """A validator of one name of this form; `*` is any."""

    def parse(value: Any) -> str | None:
        if isinstance(value, str) and (value == "*" or re.fullmatch(pattern, value)):
            return None if value == "*" else value
        raise rejected(Finding((), f"expected {expected}, got {shown(value)}"))

    return parse


MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Ports:
    """Ports that a replica opens, as ranges from and to."""

    ranges: tuple[tuple[int, int], ...]

    @property
    def only(self) -> int | None:
        """The one there is; None where there are several."""
        lowest, highest = self.ranges[0][0], self.ranges[-1][1]
        return lowest if len(self.ranges) == 1 and lowest == highest else None

    def __contains__(self, port: int) -> bool:
        return any(low <= port <= high for low, high in self.ranges)


def parse_ports(value: Any) -> Ports:
    """`8080`, `"8080"`, `8080-8090`, or a list of those.

    Raises:
        PydanticCustomError: it isn't that.
    """
    items = list(enumerate(value)) if isinstance(value, list) and value else [(None, value)]
    ranges: set[tuple[int, int]] = set()
    findings = []
    for index, item in items:
        text = str(item) if isinstance(item, int | str) and not isinstance(item, bool) else ""
        written = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", text)
        low, high = (int(written[1]), int(written[2] or written[1])) if written else (0, 0)
        if not 1 <= low <= high <= MAX_PORT:
            message = f"expected a port from 1 to {MAX_PORT}, such as 8080, got {shown(item)}"
            findings.append(Finding(() if index is None else (index,), message))
        ranges.add((low, high))
    if findings:
        raise rejected(*findings)
    return Ports(tuple(sorted(ranges)))
