"""The gate that every port call passes: it lets time pass and others run, and makes calls fail."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, NoReturn, TypeVar

from lab.sim.faults import Call, Fault, FaultPlan
from lab.sim.scheduler import Killed, Scheduler, Task
from spotrelay.plane.core.answers import Answers
from spotrelay.plane.core.held import Override
from spotrelay.plane.core.instances import Instance, TargetState
from spotrelay.plane.core.names import Alarm, Metric
from spotrelay.plane.core.ports import (
    Conflict,
    Denied,
    LaunchRequest,
    LaunchResult,
    OtherControlPlane,
    PortError,
    Throttled,
    Unavailable,
    UnreadableDocument,
)
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import Changes, Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.memory import EPOCH

if TYPE_CHECKING:
    from lab.sim.timeline import Timeline

T = TypeVar("T")

USUAL_S = {Call.LAUNCH: 3.0, Call.PROBE: 0.5}
"""The longest usual duration of a call; others take `QUICK_S`."""

QUICK_S = 0.03

STALL_SHARES, STALL_S = (0.0, 0.03, 0.15), 8.0
"""While faults last, this share of a run's calls takes up to `STALL_S`, so that others overtake them."""

GIVES_UP_S = (5.0, 16.0)
"""How long a client waits for an answer in all its attempts, see `aws.clients`."""

LAUNCH_GIVES_UP_S = (20.0, 45.0)

LATE_S = 5.0
"""A request may still take effect this long after its caller gave up."""


@dataclass(slots=True)
class CallRecord:
    """A call, as its caller knows it."""

    at: float
    """When the answer came."""
    call: Call
    about: object
    answer: object
    """The answer, or the error that was raised."""

    @property
    def is_error(self) -> bool:
        """Whether the caller got an error."""
        return isinstance(self.answer, Exception)

    @property
    def message(self) -> Mapping[str, str]:
        """The message, for a call that sends one to the tick queue."""
        assert isinstance(self.about, tuple)  # noqa: S101 - `ports.SimTicker` says so
        message: Mapping[str, str] = json.loads(self.about[0])
        return message

    @property
    def delay_s(self) -> float:
        """The message's delay."""
        assert isinstance(self.about, tuple)  # noqa: S101 - see `message`
        return float(self.about[1])


def first(records: Iterable[CallRecord], call: Call) -> object:
    """The first answer to such a call, or its error; None if there was no call."""
    return next((one.answer for one in records if one.call is call), None)


@dataclass(slots=True)
class MetricRecord:
    """A value that was added to a metric."""

    at: float
    metric: Metric
    value: float
    service: str | None


@dataclass(frozen=True, slots=True)
class Word:
    """What an invocation tells an alarm, by its own clock; the alarm hears it once the invocation ends."""

    service: str
    alarm: Alarm
    lasts: bool
    at: float


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that took effect, with the service's rows before and after it."""

    at: float
    changes: Changes
    before: Rows
    after: Rows


class Invocation(Task):
    """One run of a function, and what the rules need to know about it."""

    def __init__(self, name: str, deadline: float) -> None:
        super().__init__(name, deadline)
        self.disturbances = 0
        """The number of its faults, stale answers and lost races."""
        self.began_at = deadline
        self.skew_s = 0.0
        """How much its clock is ahead of EC2's."""
        self.tick_service = ""
        """The service whose rows it loaded."""
        self.loaded_at = 0.0
        """When it began to read the rows."""
        self.observed: Sequence[Instance] = ()
        """The last answer about instances."""
        self.observed_at: float | None = None
        """The time of that answer's state."""
        self.warned_at: float | None = None
        """The time of the last answer about warnings."""
        self.override: Override | None = None
        """What an operator says, if it is an override's."""
        self.is_minutes = False
        """Whether it is a tick of the schedule's, or an operator's: these ask those that serve."""
        self.held_back: list[tuple[str, str]] = []
        """What it says that it holds back until an override lets it go on, and why."""
        self.row_writes: dict[str, float] = {}
        """Instance → when its row was written."""
        self.calls: list[CallRecord] = []
        """All its calls and their answers: everything that it can know."""
        self.metrics: list[MetricRecord] = []
        """The metrics that it counted."""
        self.words: list[Word] = []
        """What it told alarms."""
        self.noted: list[PortError | None] = []
        """Whether what it put on record of incidents was answered with an error."""
        self.rows: Rows | None = None
        """The rows that it read, of the service that it ticks for."""
        self.health: Mapping[str, TargetState] | None = None
        """The last answer about targets."""
        self.warned: Mapping[str, datetime] = {}
        """The last answer about warnings."""
        self.spared: frozenset[str] = frozenset()
        """Of whom EC2 said that it doesn't take them back."""
        self.probed: frozenset[str] = frozenset()
        """The instances that it probed, if anything came of that."""
        self.answers = Answers()
        """What they answered."""
        self.commits: list[Commit] = []
        self.terminated: dict[str, float] = {}
        """Instance → when it was terminated."""
        self.scheduled_ticks: list[datetime | None] = []
        """The times of the ticks that it scheduled."""
        self.bodies: Sequence[str] = ()
        """The well-formed events that it was given."""

    @property
    def silent(self) -> frozenset[str]:
        """The instances that didn't answer their probe."""
        return self.probed - self.answers.answering

    @property
    def loaded(self) -> Mapping[int, Replica]:
        """The rows of the service that it ticks for, as it read them."""
        return self.rows.replicas if self.rows else {}

    @property
    def answered(self) -> Collection[str]:
        """The launches whose outcome it knows."""
        known = [h.about for h in self.calls if isinstance(h.answer, LaunchResult | Throttled | Denied)]
        return {about.launch_id for about in known if isinstance(about, LaunchRequest)}

    @property
    def specs(self) -> Mapping[str, ServiceSpec]:
        """By service: the document that it read."""
        given = (h.answer for h in self.calls if h.call is Call.GET)
        return {spec.service: spec for spec in given if isinstance(spec, ServiceSpec)}

    @property
    def errors(self) -> Sequence[CallRecord]:
        """Its calls that raised an error."""
        return [record for record in self.calls if record.is_error]

    @property
    def saw_other_control_plane(self) -> bool:
        """Whether a call said that another control plane manages the services."""
        return any(isinstance(record.answer, OtherControlPlane) for record in self.calls)

    @property
    def has_unreadable_document(self) -> bool:
        """Whether it couldn't read the service's document."""
        return any(isinstance(record.answer, UnreadableDocument) for record in self.calls)


class SimClock:
    """`ports.Clock` in simulated time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now(self) -> datetime:
        task = self._scheduler.task
        skew_s = task.skew_s if isinstance(task, Invocation) else 0.0
        return at(self._scheduler.now + skew_s)


def at(time: float) -> datetime:
    """A simulated time as production code sees it."""
    return EPOCH + seconds(time)


def time_of(moment: datetime) -> float:
    """The same, in simulated seconds."""
    return (moment - EPOCH).total_seconds()


class CallGate:
    """Makes calls, or makes them fail."""

    def __init__(
        self, scheduler: Scheduler, plan: FaultPlan, random: Random, timeline: Timeline | None
    ) -> None:
        self._scheduler = scheduler
        self._plan = plan
        self._random = random
        self._timeline = timeline
        self._stalls = random.choice(STALL_SHARES)
        self.calls = 0

    @property
    def invocation(self) -> Invocation:
        """The invocation that is calling."""
        task = self._scheduler.task
        assert isinstance(task, Invocation)  # noqa: S101 - ports are called by invocations only
        return task

    def __call__(
        self,
        call: Call,
        about: object,
        effect: Callable[[], T],
        *,
        partly: Callable[[], T] | None = None,
        stale: Callable[[], T] | None = None,
    ) -> T:
        """Make the call. `effect` does it, `partly` does a part of it, `stale` gives an old answer.

        Raises:
            Killed: the invocation is dead, or dies here.
            PortError: as the fault plan has it, or as `effect` does.
        """
        task = self._scheduler.task
        assert isinstance(task, Invocation)  # noqa: S101 - ports are called by invocations only
        try:
            answer = self._make(task, call, about, effect, partly, stale)
        except Exception as error:
            task.calls.append(CallRecord(self._scheduler.now, call, about, error))
            raise
        task.calls.append(CallRecord(self._scheduler.now, call, about, answer))
        return answer

    def of_several(
        self, call: Call, ids: Collection[str], effect: Callable[[Collection[str]], T], error: PortError
    ) -> T:
        """Make a call about several; where it is done in part, it is done for the first half, and fails."""

        def partly() -> T:
            effect(list(ids)[: len(ids) // 2])
            raise error

        return self(call, ids, lambda: effect(ids), partly=partly)

    def _make(
        self,
        task: Invocation,
        call: Call,
        about: object,
        effect: Callable[[], T],
        partly: Callable[[], T] | None,
        stale: Callable[[], T] | None,
    ) -> T:
        self.calls += 1
        if task.is_dead:
            raise Killed
        fault = self._plan.draw(call, self._scheduler.now)
        if fault is None:
            self._wait(task, call, self._usual_s(call), effect)
            if self._timeline is None:
                return effect()
            return self._run_traced(task, call, about, effect)
        task.disturbances += 1
        self._plan.hits[call, fault] += 1
        if self._timeline is not None:
            self._timeline.add(self._scheduler.now, task.name, call, about, f"!! {fault}")
            return self._run_traced(
                task, call, about, lambda: self._inject(fault, task, call, effect, partly, stale)
            )
        return self._inject(fault, task, call, effect, partly, stale)

    def _inject(
        self,
        fault: Fault,
        task: Invocation,
        call: Call,
        effect: Callable[[], T],
        partly: Callable[[], T] | None,
        stale: Callable[[], T] | None,
    ) -> T:
        """Make the call with a fault."""
        if fault is Fault.KILLED:
            self._kill(task)
        if fault is Fault.SLOW:
            self._wait(task, call, self._random.uniform(1, STALL_S), effect)
            return effect()
        if fault is Fault.STALE and stale is not None:
            self._wait(task, call, self._usual_s(call), None)
            return stale()
        if fault is Fault.PARTIAL and partly is not None:
            self._wait(task, call, self._random.uniform(0, STALL_S), None)
            return partly()
        return self._fail(fault, task, call, effect)

    def _fail(self, fault: Fault, task: Invocation, call: Call, effect: Callable[[], object]) -> NoReturn:
        """End the call with an error, whether it took effect or not."""
        if fault in _DONE:
            self._wait(task, call, self._usual_s(call), effect)
            _run_unanswered(effect)
        if fault is Fault.KILLED_AFTER:
            self._kill(task)
        if fault in _HANGING:
            give_up_s = self._give_up_s(call)
            if fault is Fault.LATE:
                done_at = self._scheduler.now + give_up_s + self._random.uniform(0, LATE_S)
                self._scheduler.at(done_at, lambda: self._finish_late(call, task, effect))
            self._wait(task, call, give_up_s, None)
        elif fault not in _DONE:
            self._wait(task, call, self._usual_s(call), None)
        raise _ERROR_OF[fault](f"{call}: {fault}")

    def _finish_late(self, call: Call, task: Invocation, effect: Callable[[], object]) -> None:
        """Carry out a call whose caller has gone."""
        outcome = _run_unanswered(effect)
        if self._timeline is not None:
            self._timeline.add(self._scheduler.now, task.name, call, None, outcome)

    def _wait(
        self, task: Invocation, call: Call, duration_s: float, effect: Callable[[], object] | None
    ) -> None:
        """Let time pass. The function may time out meanwhile, and the call may take effect without it."""
        scheduler = self._scheduler
        if scheduler.now + duration_s > task.deadline:
            if effect is not None and self._random.random() < 0.5:
                scheduler.at(scheduler.now + duration_s, lambda: self._finish_late(call, task, effect))
            scheduler.pause(max(0.0, task.deadline - scheduler.now))
            task.disturbances += 1
            self._kill(task, "the function's time is up")
        scheduler.pause(duration_s)

    def tell(self, event: str, facts: Mapping[str, object]) -> None:
        """What the controller logs, for the story."""
        if self._timeline is not None:
            self._timeline.record(self._scheduler.now, event, facts)

    def _kill(self, task: Invocation, why: str = "killed") -> NoReturn:
        if self._timeline is not None:
            self._timeline.add(self._scheduler.now, task.name, None, None, why)
            self._timeline.tell(self._scheduler.now, f"a function ends in the middle of its work ({why})")
        task.is_dead = True
        raise Killed

    def _usual_s(self, call: Call) -> float:
        random = self._random.random
        if self._scheduler.now < self._plan.until and random() < self._stalls:
            return random() * STALL_S
        return random() * USUAL_S.get(call, QUICK_S)

    def _give_up_s(self, call: Call) -> float:
        return self._random.uniform(*(LAUNCH_GIVES_UP_S if call is Call.LAUNCH else GIVES_UP_S))

    def _run_traced(self, task: Invocation, call: Call, about: object, effect: Callable[[], T]) -> T:
        """Make the call, and add its result to the timeline."""
        assert self._timeline is not None  # noqa: S101 - the caller has looked
        try:
            result = effect()
        except Exception as error:
            self._timeline.add(self._scheduler.now, task.name, call, about, f"raises {error!r}")
            raise
        self._timeline.add(self._scheduler.now, task.name, call, about, result)
        return result


_DONE = frozenset({Fault.LOST, Fault.TIMED_OUT_DONE, Fault.KILLED_AFTER})
"""The call takes effect, and its caller gets no answer."""

_HANGING = frozenset({Fault.TIMED_OUT, Fault.TIMED_OUT_DONE, Fault.LATE})
"""The caller waits until it gives up."""

_ERROR_OF: dict[Fault, type[PortError]] = {
    Fault.THROTTLED: Throttled,
    Fault.DENIED: Denied,
    Fault.CONFLICT: Conflict,
    Fault.FAILED: Unavailable,
    Fault.LOST: Unavailable,
    Fault.TIMED_OUT: Unavailable,
    Fault.TIMED_OUT_DONE: Unavailable,
    Fault.LATE: Unavailable,
}
"""The error that the caller gets, as from an adapter."""


def _run_unanswered(effect: Callable[[], object]) -> str:
    """Carry out a call without an answer."""
    try:
        effect()
    except (Conflict, Denied, UnreadableDocument, OtherControlPlane):
        return "refused, without an answer"
    return "done, without an answer"
