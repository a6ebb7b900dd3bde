"""What usually mends a start that fails, told from what the replica said last."""

from __future__ import annotations

import re

from spotrelay.plane.core.replica import Replica
from spotrelay.plane.view.words import console

_REMEDIES = (
    (
        r"out of memory|OutOfMemoryError|cannot allocate memory|no available memory",
        "give it more memory (resources.accelerators, resources.memory), or a smaller model or context",
    ),
    (
        r"address already in use|EADDRINUSE|errno 98|something else listens",
        "let nothing else listen on its port: a server that an earlier line left in the background?",
    ),
    (
        r"no GPU answers|NVIDIA driver|cuInit|CUDA driver|no CUDA-capable device",
        "leave kernel and driver as the image has them; if it is this instance alone, it is replaced",
    ),
    (
        r"\b40[13]\b|gated|unauthorized|forbidden|access token|can't read parameter",
        "give it a token that may read this: `spotrelay secrets`, and the model's page asks for consent",
    ),
    (
        r"command not found|no such file or directory|no module named|ModuleNotFoundError|\bnot found$",
        "have setup install it, and run find it: on PATH, or by its whole path",
    ),
)
"""The first whose words occur. What an engine says of memory may name a file, too."""


def in_short(replica: Replica) -> str:
    """Its trouble on one line: what it is, and the last that was said of it."""
    first, _, said = (replica.trouble or "").partition("\n")
    return f"{first} {said.splitlines()[-1].strip()}" if said else first


def in_words(replica: Replica) -> str:
    """Its trouble, what usually mends it, and where more is."""
    mended = remedy(replica.trouble or "")
    return f"{in_short(replica)} ({f'{mended}; ' if mended else ''}{console(replica)})"


def remedy(said: str) -> str:
    """What to do about it; empty if these words say nothing of it."""
    return next(
        (words for told, words in _REMEDIES if re.search(told, said, re.IGNORECASE | re.MULTILINE)), ""
    )
