"""What is in the table: every key, and how a value of `model` is written as an item and read back.

| partition         | sort                | what                                                    |
|-------------------|---------------------|---------------------------------------------------------|
| `SERVICE#name`    | `META`              | highest ID, how many serve, back-off, launches of the   |
|                   |                     | minute, requested replicas                              |
| `SERVICE#name`    | `DOCUMENT`          | the last runtime document that could be read, and what  |
|                   |                     | speaks for it that the service was removed              |
| `SERVICE#name`    | `TICK`              | lease, announced tick: not in META, which commits write,|
|                   |                     | so that neither makes the other conflict                |
| `SERVICE#name`    | `REPLICA#000000042` | a replica that hasn't ended                             |
| `SERVICE#name`    | `LAUNCH#id`         | an open launch intent                                   |
| `HISTORY#name`    | `REPLICA#000000042` | a replica that ended; expires                           |
| `INSTANCE#i-…`    | `META`              | whose instance it is; expires once its replica ended    |
| `COOLDOWNS#region`| `META`              | what to leave alone                                     |
| `SURVEY#name`     | `META`              | what EC2 offers to a service, as last asked             |
| `SERVICES`        | name                | a service that has, or had, replicas                    |

What an earlier version would misread has a higher `schema` than it knows: then it touches nothing of that
service, and takes cooldowns and surveys for absent. Other fields of a later version's replicas it keeps
(docs/upgrading.md).

Times are ISO 8601 in UTC with microseconds: as text they sort as times do, and people can read them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from spotrelay.aws.table import Key, Values
from spotrelay.core.desired import ScaleRequest, Source
from spotrelay.core.names import TABLE_TTL, Partition
from spotrelay.core.pools import CapacityPool, Cause, Cooldown, Offering, PurchaseOption, Scope, Survey
from spotrelay.core.ports import NewerRows
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.requirements import Requirements
from spotrelay.core.rows import Backoff, LaunchIntent, LaunchWindow, Removal
from spotrelay.core.spec import ServiceSpec, SpecError
from spotrelay.core.timing import seconds

HISTORY_KEPT_S = 30 * 86_400.0
"""How long ended replicas are kept: as long as the functions' logs, which tell the rest of the story."""

FALLBACK = "is_stand_in"
"""What `Replica.is_fallback` is called in rows since the first version."""

SCHEMA = 1
"""Of everything but the runtime document, which has its own. Items from before there was one are of 1."""

SERVICES = Partition.SERVICES.value
META = "META"
DOCUMENT = "DOCUMENT"
REPLICA, LAUNCH = "REPLICA#", "LAUNCH#"


def service_partition(service: str) -> str:
    """Partition of all that is current about a service."""
    return Partition.SERVICE + service


def history_partition(service: str) -> str:
    """Partition of a service's ended replicas."""
    return Partition.HISTORY + service


def meta_key(service: str) -> Key:
    """Key of a service's highest ID and back-off."""
    return Key(service_partition(service), META)


def document_key(service: str) -> Key:
    """Key of a service's last document, and of its removal."""
    return Key(service_partition(service), DOCUMENT)


def tick_key(service: str) -> Key:
    """Key of a service's lease and announced tick."""
    return Key(service_partition(service), "TICK")


def replica_key(service: str, id_: int) -> Key:
    """Key of a replica that hasn't ended."""
    return Key(service_partition(service), _replica_sort(id_))


def history_key(service: str, id_: int) -> Key:
    """Key of a replica that ended."""
    return Key(history_partition(service), _replica_sort(id_))


def intent_key(service: str, intent_id: str) -> Key:
    """Key of an open launch intent."""
    return Key(service_partition(service), f"{LAUNCH}{intent_id}")


def instance_key(instance_id: str) -> Key:
    """Key under which an instance's replica is looked up."""
    return Key(Partition.INSTANCE + instance_id, META)


def registry_key(service: str) -> Key:
    """Key of a service in the list of services."""
    return Key(SERVICES, service)


def cooldowns_key(region: str) -> Key:
    """Key of what to leave alone in a region: one item, which can be read along with others."""
    return Key(Partition.COOLDOWNS + region, META)


def survey_key(service: str) -> Key:
    """Key of a service's last survey."""
    return Key(Partition.SURVEY + service, META)


def replica_item(replica: Replica) -> dict[str, Any]:
    """A replica's values: the row as JSON, its revision, and with one that ended the time to live of history.

    Nothing looks inside a row but the one who reads it whole, and attributes of its own for each of its
    fields would cost a batch of losses a fifth of its time, in serialising them here and reading them there.
    """
    row: dict[str, Any] = {
        **replica.unknown,
        "schema": SCHEMA,
        "service": replica.service,
        "id": replica.id,
        "version": replica.version,
        "state": replica.state.value,
        "reason": replica.reason,
        "entered": {state.value: to_text(at) for state, at in replica.entered.items()},
        "offering": _offering_list(replica.offering),
        "instance_id": replica.instance_id,
        "launch_id": replica.launch_id,
        "attempts": replica.attempts,
        "retry_at": _optional_text(replica.retry_at),
        "purchase_option": replica.purchase_option.value,
        FALLBACK: replica.is_fallback,
        "launch": replica.launch,
        "replaces": replica.replaces,
        "replaced_by": replica.replaced_by,
        "warned_at": _optional_text(replica.warned_at),
        "unhealthy_since": _optional_text(replica.unhealthy_since),
        "rebalance_at": _optional_text(replica.rebalance_at),
    }
    said = {name: value for name, value in row.items() if value is not None}
    item: dict[str, Any] = {"row": _json(said), "revision": replica.revision}
    if replica.state.is_ended:
        item[TABLE_TTL] = _ttl_of_history(replica)
    return item


def replica_of(item: Values) -> Replica:
    """The replica that `replica_item` wrote, with fields of later versions as they are.

    Raises:
        NewerRows: it has a later schema.
    """
    row = json.loads(item["row"])
    check_schema(row, "a replica")
    return Replica(
        service=row["service"],
        id=row["id"],
        version=row["version"],
        state=ReplicaState(row["state"]),
        reason=row["reason"],
        entered={ReplicaState(state): to_time(at) for state, at in row["entered"].items()},
        offering=_offering_of(row.get("offering")),
        instance_id=row.get("instance_id"),
        launch_id=row.get("launch_id"),
        attempts=row["attempts"],
        retry_at=_optional_time(row.get("retry_at")),
        purchase_option=PurchaseOption(row["purchase_option"]),
        is_fallback=row[FALLBACK],
        launch=row.get("launch"),
        replaces=row.get("replaces"),
        replaced_by=row.get("replaced_by"),
        warned_at=_optional_time(row.get("warned_at")),
        unhealthy_since=_optional_time(row.get("unhealthy_since")),
        rebalance_at=_optional_time(row.get("rebalance_at")),
        revision=int(item["revision"]),
        unknown={name: row[name] for name in row.keys() - _KNOWN},
    )


_KNOWN = {f.name for f in fields(Replica)} - {"revision", "unknown", "is_fallback"} | {"schema", FALLBACK}
"""Of a row's fields."""


def check_schema(values: Values, what: str) -> None:
    """Make sure that this version knows how to read it.

    Raises:
        NewerRows: it doesn't.
    """
    if not is_readable(values):
        raise NewerRows(f"{what} in the table has schema {values['schema']}, and this version reads {SCHEMA}")


def is_readable(values: Values) -> bool:
    """Whether this version knows how to read it."""
    return int(values.get("schema", 1)) <= SCHEMA


def replicas_among(found: Iterable[tuple[Key, Values]]) -> list[Replica]:
    """The replicas among a service's items."""
    return [replica_of(item) for key, item in found if key.sort.startswith(REPLICA)]


def instance_item(replica: Replica) -> dict[str, Any]:
    """What an instance's entry says about its replica; it expires together with the replica's history."""
    item: dict[str, Any] = {"service": replica.service, "replica": replica.id}
    if replica.state.is_ended:
        item[TABLE_TTL] = _ttl_of_history(replica)
    return item


def intent_item(intent: LaunchIntent) -> dict[str, Any]:
    """A launch intent's values."""
    return {
        "schema": SCHEMA,
        "id": intent.id,
        "service": intent.service,
        "replica_ids": list(intent.replica_ids),
        "created_at": to_text(intent.created_at),
        "highest_id": intent.highest_id,
    }


def intent_of(item: Values) -> LaunchIntent:
    """The intent that `intent_item` wrote.

    Raises:
        NewerRows: it has a later schema.
    """
    check_schema(item, "a launch intent")
    ids = tuple(int(id_) for id_ in item["replica_ids"])
    highest_id = int(item.get("highest_id", 0))
    return LaunchIntent(item["id"], item["service"], ids, to_time(item["created_at"]), highest_id)


def cooldowns_item(cooldowns: Iterable[Cooldown], revision: int) -> dict[str, Any]:
    """A region's cooldowns as JSON. All there can be, every GPU type in every zone, are some 80 kB."""
    written = _json([_cooldown_list(cooldown) for cooldown in cooldowns])
    return {"schema": SCHEMA, "revision": revision, "cooldowns": written}


def cooldowns_of(region: str, item: Values) -> dict[Scope, Cooldown]:
    """The cooldowns that `cooldowns_item` wrote, in an item which may be empty or of a later version."""
    if not is_readable(item):
        return {}
    cooldowns = (_cooldown_of(region, *written) for written in json.loads(item.get("cooldowns", "[]")))
    return {cooldown.scope: cooldown for cooldown in cooldowns}


def survey_item(survey: Survey) -> dict[str, Any]:
    """A survey's values, as JSON: nothing looks inside, and as attributes it would be twice as large."""
    return {
        "schema": SCHEMA,
        "service": survey.service,
        "at": to_text(survey.at),
        "found": _json(
            {
                "asked": survey.asked.to_dict(),
                "pools": [_pool_list(pool) for pool in survey.pools],
                "on_demand_prices": dict(survey.on_demand_prices),
                "spot_prices": [[*_pool_list(pool), price] for pool, price in survey.spot_prices.items()],
                "scores": dict(survey.scores),
            }
        ),
    }


def survey_of(item: Values) -> Survey:
    """The survey that `survey_item` wrote."""
    found = json.loads(item["found"])
    return Survey(
        item["service"],
        Requirements.from_dict(found["asked"]),
        to_time(item["at"]),
        tuple(CapacityPool(*pool) for pool in found["pools"]),
        found["on_demand_prices"],
        {CapacityPool(*pool): price for *pool, price in found["spot_prices"]},
        found["scores"],
    )


def backoff_item(backoff: Backoff) -> dict[str, Any]:
    """A back-off as attributes of a service's META item; None removes one."""
    return {
        "failures": backoff.failures,
        "backoff_until": _optional_text(backoff.until),
        "failing_version": backoff.version,
        "fallback_until": _optional_text(backoff.fallback_until),
    }


def backoff_of(meta: Values) -> Backoff:
    """The back-off in a service's META item, which may be empty."""
    return Backoff(
        int(meta.get("failures", 0)),
        _optional_time(meta.get("backoff_until")),
        int(meta.get("failing_version", 0)),
        _optional_time(meta.get("fallback_until")),
    )


def window_item(window: LaunchWindow) -> dict[str, Any]:
    """A launch window as attributes of a service's META item."""
    return {"launches_since": _optional_text(window.since), "launches": window.launched}


def window_of(meta: Values) -> LaunchWindow:
    """The launch window in a service's META item, which may be empty."""
    return LaunchWindow(_optional_time(meta.get("launches_since")), int(meta.get("launches", 0)))


def requests_item(requests: Mapping[Source, ScaleRequest | None]) -> dict[str, Any]:
    """Requests as attributes of a service's META item, one for each source; None removes one."""
    return {
        _request_name(source): request and {"replicas": request.replicas, "until": to_text(request.until)}
        for source, request in requests.items()
    }


def requests_of(meta: Values) -> dict[Source, ScaleRequest]:
    """The requests in a service's META item, which may be empty.

    One that can't be read is left out, and the service file's number counts: it is no reason to stop.
    """
    found = {source: _request_of(meta.get(_request_name(source))) for source in Source}
    return {source: request for source, request in found.items() if request is not None}


def highest_id_of(meta: Values) -> int:
    """The highest ID in a service's META item, which may be empty."""
    return int(meta.get("highest_id", 0))


def serving_of(meta: Values) -> int:
    """How many replicas stay, by a service's META item, which may be empty."""
    return int(meta.get("serving", 0))


def document_item(spec: ServiceSpec) -> dict[str, Any]:
    """A runtime document as an attribute of a service's DOCUMENT item."""
    return {"document": _json(spec.to_dict())}


def document_of(item: Values) -> ServiceSpec | None:
    """The runtime document in a service's DOCUMENT item; None if it has none, or one too old to be read."""
    try:
        return ServiceSpec.from_json(item["document"]) if "document" in item else None
    except SpecError:
        return None


def removal_item(removal: Removal) -> dict[str, Any]:
    """A removal as attributes of a service's DOCUMENT item."""
    return {"removed_at": _optional_text(removal.told_at), "absent": removal.absent}


def removal_of(item: Values) -> Removal:
    """The removal in a service's DOCUMENT item, which may be empty."""
    return Removal(_optional_time(item.get("removed_at")), int(item.get("absent", 0)))


def to_text(at: datetime) -> str:
    """A time as the table has it."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def to_time(text: str) -> datetime:
    """The time that `to_text` wrote."""
    return datetime.fromisoformat(text)


def _replica_sort(id_: int) -> str:
    # Nine digits keep the order of history for a billion replicas.
    return f"{REPLICA}{id_:09d}"


def _ttl_of_history(replica: Replica) -> int:
    return math.ceil((replica.since + seconds(HISTORY_KEPT_S)).timestamp())


def _pool_list(pool: CapacityPool) -> list[str]:
    return [pool.region, pool.zone, pool.instance_type]


def _offering_list(offering: Offering | None) -> list[str] | None:
    return None if offering is None else [*_pool_list(offering.pool), offering.purchase_option.value]


def _offering_of(parts: Sequence[str] | None) -> Offering | None:
    if parts is None:
        return None
    *pool, option = parts
    return Offering(CapacityPool(*pool), PurchaseOption(option))


def _cooldown_list(cooldown: Cooldown) -> list[object]:
    scope = cooldown.scope
    return [
        [scope.zone, scope.instance_type, scope.quota, scope.purchase_option and scope.purchase_option.value],
        cooldown.cause.value,
        to_text(cooldown.since),
        to_text(cooldown.until),
        cooldown.reason,
        cooldown.strikes,
    ]


def _cooldown_of(
    region: str, scope: Sequence[str], cause: str, since: str, until: str, reason: str, strikes: int
) -> Cooldown:
    zone, instance_type, quota, option = scope
    found = Scope(region, zone, instance_type, quota, PurchaseOption(option) if option else None)
    return Cooldown(found, Cause(cause), to_time(since), to_time(until), reason, strikes)


def _request_name(source: Source) -> str:
    return f"requested by {source.value}"


def _request_of(stored: Any) -> ScaleRequest | None:
    try:
        request = ScaleRequest(int(stored["replicas"]), to_time(stored["until"]))
    # ArithmeticError: a number that is none, or without an end.
    except (TypeError, KeyError, ValueError, ArithmeticError):
        return None
    return request if request.replicas >= 0 and request.until.tzinfo is not None else None


_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def _optional_text(at: datetime | None) -> str | None:
    return None if at is None else to_text(at)


def _optional_time(text: str | None) -> datetime | None:
    return None if text is None else to_time(text)
