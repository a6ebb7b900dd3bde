"""What the alarms of a service were last told, on record, so that each one hears what it must and no more.

An alarm keeps its state where it hears nothing. So it hears 1 while its incident lasts, then 0 until it has
surely ended, and nothing else: CloudWatch charges for a metric only in the hours in which it gets a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from spotrelay.plane.core.names import Alarm
from spotrelay.plane.core.pools import LEAST_TYPES
from spotrelay.plane.core.spec import OnUpdate, ServiceSettings


@dataclass(frozen=True, slots=True)
class AlarmState:
    """One alarm, as far as it was told."""

    rings: bool = False
    since: datetime | None = None
    """Since when it rings, or has ceased to; None: it never rang."""
    zeros: int = 0
    """In how many more minutes it is to hear that it doesn't ring."""
    minute: datetime | None = None
    """It heard something in this minute: a 0 counts in a later one only, since an alarm takes the maximum."""


@dataclass(frozen=True, slots=True)
class Incidents:
    """A service's alarms, and since when there has been what they are about. Ticks write it."""

    revision: int = 0
    """How often it was written; 0: never. A write names the revision that it was decided on."""
    version: int = 0
    """The version whose deployment its alarms have heard of: one that was just made has no state."""
    alarms: Mapping[Alarm, AlarmState] = field(default_factory=dict)
    serves: bool = False
    """Whether any replica was ready."""
    served_until: datetime | None = None
    """Until when one was, if none is; None: none ever was."""
    nothing_since: datetime | None = None
    """Since when nothing has been ready, though something should be."""
    missing_since: datetime | None = None
    """Since when fewer replicas than desired have been ready."""
    unlaunched_since: datetime | None = None
    """Since when fewer than desired have had an instance."""
    blocked_at: datetime | None = None
    """When EC2 last refused a launch until a person mends the cause."""

    @property
    def ringing(self) -> frozenset[Alarm]:
        """The alarms that ring."""
        return frozenset(alarm for alarm, state in self.alarms.items() if state.rings)


def alarms_of(settings: ServiceSettings, instance_types: int) -> frozenset[Alarm]:
    """The alarms that a service with so many instance types has, of those that hear of incidents."""
    found = {Alarm.NOTHING_READY, Alarm.CRASH_LOOPING, Alarm.CANNOT_LAUNCH, Alarm.NOT_WHOLE}
    if settings.purchase_option.fallback and settings.on_demand_fallback:
        found.add(Alarm.FALLBACK_TOO_LONG)
    if settings.on_update is not OnUpdate.KEEP:
        found.add(Alarm.ROLLOUT_STOPPED)
    if settings.purchase_option.is_scored and instance_types >= LEAST_TYPES:
        found.add(Alarm.BETTER_ELSEWHERE)
    return frozenset(found)
