"""What a demo found out, as `report.json`.

Every number in it is measured: from the product's own rows, from the local cloud's log of calls and requests,
and by the clients of the load.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from lab.demo.stage import EVENT_TIME_S, Loss, serves_on_since
from spotrelay.operator.look.timeline import Mark
from spotrelay.plane.core import timing
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.view import losses as operate

Record = Mapping[str, Any]
"""A JSON object of the local cloud's control API; see `lab.local.client`."""

CDK_ROLES = "cdk-"
"""How the names of the roles begin that `cdk deploy` works with."""

FAILURES_KEPT = 50


@dataclass(frozen=True, slots=True)
class Interruption:
    """One replica that EC2 took back. Durations from the warning on, None for what never happened.

    `warned_to_launched_s` and `warned_to_ready_s` are those of whoever restored the strength first: the
    fallback, if there is one, and the replacement otherwise.
    """

    service: str
    story: str
    replica: int
    replaced_by: int | None
    fallback: int | None
    """The on-demand replica that served before the replacement did: Spot was dry, or a standby was there."""
    pool: str
    event: str
    """How the event arrived: "once", "lost", or "3 times"."""
    warned_at: str
    warned_to_deregistered_s: float | None
    served_on_s: float | None
    """How long it served on before it was taken out of rotation, because too few others served.

    None: it left as soon as the warning was known.
    """
    warned_to_launched_s: float | None
    warned_to_ready_s: float | None
    warned_to_reclaimed_s: float | None
    warned_to_terminated_s: float | None
    """Until we terminated the instance, which we must not."""

    @property
    def mark(self) -> Mark:
        """It in the timeline, flagged with its story."""
        warned_at = datetime.fromisoformat(self.warned_at)

        def after(duration_s: float | None) -> datetime | None:
            return None if duration_s is None else warned_at + seconds(duration_s)

        out_at = after(self.warned_to_deregistered_s)
        served_on = None if self.served_on_s is None else seconds(self.served_on_s)
        return Mark(
            label=self.story,
            replica=self.replica,
            fallback=self.fallback,
            warned_at=warned_at,
            serves_on_since=out_at - served_on if out_at and served_on else None,
            out_at=out_at,
            taken_at=after(self.warned_to_reclaimed_s),
        )


def interruptions_of(
    losses: Iterable[Loss], records: Mapping[str, Record], replicas: Mapping[int, Replica]
) -> list[Interruption]:
    """What became of each loss; `records` are the local cloud's, by instance ID."""
    told = {loss.replica: loss for loss in operate.losses(replicas.values())}
    return [
        _interruption(loss, records[loss.instance_id], replicas, told.get(loss.replica))
        for loss in losses
        if loss.instance_id in records
    ]


def _interruption(
    loss: Loss, record: Record, replicas: Mapping[int, Replica], told: operate.Loss | None
) -> Interruption:
    """`told`: the loss by the product's rows; None where those know nothing of it."""
    warned_at = float(record["warned_at"])
    lost = replicas[loss.replica]

    def since_warning(at: float | datetime | None) -> float | None:
        at = at.timestamp() if isinstance(at, datetime) else at
        return None if at is None else round(at - warned_at, 3)

    event, serves_on = record["event"], serves_on_since(lost, replicas)
    deregistered_at: float | None = record["deregistered_at"]
    served_on_s = round(deregistered_at - serves_on.timestamp(), 3) if deregistered_at and serves_on else None
    return Interruption(
        service=lost.service,
        story=loss.story,
        replica=loss.replica,
        replaced_by=lost.replaced_by,
        fallback=told.fallback if told else None,
        pool=str(lost.offering.pool) if lost.offering else "",
        event=event if isinstance(event, str) else f"{event} times",
        warned_at=datetime.fromtimestamp(warned_at).astimezone().isoformat(timespec="milliseconds"),
        warned_to_deregistered_s=since_warning(deregistered_at),
        served_on_s=served_on_s,
        warned_to_launched_s=since_warning(told.launched_at if told else None),
        warned_to_ready_s=since_warning(told.ready_at if told else None),
        warned_to_reclaimed_s=since_warning(record["reclaimed_at"]),
        warned_to_terminated_s=since_warning(record["terminated_at"]),
    )


def summary(interruptions: Sequence[Interruption]) -> dict[str, dict[str, float]]:
    """Median and maximum of each duration, over those interruptions that have it.

    Of `warned_to_deregistered_s` without those that served on: that says how fast the path is, and they were
    in no hurry.
    """
    found = {}
    for name in (
        "warned_to_deregistered_s", "warned_to_launched_s", "warned_to_ready_s", "warned_to_reclaimed_s"
    ):  # fmt: skip
        counted = [i for i in interruptions if name != "warned_to_deregistered_s" or i.served_on_s is None]
        values = [value for i in counted if (value := getattr(i, name)) is not None]
        if values:
            found[name] = {"median": round(statistics.median(values), 3), "max": max(values)}
    return found


def replica_row(replica: Replica) -> dict[str, Any]:
    """One replica, history and all. When it was warned is in `Interruption`, by the local cloud's clock.

    Its row has the event's time, which a shortened warning makes earlier: see `LocalCloud.warn`.
    """
    offering = replica.offering
    return {
        "service": replica.service,
        "id": replica.id,
        "state": str(replica.state),
        "pool": str(offering.pool) if offering else None,
        "purchase_option": str(offering.purchase_option) if offering else None,
        "instance_id": replica.instance_id,
        "replaces": replica.replaces,
        "replaced_by": replica.replaced_by,
        "is_fallback": replica.is_fallback,
        "is_standby": replica.is_standby,
        "attempts": replica.attempts,
        "reason": replica.reason,
        "entered": {str(state): _iso(at) for state, at in replica.entered.items()},
    }


def request_counts(load: Record) -> dict[str, Any]:
    """The requests as the clients of the load saw them; `load` is a `lab.demo.load.LoadSnapshot`."""
    return {
        **{name: load[name] for name in ("sent", "finished", "failed", "cut", "tokens")},
        "first_token_s": _percentiles(load["first_token"]),
        "latency_s": _percentiles(load["latency"]),
        # A few say what went wrong; the counts say how often.
        "failures": list(load["failures"])[:FAILURES_KEPT],
    }


def _percentiles(of: Record) -> dict[str, float]:
    return {name.removesuffix("_s"): round(value, 3) for name, value in of.items()}


def call_counts(calls: Iterable[Record]) -> dict[str, int]:
    """How often the product's functions made each AWS call; `cdk deploy` and the operator don't count."""
    made = (call for call in calls if call["role"] and not call["role"].startswith(CDK_ROLES))
    return dict(sorted(Counter(f"{call['service']}:{call['action']}" for call in made).items()))


def denied_calls(calls: Iterable[Record]) -> list[str]:
    """The product's calls that IAM refused, as `role: action (code)`."""
    codes = {"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"}
    return sorted(
        {
            f"{call['role']}: {call['service']}:{call['action']} ({call['error_code']})"
            for call in calls
            if call["error_code"] in codes and call["role"] and not call["role"].startswith(CDK_ROLES)
        }
    )


def late_requests(requests: Iterable[Record], interruptions: Iterable[Record]) -> list[str]:
    """Requests that went to a warned replica after it was deregistered: there must be none."""
    out_since = {i["instance_id"]: i["deregistered_at"] for i in interruptions if i["deregistered_at"]}
    late: Counter[str] = Counter(
        request["target"]
        for request in requests
        if request["target"] in out_since and request["started"] > out_since[request["target"]]
    )
    return [f"{id_} got {count} requests after it was deregistered" for id_, count in sorted(late.items())]


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which nobody was in rotation."""

    since: datetime
    until: datetime
    could_serve: int | None
    """The warned replica that could have served for longest; None: each was at its end, and nobody could."""

    @property
    def duration_s(self) -> float:
        """How long it was."""
        return (self.until - self.since).total_seconds()


def outages(
    interruptions: Sequence[Interruption], replicas: Mapping[int, Replica], end: datetime
) -> list[Outage]:
    """When nobody was in rotation, between the first replica that served and `end`."""
    lost = {i.replica: i for i in interruptions}
    times = [
        (r.entered[ReplicaState.READY], _left(r, lost.get(r.id)) or end)
        for r in replicas.values()
        if ReplicaState.READY in r.entered
    ]
    found: list[Outage] = []
    for since, until in operate.uncovered(times, min((ready for ready, _ in times), default=end), end):
        able = (i for i in interruptions if _may_serve(replicas[i.replica], i, since))
        longest = max(able, default=None, key=lambda i: (i.warned_at, i.replica))
        found.append(Outage(since, until, longest.replica if longest else None))
    return found


def _left(replica: Replica, lost: Interruption | None) -> datetime | None:
    """When it left the rotation; None: it didn't."""
    if lost is None:
        return replica.entered.get(ReplicaState.DRAINING)
    times = (lost.warned_to_deregistered_s, lost.warned_to_reclaimed_s)
    after_s = min((time for time in times if time is not None), default=None)
    return None if after_s is None else datetime.fromisoformat(lost.warned_at) + seconds(after_s)


def _may_serve(replica: Replica, lost: Interruption, at: datetime) -> bool:
    """Whether the warned replica could serve on then, as the very last one."""
    if lost.warned_to_reclaimed_s is None:
        return True
    stays_s = lost.warned_to_reclaimed_s - timing.LAST_ONE_STAYS_S - EVENT_TIME_S
    ready = replica.entered[ReplicaState.READY]
    return ready <= at < datetime.fromisoformat(lost.warned_at) + seconds(stays_s)


def unservable_requests(requests: Iterable[Record], found: Iterable[Outage]) -> int:
    """Requests that came when nobody could have served them, because every instance was at its end."""
    times = [
        (outage.since.timestamp(), outage.until.timestamp()) for outage in found if outage.could_serve is None
    ]
    return sum(
        request["target"] is None and any(since <= request["started"] <= until for since, until in times)
        for request in requests
    )


def broken_to_clients(
    requests: Record, *, late: Sequence[str], denied: Sequence[str], unservable: int
) -> list[str]:
    """Every promise to clients and to the account that was broken, one line each; empty if all is well."""
    found = []
    if not requests["sent"]:
        found.append("no request was sent")
    if requests["failed"] > unservable:
        found.append(f"{requests['failed'] - unservable} of {requests['sent']} requests failed")
    if requests["cut"]:
        found.append(f"{requests['cut']} of {requests['sent']} requests were cut")
    return [*found, *late, *(f"IAM refused a call: {call}" for call in denied)]


def broken_in_fleet(
    interruptions: Sequence[Interruption],
    replicas: Mapping[int, Replica],
    wanted: int,
    standbys: int,
    outages: Sequence[Outage],
) -> list[str]:
    """Every promise about one service's replicas that was broken, one line each; empty if all is well."""
    found = [
        f"nobody was in rotation for {one.duration_s:.1f} s, and replica {one.could_serve} could have been"
        for one in outages
        if one.could_serve is not None
    ]
    ready = [r.id for r in replicas.values() if r.state is ReplicaState.READY]
    stand_by = [r.id for r in replicas.values() if r.state is ReplicaState.STANDBY]
    present = [r.id for r in replicas.values() if not r.state.is_ended and r.id not in stand_by]
    if len(ready) != wanted or present != ready:
        states = ", ".join(f"{r.id} {r.state}" for r in replicas.values() if not r.state.is_ended) or "none"
        found.append(f"the fleet is not whole: {wanted} replicas should serve, and there are: {states}")
    if len(stand_by) != standbys:
        found.append(f"{standbys} standbys should be there, and there are {stand_by}")
    found += [problem for i in interruptions for problem in _broken(i, replicas)]
    fallbacks = [r for r in replicas.values() if r.is_fallback]
    found += [problem for r in fallbacks for problem in _unjustified(r, interruptions, replicas)]
    # What was there at the start, one for each loss, the fallbacks, each of which has its reason (above), a
    # row for each time that a standby was prepared or came back, and one for each replica of an earlier
    # version: nothing more or less, and no ID left out.
    rows_of_standbys = sum(r.stands_by for r in replicas.values())
    newest = max((r.version for r in replicas.values()), default=0)
    of_earlier = sum(r.version < newest for r in replicas.values())
    count = wanted + len(interruptions) + len(fallbacks) + rows_of_standbys + of_earlier
    due = list(range(1, count + 1))
    if sorted(replicas) != due:
        found.append(
            f"replica IDs must be 1 to {due[-1] if due else 0} with none left out, and are {sorted(replicas)}"
        )
    return found


def _broken(interruption: Interruption, replicas: Mapping[int, Replica]) -> list[str]:
    name = f"replica {interruption.replica} (story {interruption.story})"
    found = []
    replacements = [r.id for r in replicas.values() if r.replaces == interruption.replica]
    if len(replacements) != 1:
        found.append(f"{name} must have exactly one replacement, and has {replacements or 'none'}")
    if interruption.warned_to_deregistered_s is None:
        found.append(f"{name} was never taken out of rotation")
    if interruption.warned_to_reclaimed_s is None or interruption.warned_to_terminated_s is not None:
        found.append(f"{name} was not left for EC2 to take")
    return found


def _unjustified(
    fallback: Replica, interruptions: Sequence[Interruption], replicas: Mapping[int, Replica]
) -> list[str]:
    """What is wrong with a fallback: it must be bought on-demand, have a reason, and be gone at the end."""
    name = f"fallback {fallback.id}"
    found = []
    offering = fallback.offering
    if offering and offering.purchase_option is not PurchaseOption.ON_DEMAND:
        found.append(f"{name} was not bought on-demand but as {offering}")
    if not any(_calls_for(fallback, i, replicas) for i in interruptions):
        found.append(f"{name} had no reason: no replacement was refused by Spot, or late")
    if not fallback.state.is_ended:
        found.append(f"{name} is {fallback.state} at the end, and should be gone")
    return found


def _calls_for(fallback: Replica, interruption: Interruption, replicas: Mapping[int, Replica]) -> bool:
    """Whether the replacement was refused by Spot, or still starting when EC2 had taken the lost replica.

    A standby is resumed at once, unless the replacement serves already.
    """
    replacement = replicas.get(interruption.replaced_by or 0)
    if fallback.is_standby and replacement is not None:
        served = replacement.entered.get(ReplicaState.READY)
        is_after = operate.asked_at(fallback) >= datetime.fromisoformat(interruption.warned_at)
        return is_after and (served is None or operate.asked_at(fallback) < served)
    requested = operate.requested_at(fallback)
    if replacement is None or requested < operate.requested_at(replacement):
        return False
    ready = replacement.entered.get(ReplicaState.READY)
    if ready is not None and ready <= requested:
        return False
    gone_s = interruption.warned_to_reclaimed_s
    warned_at = datetime.fromisoformat(interruption.warned_at)
    is_late = gone_s is not None and warned_at + timedelta(seconds=gone_s) <= requested
    return replacement.attempts > 0 or is_late


def _iso(at: datetime | None) -> str | None:
    return at.isoformat(timespec="milliseconds") if at else None


def build(
    *,
    settings: Record,
    requests: Record,
    interruptions: Sequence[Interruption],
    replicas: Iterable[Replica],
    calls: Iterable[Record],
    bill: Record,
    stories: Sequence[Record],
    problems: Sequence[str],
    outages: Sequence[Outage],
    unservable: int,
) -> dict[str, Any]:
    """The whole report, ready for JSON. `settings` goes first, as it is."""
    return {
        **settings,
        "ok": not problems,
        "problems": list(problems),
        "requests": {**requests, "unservable": unservable},
        "nobody_in_rotation_s": round(sum(outage.duration_s for outage in outages), 3),
        "summary": summary(interruptions),
        "interruptions": [asdict(i) for i in interruptions],
        "replicas": [replica_row(r) for r in replicas],
        "stories": list(stories),
        "calls": call_counts(calls),
        "metrics": bill,
    }
