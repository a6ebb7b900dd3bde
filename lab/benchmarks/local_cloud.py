"""The unmodified stack in a local cloud, for rows that need it: deployed as the demo deploys it."""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from lab.demo import deployment, environment, stopping
from lab.demo.deployment import Deployer
from lab.demo.errors import Interrupted
from lab.demo.operator import Operator
from lab.demo.processes import Processes
from lab.demo.settings import ROOT, DemoSettings
from spotrelay.plane.core.replica import ReplicaState

SERVICE = "demo"
"""The deployer looks for this service's address."""

PLENTY = 10_000
"""Instances that each pool can hold: the way to a replacement is measured, not a search for room."""

WITHIN_S = 60.0
"""A bound on what takes seconds, for machines that are busy otherwise."""

POLL_S = 0.03
"""Between two looks at the calls that were made. All times are the local cloud's own records, so this doesn't
show in a figure; to look more often would take time from what is measured."""

QUIET_S = 0.12
"""So long without a call by a function, and nothing is going on: a tick's calls follow each other closely."""

NEVER_QUIET_S = 4.0
"""A tick of sixty replicas takes half a second, and the next comes after three: then the wait is given up."""

Found = TypeVar("Found")


class NeverHappenedError(Exception):
    """Something that a row waits for didn't come, or too much of it; one line says what."""


class Stand:
    """A deployment, its fleet, and the local cloud's records of both."""

    def __init__(self, operator: Operator, logs: Path) -> None:
        self.operator = operator
        self.cloud = operator.cloud
        self.outputs = operator.deployment.control_plane
        self.spec = operator.spec(SERVICE)
        self.logs = logs
        self._last_call = 0

    def client(self, service: str) -> Any:
        """A client of the operator's."""
        return self.operator.session.client(service)

    def serving(self, count: int, within_s: float = WITHIN_S, but: Collection[str] = ()) -> list[str]:
        """The instances of all replicas that serve, `but` these left out, once there are so many.

        Raises:
            NeverHappenedError: there aren't in time.
        """

        def ready() -> list[str]:
            replicas = self.operator.store.load(SERVICE).replicas.values()
            instances = [r.instance_id for r in replicas if r.state is ReplicaState.READY]
            return [id_ for id_ in instances if id_ and id_ not in but]

        return list(self.eventually(ready, count, "replicas serve", within_s, poll_s=0.3))

    def warned(self, instance_ids: Sequence[str]) -> list[dict[str, Any]]:
        """The local cloud's records of these instances' interruptions, in their order."""
        records = {record["instance_id"]: record for record in self.cloud.interruptions()}
        return [records[id_] for id_ in instance_ids]

    def forgive_pools(self) -> None:
        """Let the product forget which pools have refused or lost anything."""
        store, spec = self.operator.store, self.spec
        memory = store.recall(spec.service, spec.region, datetime.now(UTC))
        store.forgive([cooldown.scope for cooldown in memory.cooldowns])

    def settle(self) -> None:
        """Wait, but not for ever, for a moment in which no function calls anything."""
        began = quiet_since = time.monotonic()
        while time.monotonic() < min(began + NEVER_QUIET_S, quiet_since + QUIET_S):
            calls = self.cloud.calls(self._last_call)
            if calls:
                self._last_call = calls[-1]["n"]
            if any(call["role"] for call in calls):
                quiet_since = time.monotonic()
            time.sleep(POLL_S)

    def eventually(
        self,
        look: Callable[[], Sequence[Found]],
        count: int,
        what: str,
        within_s: float = WITHIN_S,
        poll_s: float | None = None,
    ) -> Sequence[Found]:
        """What `look` finds once there is so much; without `poll_s` it looks when nothing is going on.

        Raises:
            NeverHappenedError: there isn't in time.
        """
        deadline = time.monotonic() + within_s
        while True:
            if poll_s is None:
                self.settle()
            found = look()
            if len(found) >= count:
                return found
            if time.monotonic() > deadline:
                raise NeverHappenedError(
                    f"only {len(found)} of {count} {what} after {within_s:.0f} s; logs are in {self.logs}"
                )
            if poll_s is not None:
                time.sleep(poll_s)


@contextmanager
def deployed(name: str, service_file: Path, say: Callable[[str], None], warning_s: float) -> Iterator[Stand]:
    """The app with this service, until the end of the block; logs are in out/bench/<name>.

    `warning_s`: from the warning until EC2 takes the instance.
    Ctrl-C and its relatives end the block early, and then everything that was started in it.
    """
    stopping.listen()
    # Everything is on loopback; boto3 and urllib would ask a proxy for it, too.
    os.environ["no_proxy"] = "127.0.0.1"
    settings = DemoSettings(warning_s, ROOT / "out" / "bench" / name)
    deployment.clear(settings.out)
    processes = Processes(settings.logs, ROOT)
    with tempfile.TemporaryDirectory(prefix="spotrelay-bench-") as home:
        try:
            env = {**environment.clean(os.environ), "TMPDIR": home}
            deployer = Deployer(settings, processes, env, Path(home), say, services=[service_file])
            operator = Operator(deployer.deploy())
            operator.cloud.set_capacity(spot=PLENTY)
            yield Stand(operator, settings.logs.relative_to(ROOT))
            operator.save_function_logs(settings.logs)
        except Interrupted as interrupted:
            raise SystemExit(128 + interrupted.signal_number) from None
        finally:
            stopping.ignore()
            processes.stop_all()


def percentile(values: Sequence[float], percent: float) -> float:
    """By nearest rank: it is a value that was measured."""
    return sorted(values)[max(math.ceil(len(values) * percent / 100) - 1, 0)]


def the_only(times: Sequence[float]) -> float:
    """The time of what happened once.

    Raises:
        NeverHappenedError: it happened several times, or not at all.
    """
    if len(times) != 1:
        raise NeverHappenedError(f"a warning had {len(times)} effects instead of one")
    return times[0]
