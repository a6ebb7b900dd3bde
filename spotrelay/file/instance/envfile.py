"""`service.env`: `KEY="VALUE"` lines that systemd and bash read alike.

Inside double quotes both take a backslash before `"`, `\\`, `$` and a backtick off, leave any other alone,
and keep newlines. systemd expands nothing in an EnvironmentFile; in bash the same four escapes prevent every
expansion. So one quoting serves both (systemd: src/basic/env-file.c; bash: "Double Quotes" in its manual).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_LINE = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"\n', re.DOTALL)


def render(values: Mapping[str, str]) -> str:
    """The file's text. Names must be valid variable names, values free of control characters."""
    return "".join(f'{name}="{_escaped(value)}"\n' for name, value in values.items())


def _escaped(value: str) -> str:
    return re.sub(r'(["\\$`])', r"\\\1", value)


def parse(text: str) -> dict[str, str]:
    """What `render` was given.

    Raises:
        ValueError: the text has something that `render` doesn't write.
    """
    values, end = {}, 0
    for match in _LINE.finditer(text):
        if match.start() != end:
            break
        values[match[1]] = re.sub(r'\\(["\\$`])', r"\1", match[2])
        end = match.end()
    if end != len(text):
        line = text.count("\n", 0, end) + 1
        raise ValueError(f'service.env line {line}: expected NAME="value"')
    return values
