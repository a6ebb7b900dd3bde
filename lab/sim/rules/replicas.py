"""The rules about which replicas a tick adds and removes, and how they are bought."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from lab.sim.gate import Commit, time_of
from lab.sim.rules import Findings, Rule, limits, moves, versions
from lab.sim.rules.backoff import backoffs, has_failed, held_until, is_held, is_looping, rollout_stopped
from lab.sim.rules.invocation_view import InvocationView, stays_in
from lab.sim.rules.limits import SKEW_S, STARTING_STATES
from lab.sim.rules.load import qps
from lab.sim.rules.rows import NEEDLESS
from spotrelay.operator.adoption import NO_VERSION
from spotrelay.plane.core.instances import TargetState
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import OnRebalance, OnUpdate, ServiceSpec


def check(view: InvocationView) -> Findings:
    """Check which replicas a tick added and removed, if nobody else did meanwhile."""
    assert view.spec is not None  # noqa: S101 - a tick has one
    spec = view.spec
    yield from _check_scale_in(view, spec)
    yield from _check_fallback_removal(view)
    yield from _check_loss_replacement(view, spec)
    yield from _check_purchase_options(view, spec)
    yield from _check_proactive_replacement(view, spec)
    yield from _check_stayed(view, spec)
    yield from _check_given_up(view, spec)
    for commit in view.invocation.commits:
        yield from moves.check(view, spec, commit)
        if commit.changes.open_intent and commit.changes.window:
            yield from _check_launch_times(view, spec, commit)
            yield from versions.check_launched(view, spec, commit)


def regular(rows: Rows) -> list[Replica]:
    """The replicas that count towards desired. A replica and its replacement count as one."""
    return [
        r for r in rows.replicas.values() if r.is_counted and not r.is_fallback and not r.superseded_in(rows)
    ]


def of(replicas: Iterable[Replica], option: PurchaseOption) -> int:
    """How many of them have the purchase option."""
    return sum(r.purchase_option is option for r in replicas)


def _failed(view: InvocationView) -> int:
    """How many it found to have failed, perhaps after it had decided about the others: it probes last."""
    return sum(row.state is ReplicaState.FAILED for _, row in view.written)


def _base(spec: ServiceSpec) -> int:
    """How many regular replicas are bought on-demand, whatever Spot gives."""
    return spec.base_on_demand if spec.use_spot else spec.replicas


def _check_scale_in(view: InvocationView, spec: ServiceSpec) -> Findings:
    """The service scales in: does the right replica go?"""
    loaded, scaling = view.rows.replicas, spec.scaling
    gone = [
        old
        for old, row in view.written
        if row.reason == "more replicas than wanted" and old.state.is_active and not row.state.is_active
    ]
    if not gone or any(old.comes_back and row.stays for old, row in view.written):
        return  # one that came back is one of them from now on
    left = regular(view.now)
    if len(left) + _failed(view) < spec.replicas:
        what = f"{len(left)} of {spec.replicas} are left after removing {[r.id for r in gone]}"
        yield Rule.SCALE_IN_ORDER, what
    # What is being launched at this moment can't go, however many there are; what is written anyway has its
    # own reason, and what was being replaced counts only from now on.
    written = {old.id for old, _ in view.written}
    may_go = [
        loaded[r.id]
        for r in regular(view.rows)
        if r.id in {one.id for one in left} - written and r.launch_id not in view.rows.intents
    ]
    for known in may_go:
        for row in gone if not _may_serve(view, known) else ():
            is_needless = _is_serving(view, row) and not _is_serving(view, known)
            is_alike = _looks(view, row) == _looks(view, known)
            is_older = is_alike and _bought(row) == _bought(known) and row.id < known.id
            # What a replacement that goes was to replace counts again.
            is_base = is_alike and of([row], PurchaseOption.ON_DEMAND) > of([known], PurchaseOption.ON_DEMAND)
            is_base &= of(left, PurchaseOption.ON_DEMAND) < _base(spec)
            is_one_option = row.purchase_option is known.purchase_option
            is_stronger = scaling is not None and qps(scaling, row) > qps(scaling, known)
            what = f"{row}, {row.state}, is removed, and {known}, {known.state}, stays"
            if is_needless or is_older or is_base:
                yield Rule.SCALE_IN_ORDER, what
            if is_alike and is_one_option and is_stronger:
                yield Rule.WEAKEST_GOES, what


def _is_serving(view: InvocationView, row: Replica) -> bool:
    """Whether a replica served when it was read, or does by what was seen since."""
    return row.serves or (row.id in view.now.replicas and view.now.replicas[row.id].serves)


def _bought(row: Replica) -> tuple[object, ...]:
    """How it is bought, and where; None: it has no instance yet."""
    return row.purchase_option, row.offering


def _looks(view: InvocationView, row: Replica) -> tuple[object, ...]:
    """What a tick sees of a replica that may tell it from another one."""
    seen = view.target(row), view.instance_of(row) is None, _is_serving(view, row)
    return row.state, row.slots, *seen


def _check_fallback_removal(view: InvocationView) -> Findings:
    """Serving fallbacks are removed: has Spot been ready for long enough?"""
    loaded = view.rows.replicas
    gone = [
        old.id
        for old, row in view.written
        if row.reason == "Spot is back" and not row.state.is_active and old.serves
    ]
    if not gone:
        return
    # A standby comes back sooner than another start would.
    is_any_cold = any(not loaded[id_].is_standby for id_ in gone)
    most_s = limits.STABLE_MAX_S if is_any_cold else limits.STANDBY_STABLE_MAX_S
    counted = {r.id for r in regular(view.now)}
    fresh = [
        r
        for r in regular(view.rows)
        if r.id in counted  # what is replaced from now on goes anyway
        and stays_in(r, view.now)
        and r.serves
        and r.purchase_option is PurchaseOption.SPOT
        and time_of(_stable_from(r, most_s)) > view.decided_at + SKEW_S
    ]
    left = sum(r.is_fallback and r.serves for r in view.now.replicas.values())
    if left < len(fresh):
        what = f"{gone} are removed, {left} are left, {[r.id for r in fresh]} became ready just now"
        yield Rule.FALLBACK_STAYS_FOR_SPOT, what


def _stable_from(row: Replica, most_s: float = limits.STABLE_MAX_S) -> datetime:
    """When it will have been ready for as long as it took to start, or for long enough."""
    ready = row.entered[ReplicaState.READY]
    return ready + min(ready - row.entered.get(ReplicaState.PROVISIONING, ready), timedelta(seconds=most_s))


def _check_stayed(view: InvocationView, spec: ServiceSpec) -> Findings:
    """Replicas of an old version go: have those of the new one been ready for long enough?"""
    for old, row in view.written:
        new = view.now.replicas.get(old.replaced_by or 0)
        is_place_made = old.serves and not row.state.is_active and row.reason.startswith("version ")
        if not is_place_made or new is None or ReplicaState.READY not in new.entered:
            continue
        if spec.bake_s is not None or spec.on_update is OnUpdate.BLUE_GREEN:
            stays_from = time_of(new.entered[ReplicaState.READY]) + (spec.bake_s or 0.0)
        else:
            stays_from = time_of(_stable_from(new))
        if view.decided_at + SKEW_S < stays_from:
            yield (
                Rule.NEW_VERSION_STAYS,
                f"{row} goes ({row.reason}), and {new} stays from {stays_from:.1f} s on",
            )


def _check_given_up(view: InvocationView, spec: ServiceSpec) -> Findings:
    """A replica of the new version is replaced because it turned ill: is the version given up?"""
    if spec.on_update is OnUpdate.KEEP:
        return
    ill = [
        old
        for row in view.created
        if row.reason.startswith("unhealthy for ")
        and (old := view.rows.replicas.get(row.replaces or 0))
        and old.version == spec.version
    ]
    after = view.now.replicas
    others = (r.id for r in view.rows.replicas.values() if r.is_counted and r.version != spec.version)
    is_under_way = any(id_ in after and after[id_].is_counted for id_ in others)
    if ill and is_under_way and not any(has_failed(spec, backoff) for backoff in backoffs(view)):
        yield Rule.ILL_VERSION_GIVEN_UP, f"{ill[0]} of version {spec.version}, and that isn't given up"


def _check_loss_replacement(view: InvocationView, spec: ServiceSpec) -> Findings:
    """Replicas are lost: are they replaced if fewer than desired are left, and only then?"""
    before, now = view.rows, view.now
    lost = [
        row
        for old, row in view.written
        if old.is_counted
        and not (old.is_fallback or row.is_counted or old.superseded_in(before))
        and row.instance_id is not None
        and row.state is not ReplicaState.FAILED
    ]
    # A replica that is due to go gets the next replacement if its own was lost. A roll-out can wait, and
    # so can a move.
    due = {
        r.id
        for r in before.replicas.values()
        if r.superseded_in(before)
        and (successor := before.replicas[r.replaced_by or 0]).version == r.version
        and not successor.is_move
    }
    count, failed = sum(r.id not in due for r in regular(now)), _failed(view)
    # What is given up because there were too many was there when the loss was decided on.
    surplus = sum(row.reason == "more replicas than wanted" for _, row in view.written)
    created = {row.id for row in view.created}
    for row in lost:
        if row.replaced_by in created:
            if count > spec.replicas:
                what = f"{row} is replaced, and {count} are left of {spec.replicas}"
                yield Rule.LOSS_REPLACED_IF_NEEDED, what
        elif moves.is_extra(row, before.replicas):
            continue  # what was to move stayed when that was decided; the next tick looks
        elif row.reason.startswith("its version is given up"):
            continue  # what it was to replace stays
        elif row.reason.startswith("unhealthy for ") and row.replaces in due:
            continue  # so here, and gets the next one
        elif row.reason.endswith(NEEDLESS) and count + surplus + failed < spec.replicas:
            what = f"{row} isn't replaced, and {count} are left of {spec.replicas}"
            yield Rule.LOSS_REPLACED_IF_NEEDED, what


def _check_purchase_options(view: InvocationView, spec: ServiceSpec) -> Findings:
    """Replicas are requested: do they have the right purchase option and version?"""
    left, base = regular(view.now), _base(spec)
    requested = [row for row in view.created if row.state is ReplicaState.REQUESTED]
    has_orphans = len(requested) < len(view.created)
    for row in requested:
        if row.is_fallback or row.is_standby:
            continue
        option = row.purchase_option
        replaced = view.rows.replicas.get(row.replaces or 0)
        if replaced is not None:
            is_right = option is (replaced.purchase_option if spec.use_spot else PurchaseOption.ON_DEMAND)
        elif has_orphans:
            continue
        elif option is PurchaseOption.SPOT:
            is_right = of(left, PurchaseOption.SPOT) <= spec.replicas - base
        else:
            is_right = of(left, PurchaseOption.ON_DEMAND) <= base
        if not is_right:
            what = f"{row} is to be {option}; the base is {base} of {spec.replicas}"
            yield Rule.PURCHASE_OPTION_CORRECT, what
        # It may have become ready by the same decision.
        yield from versions.check_noted(row, view.now.replicas.get(row.replaces or 0, replaced))
        yield from _check_version(view, spec, row)
    for row in view.created:
        if (row.is_fallback or row.is_standby) and row.purchase_option is not PurchaseOption.ON_DEMAND:
            what = f"{row} is a fallback or a standby, and is to be {row.purchase_option}"
            yield Rule.PURCHASE_OPTION_CORRECT, what


def _check_version(view: InvocationView, spec: ServiceSpec, row: Replica) -> Findings:
    """A replica is requested: with the deployed version, or one that serves if that isn't known to?"""
    # One may get ready in this very tick, or end in it.
    ready, now = (
        {r.version for r in rows.replicas.values() if ReplicaState.READY in r.entered}
        for rows in (view.rows, view.now)
    )
    served = {version for version in ready | now if NO_VERSION != version <= spec.version}
    # A version that serves as a fallback may have failed too often on Spot. A later one is its repair.
    looping = {v for v in served for known in backoffs(view) if is_looping(known, v)}
    served -= looping - {spec.version}
    replaced = view.rows.replicas.get(row.replaces or 0)
    left = view.now.replicas.get(row.replaces or 0)
    is_proven = row.version in served or (replaced is not None and row.version == replaced.version)
    # Only beside a replica that stays may a version be tried, or where none has served.
    may_try = not served & now or (left is not None and left.is_counted)
    if spec.on_update is OnUpdate.KEEP:
        is_right = row.version == spec.version
    else:
        is_right = is_proven or (row.version == spec.version and may_try)
    if not is_right:
        what = f"{row} is of version {row.version}, deployed is {spec.version}, {served} served"
        yield Rule.VERSION_CORRECT, what


def _check_proactive_replacement(view: InvocationView, spec: ServiceSpec) -> Findings:
    """Replicas are replaced before they go: is that due, and at most `surge` at a time?

    Those that EC2 recommends to leave are replaced together.
    """
    after = view.now.replicas
    moved = [
        old
        for row in view.created
        if not row.is_move  # see `moves`
        and (old := view.rows.replicas.get(row.replaces or 0)) is not None
        and old.id in after
        and after[old.id].is_counted
    ]
    if not moved:
        return
    counted = (r for r in after.values() if r.is_counted and not r.is_fallback)
    paired = [r for r in counted if _gives_way(r, view.now)]
    # What came to try a version that is taken back since stands for none that would be replaced now.
    paired = [r for r in paired if not r.version <= spec.version < after[r.replaced_by or 0].version]
    at_once = [r for r in paired if spec.on_update is OnUpdate.BLUE_GREEN and r.version != spec.version]
    pairs = len(paired) - len(at_once)
    if pairs > spec.surge or len(at_once) > spec.replicas:
        yield Rule.REPLACED_BEFORE_DRAINED, f"{pairs} are replaced at a time, `surge` is {spec.surge}"
    now = view.decided_at + SKEW_S
    for old in moved:
        if after[old.id].unhealthy_since is not None and old.unhealthy_since is not None:
            is_due = now >= time_of(old.unhealthy_since) + limits.UNHEALTHY_S
        else:
            is_advised = old.rebalance_at is not None and spec.on_rebalance is OnRebalance.REPLACE
            is_due = is_advised and now >= time_of(old.since) + limits.MIN_READY_S
            silent_from = limits.silent_from(old, spec)
            is_due = is_due or (silent_from is not None and now >= silent_from)
        if not (is_due or may_roll_out(view, spec, old)):
            yield Rule.REPLACED_BEFORE_DRAINED, f"{old} is replaced, unhealthy since {old.unhealthy_since}"


def _may_need_fallback(row: Replica, rows: Rows) -> bool:
    """Whether it may have a fallback: not on a first start, nor while the replica that it replaces serves."""
    before = rows.replicas.get(row.replaces or 0)
    if row.purchase_option is not PurchaseOption.SPOT or row.state is ReplicaState.READY:
        return False
    if before is not None and before.stays:
        return False
    if row.state is ReplicaState.REQUESTED:
        return row.attempts > 0
    return row.attempts > 0 or row.replaces is not None


def _check_launch_times(view: InvocationView, spec: ServiceSpec, commit: Commit) -> Findings:
    """Waiting replicas are launched: are they due?"""
    assert commit.changes.open_intent is not None  # noqa: S101 - the caller has looked
    launched = set(commit.changes.open_intent.replica_ids)
    now, loaded = commit.at + SKEW_S, view.rows.replicas
    # With the version that is launched: it may have been requested under an earlier one.
    again = [
        replace(loaded[r.id], version=r.version)
        for r in commit.changes.update
        if r.id in launched and r.id in loaded
    ]
    fresh = [r for r in commit.changes.create if r.id in launched and r.replaces is None]
    for row in (*again, *fresh):
        if row.stands_by:
            continue  # its failures hold nothing, nor is it held by others'
        if held_until(view, row.version, is_fallback=row.is_fallback) > now:
            yield Rule.FAILURE_BACKOFF, f"{row} is launched, and waits by {view.rows.backoff}"
    staying = sum(r.stays and stays_in(r, view.now) for r in loaded.values())
    # What waits for others of its version doesn't return to Spot: it replaces nothing until they are there.
    is_apart = spec.on_update is OnUpdate.BLUE_GREEN
    spot = [
        r
        for r in again
        if r.purchase_option is PurchaseOption.SPOT and not (is_apart and r.version == spec.version)
    ]
    if spot and spec.use_spot and staying >= spec.replicas:
        starting = [
            r
            for r in regular(view.rows)
            if r.purchase_option is PurchaseOption.SPOT
            and r.state in STARTING_STATES
            and r.id in view.now.replicas
            and view.now.replicas[r.id].state in STARTING_STATES
            and not (is_apart and r.version == spec.version)
        ]
        most = limits.most_returning(spec.replicas)
        if len(spot) > max(most - len(starting), 0):
            what = f"{[r.id for r in spot]} return to Spot at a time beside {[r.id for r in starting]}"
            yield Rule.GRADUAL_RETURN_TO_SPOT, what


def _may_serve(view: InvocationView, row: Replica) -> bool:
    """Whether it may serve though its row doesn't say so: nobody was shown that it doesn't."""
    if row.state is ReplicaState.READY:
        return view.instance_of(row) is None
    return row.state is ReplicaState.STARTING and view.target(row) is TargetState.UNAVAILABLE


def check_after_tick(view: InvocationView, spec: ServiceSpec) -> Findings:
    """After an undisturbed tick: does every desired replica exist, and no other?"""
    if view.rows.intents or view.now.intents:
        return
    left = regular(view.now)
    failed = _failed(view) > 0
    if len(left) < spec.replicas and not is_held(view) and not failed:
        yield Rule.TICK_COMPLETE, f"{len(left)} exist, {spec.replicas} are desired"
    yield from _check_due(view, spec)
    yield from _check_fallbacks(view, spec, failed=failed)


def _has_lost_replicas(view: InvocationView) -> bool:
    """Whether counted replicas went in this tick: the next one uses the room that this makes."""
    left = {row.id for row in view.now.replicas.values() if row.is_counted}
    return any(row.is_counted and row.id not in left for row in view.rows.replicas.values())


def _gives_way(row: Replica, rows: Rows) -> bool:
    """Whether it is being replaced, for a reason that `surge` limits."""
    return row.superseded_in(rows) and rows.replicas[row.replaced_by or 0].reason != RECOMMENDED


RECOMMENDED = "rebalance recommendation"
"""Why the new one of such a pair is there, in the words of its row."""


def may_roll_out(view: InvocationView, spec: ServiceSpec, row: Replica) -> bool:
    """Whether a replica may make place for a newer version, by what was read or by what is so."""
    is_old = spec.on_update is not OnUpdate.KEEP and row.version != spec.version
    return is_old and not all(rollout_stopped(spec, backoffs(view), rows) for rows in (view.rows, view.now))


def _must_roll_out(view: InvocationView, spec: ServiceSpec, row: Replica) -> bool:
    """Whether it has to: nothing has failed of late, and it has been ready for a while."""
    return (
        view.is_over(_stable_from(row))
        and may_roll_out(view, spec, row)
        and not any(rollout_stopped(spec, backoffs(view), rows) for rows in (view.rows, view.now))
        and not any(backoff.version == spec.version and backoff.failures for backoff in backoffs(view))
    )


def _check_due(view: InvocationView, spec: ServiceSpec) -> Findings:
    """Are replicas that are due replaced, as far as `surge` allows?"""
    is_given_up = any(c.changes.backoff is not None for c in view.invocation.commits)
    if _has_lost_replicas(view) or is_given_up:
        return  # the next tick goes by that
    is_full = False
    for rows in (view.rows, view.now):
        there = [r for r in rows.replicas.values() if r.is_counted and not r.is_fallback]
        pairs = sum(r.superseded_in(rows) for r in there)
        if len(there) - pairs > spec.replicas:
            return
        recommended = pairs - sum(_gives_way(r, rows) for r in there)
        is_full = is_full or max(pairs, len(there) - spec.replicas) - recommended >= spec.surge
    for row in view.unchanged_rows():
        if row.state is not ReplicaState.READY or not row.is_counted or row.is_fallback:
            continue
        if row.unhealthy_since is not None:
            is_due = not is_full and view.is_over(row.unhealthy_since, limits.UNHEALTHY_S)
        else:
            is_advised = row.rebalance_at is not None and spec.on_rebalance is OnRebalance.REPLACE
            is_due = is_advised and view.is_over(row.since, limits.MIN_READY_S)
            silent_from = limits.silent_from(row, spec)
            is_silent = silent_from is not None and silent_from + SKEW_S <= view.invocation.loaded_at
            is_due = is_due or (not is_full and (is_silent or _must_roll_out(view, spec, row)))
        if is_due and not row.superseded_in(view.rows):
            what = f"{row} should be replaced, unhealthy since {row.unhealthy_since}"
            yield Rule.REPLACED_BEFORE_DRAINED, what


def _check_fallbacks(view: InvocationView, spec: ServiceSpec, *, failed: bool) -> Findings:
    """Is there a fallback for each Spot replica that was refused, or that starts alone?"""
    must_wait = is_held(view, is_fallback=True)
    there = [r for r in view.now.replicas.values() if r.is_fallback and r.is_counted]
    given_up = sum(limits.is_given_up(r, view.invocation.loaded_at - SKEW_S) for r in there)
    fallbacks = len(there)
    if spec.use_spot and spec.on_demand_fallback and not must_wait and not failed:
        # A replica may serve although it is to be replaced. Then fewer fallbacks are needed.
        serving = sum(r.stays and not r.is_fallback for r in view.now.replicas.values())
        left = {r.id for r in regular(view.now)}
        needed = sum(_needs_fallback(view, r) for r in regular(view.rows) if r.id in left)
        # What Spot gives beyond the number that is needed isn't bought on-demand where it doesn't.
        bought = max(of(regular(rows), PurchaseOption.ON_DEMAND) for rows in (view.rows, view.now))
        most = max(spec.replicas - spec.overprovision - bought, 0)
        wanted = min(needed, spec.replicas - serving, most)
        if fallbacks < wanted:
            yield Rule.FALLBACKS_MATCH_NEED, f"{wanted} fallbacks are needed, there are {fallbacks}"
        elif fallbacks - given_up < min(wanted, spec.replicas + spec.surge - given_up):
            what = f"{wanted} fallbacks are needed, and {given_up} of {fallbacks} don't answer"
            yield Rule.LONE_FALLBACK_STAYS, what


def _needs_fallback(view: InvocationView, row: Replica) -> bool:
    """Whether a replica needs a fallback, and still does at the end of the tick."""
    now = view.now.replicas.get(row.id)
    if (
        now is None
        or not now.is_counted
        or now.state is ReplicaState.READY
        or not _may_need_fallback(row, view.rows)
        or stays_in(view.rows.replicas.get(row.replaces or 0, row), view.now)  # it has recovered since
    ):
        return False
    if row.attempts > 0:
        return True
    before = view.rows.replicas.get(row.replaces or 0)
    return before is None or view.instance_of(before) is None
