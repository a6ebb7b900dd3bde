"""What is in the table: every key, and how what is known of a service is written as items and read back.

| partition         | sort                | what                                                    |
|-------------------|---------------------|---------------------------------------------------------|
| `SERVICE#name`    | `META`              | highest ID, how many serve, back-off, launches of the   |
|                   |                     | minute, requested replicas                              |
| `SERVICE#name`    | `DOCUMENT`          | the last runtime document that could be read, and what  |
|                   |                     | speaks for it that the service was removed              |
| `SERVICE#name`    | `TICK`              | lease, announced tick: not in META, which commits write,|
|                   |                     | so that neither makes the other conflict                |
| `SERVICE#name`    | `TOLD`              | what was told of the service so far; only ticks write   |
|                   |                     | it: not in META for the same reason                     |
| `SERVICE#name`    | `HELD`              | what the last tick held back, and what became of the    |
|                   |                     | last override; written when that changes                |
| `SERVICE#name`    | `INCIDENTS`         | what its alarms were told; written when that changes    |
| `SERVICE#name`    | `ONGOING`           | the requests that replicas had when last asked          |
| `SERVICE#name`    | `STARTS`            | what instances told of starts that rows don't say yet   |
| `SERVICE#name`    | `REPLICA#000000042` | a replica that hasn't ended                             |
| `SERVICE#name`    | `LAUNCH#id`         | an open launch intent                                   |
| `HISTORY#name`    | `REPLICA#000000042` | a replica that ended; expires                           |
| `INSTANCE#i-…`    | `META`              | whose instance it is; expires once its replica ended    |
| `COOLDOWNS#region`| `META`              | what to leave alone there                               |
| `SURVEY#name`     | `META`              | what EC2 offers to a service, as last asked; the same   |
| `SERVICES`        | name                | a service that has, or had, replicas                    |

What an earlier version would misread has a higher `schema` than it knows: then it touches nothing of that
service, and takes cooldowns and surveys for absent. Other fields of a later version's replicas it keeps
(docs/upgrading.md).

Times are ISO 8601 in UTC with microseconds: as text they sort as times do, and people can read them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from spotrelay.plane.aws.table import ABSENT, Condition, Delete, Key, Put, Update, Values, Write
from spotrelay.plane.core.held import Answer, Held, HeldBack
from spotrelay.plane.core.incidents import AlarmState, Incidents
from spotrelay.plane.core.names import TABLE_TTL, Alarm, Partition
from spotrelay.plane.core.pools import (
    OPTIONS,
    CapacityPool,
    Cause,
    Cooldown,
    Image,
    Offering,
    Reading,
    Scope,
    Survey,
)
from spotrelay.plane.core.ports import NewerRows
from spotrelay.plane.core.replica import Phase, Replica, ReplicaState
from spotrelay.plane.core.rows import (
    Backoff,
    Changes,
    LaunchIntent,
    LaunchWindow,
    Removal,
    Rollback,
    Rows,
    ScaleRequest,
    Source,
    Starts,
    Told,
)
from spotrelay.plane.core.spec import ServiceSpec, SpecError
from spotrelay.plane.core.timing import seconds

if TYPE_CHECKING:  # of ticks alone: a warning waits for every import of a cold start
    from spotrelay.plane.core.scaling import OngoingTotal

HISTORY_KEPT_S = 30 * 86_400.0
"""How long ended replicas are kept: as long as the functions' logs, which tell the rest of the story."""

FALLBACK = "is_stand_in"
"""What `Replica.is_fallback` is called in rows since the first version."""

SCHEMA = 1
"""Of everything but the runtime document, which has its own. Items from before there was one are of 1."""

STANDBY_SCHEMA = 2
"""Of rows about standbys: a version that doesn't know them would terminate them."""

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


def told_key(service: str) -> Key:
    """Key of what was told of a service."""
    return Key(service_partition(service), "TOLD")


def held_key(service: str) -> Key:
    """Key of what is held back of a service."""
    return Key(service_partition(service), "HELD")


def incidents_key(service: str) -> Key:
    """Key of what a service's alarms were told."""
    return Key(service_partition(service), "INCIDENTS")


def ongoing_key(service: str) -> Key:
    """Key of the requests that a service's replicas have."""
    return Key(service_partition(service), "ONGOING")


def starts_key(service: str) -> Key:
    """Key of what instances told of their starts."""
    return Key(service_partition(service), "STARTS")


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


def keys(service: str, replica_ids: Iterable[int]) -> set[Key]:
    """Keys of what `rows_of` reads of these replicas, and of the service itself."""
    return {meta_key(service), *(replica_key(service, id_) for id_ in replica_ids)}


def registry_key(service: str) -> Key:
    """Key of a service in the list of services."""
    return Key(SERVICES, service)


def rows_of(service: str, found: Mapping[Key, Values]) -> Rows:
    """What the items that were found say of a service; META may be missing.

    Raises:
        NewerRows: one has a later schema.
    """
    meta = found.get(meta_key(service), {})
    document = found.get(document_key(service), {})
    _check_schema(meta, "what is noted of the service")
    replicas = [replica_of(item) for key, item in found.items() if key.sort.startswith(REPLICA)]
    intents = [intent_of(item) for key, item in found.items() if key.sort.startswith(LAUNCH)]
    return Rows(
        highest_id=int(meta.get("highest_id", 0)),
        serving=int(meta.get("serving", 0)),
        removal=removal_of(document),
        document=document_of(document),
        is_claimed=is_claimed(document),
        earlier=earlier_of(document),
        rollback=rollback_of(meta),
        replicas={r.id: r for r in sorted(replicas, key=lambda r: r.id)},
        intents={i.id: i for i in intents},
        backoff=Backoff(
            int(meta.get("failures", 0)),
            _optional_time(meta.get("backoff_until")),
            int(meta.get("failing_version", 0)),
            _optional_time(meta.get("fallback_until")),
        ),
        standby_backoff=Backoff(
            int(meta.get("standby_failures", 0)),
            _optional_time(meta.get("standby_until")),
            int(meta.get("standby_version", 0)),
        ),
        window=LaunchWindow(_optional_time(meta.get("launches_since")), int(meta.get("launches", 0))),
        requests=requests_of(meta),
        told=told_of(found.get(told_key(service), {})),
        held=held_of(found.get(held_key(service), {})),
        incidents=incidents_of(found.get(incidents_key(service), {})),
        ongoing=ongoing_of(found.get(ongoing_key(service), {})),
        starts=starts_of(found.get(starts_key(service), {})),
    )


def writes(changes: Changes) -> Iterator[Write]:
    """What a commit writes: each item once, as a transaction demands, under the conditions that it names."""
    service = changes.service
    meta: dict[str, object] = {}
    conditions: list[Condition] = []
    if changes.highest_id:
        as_read, meta["highest_id"] = changes.highest_id
        conditions.append(_is_as_read("highest_id", as_read))
        yield Put(registry_key(service), {})
    if changes.serving:
        as_read, meta["serving"] = changes.serving
        conditions.append(_is_as_read("serving", as_read))
    meta |= backoff_item(changes.backoff) if changes.backoff else {}
    meta |= standby_backoff_item(changes.standby_backoff) if changes.standby_backoff else {}
    if changes.window:
        before, after = (window_item(window) for window in changes.window)
        meta |= after
        conditions += [_is_as_read(name, before[name]) for name in before]
    if meta:
        meta["schema"] = SCHEMA
        text = " AND ".join(condition.text for condition in conditions)
        values = tuple(value for condition in conditions for value in condition.values)
        yield Update(meta_key(service), meta, Condition(text, values) if conditions else None)
    # An instance that passes from one replica to another has its entry written once.
    passed_on = {row.instance_id for row in changes.create}
    for row in changes.create:
        yield from _row_writes(row, row.revision, ABSENT)
    for row in changes.update:
        yield from _row_writes(row, row.revision + 1, Condition("#revision = ?", (row.revision,)), passed_on)
    if changes.open_intent:
        intent = changes.open_intent
        yield Put(intent_key(service, intent.id), intent_item(intent))
    for intent_id in changes.close_intents:
        yield Delete(intent_key(service, intent_id))


def _row_writes(
    row: Replica, revision: int, condition: Condition, passed_on: Collection[str | None] = ()
) -> Iterator[Write]:
    key, item = replica_key(row.service, row.id), {**replica_item(row), "revision": revision}
    if row.state.is_ended:
        yield Delete(key, condition)
        yield Put(history_key(row.service, row.id), item)
    else:
        yield Put(key, item, condition)
    # PROVISIONING is the state in which a row gets its instance, unless it is made with one, and the end the
    # moment to let the entry expire; in between it is there already.
    is_new = condition is ABSENT or row.state is ReplicaState.PROVISIONING
    if row.instance_id and row.instance_id not in passed_on and (row.state.is_ended or is_new):
        yield Put(instance_key(row.instance_id), instance_item(row))


def _is_as_read(name: str, value: object) -> Condition:
    is_same = f"#{name} = ?"
    return Condition(is_same if value else f"({is_same} OR attribute_not_exists(#{name}))", (value or 0,))


def replica_item(replica: Replica) -> dict[str, Any]:
    """A replica's values: the row as JSON, its revision, and with one that ended the time to live of history.

    Nothing looks inside a row but the one who reads it whole, and attributes of its own for each of its
    fields would cost a batch of losses a fifth of its time, in serialising them here and reading them there.
    """
    row: dict[str, Any] = {
        **replica.unknown,
        "schema": STANDBY_SCHEMA if replica.is_standby else SCHEMA,
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
        "is_denied": replica.is_denied or None,
        "blocked_at": _optional_text(replica.blocked_at),
        "is_proven": replica.is_proven or None,
        "purchase_option": replica.purchase_option.name,
        FALLBACK: replica.is_fallback,
        "is_standby": replica.is_standby or None,
        "is_adopted": replica.is_adopted or None,
        "launch": replica.launch,
        "replaces": replica.replaces,
        "replaced_by": replica.replaced_by,
        "address": replica.address,
        "port": replica.port,
        "slots": replica.slots if replica.slots > 1 else None,
        "warned_at": _optional_text(replica.warned_at),
        "lost_at": _optional_text(replica.lost_at),
        "unhealthy_since": _optional_text(replica.unhealthy_since),
        "missing_since": _optional_text(replica.missing_since),
        "silent_since": _optional_text(replica.silent_since),
        "refusals": replica.refusals or None,
        "busy_since": _optional_text(replica.busy_since),
        "finished": replica.finished,
        "resume_s": replica.resume_s,
        "trouble": replica.trouble,
        "is_crashing": replica.is_crashing or None,
        "phases": _phases_item(replica.phases) or None,
        "rebalance_at": _optional_text(replica.rebalance_at),
        "max_price": replica.max_price,
        "min_score": replica.min_score,
        "move_tried_at": _optional_text(replica.move_tried_at),
    }
    said = {name: value for name, value in row.items() if value is not None}
    item: dict[str, Any] = {"row": to_json(said), "revision": replica.revision}
    if replica.state.is_ended:
        item[TABLE_TTL] = _ttl_of_history(replica)
    return item


def replica_of(item: Values) -> Replica:
    """The replica that `replica_item` wrote, with fields of later versions as they are.

    Raises:
        NewerRows: it has a later schema.
    """
    row = json.loads(item["row"])
    _check_schema(row, "a replica")
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
        is_denied=row.get("is_denied", False),
        blocked_at=_optional_time(row.get("blocked_at")),
        is_proven=row.get("is_proven", False),
        purchase_option=OPTIONS[row["purchase_option"]],
        is_fallback=row[FALLBACK],
        is_standby=row.get("is_standby", False),
        is_adopted=row.get("is_adopted", False),
        launch=row.get("launch"),
        replaces=row.get("replaces"),
        replaced_by=row.get("replaced_by"),
        address=row.get("address"),
        port=row.get("port"),
        slots=row.get("slots", 1),
        warned_at=_optional_time(row.get("warned_at")),
        lost_at=_optional_time(row.get("lost_at")),
        unhealthy_since=_optional_time(row.get("unhealthy_since")),
        missing_since=_optional_time(row.get("missing_since")),
        silent_since=_optional_time(row.get("silent_since")),
        refusals=row.get("refusals", 0),
        busy_since=_optional_time(row.get("busy_since")),
        finished=row.get("finished"),
        resume_s=row.get("resume_s"),
        trouble=row.get("trouble"),
        is_crashing=row.get("is_crashing", False),
        phases=_phases_of(row.get("phases", {})),
        rebalance_at=_optional_time(row.get("rebalance_at")),
        max_price=row.get("max_price"),
        min_score=row.get("min_score"),
        move_tried_at=_optional_time(row.get("move_tried_at")),
        revision=int(item["revision"]),
        unknown={name: row[name] for name in row.keys() - _KNOWN},
    )


_PHASES = {phase.value: phase for phase in Phase}
"""A later version may know others: what is only for people needn't survive a rollback."""

_KNOWN = {f.name for f in fields(Replica)} - {"revision", "unknown", "is_fallback"} | {"schema", FALLBACK}
"""Of a row's fields."""


def instance_item(replica: Replica) -> dict[str, Any]:
    """What an instance's entry says about its replica; it expires together with the replica's history."""
    item: dict[str, Any] = {"service": replica.service, "replica": replica.id}
    if replica.slots > 1:
        item["slots"] = replica.siblings
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
    _check_schema(item, "a launch intent")
    ids = tuple(int(id_) for id_ in item["replica_ids"])
    highest_id = int(item.get("highest_id", 0))
    return LaunchIntent(item["id"], item["service"], ids, to_time(item["created_at"]), highest_id)


def backoff_item(backoff: Backoff) -> dict[str, Any]:
    """A back-off as attributes of a service's META item; None removes one."""
    return {
        "failures": backoff.failures,
        "backoff_until": _optional_text(backoff.until),
        "failing_version": backoff.version,
        "fallback_until": _optional_text(backoff.fallback_until),
    }


def standby_backoff_item(backoff: Backoff) -> dict[str, Any]:
    """The same of standbys."""
    return {
        "standby_failures": backoff.failures,
        "standby_until": _optional_text(backoff.until),
        "standby_version": backoff.version,
    }


def window_item(window: LaunchWindow) -> dict[str, Any]:
    """A launch window as attributes of a service's META item."""
    return {"launches_since": _optional_text(window.since), "launches": window.launched}


def requests_item(requests: Mapping[Source, ScaleRequest | None]) -> dict[str, Any]:
    """Requests as attributes of a service's META item, one for each source; None removes one."""
    return {_request_name(source): request and _request_item(request) for source, request in requests.items()}


def requests_of(meta: Values) -> dict[Source, ScaleRequest]:
    """The requests in a service's META item, which may be empty.

    One that can't be read is left out, and the service file's number counts: it is no reason to stop.
    """
    found = {source: _request_of(meta.get(_request_name(source))) for source in Source}
    return {source: request for source, request in found.items() if request is not None}


def rollback_item(rollback: Rollback | None) -> dict[str, Any]:
    """A rollback as an attribute of a service's META item; None removes it."""
    return {"rollback": rollback and asdict(rollback)}


def rollback_of(meta: Values) -> Rollback | None:
    """The rollback in a service's META item; None without one, or if it can't be read."""
    try:
        return Rollback(**{name: int(number) for name, number in meta["rollback"].items()})
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError):
        return None


def document_item(spec: ServiceSpec, earlier: Mapping[int, ServiceSpec] | None = None) -> dict[str, Any]:
    """A runtime document, and those of before if they change, as attributes of a service's DOCUMENT item."""
    item: dict[str, Any] = {"document": to_json(spec.to_dict())}
    if earlier is not None:
        item["earlier"] = [to_json(document.to_dict()) for document in earlier.values()]
    return item


def claim_item(*, is_ours: bool) -> dict[str, Any]:
    """Whose a service is, as an attribute of its DOCUMENT item."""
    return {"is_another_planes": None if is_ours else True}


def is_claimed(item: Values) -> bool:
    """Whether the service of a DOCUMENT item is ours: so it is unless somebody noted otherwise."""
    return not item.get("is_another_planes")


def document_of(item: Values) -> ServiceSpec | None:
    """The runtime document in a service's DOCUMENT item; None if it has none, or one too old to be read."""
    try:
        return ServiceSpec.from_json(item["document"]) if "document" in item else None
    except SpecError:
        return None


def earlier_of(item: Values) -> dict[int, ServiceSpec]:
    """The documents of before in a service's DOCUMENT item, without those that can't be read any more."""
    read = (document_of({"document": text}) for text in item.get("earlier", ()))
    return {document.version: document for document in read if document is not None}


def told_item(told: Told) -> dict[str, Any]:
    """What was told of a service, as the item that the next one who tells reads: its revision is one more."""
    written = {
        "highest_id": told.highest_id,
        "ready": sorted(id_ for id_, is_ready in told.replicas.items() if is_ready),
        "rising": sorted(id_ for id_, is_ready in told.replicas.items() if not is_ready),
        "lost": [replica_item(row)["row"] for row in told.lost.values()],
        "whole_at": told.whole_at,
        "gap_since": _optional_text(told.gap_since),
        "unsent": [[n.kind.value, n.service, n.subject, to_text(n.at), n.facts] for n in told.unsent],
    }
    return {"schema": SCHEMA, "revision": told.revision + 1, "told": to_json(written)}


def told_of(item: Values) -> Told:
    """What `told_item` wrote; of a later version, or none: nothing was told that this one would know of."""
    if "told" not in item or int(item["schema"]) > SCHEMA:
        return Told()
    from spotrelay.plane.core.notices import Notice, NoticeKind

    read = json.loads(item["told"])
    lost = [replica_of({"row": row, "revision": 0}) for row in read["lost"]]
    return Told(
        revision=int(item["revision"]),
        highest_id=read["highest_id"],
        replicas=dict.fromkeys(read["ready"], True) | dict.fromkeys(read["rising"], False),
        lost={row.id: row for row in lost},
        whole_at=read["whole_at"],
        gap_since=_optional_time(read["gap_since"]),
        unsent=tuple(
            Notice(NoticeKind(kind), service, subject, to_time(at), facts)
            for kind, service, subject, at, facts in read["unsent"]
        ),
    )


def incidents_item(incidents: Incidents) -> dict[str, Any]:
    """What a service's alarms were told; its revision is one more."""
    written = {
        "version": incidents.version,
        "alarms": {
            alarm.value: [state.rings, _optional_text(state.since), state.zeros, _optional_text(state.minute)]
            for alarm, state in incidents.alarms.items()
        },
        "serves": incidents.serves,
        **{name: _optional_text(getattr(incidents, name)) for name in _TIMES_OF_INCIDENTS},
    }
    return {"schema": SCHEMA, "revision": incidents.revision + 1, "incidents": to_json(written)}


_TIMES_OF_INCIDENTS = ("served_until", "nothing_since", "missing_since", "unlaunched_since", "blocked_at")


def incidents_of(item: Values) -> Incidents:
    """What `incidents_item` wrote; of a later version, or none: its alarms hear all anew."""
    if "incidents" not in item or int(item["schema"]) > SCHEMA:
        return Incidents(revision=int(item.get("revision", 0)))
    read = json.loads(item["incidents"])
    return Incidents(
        revision=int(item["revision"]),
        version=read["version"],
        alarms={
            Alarm(name): AlarmState(rings, _optional_time(since), zeros, _optional_time(minute))
            for name, (rings, since, zeros, minute) in read["alarms"].items()
            if name in _ALARMS
        },
        serves=read["serves"],
        **{name: _optional_time(read[name]) for name in _TIMES_OF_INCIDENTS},
    )


_ALARMS = frozenset(alarm.value for alarm in Alarm)
"""Those that this version knows."""


def held_item(held: Held) -> dict[str, Any]:
    """What is held back of a service."""
    answer = held.answer
    written = {
        "back": [one.to_values() for one in held.back],
        "answer": answer and [to_text(answer.given_at), answer.done, answer.lapsed],
    }
    return {"schema": SCHEMA, "held": to_json(written)}


def held_of(item: Values) -> Held:
    """What `held_item` wrote; of a later version, or none: nothing that this one would know of is held."""
    if "held" not in item or int(item["schema"]) > SCHEMA:
        return Held()
    read = json.loads(item["held"])
    answer = read["answer"]
    return Held(
        tuple(HeldBack.of(values) for values in read["back"]),
        answer and Answer(to_time(answer[0]), tuple(answer[1]), answer[2]),
    )


def ongoing_item(total: OngoingTotal) -> dict[str, Any]:
    """The requests that a service's replicas have."""
    return {"schema": SCHEMA, "ongoing": to_json([to_text(total.at), total.requests, total.unknown])}


def ongoing_of(item: Values) -> OngoingTotal | None:
    """What `ongoing_item` wrote; None: it isn't there, or of a later version."""
    if "ongoing" not in item or int(item["schema"]) > SCHEMA:
        return None
    from spotrelay.plane.core.scaling import OngoingTotal

    at, requests, unknown = json.loads(item["ongoing"])
    return OngoingTotal(to_time(at), requests, unknown)


def starts_item(starts: Starts) -> dict[str, Any]:
    """What instances told of their starts."""
    told = {str(id_): _phases_item(phases) for id_, phases in starts.items()}
    return {"schema": SCHEMA, "starts": to_json(told)}


def starts_of(item: Values) -> Starts:
    """What `starts_item` wrote; empty if it isn't there, or of a later version."""
    if "starts" not in item or int(item["schema"]) > SCHEMA:
        return {}
    return {int(id_): _phases_of(phases) for id_, phases in json.loads(item["starts"]).items()}


def _phases_item(phases: Mapping[Phase, datetime]) -> dict[str, str]:
    return {phase.value: to_text(at) for phase, at in phases.items()}


def _phases_of(said: Mapping[str, str]) -> dict[Phase, datetime]:
    return {phase: to_time(at) for name, at in said.items() if (phase := _PHASES.get(name))}


def removal_item(removal: Removal) -> dict[str, Any]:
    """A removal as attributes of a service's DOCUMENT item."""
    return {"removed_at": _optional_text(removal.told_at), "absent": removal.absent}


def removal_of(item: Values) -> Removal:
    """The removal in a service's DOCUMENT item, which may be empty."""
    return Removal(_optional_time(item.get("removed_at")), int(item.get("absent", 0)))


def pool_list(pool: CapacityPool) -> list[str]:
    """A pool as JSON has it."""
    return [getattr(pool, field.name) for field in fields(CapacityPool)]


to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def to_text(at: datetime) -> str:
    """A time as the table has it."""
    return (at if at.tzinfo is UTC else at.astimezone(UTC)).isoformat(timespec="microseconds")


def to_time(text: str) -> datetime:
    """The time that `to_text` wrote."""
    return datetime.fromisoformat(text)


def is_readable(values: Values) -> bool:
    """Whether this version knows how to read it."""
    return int(values.get("schema", 1)) <= STANDBY_SCHEMA


def _check_schema(values: Values, what: str) -> None:
    """Make sure that this version knows how to read it. Raises `NewerRows`."""
    if not is_readable(values):
        raise NewerRows(
            f"{what} in the table has schema {values['schema']}, and this version reads {STANDBY_SCHEMA}"
        )


def _replica_sort(id_: int) -> str:
    # Nine digits keep the order of history for a billion replicas.
    return f"{REPLICA}{id_:09d}"


def _ttl_of_history(replica: Replica) -> int:
    return math.ceil((replica.since + seconds(HISTORY_KEPT_S)).timestamp())


def _offering_list(offering: Offering | None) -> list[str] | None:
    return None if offering is None else [*pool_list(offering.pool), offering.purchase_option.name]


def _offering_of(parts: Sequence[str] | None) -> Offering | None:
    if parts is None:
        return None
    *pool, option = parts
    return Offering(CapacityPool(*pool), OPTIONS[option])


def _request_name(source: Source) -> str:
    return f"requested by {source.value}"


def _request_item(request: ScaleRequest) -> dict[str, Any]:
    times = {name: _optional_text(getattr(request, name)) for name in _OF_LOAD}
    return {"replicas": request.replicas, "until": _optional_text(request.until)} | {
        name: at for name, at in times.items() if at
    }


_OF_LOAD = ("rising_since", "falling_since", "unknown_since")


def _request_of(stored: Any) -> ScaleRequest | None:
    try:
        waiting = {name: _optional_time(stored.get(name)) for name in _OF_LOAD}
        request = ScaleRequest(int(stored["replicas"]), _optional_time(stored["until"]), **waiting)
    # ArithmeticError: a number that is none, or without an end.
    except (TypeError, KeyError, ValueError, ArithmeticError, AttributeError):
        return None
    times = (request.until, *waiting.values())
    is_sound = all(at is None or at.tzinfo is not None for at in times)
    return request if request.replicas >= 0 and is_sound else None


def _optional_text(at: datetime | None) -> str | None:
    return None if at is None else to_text(at)


def _optional_time(text: str | None) -> datetime | None:
    return None if text is None else to_time(text)


# What is known about pools.


def cooldowns_key(region: str) -> Key:
    """Key of what to leave alone in a region."""
    return Key(Partition.COOLDOWNS + region, META)


def cooldowns_item(cooldowns: Iterable[Cooldown], revision: int) -> dict[str, Any]:
    """A region's cooldowns as JSON. All there can be, every GPU type in every zone, are some 80 kB."""
    written = to_json([_cooldown_list(cooldown) for cooldown in cooldowns])
    return {"schema": SCHEMA, "revision": revision, "cooldowns": written}


def cooldowns_of(region: str, item: Values) -> dict[Scope, Cooldown]:
    """The cooldowns that `cooldowns_item` wrote, in an item which may be empty or of a later version."""
    if not is_readable(item):
        return {}
    cooldowns = (_cooldown_of(region, *written) for written in json.loads(item.get("cooldowns", "[]")))
    return {cooldown.scope: cooldown for cooldown in cooldowns}


def survey_key(service: str) -> Key:
    """Key of a service's last survey."""
    return Key(Partition.SURVEY + service, META)


def survey_item(survey: Survey) -> dict[str, Any]:
    """A survey's values, as JSON: nothing looks inside, and as attributes it would be twice as large."""
    return {
        "schema": SCHEMA,
        "service": survey.service,
        "at": to_text(survey.at),
        "found": to_json(
            {
                "asked": survey.asked.to_dict(),
                "pools": [pool_list(pool) for pool in survey.pools],
                "on_demand_prices": dict(survey.on_demand_prices),
                "spot_prices": [[*pool_list(pool), price] for pool, price in survey.spot_prices.items()],
                "scores": dict(survey.scores),
                "elsewhere": dict(survey.elsewhere),
                "images": [
                    [version, image.id, image.made_at and to_text(image.made_at)]
                    for version, image in survey.images.items()
                ],
                "earlier": [[to_text(one.at), dict(one.scores)] for one in survey.earlier],
                "findings": [[finding.kind.value, finding.words] for finding in survey.findings],
                "accounted_at": survey.accounted_at and to_text(survey.accounted_at),
            }
        ),
    }


def survey_of(item: Values) -> Survey:
    """The survey that `survey_item` wrote."""
    from spotrelay.plane.core.mending import Finding, FindingKind  # only what launches needs them
    from spotrelay.plane.core.requirements import Requirements

    found = json.loads(item["found"])
    return Survey(
        item["service"],
        Requirements.from_dict(found["asked"]),
        to_time(item["at"]),
        tuple(CapacityPool(*pool) for pool in found["pools"]),
        found["on_demand_prices"],
        {CapacityPool(*pool): price for *pool, price in found["spot_prices"]},
        found["scores"],
        found.get("elsewhere", {}),
        tuple(Reading(to_time(at), scores) for at, scores in found.get("earlier", ())),
        {
            version: Image(id_, made_at and to_time(made_at))
            for version, id_, made_at in found.get("images", ())
        },
        tuple(Finding(FindingKind(finding), words) for finding, words in found.get("findings", ())),
        to_time(accounted_at) if (accounted_at := found.get("accounted_at")) else None,
    )


def _cooldown_list(cooldown: Cooldown) -> list[object]:
    scope = cooldown.scope
    return [
        [scope.zone, scope.instance_type, scope.quota, scope.purchase_option and scope.purchase_option.name],
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
    found = Scope(region, zone, instance_type, quota, OPTIONS[option] if option else None)
    return Cooldown(found, Cause(cause), to_time(since), to_time(until), reason, strikes)
