"""Runs each trial in a process of its own, several at a time, and survives whatever a mutant does there."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

Key = TypeVar("Key")

WALL_S = 900.0
"""When a child that uses no processor time, say because it waits for itself, is taken for hung."""

MEMORY_BYTES = 4 * 2**30
"""Address space of a child: what a mutant gathers without end must not push others out of the memory."""

LOOK_S = 1.0
"""How often progress is shown while nothing ends."""


@dataclass(frozen=True, slots=True)
class Job(Generic[Key]):
    """What to run, and what for."""

    key: Key
    work: Callable[[], str | None]
    spend_s: int
    """Processor time that it may take."""


@dataclass(frozen=True, slots=True)
class Done(Generic[Key]):
    """What came of a job."""

    key: Key
    answer: str | None
    spent_s: float
    """Processor time, which depends less than the clock on what else the machine does."""


@dataclass(frozen=True, slots=True)
class _Child(Generic[Key]):
    job: Job[Key]
    process: multiprocessing.process.BaseProcess
    answers: Connection
    began: float

    def end(self) -> Done[Key]:
        """What it said, or how it ended without a word."""
        try:
            answer, spent_s = self.answers.recv()
            self.process.join()
        except EOFError:
            self.process.join()
            code = self.process.exitcode or 0
            if code == -signal.SIGXCPU:
                answer, spent_s = f"no end after {self.job.spend_s} s of processor time", self.job.spend_s
            else:
                how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                answer, spent_s = f"the process died: {how}", time.monotonic() - self.began
        return Done(self.job.key, answer, spent_s)

    def kill(self) -> None:
        """End it with whatever it started."""
        # It leads a group of its own, unless it was killed before it came to that.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.kill()
        self.process.join()


def run(jobs: deque[Job[Key]], processes: int, waiting: Callable[[], None]) -> Iterator[Done[Key]]:
    """Run the jobs; more may be added meanwhile. `waiting` is called about once a second.

    A job's exception is its answer: in a mutant any of them tells that something is wrong.
    """
    children: dict[Connection, _Child[Key]] = {}
    try:
        while jobs or children:
            while jobs and len(children) < processes:
                child = _start(jobs.popleft())
                children[child.answers] = child
            ready = set(wait(list(children), LOOK_S))
            waiting()
            for answers, child in list(children.items()):
                if answers in ready:
                    del children[answers]
                    yield child.end()
                elif time.monotonic() - child.began > WALL_S:
                    del children[answers]
                    child.kill()
                    yield Done(child.job.key, f"no end after {WALL_S:.0f} s", WALL_S)
    finally:
        for child in children.values():
            child.kill()


def _start(job: Job[Key]) -> _Child[Key]:
    # Forked, so that what all trials import is imported once.
    context = multiprocessing.get_context("fork")
    answers, tell = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(tell, job.work, job.spend_s))
    process.start()
    # Only the child holds that end now, so that its death is the end of the file.
    tell.close()
    return _Child(job, process, answers, time.monotonic())


def _child(tell: Connection, work: Callable[[], str | None], spend_s: int) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (spend_s, spend_s + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    try:
        answer = work()
    except BaseException as error:  # noqa: BLE001 - an exit or an interrupt out of a mutant is caught like the rest
        answer = repr(error)
    tell.send((answer, time.process_time()))
    # Neither threads nor clean-ups of what was tried may hold this up.
    os._exit(0)
