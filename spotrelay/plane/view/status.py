"""Whether a service is whole, and what there is of it: a judgement, a row for each replica, what was lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import Image, PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Source
from spotrelay.plane.serving.standby_count import start_times
from spotrelay.plane.view.losses import Loss, losses
from spotrelay.plane.view.snapshot import AlarmState, Part, ServiceSnapshot
from spotrelay.plane.view.start_failures import in_short, in_words
from spotrelay.plane.view.starts import start_of
from spotrelay.plane.view.words import UNKNOWN, asked_in_words, console, duration

RECENT = timedelta(hours=24)
"""Of the losses that a status counts."""

FAILURES_SHOWN = timedelta(hours=1)
"""A replica that failed longer ago isn't shown any more, only counted: what runs is what matters."""

LOAD_UNKNOWN = timedelta(minutes=10)
"""A first datum, and the minute for which it isn't complete, take less."""

FAILURES_MOST = 3
"""Failures that are shown one by one, the newest. A version that doesn't start fails again and again, each
time for the same reason."""


COMING = {
    ReplicaState.STARTING: "starting",
    ReplicaState.PROVISIONING: "launched",
    ReplicaState.REQUESTED: "without an instance",
}
"""The states of what is on its way, in words."""


class Judgement(StrEnum):
    """In one word."""

    WHOLE = "WHOLE"
    """As many are in rotation as should be."""
    NOT_WHOLE = "NOT WHOLE"
    NONE = "NONE WANTED"
    """It is scaled to none, and nobody is there."""
    UNKNOWN = "UNKNOWN"
    """Its rows or its document couldn't be read."""


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One replica, as the table shows it."""

    id: int
    version: int
    state: str
    """What it does: its state, or what a standby or a warned one does in it."""
    pool: str
    purchase_option: str
    region: str
    instance_id: str | None
    port: int | None
    launched_at: datetime | None
    age_s: float
    """Since it had its instance, or was requested."""
    usd_per_hour: float | None
    """None: nobody knows."""
    replaces: int | None
    note: str
    """What else must be known of it: that EC2 takes it back, that it stands in, what EC2 refused."""


@dataclass(frozen=True, slots=True)
class Status:
    """What there is of a service."""

    service: str
    region: str
    at: datetime
    judgement: Judgement
    why: str
    """What is missing and why, or about to be; empty if nothing is."""
    ready: int
    desired: int | None
    desired_by: str
    asked: str
    """How many there should be, who says so and until when; empty where the service file does."""
    version: int | None
    """The deployed one."""
    running: tuple[int, ...]
    """The versions that are in rotation."""
    serving_since: datetime | None
    on_demand: int
    """In rotation, bought on-demand."""
    usd_per_hour: float | None
    """What all of its instances cost now; None: not all of their prices are known."""
    on_demand_usd_per_hour: float | None
    """What they would cost on-demand."""
    address: str | None
    replicas: tuple[ReplicaRow, ...]
    failed: tuple[ReplicaRow, ...]
    failed_before: int
    """Of the last day, those that aren't among `failed`."""
    lost: int
    """Within the last day."""
    lost_unwarned: int
    slowest_whole_s: float | None
    """Of these, the longest from a loss until the fleet was whole again."""
    cooling: tuple[str, ...]
    pools: int | None
    """Eligible for Spot; None: nobody has surveyed yet."""
    image: Image | None
    """What the deployed version is launched from; None: no survey has looked since it was deployed."""
    alarms: tuple[str, ...] | None
    """Those that ring; None: they couldn't be read."""
    load_unknown: str
    """That the load can't be measured by which the number of replicas goes; empty while it can."""
    not_read: tuple[str, ...]
    """What couldn't be read, and why."""

    @property
    def is_whole(self) -> bool:
        """Whether nobody has to do anything."""
        return self.judgement in (Judgement.WHOLE, Judgement.NONE)

    @property
    def is_calm(self) -> bool:
        """Whether it is whole, and stays so as far as anybody knows."""
        return self.is_whole and not self.why

    @property
    def tone(self) -> str:
        """How the judgement looks: good, leaving, bad or unknown."""
        if self.judgement is Judgement.UNKNOWN:
            return "unknown"
        return "good" if self.is_calm else "leaving" if self.is_whole else "bad"

    @property
    def versions(self) -> str:
        """What runs; and what is deployed, where that is something else."""
        deployed = UNKNOWN if self.version is None else f"v{self.version}"
        running = " and ".join(f"v{version}" for version in self.running)
        return deployed if running in ("", deployed) else f"{running} ({deployed} is deployed)"

    @property
    def ringing(self) -> str:
        """The alarms that ring, in words."""
        return "not known" if self.alarms is None else ", ".join(self.alarms) or "none"

    @property
    def share_saved(self) -> float | None:
        """Of the on-demand price; None if a price isn't known."""
        if self.usd_per_hour is None or not self.on_demand_usd_per_hour:
            return None
        return 1 - self.usd_per_hour / self.on_demand_usd_per_hour

    def to_json(self) -> dict[str, Any]:
        """It as JSON: times in ISO 8601, durations in seconds."""
        return {
            **_jsonable(asdict(self)),
            "is_whole": self.is_whole,
            "is_calm": self.is_calm,
            "missing": None if self.desired is None else max(self.desired - self.ready, 0),
            "share_saved": None if self.share_saved is None else round(self.share_saved, 4),
        }


def status(seen: ServiceSnapshot) -> Status:
    """What a snapshot amounts to."""
    judgement, why = _judged(seen)
    replicas = seen.replicas.values()
    failed = [r for r in replicas if r.state is ReplicaState.FAILED and r.since >= seen.within(RECENT)]
    shown = [r for r in failed if r.since >= seen.within(FAILURES_SHOWN)][-FAILURES_MOST:]
    lost = [loss for loss in losses(replicas) if loss.at >= seen.within(RECENT)]
    desired, survey, paid = seen.desired, seen.memory.survey, seen.paid_for
    return Status(
        service=seen.service,
        region=seen.region,
        at=seen.at,
        judgement=judgement,
        why=why,
        ready=len(seen.in_rotation),
        desired=seen.wanted,
        desired_by=str(desired.source) if desired else "",
        asked=_asked(seen),
        version=seen.spec.version if seen.spec else None,
        running=tuple(sorted({r.version for r in seen.in_rotation})),
        serving_since=seen.serving_since,
        on_demand=sum(_option(r).metric is Metric.REPLICAS_ON_DEMAND for r in seen.in_rotation),
        usd_per_hour=_sum(map(seen.memory.price, paid)),
        on_demand_usd_per_hour=_sum(seen.memory.price(offering.on_demand) for offering in paid),
        address=seen.address,
        replicas=tuple(_row(r, seen) for r in seen.present),
        failed=tuple(_row(r, seen) for r in shown),
        failed_before=len(failed) - len(shown),
        lost=len(lost),
        lost_unwarned=sum(not loss.is_warned for loss in lost),
        slowest_whole_s=max((s for loss in lost if (s := loss.whole_s) is not None), default=None),
        cooling=tuple(f"{pool} until {c.until:%H:%M} ({c.reason})" for pool, c in seen.cooling),
        pools=len(survey.pools) if survey else None,
        image=survey.images.get(seen.spec.version) if survey and seen.spec else None,
        alarms=None if Part.ALARMS in seen.missing else tuple(_ringing(seen)),
        load_unknown=_load_unknown(seen),
        not_read=tuple(f"{part}: {words}" for part, words in seen.missing.items()),
    )


def _asked(seen: ServiceSnapshot) -> str:
    if seen.spec is None or seen.desired is None or seen.desired.source is Source.SERVICE_FILE:
        return ""
    return asked_in_words(seen.desired, seen.spec, seen.at)


def _ringing(seen: ServiceSnapshot) -> Iterable[str]:
    return (alarm.name for alarm in seen.alarms if alarm.state is AlarmState.ALARM)


def _load_unknown(seen: ServiceSnapshot) -> str:
    request = seen.rows.requests.get(Source.LOAD)
    since = request.unknown_since if request and seen.spec and seen.spec.scaling else None
    if since is None or seen.at - since < LOAD_UNKNOWN:
        return ""
    return (
        f"not all of its load is known since {since:%H:%M}: the number of replicas may rise and doesn't fall."
        f" Does what measures it run on the replicas? spotrelay logs {seen.service} ID shows their consoles"
    )


def _judged(seen: ServiceSnapshot) -> tuple[Judgement, str]:
    wanted = seen.wanted
    for part in (Part.ROWS, Part.DOCUMENT):
        if part in seen.missing:
            return Judgement.UNKNOWN, f"the {part} couldn't be read: {seen.missing[part]}"
    if wanted is None:
        return Judgement.UNKNOWN, "it isn't deployed"
    ready = len(seen.in_rotation)
    if ready >= wanted:
        return (Judgement.WHOLE if wanted else Judgement.NONE), _leaving(seen)
    return Judgement.NOT_WHOLE, "; ".join(_reasons(seen, wanted - ready))


def _leaving(seen: ServiceSnapshot) -> str:
    """Who serves for the last minutes, if that leaves too few."""
    warned = [str(r.id) for r in seen.in_rotation if r.is_warned]
    if not warned or len(seen.in_rotation) - len(warned) >= (seen.wanted or 0):
        return ""
    coming = ", ".join(_coming(seen)) or "no replacement is coming yet"
    return f"EC2 takes back replica{'s' if len(warned) > 1 else ''} {', '.join(warned)}: {coming}"


def _coming(seen: ServiceSnapshot) -> list[str]:
    """What is on its way."""
    states = [r.state for r in seen.present if not r.stands_by]
    return [f"{count} {words}" for state, words in COMING.items() if (count := states.count(state))]


def _reasons(seen: ServiceSnapshot, lacking: int) -> list[str]:
    """What becomes of those that are missing."""
    found = []
    coming = _coming(seen)
    silent = sum(r.state is ReplicaState.READY and not r.serves for r in seen.present)
    if silent:
        coming.append(f"{silent} ready but not answering")
    found.append(f"{lacking} missing" + (f": {', '.join(coming)}" if coming else ", and none is coming"))
    open_losses = [loss for loss in losses(seen.replicas.values()) if loss.whole_at is None]
    if open_losses:
        found.append(", ".join(_lost(loss) for loss in open_losses[-FAILURES_MOST:]))
    refused = next((r for r in seen.present if r.state is ReplicaState.REQUESTED and r.launch), None)
    if refused:
        found.append(f"replica {refused.id}: {_answer(refused)}")
    if troubled := [r for r in seen.present if r.state is ReplicaState.STARTING and r.trouble]:
        worst = max(troubled, key=lambda r: (r.is_crashing, r.id))
        found.append(f"replica {worst.id} {in_words(worst)}")
    elif slow := _slowest(seen):
        found.append(
            f"replica {slow.id} has been starting for {duration(_starting_s(slow, seen))}, longer than usual:"
            f" {console(slow)}"
        )
    backoff = seen.rows.backoff
    if backoff.until and backoff.until > seen.at:
        words = f"replicas failed {backoff.failures} times in a row: the next is launched after"
        found.append(f"{words} {backoff.until:%H:%M}")
    return found


def _slowest(seen: ServiceSnapshot) -> Replica | None:
    """What starts and has taken the longest, if that is longer than starts have taken before.

    Of a service that has never started: longer than half of what a start may take.
    """
    usual_s = max(start_times(seen.replicas.values()), default=None)
    if usual_s is None and seen.spec is not None:
        usual_s = seen.spec.initial_delay_s / 2
    on_their_way = [r for r in seen.present if r.state is ReplicaState.STARTING and not r.stands_by]
    slowest = max(on_their_way, key=lambda r: _starting_s(r, seen), default=None)
    is_slow = slowest is not None and usual_s is not None and _starting_s(slowest, seen) > usual_s
    return slowest if is_slow else None


def _starting_s(replica: Replica, seen: ServiceSnapshot) -> float:
    return (seen.at - replica.entered.get(ReplicaState.PROVISIONING, replica.since)).total_seconds()


def _lost(loss: Loss) -> str:
    warned = "warned" if loss.is_warned else "without a warning"
    return f"replica {loss.replica} was lost at {loss.at:%H:%M:%S} ({warned})"


def _answer(replica: Replica) -> str:
    """What EC2 answered last, from what its row says of its launch; or why it wasn't asked."""
    words = replica.launch or ""
    return words.rpartition("EC2: ")[2] if "EC2: " in words else words.partition("; ")[0]


def _row(replica: Replica, seen: ServiceSnapshot) -> ReplicaRow:
    offering = replica.offering
    launched_at = replica.entered.get(ReplicaState.PROVISIONING)
    begun = launched_at or min(replica.entered.values())
    ended = replica.since if replica.state.is_ended else seen.at
    return ReplicaRow(
        id=replica.id,
        version=replica.version,
        state=_state(replica),
        pool=str(offering.pool) if offering else "",
        purchase_option=str(_option(replica)),
        region=offering.pool.region if offering else seen.region,
        instance_id=replica.instance_id,
        port=replica.listens_on,
        launched_at=launched_at,
        age_s=max((ended - begun).total_seconds(), 0.0),
        usd_per_hour=None if offering and replica.state.is_ended else seen.usd_per_hour(replica),
        replaces=replica.replaces,
        note=_note(replica, seen.at),
    )


def _state(replica: Replica) -> str:
    if replica.state is ReplicaState.READY and not replica.serves:
        return "UNHEALTHY"
    if replica.state is ReplicaState.READY and replica.is_warned:
        return "WARNED"
    if replica.stands_by and replica.state is not ReplicaState.STANDBY:
        return f"{replica.state} (standby)"
    return str(replica.state)


def _note(replica: Replica, now: datetime) -> str:
    if replica.state is ReplicaState.FAILED:
        return replica.reason + (f"; it {in_short(replica)}" if replica.trouble else "")
    words = []
    if replica.is_warned:
        words.append("EC2 takes it back")
    elif replica.state is ReplicaState.DRAINING:
        words.append(replica.reason)
    if replica.stays and replica.silent_since:
        silent = "busy" if replica.busy_since else "doesn't answer its probe"
        words.append("refuses its probe" if replica.refusals else silent)
    if starting := _starting(replica, now):
        words.append(starting)
    if replica.is_tried and replica.state is not ReplicaState.STANDBY:
        words.append("is started once to see that it comes back")
    if replica.is_fallback:
        words.append("fallback")
    if replica.is_adopted:
        words.append("adopted")
    if replica.state is ReplicaState.REQUESTED and replica.launch:
        words.append(_answer(replica))
    return "; ".join(words)


def _starting(replica: Replica, now: datetime) -> str:
    """Why it isn't ready, by its own account, or how far it is."""
    if replica.state is not ReplicaState.STARTING:
        return ""
    if replica.trouble:
        return "crashes" if replica.is_crashing else in_short(replica)
    start = None if replica.stands_by else start_of(replica)
    return start.in_words(now) if start else ""


def _option(replica: Replica) -> PurchaseOption:
    return replica.offering.purchase_option if replica.offering else replica.purchase_option


def _sum(prices: Iterable[float | None]) -> float | None:
    known = list(prices)
    return None if None in known else round(sum(price for price in known if price is not None), 4)


def _jsonable(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, dict):
        return {name: _jsonable(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(one) for one in value]
    return value
