"""How far a service is on the way to what is deployed: as many replicas as wanted, all of its version."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from spotrelay.plane.aws import remedies
from spotrelay.plane.aws.errors import refusal_kind
from spotrelay.plane.core import timing
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.spec import OnUpdate, ServiceSpec
from spotrelay.plane.serving import rollout
from spotrelay.plane.view.snapshot import ServiceSnapshot
from spotrelay.plane.view.start_failures import in_words
from spotrelay.plane.view.status import status
from spotrelay.plane.view.words import console

_ANSWERED = "EC2: "
_DENIED = "EC2 refuses the request: "
"""How a row's launch says what EC2 answered; see `placement.launching`."""

_CODE = re.compile(r"(?:^|[,;:] )([A-Z][A-Za-z]+(?:\.[A-Za-z]+)*)(?=:|,|;|$)")
"""An error code of EC2's in such an answer."""

_DENIED_CODE = re.compile(r"\(([A-Za-z.]+)\)")
"""The same, as boto3 says it."""

_OF_EC2 = ": Server."
"""In the reason of a replica whose instance EC2 ended for a cause of its own."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How many replicas have the deployed version, how many will, and what is in the way."""

    service: str
    version: int
    """What replicas are to have: the deployed version, or what an operator went back to."""
    before: tuple[int, ...]
    """Versions of the replicas that are still to be replaced."""
    ready: int
    """In rotation, of whatever version."""
    desired: int
    new: int
    """In rotation, of this version."""
    failed: int
    """Replicas of this version that never became ready, since the deployment."""
    to_go: int
    """Replicas of other versions that are still to be replaced."""
    is_done: bool
    stopped: str
    """Why it won't end well by itself: EC2's own words, or the replicas'; empty while it may."""
    waits_for: str
    """What is missing, for people; empty if nothing is."""

    def rolling(self, before: int) -> str:
        """For people, where replicas had the version `before`: how far the roll-out is."""
        if before == self.version:
            return f"v{self.version}: {self.ready}/{self.desired} ready"
        return (
            f"v{before}→v{self.version}: {self.new}/{self.desired} new, {self.failed} failed,"
            f" {self.to_go} to go"
        )


def progress(seen: ServiceSnapshot, since: datetime) -> Progress | None:
    """How far it is, of what was deployed at `since`; None: it has no document, so nothing is to come."""
    if seen.spec is None or seen.wanted is None:
        return None
    spec, rows = rollout.in_effect(seen.spec, seen.rows, seen.at), seen.rows
    old = rollout.old_ones(spec, rows)
    staying = [r for r in seen.present if r.stays]
    failed = _failed(seen, spec.version, since)
    is_whole = len(staying) >= seen.wanted
    judged = status(seen)
    return Progress(
        service=seen.service,
        version=spec.version,
        before=tuple(sorted({r.version for r in old})),
        ready=len(staying),
        desired=seen.wanted,
        new=sum(r.version == spec.version for r in staying),
        failed=len(failed),
        to_go=len(old),
        is_done=is_whole and not old,
        stopped=_stopped(seen, spec, failed),
        waits_for=judged.why,
    )


def _failed(seen: ServiceSnapshot, version: int, since: datetime) -> list[Replica]:
    found = (r for r in seen.replicas.values() if r.state is ReplicaState.FAILED)
    return [r for r in found if r.version == version and r.since >= since]


def _stopped(seen: ServiceSnapshot, spec: ServiceSpec, failed: list[Replica]) -> str:
    """Why it won't end well by itself."""
    if rollout.has_failed(spec, seen.rows) and _is_its_own_doing(seen, spec, failed):
        last = _in_words(failed[-1]) if failed else ""
        serving = sorted({r.version for r in seen.in_rotation if r.version != spec.version})
        serves = f"; version {serving[-1]} serves on" if serving else ""
        return (
            f"version {spec.version} was given up after {seen.rows.backoff.failures} replicas{last}{serves}"
        )
    return _blocked(seen, spec)


def _in_words(failed: Replica) -> str:
    """What is known of it, and where more is."""
    more = f"; it {in_words(failed)}" if failed.trouble else f" ({console(failed)})"
    return f": replica {failed.id}: {failed.reason}{more}"


def _is_its_own_doing(seen: ServiceSnapshot, spec: ServiceSpec, failed: list[Replica]) -> bool:
    """Whether the version is to blame. Where nothing else serves, what EC2 ended at birth is tried again."""
    if spec.on_update is not OnUpdate.KEEP and rollout.old_ones(spec, seen.rows):
        return True
    own = [r for r in failed if _OF_EC2 not in r.reason]
    return len(own) >= timing.ROLLOUT_FAILURES


def _blocked(seen: ServiceSnapshot, spec: ServiceSpec) -> str:
    """What EC2 says and no time will mend, if all that is missing waits for that."""
    coming = [r for r in seen.present if r.is_counted and r.state is not ReplicaState.READY]
    if not coming or any(r.state is not ReplicaState.REQUESTED or not r.attempts for r in coming):
        return ""
    is_short = sum(r.stays for r in seen.present) < spec.replicas
    may_stand_in = spec.purchase_option.fallback and spec.on_demand_fallback
    if is_short and may_stand_in and not any(r.is_fallback for r in coming):
        return ""  # one is asked for within a second or two, and may well be launched
    answers = {r.id: _lasting(r, seen.region) for r in coming}
    if not all(answers.values()):
        return ""
    first = next(iter(answers))
    return f"EC2 launches nothing: replica {first}: {answers[first]}"


def _lasting(replica: Replica, region: str) -> str:
    """What EC2 refuses for good, and what to do; empty if another pool, or time, may help."""
    text = replica.launch or ""
    is_denied = text.startswith(_DENIED)
    answer = text.removeprefix(_DENIED) if is_denied else text.rpartition(_ANSWERED)[2]
    codes = (_DENIED_CODE if is_denied else _CODE).findall(answer)
    kinds = [refusal_kind(code, answer) for code in codes]
    # What is denied as a whole, every pool is.
    if not codes or not (is_denied or all(kind.is_lasting for kind in kinds)):
        return ""
    remedy = remedies.remedy(kinds[0], codes[0], answer, region, replica.offering)
    return f"{answer}: {remedy}" if remedy else answer
