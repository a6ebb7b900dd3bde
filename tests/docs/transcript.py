"""What a page shows of a terminal, held against what the commands really print."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from .blocks import fences

TERMINAL = "console"
"""The language of a block that shows commands, each after a `$`, and what they print."""

LEFT_OUT = "…"
"""Alone on a line: any number of lines. Within one: any text."""

ANY = {
    "left_out": r"…",
    "instance": r"i-[0-9a-f]+",
    # A slow machine takes minutes for what is shown in seconds.
    "duration": r"(?:\d+ min )?\d+(?:\.\d+)? s\b|\d+ min\b",
    "number": r"\d+(?:[.,:]\d+)*",
    "gap": r"[\s─━]+",
}
"""What differs from one run to the next, in what is shown and in what is printed."""

VARYING = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in ANY.items()))


@dataclass(frozen=True)
class Step:
    """A command, and what it is shown to print."""

    command: tuple[str, ...]
    shown: tuple[str, ...]

    def differs(self, printed: str) -> str:
        """The first line shown that wasn't printed where it should have been; empty if there is none."""
        rest = [line.strip() for line in printed.splitlines() if line.strip()]
        may_skip = False
        for line in self.shown:
            if line == LEFT_OUT:
                may_skip = True
                continue
            found = next((n for n, one in enumerate(rest) if _pattern(line).fullmatch(one)), None)
            if found is None or (found and not may_skip):
                return f"{shlex.join(self.command)}: shown is {line!r}, printed was\n" + "\n".join(rest)
            rest, may_skip = rest[found + 1 :], False
        if rest and not may_skip:
            return f"{shlex.join(self.command)}: more was printed than is shown\n" + "\n".join(rest)
        return ""


def steps(page: Path) -> list[Step]:
    """Those of all its blocks, in order."""
    made: list[Step] = []
    for block in fences(page):
        if block.language != TERMINAL:
            continue
        for text in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, *shown = text.splitlines()
            lines = (line.strip() for line in shown)
            made.append(
                Step(tuple(shlex.split(command, comments=True)), tuple(line for line in lines if line))
            )
    return made


def _pattern(shown: str) -> re.Pattern[str]:
    parts, at = [], 0
    for varying in VARYING.finditer(shown):
        name = str(varying.lastgroup)
        parts += [re.escape(shown[at : varying.start()]), ".*" if name == "left_out" else f"(?:{ANY[name]})"]
        at = varying.end()
    return re.compile("".join([*parts, re.escape(shown[at:])]))
