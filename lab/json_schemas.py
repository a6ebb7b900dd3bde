"""What each command prints with `--json`, as types; and docs/json.md, which is made of them.

    .venv/bin/python -m lab.json_schemas     # writes docs/json.md

A test holds each command's output against its schema, and the page against this module.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import (
    Any,
    Literal,
    NotRequired,  # pydantic asks for these before 3.12
)

from pydantic import TypeAdapter, with_config
from typing_extensions import TypedDict, is_typeddict

from spotrelay.file.compile.check import Description
from spotrelay.file.source.errors import Problem
from spotrelay.operator.advice.own_history import PoolHistory, TypeHistory
from spotrelay.operator.cli.telling import SCHEMA
from spotrelay.plane.view.status import Judgement

PAGE = Path(__file__).resolve().parent.parent / "docs" / "json.md"

Time = str
"""ISO 8601, in UTC."""

USD = float


class Document(TypedDict):
    schema: Literal[1]
    """The version of what `--json` prints."""


class ReplicaDocument(TypedDict):
    id: int
    version: int
    state: str
    """What it does: its state, or what a standby or a warned one does in it."""
    pool: str
    """Zone and instance type; empty: it has no instance yet."""
    purchase_option: Literal["spot", "on-demand"]
    region: str
    instance_id: str | None
    port: int | None
    launched_at: Time | None
    age_s: float
    """Since it had its instance, or was requested."""
    usd_per_hour: USD | None
    """null: nobody knows."""
    replaces: int | None
    """The ID of the replica that it replaces."""
    note: str
    """What else must be known of it."""


class ImageDocument(TypedDict):
    id: str
    made_at: Time | None
    """null: it is gone."""


class ServiceDocument(TypedDict):
    service: str
    region: str
    at: Time
    """When it was looked."""
    judgement: Judgement
    why: str
    """What is missing and why, or about to be; empty if nothing is."""
    is_whole: bool
    is_calm: bool
    """Whether it is whole, and stays so as far as anybody knows."""
    ready: int
    """Replicas in rotation."""
    desired: int | None
    """How many there should be; null: nobody knows."""
    missing: int | None
    """How many replicas are missing: `desired` less `ready`, 0 at least."""
    desired_by: str
    """Who says how many there should be."""
    asked: str
    """The same in words; empty where the service file does."""
    version: int | None
    """The deployed one."""
    running: list[int]
    """The versions in rotation."""
    serving_since: Time | None
    on_demand: int
    """In rotation, bought on-demand."""
    usd_per_hour: USD | None
    on_demand_usd_per_hour: USD | None
    share_saved: float | None
    """Of the on-demand price."""
    address: str | None
    replicas: list[ReplicaDocument]
    failed: list[ReplicaDocument]
    """Those of the last hour, three at most."""
    failed_before: int
    """Of the last day, those that aren't among `failed`."""
    lost: int
    """Within the last day."""
    lost_unwarned: int
    slowest_whole_s: float | None
    """Of these, the longest from a loss until the fleet was whole again."""
    cooling: list[str]
    """Pools that are left alone now, each with until when and why."""
    pools: int | None
    """Eligible for Spot; null: nobody has surveyed yet."""
    image: ImageDocument | None
    alarms: list[str] | None
    """Those that ring; null: they couldn't be read."""
    load_unknown: str
    """That the load can't be measured; empty while it can."""
    not_read: list[str]
    """What couldn't be read, and why."""


class StatusDocument(Document):
    services: list[ServiceDocument]


class LossDocument(TypedDict):
    replica: int
    pool: str | None
    purchase_option: Literal["spot", "on-demand"] | None
    is_warned: bool
    is_missed: bool
    """Whether its end was seen, and the warning before it wasn't."""
    reason: str
    replaced_by: int | None
    fallback: int | None
    """The ID of the replica that stood in meanwhile."""
    at: Time
    warned_at: Time | None
    out_at: Time | None
    launched_at: Time | None
    ready_at: Time | None
    taken_at: Time | None
    needless_at: Time | None
    """When as many were there without it, because fewer were wanted."""
    whole_at: Time | None
    out_s: float | None
    """From EC2's warning until it was out of rotation; the next ones count from there, too."""
    launched_s: float | None
    ready_s: float | None
    whole_s: float | None


class HistoryLossDocument(LossDocument):
    errors: int | None
    """Answers of 5xx from then until the fleet was whole; null: nobody knows."""


class FailuresDocument(TypedDict):
    first: Time
    last: Time
    replicas: list[int]
    version: int
    reason: str


class HistoryDocument(Document):
    service: str
    since: Time
    losses: list[HistoryLossDocument]
    failures: list[FailuresDocument]
    """Starts that failed one after the other, for the same reason."""


class SpendingDocument(TypedDict):
    spot_usd: USD
    on_demand_usd: USD
    disk_usd: USD
    listed_usd: USD
    """What the same hours would have cost on-demand."""
    saved_usd: USD
    waived_usd: USD
    """Of Spot that EC2 took back within its first hour: not charged, and not in `spot_usd`."""
    unlisted_usd: USD
    """Of `spot_usd`, what no on-demand price is known for."""
    spot_hours: float
    on_demand_hours: float
    unpriced_hours: float
    """Of instances whose price isn't known."""


class FactDocument(TypedDict):
    about: str
    words: str


class ExplainDocument(Document):
    replica: int
    headline: str
    facts: list[FactDocument]
    entered: dict[str, Time]
    """When it entered each of its states."""
    cost: SpendingDocument | None


Part = Literal[
    "request", "launch", "boot", "files", "set-up", "models", "load", "instance", "registration", "check"
]
"""Of a start, in order; "instance": from boot to load, of which the instance told nothing."""


class StretchDocument(TypedDict):
    parts: list[Part]
    """The one that it is, or several that nothing on record tells apart."""
    whose: str
    """Who can shorten it."""
    begins: Time
    ends: Time | None
    """null: it isn't over."""
    took_s: float | None


class StartDocument(TypedDict):
    replica: int
    version: int
    state: str
    pool: str | None
    purchase_option: Literal["spot", "on-demand"] | None
    is_resume: bool
    """Whether a stopped standby was resumed for it."""
    began: Time
    took_s: float | None
    """Until it was in rotation; null: it isn't yet."""
    stretches: list[StretchDocument]


class UsualDocument(TypedDict):
    parts: list[Part]
    whose: str
    starts: int
    """How many of them it was measured in."""
    median_s: float
    longest_s: float
    advice: str
    """What shortens it."""


class GoalDocument(TypedDict):
    within_s: float
    starts: int
    """Cold starts that are over."""
    kept: int
    """Of them, those that took no longer."""
    median_s: float | None
    fixed_s: float
    """What EC2, the load balancer and SpotRelay usually take of one."""
    is_out_of_reach: bool
    """Whether these take as long as that, or longer."""
    to_shorten: list[str]
    """Parts without which half of the starts would keep it."""


class ColdStartDocument(Document):
    service: str
    at: Time
    starts: list[StartDocument]
    """The last 20, the latest first."""
    usual: list[UsualDocument]
    """Of those that are over and weren't resumes."""
    start_within: GoalDocument | None
    """null: the service file asks for nothing."""


class DayDocument(SpendingDocument):
    date: str


class CostDocument(Document, SpendingDocument):
    service: str
    start: Time
    end: Time
    balancer_usd: USD
    control_plane_usd: USD
    total_usd: USD
    share_saved: float | None
    days: list[DayDocument]
    missing_days: list[str]
    """Dates of which nothing was kept."""
    of: str
    """What the figures are of."""


class CurveDocument(TypedDict):
    zone: str
    instance_type: str
    now: USD
    """Per hour, as are all of these."""
    least: USD
    most: USD
    on_demand: USD | None
    changes: list[tuple[Time, USD]]
    """When the price changed, and to what."""


class PricesDocument(Document):
    service: str
    pools: list[CurveDocument]
    """The cheapest first."""


class ZoneDocument(TypedDict):
    zone: str
    now: int | None
    """1 to 10, as last surveyed."""
    hours: dict[Time, int]
    """By the beginning of each hour."""


class ScoresDocument(Document):
    service: str
    zones: list[ZoneDocument]


class LogsDocument(Document):
    at: Time
    sentence: str
    """What happened, in words."""
    message: str
    """The record's name. What else it has is by its kind, and may change."""
    service: str


class RequestsDocument(TypedDict):
    total: int
    failed: int


class DrillDocument(Document):
    service: str
    verdict: Literal["PASS", "FAIL"]
    problems: list[str]
    out_s: float | None
    """The slowest, as are the next ones."""
    launched_s: float | None
    ready_s: float | None
    whole_s: float | None
    outage_s: float
    """How long nobody was in rotation."""
    requests: RequestsDocument | None
    """null: nobody counted them."""
    losses: list[LossDocument]


class ReadyDocument(TypedDict):
    service: str
    version: int
    ready: int
    desired: int
    after_s: float
    address: str | None
    curl: str | None
    """A command that sends a request."""
    why_not: str | None
    """Why not all are ready; null: they are."""


class PackDocument(Document):
    service: str
    is_packed: bool
    """false: by --if-older-than there was nothing to pack, and the other fields are missing."""
    manifest: NotRequired[str]
    """SHA-256 of the pack's manifest."""
    cache: NotRequired[str | None]
    """The same of an engine cache that was made."""
    accelerator: NotRequired[str | None]
    """For which it is."""
    instance_id: NotRequired[str]
    """That made it, and is gone."""
    instance_type: NotRequired[str]
    after_s: NotRequired[float]
    """From its launch to its end."""
    usd: NotRequired[USD | None]
    """What the instance has cost; null: nobody knows."""


class UpDocument(Document):
    services: list[ReadyDocument]
    after_s: float


class UpdateDocument(Document):
    service: str
    version: int
    """The one that runs."""
    is_deployed: bool
    """false: there was nothing to deploy, and the other fields are missing."""
    before: NotRequired[int]
    ready: NotRequired[int]
    desired: NotRequired[int]
    new: NotRequired[int]
    failed: NotRequired[int]
    to_go: NotRequired[int]
    after_s: NotRequired[float]
    why_not: NotRequired[str | None]


class RequestDocument(Document):
    service: str
    address: str
    method: str
    path: str
    status: int
    first_byte_s: float
    total_s: float
    answer: str
    why_not: str | None
    """Why it isn't a whole answer of 2xx; null: it is."""


class EndDocument(TypedDict):
    name: str
    was: str
    """What there was of it."""
    left: str | None
    """What is left, and why."""


class DownDocument(Document):
    removed: list[EndDocument]
    kept: list[str]
    """What stays on purpose."""


class ValidateDocument(Document):
    services: list[Description]
    warnings: list[str]
    notices: list[str]
    problems: list[Problem]


class NeedDocument(TypedDict):
    gpu_bytes: int
    weights_bytes: int
    cache_bytes: int
    overhead_bytes: int
    host_memory_gib: str
    working: list[str]


class ListedDocument(TypedDict):
    region: str
    source: str
    date: str
    licence: str


class BoundDocument(TypedDict):
    at_most: float
    unit: str
    limit: str


class ChoiceDocument(TypedDict):
    instance_type: str
    accelerators: str
    region: str
    zones: dict[str, list[str]]
    vcpus: int
    memory_gib: float
    computed_in: str | None
    bound: BoundDocument | None
    bought_by_a_usd_at_most: int | None
    spot_usd: USD | None
    on_demand_usd: USD | None
    interrupted: str | None
    savings_percent: int | None
    load_s_at_least: float
    local_disk_gb: float | None


class OutDocument(TypedDict):
    instance_type: str
    cause: str
    reason: str


class MoreDocument(TypedDict):
    accelerators: str
    types: int
    pools: int


class RecommendDocument(Document):
    need: NeedDocument
    precision: str
    phase: str
    regions: list[str]
    order: str
    list_prices: ListedDocument | None
    """Where on-demand's prices are from, if nobody was asked."""
    recommended: list[ChoiceDocument]
    why: list[str]
    not_recommended: list[OutDocument]
    pools: int
    more_accelerators: list[MoreDocument]
    more_regions: dict[str, int]
    placement_scores: dict[str, int]
    notes: list[str]
    what_would_fit: list[str]
    """Smaller questions that have an answer; empty if something fits."""


class OwnHistoryDocument(Document):
    service: str
    days: int
    pools: list[PoolHistory]
    types: list[TypeHistory]
    add: list[str]
    notes: list[str]


class SideDocument(TypedDict):
    instance_type: str
    instances: int
    accelerator: str
    gpus: int
    gpu_bytes: int
    tflops_dense: float | None
    bandwidth_gb_s: float | None
    between_gpus: str
    usd_per_hour: USD | None
    usd: USD | None


class CompareDocument(Document):
    hours: float
    precision: str
    on_demand: SideDocument
    spot: SideDocument
    interrupted: str | None
    interruptions_at_least: float | None
    interruptions_at_most: float | None
    hours_lost_at_most: float | None
    notes: list[str]


class CatalogDocument(Document):
    instance_types_from: dict[str, Any]
    accelerators: list[dict[str, Any]]
    """Each with what is known of it, the source of each value, and its instance types."""


DOCUMENTS: dict[str, Any] = {
    "status": StatusDocument,
    "history": HistoryDocument,
    "explain": ExplainDocument,
    "cold-start": ColdStartDocument,
    "cost": CostDocument,
    "prices": PricesDocument,
    "scores": ScoresDocument,
    "logs": LogsDocument,
    "request": RequestDocument,
    "drill": DrillDocument,
    "up": UpDocument,
    "update": UpdateDocument,
    "down": DownDocument,
    "pack": PackDocument,
    "validate": ValidateDocument,
    "recommend": RecommendDocument,
    "recommend --service": OwnHistoryDocument,
    "compare": CompareDocument,
    "catalog": CatalogDocument,
}
"""By command."""

for kind in [found for found in list(vars().values()) if is_typeddict(found)]:
    with_config(use_attribute_docstrings=True)(kind)

HEAD = f"""\
# JSON

With `--json` a command prints one object to standard output, and everything else to standard error. The
exit code says the same as without. `schema` is the version of all of these documents, {SCHEMA}: it rises if a
field goes or means something else. A new field is no change, so ignore what you don't know. Times are
ISO 8601 in UTC, names that end in `_s` are seconds, in `usd` US dollars.

`spotrelay logs NAME --json` prints JSON lines instead: one object a line for each record, so that `--follow`
can go on.

This page is made by `python -m lab.json_schemas`. Below is the JSON Schema of each command's document.
"""


def schema(command: str, *, is_strict: bool = False) -> dict[str, Any]:
    """The JSON Schema of a command's document; a strict one allows no field that it doesn't name."""
    made = _plain(TypeAdapter(DOCUMENTS[command]).json_schema(mode="serialization"), is_strict=is_strict)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def _plain(value: Any, *, is_strict: bool) -> Any:
    """Without titles, which say the names once more."""
    if isinstance(value, list):
        return [_plain(one, is_strict=is_strict) for one in value]
    if not isinstance(value, dict):
        return value
    has_fields = isinstance(value.get("properties"), dict)
    found = {
        name: _plain(one, is_strict=is_strict)
        for name, one in value.items()
        if not (name == "title" and isinstance(one, str))
    }
    if has_fields and is_strict:
        found["additionalProperties"] = False
    return found


def page() -> str:
    """The page of the docs."""
    parts = [HEAD]
    for command in DOCUMENTS:
        text = json.dumps(schema(command), indent=1, ensure_ascii=False)
        parts.append(f"\n## spotrelay {command}\n\n```json\n{text}\n```\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
