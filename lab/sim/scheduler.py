"""Simulated time, in which invocations take turns: one thread, one queue of events.

An invocation is plain synchronous code on a stack of its own (a greenlet). At every port call it yields, and
resumes when the call's duration is over. Everything that is due before goes first. So the random durations
decide which invocation overtakes which, and the same random numbers give the same run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from greenlet import getcurrent, greenlet


class Killed(BaseException):
    """The invocation is dead. Not an `Exception`, so that only the scheduler catches it."""


class Task:
    """One invocation, with its stack and its deadline."""

    def __init__(self, name: str, deadline: float) -> None:
        self.name = name
        self.deadline = deadline
        """When the function's time-out kills it."""
        self.is_dead = False
        self.stack: greenlet | None = None


class Scheduler:
    """Runs events in order of time. Times are seconds since the simulation began."""

    def __init__(self) -> None:
        self.now = 0.0
        self.task: Task | None = None
        """The running invocation."""
        self.switches = 0
        """How often an invocation was overtaken by another one, or by an event."""
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()
        self._hub = getcurrent()
        self._until = 0.0
        self._alive: dict[Task, None] = {}
        self._is_stopped = False

    @property
    def is_busy(self) -> bool:
        """Whether an invocation is running or paused."""
        return bool(self._alive)

    def at(self, when: float, do: Callable[[], object]) -> None:
        """Schedule an event; one in the past happens now."""
        heapq.heappush(self._queue, (max(when, self.now), next(self._numbers), do))

    def start(self, task: Task, body: Callable[[], None]) -> None:
        """Start an invocation now; `body` must raise no exception."""

        def run() -> None:
            try:
                body()
            finally:
                self._alive.pop(task, None)

        task.stack = greenlet(run, self._hub)
        self._alive[task] = None
        self._resume(task)

    def pause(self, duration_s: float) -> None:
        """Let time pass for the running invocation; everything that is due meanwhile happens."""
        wake = self.now + duration_s
        queue = self._queue
        if wake <= self._until and (not queue or queue[0][0] > wake):
            self.now = wake  # nothing is due meanwhile
            return
        task = self.task
        assert task is not None  # noqa: S101 - ports are called by invocations only
        self.switches += 1
        heapq.heappush(queue, (wake, next(self._numbers), lambda: self._resume(task)))
        self._hub.switch()
        if task.is_dead:
            raise Killed

    def run(self, until: float) -> None:
        """Run all events until then."""
        self._until = until
        queue = self._queue
        while queue and queue[0][0] <= until and not self._is_stopped:
            self.now, _, do = heapq.heappop(queue)
            do()

    def stop(self) -> None:
        """End the run; no further event happens."""
        self._is_stopped = True

    def close(self) -> None:
        """Kill the remaining invocations, so that no stack outlives the simulation."""
        self._queue.clear()
        for task in list(self._alive):
            task.is_dead = True
            self._resume(task)

    def _resume(self, task: Task) -> None:
        assert task.stack is not None  # noqa: S101 - set by `start`
        self.task = task
        task.stack.switch()
        self.task = None
