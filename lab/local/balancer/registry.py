"""Which targets are registered with which group, and how healthy they are."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lab.local.balancer import target as health
from lab.local.balancer.config import TargetGroup
from lab.local.balancer.probe import Probe
from lab.local.balancer.target import Health, State, Target

_IDLE = (health.NOT_IN_USE, health.ZONE_NOT_ENABLED)

_log = logging.getLogger(__name__)


class UnknownTargetGroupError(LookupError):
    """A target group that no `configure` has told the balancer about."""


@dataclass(slots=True)
class _Group:
    config: TargetGroup
    in_use: bool = False
    zones: frozenset[str] | None = None
    targets: dict[tuple[str, int], Target] = field(default_factory=dict)

    def key(self, instance_id: str, port: int | None) -> tuple[str, int]:
        return instance_id, port or self.config.port


class Registry:
    """All target groups, with a health check running for every target that can get traffic.

    Call it from the event loop's thread only.
    """

    def __init__(self, address_of: Callable[[str], str | None], zone_of: Callable[[str], str | None]) -> None:
        self._address_of = address_of
        self._zone_of = zone_of
        self._groups: dict[str, _Group] = {}
        self._watches: dict[Target, asyncio.Task[None]] = {}
        self._deadlines: dict[Target, asyncio.TimerHandle] = {}
        self._turns = itertools.count(1)
        self._probe: Probe | None = None

    async def start(self) -> None:
        """Begins health checks."""
        self._probe = Probe()
        for group in self._groups.values():
            for target in group.targets.values():
                self._watch(group, target)

    async def close(self) -> None:
        """Ends health checks and breaks off what is in flight."""
        for deadline in self._deadlines.values():
            deadline.cancel()
        self._deadlines.clear()
        for group in self._groups.values():
            for target in group.targets.values():
                target.break_off()
        watches = list(self._watches.values())
        self._watches.clear()
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        if self._probe is not None:
            await self._probe.close()
            self._probe = None

    def configure(self, groups: Iterable[TargetGroup], in_use: Mapping[str, frozenset[str] | None]) -> None:
        """Makes these all the groups there are.

        Those with an ARN in `in_use` get traffic, in the zones beside it; None: in all zones.
        """
        wanted = {group.arn: group for group in groups}
        for arn in self._groups.keys() - wanted.keys():
            group = self._groups.pop(arn)
            for target in list(group.targets.values()):
                self._remove(group, target)
        for arn, config in wanted.items():
            group = self._groups.setdefault(arn, _Group(config))
            before = group.config, group.in_use, group.zones
            now = config, arn in in_use, in_use.get(arn)
            group.config, group.in_use, group.zones = now
            if before == now:
                continue
            for target in group.targets.values():
                if target.health.state is State.DRAINING:
                    continue
                if (target.health in _IDLE) != (self._idle(group, target) is not None):
                    self._begin(group, target)
                else:
                    self._watch(group, target)

    def register(self, arn: str, targets: Iterable[tuple[str, int | None]]) -> None:
        """Adds targets; one that is draining comes back. Raises UnknownTargetGroupError."""
        group = self._group(arn)
        for instance_id, port in targets:
            key = group.key(instance_id, port)
            target = group.targets.get(key)
            if target is None:
                target = group.targets[key] = Target(*key)
            elif target.health.state is State.DRAINING:
                self._cancel_deadline(target)
            else:
                continue
            self._begin(group, target)

    def deregister(self, arn: str, targets: Iterable[tuple[str, int | None]]) -> None:
        """Drains targets; an absent one is no error. Raises UnknownTargetGroupError.

        As at ELB one is shown as draining for the whole delay, even if it serves nothing any more.
        """
        group = self._group(arn)
        for instance_id, port in targets:
            target = group.targets.get(group.key(instance_id, port))
            if target is None or target.health.state is State.DRAINING:
                continue
            self._unwatch(target)
            target.drain(time.time())
            self._deadlines[target] = asyncio.get_running_loop().call_later(
                group.config.deregistration_delay_s, self._remove, group, target
            )

    def health(self, arn: str, targets: Iterable[tuple[str, int | None]] | None) -> list[dict[str, Any]]:
        """What DescribeTargetHealth says of all targets, or of those asked for.

        Raises UnknownTargetGroupError.
        """
        group = self._group(arn)
        keys = list(group.targets) if targets is None else [group.key(*asked) for asked in targets]
        return [
            {"id": key[0], "port": key[1]}
            | asdict(group.targets[key].health if key in group.targets else health.NOT_REGISTERED)
            for key in keys
        ]

    def choose(self, arn: str | None) -> Target | None:
        """Who serves the next request: a healthy target, else any that is registered, else none."""
        group = self._groups.get(arn or "")
        if group is None:
            return None
        candidates = [each for each in group.targets.values() if each.health.state is State.HEALTHY]
        if not candidates:
            candidates = [each for each in group.targets.values() if each.is_routable]
        if not candidates:
            return None
        if group.config.algorithm == "least_outstanding_requests":
            chosen = min(candidates, key=lambda each: (len(each.in_flight), each.last_used))
        else:
            chosen = min(candidates, key=lambda each: each.last_used)
        chosen.last_used = next(self._turns)
        return chosen

    def _group(self, arn: str) -> _Group:
        try:
            return self._groups[arn]
        except KeyError:
            raise UnknownTargetGroupError(f"target group {arn} is not configured") from None

    def _begin(self, group: _Group, target: Target) -> None:
        target.restart(self._idle(group, target) or health.REGISTERING)
        self._watch(group, target)

    def _idle(self, group: _Group, target: Target) -> Health | None:
        """Why the target can't get any traffic, if so."""
        if not group.in_use:
            return health.NOT_IN_USE
        zone = self._zone_of(target.id)
        if group.zones is None or zone is None or zone in group.zones:
            return None
        return health.ZONE_NOT_ENABLED

    def _watch(self, group: _Group, target: Target) -> None:
        """(Re)starts the target's health checks, if it can get traffic and the balancer runs."""
        self._unwatch(target)
        if self._probe is None or self._idle(group, target):
            return
        watch = asyncio.get_running_loop().create_task(self._check_for_ever(self._probe, group, target))
        watch.add_done_callback(_report)
        self._watches[target] = watch

    def _unwatch(self, target: Target) -> None:
        if (watch := self._watches.pop(target, None)) is not None:
            watch.cancel()

    async def _check_for_ever(self, probe: Probe, group: _Group, target: Target) -> None:
        check = group.config.health_check
        now = asyncio.get_running_loop().time
        while True:
            began = now()
            address = self._address_of(target.id)
            if address is None:
                target.restart(health.NOT_RUNNING)
            else:
                if target.health is health.NOT_RUNNING:
                    target.restart(health.REGISTERING)
                target.judge(await probe.check(address, target.port, check), check)
            # ELB's interval is from check to check, however long the target takes to answer.
            await asyncio.sleep(began + check.interval_s - now())

    def _cancel_deadline(self, target: Target) -> None:
        if (deadline := self._deadlines.pop(target, None)) is not None:
            deadline.cancel()

    def _remove(self, group: _Group, target: Target) -> None:
        """Takes the target out for good; what it is still serving is broken off."""
        self._unwatch(target)
        self._cancel_deadline(target)
        del group.targets[target.id, target.port]
        target.break_off()


def _report(watch: asyncio.Task[None]) -> None:
    if not watch.cancelled() and (error := watch.exception()) is not None:
        _log.error("health checks of a target ended by an error of ours", exc_info=error)
