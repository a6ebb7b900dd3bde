"""What every policy of the replay looks like that isn't SpotRelay's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from lab.replay.cloud import Event, ReplayCloud
    from lab.replay.settings import ReplaySettings
    from lab.replay.traces import Trace


class Baseline(Protocol):
    """A policy that runs a service of N replicas and decides when to look at it.

    It is made from the trace and the settings, so that a policy that a person configures (one region, one
    pool) can be configured as well as anybody who knew the trace could. What it does later must not depend on
    the trace.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    """One line for a table of policies."""
    source: ClassVar[str]
    """Where its behaviour is described."""
    hears_warnings: ClassVar[bool]
    """Whether EC2's warnings are among its events."""

    def __init__(self, trace: Trace, settings: ReplaySettings) -> None: ...

    def wake(self, cloud: ReplayCloud, events: Sequence[Event]) -> float:
        """Act on the cloud, and say when to be woken next; infinity: not before anything happens.

        Called at 0, at every moment that it asked for, and whenever something happened to its machines:
        `events` says what. A policy that polls keeps such an event to itself until it would have found out.
        """
