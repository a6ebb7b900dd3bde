"""A service's name: part of what AWS calls its resources, so only some characters will do."""

from __future__ import annotations

import re
import unicodedata

from spotrelay.plane.core.names import MAX_NAME


def slug(text: str) -> str:
    """The nearest name that AWS takes for everything, empty if nothing of the text can be part of one."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if words[:1].isdigit():
        words = f"s-{words}"
    return words[:MAX_NAME].rstrip("-")
