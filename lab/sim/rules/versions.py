"""The rules about which version is launched: what was requested before, and after a rollback."""

from __future__ import annotations

from collections.abc import Iterator

from lab.sim.gate import Commit
from lab.sim.rules import Findings, Rule
from lab.sim.rules.backoff import backoffs, is_looping, rollout_stopped
from lab.sim.rules.invocation_view import InvocationView
from lab.sim.rules.limits import SKEW_S
from spotrelay.operator.adoption import NO_VERSION
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff, Rows
from spotrelay.plane.core.spec import OnUpdate, ServiceSpec


def check_launched(view: InvocationView, spec: ServiceSpec, commit: Commit) -> Findings:
    """Replicas that waited are launched: as deployed, or as a version that has served?"""
    intent = commit.changes.open_intent
    for row in commit.changes.update:
        old = view.rows.replicas.get(row.id)
        if old is None or intent is None or row.id not in intent.replica_ids:
            continue
        may_be = set(_may_be(view, spec, old))
        if row.version not in may_be:
            what = f"{row} of version {old.version} is launched as {row.version}, not {sorted(may_be)}"
            yield Rule.LAUNCHED_AS_DEPLOYED, what


def check_rolled_back(view: InvocationView, commit: Commit) -> Findings:
    """A version was given up by an operator: is nothing launched with it, and does what serves stay?"""
    service, back = commit.changes.service, commit.before.rollback
    history, since = view.history, view.invocation.began_at - SKEW_S
    documents = history.documents(service, since)
    is_in_effect = bool(documents) and all(back and spec.version == back.to for spec in documents)
    if back is None or not is_in_effect or history.is_damaged(service, since):
        return
    for row in commit.changes.to_launch:
        if row.version == back.version:
            yield Rule.ROLLED_BACK, f"{row} is launched after {back}"
    for row in commit.changes.update:
        old, successor = (commit.before.replicas.get(id_ or 0) for id_ in (row.id, row.replaced_by))
        makes_place = old and old.serves and not row.state.is_active and row.reason.startswith("version ")
        if makes_place and row.version <= back.to and successor and successor.version == back.version:
            yield Rule.ROLLED_BACK, f"{row} makes place after {back}"


def check_noted(row: Replica, replaced: Replica | None) -> Findings:
    """A replica is requested: does its row say whether the one that it replaces has served as the same?"""
    has_served = replaced is not None and (replaced.is_proven or ReplicaState.READY in replaced.entered)
    is_proven = has_served and replaced is not None and replaced.version == row.version
    if row.is_proven is not is_proven:
        what = f"{row} of version {row.version} is proven: {row.is_proven}; it replaces {replaced}"
        yield Rule.ROWS_MATCH_OBSERVATION, what


def _may_be(view: InvocationView, spec: ServiceSpec, waiting: Replica) -> Iterator[int]:
    """The versions with which it may be launched: more than one, if what this very tick found matters."""
    for rows in (view.rows, view.now):
        for backoff in backoffs(view):
            yield _is_to_be(spec, rows, backoff, waiting)


def _is_to_be(spec: ServiceSpec, rows: Rows, backoff: Backoff, waiting: Replica) -> int:
    """The version with which it is to be launched, by these rows."""
    if spec.on_update is OnUpdate.KEEP:
        return spec.version

    def is_fit(version: int) -> bool:
        # A version that serves as a fallback may have failed too often on Spot. A later one is its repair.
        is_looped = version < spec.version and is_looping(backoff, version)
        return NO_VERSION != version <= spec.version and not is_looped

    ready = [r for r in rows.replicas.values() if ReplicaState.READY in r.entered and is_fit(r.version)]
    # Where none of them answers, that says nothing about their versions.
    served = {r.version for r in [r for r in ready if r.unhealthy_since is None] or ready}
    own = {waiting.version} if is_fit(waiting.version) else set()
    if rollout_stopped(spec, [backoff], rows):
        older = max(served - {spec.version} or served or own, default=spec.version)
        # One that was given up and serves all the same is more than one that EC2 refuses.
        is_serving = any(r.serves and r.version == spec.version for r in rows.replicas.values())
        is_refused = waiting.is_denied and waiting.version == older
        return spec.version if is_refused and is_serving else older
    if not served:
        may_return = own and waiting.is_proven and not waiting.is_denied
        return waiting.version if may_return else spec.version
    newest = max(served)
    if waiting.version > spec.version:
        return newest
    # It was to try a newer version than serves, or EC2 refuses the one that serves.
    is_tried, is_refused = waiting.version > newest, waiting.is_denied and waiting.version == newest
    return spec.version if is_tried or is_refused else newest
