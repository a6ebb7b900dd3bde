"""The unmodified stack in a local cloud, for rows that need it: deployed as the demo deploys it."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from spotrelay.demo import deployment, environment
from spotrelay.demo.deployment import Deployer
from spotrelay.demo.operator import Operator
from spotrelay.demo.processes import Processes
from spotrelay.demo.settings import ROOT, Settings
from spotrelay.demo.watch import Watch

SERVICE = "demo"
"""The deployer looks for this service's address."""

WARNING_S = 20.0
"""From the warning until EC2 takes the instance: as in the demo, so that what it takes makes room soon."""

PLENTY = 10_000
"""Instances that each pool can hold: the way to a replacement is measured, not a search for room."""

WITHIN_S = 120.0
"""A bound on what takes seconds, for machines that are busy otherwise."""

POLL_S = 0.02
"""Between two looks. All times are the local cloud's own records, so this doesn't show in a figure; to look
more often would take time from what is measured."""

QUIET_S = 0.1
"""So long without a call by a function, and nothing is going on."""

Found = TypeVar("Found")


class NeverHappenedError(Exception):
    """Something that a row waits for didn't come; the message says what."""


class Stand:
    """A deployment, its fleet, and the local cloud's records of both."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.cloud = operator.cloud
        self.outputs = operator.deployment.control_plane
        self.spec = operator.spec(SERVICE)
        self.watch = Watch(operator.store, SERVICE, lambda _: None)
        self._last_call = 0

    def serving(self, count: int) -> list[str]:
        """The instances of so many replicas that serve, once there are as many."""
        found = eventually(
            lambda: ready if len(ready := self.watch.look().ready) >= count else None,
            f"{count} replicas that serve",
            poll_s=0.2,
        )
        return [replica.instance_id for replica in found[:count] if replica.instance_id]

    def warned(self, instance_ids: Sequence[str]) -> list[dict[str, float]]:
        """The local cloud's records of these instances' interruptions, in their order."""
        records = {record["instance_id"]: record for record in self.cloud.interruptions()}
        return [records[id_] for id_ in instance_ids]

    def settle(self) -> None:
        """Wait, but not for ever, for a moment in which no function calls anything."""
        deadline = time.monotonic() + 3
        quiet_since = time.monotonic()
        while time.monotonic() < min(deadline, quiet_since + QUIET_S):
            calls = self.cloud.calls(self._last_call)
            if calls:
                self._last_call = calls[-1]["n"]
            if any(call["role"] for call in calls):
                quiet_since = time.monotonic()
            time.sleep(POLL_S)


@contextmanager
def deployed(name: str, service_file: Path, say: Callable[[str], None]) -> Iterator[Stand]:
    """The app with this service, until the end of the block; logs are in out/bench/<name>."""
    # Everything is on loopback; boto3 and urllib would ask a proxy for it, too.
    os.environ["no_proxy"] = "127.0.0.1"
    settings = Settings(WARNING_S, ROOT / "out" / "bench" / name)
    deployment.clear(settings.out)
    processes = Processes(settings.logs, ROOT)
    with tempfile.TemporaryDirectory(prefix="spotrelay-bench-") as home:
        try:
            env = {**environment.clean(os.environ), "TMPDIR": home}
            deployer = Deployer(settings, processes, env, Path(home), say, services=[service_file])
            operator = Operator(deployer.deploy())
            operator.cloud.set_capacity(spot=PLENTY)
            yield Stand(operator)
            operator.save_function_logs(settings.logs)
        finally:
            processes.stop_all()


def eventually(look: Callable[[], Found | None], what: str, poll_s: float = POLL_S) -> Found:
    """What `look` finds once it finds something.

    Raises:
        NeverHappenedError: it finds nothing in time.
    """
    deadline = time.monotonic() + WITHIN_S
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise NeverHappenedError(f"{what}: not within {WITHIN_S:.0f} s")
        time.sleep(poll_s)


def percentile(values: Sequence[float], percent: float) -> float:
    """By nearest rank: it is a value that was measured."""
    return sorted(values)[max(math.ceil(len(values) * percent / 100) - 1, 0)]


def in_turn(causes: Sequence[float], effects: Sequence[float]) -> list[float]:
    """Times from each cause to its effect, the first effect being the first cause's, and so on.

    Raises:
        ValueError: there aren't as many effects as causes.
    """
    return [effect - cause for cause, effect in zip(sorted(causes), sorted(effects), strict=True)]
