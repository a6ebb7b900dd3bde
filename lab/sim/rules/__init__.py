"""The rules that must hold. Each module checks those of one subject; docs/rules.md explains them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """Everything that must hold: what a sentence of docs/rules.md begins with, or has at its core."""

    # What serves, at every step: `checker`.
    NEVER_BELOW_DESIRED = "No serving replica is taken out if fewer than desired would be left"
    WARNED_SERVES_WHILE_NEEDED = "A warned replica that is needed serves until its drain deadline"
    WARNED_OUT_BEFORE_END = "A warned replica is out of rotation before its instance ends"
    SERVING_COUNT_EXACT = "The table's count of serving replicas is exact"
    ROW_BEFORE_EFFECT = "A row is written before its target is deregistered or its instance is terminated"
    DEREGISTERED_BEFORE_TERMINATED = "Nothing is terminated while it is in rotation"

    # Rows, launches and calls, at every step: `checker`.
    IDS_IN_ORDER = "Replica IDs are unique, rise without gaps and with time, and are never reused"
    NEVER_ABOVE_SURGE = "There are never more regular replicas than desired + surge"
    LEGAL_TRANSITIONS = "A row changes state only as its state machine allows, and never leaves a final state"
    ONE_REPLACEMENT_PER_REPLICA = "No replica is replaced twice"
    ONE_FALLBACK_PER_REPLICA = "a service that wants fallbacks has at most one for each Spot replica"
    FOREIGN_UNTOUCHED = "Foreign instances are never touched"
    INSTANCE_MATCHES_LAUNCH = "A replica gets an instance only from a launch that was for it, or with its row"
    WARNED_NOT_TERMINATED = "SpotRelay never terminates an instance that EC2 is taking back"
    INTENT_BEFORE_LAUNCH = "No launch is made without a recorded intent"
    INTENT_OPEN_WHILE_PENDING = "A launch intent stays open while its launch may still be recorded"
    ADOPTED_BEFORE_INTENT_CLOSES = "No launch intent is closed while an instance that it brought has no row"
    LAUNCH_RATE_LIMITED = "A service never launches more instances per minute than its limit"
    PROGRESS_IN_MINUTES = "While no call fails, everything is done within three minutes"
    SOMEBODY_ANSWERS = "What answers leaves the rotation only while another one does so"
    TICK_CLEANS_ROTATION = "nothing dead, draining or past its last moment is in rotation"
    WARNING_HANDLED = "A warning's message is deleted only when its replica drains"
    ONLY_PORT_ERRORS = "No exception but a port's leaves a function"

    # Messages, and what happens when a call fails: `messages`, `metrics`.
    REDELIVERED_ON_FAILURE = "A message is redelivered if a call that it needed failed, and only then"
    MALFORMED_SET_ASIDE = "A malformed message goes to the dead letters with the reason"
    TICK_MESSAGE_OBEYED = "A message of the tick queue leads to what it asks for, and to nothing else"
    STEPS_INDEPENDENT = "A failed step doesn't prevent any other step"
    NO_WRITE_AFTER_CONFLICT = "After a lost commit, nothing else of the same decision is written"
    DEREGISTERED_BEFORE_LAUNCH = "Targets are deregistered before their replacements are launched"
    REMOVAL_NEEDS_TWO_SIGNS = "A service is removed only after its parameter's deletion event"
    HELD_ON_RECORD = "What a tick holds back is on record with the reason, and written only when that changes"
    OVERRIDE_BOUND = "An override carries out what it was given for and nothing else"
    TICK_AFTER_CHANGE = "After every change, a tick follows within seconds"
    OTHER_CONTROL_PLANE_RESPECTED = "Nothing is changed where another control plane manages the services"
    METRICS_EXACT = "Every metric counts exactly what happened"

    # Launches: `launches`.
    POOL_ORDER = "A launch asks all good pools at once, and before those in zones with a low score"
    PRICE_CAP_SENT = "A launch request carries the price cap"
    LAUNCH_MATCHES_ROWS = "A launch is for all waiting replicas"
    LAUNCH_RESULT_RECORDED = "The instances of a launch, and EC2's refusals, are in its replicas' rows"
    RETRIED_AFTER_BACKOFF = "A refused launch is retried after its back-off, not before, and within minutes"
    FALLBACKS_IN_SECONDS = "After Spot refuses, fallbacks are requested within seconds"

    # Pools: `cooldowns`.
    COOLDOWN_RECORDED = "Every loss, failure, recommendation and refusal starts its documented cooldown"
    COOLDOWN_HAS_CAUSE = "Nothing cools without a cause"
    LAUNCH_ENDS_REFUSALS = "A launched instance ends the cooldowns that refusals gave its pool"

    # Invocations, held to what they were shown: `rows`, `completeness`.
    ROWS_MATCH_OBSERVATION = "A row's times, warning, recommendation, health and reason are what was observed"
    NOT_BEFORE_TIMEOUT = "Nothing is given up, terminated, adopted or given a row before its time"
    TICK_COMPLETE = "An undisturbed tick leaves on record what it was shown"
    EVENTS_RECORDED = "An undisturbed batch of events is on record when its messages are deleted"
    LAST_ONE_KEPT = "The last replica that serves never counts as gone"
    COMES_BACK = "While nobody serves, and only then, what has left and still runs comes back"
    LAST_MOMENT_CHECKED = "Each warned replica that serves on is checked when it must leave, and no sooner"
    NEXT_TICK_IN_TIME = "While anything changes, the next tick comes within seconds"

    # Which replicas there are, by what a tick was shown: `replicas`, `backoff`.
    SCALE_IN_ORDER = "Scaling in takes nothing that serves while something that doesn't serve stays"
    WEAKEST_GOES = "Where replicas differ in strength, scaling in takes the weakest"
    FALLBACK_STAYS_FOR_SPOT = "A serving fallback stays until Spot has been ready"
    LONE_FALLBACK_STAYS = "A fallback that answers no check goes only while another replica answers"
    FALLBACKS_MATCH_NEED = "The next tick requests a fallback for each Spot replica that was refused"
    LOSS_REPLACED_IF_NEEDED = "A loss is replaced at once if fewer than desired are left"
    PURCHASE_OPTION_CORRECT = "Each requested replica has the right purchase option"
    VERSION_CORRECT = "Each requested replica has the deployed version"
    LAUNCHED_AS_DEPLOYED = "What never got an instance is launched as the deployed version"
    ROLLED_BACK = "After a rollback nothing is launched with the version that was given up"
    GRADUAL_RETURN_TO_SPOT = "a quarter of the replicas, or two, return to Spot at a time"
    REPLACED_BEFORE_DRAINED = "or of an old version is replaced before it goes"
    REFUSING_LEAVES = "A replica that refuses its probe at two looks in a row leaves"
    BUSY_STAYS = "A silent replica isn't replaced while its own count of finished requests rises"
    PROBED_BEFORE_ENTRY = "What starts enters the rotation only when it has just answered its probe"
    NEW_VERSION_STAYS = "What has an old version goes only once its replacement has stayed for `bake_seconds`"
    ILL_VERSION_GIVEN_UP = "A version of which a replica turns ill while it rolls out is given up"
    CHANGED_AT_ONCE = "Where all replicas change at once, the new ones enter the rotation together"
    FAILURE_BACKOFF = "After replicas that never became ready, launches wait, twice as long each time"

    # Standbys, at every step and after settling: `standbys`.
    STANDBY_OUT_OF_ROTATION = "A standby is never in rotation while it stands by"
    ONE_ROW_PER_INSTANCE = "No instance has two rows, and no standby is resumed twice at once"
    NOTHING_SERVING_STOPPED = "No instance that serves is stopped unless as many as desired serve without it"
    STANDBY_KEPT = "A standby's instance is terminated only if the standby was given up"
    STANDBYS_PREPARED_SINGLY = "One standby is prepared, or tried out, at a time"
    STANDBY_TRIED = "A new standby is started once more before it is relied on, and once only"
    STANDBY_BACKOFF = "After a standby that couldn't be prepared the next one waits"
    STANDBY_RESUMED = "While a replica is missing and a standby can be had"
    RESUMED_KEPT = "A standby that was resumed isn't sent back"
    STANDBYS_AT_REST = "There are as many standbys as wanted, all of them stopped"
    STANDBYS_COUNTED = "The number of standbys that is kept on record is the one that pays"

    # The number of replicas that follows the load: `load`; what is beyond it: `checker`.
    NOTHING_BOUGHT_BEYOND = "There are never more fallbacks than replicas are needed"
    SCALED_WITHIN_BOUNDS = "The number that follows the load is never below its minimum or above its maximum"
    UNKNOWN_LOAD_HOLDS = "While nobody knows the load, the number of replicas stays"
    SCALED_AFTER_DELAY = "The number follows the load only once it has asked for another for the delay"

    REQUESTS_COUNTED = "What the replicas tell of their requests in progress is on record"
    LOAD_AT_REST = "At rest the number is the one that the load asks for"

    # Moves by price and by score, at every step: `moves`.
    MOVES_SINGLY = "One replica moves at a time, and none within an hour of the last try"
    MOVES_ONLY_SPOT = "Only what has been ready on Spot for an hour moves"
    MOVES_PAY = "A replica moves only where Spot costs less by the share"
    MOVES_BY_LASTING_SCORES = "A replica moves by score only out of a zone that scored 1 or 2"
    MOVES_WHEN_CALM = "A move is requested only while exactly as many as desired serve"
    MOVES_DUE = "While all is well, nothing cools and a move clearly pays"
    MOVED_SERVES_FIRST = "What moves drains only once its replacement serves"
    MOVES_END = "A move that isn't launched at once ends, and counts as no failure"

    # What alarms hear, at the end of each tick: `incidents`.
    INCIDENT_TOLD = "What an alarm is for makes it ring within three ticks, once it has lasted for its time"
    INCIDENT_WAITS = "No alarm rings before its reason has lasted for its time, by what is on record"
    INCIDENT_ONCE = "No alarm begins to ring for what another one rings for, or did until a start ago"
    INCIDENT_LASTS = "No alarm clears while its reason lasts"
    INCIDENT_OVER = "An alarm clears within minutes with ticks once its reason is gone"

    # After settling: `final_state`.
    SETTLES = "Everything comes to rest"
    DESIRED_AT_REST = "As many replicas are ready as desired"
    ROLLED_OUT = "Where versions roll out, every replica has the deployed version, unless that one failed"
    NO_INSTANCE_WITHOUT_ROW = "No instance of ours is without a row"
    NO_ROW_WITHOUT_INSTANCE = "No row is without a living instance"
    ONLY_READY_IN_ROTATION = "The targets in rotation are exactly the ready replicas"
    ONE_REPLACEMENT_PER_LOSS = "Every loss has exactly one replacement"
    NEWS_TOLD = "It is told at least once that a replica became ready or was lost"
    NEWS_TRUE = "What is told of a replica or a gap is what the rows say, to the second"
    NO_OPEN_INTENT = "No launch intent is open"
    NO_LEASE_HELD = "No lease is held"
    DEAD_LETTERS_EXACT = "The dead letters are all malformed messages"


Findings = Iterator[tuple[Rule, str]]
"""What breaks which rule: a rule looks and tells, and changes nothing."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken."""

    rule: Rule
    at: float
    what: str

    def __str__(self) -> str:
        return f"{self.at:.3f} s: {self.rule}: {self.what}"
