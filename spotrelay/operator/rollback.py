"""What an operator can go back to."""

from __future__ import annotations

from collections.abc import Collection

from spotrelay.plane.core.rows import Rollback, Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.serving.rollout import port_of


def before(spec: ServiceSpec, rows: Rows) -> Rollback | None:
    """What an operator can go back to: the newest earlier version that serves, else the one before.

    None: nothing is known of any earlier one.
    """
    serving = {r.version for r in rows.replicas.values() if r.stays and 0 < r.version < spec.version}
    known: Collection[int] = serving or {version for version in rows.earlier if version < spec.version}
    to = max(known, default=None)
    return None if to is None else Rollback(spec.version, to, port_of(spec, rows, to) or spec.port)
