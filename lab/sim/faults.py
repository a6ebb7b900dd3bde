"""What can go wrong, where, and when: drawn from the seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from random import Random


class Call(StrEnum):
    """Every call of a remote port."""

    SERVICES = "store.services"
    FORGET = "store.forget"
    LOCATE = "store.locate"
    READ = "store.read"
    LOAD = "store.load"
    COMMIT = "store.commit"
    DOCUMENT = "store.document"
    KEEP_DOCUMENT = "store.keep_document"
    NOTE_CLAIM = "store.note_claim"
    NOTE_HELD = "store.note_held"
    NOTE_STARTS = "store.note_starts"
    NOTE_ONGOING = "store.note_ongoing"
    NOTE_REMOVAL = "store.note_removal"
    NOTE_REQUEST = "store.note_request"
    HISTORY = "store.history"
    ENDED = "store.ended"
    NOTE_TOLD = "store.note_told"
    COOL = "store.cool"
    FORGIVE = "store.forgive"
    RECALL = "store.recall"
    ACQUIRE = "store.acquire"
    RELEASE = "store.release"
    CLAIM_TICK = "store.claim_tick"
    LAUNCH = "fleet.launch"
    OBSERVE = "fleet.observe"
    LOOK_UP = "fleet.look_up"
    WARNED = "fleet.warned"
    CONSOLE = "fleet.console"
    TERMINATE = "fleet.terminate"
    START = "fleet.start"
    STOP = "fleet.stop"
    REGISTER = "router.register"
    DEREGISTER = "router.deregister"
    HEALTH = "router.health"
    PROBE = "prober.ask"
    ONGOING = "prober.ongoing"
    OBSERVE_LOAD = "loads.observe"
    SCHEDULE = "ticker.schedule"
    SCHEDULE_LEAVE = "ticker.schedule_leave"
    PUBLISH = "notices.publish"
    NAMES = "services.names"
    GET = "services.get"
    SET_ASIDE = "dead_letters.set_aside"

    @property
    def port(self) -> str:
        """Its port. The calls of one port fail together in an outage."""
        return self.value.partition(".")[0]


class Fault(StrEnum):
    """How a call can go wrong."""

    THROTTLED = "throttled"
    """Refused before it did anything."""
    DENIED = "denied"
    """Refused before it did anything, and again if repeated: a permission, a policy, a bad request."""
    FAILED = "failed"
    """A server error, and nothing was done."""
    LOST = "answer lost"
    """Done, and then a server error."""
    TIMED_OUT = "timed out"
    """No answer for a long time, and nothing was done."""
    TIMED_OUT_DONE = "timed out, done"
    """No answer for a long time, though it was done."""
    LATE = "done late"
    """No answer for a long time, and done only after the caller gave up."""
    SLOW = "slow"
    """Done as it should be, after a long time."""
    KILLED = "killed before"
    """The invocation dies before the call is made."""
    KILLED_AFTER = "killed after"
    """The invocation dies when the call is done."""
    STALE = "stale"
    """An answer of some time ago."""
    PARTIAL = "partial"
    """An answer about a part, or done for a part and then failed."""
    CONFLICT = "conflict"
    """Cancelled because another write of an item was in progress, as DynamoDB does."""


_READ = (Fault.THROTTLED, Fault.DENIED, Fault.FAILED, Fault.TIMED_OUT, Fault.SLOW, Fault.KILLED)
_WRITE = (*_READ, Fault.LOST, Fault.TIMED_OUT_DONE, Fault.LATE, Fault.KILLED_AFTER)

POSSIBLE: dict[Call, tuple[Fault, ...]] = {
    Call.SERVICES: _READ,
    Call.FORGET: _WRITE,
    Call.LOCATE: _READ,
    # Items are read one after the other, and others may write meanwhile.
    Call.READ: (*_READ, Fault.PARTIAL),
    Call.LOAD: (*_READ, Fault.PARTIAL),
    Call.COMMIT: (*_WRITE, Fault.CONFLICT),
    Call.DOCUMENT: _READ,
    Call.KEEP_DOCUMENT: _WRITE,
    Call.NOTE_HELD: _WRITE,
    Call.NOTE_REMOVAL: _WRITE,
    Call.NOTE_REQUEST: _WRITE,
    Call.HISTORY: _READ,
    Call.ENDED: _READ,
    Call.NOTE_TOLD: (*_WRITE, Fault.CONFLICT),
    Call.COOL: (*_WRITE, Fault.PARTIAL),
    Call.FORGIVE: _WRITE,
    Call.RECALL: _READ,
    Call.ACQUIRE: _WRITE,
    Call.RELEASE: _WRITE,
    Call.CLAIM_TICK: _WRITE,
    Call.LAUNCH: _WRITE,
    # EC2 describes its instances with a delay, and new ones are missing at first.
    Call.OBSERVE: (*_READ, Fault.STALE, Fault.PARTIAL),
    Call.WARNED: (*_READ, Fault.STALE),
    Call.TERMINATE: (*_WRITE, Fault.PARTIAL),
    Call.START: (*_WRITE, Fault.PARTIAL),
    Call.STOP: (*_WRITE, Fault.PARTIAL),
    Call.REGISTER: (*_WRITE, Fault.PARTIAL),
    Call.DEREGISTER: (*_WRITE, Fault.PARTIAL),
    Call.HEALTH: (*_READ, Fault.STALE),
    Call.PROBE: (*_READ, Fault.PARTIAL),
    Call.OBSERVE_LOAD: _READ,
    Call.SCHEDULE: _WRITE,
    Call.SCHEDULE_LEAVE: _WRITE,
    Call.PUBLISH: (*_WRITE, Fault.PARTIAL),
    Call.NAMES: _READ,
    # A document may be a minute old, unless the caller wants a fresh one.
    Call.GET: (*_READ, Fault.STALE),
    Call.SET_ASIDE: _WRITE,
}
"""By call: its possible faults. The table's reads, for example, are strongly consistent, so never stale."""

Pair = tuple[Call, Fault]

SELDOM: dict[Call, tuple[Fault, ...]] = {
    Call.LOOK_UP: _READ,
    Call.NOTE_CLAIM: _WRITE,
    Call.CONSOLE: _READ,
    Call.NOTE_STARTS: _WRITE,
    Call.NOTE_ONGOING: _WRITE,
    Call.ONGOING: (*_READ, Fault.PARTIAL),
}
"""The same of calls that follow from a failure or from a second control plane, or that nothing depends on: no
run is about one."""

PAIRS: tuple[Pair, ...] = tuple((call, fault) for call, faults in POSSIBLE.items() for fault in faults)
"""All pairs that a campaign must try."""

OF_STANDBYS = (Call.START, Call.STOP)
"""Calls that only services with standbys make."""

OF_LOAD = (Call.NOTE_REQUEST, Call.OBSERVE_LOAD)
"""Calls that only services make whose number of replicas follows the load."""

OF_HELD = (Call.NOTE_HELD,)
"""Calls that are made only where something is held back, or was."""

USUAL_PAIRS = tuple(pair for pair in PAIRS if pair[0] not in (*OF_STANDBYS, *OF_LOAD, *OF_HELD))
"""Those that seeds take turns over; `standbys`, `load` and `operators` draw the others."""

TARGET_SHARE = 0.35
"""How often a run's target call meets the target fault: sometimes twice in a row."""

RARE = (
    Call.ENDED,
    Call.FORGET,
    Call.TERMINATE,
    Call.FORGIVE,
    Call.SET_ASIDE,
    Call.START,
    Call.STOP,
    Call.NOTE_HELD,
)
RARE_SHARE = 0.8
"""Calls that a run makes once or twice, if at all: they must fail more often."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A port whose calls all fail for a while."""

    port: str
    start: float
    end: float
    fault: Fault


class FaultPlan:
    """Decides which calls fail; none does after `until`."""

    def __init__(self, random: Random, target: Pair, until: float) -> None:
        self._random = random
        self._target_call, self._target_fault = target
        self._target_share = RARE_SHARE if self._target_call in RARE else TARGET_SHARE
        self.until = until
        self.rate = random.choice((0.0, 0.01, 0.03, 0.08))
        self.outage: Outage | None = None
        if random.random() < 0.12:
            start = random.uniform(0, until)
            port = random.choice(("store", "store", "fleet", "router", "services", "ticker"))
            fault = random.choice((Fault.FAILED, Fault.THROTTLED, Fault.TIMED_OUT))
            self.outage = Outage(port, start, min(start + random.uniform(5, 60), until), fault)
        self.hits: Counter[Pair] = Counter()

    def draw(self, call: Call, now: float) -> Fault | None:
        """The fault of a call that is made now, if any."""
        if now >= self.until:
            return None
        random = self._random.random
        if call is self._target_call and random() < self._target_share:
            return self._target_fault
        if self.rate and random() < self.rate:
            return self._random.choice(POSSIBLE.get(call) or SELDOM[call])
        outage = self.outage
        if outage and outage.start <= now < outage.end and call.port == outage.port:
            return outage.fault
        return None
