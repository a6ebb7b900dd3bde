"""The rules about messages, and about the steps of a decision when calls fail.

All of an invocation's calls and their answers are on record; that is what it is judged by.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise

from lab.sim import timeline
from lab.sim.faults import Call
from lab.sim.gate import CallRecord, Invocation, first, time_of
from lab.sim.odd_messages import Fate, SimSignal
from lab.sim.rules import Rule, limits
from lab.sim.rules.history import History
from lab.sim.rules.limits import SKEW_S
from lab.sim.rules.metrics import MetricChecker
from lab.sim.rules.records import TriedCommit, after_release, commits, has, is_mending, knows_no_document
from lab.sim.rules.standby_rows import got_instance_of_another, was_refused
from lab.sim.rules.word import OF_DOCUMENT, let_go
from spotrelay.plane.core.ports import Conflict, OtherControlPlane, PortError
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes, Removal, Rows
from spotrelay.plane.core.spec import ServiceSpec

NEXT_TICK_S = 5.0
"""After a change, the next tick is due within this time: docs/reliability.md, "seconds"."""

LEAVE_CHECK_S = 3.0
"""How late a check of a warned replica may be: clocks are a second apart, and delays are whole seconds."""

LEAVE_MARGIN_S = 0.4
"""How late it must be at least: the moment must have passed by a clock that may be half a second off."""

OPTIONAL_CALLS = frozenset(
    {
        Call.GET,
        Call.LAUNCH,
        Call.COOL,
        Call.FORGIVE,
        Call.PROBE,
        Call.OBSERVE_LOAD,
        Call.ONGOING,
        Call.NOTE_ONGOING,
        Call.SET_ASIDE,
        Call.ENDED,
        Call.CONSOLE,
        Call.NOTE_HELD,
        Call.NOTE_STARTS,
        Call.NOTE_TOLD,
        Call.PUBLISH,
    }
)
"""A message is done with even if these fail: a tick repeats them, or nothing depends on them."""

CHANGING_CALLS = frozenset(
    {
        Call.COMMIT,
        Call.LAUNCH,
        Call.TERMINATE,
        Call.START,
        Call.STOP,
        Call.REGISTER,
        Call.DEREGISTER,
        Call.KEEP_DOCUMENT,
        Call.FORGET,
        Call.COOL,
        Call.FORGIVE,
    }
)
"""Calls that change a service."""

FAN_OUT_CALLS = frozenset({Call.NAMES, Call.SERVICES, Call.SCHEDULE})
"""The calls for the schedule's event: it leads to a tick for each service, and to nothing else."""

SCHEDULE_SOURCE = "aws.events"
"""The source of that event."""


@dataclass(slots=True)
class MessageChecker:
    """Checks each invocation at its end, unless it was killed."""

    history: History
    metric_checker: MetricChecker
    fates: dict[str, Fate] = field(default_factory=dict)
    """By body: what must happen to an unusual message."""

    def signals(self, invocation: Invocation, messages: Mapping[str, str], again: Collection[str]) -> None:
        """Check a finished batch of events; `again` are the messages to be redelivered."""
        of_fate: dict[Fate, list[str]] = {fate: [] for fate in Fate}
        for id_, body in messages.items():
            of_fate[self.fates.get(body, Fate.HANDLED)].append(id_)
        malformed, ignored = of_fate[Fate.SET_ASIDE], of_fate[Fate.IGNORED]
        events = {id_: SimSignal.of(messages[id_]) for id_ in of_fate[Fate.HANDLED]}
        failures = self._check_set_aside(invocation, [messages[id_] for id_ in malformed])
        redeliveries = Counter(messages[id_] for id_ in malformed if id_ in again)
        if redeliveries != failures:
            what = f"redelivered {sorted(redeliveries)}, not {sorted(failures)}"
            self._report(invocation, Rule.REDELIVERED_ON_FAILURE, what)
        self._expect_redelivery(ignored, again, must=False)
        self._check_redelivery(invocation, events, again)
        for section in _sections(invocation.calls):
            self._check_section(invocation, section)
            self._check_after_errors(invocation, section)
        self.metric_checker.check(
            invocation, events=list(events.values()), ignored=len(ignored), malformed=len(malformed)
        )

    def tick(self, invocation: Invocation, body: str, error: Exception | None) -> None:
        """Check a message of the tick queue that was handled, or failed."""
        records = invocation.calls
        if self.fates.get(body) is Fate.SET_ASIDE:
            failures = self._check_set_aside(invocation, [body])
            if (error is not None) != bool(failures):
                self._report(invocation, Rule.REDELIVERED_ON_FAILURE, f"a malformed message: {error!r}")
            if len(records) > 1:
                self._report(invocation, Rule.TICK_MESSAGE_OBEYED, f"{body[:80]} is handled as a tick")
            self.metric_checker.check(invocation, malformed_ticks=1, is_whole=error is None)
            return
        message = _TickMessage.of(body)
        is_tick = message.kind in ("tick", "override")
        asked_to_count = after_release(records, Call.RECALL)
        # A tick asks about all on Spot and does without; a call asks about the last one at its last moment.
        # And where nothing is shown it asks by ID, and goes on with the zones that answer.
        has_asked = has(records, Call.LOOK_UP)
        shown = {Call.OBSERVE, Call.LOOK_UP} if has_asked else set()
        does_without = {Call.WARNED, *shown} if is_tick else set[Call]()
        errors = [c for c in invocation.errors if c is not asked_to_count and c.call not in does_without]
        is_lost = knows_no_document(records)
        may = is_lost or any(_is_failure(c) for c in errors)
        must = is_lost or any(_is_needed(c, is_tick=is_tick) for c in errors)
        if must and error is None:
            self._report(invocation, Rule.REDELIVERED_ON_FAILURE, "calls failed, and its message is deleted")
        if error is not None and not may:
            self._report(invocation, Rule.REDELIVERED_ON_FAILURE, f"no call failed, and it raises {error!r}")
        if error is None:
            self._check_tick_message(invocation, message)
        self._check_section(invocation, records)
        self._check_after_errors(invocation, records)
        self._check_removal(invocation, records)
        self.metric_checker.check(invocation, is_whole=error is None)

    # Messages.

    def _check_set_aside(self, invocation: Invocation, bodies: Sequence[str]) -> Counter[str]:
        """Check that these were set aside; return those for which the call failed."""
        calls = [c for c in invocation.calls if c.call is Call.SET_ASIDE]
        tried = [c.about for c in calls if isinstance(c.about, tuple)]
        if sorted(body for _, body, _ in tried) != sorted(bodies):
            self._report(invocation, Rule.MALFORMED_SET_ASIDE, f"{len(tried)} of {len(bodies)} are set aside")
        if not all(why and source for why, _, source in tried):
            self._report(invocation, Rule.MALFORMED_SET_ASIDE, "set aside without a reason, or its queue")
        return Counter(c.about[1] for c in calls if c.is_error and isinstance(c.about, tuple))

    def _expect_redelivery(self, ids: Sequence[str], again: Collection[str], *, must: bool) -> None:
        for id_ in ids:
            if (id_ in again) != must:
                what = f"{id_}: {'deleted' if must else 'redelivered'}"
                self.history.report(Rule.REDELIVERED_ON_FAILURE, what)

    def _check_redelivery(
        self, invocation: Invocation, events: Mapping[str, SimSignal], again: Collection[str]
    ) -> None:
        """Are the signals redelivered for which a call failed, and no others?"""
        records = invocation.calls
        located = first(records, Call.LOCATE)
        if not isinstance(located, dict):
            self._expect_redelivery(list(events), again, must=bool(records))
            return
        of: dict[str, list[str]] = {}
        for id_, event in events.items():
            if event.instance_id in located:
                of.setdefault(located[event.instance_id][0], []).append(id_)
            else:
                self._expect_redelivery([id_], again, must=False)
        sections = {section[0].about: section for section in _sections(records)}
        for service, ids in of.items():
            section = sections.get(service)
            if section is None:
                self._report(invocation, Rule.REDELIVERED_ON_FAILURE, f"{ids}, of {service}, are not handled")
            elif knows_no_document(section) or any(
                _is_needed(c, is_tick=True, is_signals=True) for c in section
            ):
                self._expect_redelivery(ids, again, must=True)
            elif not any(_is_failure(c) for c in section):
                self._expect_redelivery(ids, again, must=False)

    def _check_tick_message(self, invocation: Invocation, message: _TickMessage) -> None:
        """A message of the tick queue is deleted: was done what it asks for?"""
        records = invocation.calls
        calls = [c.call for c in records]
        if message.kind == SCHEDULE_SOURCE:
            services = [c.message["service"] for c in records if c.call is Call.SCHEDULE]
            known = {s for c in records if c.call in (Call.NAMES, Call.SERVICES) for s in _texts(c.answer)}
            is_done = sorted(services) == sorted(known) and set(calls) <= FAN_OUT_CALLS
        elif message.kind == "removed":
            removals = _removals(records)
            services = [c.message["service"] for c in records if c.call is Call.SCHEDULE]
            is_done = (
                services == [message.service]
                and len(calls) == 1 + len(services)
                and any(isinstance(r, Removal) and r.told_at for r in removals)
            )
        elif message.kind == "leave":
            # A tick that hangs holds the lease, and what must leave can't wait for it.
            is_done = Call.ACQUIRE not in calls and Call.GET in calls
            is_done = is_done and (Call.LOAD in calls or _spec(records) is None)
        else:
            is_free = any(c.call is Call.ACQUIRE and c.answer is True for c in records)
            done = (Call.LOAD, Call.GET, Call.RELEASE)
            # A tick comes again by the schedule; an operator's override doesn't.
            is_repeated = message.kind == "override" and message.tries < limits.OVERRIDE_TRIES
            repeated = [replace(message, tries=message.tries + 1)] if is_repeated else []
            sent = [c.about for c in records if c.call is Call.SCHEDULE]
            is_left = calls == [Call.ACQUIRE, *(Call.SCHEDULE for _ in repeated)]
            is_left = is_left and [_TickMessage.of(a[0]) for a in sent if isinstance(a, tuple)] == repeated
            is_done = all(call in calls for call in done) if is_free else is_left
            is_done = is_done and invocation.tick_service in ("", message.service)
            # By the minute it counts what the service's pools and instances are, and by no other tick.
            if has(records, Call.HEALTH) and isinstance(first(records, Call.GET), ServiceSpec):
                is_appraised = after_release(records, Call.RECALL) is not None
                is_done = is_done and is_appraised is not message.is_announced
        if not is_done:
            self._report(invocation, Rule.TICK_MESSAGE_OBEYED, f"{message} leads to {calls}")

    # Steps.

    def _check_section(self, invocation: Invocation, records: Sequence[CallRecord]) -> None:
        """Check what was done for one service."""
        self._check_claims(invocation, records)
        spec = _spec(records)
        for tried in commits(records):
            if tried.record.is_error:
                continue
            changes, at, after = tried.changes, tried.record.at, records[tried.position + 1 :]
            if changes.open_intent and not _is_launched(changes.open_intent.id, after):
                self._report_step(invocation, f"{changes.open_intent.id} isn't launched")
            if spec is not None:
                self._check_heirs(invocation, changes, after)
                for row in changes.update:
                    before = tried.known.get((row.service, row.id))
                    self._check_row(invocation, row, before, spec, at, after)
            if not (tried.is_outcome or (is_mending(changes) and invocation.observed_at is None)):
                self._check_tick_follows(invocation, changes, after, at)

    def _check_row(
        self,
        invocation: Invocation,
        row: Replica,
        before: Replica | None,
        spec: ServiceSpec,
        since: float,
        after: Sequence[CallRecord],
    ) -> None:
        """A row was written: do the calls follow that it requires?"""
        instance_id = row.instance_id
        if before is None or instance_id is None or was_refused(before, row):
            return
        if before.state is ReplicaState.STARTING and row.state is ReplicaState.STANDBY:
            if not _any_about(after, Call.STOP, instance_id):
                self._report_step(invocation, f"{row} stands by, and isn't stopped")
        elif before.state.is_active and not row.state.is_active:
            calls = [
                c.call for c in after if c.call is Call.LAUNCH or _is_about(c, Call.DEREGISTER, instance_id)
            ]
            if Call.DEREGISTER not in calls:
                self._report_step(invocation, f"{row} is {row.state}, and isn't deregistered")
            elif calls[0] is Call.LAUNCH:
                self.history.report(Rule.DEREGISTERED_BEFORE_LAUNCH, f"{row} is deregistered after a launch")
        has_failed = row.state is ReplicaState.FAILED and row.slots == 1  # of several the last one ends it
        # What couldn't be taken out by a call that hung may answer by now: it waits. Where the call failed at
        # once, `test_what_never_became_ready_ends_though_the_load_balancer_does_not_answer` has it.
        is_out = any(_is_about(c, Call.DEREGISTER, instance_id) and not c.is_error for c in after)
        if has_failed and is_out and not _any_about(after, Call.TERMINATE, instance_id):
            self._report_step(invocation, f"{row} has failed, and isn't terminated")
        is_starting = row.state is ReplicaState.STARTING and before.state is not row.state
        # A signal doesn't know what an old version listens on, if the row is of before rows said it.
        is_known = row.port is not None or row.version == spec.version or invocation.observed_at is not None
        is_to_enter = is_starting and spec.readiness_probe is None and is_known
        if is_to_enter and not _any_about(after, Call.REGISTER, instance_id):
            self._report_step(invocation, f"{row} starts, and isn't registered")
        if row.warned_at and not before.warned_at and row.state is ReplicaState.READY:
            self._check_leave_schedule(invocation, row, row.warned_at, spec, since, after)

    def _check_heirs(self, invocation: Invocation, changes: Changes, after: Sequence[CallRecord]) -> None:
        """Rows got the instances of others: are these started, or stopped?"""
        for row in filter(got_instance_of_another, changes.create):
            call = Call.STOP if row.state is ReplicaState.STANDBY else Call.START
            if not _any_about(after, call, row.instance_id or ""):
                self._report_step(invocation, f"{row} is {row.state}, and there is no {call}")

    def _check_leave_schedule(
        self,
        invocation: Invocation,
        row: Replica,
        warned_at: datetime,
        spec: ServiceSpec,
        since: float,
        after: Sequence[CallRecord],
    ) -> None:
        """A warned replica serves on: is a check scheduled for when it must leave?"""
        calls = [c for c in after if c.call is Call.SCHEDULE_LEAVE]
        # A failed one makes the message come again.
        if any(c.is_error for c in calls):
            return
        begins = [since, *(c.at for c in after)]
        checks = [
            (begin, c.at, c.delay_s)
            for begin, c in zip(begins, after, strict=False)
            if c.call is Call.SCHEDULE_LEAVE
        ]
        for due in limits.last_moments(spec, warned_at):
            # If the moment has passed, the check is due now.
            if not any(
                0 <= begin + delay_s - max(due, begin) <= LEAVE_CHECK_S
                and end + delay_s >= due + LEAVE_MARGIN_S
                for begin, end, delay_s in checks
            ):
                what = f"{row}, warned {warned_at}, isn't checked at {due:.0f} s: {checks}"
                self._report(invocation, Rule.LAST_MOMENT_CHECKED, what)

    def _check_tick_follows(
        self, invocation: Invocation, changes: Changes, after: Sequence[CallRecord], since: float
    ) -> None:
        """A service was changed: does a tick follow within seconds?"""
        claims = ((time_of(c.about), c.at) for c in after if isinstance(c.about, datetime))
        if not any(due - invocation.skew_s <= at + NEXT_TICK_S for due, at in claims):
            self._report(invocation, Rule.TICK_AFTER_CHANGE, f"nothing follows {changes.service} at {since}")

    def _check_removal(self, invocation: Invocation, records: Sequence[CallRecord]) -> None:
        """A tick found no document: is the service removed only if that is certain?"""
        rows = first(records, Call.LOAD)
        needless = isinstance(rows, Rows) and rows.removal == Removal() and Removal() in _removals(records)
        if needless:
            self._report(invocation, Rule.TICK_MESSAGE_OBEYED, "it takes back a removal that nobody told")
        is_missing = any(c.call is Call.GET and c.answer is None for c in records)
        if not (is_missing and isinstance(rows, Rows)):
            return
        told_at = rows.removal.told_at
        if told_at is None:
            is_left_alone = rows.document is None or OF_DOCUMENT in let_go(invocation)
        else:
            left_s = time_of(told_at) + limits.ABSENT_S - records[-1].at
            is_left_alone = rows.removal.absent + 1 <= limits.ABSENT_TICKS or left_s > SKEW_S
        if is_left_alone and (touched := [c.call for c in records if c.call in CHANGING_CALLS]):
            self._report(invocation, Rule.REMOVAL_NEEDS_TWO_SIGNS, f"{touched} by {rows.removal}")

    def _check_after_errors(self, invocation: Invocation, records: Sequence[CallRecord]) -> None:
        """Check what must not be done after a call failed."""
        if invocation.errors:
            self._check_other_control_plane(invocation, records)
            self._check_writes_after_conflict(invocation, records)

    def _check_other_control_plane(self, invocation: Invocation, records: Sequence[CallRecord]) -> None:
        """Another control plane manages the services: is nothing changed?"""
        first_error = next(
            (i for i, c in enumerate(records) if isinstance(c.answer, OtherControlPlane)), len(records)
        )
        if touched := [c.call for c in records[first_error:] if c.call in CHANGING_CALLS]:
            self._report(invocation, Rule.OTHER_CONTROL_PLANE_RESPECTED, f"goes on to {touched}")

    def _check_writes_after_conflict(self, invocation: Invocation, records: Sequence[CallRecord]) -> None:
        """A commit lost a race: is nothing else of the same decision written?"""
        lost: TriedCommit | None = None
        for tried in commits(records):
            if lost and any(isinstance(c.answer, Rows) for c in records[lost.position : tried.position]):
                lost = None  # it was decided again
            if tried.is_outcome:
                continue
            if lost is not None:
                what = f"{timeline.describe(tried.changes)} after {timeline.describe(lost.changes)}"
                self._report(invocation, Rule.NO_WRITE_AFTER_CONFLICT, what)
            if tried.record.is_error:
                lost = tried

    def _check_claims(self, invocation: Invocation, records: Sequence[CallRecord]) -> None:
        """Are ticks that were claimed sent, for the claimed time?"""
        for position, claim in enumerate(records[:-1]):
            if claim.call is Call.CLAIM_TICK and claim.answer is True:
                self._check_claim(invocation, records[position - 1], claim, records[position + 1])

    def _check_claim(
        self, invocation: Invocation, before: CallRecord, claim: CallRecord, message: CallRecord
    ) -> None:
        due = claim.about
        assert isinstance(due, datetime)  # noqa: S101 - it is what a claim is about
        due_s = time_of(due) - invocation.skew_s
        is_sent = message.call is Call.SCHEDULE and message.message["due"] == due.isoformat()
        if not is_sent or not due_s - claim.at - 0.1 <= message.delay_s <= due_s - before.at + 0.1:
            self._report(invocation, Rule.TICK_AFTER_CHANGE, f"the tick of {due} is claimed and not sent")

    def _report_step(self, invocation: Invocation, what: str) -> None:
        self._report(invocation, Rule.STEPS_INDEPENDENT, what)

    def _report(self, invocation: Invocation, rule: Rule, what: str) -> None:
        self.history.report(rule, f"{invocation.name}: {what}")


@dataclass(frozen=True, slots=True)
class _TickMessage:
    """What a message of the tick queue asks for."""

    kind: str
    service: str | None
    given_for: str = ""
    """What an override is given for."""
    is_announced: bool = False
    """Whether another tick asked for it."""
    tries: int = 0
    """How often an override has found another tick at work."""

    @classmethod
    def of(cls, body: str) -> _TickMessage:
        message = json.loads(body)
        match message.get("source"):
            case "aws.events":
                return cls(SCHEDULE_SOURCE, None)
            case "aws.ssm":
                detail = message["detail"]
                kind = "removed" if detail["operation"] == "Delete" else "tick"
                return cls(kind, detail["name"].rpartition("/")[2])
            case _:
                given_for, due = json.dumps(message.get("held")), message.get("due")
                tries, is_announced = message.get("tries", 0), due is not None
                return cls(message["kind"], message["service"], given_for, is_announced, tries)


def _removals(records: Sequence[CallRecord]) -> list[object]:
    """What was put on record of a removal."""
    return [c.about for c in records if c.call is Call.NOTE_REMOVAL]


def _sections(records: Sequence[CallRecord]) -> Iterator[Sequence[CallRecord]]:
    """The calls of a batch of signals, by service: each service's begin with reading its document."""
    begins = [i for i, c in enumerate(records) if c.call is Call.GET]
    for start, end in pairwise([*begins, len(records)]):
        yield records[start:end]


def _spec(records: Sequence[CallRecord]) -> ServiceSpec | None:
    """The document that was used, if any."""
    rows = first(records, Call.LOAD)
    found = (c.answer for c in records if c.call in (Call.GET, Call.DOCUMENT))
    spec = next((s for s in found if isinstance(s, ServiceSpec)), None)
    if any(c.call is Call.ACQUIRE for c in records):  # a tick
        health = next((c.answer for c in records if c.call is Call.HEALTH and not c.is_error), None)
        is_removed = spec is None and isinstance(rows, Rows) and rows.removal.told_at is not None
        if health is None or (is_removed and not health):
            return None  # nothing can be in rotation
        return spec or (rows.document if isinstance(rows, Rows) else None)
    return spec


def _is_failure(record: CallRecord) -> bool:
    """Whether a required call failed."""
    return isinstance(record.answer, PortError) and record.call not in OPTIONAL_CALLS


def _is_needed(record: CallRecord, *, is_tick: bool, is_signals: bool = False) -> bool:
    """Whether a call failed that the message must be redelivered for."""
    if not _is_failure(record):
        return False
    if record.call is Call.COMMIT and isinstance(record.answer, Conflict):
        return is_signals and is_mending(record.about)
    if is_tick and record.call is Call.SCHEDULE:
        # A tick for fallbacks would only make them come sooner.
        return record.message["kind"] == "override" or record.message["due"] is not None
    return True


def _is_launched(intent_id: str, after: Sequence[CallRecord]) -> bool:
    """Whether a launch was made, given up, or prevented by a table that doesn't answer."""
    for record in after:
        about = record.about
        if record.call is Call.LAUNCH and getattr(about, "launch_id", None) == intent_id:
            return True
        if isinstance(about, Changes) and (intent_id in about.close_intents or record.is_error):
            return True
        if record.call is Call.RECALL and record.is_error:
            return True
    return False


def _is_about(record: CallRecord, call: Call, instance_id: str) -> bool:
    return record.call is call and isinstance(record.about, Collection) and instance_id in record.about


def _any_about(records: Sequence[CallRecord], call: Call, instance_id: str) -> bool:
    return any(_is_about(c, call, instance_id) for c in records)


def _texts(answer: object) -> Sequence[str]:
    return answer if isinstance(answer, list | tuple) else ()
