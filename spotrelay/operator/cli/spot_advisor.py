"""AWS's Spot Instance Advisor, kept in the user's cache directory with the time at which it was read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from spotrelay.operator.advice.interruptions import (
    BUCKET,
    KEY,
    MOST_BYTES,
    URL,
    Band,
    UnreadableAdvisorError,
    bands,
)

FRESH = timedelta(days=1)
"""It is about thirty days, and AWS renews it a few times a day: younger than this, the kept copy will do."""

TIMEOUT_S = 10

FILE = KEY


@dataclass(frozen=True, slots=True)
class Advisor:
    """What it says, as far as it can be read."""

    bands: Mapping[tuple[str, str], Band] = field(default_factory=dict)
    """By region and type; nothing where it can't be read."""
    note: str = ""
    """How old it is, or why there is none."""


def cache_directory() -> Path:
    """Where the user's caches are: `XDG_CACHE_HOME`, or the system's usual place."""
    if named := os.environ.get("XDG_CACHE_HOME"):
        return Path(named) / "spotrelay"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "spotrelay"
    return Path.home() / ".cache" / "spotrelay"


def downloaded(url: str = URL) -> bytes:
    """The file as AWS serves it.

    Raises:
        OSError: it can't be reached, or is far too large.
    """
    import urllib.request

    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310  # https, and ours
        text: bytes = answer.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise OSError(f"more than {MOST_BYTES} bytes")
    return text


def advisor(
    now: datetime,
    *,
    is_offline: bool = False,
    directory: Path | None = None,
    download: Callable[[], bytes] | None = None,
) -> Advisor:
    """The kept copy while it is fresh, or nobody may be asked; else AWS's, and the kept one if that fails."""
    path = (directory or cache_directory()) / FILE
    kept = _kept(path, now)
    if kept and (is_offline or kept[1] < FRESH):
        return Advisor(kept[0], f"Spot Instance Advisor: {_aged(kept[1])} ({path}).")
    if is_offline:
        return Advisor(note="Spot Instance Advisor: not asked, and there is no kept copy.")
    try:
        text = (download or downloaded)()
        found = bands(text)
    except (OSError, UnreadableAdvisorError) as error:
        why = f"Spot Instance Advisor can't be read ({_why(error)})"
        if kept:
            return Advisor(kept[0], f"{why}: shown as it was, {_aged(kept[1])}.")
        return Advisor(note=f"{why}: how often EC2 takes instances back isn't shown.")
    _keep(path, text)
    return Advisor(found, f"Spot Instance Advisor: read now from {URL}.")


def advisor_at(endpoint: str) -> Advisor:
    """What stands in for AWS has in its bucket: never kept, and nothing of AWS's own in its place."""
    url = f"{endpoint.rstrip('/')}/{BUCKET}/{KEY}"
    try:
        return Advisor(bands(downloaded(url)), f"Spot Instance Advisor: read now from {url}.")
    except (OSError, UnreadableAdvisorError) as error:
        return Advisor(note=f"Spot Instance Advisor: none at {url} ({_why(error)}).")


def _why(error: Exception) -> str:
    # A URLError says less in its own words than in its reason's.
    return str(getattr(error, "reason", error))


def _aged(age: timedelta) -> str:
    hours = age.total_seconds() / 3600
    return f"{hours:.0f} h old" if hours < 48 else f"{age.days} days old"


def _kept(path: Path, now: datetime) -> tuple[Mapping[tuple[str, str], Band], timedelta] | None:
    """The kept copy and its age; None without one, or if it is broken."""
    try:
        read_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        return bands(path.read_bytes()), max(now - read_at, timedelta())
    except (OSError, UnreadableAdvisorError):
        return None


def _keep(path: Path, text: bytes) -> None:
    """At once or not at all; that it can't be kept is no reason to say nothing."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(text)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
