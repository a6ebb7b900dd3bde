"""What a demo found out, as `report.json`.

Every number in it is measured: from the product's own rows, from the local cloud's log of calls and requests,
and by the clients of the load.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from spotrelay.demo.stage import Loss
from spotrelay.model import Replica, ReplicaState

Record = Mapping[str, Any]
"""A JSON object of the local cloud's control API; see `spotrelay.local.client`."""

CDK_ROLES = "cdk-"
"""How the names of the roles begin that `cdk deploy` works with."""

FAILURES_KEPT = 50


@dataclass(frozen=True, slots=True)
class Interruption:
    """One replica that EC2 took back. Durations from the warning on, None for what never happened."""

    story: str
    replica: int
    replaced_by: int | None
    pool: str
    event: str
    """How the event arrived: "once", "lost", or "3 times"."""
    warned_at: str
    warned_to_deregistered_s: float | None
    warned_to_launched_s: float | None
    warned_to_ready_s: float | None
    warned_to_reclaimed_s: float | None


def interruption_of(loss: Loss, record: Record, replicas: Mapping[int, Replica]) -> Interruption:
    """What became of one loss; `record` is the local cloud's."""
    warned_at = float(record["warned_at"])
    lost = replicas[loss.replica]
    replacement = replicas.get(lost.replaced_by or 0)

    def entered(state: ReplicaState) -> float | None:
        at = replacement.entered.get(state) if replacement else None
        return at.timestamp() if at else None

    def since_warning(at: float | None) -> float | None:
        return None if at is None else round(at - warned_at, 3)

    event = record["event"]
    return Interruption(
        story=loss.story,
        replica=loss.replica,
        replaced_by=lost.replaced_by,
        pool=str(lost.offering.pool) if lost.offering else "",
        event=event if isinstance(event, str) else f"{event} times",
        warned_at=datetime.fromtimestamp(warned_at).astimezone().isoformat(timespec="milliseconds"),
        warned_to_deregistered_s=since_warning(record["deregistered_at"]),
        warned_to_launched_s=since_warning(entered(ReplicaState.PROVISIONING)),
        warned_to_ready_s=since_warning(entered(ReplicaState.READY)),
        warned_to_reclaimed_s=since_warning(record["reclaimed_at"]),
    )


def summary(interruptions: Sequence[Interruption]) -> dict[str, dict[str, float]]:
    """Median and maximum of each duration, over those interruptions that have it."""
    found = {}
    for name in (
        "warned_to_deregistered_s", "warned_to_launched_s", "warned_to_ready_s", "warned_to_reclaimed_s"
    ):  # fmt: skip
        values = [value for i in interruptions if (value := getattr(i, name)) is not None]
        if values:
            found[name] = {"median": round(statistics.median(values), 3), "max": max(values)}
    return found


def replica_row(replica: Replica) -> dict[str, Any]:
    """One replica, history and all."""
    offering = replica.offering
    return {
        "id": replica.id,
        "state": str(replica.state),
        "pool": str(offering.pool) if offering else None,
        "purchase_option": str(offering.purchase_option) if offering else None,
        "instance_id": replica.instance_id,
        "replaces": replica.replaces,
        "replaced_by": replica.replaced_by,
        "reason": replica.reason,
        "warned_at": _iso(replica.warned_at),
        "entered": {str(state): _iso(at) for state, at in replica.entered.items()},
    }


def request_counts(load: Record) -> dict[str, Any]:
    """The requests as the clients of the load saw them; `load` is a `spotrelay.demo.load.LoadSnapshot`."""
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


def problems(
    *,
    requests: Record,
    interruptions: Sequence[Interruption],
    replicas: Mapping[int, Replica],
    wanted: int,
    late: Sequence[str],
    denied: Sequence[str],
) -> list[str]:
    """Every promise that the demo found broken, one line each; empty if all is well."""
    found = []
    if not requests["sent"]:
        found.append("no request was sent")
    if requests["failed"]:
        found.append(f"{requests['failed']} of {requests['sent']} requests failed")
    if requests["cut"]:
        found.append(f"{requests['cut']} of {requests['sent']} requests were cut")
    found += late
    found += [f"IAM refused a call: {call}" for call in denied]
    ready = [r.id for r in replicas.values() if r.state is ReplicaState.READY]
    present = [r.id for r in replicas.values() if not r.state.is_ended]
    if len(ready) != wanted or present != ready:
        states = ", ".join(f"{r.id} {r.state}" for r in replicas.values() if not r.state.is_ended) or "none"
        found.append(f"the fleet is not whole: {wanted} replicas should serve, and there are: {states}")
    found += [problem for i in interruptions for problem in _broken(i, replicas)]
    # What was there at the start, and one for each loss: nothing more, nothing less, and no ID left out.
    due = list(range(1, wanted + len(interruptions) + 1))
    if sorted(replicas) != due:
        found.append(
            f"replica IDs must be 1 to {due[-1] if due else 0} without a gap, and are {sorted(replicas)}"
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
    if interruption.warned_to_reclaimed_s is None:
        found.append(f"{name} was not left for EC2 to take")
    return found


def _iso(at: datetime | None) -> str | None:
    return at.isoformat(timespec="milliseconds") if at else None


def build(
    *,
    settings: Record,
    requests: Record,
    interruptions: Sequence[Interruption],
    replicas: Mapping[int, Replica],
    calls: Iterable[Record],
    stories: Sequence[Record],
    problems: Sequence[str],
) -> dict[str, Any]:
    """The whole report, ready for JSON. `settings` goes first, as it is."""
    return {
        **settings,
        "ok": not problems,
        "problems": list(problems),
        "requests": dict(requests),
        "summary": summary(interruptions),
        "interruptions": [asdict(i) for i in interruptions],
        "replicas": [replica_row(r) for r in replicas.values()],
        "stories": list(stories),
        "calls": call_counts(calls),
    }
