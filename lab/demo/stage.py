"""What the stories act on and share: the market, the fleet, a voice, and the checks of every loss."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol

from lab.demo.errors import StoryError
from spotrelay.operator.look.watch import NotInTimeError, Snapshot, Watch
from spotrelay.plane.core import timing
from spotrelay.plane.core.pools import CapacityPool, PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState

NOTICED_WITHIN_S = 60.0
"""From a warning until a replacement is requested: less than a second here; a minute, for busy machines."""

RECLAIM_LEEWAY_S = 30.0
"""After the time is up, until the reclaim is on record everywhere: a second or two; more on busy machines."""

RETURN_WITHIN_S = 120.0
"""From Spot's return to a replacement that serves from it, and from there until its fallback is gone, beside
what a start takes. A pool that refused rests for half a minute, and then for a whole one if it refused again,
because the fallback took so long. The fallback stays for a cold start, a standby for 30 s at most, and drains
for 20 s."""

EVENT_TIME_S = 1.0
"""An event's time has whole seconds: by so much earlier the product may believe that an instance ends."""

Delivery = Literal["once", "lost"] | int


class StagedMarket(Protocol):
    """The part of `lab.local.client.LocalCloud` that stories drive and read."""

    def dry_up(
        self, zone: str | None = None, instance_type: str | None = None, *, warn: bool = True
    ) -> Sequence[str]:
        """Take all Spot capacity from the matching pools; the instances that EC2 warns."""
        ...

    def bring_back(self, zone: str | None = None, instance_type: str | None = None) -> object:
        """Give it back."""
        ...

    def warn(self, instance_id: str, *, deliver: Delivery = "once") -> object:
        """Have EC2 take the instance back, its warning delivered so often."""
        ...

    def warn_all(self, instance_ids: Sequence[str]) -> object:
        """Have EC2 take all of these instances back, warned in the same moment."""
        ...

    def interruptions(self) -> Sequence[Mapping[str, Any]]:
        """Every warning so far, with the times of what followed (epoch seconds)."""
        ...


@dataclass(frozen=True, slots=True)
class Loss:
    """One replica that EC2 took back, and in which story."""

    story: str
    replica: int
    instance_id: str


@dataclass(slots=True)
class Stage:
    """Where the stories happen."""

    market: StagedMarket
    watch: Watch
    say: Callable[[str], None]
    types: Collection[str]
    """Instance types that the service may run on, and no other service of the demo."""
    replicas: int
    """As many should serve."""
    warning_s: float
    schedule_s: float
    start_s: float
    """A start may take so long."""
    standbys: int = 0
    """So many should stand by."""
    losses: list[Loss] = field(default_factory=list)
    _told: set[tuple[str, int]] = field(default_factory=set)
    """What was said of which lost replica: that it serves "on", is "out", and is "replaced"."""

    def spot_replicas(self) -> list[Replica]:
        """Replicas that serve from Spot instances and aren't warned, lowest ID first.

        Raises:
            StoryError: there are none, so there is nothing to tell.
        """
        ready = self.watch.look().ready
        found = [r for r in ready if r.stays and option_of(r) is PurchaseOption.SPOT]
        if not found:
            raise StoryError("no replica serves from a Spot instance, so there is nothing to interrupt")
        return found

    def warn(self, story: str, replica: Replica, *, deliver: Delivery = "once") -> None:
        """Have EC2 take the replica's instance."""
        instance_id = instance_of(replica)
        self.losses.append(Loss(story, replica.id, instance_id))
        self.market.warn(instance_id, deliver=deliver)

    def warn_all(self, story: str, replicas: Sequence[Replica]) -> None:
        """Have EC2 take these replicas' instances, warned in the same moment."""
        instance_ids = {instance_of(r): r.id for r in replicas}
        self.losses += [Loss(story, replica, id_) for id_, replica in instance_ids.items()]
        self.market.warn_all(list(instance_ids))

    def dry_up(self) -> None:
        """Take the Spot capacity from all of the service's pools, and let whoever is there stay."""
        for type_ in self.types:
            self.market.dry_up(instance_type=type_, warn=False)

    def bring_back(self) -> None:
        """Give all of the service's pools their Spot capacity back."""
        for type_ in self.types:
            self.market.bring_back(instance_type=type_)

    def lose_pool(self, story: str, pool: CapacityPool, replicas: Sequence[Replica]) -> None:
        """Have EC2 take back the whole pool, which is where these replicas are, and nobody else.

        Raises:
            StoryError: EC2 warned others than these.
        """
        instance_ids = {instance_of(r): r.id for r in replicas}
        self.losses += [Loss(story, replica, id_) for id_, replica in instance_ids.items()]
        warned = self.market.dry_up(zone=pool.zone, instance_type=pool.instance_type)
        if set(warned) != instance_ids.keys():
            raise StoryError(
                f"{pool}: {len(replicas)} replicas were to be warned, and EC2 warned {sorted(warned)}"
            )

    def only_spot(self) -> list[Replica]:
        """Wait until as many as wanted serve, all of them from Spot instances, and all standbys are back.

        Raises:
            StoryError: not within the time.
        """
        seen = self._until(
            lambda seen: (
                len(seen.ready) == self.replicas
                and len(standing_by(seen)) == self.standbys
                and all(r.stays and option_of(r) is PurchaseOption.SPOT for r in seen.ready)
            ),
            f"{self.replicas} replicas in rotation, all of them on Spot, and {self.standbys} standbys",
            self.schedule_s + self.start_s + RETURN_WITHIN_S,
        )
        return list(seen.ready)

    def replaced(self, replicas: Sequence[Replica], *, notice_s: float = 0) -> list[Replica]:
        """Wait until each of the warned replicas is out, and its replacement serves; the replacements.

        `notice_s` is how much later than at once the product may notice.

        Raises:
            StoryError: not within the time, or replaced more than once.
        """
        self._noticed(replicas, notice_s)
        replacements = self.replacements(replicas)
        self._out(replicas)
        return replacements

    def replacements(self, replicas: Sequence[Replica], *, return_s: float = 0) -> list[Replica]:
        """Wait until the one replacement of each of these replicas serves; the replacements.

        `return_s` is how much later than at once they may have an instance.

        Raises:
            StoryError: not within the time, or there is more than one of a replica.
        """
        ids = [r.id for r in replicas]
        seen = self._until(
            lambda seen: all(_serves(_only_replacement(seen, id_)) for id_ in ids),
            f"a replacement of {names_of(replicas)} in rotation",
            self.start_s + return_s,
        )
        return [_only_replacement(seen, id_) for id_ in ids]

    def taken_out(self, replicas: Sequence[Replica]) -> None:
        """Wait until each of the warned replicas is out of rotation, and a replacement of it requested.

        Raises:
            StoryError: not within the time.
        """
        self._noticed(replicas, 0)
        self._out(replicas)

    def fallback(self) -> Replica:
        """Wait until a fallback serves.

        Raises:
            StoryError: not within the time.
        """
        seen = self._until(
            lambda seen: any(r.is_fallback for r in seen.ready), "a fallback in rotation", self.start_s
        )
        return next(r for r in seen.ready if r.is_fallback)

    def fallbacks(self) -> list[Replica]:
        """Wait until as many fallbacks serve as replicas should; these.

        Raises:
            StoryError: not within the time.
        """
        seen = self._until(
            lambda seen: sum(r.is_fallback for r in seen.ready) >= self.replicas,
            f"{self.replicas} fallbacks in rotation",
            # Without standbys they are launched when EC2 has taken those that were lost.
            self.warning_s + self.start_s,
        )
        return [r for r in seen.ready if r.is_fallback]

    def ready_after_s(self, replica: Replica, lost_id: int) -> float:
        """From the warning of the one that was lost until this one, which serves, was ready."""
        ready = replica.entered[ReplicaState.READY].timestamp()
        return float(ready - self.interruption(lost_id)["warned_at"])

    def interruption(self, replica_id: int) -> Mapping[str, Any]:
        """The local cloud's record of what became of the warned replica.

        Raises:
            StoryError: it has none.
        """
        instance_id = next(loss.instance_id for loss in self.losses if loss.replica == replica_id)
        for record in self.market.interruptions():
            if record["instance_id"] == instance_id:
                return record
        raise StoryError(f"replica {replica_id} ({instance_id}): the local cloud knows of no interruption")

    def settle(self) -> Snapshot:
        """Wait for the last reclaim and a whole fleet; the final snapshot.

        Raises:
            StoryError: neither happens in time.
        """
        self._until(
            lambda _: all(
                self.interruption(loss.replica)["reclaimed_at"] is not None for loss in self.losses
            ),
            "EC2 takes every instance that it warned",
            self.warning_s + RECLAIM_LEEWAY_S,
        )
        lost = {loss.replica for loss in self.losses}
        seen = self._until(
            lambda seen: (
                len(seen.ready) == len(seen.present) - len(standing_by(seen)) == self.replicas
                and len(standing_by(seen)) == self.standbys
                and not any(r.is_fallback for r in seen.present)
                and all(seen.replicas[id_].state is ReplicaState.TERMINATED for id_ in lost)
            ),
            f"a whole fleet: {self.replicas} replicas on Spot that serve, {self.standbys} standbys,"
            " and nothing else",
            self.schedule_s + self.start_s + RETURN_WITHIN_S,
        )
        for replica in seen.replicas.values():
            if replica.is_fallback and ReplicaState.READY in replica.entered:
                served = replica.entered[ReplicaState.DRAINING] - replica.entered[ReplicaState.READY]
                self.say(
                    f"fallback {replica.id} ({replica.offering}) served for {served.total_seconds():.1f} s"
                    f" and is terminated: {replica.reason}"
                )
        return seen

    def _noticed(self, replicas: Sequence[Replica], notice_s: float) -> None:
        self._until(
            lambda seen: all(seen.replicas[r.id].replaced_by is not None for r in replicas),
            f"a replacement of {names_of(replicas)} requested",
            notice_s + NOTICED_WITHIN_S,
        )

    def _out(self, replicas: Sequence[Replica]) -> None:
        # A replica that keeps serving does so until shortly before its end at the latest.
        self._until(
            lambda _: all(("out", r.id) in self._told for r in replicas),
            f"{names_of(replicas)} out of rotation",
            self.warning_s + NOTICED_WITHIN_S,
        )

    def _until(self, is_so: Callable[[Snapshot], bool], what: str, within_s: float) -> Snapshot:
        """As `Watch.until`; meanwhile it reports what becomes of each loss, once."""

        def is_so_and_told(seen: Snapshot) -> bool:
            self._tell(seen)
            return is_so(seen)

        try:
            return self.watch.until(is_so_and_told, what, within_s)
        except NotInTimeError as error:
            raise StoryError(str(error)) from None

    def _tell(self, seen: Snapshot) -> None:
        news = (
            one
            for loss in self.losses
            if not {("out", loss.replica), ("replaced", loss.replica)} <= self._told
            for one in self._news(seen, loss.replica)
        )
        for _, what, id_, line in sorted(news):
            if (what, id_) not in self._told:
                self._told.add((what, id_))
                self.say(line)

    def _news(self, seen: Snapshot, id_: int) -> Iterator[tuple[float, str, int, str]]:
        """What has become of a loss by now: when (epoch seconds), what, of which replica, and in words."""
        record, lost = self.interruption(id_), seen.replicas[id_]
        replacement = next(iter(seen.replacements(id_)), None)
        if replacement is None:
            return
        if lost.state is ReplicaState.READY:
            requested = replacement.entered[ReplicaState.REQUESTED].timestamp()
            yield requested, "on", id_, f"replica {id_} keeps serving: {self._who_else(seen)}"
        elif record["deregistered_at"] is not None:
            after_s = record["deregistered_at"] - record["warned_at"]
            line = f"replica {id_} out of rotation {after_s:.2f} s after the warning"
            yield record["deregistered_at"], "out", id_, line + self._why_then(seen, lost, after_s)
        if _serves(replacement):
            ready = replacement.entered[ReplicaState.READY].timestamp()
            line = f"replica {replacement.id} ({replacement.offering}) serves in place of {id_}"
            after_s = self.ready_after_s(replacement, id_)
            yield ready, "replaced", id_, f"{line}, {after_s:.1f} s after the warning"

    def _who_else(self, seen: Snapshot) -> str:
        staying = sum(r.stays for r in seen.replicas.values())
        left = f"only {staying} of {self.replicas}" if staying else "no other replica"
        return f"{left} would be left"

    def _why_then(self, seen: Snapshot, lost: Replica, after_s: float) -> str:
        """Why it left the rotation when it did; empty if it left at once."""
        since = serves_on_since(lost, seen.replicas)
        if since is None:
            return ""
        left = lost.entered[ReplicaState.DRAINING]
        # The tick that finds others ready lets it leave in the same decision: both rows have the same time.
        others = [
            r for r in seen.replicas.values() if since < r.entered.get(ReplicaState.READY, since) <= left
        ]
        if others:
            return f", because {names_of(others)} served by then"
        if after_s >= self.warning_s - timing.LAST_ONE_STAYS_S - EVENT_TIME_S:
            return f", {self.warning_s - after_s:.1f} s before its end: it was the last one"
        return ", at its drain deadline"


def standing_by(seen: Snapshot) -> list[Replica]:
    """The standbys that are prepared, tried out and stopped."""
    return [r for r in seen.present if r.state is ReplicaState.STANDBY and r.resume_s is not None]


def serves_on_since(lost: Replica, replicas: Mapping[int, Replica]) -> datetime | None:
    """Since when a warned replica has kept serving, or did; None: it left at once, or isn't lost.

    A replica that leaves at once does so in the same commit that requests its replacement.
    """
    replacement = replicas.get(lost.replaced_by or 0)
    if not lost.is_warned or replacement is None:
        return None
    requested = replacement.entered[ReplicaState.REQUESTED]
    left = lost.entered.get(ReplicaState.DRAINING)
    return requested if left is None or requested < left else None


def starts_s(replicas: Iterable[Replica]) -> list[float]:
    """How long each took from its request until it served."""
    times = [r.entered for r in replicas]
    return [round((at[ReplicaState.READY] - at[ReplicaState.REQUESTED]).total_seconds(), 1) for at in times]


def range_of(durations_s: Sequence[float]) -> str:
    """Durations in a sentence, at least one: "6.1 to 7.2 s"."""
    least, most = f"{min(durations_s):.1f}", f"{max(durations_s):.1f}"
    return f"{most} s" if least == most else f"{least} to {most} s"


def names_of(replicas: Sequence[Replica]) -> str:
    """The replicas in a sentence, at least one: "replicas 1, 2 and 3"."""
    *others, last = (str(r.id) for r in replicas)
    return f"replicas {', '.join(others)} and {last}" if others else f"replica {last}"


def instance_of(replica: Replica) -> str:
    """The replica's instance, which one that serves always has."""
    if replica.instance_id is None:
        raise StoryError(f"replica {replica.id} is {replica.state} and has no instance")
    return replica.instance_id


def option_of(replica: Replica) -> PurchaseOption | None:
    """How its instance is paid for; None while it has none."""
    return replica.offering.purchase_option if replica.offering else None


def _serves(replica: Replica | None) -> bool:
    return replica is not None and replica.state is ReplicaState.READY


def _only_replacement(seen: Snapshot, replica_id: int) -> Replica:
    replacements = seen.replacements(replica_id)
    if len(replacements) != 1:
        ids = ", ".join(str(r.id) for r in replacements) or "none"
        raise StoryError(f"replica {replica_id} must have exactly one replacement; it has: {ids}")
    return replacements[0]
