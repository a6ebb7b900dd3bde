"""Reads on consoles what instances tell of their starts: for people, so once, last, and never in the way."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from spotrelay.plane.core import timing
from spotrelay.plane.core.ports import PortError, Ports
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.slots import host
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving import starts


class Consoles:
    """Asks EC2 when a tick is over: others have the lease by then, and the next tick is announced."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def read(self, service: str, rows: Rows, answered: Collection[Replica]) -> None:
        """Put on record what these told, who have answered for the first time. What isn't known stays so.

        A tick that follows has it on their rows: see `Rows.starts`. Nothing of it fails this one.
        """
        clock, record, told = self._ports.clock, self._ports.telemetry.record, dict[int, starts.Phases]()
        ends = clock.now() + seconds(timing.CONSOLES_S)
        shown = cache(self._ports.fleet.console)
        # What stands by next is no start that anybody waits for.
        for replica in (r for r in answered if not r.stands_by and r.instance_id):
            if clock.now() >= ends:
                why = f"others took the {timing.CONSOLES_S:g} s that are set aside for consoles"
                record("console_unknown", service=service, replica=replica.id, error=why)
                continue
            try:
                said = starts.said(shown(host(replica.instance_id or "")), starts.began(replica), clock.now())
            except PortError as error:
                record("console_unknown", service=service, replica=replica.id, error=repr(error))
                continue
            phases = {phase.value: at.isoformat() for phase, at in said.phases.items()}
            record("console_read", service=service, replica=replica.id, phases=phases, dropped=said.dropped)
            if said.phases:
                told[replica.id] = said.phases
        if told:
            try:
                self._ports.store.note_starts(service, starts.to_keep(rows, told))
            except PortError as error:
                record("starts_not_kept", service=service, error=repr(error))
