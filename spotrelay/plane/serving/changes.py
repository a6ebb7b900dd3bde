"""Steps put into rows: for the commits that write them, and for the stage that decides next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count

from spotrelay.plane.core import timing
from spotrelay.plane.core.pools import Cause, Cooldown, PoolMemory, PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff, Changes, LaunchIntent, LaunchWindow, Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.placement import cooldowns
from spotrelay.plane.serving import failures, rollout
from spotrelay.plane.serving.observation import staying_count
from spotrelay.plane.serving.steps import Step

_Order = tuple[PurchaseOption, int, bool, float | None, int | None]
"""How something is bought, its version, whether it is a standby, and where it is to move."""


def changes(
    service: str,
    spec: ServiceSpec | None,
    rows: Rows,
    steps: Sequence[Step],
    now: datetime,
    new_id: Callable[[], str],
) -> list[Changes]:
    """The commits that put the steps into rows, each with one launch intent for all that it launches.

    Without a `spec` (its stack is gone) nothing is requested or launched. `new_id` names intents.
    """
    highest_id, window = rows.highest_id, rows.window
    # A few rows don't tell which IDs were given: new ones come after theirs, and else the record is left to
    # whoever reads all rows. Raised by half, it would hide a new row from ticks for as long as a lease.
    tells = rows.is_whole or any(step.creates for step in steps)
    raised = max((_raised(rows, steps), *(rows.replicas if tells else ())))
    serving = _Serving(rows, is_recounted=any(step.recounts for step in steps))
    relied = _Relied(steps)
    commits = []
    for group in _packed(service, spec, rows, steps):
        commit = _commit(service, group, highest_id, raised, _Brake(spec, window, now), now, new_id)
        commit = replace(commit, serving=serving.after(commit), update=(*commit.update, *relied.of(group)))
        if commit.highest_id:
            highest_id = raised = commit.highest_id[1]
        window = commit.window[1] if commit.window else window
        commits.append(commit)
    backoff = _backoff_after(spec, rows.backoff, steps, now)
    if backoff != rows.backoff:
        # With the rows that it comes of, and before what is launched because of it: a later commit may fail.
        due = _last_with(commits, rows, (ReplicaState.READY, ReplicaState.FAILED))
        commits[due] = replace(commits[due], backoff=backoff)
    standby_backoff = _standby_backoff_after(rows.standby_backoff, steps, now)
    if standby_backoff != rows.standby_backoff:
        due = _last_with(commits, rows, (ReplicaState.STANDBY, ReplicaState.FAILED))
        commits[due] = replace(commits[due], standby_backoff=standby_backoff)
    return commits


def after(spec: ServiceSpec, rows: Rows, steps: Sequence[Step], now: datetime) -> Rows:
    """The rows as the steps would leave them. New ones have an ID that the commit may change."""
    replicas = dict(rows.replicas)
    for step in written(spec.service, spec, rows, steps):
        for row in (*((step.after,) if step.after else ()), *step.creates, *step.launches):
            if row.state.is_ended:
                del replicas[row.id]
            else:
                replicas[row.id] = row
    return replace(
        rows,
        replicas=replicas,
        highest_id=_raised(rows, steps),
        backoff=_backoff_after(spec, rows.backoff, steps, now),
        standby_backoff=_standby_backoff_after(rows.standby_backoff, steps, now),
    )


def written(service: str, spec: ServiceSpec | None, rows: Rows, steps: Sequence[Step]) -> Iterator[Step]:
    """The steps that write, as they are written: all that happens to one replica is one of them.

    A lost replica is never written without its replacement, nor the reverse. All other rows that are created
    or launched are a step each, so that they fit into a commit. One launch intent is for one way to buy one
    version: the IDs of what it launches follow each other.
    """
    ids = count(max((_raised(rows, steps), *rows.replicas)) + 1)
    for step in sorted(_joined(steps), key=_turn):
        for part in _parts(step):
            complete = _complete(service, spec, rows, part, ids)
            if _writes(complete):
                yield complete


def _joined(steps: Iterable[Step]) -> list[Step]:
    """All that happens to one replica as one step."""
    joined: dict[int, Step] = {}
    for position, step in enumerate(steps):
        key = step.before.id if step.before else ~position
        joined[key] = joined[key].then(step) if key in joined else step
    return list(joined.values())


def _turn(step: Step) -> tuple[bool, bool, str, int]:
    """What is launched comes by how it is bought and by version, and standbys last: others serve by then."""
    order = _order(step)
    if order is None:
        return False, False, "", 0
    option, version, is_standby, *_ = order
    return is_standby, option.fallback is None, option.name, version


def _order(step: Step) -> _Order | None:
    """What it launches; None: nothing."""
    launched = (r for r in (*step.creates, *step.launches) if r.state is ReplicaState.REQUESTED)
    return next(
        ((r.purchase_option, r.version, r.is_standby, r.max_price, r.min_score) for r in launched), None
    )


def _parts(step: Step) -> Iterator[Step]:
    """One step for each row that has nothing to do with another."""
    if step.before or not (step.creates or step.launches):
        yield step
        return
    yield from (replace(step, creates=(row,)) for row in step.creates)
    yield from (replace(step, launches=(row,)) for row in step.launches)


def _complete(service: str, spec: ServiceSpec | None, rows: Rows, step: Step, ids: Iterator[int]) -> Step:
    """The step with what its new rows have from elsewhere; without a document nothing is launched."""
    if not (step.creates or step.launches):
        return step
    wanted = [r for r in step.creates if spec or r.state is not ReplicaState.REQUESTED]
    creates = tuple(_created(service, spec, rows, step, row, next(ids)) for row in wanted)
    launches = step.launches if spec else ()
    row = step.after
    if row and creates and creates[0].replaces == row.id:
        row = row.but(replaced_by=creates[0].id)
    return replace(step, after=row, creates=creates, launches=launches)


def _created(
    service: str, spec: ServiceSpec | None, rows: Rows, step: Step, row: Replica, id_: int
) -> Replica:
    """A new row, with its ID. One whose instance another had has its port from that."""
    port, option = row.port, row.purchase_option
    is_requested = row.state is ReplicaState.REQUESTED
    if spec and not port and (is_requested or step.before is None):
        # What a replica's own row says may be of another version, if it was taken in.
        port = rollout.port_of(spec, rows, row.version)
    if spec and is_requested and not spec.use_spot:
        # What `bought_as` says of these; to call it would make the path of a warning longer for its readers.
        option = option.fallback or option
    return row.but(service=service, id=id_, port=port, purchase_option=option)


def _writes(step: Step) -> bool:
    """Whether it changes anything on record; what belongs to no row is written with any commit."""
    of_service = step.closes or step.raises_to or step.recounts or step.gives_up is not None
    return bool(step.after or step.creates or step.launches or of_service)


def _packed(service: str, spec: ServiceSpec | None, rows: Rows, steps: Sequence[Step]) -> list[list[Step]]:
    """What the steps write in as few commits as their size allows, each with at most one launch order."""
    commits: list[list[Step]] = []
    size, order = 0, None
    for step in written(service, spec, rows, steps):
        its = _order(step)
        is_other = None not in (order, its) and order != its
        if not commits or is_other or size + _size(step) > Changes.MAX_ROWS:
            commits.append([])
            size, order = 0, None
        commits[-1].append(step)
        size, order = size + _size(step), order or its
    return commits


def _size(step: Step) -> int:
    """The rows and intents that it writes."""
    return len(step.creates) + len(step.launches) + (step.after is not None) + (step.closes is not None)


def _raised(rows: Rows, steps: Iterable[Step]) -> int:
    """The highest ID that was ever given, as the steps have found out."""
    return max((rows.highest_id, *(step.raises_to for step in steps)))


def _backoff_after(
    spec: ServiceSpec | None, backoff: Backoff, steps: Sequence[Step], now: datetime
) -> Backoff:
    """How long launches are held after replicas that failed; one that got ready ends it."""
    # A replica that came back and answers again says nothing about what is launched.
    first = (s for s in steps if s.enters(ReplicaState.READY) and ReplicaState.READY not in s.replica.entered)
    ready = [s.replica for s in first]
    if ready:
        backoff = failures.after_success(backoff, ready)
    newest = max((replica.version for replica in ready), default=-1)
    # Neither a standby that can't be prepared nor a move that fails holds up anything that is needed.
    failed = [
        s
        for s in steps
        if s.enters(ReplicaState.FAILED) and not s.replica.stands_by and not s.replica.is_move
        if s.replica.version > newest
    ]
    if failed:
        by_ec2 = {step.replica.id for step in failed if step.is_ec2s}
        backoff = failures.after_failures(backoff, [s.replica for s in failed], now, by_ec2=by_ec2)
    if spec and any(step.gives_up is not None for step in steps):
        backoff = failures.given_up(backoff, spec.version, timing.ROLLOUT_FAILURES)
    return backoff


def _standby_backoff_after(backoff: Backoff, steps: Sequence[Step], now: datetime) -> Backoff:
    """How long standbys are held after some that failed; one that was prepared ends it."""
    failed = [s.replica for s in steps if s.enters(ReplicaState.FAILED) and s.replica.stands_by]
    # One whose trial EC2 refused to start stands by, too.
    prepared = [s.replica for s in steps if s.enters(ReplicaState.STANDBY) and s.replica.stands_by]
    return failures.after_standbys(backoff, failed, prepared, now) if failed or prepared else backoff


def _last_with(commits: Sequence[Changes], rows: Rows, states: Collection[ReplicaState]) -> int:
    """The number of the last commit in which a replica enters one of the states; 0 if there is none."""
    return max(
        (
            number
            for number, commit in enumerate(commits)
            for row in commit.update
            if row.state in states and row.state is not rows.replicas[row.id].state
        ),
        default=0,
    )


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


class _Relied:
    """Those that serve on while others leave: they are written as they are, once.

    So a commit fails if one has gone meanwhile, as it does by the count where others stay.
    """

    def __init__(self, steps: Iterable[Step]) -> None:
        self._written = {step.before.id for step in steps if step.before and step.after}

    def of(self, steps: Iterable[Step]) -> list[Replica]:
        """The rows to be written beside these steps'."""
        found = {r.id: r for step in steps if (r := step.relies_on) and r.id not in self._written}
        self._written |= found.keys()
        return list(found.values())


def lessons(steps: Iterable[Step], memory: PoolMemory, now: datetime) -> list[Cooldown]:
    """What the losses, failures and recommendations among the steps teach about their pools."""
    learned = []
    for step in steps:
        offering = step.before.offering if step.before else None
        if offering is None:
            continue
        match step.teaches:
            case Cause.LOSS:
                lesson = cooldowns.of_loss(offering, step.reason, memory, now)
            case Cause.FAILURE:
                lesson = cooldowns.of_failure(offering, memory, now)
            case Cause.REBALANCE:
                lesson = cooldowns.of_rebalance(offering, memory, now)
            case _:
                continue
        if offering.purchase_option.is_interruptible or step.teaches is Cause.FAILURE:
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
    steps: Sequence[Step],
    highest_id: int,
    raised: int,
    brake: _Brake,
    now: datetime,
    new_id: Callable[[], str],
) -> Changes:
    create = [r for step in steps for r in step.creates]
    update = [step.after for step in steps if step.after]
    launch = [r for step in steps for r in step.launches]
    wanted = [r.id for r in (*create, *launch) if r.state is ReplicaState.REQUESTED]
    launched = frozenset(wanted[: brake.passes(len(wanted))])
    given = raised + len(create)
    intent = LaunchIntent(new_id(), service, tuple(sorted(launched)), now, given) if launched else None

    def ordered(replica: Replica) -> Replica:
        if replica.state is not ReplicaState.REQUESTED:
            return replica
        if intent is None or replica.id not in launched:
            return brake.hold(replica)
        return replica.but(launch_id=intent.id)

    return Changes(
        service,
        highest_id=(highest_id, given) if given > highest_id else None,
        create=tuple(ordered(r) for r in create),
        update=(*update, *(ordered(r) for r in launch)),
        open_intent=intent,
        close_intents=tuple(step.closes for step in steps if step.closes),
        window=brake.after(len(launched)) if launched else None,
        held=len(wanted) - len(launched),
        is_last_resort=any(step.is_last_resort for step in steps),
    )
