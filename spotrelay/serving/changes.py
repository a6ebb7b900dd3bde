"""Decisions put into rows: which replica becomes what, and which new ones stand in for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from spotrelay.core import timing
from spotrelay.core.pools import Cooldown, Offering, PoolMemory, PurchaseOption
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.core.rows import Changes, LaunchIntent, LaunchWindow, Rows
from spotrelay.core.spec import ServiceSpec
from spotrelay.core.timing import seconds
from spotrelay.placement import cooldowns
from spotrelay.serving import projection
from spotrelay.serving.actions import Action, Drain, Fail, NoteRebalance, Recount, ServeOn
from spotrelay.serving.observation import staying_count
from spotrelay.serving.projection import Delta


def changes(
    service: str,
    spec: ServiceSpec | None,
    rows: Rows,
    actions: Sequence[Action],
    now: datetime,
    new_id: Callable[[], str],
) -> list[Changes]:
    """The commits that put the actions into rows, each with one launch intent for all that it launches.

    Without a `spec` (its stack is gone) nothing is created or launched. `new_id` names intents.
    """
    highest_id, window = rows.highest_id, rows.window
    raised = max((projection.raised(rows, actions), *rows.replicas))
    packed = projection.packed(service, spec, rows, actions, now)
    serving = _Serving(rows, is_recounted=any(isinstance(a, Recount) for a in actions))
    commits = []
    for deltas in packed:
        commit = _commit(service, deltas, highest_id, raised, _Brake(spec, window, now), now, new_id)
        commit = replace(commit, serving=serving.after(commit))
        if commit.highest_id:
            highest_id = raised = commit.highest_id[1]
        window = commit.window[1] if commit.window else window
        commits.append(commit)
    backoff = projection.backoff_after(spec, rows.backoff, actions, now)
    if backoff != rows.backoff:
        # With the rows that it comes of, and before what is launched because of it: a later commit may fail.
        due = _last_with(commits, rows, (ReplicaState.READY, ReplicaState.FAILED))
        commits[due] = replace(commits[due], backoff=backoff)
    standby_backoff = projection.standby_backoff_after(rows.standby_backoff, actions, now)
    if standby_backoff != rows.standby_backoff:
        due = _last_with(commits, rows, (ReplicaState.STANDBY, ReplicaState.FAILED))
        commits[due] = replace(commits[due], standby_backoff=standby_backoff)
    return commits


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
    deltas: list[Delta],
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
        return replica.but(launch_id=intent.id)

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
