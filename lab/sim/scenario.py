"""What a run is about, drawn from its seed: services, a market, and the misfortunes that befall them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from lab.sim.cloud import TEMPLATE
from lab.sim.faults import PAIRS, Call, Pair
from lab.sim.offers import Listing
from spotrelay.core.pools import Offering, PurchaseOption
from spotrelay.core.spec import OnRebalance, OnWarning, ReadinessProbe, ServiceSpec

CLUSTER_S = 6.0

PER_MINUTE = 0.7
"""Misfortunes in a minute of a long run: as many as in a short one, with time to recover now and then."""

ZONES = {"subnet-a": "us-east-1a", "subnet-b": "us-east-1b"}
TYPES = ("g5.xlarge", "g6.xlarge")


class Misfortune(StrEnum):
    """What happens to a service from outside."""

    WARN = "EC2 warns of an interruption"
    DROUGHT = "EC2 takes back a whole pool, and gives none there"
    STOP = "EC2 stops an instance, after a warning"
    DIE = "an instance dies without a warning"
    HANG = "a replica stops answering"
    BROKEN = "the next instance never becomes ready"
    REFUSE = "no capacity anywhere for a while, or only on-demand"
    RECOMMEND = "EC2 recommends to rebalance"
    ADVISE = "EC2 recommends to rebalance, and takes one of these back soon after"
    HIBERNATE = "EC2 hibernates an instance, and says so only then"
    SPARE = "EC2 warns an instance, and spares it"
    PROTECT = "somebody protects an instance against termination"
    SICK = "many replicas answer nobody for a while"
    BAD_POOL = "the instances of a pool never become ready"
    BAD_ZONE = "the instances of a zone never become ready"
    TAG = "somebody tags a foreign instance as ours"
    UNTAG = "somebody takes the tag off an instance of ours"
    LOSE_META = "the service's own entry in the table is lost"
    LOSE_ROW = "a replica's row is lost"
    EMPTY = "the table is emptied"
    RESTORE = "the table is restored from a backup"
    HIDE = "the service's document is missing for a while"
    GARBLE = "the service's document can't be read for a while"
    USURP = "another control plane takes over the region's services for a while"
    OVERRIDE = "a person overrides what is held back, such as an instance whose tag somebody took off"
    LIE = "EC2 or the load balancer shows nothing, or half of it, and calls it a success"
    SCALE = "another number of replicas is deployed"
    SHRINK = "fewer replicas are deployed"
    DEPLOY = "a new version is deployed"
    SWITCH = "Spot, or the fallback from it, is switched off or on"
    REMOVE = "the service's stack is removed"
    TAKE_OUT = "somebody takes a target out of the group by hand"
    FOREIGN = "EC2 warns of somebody else's instance"
    NONSENSE = "messages that nobody can read, and events that aren't for us"
    # Drawn apart from the others, see `_of_offers`.
    LIMIT = "a quota, a market or a subnet is used up for a while, or a type isn't offered"
    SURVEY = "Spot costs something else, and EC2 may be asked anew what it has"


_WEIGHTS = {
    Misfortune.WARN: 12,
    Misfortune.DROUGHT: 4,
    Misfortune.STOP: 1,
    Misfortune.DIE: 4,
    Misfortune.HANG: 1,
    Misfortune.BROKEN: 3,
    Misfortune.REFUSE: 2,
    Misfortune.RECOMMEND: 2,
    Misfortune.ADVISE: 3,
    Misfortune.HIBERNATE: 1,
    Misfortune.SPARE: 2,
    Misfortune.PROTECT: 1,
    Misfortune.SICK: 1,
    Misfortune.BAD_POOL: 1,
    Misfortune.BAD_ZONE: 1,
    Misfortune.TAG: 0.5,
    Misfortune.UNTAG: 1,
    Misfortune.LOSE_META: 1,
    Misfortune.LOSE_ROW: 1,
    Misfortune.EMPTY: 1,
    Misfortune.RESTORE: 1,
    Misfortune.HIDE: 1,
    Misfortune.GARBLE: 1,
    Misfortune.USURP: 1,
    Misfortune.OVERRIDE: 1,
    Misfortune.LIE: 2,
    Misfortune.SCALE: 3,
    Misfortune.SHRINK: 1,
    Misfortune.DEPLOY: 1,
    Misfortune.SWITCH: 1,
    Misfortune.REMOVE: 2,
    Misfortune.TAKE_OUT: 1,
    Misfortune.FOREIGN: 1,
    Misfortune.NONSENSE: 1,
}

_NEEDED = {
    Call.FORGET: Misfortune.REMOVE,
    Call.SET_ASIDE: Misfortune.NONSENSE,
    Call.TERMINATE: Misfortune.SHRINK,
    Call.LAUNCH: Misfortune.WARN,
    Call.PROBE: Misfortune.WARN,
    Call.COOL: Misfortune.WARN,
    Call.FORGIVE: Misfortune.REFUSE,
    Call.RECALL: Misfortune.WARN,
    Call.REGISTER: Misfortune.WARN,
    Call.DEREGISTER: Misfortune.WARN,
    Call.LOCATE: Misfortune.WARN,
    Call.READ: Misfortune.WARN,
    Call.DOCUMENT: Misfortune.HIDE,
    Call.KEEP_DOCUMENT: Misfortune.SCALE,
    Call.NOTE_REMOVAL: Misfortune.REMOVE,
    Call.HISTORY: Misfortune.LOSE_META,
    Call.SCHEDULE_LEAVE: Misfortune.DROUGHT,
}
"""A run that is about a call needs something that leads to it."""

_LATE = (Call.FORGET, Call.TERMINATE, Call.FORGIVE)
"""Calls that come at the end of a replica's life, or of a refusal's: misfortune must begin sooner and last
longer, and nothing else hold them up."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is fixed about a run before it begins."""

    seed: int
    target: Pair
    """What above all goes wrong in it."""
    specs: tuple[ServiceSpec, ...]
    capacity: dict[Offering, int]
    is_warm: bool
    """Whether every replica is ready at the beginning, or none is there."""
    faults_s: float
    """How long things go wrong."""
    misfortunes: tuple[tuple[float, Misfortune], ...]
    lost: float
    """How many of EC2's warnings never arrive."""
    lost_states: float
    """How many of the events of new states never arrive."""
    duplicated: float
    delay_s: float
    """How long an event may take."""
    tick_lag_s: float
    """How much longer than asked for messages of the tick queue take."""
    listing: Listing
    """What EC2 lists, and whether anybody asks."""


def draw(seed: int, replicas: int, minutes: float | None = None) -> Scenario:
    """The scenario of a seed; `minutes` of misfortune instead of a minute or two."""
    random = Random(seed)  # noqa: S311 - to be repeated, not to be unpredictable
    target = PAIRS[seed % len(PAIRS)]
    specs = [_spec(random, "demo", replicas, target)]
    if random.random() < 0.1:
        specs.append(_spec(random, "other", max(1, replicas // 2), target))
    is_late = target[0] in _LATE
    faults_s = random.uniform(110, 150) if is_late else random.uniform(30, 150)
    if minutes is not None:
        faults_s, is_late = 60 * minutes, False
    kinds = _kinds(random, target, is_late=is_late, minutes=minutes)
    if Misfortune.BROKEN in kinds:
        faults_s = max(faults_s, 120.0)  # so that it has failed before things are well again
    misfortunes = _when(random, kinds, 30.0 if is_late else faults_s, minutes)
    if target[0] is Call.FORGIVE:
        # Only what is launched is refused first and forgiven later: a start from nothing.
        misfortunes = [(0.0, _NEEDED[Call.FORGIVE])]
    if not is_late:
        misfortunes += _company(random, misfortunes)
    # Drawn by itself: what else a seed brings doesn't depend on it.
    own = Random(f"{seed}-offers")  # noqa: S311 - to be repeated
    listing = Listing() if is_late else Listing.draw(own, specs[0])
    drawn = Scenario(
        seed=seed,
        target=target,
        specs=tuple(replace(spec, max_price_share=listing.cap) for spec in specs),
        capacity=_capacity(random, specs[0], sum(s.replicas for s in specs)),
        is_warm=random.random() < 0.8 and target[0] is not Call.FORGIVE,
        faults_s=faults_s,
        misfortunes=tuple(sorted(misfortunes)),
        lost=random.choice((0.0, 0.2, 1.0)),
        lost_states=random.choice((0.0, 0.5, 1.0, 1.0)),
        duplicated=random.choice((0.0, 0.1, 0.5)),
        delay_s=random.choice((0.5, 5.0, 60.0)),
        tick_lag_s=0.0 if is_late else random.choice((0.0, 2.0, 8.0, 20.0)),
        listing=listing,
    )
    most = 2 * sum(spec.replicas for spec in specs)
    extra = {Offering(p, o): own.randint(0, most) for p in listing.extra for o in PurchaseOption}
    return replace(
        drawn,
        capacity={**drawn.capacity, **extra},
        misfortunes=drawn.misfortunes if is_late else _of_offers(own, drawn, minutes),
    )


def _kinds(random: Random, target: Pair, *, is_late: bool, minutes: float | None) -> list[Misfortune]:
    """What befalls a run, in no order: by chance, and what leads to the call that it is about."""
    number = random.randint(1, 3) if minutes is None else max(round(PER_MINUTE * minutes), 1)
    kinds = random.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=number)
    if is_late:
        kinds = [_NEEDED[target[0]]]
    if Misfortune.REMOVE in kinds or target[0] in (Call.FORGET, Call.NOTE_REMOVAL):
        # Two signs of a removal are never wrong at once; see docs/reliability.md.
        kinds = [kind for kind in kinds if kind is not Misfortune.HIDE]
    if target[0] is Call.DOCUMENT:
        kinds = [kind for kind in kinds if kind is not Misfortune.REMOVE]
        kinds.append(Misfortune.WARN)  # so that somebody asks for it while it is hidden
    if Misfortune.BAD_POOL in kinds or Misfortune.BAD_ZONE in kinds:
        kinds.append(Misfortune.DROUGHT)  # so that something is launched there
    if Misfortune.BROKEN in kinds:
        kinds.append(Misfortune.WARN)
    if target[0] in _NEEDED:
        kinds.append(_NEEDED[target[0]])
    return kinds


def _company(
    random: Random, misfortunes: Sequence[tuple[float, Misfortune]]
) -> list[tuple[float, Misfortune]]:
    """What makes some misfortunes harder: they come while something is being launched, or is refused."""
    company = []
    for when, kind in misfortunes:
        if kind is Misfortune.REMOVE:
            # While something is being launched it is hardest to leave nothing behind.
            before = random.choice((Misfortune.WARN, Misfortune.DIE, Misfortune.SCALE))
            company.append((max(0.0, when - random.uniform(0, 3)), before))
        if kind in (Misfortune.REFUSE, Misfortune.LIMIT):
            # Something that must be launched, and then something that befalls what stands in for it.
            company.append((when + random.uniform(0, 5), Misfortune.WARN))
            company.append((when + random.uniform(10, 60), Misfortune.DIE))
    return company


def _of_offers(
    random: Random, drawn: Scenario, minutes: float | None
) -> tuple[tuple[float, Misfortune], ...]:
    """The misfortunes, and limits and surveys among them: just before something is lost, or at any time."""
    number = random.choice((0, 0, 1, 1, 2)) if minutes is None else round(PER_MINUTE * minutes / 2)
    kinds = [Misfortune.LIMIT] * number
    if drawn.listing.is_surveyed:
        kinds += [Misfortune.SURVEY] * (number or random.randint(0, 1))
    last = 0.9 * drawn.faults_s
    known = [when for when, _ in drawn.misfortunes] or [last]
    added = [
        (max(random.choice(known) - random.uniform(0, 3), 0.0), kind)
        if random.random() < 0.6
        else (random.uniform(0, last), kind)
        for kind in kinds
    ]
    company = _company(random, added) if random.random() < 0.3 else []
    return tuple(sorted([*drawn.misfortunes, *added, *company]))


def _when(
    random: Random, kinds: Sequence[Misfortune], faults_s: float, minutes: float | None
) -> list[tuple[float, Misfortune]]:
    """At any times, or, in a short run, all within seconds: then one finds the other half dealt with."""
    first, last = 0.0, 0.9 * faults_s
    if minutes is None and random.random() < 0.5:
        first = random.uniform(0, last - CLUSTER_S)
        last = first + CLUSTER_S
    return [(random.uniform(first, last), kind) for kind in kinds]


def _spec(random: Random, service: str, replicas: int, target: Pair) -> ServiceSpec:
    has_probe = random.random() < 0.15 or target[0] is Call.PROBE
    return ServiceSpec(
        service=service,
        version=1,
        replicas=replicas,
        use_spot=random.random() < 0.9,
        instance_types=TYPES,
        ordered=random.random() < 0.3,
        subnets=ZONES,
        launch_template_id=TEMPLATE,
        target_group_arn=f"arn:aws:elasticloadbalancing:us-east-1:0:targetgroup/{service}/1",
        port=8081,
        on_demand_fallback=random.random() < 0.7,
        base_on_demand=min(random.choice((0, 0, 1, 2)), replicas),
        drain_s=5.0 if target[0] in _LATE else random.choice((5.0, 30.0, 90.0)),
        # A probe is made only by a tick after the one that saw the instance run, and ticks may be late.
        initial_delay_s=180.0 if has_probe else random.choice((60.0, 180.0)),
        readiness_probe=ReadinessProbe("/", {}) if has_probe else None,
        on_rebalance=random.choice((OnRebalance.IGNORE, OnRebalance.REPLACE)),
        surge=random.choice((1, 2)),
        on_warning=random.choice((OnWarning.NEEDED, OnWarning.NEEDED, OnWarning.SERVE_ON, OnWarning.LEAVE)),
        max_launches_per_minute=random.choice((100, 100, max(2, replicas // 2))),
    )


def _capacity(random: Random, spec: ServiceSpec, replicas: int) -> dict[Offering, int]:
    """Enough for all at the beginning, in one pool or spread."""
    option = PurchaseOption.SPOT if spec.use_spot else PurchaseOption.ON_DEMAND
    capacity = {Offering(p, o): random.randint(0, 2 * replicas) for p in spec.pools for o in PurchaseOption}
    first = Offering(random.choice(spec.pools), option)
    capacity[first] = max(capacity[first], replicas)
    base = Offering(random.choice(spec.pools), PurchaseOption.ON_DEMAND)
    capacity[base] = max(capacity[base], replicas)
    return capacity
