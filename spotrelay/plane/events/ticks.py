"""What the tick queue carries: a service to look at, and what for."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from spotrelay.plane.core.held import HeldBack, Override, aware
from spotrelay.plane.core.names import SERVICE_NAME


class MalformedTickError(ValueError):
    """A message on the tick queue that isn't a tick."""


class TickKind(StrEnum):
    """What a message of the tick queue asks for."""

    TICK = "tick"
    """Compare what is with what should be."""
    LEAVE = "leave"
    """Look who of the warned replicas must leave the rotation by now."""
    REMOVED = "removed"
    """Put on record that the service's stack was removed, and tick."""
    OVERRIDE = "override"
    """Tick, and carry out what a person was shown to be held back, if that is what is held back."""


@dataclass(frozen=True, slots=True)
class Tick:
    """One service's tick, or (None) the schedule's, which is every service's.

    It is for now, whatever `due` says: that is the announced time that it serves, if any.
    """

    service: str | None
    due: datetime | None = None
    kind: TickKind = TickKind.TICK
    override: Override = field(default_factory=Override)
    """What an override is given for."""
    announced: tuple[tuple[str, str], ...] = ()
    """Instance IDs, each with what EC2 announces for it: see `ports.Announcer`."""

    def to_json(self) -> str:
        """The message's body."""
        due = self.due and self.due.isoformat()
        body: dict[str, Any] = {"service": self.service, "due": due, "kind": self.kind.value}
        if self.override.given_at is not None:
            held = sorted(self.override.held, key=lambda held: held.what)
            body["given_at"] = self.override.given_at.isoformat()
            body["held"] = [one.to_values() for one in held]
        if self.override.tries:
            body["tries"] = self.override.tries
        if self.announced:
            body["announced"] = dict(self.announced)
        return json.dumps(body)


# {"service": "llama3", "due": "2026-11-21T07:00:03.000000+00:00", "kind": "tick"}; due may be null, and due
#  and kind missing; of an override also
#  {"given_at": "2026-11-24T07:00:00+00:00", "held": [{"what": "…", "why": "…", "then": "…", "since": "…"}]}
#  and, once it has come again, "tries"
# {"service": "llama3", "due": null, "kind": "tick", "announced": {"i-0123456789abcdef0": "instance-stop, …"}}
# {"version": "0", "id": "…", "detail-type": "Scheduled Event", "source": "aws.events", …, "detail": {}}
# {…, "detail-type": "Parameter Store Change", "source": "aws.ssm", …,
#  "detail": {"operation": "Update", "name": "/spotrelay/services/llama3", "type": "String"}}
def parse_tick(body: str) -> Tick:
    """The tick in a message's body.

    Raises:
        MalformedTickError: not JSON, no service of a name that one can have, or a time that is none.
    """
    try:
        message = json.loads(body)
        match message.get("source"):
            case "aws.events":
                return Tick(None)
            case "aws.ssm":
                detail = message["detail"]
                is_removed = detail.get("operation") == "Delete"
                kind = TickKind.REMOVED if is_removed else TickKind.TICK
                tick = Tick(detail["name"].rpartition("/")[2], kind=kind)
            case _:
                due = message.get("due")
                at = None if due is None else aware(due)
                kind = TickKind(message.get("kind", TickKind.TICK))
                override = _override(message) if kind is TickKind.OVERRIDE else Override()
                announced = tuple((str(id_), str(what)) for id_, what in message.get("announced", {}).items())
                tick = Tick(message["service"], at, kind, override, announced)
    # RecursionError: JSON as deep as Python's stack.
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MalformedTickError(f"not a tick ({error!r}): {body[:200]}") from error
    # The name becomes part of keys and of a parameter's name, which AWS would refuse at each attempt.
    if not isinstance(tick.service, str) or not re.fullmatch(SERVICE_NAME, tick.service):
        raise MalformedTickError(f"a tick names its service, this one doesn't: {body[:200]}")
    return tick


def _override(message: dict[str, Any]) -> Override:
    """What an override is given for. One of before 2026-11-24 doesn't say it."""
    tries = message.get("tries", 0)
    if type(tries) is not int or tries < 0:
        raise ValueError(f"a number of tries is expected: {tries!r}")
    if "held" not in message:
        return Override(tries=tries)
    held = frozenset(HeldBack.of(values) for values in message["held"])
    return Override(held, aware(message["given_at"]), tries)
