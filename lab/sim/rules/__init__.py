"""The rules that must hold. Each module checks those of one subject; `docs/reliability.md` explains them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Rule(StrEnum):
    """Everything that must hold."""

    IDS = "IDs are unique, rise without gaps and with time, and are never given twice"
    STRENGTH = "never more regular replicas than desired + surge, nor more fallbacks"
    LEGAL = "a row goes only where its state leads, and never comes back from its end"
    ONE_REPLACEMENT = "no replica is replaced twice"
    FALLBACKS = (
        "a fallback is never replaced, and there is one at most for each Spot replica that isn't ready, "
        "if the service wants any"
    )
    FOREIGN = "foreign instances are never touched"
    GIVEN = "an instance is given only to a replica that its launch was for, or to a new one"
    WARNED_SPARED = "an instance that EC2 takes back is never terminated by us"
    INTENT_FIRST = "no launch without its intent on record, and none for more than its replicas"
    PATIENCE = "a launch is not given up while it may still be recorded"
    ADOPTION = "an instance that a launch intent brought is not given up while its replica waits"
    AVAILABLE = "nothing that serves is taken out while the rest that serve are fewer than wanted"
    LAST_ONES = (
        "a warned replica serves on while the others aren't enough, until its last safe moment, and the very "
        "last one until ten seconds before its end"
    )
    WARNED_OUT = "a warned replica is out of rotation before its end"
    COUNTED = "the table counts the replicas that serve as they are"
    ROW_FIRST = "what is taken out or terminated has its row written first"
    OUT_FIRST = "what is terminated was out of rotation first"
    PROMPT = (
        "what runs is recorded, what is healthy becomes ready and what drains is out within three minutes"
    )
    TICK_TAKES_OUT = "after an undisturbed tick nothing dead, drained or past its last moment is in rotation"
    SIGNAL_HANDLED = (
        "a warning is done with only when its replica is out of rotation and drains, or is known to serve on"
    )
    LAUNCH_RATE = "launches per minute have a ceiling"
    METRICS = "every metric counts what happened, no more and no less"
    AGAIN = "a message comes again if a call that it needed failed, and only then"
    SET_ASIDE = "a message that nobody can read is set aside with the reason, and costs no other anything"
    ASKED = "what a message of the tick queue asks for is done, and nothing else"
    STEPS = "a step that fails keeps no other step from being taken"
    TOGETHER = "of what was decided together nothing is written after a part that was lost"
    OUT_AT_ONCE = "what leaves the rotation leaves it before anything is launched"
    REMOVAL = (
        "a service ends only on the deletion event of its parameter (or a person's word) and its absence "
        "over more than three ticks and twenty seconds"
    )
    ANNOUNCED = "whatever is changed, a tick follows within seconds"
    OTHERS = "where another control plane looks after the services, nothing is touched"
    PLACES = (
        "a launch asks all pools at once that rest, then those in zones that score low, and those that cool "
        "only as a last resort; none without a subnet, and none dearer than the cap"
    )
    CAPPED = "a price cap goes with the request, and is never more than the share of the on-demand price"
    AS_ORDERED = "a launch is for all that wait, bought as their rows say, in the preferred order"
    ANSWERED = "what a launch brought, and EC2's words where it refused, are in its replicas' rows"
    RETRIED = "what was refused is tried again after its back-off, and a request that was never made is none"
    FALLBACKS_SOON = "what Spot has just refused has fallbacks asked for within seconds"
    LEARNED = "what a loss, a failure, a recommendation or a refusal teaches is kept, for the time documented"
    CAUSED = "nothing cools without a cause"
    FORGIVEN = "an instance forgives the refusals of where it came from, and nothing else"
    NO_SURPRISE = "no exception but a port's leaves a function"
    TRUE_ROWS = (
        "a row's times, warning, recommendation and health are what was seen, "
        "and it says truly why its replica went"
    )
    NOT_BEFORE = "nothing is given up, ended, adopted or taken in before its time"
    IN_TIME = "a tick that nothing disturbs leaves nothing undone that it was shown"
    SIGNALS_NOTED = "events that nothing disturbs are on record when they are done with"
    CALLED_BACK = "somebody looks at each replica that serves on when it must leave, and no sooner"
    NEXT_TICK = "while anything moves the next tick comes in seconds, and at rest none but the schedule's"
    ORDER = (
        "of too many the farthest from serving goes first, then the newest, "
        "and Spot before the on-demand base"
    )
    HYSTERESIS = "a fallback that serves stays until Spot has been ready for as long as it took to start"
    STOOD_IN = (
        "a fallback is requested by the next tick for what was refused or starts alone, and for nobody else, "
        "and goes when nobody needs it"
    )
    MISSED = "a loss is replaced at once if fewer than wanted are left, and not if as many are"
    BOUGHT = "each request says how to buy: so many of the regular ones on-demand, the rest on Spot"
    RETURN = "while as many as wanted serve, a quarter returns to Spot at a time, or two"
    MOVED = (
        "what answers no check for a minute, or is recommended to leave, is replaced first: "
        "the former before the latter, `surge` at a time"
    )
    LAUNCHED = "what waits is launched when its turn has come, and not before"
    HELD = "after replicas that never became ready launches wait, for twice as long each time"
    # After settling:
    SETTLES = "everything comes to rest"
    WHOLE = (
        "as many replicas ready as desired, each bought as it was wanted, and nobody stands in for another"
    )
    NO_ORPHAN = "no instance of ours without a row"
    NO_GHOST = "no row without a living instance"
    IN_ROTATION = "what is ready is in rotation, and nothing else"
    REPLACED_ONCE = "every loss has exactly one replacement"
    NO_OPEN_INTENT = "no launch intent is open"
    DEAD_LETTERS = "dead letters are the malformed messages, all of them, and what met a fault each time"
    LEASES = "no lease is held"


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that was broken."""

    rule: Rule
    at: float
    what: str

    def __str__(self) -> str:
        return f"{self.at:.3f} s: {self.rule}: {self.what}"
