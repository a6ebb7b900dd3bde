"""Decisions put into rows: which replica becomes what, and which new ones stand in for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from spotrelay.model import (
    Backoff,
    Changes,
    Cooldown,
    Instance,
    LaunchIntent,
    PurchaseOption,
    Replica,
    ReplicaState,
    Rows,
    ServiceSpec,
)
from spotrelay.policy import placement, reconcile
from spotrelay.policy.actions import (
    Action,
    Adopt,
    CloseIntent,
    Drain,
    End,
    Fail,
    Launch,
    MarkReady,
    NoteHealth,
    NoteWarning,
    Request,
    Start,
    Terminate,
)


@dataclass(frozen=True, slots=True)
class _Delta:
    """What belongs together: a drained replica is never written without its replacement, nor the reverse."""

    update: tuple[Replica, ...] = ()
    create: tuple[Replica, ...] = ()
    launch: tuple[Replica, ...] = ()
    """Rows that exist and are to be launched."""
    close_intents: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.update) + len(self.create) + len(self.launch) + len(self.close_intents)


def changes(
    service: str,
    spec: ServiceSpec | None,
    rows: Rows,
    actions: Iterable[Action],
    now: datetime,
    new_id: Callable[[], str],
) -> list[Changes]:
    """The commits that put the actions into rows, each with one launch intent for all that it launches.

    Without a `spec` (its stack is gone) nothing is created or launched. `new_id` names intents.
    """
    actions = list(actions)
    packed: list[list[_Delta]] = []
    for delta in _deltas(spec, rows, actions, now):
        if not packed or sum(d.size for d in packed[-1]) + delta.size > Changes.MAX_ROWS:
            packed.append([])
        packed[-1].append(delta)
    commits = []
    highest_id = rows.highest_id
    for deltas in packed:
        commit = _commit(service, deltas, highest_id, now, new_id)
        highest_id += len(commit.create)
        commits.append(commit)
    backoff = _backoff_after(rows.backoff, actions, now)
    if backoff != rows.backoff:
        commits[-1] = replace(commits[-1], backoff=backoff)
    return commits


def provisioned(replica: Replica, instance: Instance, now: datetime) -> Replica:
    """The replica with the instance that it waited for."""
    return replica.to(
        ReplicaState.PROVISIONING, now, offering=instance.offering, instance_id=instance.id, retry_at=None
    )


def cooldowns(actions: Iterable[Action], now: datetime) -> list[Cooldown]:
    """What the losses among the actions teach about their pools."""
    return [
        placement.cooldown_of_loss(a.replica.offering, now, a.reason)
        for a in actions
        if isinstance(a, Drain)
        and a.cool_pool
        and a.replica.offering is not None
        and a.replica.offering.purchase_option is PurchaseOption.SPOT
    ]


def _commit(
    service: str, deltas: list[_Delta], highest_id: int, now: datetime, new_id: Callable[[], str]
) -> Changes:
    create = [r for d in deltas for r in d.create]
    update = [r for d in deltas for r in d.update]
    launch = [r for d in deltas for r in d.launch]
    intent = None
    if create or launch:
        intent = LaunchIntent(new_id(), service, tuple(r.id for r in (*create, *launch)), now)
        create = [replace(r, launch_id=intent.id) for r in create]
        update += [replace(r, launch_id=intent.id) for r in launch]
    return Changes(
        service,
        highest_id=(highest_id, highest_id + len(create)) if create else None,
        create=tuple(create),
        update=tuple(update),
        open_intent=intent,
        close_intents=tuple(i for d in deltas for i in d.close_intents),
    )


def _deltas(
    spec: ServiceSpec | None, rows: Rows, actions: Iterable[Action], now: datetime
) -> Iterator[_Delta]:
    next_id = rows.highest_id + 1
    for action in actions:
        match action:
            case Drain(replica=replica, reason=reason, warned_at=warned_at):
                drained = replica.to(ReplicaState.DRAINING, now, reason, warned_at=warned_at)
                if not action.replace or spec is None:
                    yield _Delta((drained,))
                    continue
                stand_in = Replica.requested(
                    spec.service, next_id, spec.version, now, reason=reason, replaces=replica.id
                )
                yield _Delta((replace(drained, replaced_by=next_id),), (stand_in,))
                next_id += 1
            case Request(count=count, reason=reason) if spec is not None:
                for _ in range(count):
                    yield _Delta(
                        create=(Replica.requested(spec.service, next_id, spec.version, now, reason=reason),)
                    )
                    next_id += 1
            case Launch(replicas=replicas) if spec is not None:
                for replica in replicas:
                    yield _Delta(launch=(replica,))
            case CloseIntent(intent_id=intent_id):
                yield _Delta(close_intents=(intent_id,))
            case _:
                row = _changed(action, now)
                if row is not None:
                    yield _Delta((row,))


def _changed(action: Action, now: datetime) -> Replica | None:
    """The row of the one replica that the action is about; None if nothing of it is written."""
    match action:
        case NoteWarning(replica=replica, warned_at=at):
            return replace(replica, warned_at=at)
        case Start(replica=replica):
            return replica.to(ReplicaState.STARTING, now)
        case MarkReady(replica=replica):
            return replica.to(ReplicaState.READY, now)
        case NoteHealth(replica=replica, unhealthy_since=since):
            return replace(replica, unhealthy_since=since)
        case Fail(replica=replica, reason=reason):
            return replica.to(ReplicaState.FAILED, now, reason)
        case End(replica=replica, reason=reason):
            return replica.to(ReplicaState.TERMINATED, now, reason)
        case Adopt(replica=replica, instance=instance):
            return provisioned(replica, instance, now)
        case Terminate(replica=Replica() as replica):
            return replica
        case _:
            return None


def _backoff_after(backoff: Backoff, actions: Iterable[Action], now: datetime) -> Backoff:
    for action in actions:
        if isinstance(action, Fail):
            backoff = reconcile.after_failure(backoff, now)
        elif isinstance(action, MarkReady):
            backoff = Backoff()
    return backoff
