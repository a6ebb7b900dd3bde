"""What actions make of rows: for the commit that writes them, and for whoever decides next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count

from spotrelay.core import timing
from spotrelay.core.pools import PurchaseOption
from spotrelay.core.replica import TRIAL, Replica, ReplicaState
from spotrelay.core.rows import Backoff, Changes, Rows
from spotrelay.core.spec import ServiceSpec
from spotrelay.serving import failures, rollout
from spotrelay.serving.actions import (
    Action,
    CloseIntent,
    Fail,
    GiveUp,
    Launch,
    MarkReady,
    RaiseHighestId,
    Recount,
    Replace,
    Request,
    Resume,
    StandBy,
    TakeIn,
    TryOut,
)


@dataclass(frozen=True, slots=True)
class Delta:
    """What belongs together: a lost replica is never written without its replacement, nor the reverse."""

    update: tuple[Replica, ...] = ()
    create: tuple[Replica, ...] = ()
    launch: tuple[Replica, ...] = ()
    """Rows that exist and are to be launched."""
    close_intents: tuple[str, ...] = ()
    is_last_resort: bool = False

    @property
    def order(self) -> tuple[PurchaseOption, int, bool, float | None, int | None] | None:
        """How what it launches is bought, its version, whether a standby, where it moves; None: nothing."""
        launched = (r for r in (*self.create, *self.launch) if r.state is ReplicaState.REQUESTED)
        return next(
            ((r.purchase_option, r.version, r.is_standby, r.max_price, r.min_score) for r in launched), None
        )

    @property
    def size(self) -> int:
        """The rows and intents that it writes."""
        return len(self.update) + len(self.create) + len(self.launch) + len(self.close_intents)


def after(spec: ServiceSpec, rows: Rows, actions: Sequence[Action], now: datetime) -> Rows:
    """The rows as the actions would leave them. New ones have an ID that the commit may change."""
    replicas = dict(rows.replicas)
    for delta in deltas(spec.service, spec, rows, actions, now):
        for row in (*delta.update, *delta.create, *delta.launch):
            if row.state.is_ended:
                del replicas[row.id]
            else:
                replicas[row.id] = row
    return replace(
        rows,
        replicas=replicas,
        highest_id=raised(rows, actions),
        backoff=backoff_after(spec, rows.backoff, actions, now),
        standby_backoff=standby_backoff_after(rows.standby_backoff, actions, now),
    )


def raised(rows: Rows, actions: Iterable[Action]) -> int:
    """The highest ID that was ever given, as the actions have found out."""
    return max((rows.highest_id, *(a.highest_id for a in actions if isinstance(a, RaiseHighestId))))


def deltas(
    service: str, spec: ServiceSpec | None, rows: Rows, actions: Sequence[Action], now: datetime
) -> Iterator[Delta]:
    """What the actions write. All that happens to one replica, and its replacement, is one delta.

    Without a `spec` (its stack is gone) nothing is created or launched.
    """
    ids = count(max((raised(rows, actions), *rows.replicas)) + 1)
    groups: dict[int, list[Action]] = {}
    for position, action in enumerate(actions):
        groups.setdefault(action.about.id if action.about else ~position, []).append(action)
    # One launch intent is for one way to buy one version: their IDs follow each other.
    for group in sorted(groups.values(), key=lambda group: max(map(_turn, group))):
        if replica := group[0].about:
            yield from _of_replica(spec, rows, replica, group, ids, now)
        else:
            yield from _of_service(service, spec, rows, group[0], ids, now)


def packed(
    service: str, spec: ServiceSpec | None, rows: Rows, actions: Sequence[Action], now: datetime
) -> list[list[Delta]]:
    """What the actions write in as few commits as their size allows, each with at most one launch order."""
    commits: list[list[Delta]] = []
    size, order = 0, None
    for delta in deltas(service, spec, rows, actions, now):
        is_other = None not in (order, delta.order) and order != delta.order
        if not commits or is_other or size + delta.size > Changes.MAX_ROWS:
            commits.append([])
            size, order = 0, None
        commits[-1].append(delta)
        size, order = size + delta.size, order or delta.order
    return commits


def _turn(action: Action) -> tuple[bool, bool, int]:
    """What is launched comes by how it is bought and by version, and standbys last: others serve by then."""
    match action:
        case Request() | Launch():
            is_on_demand = action.purchase_option is PurchaseOption.ON_DEMAND
            return action.is_standby, is_on_demand, action.version
        case Replace():
            return False, action.replica.purchase_option is PurchaseOption.ON_DEMAND, action.version
        case _:
            return False, False, 0


def _of_replica(
    spec: ServiceSpec | None,
    rows: Rows,
    row: Replica,
    actions: Sequence[Action],
    ids: Iterator[int],
    now: datetime,
) -> Iterator[Delta]:
    """What happens to one replica, in order."""
    created: tuple[Replica, ...] = ()
    for action in actions:
        row = action.after(row, now)
        if isinstance(action, Replace) and spec:
            row = row.but(move_tried_at=now) if action.is_move else row
            # What its own row says may be of another version, if it was taken in.
            is_deployed = action.version == spec.version
            port = spec.port if is_deployed else rollout.port_of(spec, rows, action.version)
            successor = _replacement(spec, row, action, next(ids), port, now)
            row, created = row.but(replaced_by=successor.id), (successor,)
        elif isinstance(action, Resume):
            created = (_resumed(action, rows, next(ids), now),)
        elif isinstance(action, TryOut):
            created = (_tried_out(action.replica, next(ids), now),)
        elif isinstance(action, StandBy) and row.state.is_ended:
            created = (_standing_by(action.replica, next(ids), now),)
    if any(action.writes for action in actions):
        yield Delta((row,), created)


def _of_service(
    service: str, spec: ServiceSpec | None, rows: Rows, action: Action, ids: Iterator[int], now: datetime
) -> Iterator[Delta]:
    """What happens to no replica that is there."""
    match action:
        case RaiseHighestId() | Recount() | GiveUp():
            yield Delta()  # what it changes belongs to no row
        case CloseIntent():
            yield Delta(close_intents=(action.intent_id,))
        case TakeIn():
            yield Delta(create=(_taken_in(service, spec, rows, next(ids), action, now),))
        case Request() if spec:
            port = rollout.port_of(spec, rows, action.version)
            for _ in range(action.count):
                yield Delta(create=(_requested(spec, next(ids), action, port, now),))
        case Launch() if spec:
            for replica in action.replicas:
                yield Delta(launch=(replica,), is_last_resort=action.is_last_resort)


def _replacement(
    spec: ServiceSpec, row: Replica, action: Replace, id_: int, port: int | None, now: datetime
) -> Replica:
    return Replica.requested(
        spec.service,
        id_,
        action.version,
        now,
        reason=action.reason,
        port=port,
        purchase_option=row.purchase_option if spec.use_spot else PurchaseOption.ON_DEMAND,
        replaces=row.id,
        is_proven=action.version == row.version and (row.is_proven or ReplicaState.READY in row.entered),
        max_price=action.max_price,
        min_score=action.min_score,
        # On both, because only one of them stays; and a pool that loses what moved there gets no other soon.
        move_tried_at=row.move_tried_at,
    )


def _resumed(action: Resume, rows: Rows, id_: int, now: datetime) -> Replica:
    """The fallback that a standby becomes. One that never was one is expected to take as long as others."""
    known = [r.resume_s for r in rows.replicas.values() if r.is_standby and r.resume_s is not None]
    return replace(
        _with_instance_of(action.replica, id_, ReplicaState.PROVISIONING, now),
        reason=action.reason,
        is_fallback=True,
        resume_s=action.replica.resume_s or (timing.middle_s(known) if known else None),
        launch=f"resumed: {action.replica} stood by in {action.replica.offering}",
    )


def _tried_out(standby: Replica, id_: int, now: datetime) -> Replica:
    """The standby that one becomes while it is tried out, and after it."""
    return replace(_with_instance_of(standby, id_, ReplicaState.PROVISIONING, now), reason=TRIAL)


def _standing_by(fallback: Replica, id_: int, now: datetime) -> Replica:
    """The standby that a fallback becomes again; one whose start was refused is left alone for a while."""
    return replace(
        _with_instance_of(fallback, id_, ReplicaState.STANDBY, now),
        reason="standby",
        attempts=0 if ReplicaState.READY in fallback.entered else fallback.attempts,
        retry_at=fallback.retry_at,
    )


def _with_instance_of(other: Replica, id_: int, state: ReplicaState, now: datetime) -> Replica:
    """Another replica with the same instance; when that was asked for stays on record: it ages."""
    return Replica(
        other.service,
        id_,
        other.version,
        state,
        other.reason,
        {ReplicaState.REQUESTED: other.entered[ReplicaState.REQUESTED], state: now},
        offering=other.offering,
        instance_id=other.instance_id,
        launch_id=other.launch_id,
        attempts=other.attempts,
        port=other.port,
        purchase_option=other.purchase_option,
        is_standby=True,
        resume_s=other.resume_s,
        # Whoever still holds a row of this ID, of before the table was lost, has another revision.
        revision=int(now.timestamp()),
    )


def _requested(spec: ServiceSpec, id_: int, request: Request, port: int | None, now: datetime) -> Replica:
    return Replica.requested(
        spec.service,
        id_,
        request.version,
        now,
        reason=request.reason,
        port=port,
        purchase_option=request.purchase_option,
        is_fallback=request.is_fallback,
        is_standby=request.is_standby,
    )


def _taken_in(
    service: str, spec: ServiceSpec | None, rows: Rows, id_: int, action: TakeIn, now: datetime
) -> Replica:
    """A row for an instance that had none, as if it had just come to where it is."""
    instance, state = action.instance, action.state
    is_of_template = spec is not None and instance.launch_template_id == spec.launch_template_id
    version = (instance.version if is_of_template else None) or (spec.version if spec else 0)
    launched_at = min(instance.launched_at, now)
    return Replica(
        service,
        id_,
        version,
        state,
        action.reason,
        {ReplicaState.REQUESTED: now, ReplicaState.PROVISIONING: launched_at, state: now},
        offering=instance.offering,
        instance_id=instance.id,
        slots=instance.slots,
        launch_id=instance.launch_id,
        port=action.port or (rollout.port_of(spec, rows, version) if spec else None),
        purchase_option=instance.offering.purchase_option,
        is_fallback=action.is_fallback,
        # Whoever still holds a row of this ID, of before the table was lost, has another revision.
        revision=int(now.timestamp()),
    )


def backoff_after(
    spec: ServiceSpec | None, backoff: Backoff, actions: Sequence[Action], now: datetime
) -> Backoff:
    """How long launches are held after replicas that failed; one that got ready ends it."""
    # That one that came back answers says nothing of what is launched.
    ready = [a.replica for a in actions if isinstance(a, MarkReady) and not a.replica.comes_back]
    if ready:
        backoff = failures.after_success(backoff, ready)
    newest = max((replica.version for replica in ready), default=-1)
    # Neither a standby that can't be prepared nor a move that fails holds up anything that is needed.
    failed = [
        a
        for a in actions
        if isinstance(a, Fail) and not a.replica.stands_by and not a.replica.is_move
        if a.replica.version > newest
    ]
    if failed:
        by_ec2 = {action.replica.id for action in failed if action.is_ec2s}
        backoff = failures.after_failures(backoff, [a.replica for a in failed], now, by_ec2=by_ec2)
    if spec and any(isinstance(action, GiveUp) for action in actions):
        backoff = failures.given_up(backoff, spec.version, timing.ROLLOUT_FAILURES)
    return backoff


def standby_backoff_after(backoff: Backoff, actions: Sequence[Action], now: datetime) -> Backoff:
    """How long standbys are held after some that failed; one that was prepared ends it."""
    failed = [a.replica for a in actions if isinstance(a, Fail) and a.replica.stands_by]
    # One whose trial EC2 refused to start stands by, too.
    stopped = (a.replica for a in actions if isinstance(a, StandBy) and a.replica.stands_by)
    prepared = [r for r in stopped if r.state is ReplicaState.STARTING]
    return failures.after_standbys(backoff, failed, prepared, now) if failed or prepared else backoff
