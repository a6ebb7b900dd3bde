"""Decisions put into rows: which replica becomes what, and which new ones stand in for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count

from spotrelay.core import timing
from spotrelay.core.pools import Cooldown, Offering, PoolMemory, PurchaseOption
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Backoff, Changes, LaunchIntent, LaunchWindow, Rows
from spotrelay.core.spec import ServiceSpec
from spotrelay.core.timing import seconds
from spotrelay.placement import cooldowns
from spotrelay.serving import failures
from spotrelay.serving.actions import (
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
    RaiseHighestId,
    Recount,
    Request,
    ServeOn,
    Start,
    Supersede,
    TakeIn,
    Terminate,
)
from spotrelay.serving.observation import staying_count


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
        launched = (r for r in (*self.create, *self.launch) if r.state is ReplicaState.REQUESTED)
        return next((r.purchase_option for r in launched), None)

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
    highest_id, window = rows.highest_id, rows.window
    seen = (a.highest_id for a in actions if isinstance(a, RaiseHighestId))
    raised = max((highest_id, *seen, *rows.replicas))
    packed = _packed(_deltas(spec, raised, service, actions, now))
    serving = _Serving(rows, is_recounted=any(isinstance(a, Recount) for a in actions))
    commits = []
    for deltas in packed:
        version = spec.version if spec else 0
        commit = _commit(service, version, deltas, highest_id, raised, _Brake(spec, window, now), now, new_id)
        commit = replace(commit, serving=serving.after(commit))
        if commit.highest_id:
            highest_id = raised = commit.highest_id[1]
        window = commit.window[1] if commit.window else window
        commits.append(commit)
    backoff = _backoff_after(rows.backoff, actions, now)
    if backoff != rows.backoff:
        commits[-1] = replace(commits[-1], backoff=backoff)
    return commits


class _Serving:
    """Keeps count of the replicas that stay, over the commits of one decision."""

    def __init__(self, rows: Rows, *, is_recounted: bool) -> None:
        self._rows = rows.replicas
        self._as_read = rows.serving
        self._count = staying_count(rows) if is_recounted else rows.serving

    def after(self, commit: Changes) -> tuple[int, int] | None:
        """(as read, to be) if the commit changes the count, or takes out something that serves."""
        updated = [(self._rows[row.id], row) for row in commit.update]
        change = sum(r.stays for r in commit.create) + sum(new.stays - old.stays for old, new in updated)
        takes_out = any(old.serves and not new.serves for old, new in updated)
        if not (change or takes_out or self._count != self._as_read):
            return None
        as_read, self._count = self._as_read, max(self._count + change, 0)
        self._as_read = self._count
        return as_read, self._count


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
        case Supersede() | Drain(replace=True) | ServeOn(replace=True):
            option = action.replica.purchase_option
        case _:
            return False
    return option is PurchaseOption.ON_DEMAND


def lessons(actions: Iterable[Action], memory: PoolMemory, now: datetime) -> list[Cooldown]:
    """What the losses, failures and recommendations among the actions teach about their pools."""
    learned = []
    for action in actions:
        match action:
            case Drain(replica=Replica(offering=Offering() as offering), cool_pool=True):
                lesson = cooldowns.of_loss(offering, action.reason, memory, now)
            case ServeOn(replica=Replica(offering=Offering() as offering)):
                lesson = cooldowns.of_loss(offering, action.reason, memory, now)
            case Fail(replica=Replica(offering=Offering() as offering)):
                lesson = cooldowns.of_failure(offering, memory, now)
            case NoteRebalance(replica=Replica(offering=Offering() as offering)):
                lesson = cooldowns.of_rebalance(offering, memory, now)
            case _:
                continue
        if offering.purchase_option is PurchaseOption.SPOT or isinstance(action, Fail):
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
    version: int,
    deltas: list[_Delta],
    highest_id: int,
    raised: int,
    brake: _Brake,
    now: datetime,
    new_id: Callable[[], str],
) -> Changes:
    create = [r for d in deltas for r in d.create]
    update = [r for d in deltas for r in d.update]
    launch = [r for d in deltas for r in d.launch]
    wanted = [r.id for r in (*create, *launch) if r.state is ReplicaState.REQUESTED]
    launched = frozenset(wanted[: brake.passes(len(wanted))])
    given = raised + len(create)
    intent = LaunchIntent(new_id(), service, tuple(sorted(launched)), now, given) if launched else None

    def ordered(replica: Replica) -> Replica:
        if replica.state is not ReplicaState.REQUESTED:
            return replica
        if intent is None or replica.id not in launched:
            return brake.hold(replica)
        # It may have been requested under an earlier version: what it comes to, this one answers for.
        return replace(replica, launch_id=intent.id, version=version)

    return Changes(
        service,
        highest_id=(highest_id, given) if given > highest_id else None,
        create=tuple(ordered(r) for r in create),
        update=(*update, *(ordered(r) for r in launch)),
        open_intent=intent,
        close_intents=tuple(i for d in deltas for i in d.close_intents),
        window=brake.after(len(launched)) if launched else None,
        held=len(wanted) - len(launched),
        is_last_resort=any(d.is_last_resort for d in deltas),
    )


def _deltas(
    spec: ServiceSpec | None, highest_id: int, service: str, actions: Iterable[Action], now: datetime
) -> Iterator[_Delta]:
    ids = count(highest_id + 1)
    for action in actions:
        match action:
            case RaiseHighestId() | Recount():
                yield _Delta()  # what it changes belongs to no row
            case TakeIn():
                yield _Delta(create=(_taken_in(service, spec, next(ids), action, now),))
            case Drain() | Supersede() | ServeOn():
                yield _with_replacement(spec, action, ids, now)
            case Request() | Launch():
                yield from _wanted(spec, action, ids, now)
            case CloseIntent():
                yield _Delta(close_intents=(action.intent_id,))
            case _:
                row = _changed(action, now)
                if row is not None:
                    yield _Delta((row,))


def _wanted(
    spec: ServiceSpec | None, action: Request | Launch, ids: Iterator[int], now: datetime
) -> Iterator[_Delta]:
    """Replicas to create, or to launch; none for a service whose stack is gone."""
    if spec is None:
        return
    if isinstance(action, Request):
        for _ in range(action.count):
            yield _Delta(create=(_requested(spec, next(ids), action, now),))
    else:
        for replica in action.replicas:
            yield _Delta(launch=(replica,), is_last_resort=action.is_last_resort)


def _with_replacement(
    spec: ServiceSpec | None, action: Drain | Supersede | ServeOn, ids: Iterator[int], now: datetime
) -> _Delta:
    """A replica that goes, now or later, and the replacement that it gets at once, where it gets one."""
    row = action.replica
    match action:
        case Drain():
            warned_at = action.warned_at or row.warned_at
            row = row.to(ReplicaState.DRAINING, now, action.reason, warned_at=warned_at)
        case ServeOn():
            row = replace(row, warned_at=action.warned_at)
    if spec is None or not (isinstance(action, Supersede) or action.replace):
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


def _taken_in(service: str, spec: ServiceSpec | None, id_: int, action: TakeIn, now: datetime) -> Replica:
    """A row for an instance that had none, as if it had just come to where it is."""
    instance, state = action.instance, action.state
    launched_at = min(instance.launched_at, now)
    return Replica(
        service,
        id_,
        spec.version if spec else 0,
        state,
        action.reason,
        {ReplicaState.REQUESTED: now, ReplicaState.PROVISIONING: launched_at, state: now},
        offering=instance.offering,
        instance_id=instance.id,
        launch_id=instance.launch_id,
        purchase_option=instance.offering.purchase_option,
        is_fallback=action.is_fallback,
        # Whoever still holds a row of this ID, of before the table was lost, has another revision.
        revision=int(now.timestamp()),
    )


def _requested(spec: ServiceSpec, id_: int, request: Request, now: datetime) -> Replica:
    return Replica.requested(
        spec.service,
        id_,
        spec.version,
        now,
        reason=request.reason,
        purchase_option=request.purchase_option,
        is_fallback=request.is_fallback,
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
            return replica.provisioned(instance, now)
        case Terminate(replica=replica):
            return replica
        case _:
            return None


def _backoff_after(backoff: Backoff, actions: Sequence[Action], now: datetime) -> Backoff:
    if any(isinstance(action, MarkReady) for action in actions):
        return Backoff()
    failed = [action for action in actions if isinstance(action, Fail)]
    if not failed:
        return backoff
    by_ec2 = {action.replica.id for action in failed if action.is_ec2s}
    return failures.after_failures(backoff, [action.replica for action in failed], now, by_ec2=by_ec2)
