"""`python -m lab.benchmarks.path`: which of our files a warning goes through until AWS is called.

One interruption warning is handled by the production function, warm, against the loopback server. Counted are
the files of ours that run, and the moves of someone who reads along: into a function of another file that is
new. What runs again, in a loop or for another item, has been read.
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

UNTIL = ("DeregisterTargets", "CreateFleet")


@dataclass(frozen=True, slots=True)
class Steps:
    """The way of a warning to one of AWS's calls."""

    files: tuple[str, ...]
    """In the order in which they were entered first."""
    moves: int


@dataclass
class Tracer:
    """Follows our own code, call by call: for `sys.setprofile`."""

    stack: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    read: set[tuple[str, str]] = field(default_factory=set)
    """The functions that ran: their file and name."""
    moves: int = 0
    until: dict[str, Steps] = field(default_factory=dict)
    """What came before each call of AWS."""

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Note the file and the function of each call, as `sys.setprofile` reports it."""
        if event == "call" and frame.f_code.co_name == "_make_api_call":
            operation = str(frame.f_locals.get("operation_name"))
            self.until.setdefault(operation, Steps(tuple(self.files), self.moves))
        name = _own(frame) if event in ("call", "return") else None
        if name is None:
            return
        if event == "return":
            if self.stack:
                self.stack.pop()
            return
        function = (name, frame.f_code.co_qualname)
        self.moves += bool(self.stack) and self.stack[-1] != name and function not in self.read
        self.read.add(function)
        self.stack.append(name)
        if name not in self.files:
            self.files.append(name)


def _own(frame: FrameType) -> str | None:
    """The file, relative to the repository, if it is ours."""
    name = frame.f_code.co_filename
    if not name.startswith(str(ROOT)):
        return None
    relative = Path(name).relative_to(ROOT)
    return str(relative) if relative.parts[0] in OURS else None


def trace() -> Mapping[str, Steps]:
    """For each of `UNTIL`: the files of ours that ran before it, and the moves between them."""
    first, second = MeasuredService("first", 3, 1), MeasuredService("second", 3, 2)
    with loopback() as server, redirect_stdout(StringIO()):
        pretend_lambda(server, settings(server))
        from lambdas.on_signal import handler  # with the environment in place

        for service in (first, second):
            service.load_into(server)
        # One that may leave at once, since the others are enough; before it another one's, for the clients.
        handler(sqs_event([warning(first.instance_id(1))]), context())
        tracer = Tracer()
        sys.setprofile(tracer)
        try:
            handler(sqs_event([warning(second.instance_id(1))]), context())
        finally:
            sys.setprofile(None)
    return {operation: tracer.until[operation] for operation in UNTIL}


if __name__ == "__main__":
    for call, steps in trace().items():
        sys.stdout.write(f"{call}: {len(steps.files)} files, {steps.moves} moves\n")
        sys.stdout.writelines(f"  {name}\n" for name in steps.files)
