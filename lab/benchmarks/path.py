"""`python -m lab.benchmarks.path`: which of our files a warning goes through until AWS is called.

One interruption warning is handled by the production function, warm, against the loopback server. Counted are
the files of ours that run, and the moves of someone who reads along: into a function of another file that is
new. What runs again, in a loop or for another item, has been read.

They are counted twice: with everything that runs; and to the contracts, for someone who takes adapters
at their ports' word: what the controller calls in spotrelay/plane/aws is read in plane/core/ports.py, and no
further.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from types import FrameType

from lab.benchmarks.loopback.client import loopback, pretend_lambda
from lab.benchmarks.world import MeasuredService, context, settings, sqs_event, warning

ROOT = Path(__file__).resolve().parents[2]

OURS = ("spotrelay", "lambdas")

ADAPTERS, CONTRACTS = "spotrelay/plane/aws/", "spotrelay/plane/core/ports.py"

KNOW_ADAPTERS = (ADAPTERS, "lambdas/")
"""Whoever stands here reads adapters themselves; everybody else has ports."""

UNTIL = ("DeregisterTargets", "CreateFleet")


@dataclass(frozen=True, slots=True)
class Steps:
    """The way of a warning to one of AWS's calls."""

    files: tuple[str, ...]
    """In the order in which they were entered first."""
    moves: int


@dataclass
class Tracer:
    """Follows our own code, call by call."""

    to_contracts: bool
    """Whether an adapter is read by its contract."""
    stack: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    read: set[tuple[str, str]] = field(default_factory=set)
    """The functions that ran: their file and name."""
    moves: int = 0
    until: dict[str, Steps] = field(default_factory=dict)
    """What came before each call of AWS."""
    behind: int = 0
    """So many calls deep behind a contract."""

    def reach(self, operation: str) -> None:
        """AWS is called."""
        self.until.setdefault(operation, Steps(tuple(self.files), self.moves))

    def leave(self) -> None:
        """A function of ours returns."""
        self.behind = max(self.behind - 1, 0)
        if self.stack and not self.behind:
            self.stack.pop()

    def enter(self, name: str, qualname: str) -> None:
        """A function of ours is called, in the file `name`."""
        if self.to_contracts and (self.behind or self._is_port(name)):
            self.behind += 1
            if self.behind > 1:
                return
            name = CONTRACTS
        function = (name, qualname)
        self.moves += bool(self.stack) and self.stack[-1] != name and function not in self.read
        self.read.add(function)
        self.stack.append(name)
        if name not in self.files:
            self.files.append(name)

    def _is_port(self, name: str) -> bool:
        return name.startswith(ADAPTERS) and bool(self.stack) and not self.stack[-1].startswith(KNOW_ADAPTERS)


def _own(frame: FrameType) -> str | None:
    """The file, relative to the repository, if it is ours."""
    name = frame.f_code.co_filename
    if not name.startswith(str(ROOT)):
        return None
    relative = Path(name).relative_to(ROOT)
    return str(relative) if relative.parts[0] in OURS else None


WHOLE, TO_CONTRACTS = "", " to the contracts"


def trace() -> Mapping[str, Steps]:
    """For each of `UNTIL`, whole and to the contracts: the files that ran before it, and the moves."""
    first, second = MeasuredService("first", 3, 1), MeasuredService("second", 3, 2)
    with loopback() as server, redirect_stdout(StringIO()):
        pretend_lambda(server, settings(server))
        from lambdas.on_signal import handler  # with the environment in place

        for service in (first, second):
            service.load_into(server)
        # One that may leave at once, since the others are enough; before it another one's, for the clients.
        handler(sqs_event([warning(first.instance_id(1))]), context())
        tracers = {WHOLE: Tracer(to_contracts=False), TO_CONTRACTS: Tracer(to_contracts=True)}

        def follow(frame: FrameType, event: str, _: object) -> None:
            name = _own(frame) if event in ("call", "return") else None
            for tracer in tracers.values():
                if event == "call" and frame.f_code.co_name == "_make_api_call":
                    tracer.reach(str(frame.f_locals.get("operation_name")))
                elif name and event == "call":
                    tracer.enter(name, frame.f_code.co_qualname)
                elif name:
                    tracer.leave()

        sys.setprofile(follow)
        try:
            handler(sqs_event([warning(second.instance_id(1))]), context())
        finally:
            sys.setprofile(None)
    return {f"{call}{how}": tracer.until[call] for call in UNTIL for how, tracer in tracers.items()}


if __name__ == "__main__":
    for call, steps in trace().items():
        sys.stdout.write(f"{call}: {len(steps.files)} files, {steps.moves} moves\n")
        sys.stdout.writelines(f"  {name}\n" for name in steps.files)
