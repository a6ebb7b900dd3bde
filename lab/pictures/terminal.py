"""What a command prints on a terminal, as a picture: Rich's SVG of the real output, colours and all."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

TYPE = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

DESCENDER = 5
"""Of a letter such as g, in the picture's units."""

THEME = TerminalTheme(
    (255, 255, 255),
    (36, 41, 47),
    [
        (36, 41, 47),
        (179, 36, 10),
        (10, 107, 78),
        (122, 82, 0),
        (7, 88, 194),
        (130, 80, 223),
        (27, 124, 131),
        (110, 119, 129),
    ],
)
"""Dark on white, as the pictures beside these are: the page's own colours."""


def output(command: Sequence[str], env: Mapping[str, str], columns: int) -> str:
    """What a command prints on a terminal so wide, escapes and all; `spotrelay` is this environment's."""
    program = str(Path(sys.executable).with_name(command[0]))
    ours, theirs = pty.openpty()
    terminal = {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "50"}
    process = subprocess.Popen(
        [program, *command[1:]], env={**env, **terminal}, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = bytearray()
    try:
        while piece := os.read(ours, 65536):
            said += piece
    except OSError:
        pass  # Linux says so when the terminal's last user has gone
    finally:
        os.close(ours)
        process.wait()
    return said.decode().replace("\r\n", "\n")


def picture(command: Sequence[str], said: str, columns: int) -> str:
    """The SVG. It asks for no type from elsewhere: pictures in pages can't load any."""
    console = Console(width=columns, record=True, file=io.StringIO(), force_terminal=True)
    for line in said.rstrip("\n").split("\n"):
        console.print(Text.from_ansi(line), soft_wrap=False, overflow="fold")
    title = "$ " + " ".join(command)
    svg = console.export_svg(title=title, theme=THEME, unique_id="-".join(command))
    svg = re.sub(r'(-clip-terminal">\s*<rect [^>]*height=")([\d.]+)', _taller, svg)
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", TYPE)


def _taller(clip: re.Match[str]) -> str:
    """Room for what hangs below the last line: Rich cuts it off, and leaves more than this free below."""
    return f"{clip[1]}{float(clip[2]) + DESCENDER:g}"
