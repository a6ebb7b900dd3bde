"""What happens to a service: upon a signal, see `signals`, and at each tick, see `ticks`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from spotrelay.plane.control.signals import Signals
from spotrelay.plane.core.held import Override

if TYPE_CHECKING:
    from spotrelay.plane.control.ticks import Ticks

NOTHING: Mapping[str, str] = MappingProxyType({})
"""EC2 announces nothing, as far as is known."""


class Controller(Signals):
    """Makes the replicas that exist match those that should."""

    @cached_property
    def _ticks(self) -> Ticks:
        # Not above: a warning waits for every import of a cold start, and needs nothing of this one.
        from spotrelay.plane.control.ticks import Ticks

        return Ticks(self._ports, self._reporting, self._performer)

    def tick(
        self,
        service: str,
        serving: datetime | None = None,
        override: Override | None = None,
        announced: Mapping[str, str] = NOTHING,
    ) -> None:
        """Run a tick of a service: `Ticks.tick`, imported with the first one."""
        self._ticks.tick(service, serving, override, announced)
