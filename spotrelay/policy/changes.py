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
    Offering,
    PoolMemory,
    PurchaseOption,
    Replica,
    ReplicaState,
    Rows,
    ServiceSpec,
    seconds,
)
from spotrelay.policy import cooldowns, failures, timing
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
    is_last_resort: bool = False

    @property
    def purchase_option(self) -> PurchaseOption | None:
        """How what it launches is to be bought; None if it launches nothing."""
        return next((r.purchase_option for r in (*self.create, *self.launch)), None)

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
    # One launch intent is for one way to buy, so what is bought on-demand comes last, with IDs that follow.
    actions = sorted(actions, key=_is_on_demand)
    packed = _packed(_deltas(spec, rows, actions, now))
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


def _packed(deltas: Iterable[_Delta]) -> list[list[_Delta]]:
    """The deltas in as few commits as their size and the ways to buy allow."""
    packed: list[list[_Delta]] = []
    size, option = 0, None
    for delta in deltas:
        is_other = None not in (option, delta.purchase_option) and option is not delta.purchase_option
        if not packed or is_other or size + delta.size > Changes.MAX_ROWS:
            packed.append([])
            size, option = 0, None
        packed[-1].append(delta)
        size, option = size + delta.size, option or delta.purchase_option
    return packed


def _is_on_demand(action: Action) -> bool:
    """Whether what the action launches is bought on-demand."""
    match action:
        case Request() | Launch():
            option = action.purchase_option
        case Supersede() | Drain(replace=True):
            option = action.replica.purchase_option
        case _:
            return False
    return option is PurchaseOption.ON_DEMAND


def provisioned(replica: Replica, instance: Instance, now: datetime) -> Replica:
    """The replica with the instance that it waited for."""
    return replica.to(
        ReplicaState.PROVISIONING, now, offering=instance.offering, instance_id=instance.id, retry_at=None
    )


def lessons(actions: Iterable[Action], memory: PoolMemory, now: datetime) -> list[Cooldown]:
    """What the losses and recommendations among the actions teach about their pools."""
    learned = []
    for action in actions:
        match action:
            case Drain(replica=Replica(offering=Offering() as offering), cool_pool=True):
                lesson = cooldowns.of_loss(offering, action.reason, memory, now)
            case NoteRebalance(replica=Replica(offering=Offering() as offering)):
                lesson = cooldowns.of_rebalance(offering, memory, now)
            case _:
                continue
        if offering.purchase_option is PurchaseOption.SPOT:
            learned.append(lesson)
    return learned


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
        is_last_resort=any(d.is_last_resort for d in deltas),
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
                    yield _Delta(create=(_requested(spec, next(ids), action, now),))
            case Launch() if spec is not None:
                for replica in action.replicas:
                    yield _Delta(launch=(replica,), is_last_resort=action.is_last_resort)
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
    successor = Replica.requested(
        spec.service,
        next(ids),
        spec.version,
        now,
        reason=action.reason,
        purchase_option=row.purchase_option if spec.use_spot else PurchaseOption.ON_DEMAND,
        replaces=row.id,
    )
    return _Delta((replace(row, replaced_by=successor.id),), (successor,))


def _requested(spec: ServiceSpec, id_: int, request: Request, now: datetime) -> Replica:
    return Replica.requested(
        spec.service,
        id_,
        spec.version,
        now,
        reason=request.reason,
        purchase_option=request.purchase_option,
        is_stand_in=request.is_stand_in,
    )


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
