"""Every duration that the policy goes by, with its reason; and a month, as it is priced."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

HOURS_OF_MONTH = 730
"""365 days divided by twelve: AWS's own pages count so."""

TICK_IN_TRANSITION_S = 3.0
"""Between ticks while anything moves: short against a model load, long against the calls of a tick."""

PROBE_AGAIN_S = 2.0
"""The same while one is asked for its first answer. From that to the registration it takes so long, the calls
of a tick and SQS's delivery at most, which is to be three seconds. It costs a tick more for each six
seconds."""

CONSOLES_S = 5.0
"""For reading the consoles of those that have answered, when a tick is over. How long EC2 takes for one isn't
documented; where that isn't enough for all that start at once, the others' phases stay unknown."""

LEASE_S = 60.0
"""The reconcile function's time-out: a lease outlives its holder by nothing."""

OVERRIDE_AGAIN_S = (5.0, 5.0, 5.0, 10.0, 20.0, 40.0)
"""A person's word waits so long, each time that another tick is at work or changed a row first. A tick takes
a second or two, and one that died holds its lease for a minute. Not for ever: SQS may deliver each of these
messages twice, and they would become more and more."""

ADOPT_AFTER_S = 10.0
"""A launch normally records its instances within a second or two; before that, adopting would race it."""

INTENT_EXPIRES_S = 60.0
"""No invocation lives longer (the functions' time-out), so what isn't recorded by then never will be."""

ORPHAN_GRACE_S = 120.0
"""An instance of ours that no row and no intent knows is terminated at this age: twice an intent's life."""

VISIBLE_WITHIN_S = 120.0
"""DescribeInstances is eventually consistent: an instance just launched may be missing, or lack its address.
It takes a moment mostly; where many were launched, ParallelCluster ended healthy ones for it, though it had
waited for a minute or more (aws/aws-parallelcluster#7265)."""

NOTICE_S = 120.0
"""From EC2's warning to the end of the instance: its two minutes."""

ENDS_WITHIN_S = 60.0
"""An instance that hasn't ended so long after its time is looked at by the minute: it may never end."""

RECLAIM_GRACE_S = 300.0
"""A warned instance that still runs so long after its time, and isn't marked any more, was spared."""

CLOCKS_APART_S = 1.0
"""Functions' clocks are taken to agree within this: who looks a second after a time finds it past."""

LOOK_AGAIN_WITHIN_S = 5.0
"""Who looks so shortly before a warned replica must leave has somebody look once more. Ticks are as close."""

LAST_ONE_STAYS_S = 10.0
"""Before its instance ends the very last one in rotation leaves: a deregistration and the balancer's lag."""

REFUSALS = 2
"""Looks in a row, a minute apart, at which a replica refused its readiness probe: one error may be chance."""

MISSING_S = 30.0
"""A replica that EC2 doesn't show, and the load balancer doesn't call healthy, for so long is gone. EC2 shows
what it terminated for about an hour: that something is missing is strange, and not to be believed at once."""

CREDIBLE_SHARE = 0.5
"""If more of the ready replicas than this are missing at the same time, it is not believed. Nor is it that
some refuse their probe, if fewer than this share of those wanted answer theirs."""

BOOT_S = 120.0
"""What an instance with a large image and a GPU takes at most, about, until its first script runs. SkyServe's
initial_delay_seconds begin after that, and many files give only a few seconds."""

REMOVED_TICKS, REMOVED_AFTER_S = 3, 20.0
"""So many ticks in a row, and for so long, must find no document before a removed service's replicas end: a
parameter that is deleted and made again at once was a deployment."""

DRAIN_SETTLE_S = 20.0
"""Load balancers were seen sending requests for 17 s after a target began to drain
(kubernetes-sigs/aws-load-balancer-controller #2366)."""

UNASKED_S = 120.0
"""A replica that starts and that nobody could ask for so long is registered all the same, if none is healthy
and its probe is the load balancer's check: a prober that fails must not keep a service down. Lambda takes
less to wake a function that it had put to sleep."""

UNHEALTHY_REPLACED_S = 60.0
"""A replica that was ready and answers no health check for this long gets a replacement. It stays where it is
until that serves, and may recover: so sooner than SkyServe's three minutes, and later than a busy moment."""

LOSS_COOLDOWN_S, LOSS_COOLDOWN_MAX_S = 900.0, 7200.0
"""A pool that loses an instance: a quarter of an hour, doubled each time it does so again, up to two hours.
On recorded traces that lost hardly more instances than half an hour each time, and bought less on-demand:
docs/placement.md has the figures."""

REBALANCE_COOLDOWN_S = 600.0
"""A pool that EC2 advises to leave: most recommendations are not followed by an interruption."""

REFUSAL_COOLDOWN_S, REFUSAL_COOLDOWN_MAX_S = 30.0, 600.0
"""A pool that refuses a launch. Asking again costs nothing, not asking costs the on-demand price: sooner than
Karpenter's three minutes at first, and later if it goes on refusing."""

LIMIT_COOLDOWN_S, LIMIT_COOLDOWN_MAX_S = 60.0, 900.0
"""A quota or a subnet that is used up: it has room again once an instance has ended, or a request to AWS is
granted."""

UNHEALTHY_GIVEN_UP_S = 180.0
"""A fallback that answers no health check for this long goes, if another replica serves: it gets no
replacement of its own to wait for. Where none serves, another one is requested beside it. For this long, too,
one has time that nobody serves beside and whose replacement doesn't answer either. SkyServe's threshold."""

FAILURE_COOLDOWN_S, FAILURE_COOLDOWN_MAX_S = 600.0, 7200.0
"""A pool whose instance never became ready: perhaps its hardware, its zone's network, or the type's drivers.
About as long as such a start is given, so that the next one is tried elsewhere."""

UNSUPPORTED_COOLDOWN_S = 86_400.0
"""A pool that doesn't exist: AWS adds types to zones, but not by the hour."""

REBALANCE_MIN_AGE_S = 600.0
"""A recommendation doesn't replace a replica that has been ready for less: in a bad hour every new instance
gets one at once, and following each of them churned fleets (NTH #141, #786; karpenter #2853)."""

LESSON_WORTH = 0.05
"""Share of a cooldown by which it must end later to be worth writing anew. A pool loses its instances within
moments, in one batch of warnings after the other, and all but the first have nothing to add."""

MOVE_AFTER_S = 3600.0
"""A replica moves once it has been ready for an hour, and an hour after the last move of any was tried, by
price or by score. Both are surveyed hourly, so by then they are others than those that it was launched or
refused by; and a pool has shown whether it keeps what has moved there, before all others follow."""

MOVE_PAYS_WITHIN_S = 3600.0
"""What a move saves in an hour must be worth running double for a start and a drain. How long it goes on to
save, nobody knows: the next survey comes in an hour, and where Spot is scarce EC2 takes instances back within
hours."""

SURVEY_OLD_S = 7200.0
"""A survey that is older says nothing of what Spot costs: two in a row have failed."""

SURVEY_SILENT_S = 10_800.0
"""So long after a service's last survey a person is to hear of it: three in a row have failed or didn't come.
What one misses the next one makes up for, and launches go on with the last one's."""

LATE_LEAVE_S = 5.0
"""A warned replica that left so long after somebody had to look was left to a tick. A look is announced to
the whole second, comes within another and may begin cold: a tick may be two or three seconds faster."""

MOVE_SCORE = 2
"""Replicas may move out of zones that score this or less: AWS's own guidance is to leave pools that score 1
or 2. A zone that scores 3 gets no new ones, which is enough."""

MOVE_SCORE_GAIN = 3
"""By so much must another zone score better for a replica to move there by its score: that is 4 at least,
above `LOW_SCORE`, where a launch goes first. So what has moved must fall by two points or more to move again,
and a score that wavers by one moves nothing."""

SCORES_LAST_S = 1800.0
"""A replica moves by scores that every survey of so long a time has found, two at least. Surveys come by the
hour, and at once after a deployment: one that comes a minute after another tells nothing new."""

STAY_MAX_S = 600.0
"""A Spot replica has stayed when it has been ready for as long as it took to start, which is what giving up
its fallback too early would cost; ten minutes at most, since on-demand is paid for meanwhile."""

LOW_SCORE = 3
"""Zones with this placement score or less come last, and nothing returns to Spot there. AWS's own guidance
moves away from pools that score 1 or 2; with fewer than three types no score is above 3."""

LOW_SCORE_EVERY = 5
"""Of the tries to return to Spot each fifth asks low zones, too: a score is advice, a request costs nothing,
and GPU zones may score low for days. Tries are a minute apart by then: EC2 is asked every five minutes."""

RETRY_FIRST_S, RETRY_MAX_S = 5.0, 60.0
"""After a launch that every pool refused: doubled each time, a minute at most (capacity returns in gusts)."""

RETRY_RESTING_S = 300.0
"""While every pool is cooling there is nobody to ask before the first has rested; but after five minutes
there may be a new survey, or a new version with other pools."""

STANDBY_RESUME_S = 60.0
"""What a standby takes from its start to its first answer, about, until its service's own resumes tell."""

STANDBY_GAIN_S = 30.0
"""By so much must a standby come sooner than what starts cold to be worth its disk. Its own time varies by as
much: see `STANDBY_SLOW`."""

STANDBY_SLOW = 1.5
"""A standby that takes so many times as long as resumes take doesn't count as coming: the next one is
resumed, or a fallback launched. That is a minute and a half where they take a minute. An engine that loads
for four minutes each time is no reason for a second start each time."""

STANDBY_RETRY_S = 30.0
"""After EC2 refused to start a standby: asking again costs nothing, and others are asked meanwhile."""

STANDBY_STAYS_S = 30.0
"""A Spot replica that has been ready for so long lets a resumed standby go: some health checks, and the first
requests. To give that up too early costs another resume, not another start, and on-demand is paid for
meanwhile: 90 s cost one per cent more in replays, and served no better."""

STANDBY_TRIES = 2
"""Resumes in a row that didn't come up: once the service is whole again, another standby is prepared in its
place, perhaps elsewhere."""

STANDBY_FAILURE_FIRST_S, STANDBY_FAILURE_MAX_S = 600.0, 86_400.0
"""After a standby that couldn't be prepared, until the next is tried: each costs a whole start on-demand, and
nothing that serves waits for it. Doubled each time; a new version is tried at once."""

STANDBY_MAX_AGE_S = 14 * 86_400.0
"""A standby is prepared anew after two weeks: hosts are retired, certificates and model files expire."""

AGAIN_S = 10.0
"""An instance that should have been started or stopped by then: EC2 shows that at once, but not always."""

FAILURE_FIRST_S, FAILURE_MAX_S = 30.0, 1800.0
"""After replicas that never became ready: doubled each time; each try costs minutes of a GPU."""

ROLLOUT_FAILURES = 2
"""Replicas of a new version in a row that never became ready: one may have met a bad host, two say that the
version doesn't start. What runs meanwhile serves, so there is no hurry to try once more."""

ROLLOUT_REFUSED_S = 1800.0
"""Where all replicas change at once, those that are up wait outside the rotation, and cost, while EC2 refuses
the rest. So long that a gust of scarcity passes; a quota that can't hold both versions doesn't."""

LONG_FALLBACK_S = 7200.0
"""An hour or two is what a fallback is for. Beyond, somebody should know that it costs more."""

FALLBACK_HELD_MAX_S = 300.0
"""After a fallback that never became ready, until the next, at most: each has had its whole start, which is
minutes, and without fallbacks nothing may serve at all."""

CRASH_LOOP_FAILURES = 5
"""Replicas in a row that never became ready: the fifth says nothing that the fourth didn't. Launches stop
until a new version of the service is deployed."""

LAUNCH_WINDOW_S = 60.0
"""What `max_launches_per_minute` counts in."""


def serves_on_s(drain_s: float) -> float:
    """How long after its warning a replica can leave the rotation and still finish its requests.

    Negative where a drain takes longer than EC2 leaves.
    """
    return NOTICE_S - drain_s - DRAIN_SETTLE_S


def backoff_s(attempts: int, first_s: float, max_s: float) -> float:
    """How long to wait after the given number of failed attempts (≥ 1): doubled each time up to a ceiling."""
    # The exponent is bounded so that a service that has failed for weeks doesn't overflow a float.
    return float(min(first_s * 2 ** min(attempts - 1, 30), max_s))


def middle_s(durations_s: Iterable[float]) -> float:
    """The median; of two in the middle the longer one. `statistics` would bring decimals and fractions with
    it, for which a warning would wait."""
    ordered = sorted(durations_s)
    return ordered[len(ordered) // 2]


def seconds(value: float) -> timedelta:
    """A duration; the one place where `_s` numbers become timedeltas."""
    return timedelta(seconds=value)
