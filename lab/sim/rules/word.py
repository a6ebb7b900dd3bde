"""What an operator's override says, and what it may let go on."""

from __future__ import annotations

from lab.sim.gate import Invocation
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.events.ticks import MalformedTickError, TickKind, parse_tick

OF_DOCUMENT = "its replicas are kept"
"""What is held back where a service's document is missing and nothing says that it was removed."""


def note(invocation: Invocation, body: str) -> None:
    """What an operator says, if the message is an override; and whether no other tick has announced it."""
    invocation.override, invocation.is_minutes = None, False
    try:
        tick = parse_tick(body)
    except MalformedTickError:
        return
    invocation.override = tick.override if tick.kind is TickKind.OVERRIDE else None
    invocation.is_minutes = tick.kind in (TickKind.TICK, TickKind.OVERRIDE) and tick.due is None


def of_replica(row: Replica) -> str:
    """What is held back where EC2 doesn't show a replica's instance."""
    return f"replica {row.id} is kept"


def let_go(invocation: Invocation) -> frozenset[str]:
    """What the invocation's override may let go on: what it was given for, if it is on record ever since."""
    if invocation.override is None or invocation.rows is None:
        return frozenset()
    return frozenset(one.what for one in invocation.override.held & set(invocation.rows.held.back))
