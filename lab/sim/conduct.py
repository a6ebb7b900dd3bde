"""What an invocation must do with its messages and its troubles, as one sees who hears all of its calls."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

from lab.sim import promised, timeline
from lab.sim.counting import Counting, is_mending
from lab.sim.faults import Call
from lab.sim.gate import Heard, Invocation, first, time_of
from lab.sim.messages import Event, Fate
from lab.sim.rules import SKEW_S, Rule, Rules
from spotrelay.core.ports import Conflict, OtherControlPlane, PortError
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Changes, Removal, Rows
from spotrelay.core.spec import ServiceSpec

SOON_S = 5.0
"""Within so long the next tick is due while anything moves: docs/reliability.md, "seconds"."""

LOOKS_WITHIN_S = 3.0
"""After such a moment somebody must look: clocks are a second apart, and delays are whole seconds."""

SWALLOWED = frozenset({Call.LAUNCH, Call.COOL, Call.FORGIVE, Call.PROBE, Call.SET_ASIDE})
"""What may fail without bringing the message back: the tick takes it up, or nothing depends on it."""

TOUCHES = frozenset(
    {
        Call.COMMIT,
        Call.LAUNCH,
        Call.TERMINATE,
        Call.REGISTER,
        Call.DEREGISTER,
        Call.KEEP_DOCUMENT,
        Call.FORGET,
        Call.COOL,
        Call.FORGIVE,
    }
)
"""Calls that change something of a service."""

SPREAD = frozenset({Call.NAMES, Call.SERVICES, Call.SCHEDULE})
"""What the schedule's event leads to: a tick for each service, and no more."""

SCHEDULED = "aws.events"
"""Whose event that is."""


@dataclass(slots=True)
class Conduct:
    """Looks at each invocation when it has ended, unless it was killed."""

    rules: Rules
    counting: Counting
    fates: dict[str, Fate] = field(default_factory=dict)
    """By body: what must become of a message that is none of the usual ones."""

    def signals(self, invocation: Invocation, messages: Mapping[str, str], again: Collection[str]) -> None:
        """A batch of events is dealt with; `again` are the messages to be delivered again."""
        of_fate: dict[Fate, list[str]] = {fate: [] for fate in Fate}
        for id_, body in messages.items():
            of_fate[self.fates.get(body, Fate.HANDLED)].append(id_)
        malformed, ignored = of_fate[Fate.SET_ASIDE], of_fate[Fate.IGNORED]
        events = {id_: Event.of(messages[id_]) for id_ in of_fate[Fate.HANDLED]}
        kept = self._set_aside(invocation, [messages[id_] for id_ in malformed])
        failed = Counter(messages[id_] for id_ in malformed if id_ in again)
        if failed != kept:
            self.rules.broken(
                Rule.AGAIN, f"{invocation.name}: {sorted(failed)} come again, not {sorted(kept)}"
            )
        self._delivered_again(ignored, again, must=False)
        self._again(invocation, events, again)
        for section in _sections(invocation.heard):
            self._section(invocation, section)
            self._troubled(invocation, section)
        self.counting.check(
            invocation, events=list(events.values()), ignored=len(ignored), malformed=len(malformed)
        )

    def tick(self, invocation: Invocation, body: str, error: Exception | None) -> None:
        """A message of the tick queue is dealt with, or failed."""
        heard = invocation.heard
        if self.fates.get(body) is Fate.SET_ASIDE:
            kept = self._set_aside(invocation, [body])
            if (error is not None) != bool(kept):
                self.rules.broken(Rule.AGAIN, f"{invocation.name}: a message that nobody can read: {error!r}")
            if len(heard) > 1:
                self.rules.broken(Rule.ASKED, f"{invocation.name}: {body[:80]} is taken for a tick")
            self.counting.check(invocation, malformed=1, is_whole=error is None)
            return
        asked = _Asked.of(body)
        is_tick = asked.kind in ("tick", "override")
        may = any(_is_trouble(h) for h in invocation.errors)
        must = any(_is_needed(h, is_tick=is_tick) for h in invocation.errors)
        if must and error is None:
            self.rules.broken(Rule.AGAIN, f"{invocation.name}: calls failed, and it is done with")
        if error is not None and not may:
            self.rules.broken(Rule.AGAIN, f"{invocation.name}: no call failed, and it raises {error!r}")
        if error is None:
            self._asked(invocation, asked)
        self._section(invocation, heard)
        self._troubled(invocation, heard)
        self._missing(invocation, heard)
        self.counting.check(invocation, is_whole=error is None, is_vouched_for=asked.kind == "override")

    # Messages.

    def _set_aside(self, invocation: Invocation, bodies: Sequence[str]) -> Counter[str]:
        """Those that should have been set aside; which of them couldn't be."""
        calls = [h for h in invocation.heard if h.call is Call.SET_ASIDE]
        tried = [h.about for h in calls if isinstance(h.about, tuple)]
        if sorted(body for _, body in tried) != sorted(bodies):
            self.rules.broken(
                Rule.SET_ASIDE, f"{invocation.name}: {len(tried)} of {len(bodies)} are set aside"
            )
        if not all(why for why, _ in tried):
            self.rules.broken(Rule.SET_ASIDE, f"{invocation.name}: set aside without a reason")
        return Counter(h.about[1] for h in calls if h.is_error and isinstance(h.about, tuple))

    def _delivered_again(self, ids: Sequence[str], again: Collection[str], *, must: bool) -> None:
        for id_ in ids:
            if (id_ in again) != must:
                self.rules.broken(Rule.AGAIN, f"{id_}: {'done with' if must else 'delivered again'}")

    def _again(self, invocation: Invocation, events: Mapping[str, Event], again: Collection[str]) -> None:
        """Do those signals come again of which some work failed, and no others?"""
        heard = invocation.heard
        located = first(heard, Call.LOCATE)
        if not isinstance(located, dict):
            self._delivered_again(list(events), again, must=bool(heard))
            return
        of: dict[str, list[str]] = {}
        for id_, event in events.items():
            if event.instance_id in located:
                of.setdefault(located[event.instance_id][0], []).append(id_)
            else:
                self._delivered_again([id_], again, must=False)
        sections = {section[0].about: section for section in _sections(heard)}
        for service, ids in of.items():
            section = sections.get(service)
            if section is None:
                self.rules.broken(Rule.AGAIN, f"{invocation.name}: nobody looks after {ids}, of {service}")
            elif any(_is_needed(h, is_tick=True, is_signals=True) for h in section):
                self._delivered_again(ids, again, must=True)
            elif not any(_is_trouble(h) for h in section):
                self._delivered_again(ids, again, must=False)

    def _asked(self, invocation: Invocation, asked: _Asked) -> None:
        """A message of the tick queue is done with: was it done what it asks for?"""
        heard = invocation.heard
        calls = [h.call for h in heard]
        if asked.kind == SCHEDULED:
            told = [h.message["service"] for h in heard if h.call is Call.SCHEDULE]
            known = {s for h in heard if h.call in (Call.NAMES, Call.SERVICES) for s in _texts(h.answer)}
            is_done = sorted(told) == sorted(known) and set(calls) <= SPREAD
        elif asked.kind == "removed":
            noted = [h.about for h in heard if h.call is Call.NOTE_REMOVAL]
            told = [h.message["service"] for h in heard if h.call is Call.SCHEDULE]
            is_done = (
                told == [asked.service]
                and len(calls) == 1 + len(told)
                and any(isinstance(r, Removal) and r.told_at for r in noted)
            )
        elif asked.kind == "leave":
            # A tick that hangs holds the lease, and what must leave can't wait for it.
            is_done = Call.ACQUIRE not in calls and Call.GET in calls
            is_done = is_done and (Call.LOAD in calls or _spec(heard) is None)
        else:
            is_free = any(h.call is Call.ACQUIRE and h.answer is True for h in heard)
            done = (Call.LOAD, Call.GET, Call.RELEASE)
            # Another tick comes by itself, and a person's word wouldn't.
            repeated = [asked] if asked.kind == "override" else []
            sent = [h.about for h in heard if h.call is Call.SCHEDULE]
            is_left = calls == [Call.ACQUIRE, *(Call.SCHEDULE for _ in repeated)]
            is_left = is_left and [_Asked.of(a[0]) for a in sent if isinstance(a, tuple)] == repeated
            is_done = all(call in calls for call in done) if is_free else is_left
            is_done = is_done and invocation.ticks_for in ("", asked.service)
        if not is_done:
            self.rules.broken(Rule.ASKED, f"{invocation.name}: {asked} leads to {calls}")

    # Steps.

    def _section(self, invocation: Invocation, heard: Sequence[Heard]) -> None:
        """What was done for one service."""
        self._announced(invocation, heard)
        if not any(h.call is Call.COMMIT for h in heard):
            return
        known: dict[int, Replica] = {}
        opened: set[str] = set()
        spec = _spec(heard)
        for position, one in enumerate(heard):
            if isinstance(one.answer, Rows):
                known |= one.answer.replicas
            if one.call is not Call.COMMIT or one.is_error or not isinstance(one.about, Changes):
                continue
            changes, after = one.about, heard[position + 1 :]
            is_outcome = bool(opened & set(changes.close_intents))
            if changes.open_intent:
                opened.add(changes.open_intent.id)
                if not _is_launched(changes.open_intent.id, after):
                    self._skipped(invocation, f"{changes.open_intent.id} isn't launched")
            if spec is not None:
                for row in changes.update:
                    self._row(invocation, row, known.get(row.id), spec, one.at, after)
            if not (is_outcome or (is_mending(changes) and invocation.observed_at is None)):
                self._next(invocation, changes, after, one.at)
            known |= {row.id: row for row in changes.stored}

    def _row(
        self,
        invocation: Invocation,
        row: Replica,
        before: Replica | None,
        spec: ServiceSpec,
        since: float,
        after: Sequence[Heard],
    ) -> None:
        """A row was written: does what follows from it follow?"""
        instance_id = row.instance_id
        if before is None or instance_id is None:
            return
        if before.state.is_active and not row.state.is_active:
            calls = [
                h.call for h in after if h.call is Call.LAUNCH or _is_about(h, Call.DEREGISTER, instance_id)
            ]
            if Call.DEREGISTER not in calls:
                self._skipped(invocation, f"{row} is {row.state}, and isn't taken out of rotation")
            elif calls[0] is Call.LAUNCH:
                self.rules.broken(Rule.OUT_AT_ONCE, f"{row} waits for a launch")
        if row.state is ReplicaState.FAILED and not _any_about(after, Call.TERMINATE, instance_id):
            self._skipped(invocation, f"{row} has failed, and isn't terminated")
        is_starting = row.state is ReplicaState.STARTING and before.state is not row.state
        is_to_enter = is_starting and spec.readiness_probe is None
        if is_to_enter and not _any_about(after, Call.REGISTER, instance_id):
            self._skipped(invocation, f"{row} starts, and isn't put into rotation")
        if row.warned_at and not before.warned_at and row.state is ReplicaState.READY:
            self._called_back(invocation, row, row.warned_at, spec, since, after)

    def _called_back(
        self,
        invocation: Invocation,
        row: Replica,
        warned_at: datetime,
        spec: ServiceSpec,
        since: float,
        after: Sequence[Heard],
    ) -> None:
        """A warned replica serves on: will somebody look when it must leave?"""
        calls = [h for h in after if h.call is Call.SCHEDULE_LEAVE]
        # One that fails is raised, and the message comes again. One that takes long comes late.
        if any(h.is_error for h in calls):
            return
        ends = [since, *(h.at for h in after)]
        sent = [
            (now, h.delay_s) for now, h in zip(ends, after, strict=False) if h.call is Call.SCHEDULE_LEAVE
        ]
        for due in promised.last_moments(spec, warned_at):
            # What is due already is looked at now.
            if not any(0 <= now + delay_s - max(due, now) <= LOOKS_WITHIN_S for now, delay_s in sent):
                self._skipped(invocation, f"{row}, warned {warned_at}, isn't looked at {due:.0f} s")

    def _next(self, invocation: Invocation, changes: Changes, after: Sequence[Heard], since: float) -> None:
        """Something was changed: does a tick follow within seconds?"""
        claims = ((time_of(h.about), h.at) for h in after if isinstance(h.about, datetime))
        if not any(due - invocation.skew_s <= at + SOON_S for due, at in claims):
            self.rules.broken(
                Rule.ANNOUNCED, f"{invocation.name}: nothing follows {changes.service} at {since}"
            )

    def _missing(self, invocation: Invocation, heard: Sequence[Heard]) -> None:
        """A tick found no document: is that believed only when it is certain?"""
        rows = first(heard, Call.LOAD)
        is_missing = any(h.call is Call.GET and h.answer is None for h in heard)
        if not (is_missing and isinstance(rows, Rows)):
            return
        told_at = rows.removal.told_at
        if told_at is None:
            is_left_alone = rows.document is None or invocation.is_vouched_for
        else:
            told_for_s = time_of(told_at) + promised.ABSENT_S - heard[-1].at
            is_left_alone = rows.removal.absent + 1 <= promised.ABSENT_TICKS or told_for_s > SKEW_S
        if is_left_alone and (touched := [h.call for h in heard if h.call in TOUCHES]):
            self.rules.broken(Rule.REMOVAL, f"{invocation.name}: {touched} by {rows.removal}")

    def _troubled(self, invocation: Invocation, heard: Sequence[Heard]) -> None:
        """What must not be done any more once something has failed."""
        if invocation.errors:
            self._kept_off(invocation, heard)
            self._together(invocation, heard)

    def _kept_off(self, invocation: Invocation, heard: Sequence[Heard]) -> None:
        """Another control plane is in charge: is everything left alone?"""
        told = next((i for i, h in enumerate(heard) if isinstance(h.answer, OtherControlPlane)), len(heard))
        if touched := [h.call for h in heard[told:] if h.call in TOUCHES]:
            self.rules.broken(Rule.OTHERS, f"{invocation.name} goes on to {touched}")

    def _together(self, invocation: Invocation, heard: Sequence[Heard]) -> None:
        """A commit was lost to another decider: is nothing more written of what was decided with it?"""
        lost: Changes | None = None
        opened: set[str] = set()
        for one in heard:
            if isinstance(one.answer, Rows):
                lost = None
            if one.call is not Call.COMMIT or not isinstance(one.about, Changes):
                continue
            is_outcome = bool(opened & set(one.about.close_intents))
            if one.about.open_intent:
                opened.add(one.about.open_intent.id)
            if lost is not None and not is_outcome:
                self.rules.broken(
                    Rule.TOGETHER,
                    f"{invocation.name}: {timeline.told(one.about)} after {timeline.told(lost)}",
                )
            if one.is_error and not is_outcome:
                lost = one.about

    def _announced(self, invocation: Invocation, heard: Sequence[Heard]) -> None:
        """Ticks were claimed: are they sent, for that time?"""
        for position, claim in enumerate(heard[:-1]):
            if claim.call is Call.CLAIM_TICK and claim.answer is True:
                self._sent(invocation, heard[position - 1], claim, heard[position + 1])

    def _sent(self, invocation: Invocation, before: Heard, claim: Heard, told: Heard) -> None:
        due = claim.about
        assert isinstance(due, datetime)  # noqa: S101 - it is what a claim is about
        due_s = time_of(due) - invocation.skew_s
        is_sent = told.call is Call.SCHEDULE and told.message["due"] == due.isoformat()
        if not is_sent or not due_s - claim.at - 0.1 <= told.delay_s <= due_s - before.at + 0.1:
            self.rules.broken(Rule.ANNOUNCED, f"{invocation.name}: the tick of {due} is claimed and not sent")

    def _skipped(self, invocation: Invocation, what: str) -> None:
        self.rules.broken(Rule.STEPS, f"{invocation.name}: {what}")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a message of the tick queue asks for."""

    kind: str
    service: str | None

    @classmethod
    def of(cls, body: str) -> _Asked:
        message = json.loads(body)
        match message.get("source"):
            case "aws.events":
                return cls(SCHEDULED, None)
            case "aws.ssm":
                detail = message["detail"]
                kind = "removed" if detail["operation"] == "Delete" else "tick"
                return cls(kind, detail["name"].rpartition("/")[2])
            case _:
                return cls(message["kind"], message["service"])


def _sections(heard: Sequence[Heard]) -> Iterator[Sequence[Heard]]:
    """What a batch of signals led to, by service: each begins with its document."""
    begins = [i for i, h in enumerate(heard) if h.call is Call.GET]
    for start, end in pairwise([*begins, len(heard)]):
        yield heard[start:end]


def _spec(heard: Sequence[Heard]) -> ServiceSpec | None:
    """The document that was gone by, if there was any."""
    rows = first(heard, Call.LOAD)
    found = (h.answer for h in heard if h.call in (Call.GET, Call.DOCUMENT))
    spec = next((s for s in found if isinstance(s, ServiceSpec)), None)
    if any(h.call is Call.ACQUIRE for h in heard):  # a tick
        health = next((h.answer for h in heard if h.call is Call.HEALTH and not h.is_error), None)
        is_removed = spec is None and isinstance(rows, Rows) and rows.removal.told_at is not None
        if health is None or (is_removed and not health):
            return None  # there is nothing to leave
        return spec or (rows.document if isinstance(rows, Rows) else None)
    return spec


def _is_trouble(heard: Heard) -> bool:
    """Whether a call failed that may be needed."""
    return isinstance(heard.answer, PortError) and heard.call not in SWALLOWED


def _is_needed(heard: Heard, *, is_tick: bool, is_signals: bool = False) -> bool:
    """Whether a call failed without which the message isn't done with."""
    if not _is_trouble(heard):
        return False
    if heard.call is Call.COMMIT and isinstance(heard.answer, Conflict):
        return is_signals and is_mending(heard.about)
    if is_tick and heard.call is Call.SCHEDULE:
        # A tick for fallbacks would only make them come sooner.
        return heard.message["kind"] == "override" or heard.message["due"] is not None
    return True


def _is_launched(intent_id: str, after: Sequence[Heard]) -> bool:
    """Whether a launch is made, or given up, or couldn't be because the table doesn't answer."""
    for heard in after:
        about = heard.about
        if heard.call is Call.LAUNCH and getattr(about, "launch_id", None) == intent_id:
            return True
        if isinstance(about, Changes) and (intent_id in about.close_intents or heard.is_error):
            return True
        if heard.call is Call.RECALL and heard.is_error:
            return True
    return False


def _is_about(heard: Heard, call: Call, instance_id: str) -> bool:
    return heard.call is call and isinstance(heard.about, Collection) and instance_id in heard.about


def _any_about(heard: Sequence[Heard], call: Call, instance_id: str) -> bool:
    return any(_is_about(h, call, instance_id) for h in heard)


def _texts(answer: object) -> Sequence[str]:
    return answer if isinstance(answer, list | tuple) else ()
