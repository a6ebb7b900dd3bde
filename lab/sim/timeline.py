"""A run's timeline, as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from lab.sim.faults import Call
from spotrelay.operator.look.decisions import sentence
from spotrelay.plane.core.answers import Answers
from spotrelay.plane.core.instances import Instance
from spotrelay.plane.core.pools import Cooldown
from spotrelay.plane.core.ports import LaunchRequest, LaunchResult
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import Changes, LaunchIntent, Rows
from spotrelay.plane.core.spec import ServiceSpec

MAX_TEXT = 220
"""Longer texts are cut."""


QUIET = frozenset({"CloseIntent", "LookAgain", "surveyed", "told"})
"""Records that tell nothing new of the day: what they follow from is told."""


class Timeline:
    """Lines of text, each with its time and its invocation; and the day's story, in sentences."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.story: list[str] = []

    def tell(self, now: float, what: str) -> None:
        """Add to the story what has happened; the same twice in a row is told once."""
        if not self.story or self.story[-1].partition("  ")[2] != what:
            minutes, seconds = divmod(int(now), 60)
            self.story.append(f"{minutes:3}:{seconds:02}  {what}")

    def record(self, now: float, event: str, facts: Mapping[str, Any]) -> None:
        """Add to the story what the controller logs. That all replicas answer isn't worth a line."""
        is_calm = event == "probed" and not (facts["silent"] or facts["refusing"] or facts["crashing"])
        if event not in QUIET and not is_calm:
            self.tell(now, sentence({"message": event, **facts}))

    def add(self, now: float, who: str, call: Call | None, about: object, result: object) -> None:
        """Add a line."""
        parts = [call.value if call else "", describe(about)]
        done = " ".join(part for part in parts if part)
        outcome = describe(result)
        text = f"{done} → {outcome}" if done and outcome else done or outcome
        self.lines.append(f"{now:9.3f}  {who:<14} {text[:MAX_TEXT]}")


def describe(what: object) -> str:
    """A value in few words."""
    for kind, words in _WORDS.items():
        if isinstance(what, kind):
            return words(what)
    return "" if what is None else str(what)


def _rows(rows: Rows) -> str:
    replicas = ", ".join(map(_replica, rows.replicas.values()))
    return f"highest {rows.highest_id}: {replicas}; open: {describe(list(rows.intents))}"


def _changes(changes: Changes) -> str:
    parts = [f"+{_replica(r)}" for r in changes.create] + [_replica(r) for r in changes.update]
    parts += [f"open {describe(changes.open_intent)}"] if changes.open_intent else []
    parts += [f"close {i}" for i in changes.close_intents]
    return ", ".join(parts) or "nothing"


def _launch(request: LaunchRequest) -> str:
    return f"{request.launch_id}: {request.count} {request.purchase_option} from {len(request.pools)} pools"


def _launched(result: LaunchResult) -> str:
    got = ", ".join(f"{i.id} in {i.offering.pool}" for i in result.instances)
    return f"{got or 'nothing'}, {len(result.refusals)} refusals"


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


_WORDS: dict[type | tuple[type, ...], Callable[[Any], str]] = {
    Replica: _replica,
    Rows: _rows,
    Changes: _changes,
    LaunchIntent: lambda intent: f"{intent.id} for {describe(intent.replica_ids)}",
    LaunchRequest: _launch,
    LaunchResult: _launched,
    Instance: lambda instance: f"{instance.id} {instance.state}",
    Answers: lambda answers: describe(
        {"answering": answers.answering, "refusing": answers.refusing, "work": answers.work}
    ),
    Cooldown: lambda cooldown: str(cooldown.scope),
    ServiceSpec: lambda spec: f"{spec.service} v{spec.version}, {spec.replicas} replicas",
    Enum: lambda member: str(member.value),
    Mapping: lambda mapping: (
        "{" + ", ".join(f"{describe(k)}: {describe(v)}" for k, v in mapping.items()) + "}"
    ),
    (set, frozenset): lambda members: "{" + ", ".join(sorted(map(describe, members))) + "}",
    (list, tuple): lambda members: "[" + ", ".join(map(describe, members)) + "]",
}
"""By type: the text of a value."""
