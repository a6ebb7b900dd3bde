"""What happened in a run, for a person to read."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from spotrelay.model import (
    Changes,
    Cooldown,
    Instance,
    LaunchIntent,
    Replica,
    Rows,
    ServiceSpec,
)
from spotrelay.ports import LaunchRequest, LaunchResult
from spotrelay.sim.faults import Call

MAX_TEXT = 220
"""Longer texts are cut: what matters stands at the front."""


class Timeline:
    """Lines, each with its time and who did it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, now: float, who: str, call: Call | None, about: object, result: object) -> None:
        """One more thing that happened."""
        parts = [call.value if call else "", told(about)]
        done = " ".join(part for part in parts if part)
        said = told(result)
        text = f"{done} → {said}" if done and said else done or said
        self.lines.append(f"{now:9.3f}  {who:<14} {text[:MAX_TEXT]}")


def told(what: object) -> str:
    """A value in few words."""
    match what:
        case None:
            return ""
        case Replica():
            return _replica(what)
        case Rows():
            rows = ", ".join(map(_replica, what.replicas.values()))
            return f"highest {what.highest_id}: {rows}; open: {told(list(what.intents))}"
        case Changes():
            parts = [f"+{_replica(r)}" for r in what.create] + [_replica(r) for r in what.update]
            parts += [f"open {told(what.open_intent)}"] if what.open_intent else []
            parts += [f"close {i}" for i in what.close_intents]
            return ", ".join(parts) or "nothing"
        case LaunchIntent():
            return f"{what.id} for {told(what.replica_ids)}"
        case LaunchRequest():
            pools = len(what.pools)
            return f"{what.launch_id}: {what.count} {what.purchase_option} from {pools} pools"
        case LaunchResult():
            got = ", ".join(f"{i.id} in {i.offering.pool}" for i in what.instances)
            return f"{got or 'nothing'}, {len(what.refusals)} refusals"
        case Instance():
            return f"{what.id} {what.state}"
        case Cooldown():
            return str(what.offering)
        case ServiceSpec():
            return f"{what.service} v{what.version} × {what.replicas}"
        case Enum():
            return str(what.value)
        case str():
            return what
        case Mapping():
            return "{" + ", ".join(f"{told(k)}: {told(v)}" for k, v in what.items()) + "}"
        case set() | frozenset():
            return "{" + ", ".join(sorted(map(told, what))) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(told, what)) + "]"
        case _:
            return str(what)


def _replica(replica: Replica) -> str:
    marks = "".join(
        (
            f" {replica.instance_id}" if replica.instance_id else "",
            " warned" if replica.warned_at else "",
            f" replaces {replica.replaces}" if replica.replaces else "",
            f" →{replica.replaced_by}" if replica.replaced_by else "",
        )
    )
    return f"#{replica.id} {replica.state}{marks}"
