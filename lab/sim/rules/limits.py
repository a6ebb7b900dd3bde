"""The documented durations, shares and counts, each with its document.

None is imported from the production code: whether the two agree is what is checked.
"""

from __future__ import annotations

from datetime import datetime

from lab.sim.gate import time_of
from spotrelay.plane.core.pools import Cause
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.spec import OnUpdate, OnWarning, ServiceSpec

SKEW_S = 1.5
"""How much the functions' clocks may differ from EC2's, and a decision be older than its commit."""

# Interruptions: docs/service-file.md.

WARNING_S = 120.0
"""From a warning to the end of the instance: EC2's two minutes."""

DEREGISTRATION_LAG_S = 20.0
"""A load balancer may send requests to a deregistered target for this long."""

LAST_REPLICA_LEAD_S = 10.0
"""The very last replica leaves the rotation this long before its end."""

SPARED_END_S = WARNING_S + 300.0
"""An instance that EC2 spares is ended five minutes after its time: docs/reliability.md."""


def is_enough(spec: ServiceSpec, others: int) -> bool:
    """Whether a warned replica may leave at once, because so many others serve."""
    match spec.on_warning:
        case OnWarning.LEAVE:
            return True
        case OnWarning.NEEDED:
            return others >= min(max(spec.replicas - 1, 1), spec.replicas)
        case OnWarning.SERVE_ON:
            return others >= spec.replicas


def last_moments(spec: ServiceSpec, warned_at: datetime) -> tuple[float, float]:
    """When a needed warned replica leaves at the latest, and when it does as the very last one."""
    ends_at = time_of(warned_at) + WARNING_S
    return ends_at - spec.drain_s - DEREGISTRATION_LAG_S, ends_at - LAST_REPLICA_LEAD_S


def unhurried_s(spec: ServiceSpec) -> float:
    """How long a replica that nobody takes away may finish its requests."""
    return spec.drain_s if spec.drain_unhurried_s is None else max(spec.drain_s, spec.drain_unhurried_s)


def way_out_s(spec: ServiceSpec, row: Replica) -> float:
    """How long a draining replica may finish its requests, where EC2 doesn't end it sooner."""
    has_served = ReplicaState.READY in row.entered
    return unhurried_s(spec) if has_served and row.warned_at is None else spec.drain_s


# Observations: docs/reliability.md.

STARTING_STATES = (ReplicaState.PROVISIONING, ReplicaState.STARTING)
"""The states of a replica that has an instance and isn't ready yet."""

UNSEEN_S = 120.0
"""EC2's answers may lack a new instance for two minutes."""

MISSING_S = 30.0
"""An instance that is neither shown nor healthy for half a minute counts as gone."""

BOOT_S = 120.0
"""A replica's initial delay begins when its instance has run for two minutes: docs/service-file.md."""


def is_overdue_at(row: Replica, spec: ServiceSpec) -> float:
    """When a replica that is on its way should be ready."""
    since = row.entered.get(ReplicaState.STARTING, row.entered[ReplicaState.PROVISIONING])
    return time_of(since) + spec.initial_delay_s + BOOT_S


UNASKED_S = 120.0
"""Where nobody is healthy and the prober fails, what has started for so long enters unasked, if the load
balancer asks the same: docs/service-file.md, Health and readiness."""

ADOPTION_AFTER_S = 10.0
"""A launched instance is adopted after ten seconds. Until then, its own launch may record it."""

ORPHAN_AFTER_S = 120.0
"""An instance that wasn't adopted gets a row two minutes after its launch."""

UNHEALTHY_S = 60.0
"""A replica that doesn't answer its health checks is replaced after a minute."""


def silent_from(row: Replica, spec: ServiceSpec) -> float | None:
    """When a replica that doesn't answer its readiness probe is to be replaced, if ever."""
    probe = spec.readiness_probe
    if probe is None or probe.failure_threshold_s is None or row.silent_since is None:
        return None
    return time_of(row.silent_since) + probe.failure_threshold_s


REFUSALS = 2
"""A replica that refuses its probe at so many looks in a row leaves, if enough others answer theirs."""


def is_enough_answering(spec: ServiceSpec, answering: int) -> bool:
    """Whether so many answer that others may leave, because they refuse their probe."""
    return answering >= 1 and 2 * answering >= spec.replicas


def refuses_for_good(row: Replica) -> bool:
    """Whether it is leaving because it refuses its probe."""
    return row.reason == "refuses its readiness probe"


FALLBACK_UNHEALTHY_S = 180.0
"""A fallback gets no replacement, and is given up after three minutes."""


def is_given_up(row: Replica, now: float) -> bool:
    """Whether a fallback hasn't answered for so long that another is to come in its place."""
    since = row.unhealthy_since
    return row.is_fallback and since is not None and now >= time_of(since) + FALLBACK_UNHEALTHY_S


ABSENT_TICKS, ABSENT_S = 3, 20.0
"""For how many ticks and seconds a document must be missing at least."""

PROGRESS_S = 180.0
"""Within this time everything is done: a killed tick may hold its lease for a minute, the next scheduled tick
comes within another, and while things settle, ticks come half a minute apart."""

DOCUMENT_CACHE_S = 60.0
"""How long a function may use a document that it has read."""

TIMEOUT_S = 60.0
"""No function runs for longer: the stack's number."""

MIN_READY_S = 600.0
"""A replica that was ready for less isn't replaced on a recommendation: docs/service-file.md."""

STANDBY_RESUME_S, STANDBY_SLOW = 60.0, 1.5
"""A standby that was resumed so many times as long ago as its last resume took, a minute at least, and isn't
ready, is no reason not to resume another."""

STANDBY_TRIES = 2
"""So many resumes in a row that EC2 refused: then another standby is prepared in its place."""

OVERRIDE_TRIES = 6
"""So often an operator's override comes again, where another tick is at work: then it is given again."""

AGAIN_S = 10.0
"""An instance that should have been started or stopped by then is started or stopped again."""

LAUNCH_WINDOW_S = 60.0
"""The minute of `max_launches_per_minute`: docs/service-file.md."""


# Failures: docs/reliability.md.

FAILURE_S, FALLBACK_FAILURE_MAX_S = (30.0, 1800.0), 300.0
"""After replicas that never became ready, launches wait half a minute at first, half an hour at most, and
fallbacks five minutes at most."""

STANDBY_FAILURE_S = 600.0, 86_400.0
"""After a standby that couldn't be prepared, the next waits ten minutes at first, a day at most."""

ROLLOUT_FAILURES = 2
"""So many failures in a row stop a roll-out."""

CRASH_LOOP = 5
"""So many failures in a row stop launches until a deployment, if the last replica was launched after the
failure before."""

# Launches and what is learned of pools: docs/placement.md.

STABLE_MAX_S = 600.0
"""A fallback goes once Spot has been ready for as long as it took to start, ten minutes at most."""

STANDBY_STABLE_MAX_S = 30.0
"""A standby that was resumed goes after half a minute at most: it comes back sooner."""

LOW_SCORE = 3
"""Zones with this score or a lower one come after the others."""

LOW_SCORE_EVERY = 5
"""Every fifth attempt to return to Spot asks them, too."""

RETRY_S = (5.0, 60.0)
"""The back-off after a refused launch: at first, and at most."""

ALL_COOLING_RETRY_S = 300.0
"""The longest wait while all pools cool: docs/reliability.md."""

FALLBACK_S = 2.0
"""How soon a tick requests fallbacks after Spot refused: docs/reliability.md, "within seconds"."""

COOLDOWNS_S = {
    Cause.LOSS: (900.0, 7200.0),
    Cause.REBALANCE: (600.0, 600.0),
    Cause.REFUSAL: (30.0, 600.0),
    Cause.UNSUPPORTED: (86_400.0, 86_400.0),
    Cause.LIMIT: (60.0, 900.0),
    Cause.FAILURE: (600.0, 7200.0),
}
"""How long a cooldown lasts at first, and at most."""


MOVE_AFTER_S = 3600.0
"""A replica moves once it has been ready for an hour, and an hour after the last try."""

MOVE_PAYS_WITHIN_S = 3600.0
"""Within this time a move saves what it costs to run two replicas."""

SURVEY_OLD_S = 7200.0
"""A survey that is older says nothing of prices and scores."""

MOVE_SCORE, MOVE_SCORE_GAIN = 2, 3
"""Replicas move by score out of zones that score this or less, to where it is so much more."""

SCORES_LAST_S = 1800.0
"""All surveys of so long a time must say so, two at least."""


def most_returning(replicas: int) -> int:
    """How many replicas return to Spot at a time: a quarter, or two."""
    return max(2, -(-replicas // 4))


def cooldown_s(cause: Cause, strikes: int) -> float:
    """How long a cooldown lasts, for a cause that occurred so many times in a row."""
    return doubled_s(strikes, *COOLDOWNS_S[cause])


def doubled_s(times: int, first_s: float, longest_s: float) -> float:
    """The duration for the n-th time (≥ 1) in a row: doubled each time, up to a ceiling."""
    return min(first_s * 2.0 ** (times - 1), longest_s)


def most_regular(spec: ServiceSpec) -> int:
    """The most regular replicas; while all of them change at once, there are as many again."""
    again = spec.replicas if spec.on_update is OnUpdate.BLUE_GREEN else 0
    return spec.replicas + again + spec.surge
