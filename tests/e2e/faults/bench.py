"""A service under test: what it takes to hurt it, and to wait until it has recovered."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

from lab.local.catalog import ON_DEMAND_CAPACITY
from spotrelay.plane.core.ports import Unavailable
from spotrelay.plane.core.replica import Replica
from tests.e2e.faults import rules
from tests.e2e.stand import Stand

SETTLED_WITHIN_S = 300.0
"""Seconds are usual; a minute after a tick was killed, because its lease holds for so long."""

SETTLED_POLL_S = 1.0
"""All facts together are some twenty calls."""

WARNERS = 8
"""Threads that warn instances: so many warnings are under way at once."""


class Bench(Stand):
    """A service of the faults' own deployment. Each test leaves it whole."""

    @property
    def on_signal(self) -> str:
        """The role of the function that reacts to signals."""
        return self.outputs["OnSignalRole"]

    @property
    def reconcile(self) -> str:
        """The role of the function that runs ticks."""
        return self.outputs["ReconcileRole"]

    def victim(self) -> Replica:
        """A regular replica that serves and has a future; waits for one."""
        found: list[Replica] = []

        def find() -> bool:
            warned = {i["instance_id"] for i in self.cloud.interruptions()}
            ready = self.watch.look().ready
            found.extend(r for r in ready if r.instance_id not in warned and not r.is_fallback)
            return bool(found)

        self.eventually(find, "a replica that serves")
        return found[0]

    def warn(self, replica: Replica, *, deliver: Literal["once", "lost"] | int = "once") -> None:
        """Have EC2 take a replica's instance; see `LocalCloud.warn`."""
        self.cloud.warn(str(replica.instance_id), deliver=deliver)

    def warn_all(self, replicas: Sequence[Replica]) -> None:
        """Warn them as fast as it goes."""
        with ThreadPoolExecutor(WARNERS) as warners:
            list(warners.map(self.warn, replicas))

    def strike(self, action: str, **fault: Any) -> int:
        """Have the signal function's next call of an action go wrong; how many replicas that cost.

        More than one if a tick came first and left the function nothing to call for.
        """
        self.cloud.inject_fault(action, role=self.on_signal, **fault)
        warned = 0
        while self.cloud.faults():
            self.warn(self.victim())
            warned += 1
            self.eventually(
                lambda: not self.cloud.faults() or self._is_empty(self.outputs["SignalQueueUrl"]),
                f"{action} is called, or all signals are processed",
            )
        return warned

    def struck(self) -> None:
        """Wait until every fault has happened as often, or for as long, as it was to."""
        self.eventually(lambda: not self.cloud.faults(), "the faults have struck")

    def dry_up(self, *, has_on_demand: bool = False) -> Callable[[], None]:
        """Let no pool of the service have Spot capacity, nor on-demand unless that is said; what ends it."""
        types = {pool["instance_type"] for pool in self.cloud.pools()} & {*self.spec.instance_types}
        for type_ in types:
            self.cloud.dry_up(instance_type=type_, warn=False)
            if not has_on_demand:
                self.cloud.set_capacity(instance_type=type_, on_demand=0)

        def bring_back() -> None:
            for type_ in types:
                self.cloud.bring_back(instance_type=type_)
                self.cloud.set_capacity(instance_type=type_, on_demand=ON_DEMAND_CAPACITY)

        return bring_back

    def interruption(self, replica: Replica) -> Mapping[str, Any]:
        """The local cloud's record of the interruption of a replica's instance."""
        return next(i for i in self.cloud.interruptions() if i["instance_id"] == replica.instance_id)

    def want_standbys(self, standby: int) -> None:
        """Change the number of standbys, as deploying a changed service file does."""
        self.change(standby=standby)

    def settled(self, *, has_history: bool = True) -> rules.Facts:
        """Wait until every rule holds; the facts then. `has_history` is for `rules.broken`.

        Faults that are still to strike would make it meaningless, so there must be none.
        """
        assert not self.cloud.faults()
        deadline = time.monotonic() + SETTLED_WITHIN_S
        while True:
            try:
                facts = rules.gather(self.operator, self.spec)
                found = rules.broken(facts, has_history=has_history)
            except Unavailable as error:  # surveys of several services keep a busy local cloud for seconds
                found = [repr(error)]
            else:
                if not found:
                    return facts
            if time.monotonic() > deadline:
                raise AssertionError("\n  ".join([f"not settled within {SETTLED_WITHIN_S:.0f} s:", *found]))
            time.sleep(SETTLED_POLL_S)

    def nothing_is_under_way(self) -> None:
        """Wait until no instance of any service comes or goes, and what was said about them is processed."""
        self.eventually(lambda: all(map(_rests, self.cloud.instances())), "every instance runs or is gone")
        self.queues_are_empty()

    def queues_are_empty(self) -> None:
        """Wait until no message of these queues waits, or hides after a failure."""
        for output in ("SignalQueueUrl", "TickQueueUrl", "LeaveQueueUrl"):
            url = self.outputs[output]
            self.eventually(partial(self._is_empty, url), f"{output} is empty")

    def dead(self) -> list[str]:
        """Messages that were set aside, or couldn't be delivered."""
        work = {self.outputs[f"{name}QueueUrl"] for name in ("Signal", "Tick", "Leave")}
        return [
            message["Body"]
            for url in self._sqs.list_queues()["QueueUrls"]
            if url not in work
            for message in self._peek(url)
        ]

    def _is_empty(self, url: str) -> bool:
        return self._waiting(url) == 0

    def _peek(self, url: str) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = self._sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0
        ).get("Messages", [])
        return found


def _rests(instance: Mapping[str, Any]) -> bool:
    state = instance["state"]
    return bool(state == "terminated" or (state == "running" and instance["warned_at"] is None))
