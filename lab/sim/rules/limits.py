"""What is promised in numbers: each once, with the document that promises it.

The policy has numbers of its own, and none is taken from there: whether they agree is what is checked.
"""

from __future__ import annotations

from datetime import datetime

from lab.sim.gate import time_of
from spotrelay.core.pools import Cause
from spotrelay.core.spec import OnWarning, ServiceSpec

# Interruptions: docs/service-file.md.

WARNING_S = 120.0
"""Between a warning and the end: EC2's two minutes."""

DEREGISTRATION_LAG_S = 20.0
"""For so long a load balancer may send requests to what drains."""

LAST_REPLICA_LEAD_S = 10.0
"""The very last one in rotation leaves so long before its end."""

SPARED_END_S = WARNING_S + 300.0
"""What EC2 spares is ended five minutes after its time: docs/reliability.md."""


def is_enough(spec: ServiceSpec, others: int) -> bool:
    """Whether so many others let a warned replica leave at once."""
    match spec.on_warning:
        case OnWarning.LEAVE:
            return True
        case OnWarning.NEEDED:
            return others >= min(max(spec.replicas - 1, 1), spec.replicas)
        case OnWarning.SERVE_ON:
            return others >= spec.replicas


def last_moments(spec: ServiceSpec, warned_at: datetime) -> tuple[float, float]:
    """When a warned replica that isn't let go leaves at the latest, and when it does as the very last one."""
    ends_at = time_of(warned_at) + WARNING_S
    return ends_at - spec.drain_s - DEREGISTRATION_LAG_S, ends_at - LAST_REPLICA_LEAD_S


# What is seen, and what is missing: docs/reliability.md.

UNSEEN_S = 60.0
"""An instance just launched may be missing in EC2's answers for a minute."""

MISSING_S = 30.0
"""What is neither shown nor healthy for half a minute counts as gone."""

ADOPTION_AFTER_S = 10.0
"""An instance that was launched is adopted after ten seconds: before, who launched it records it."""

ORPHAN_AFTER_S = 120.0
"""An instance that nobody adopts gets a row two minutes after its launch."""

UNHEALTHY_S = 60.0
"""A replica that doesn't answer its health checks is replaced after a minute."""

FALLBACK_UNHEALTHY_S = 180.0
"""A fallback gets no replacement to wait for, and goes after three minutes."""

ABSENT_TICKS, ABSENT_S = 3, 20.0
"""For more ticks than these, and so long, a document must be missing."""

PROGRESS_S = 180.0
"""What there is to do is done within three minutes: a tick that was killed may hold its lease for a minute,
the next schedule's comes within another, and while things settle ticks come half a minute apart."""

DOCUMENT_CACHE_S = 60.0
"""For so long a function may go by a document that it has read."""

TIMEOUT_S = 60.0
"""No function runs for longer: the stack's number."""

MIN_READY_S = 600.0
"""What has been ready for less isn't replaced on a recommendation: docs/service-file.md."""

LAUNCH_WINDOW_S = 60.0
"""What `max_launches_per_minute` counts in: docs/service-file.md."""


def most_missing(ready: int) -> float:
    """That more of so many ready ones are missing isn't believed: more than half, and more than one."""
    return max(ready / 2, 1)


# Failures: docs/reliability.md.

FAILURE_S, FALLBACK_FAILURE_MAX_S = (30.0, 1800.0), 300.0
"""After replicas that never became ready launches wait half a minute at first, half an hour at most;
fallbacks five minutes."""

CRASH_LOOP = 5
"""Failures in a row that stop launches until a deployment, if the last was launched after the one before."""

ROLLOUT_FAILURES = 2
"""Failures in a row of a new version that stop its roll-out."""

# Launches and what is learned of pools: docs/placement.md.

STABLE_MAX_S = 600.0
"""A fallback goes once Spot has been ready for as long as it took to start, ten minutes at most."""

LOW_SCORE = 3
"""Zones with this score or less come after the others."""

LOW_SCORE_EVERY = 5
"""Each fifth try to return to Spot asks them, too."""

RETRY_S = (5.0, 60.0)
"""After a launch that was refused: at first, and at most."""

ALL_COOLING_RETRY_S = 300.0
"""While all pools cool, at most so long: docs/reliability.md."""

FALLBACK_S = 2.0
"""How soon a tick asks for fallbacks for what Spot has refused: docs/reliability.md, "within seconds"."""

COOLDOWNS_S = {
    Cause.LOSS: (900.0, 7200.0),
    Cause.REBALANCE: (600.0, 600.0),
    Cause.REFUSAL: (30.0, 600.0),
    Cause.UNSUPPORTED: (86_400.0, 86_400.0),
    Cause.LIMIT: (60.0, 900.0),
    Cause.FAILURE: (600.0, 7200.0),
}
"""How long what is taught cools at first, and at most."""


def returning(replicas: int) -> int:
    """How many return to Spot at a time: a quarter, or two."""
    return max(2, -(-replicas // 4))


def cooldown_s(cause: Cause, strikes: int) -> float:
    """How long what is taught so often in a row cools."""
    return doubled_s(strikes, *COOLDOWNS_S[cause])


def doubled_s(times: int, first_s: float, longest_s: float) -> float:
    """How long it lasts for the given time (≥ 1) in a row: doubled each time, up to a ceiling."""
    return min(first_s * 2.0 ** (times - 1), longest_s)
