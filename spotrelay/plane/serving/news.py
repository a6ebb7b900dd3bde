"""What happened to a service since it was last told: for events of our own, and what is measured of losses.

A tick compares the rows that it read with what was told before (`Told`). So nothing is told in the way of a
warning, and what a tick that dies doesn't tell, the next one does.

*Whole* is a service while as many replicas are in rotation as are desired. A *gap* begins when there are
fewer, and only if there have been as many: a service that has never had so many (its first start, a
scale-up) waits for what is new, and has lost nothing. While fewer than desired serve, the number that served
when there were last enough counts instead, if that is less. A roll-out is no case of its own: it takes out
nothing before something else serves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from spotrelay.plane.core import slots
from spotrelay.plane.core.notices import Notice, NoticeKind, text_of
from spotrelay.plane.core.pools import Offering
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows, Told
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.serving.observation import ready_count
from spotrelay.plane.serving.steps import WARNED

TRIED_S = 3600.0
"""For so long an event is tried again that EventBridge doesn't take: later it is of no use to anybody."""

MOST_UNSENT = 100
"""Events that are kept to be tried again, the newest ones: some 60 kB in the table."""


@dataclass(frozen=True, slots=True)
class News:
    """What is new, and what will have been told with it."""

    told: Told
    notices: tuple[Notice, ...] = ()
    gap_s: float | None = None
    """How long a gap was that has ended."""
    waits_s: tuple[float, ...] = ()
    """Of each warned replica whose replacement has come to serve: how long after the warning."""
    dropped: tuple[Notice, ...] = ()
    """What was tried for long enough."""

    def begins_gap(self, before: Told) -> bool:
        """Whether the service has ceased to be whole since."""
        return before.gap_since is None and self.told.gap_since is not None


def unaccounted(rows: Rows) -> list[int]:
    """The replicas that aren't there any more, or never were seen, and of which something may be to tell.

    Of those that served on when they were told lost, or started on, it is when they left the rotation.
    """
    told = rows.told
    if not told.revision:
        return []
    since = range(told.highest_id + 1, rows.highest_id + 1)
    went_on = (id_ for id_, r in told.lost.items() if r.state.is_active)
    return sorted({*told.replicas, *went_on, *since} - rows.replicas.keys())


def since(rows: Rows, ended: Sequence[Replica], service: str, desired: int, now: datetime) -> News:
    """What is new in the rows; `ended` are those `unaccounted` for that ended.

    What a service has when it is looked at for the first time is no news.
    """
    told = rows.told
    replicas = [*ended, *rows.replicas.values()]
    opened = [r for r in replicas if r.id in told.replicas or r.id > told.highest_id]
    lost = [r for r in opened if r.lost_at]
    ready = [r for r in opened if ReplicaState.READY in r.entered and not told.replicas.get(r.id)]
    known_lost = {**told.lost, **{r.id: r for r in (*lost, *ended) if r.lost_at}}
    replaced = [(known_lost[r.replaces], r) for r in ready if r.replaces in known_lost]
    after = replace(
        told,
        highest_id=max(rows.highest_id, told.highest_id),
        replicas={
            r.id: ReplicaState.READY in r.entered
            for r in rows.replicas.values()
            if r.state is not ReplicaState.DRAINING and not r.lost_at
        },
        lost=_still_lost(known_lost, rows),
    )
    # What was told lost may have ended since, and served until then.
    were_there = {**told.lost, **{r.id: r for r in replicas}}.values()
    gap = _gap(after, rows, were_there, service, desired, now)
    if not told.revision:
        return News(gap.told)
    made = [
        *(_lost(r) for r in lost),
        *(_ready(r) for r in ready),
        *(_replaced(before, by) for before, by in replaced),
        *gap.notices,
    ]
    waits = tuple(
        (by.entered[ReplicaState.READY] - before.warned_at).total_seconds()
        for before, by in replaced
        if before.warned_at
    )
    again = tuple(n for n in told.unsent if now - n.at < seconds(TRIED_S))[-MOST_UNSENT:]
    dropped = tuple(n for n in told.unsent if n not in again)
    return replace(gap, notices=(*again, *made), waits_s=waits, dropped=dropped)


def with_unsent(news: News, unsent: Collection[str]) -> Told:
    """What has been told of it, but for the notices with these IDs."""
    return replace(news.told, unsent=tuple(n for n in news.notices if n.id in unsent))


def _still_lost(lost: Mapping[int, Replica], rows: Rows) -> dict[int, Replica]:
    """Those that live, or that something is to replace which isn't ready yet, or was requested meanwhile."""
    awaited = {r.replaces for r in rows.replicas.values() if ReplicaState.READY not in r.entered}
    return {
        id_: r
        for id_, r in lost.items()
        if id_ in rows.replicas or id_ in awaited or (r.replaced_by or 0) > rows.highest_id
    }


def _gap(
    told: Told, rows: Rows, replicas: Iterable[Replica], service: str, desired: int, now: datetime
) -> News:
    """Whether the service has ceased to be whole, or is whole again."""
    ready = ready_count(rows)
    short = min(desired, told.whole_at) - ready
    whole_at = desired if ready >= desired else told.whole_at
    facts: dict[str, Any] = {"desired": desired, "ready": ready}
    if short > 0 and told.gap_since is None:
        began = _turned_at(replicas, ready, ready + short, now)
        notice = Notice(NoticeKind.FLEET_NOT_WHOLE, service, str(text_of(began)), began, facts)
        return News(replace(told, gap_since=began), (notice,))
    if short <= 0 and told.gap_since is not None:
        turned_at = _turned_at(replicas, ready, ready + short, now)
        over = turned_at if turned_at > told.gap_since else max(told.gap_since, now)
        gap_s = (over - told.gap_since).total_seconds()
        facts |= {"since": text_of(told.gap_since), "gap_s": round(gap_s, 3)}
        notice = Notice(NoticeKind.FLEET_WHOLE, service, str(text_of(told.gap_since)), over, facts)
        return News(replace(told, gap_since=None, whole_at=whole_at), (notice,), gap_s)
    return News(replace(told, whole_at=whole_at))


def _turned_at(replicas: Iterable[Replica], ready: int, enough: int, now: datetime) -> datetime:
    """Since when there are enough, or too few: told backwards from now on, when so many are `ready`.

    What only answers its checks again is seen by the tick.
    """
    are_enough = ready >= enough
    turns = Counter[datetime]()  # what happens at one moment counts together: one for another is no turn
    for replica in replicas:
        if came := replica.entered.get(ReplicaState.READY):
            turns[came] += 1
            if left := replica.left_at:
                turns[left] -= 1
    for at in sorted(turns, reverse=True):
        ready -= turns[at]
        if (ready >= enough) is not are_enough:
            return min(at, now)
    return now


def _ready(replica: Replica) -> Notice:
    at = replica.entered[ReplicaState.READY]
    facts = {
        **_facts(replica),
        "reason": replica.reason if replica.state is ReplicaState.READY else None,
        "fallback": replica.is_fallback,
        "replaces": replica.replaces,
        **_times(replica),
    }
    return Notice(NoticeKind.REPLICA_READY, replica.service, str(replica.id), at, facts)


def _lost(replica: Replica) -> Notice:
    facts = {
        **_facts(replica),
        "reason": WARNED if replica.state is ReplicaState.READY else replica.reason,
        "warned": replica.is_warned,
        "warned_at": text_of(replica.warned_at),
        "lost_at": text_of(replica.lost_at),
        "ready_at": text_of(replica.entered.get(ReplicaState.READY)),
    }
    at = replica.lost_at or replica.since
    return Notice(NoticeKind.REPLICA_LOST, replica.service, str(replica.id), at, facts)


def _replaced(lost: Replica, by: Replica) -> Notice:
    at = by.entered[ReplicaState.READY]
    facts = {
        **_facts(lost),
        "warned": lost.is_warned,
        "warned_at": text_of(lost.warned_at),
        "lost_at": text_of(lost.lost_at),
        "by": {**_facts(by), **_times(by)},
    }
    return Notice(NoticeKind.REPLICA_REPLACED, lost.service, str(lost.id), at, facts)


def _facts(replica: Replica) -> dict[str, Any]:
    """Which replica it is, and where."""
    return {
        "replica": replica.id,
        "version": replica.version,
        "instance": replica.instance_id and slots.host(replica.instance_id),
        "offering": replica.offering and _offering(replica.offering),
    }


def _offering(offering: Offering) -> dict[str, str]:
    return {
        "region": offering.pool.region,
        "zone": offering.pool.zone,
        "instance_type": offering.pool.instance_type,
        "purchase_option": offering.purchase_option.name,
    }


def _times(replica: Replica) -> dict[str, str | None]:
    """When it took its steps to serving."""
    entered = replica.entered
    return {
        "requested_at": text_of(entered.get(ReplicaState.REQUESTED)),
        "launched_at": text_of(entered.get(ReplicaState.PROVISIONING)),
        "ready_at": text_of(entered.get(ReplicaState.READY)),
    }
