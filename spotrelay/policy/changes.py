"""Decisions put into rows: which replica becomes what, and which new ones stand in for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count

from spotrelay.model import (
    Backoff,
    Changes,
    Cooldown,
    Instance,
    LaunchIntent,
    LaunchWindow,
    PurchaseOption,
    Replica,
    ReplicaState,
    Rows,
    ServiceSpec,
    seconds,
)
from spotrelay.policy import failures, placement, timing
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
    NoteRebalance,
    NoteWarning,
    Request,
    Start,
    Supersede,
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
    highest_id, window = rows.highest_id, rows.window
    for deltas in packed:
        commit = _commit(service, deltas, highest_id, _Brake(spec, window, now), now, new_id)
        highest_id += len(commit.create)
        window = commit.window[1] if commit.window else window
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


class _Brake:
    """Lets so many launches through in a minute; what it holds is due again when the minute is over."""

    def __init__(self, spec: ServiceSpec | None, window: LaunchWindow, now: datetime) -> None:
        self._as_read = window
        started = window.since
        is_over = started is None or now - started >= seconds(timing.LAUNCH_WINDOW_S)
        self._since, self._launched = (now, 0) if is_over or started is None else (started, window.launched)
        self._ceiling = spec.max_launches_per_minute if spec else 0

    def passes(self, wanted: int) -> int:
        """How many of so many launches may be made now."""
        return max(min(wanted, self._ceiling - self._launched), 0)

    def after(self, launched: int) -> tuple[LaunchWindow, LaunchWindow]:
        """The window as it was read, and as it is once they are made."""
        return self._as_read, LaunchWindow(self._since, self._launched + launched)

    def hold(self, replica: Replica) -> Replica:
        """A replica that must wait."""
        return replace(replica, retry_at=self._since + seconds(timing.LAUNCH_WINDOW_S))


def _commit(
    service: str,
    deltas: list[_Delta],
    highest_id: int,
    brake: _Brake,
    now: datetime,
    new_id: Callable[[], str],
) -> Changes:
    create = [r for d in deltas for r in d.create]
    update = [r for d in deltas for r in d.update]
    launch = [r for d in deltas for r in d.launch]
    wanted = [r.id for r in (*create, *launch)]
    launched = frozenset(wanted[: brake.passes(len(wanted))])
    intent = LaunchIntent(new_id(), service, tuple(sorted(launched)), now) if launched else None

    def ordered(replica: Replica) -> Replica:
        if intent is None or replica.id not in launched:
            return brake.hold(replica)
        return replace(replica, launch_id=intent.id)

    return Changes(
        service,
        highest_id=(highest_id, highest_id + len(create)) if create else None,
        create=tuple(ordered(r) for r in create),
        update=(*update, *(ordered(r) for r in launch)),
        open_intent=intent,
        close_intents=tuple(i for d in deltas for i in d.close_intents),
        window=brake.after(len(launched)) if launched else None,
        held=len(wanted) - len(launched),
    )


def _deltas(
    spec: ServiceSpec | None, rows: Rows, actions: Iterable[Action], now: datetime
) -> Iterator[_Delta]:
    ids = count(rows.highest_id + 1)
    for action in actions:
        match action:
            case Drain() | Supersede():
                yield _with_replacement(spec, action, ids, now)
            case Request() if spec is not None:
                for _ in range(action.count):
                    yield _Delta(create=(_requested(spec, next(ids), action.reason, now),))
            case Launch() if spec is not None:
                for replica in action.replicas:
                    yield _Delta(launch=(replica,))
            case CloseIntent():
                yield _Delta(close_intents=(action.intent_id,))
            case _:
                row = _changed(action, now)
                if row is not None:
                    yield _Delta((row,))


def _with_replacement(
    spec: ServiceSpec | None, action: Drain | Supersede, ids: Iterator[int], now: datetime
) -> _Delta:
    """A replica that goes, now or once its replacement is there, and that replacement where it gets one."""
    row = action.replica
    if isinstance(action, Drain):
        row = row.to(ReplicaState.DRAINING, now, action.reason, warned_at=action.warned_at)
        if not action.replace:
            return _Delta((row,))
    if spec is None:
        return _Delta((row,))
    stand_in = _requested(spec, next(ids), action.reason, now, replaces=row.id)
    return _Delta((replace(row, replaced_by=stand_in.id),), (stand_in,))


def _requested(
    spec: ServiceSpec, id_: int, reason: str, now: datetime, *, replaces: int | None = None
) -> Replica:
    return Replica.requested(spec.service, id_, spec.version, now, reason=reason, replaces=replaces)


def _changed(action: Action, now: datetime) -> Replica | None:
    """The row of the one replica that the action is about; None if nothing of it is written."""
    match action:
        case NoteWarning(replica=replica, warned_at=at):
            return replace(replica, warned_at=at)
        case NoteRebalance(replica=replica, at=at):
            return replace(replica, rebalance_at=at)
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


def _backoff_after(backoff: Backoff, actions: Sequence[Action], now: datetime) -> Backoff:
    if any(isinstance(action, MarkReady) for action in actions):
        return Backoff()
    failed = [action.replica for action in actions if isinstance(action, Fail)]
    return failures.after_failures(backoff, failed, now) if failed else backoff
