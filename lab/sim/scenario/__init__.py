"""A run's scenario, drawn from its seed: services, a market, and misfortunes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from random import Random

from lab.sim import load, starts
from lab.sim.cloud import ON_DEMAND_TEMPLATE, TEMPLATE
from lab.sim.faults import USUAL_PAIRS, Call, Pair
from lab.sim.instances import FULL
from lab.sim.load import Loads
from lab.sim.offers import Listing
from lab.sim.scenario import adopted, held, moves, scaling, sharing, standbys, versions
from lab.sim.scenario.adopted import Adopted
from lab.sim.scenario.moves import Moves
from lab.sim.scenario.sharing import Sharing
from lab.sim.scenario.standbys import Standbys
from lab.sim.scenario.versions import Versions
from lab.sim.starts import Starts
from spotrelay.plane.core.answers import BusyEvidence
from spotrelay.plane.core.incidents import alarms_of
from spotrelay.plane.core.pools import LEAST_TYPES, OPTIONS, Offering, PurchaseOption
from spotrelay.plane.core.spec import OnRebalance, OnUpdate, OnWarning, ReadinessProbe, ServiceSpec

CLUSTER_S = 6.0

PER_MINUTE = 0.7
"""Misfortunes per minute of a long run: as many as in a short one, with time to recover in between."""

TOLD_SHARE = 0.4
"""Of the runs in which instances tell of servers that never start."""

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
    PROTECT = "an operator protects instances against termination"
    SICK = "many replicas don't answer for a while"
    BAD_POOL = "the instances of a pool never become ready"
    BAD_ZONE = "the instances of a zone never become ready"
    TAG = "a foreign instance gets our tag"
    UNTAG = "an instance of ours loses its tag"
    LOSE_META = "the service's own entry in the table is lost"
    LOSE_ROW = "a replica's row is lost"
    EMPTY = "the table is emptied"
    RESTORE = "the table is restored from a backup"
    HIDE = "the service's document is missing for a while"
    GARBLE = "the service's document can't be read for a while"
    USURP = "another control plane takes over the region's services for a while"
    OVERRIDE = "an operator overrides what is held back, such as an instance that lost its tag"
    LIE = "EC2 or the load balancer shows nothing, or half of it, and calls it a success"
    SCALE = "another number of replicas is deployed"
    SHRINK = "fewer replicas are deployed"
    DEPLOY = "a new version is deployed"
    SWITCH = "Spot, or the fallback from it, is switched off or on"
    REMOVE = "the service's stack is removed"
    TAKE_OUT = "an operator deregisters a target by hand"
    FOREIGN = "EC2 warns of a foreign instance"
    NONSENSE = "malformed messages, and events that aren't for us"
    # These are drawn separately, see `_with_offers`, `_with_mute`, `_with_unknown` and
    # `_with_odd_answers`.
    UNKNOWN = "the load balancer doesn't know its targets' health"
    ALONE = "Spot goes everywhere, and what stands in for it is too busy to answer its checks"
    MUTE = "a replica answers its health checks, and no longer its probe"
    REFUSE_PROBE = "replicas pass their health checks, and refuse their probe at once"
    BUSY = "replicas are too busy for their probe for a while, and finish requests"
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
    Call.ENDED: Misfortune.WARN,
    Call.NOTE_HELD: Misfortune.OVERRIDE,
    Call.NOTE_REMOVAL: Misfortune.REMOVE,
    Call.HISTORY: Misfortune.LOSE_META,
    Call.SCHEDULE_LEAVE: Misfortune.DROUGHT,
    Call.START: Misfortune.WARN,
}
"""The misfortune that leads to the call that a run is about."""

_LASTS_S = {
    Call.STOP: 120.0,  # one must be prepared, or be given back, before
    Call.ENDED: 150.0,  # what was warned must have ended before
}
"""For how long faults last at least where a run is about a call that comes late."""

BUSY_LONGEST_S = 200.0
"""For how long a run's replicas may be silent because they are busy."""

_LATE = (Call.FORGET, Call.TERMINATE, Call.FORGIVE)
"""Calls at the end of a replica or of a refusal. They need misfortune that begins earlier and lasts longer,
and nothing else that delays them."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything about a run that is drawn before it begins."""

    seed: int
    target: Pair
    """The call and fault that the run is about."""
    specs: tuple[ServiceSpec, ...]
    capacity: dict[Offering, int]
    is_warm: bool
    """Whether all replicas are ready at the beginning, or none exists."""
    faults_s: float
    """How long faults last."""
    misfortunes: tuple[tuple[float, Misfortune], ...]
    lost: float
    """The share of EC2's warnings that never arrive."""
    lost_states: float
    """The share of state-change events that never arrive."""
    duplicated: float
    delay_s: float
    """The longest delay of an event."""
    tick_lag_s: float
    """How much later than requested messages of the tick queue arrive."""
    listing: Listing
    """What EC2 lists, and whether anybody asks."""
    bad_versions: float
    """How many of the versions that are deployed never become ready."""
    requests: tuple[scaling.Asked, ...]
    """What operators will ask for."""
    loads: Loads
    """What the services have to do, if their number of replicas follows it."""
    standbys: Standbys
    """The services' standbys, and what befalls them."""
    moves: Moves
    """Whether replicas move to cheaper Spot."""
    adopted: Adopted
    """What something else launched."""
    ports: tuple[int, ...] = (8081,)
    """What versions listen on, in turn."""
    versions: Versions = field(default_factory=Versions)
    """Which versions EC2 refuses to launch."""
    sharing: Sharing = field(default_factory=Sharing)
    """How many replicas instances host."""
    starts: Starts = field(default_factory=Starts)
    """What shortens starts, and fails."""

    @property
    def is_told(self) -> bool:
        """Whether instances tell of servers that never start: those without Python don't."""
        return Random(f"{self.seed}-tells").random() < TOLD_SHARE  # noqa: S311 - to be repeated

    @property
    def is_never_removed(self) -> bool:
        """Whether no stack is removed."""
        return all(kind is not Misfortune.REMOVE for _, kind in self.misfortunes)

    def port_of(self, version: int) -> int:
        """What a version listens on."""
        return self.ports[(version - 1) % len(self.ports)]

    def of_version(self, spec: ServiceSpec, version: int) -> ServiceSpec:
        """The service's next version."""
        slots = self.sharing.slots_of(version)
        return replace(spec, version=version, port=self.port_of(version), slots=slots)


def draw(seed: int, replicas: int, minutes: float | None = None) -> Scenario:
    """The scenario of a seed; `minutes` of misfortune instead of a minute or two."""
    random = Random(seed)  # noqa: S311 - to be repeated, not to be unpredictable
    target = USUAL_PAIRS[seed % len(USUAL_PAIRS)]
    known = Standbys() if target[0] in _LATE else standbys.draw(seed, minutes)
    loads = Loads() if target[0] in _LATE else load.draw(seed, replicas, minutes, TYPES)
    of_held = None if target[0] in _LATE else held.target(seed)
    target = known.target or loads.target or of_held or target
    specs = [_spec(random, "demo", replicas, target)]
    if random.random() < 0.1:
        specs.append(_spec(random, "other", max(1, replicas // 2), target))
    is_late = target[0] in _LATE
    faults_s = random.uniform(110, 150) if is_late else random.uniform(30, 150)
    faults_s = max(faults_s, _LASTS_S.get(target[0], 0.0))
    if target[0] is Call.FORGET:
        faults_s += 300.0  # its last instance must have ended before
    if minutes is not None:
        faults_s, is_late = 60 * minutes, False
    kinds = _kinds(random, target, is_late=is_late, minutes=minutes)
    if Misfortune.BROKEN in kinds:
        faults_s = max(faults_s, 120.0)  # so that it fails before faults end
    misfortunes = _when(random, kinds, 30.0 if is_late else faults_s, minutes)
    if target[0] is Call.FORGIVE:
        # Everything must be launched, so that refusals come first and their cooldowns end later.
        misfortunes = [(0.0, _NEEDED[Call.FORGIVE])]
    if not is_late:
        misfortunes += _additions(random, misfortunes)
    # A generator of its own: the rest of the scenario doesn't depend on it.
    own = Random(f"{seed}-offers")  # noqa: S311 - to be repeated
    moving = Moves() if target[0] in _LATE else moves.draw(seed, minutes)
    listing = moves.surveyed(Listing() if is_late else Listing.draw(own, specs[0]), moving)
    shared = Sharing() if known.number or moving.has_any else sharing.draw(seed, TYPES)
    if shared.has_any:
        listing = replace(listing, extra=())  # it finds no other types than the service file names
    updates = Random(f"{seed}-updates")  # noqa: S311 - to be repeated
    on_update = updates.choice((OnUpdate.KEEP, OnUpdate.ROLLING))
    ports = updates.choice(((8081,), (8081, 8082)))
    is_probed = bool(known.number) or all(
        s.readiness_probe and not s.readiness_probe.is_health_check for s in specs
    )
    if on_update is OnUpdate.ROLLING and is_probed and updates.random() < 0.6:
        on_update = OnUpdate.BLUE_GREEN  # which only a probe can tell that all are up
    bake_s = updates.choice((None, 0.0, 40.0))
    capacity = _capacity(random, specs[0], sum(s.replicas for s in specs))
    is_warm = (random.random() < 0.8 and target[0] is not Call.FORGIVE) or moving.has_any
    drawn = Scenario(
        seed=seed,
        target=target,
        specs=tuple(
            with_alarms(
                _with_standbys(
                    replace(
                        s,
                        max_price_share=listing.cap,
                        on_update=on_update,
                        scaling=loads.scaling,
                        overprovision=loads.overprovision,
                        bake_s=bake_s,
                        rebalance_cost=moving.cost,
                        move_on_score=moving.on_score,
                        slots=shared.slots_of(1),
                    ),
                    known,
                )
            )
            for s in specs
        ),
        capacity=capacity,
        is_warm=is_warm,
        faults_s=faults_s,
        misfortunes=tuple(sorted(misfortunes)),
        lost=random.choice((0.0, 0.2, 1.0)),
        lost_states=random.choice((0.0, 0.5, 1.0, 1.0)),
        duplicated=random.choice((0.0, 0.1, 0.5)),
        delay_s=random.choice((0.5, 5.0, 60.0)),
        tick_lag_s=0.0 if is_late else random.choice((0.0, 2.0, 8.0, 20.0)),
        listing=listing,
        bad_versions=0.0 if on_update is OnUpdate.KEEP else 0.4,
        ports=ports,
        requests=() if is_late else scaling.draw(seed, [s.service for s in specs], faults_s, minutes),
        standbys=known,
        loads=loads,
        moves=moving,
        versions=Versions()
        if is_late
        else versions.draw(seed, minutes, is_warm=is_warm, rolls_out=on_update is not OnUpdate.KEEP),
        sharing=shared,
        starts=Starts() if is_late else starts.draw(seed, TYPES),
        adopted=adopted.draw(seed, may_be_replaced=on_update is OnUpdate.ROLLING),
    )
    drawn = drawn if is_late else _with_operators(_with_odd_answers(_with_unknown(_with_mute(drawn))))
    most = 2 * sum(spec.replicas for spec in specs)
    extra = {Offering(p, o): own.randint(0, most) for p in listing.extra for o in OPTIONS.values()}
    return replace(
        drawn,
        capacity={**drawn.capacity, **extra},
        misfortunes=drawn.misfortunes if is_late else _with_offers(own, drawn, minutes),
    )


def with_alarms(spec: ServiceSpec) -> ServiceSpec:
    """The service with the alarms that a deployment gives it, whatever its instance types are."""
    return replace(spec, alarms=tuple(sorted(alarms_of(spec, LEAST_TYPES))))


def _kinds(random: Random, target: Pair, *, is_late: bool, minutes: float | None) -> list[Misfortune]:
    """A run's misfortunes, in no order: random ones, and those that lead to its target call."""
    number = random.randint(1, 3) if minutes is None else max(round(PER_MINUTE * minutes), 1)
    kinds = random.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=number)
    if is_late:
        kinds = [_NEEDED[target[0]]]
    if Misfortune.REMOVE in kinds or target[0] in (Call.FORGET, Call.NOTE_REMOVAL):
        # Two signs of a removal are never wrong at once; see docs/reliability.md.
        kinds = [kind for kind in kinds if kind is not Misfortune.HIDE]
    if target[0] is Call.DOCUMENT:
        kinds = [kind for kind in kinds if kind is not Misfortune.REMOVE]
        kinds.append(Misfortune.WARN)  # so that a function reads it while it is hidden
    if Misfortune.BAD_POOL in kinds or Misfortune.BAD_ZONE in kinds:
        kinds.append(Misfortune.DROUGHT)  # so that something is launched there
    if Misfortune.BROKEN in kinds:
        kinds.append(Misfortune.WARN)
    if target[0] in _NEEDED:
        kinds.append(_NEEDED[target[0]])
    return kinds


def _additions(
    random: Random, misfortunes: Sequence[tuple[float, Misfortune]]
) -> list[tuple[float, Misfortune]]:
    """Additional misfortunes that make others harder, such as a removal during a launch."""
    additions = []
    for when, kind in misfortunes:
        if kind is Misfortune.REMOVE:
            # A removal during a launch most easily leaves something behind.
            before = random.choice((Misfortune.WARN, Misfortune.DIE, Misfortune.SCALE))
            additions.append((max(0.0, when - random.uniform(0, 3)), before))
        if kind in (Misfortune.REFUSE, Misfortune.LIMIT):
            # A launch that is refused, and then an accident of its fallback.
            additions.append((when + random.uniform(0, 5), Misfortune.WARN))
            additions.append((when + random.uniform(10, 60), Misfortune.DIE))
    return additions


def _with_offers(
    random: Random, drawn: Scenario, minutes: float | None
) -> tuple[tuple[float, Misfortune], ...]:
    """The misfortunes with limits and surveys added: just before another one, or at any time."""
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
    additions = _additions(random, added) if random.random() < 0.3 else []
    return tuple(sorted([*drawn.misfortunes, *added, *additions]))


def _when(
    random: Random, kinds: Sequence[Misfortune], faults_s: float, minutes: float | None
) -> list[tuple[float, Misfortune]]:
    """Random times; in half of the short runs all within seconds, so that they overlap."""
    first, last = 0.0, 0.9 * faults_s
    if minutes is None and random.random() < 0.5:
        first = random.uniform(0, last - CLUSTER_S)
        last = first + CLUSTER_S
    return [(random.uniform(first, last), kind) for kind in kinds]


def _spec(random: Random, service: str, replicas: int, target: Pair) -> ServiceSpec:
    number = random.random()
    has_probe = number < 0.15 or target[0] is Call.PROBE
    is_late = target[0] in _LATE
    # Half of the others are of before plain GETs were sent from inside, too.
    is_asked = has_probe or (number > 0.5 and not is_late)
    drawn = ServiceSpec(
        service=service,
        version=1,
        replicas=replicas,
        use_spot=random.random() < 0.9,
        instance_types=TYPES,
        ordered=random.random() < 0.3,
        subnets=ZONES,
        launch_template_id=TEMPLATE,
        on_demand_template=ON_DEMAND_TEMPLATE,
        target_group_arn=f"arn:aws:elasticloadbalancing:us-east-1:0:targetgroup/{service}/1",
        port=8081,
        on_demand_fallback=random.random() < 0.7,
        base_on_demand=min(random.choice((0, 0, 1, 2)), replicas),
        drain_s=5.0 if is_late else random.choice((5.0, 30.0, 90.0)),
        # The probe comes with the tick after the one that saw the instance run, and ticks may be late.
        initial_delay_s=180.0 if has_probe else max(random.choice((60.0, 180.0)), 180.0 * is_asked),
        readiness_probe=ReadinessProbe("/", {} if has_probe else None) if is_asked else None,
        on_rebalance=random.choice((OnRebalance.IGNORE, OnRebalance.REPLACE)),
        surge=random.choice((1, 2)),
        on_warning=random.choice((OnWarning.NEEDED, OnWarning.NEEDED, OnWarning.SERVE_ON, OnWarning.LEAVE)),
        max_launches_per_minute=random.choice((100, 100, max(2, replicas // 2))),
    )
    # Shorter than EC2's warning, longer, or of before there was this.
    return drawn if is_late else replace(drawn, drain_unhurried_s=_UNHURRIED_S[drawn.drain_s])


_UNHURRIED_S = {5.0: 60.0, 30.0: 180.0, 90.0: None}
"""By `drain_s`, what those have that nobody takes away."""


def _with_mute(drawn: Scenario) -> Scenario:
    """The run with replicas that serve and answer no probe, where there is one."""
    random = Random(f"{drawn.seed}-mute")  # noqa: S311 - to be repeated
    probe = drawn.specs[0].readiness_probe
    if probe is None or probe.is_health_check or random.random() < 0.3:
        return drawn
    probe = replace(probe, failure_threshold_s=random.choice((60.0, 180.0)))
    times = [(random.uniform(0, 0.5 * drawn.faults_s), Misfortune.MUTE) for _ in range(random.randint(0, 2))]
    return replace(
        drawn,
        specs=tuple(replace(s, readiness_probe=s.readiness_probe and probe) for s in drawn.specs),
        misfortunes=tuple(sorted([*drawn.misfortunes, *times])),
    )


def _with_unknown(drawn: Scenario) -> Scenario:
    """The run with a load balancer that doesn't know its targets' health, or with lone fallbacks."""
    random = Random(f"{drawn.seed}-unknown")  # noqa: S311 - to be repeated
    times = []
    if random.random() < 0.2:
        times += [(random.uniform(0, 0.8 * drawn.faults_s), Misfortune.UNKNOWN)]
    faults_s = drawn.faults_s
    if random.random() < 0.05 and all(s.use_spot and s.on_demand_fallback for s in drawn.specs):
        times += [(random.uniform(0, 20), Misfortune.ALONE)]
        # Until it has been unhealthy for so long that it would be given up, and others have come beside it.
        faults_s = max(faults_s, 480.0)
    return replace(drawn, faults_s=faults_s, misfortunes=tuple(sorted([*drawn.misfortunes, *times])))


def _with_odd_answers(drawn: Scenario) -> Scenario:
    """The run with replicas that refuse their probe or are too busy for it, where any is asked."""
    random = Random(f"{drawn.seed}-answers")  # noqa: S311 - to be repeated
    probe = drawn.specs[0].readiness_probe
    if probe is None or probe.failure_threshold_s is None or random.random() < 0.3:
        return drawn
    evidence = BusyEvidence(limit=FULL, finished=("f",), ongoing=("o",), longest_s=BUSY_LONGEST_S)
    busy = evidence if random.random() < 0.7 else None
    kinds = random.choices((Misfortune.REFUSE_PROBE, Misfortune.BUSY), k=random.randint(1, 2))
    times = [(random.uniform(0, 0.5 * drawn.faults_s), kind) for kind in kinds]
    return replace(
        drawn,
        specs=tuple(replace(s, busy=busy) for s in drawn.specs),
        misfortunes=tuple(sorted([*drawn.misfortunes, *times])),
    )


def _with_operators(drawn: Scenario) -> Scenario:
    """The run with an operator who overrides in the middle of it."""
    if not held.looks(drawn.seed):
        return drawn
    when = Random(f"{drawn.seed}-override").uniform(0, 0.5 * drawn.faults_s)  # noqa: S311 - to be repeated
    return replace(drawn, misfortunes=tuple(sorted([*drawn.misfortunes, (when, Misfortune.OVERRIDE)])))


def _with_standbys(spec: ServiceSpec, known: Standbys) -> ServiceSpec:
    """The service with its standbys; whether one is prepared, its readiness probe tells."""
    if not known.number:
        return spec
    probe = ReadinessProbe("/", {})
    return replace(standbys.given(spec, known), readiness_probe=probe, initial_delay_s=180.0)


def _capacity(random: Random, spec: ServiceSpec, replicas: int) -> dict[Offering, int]:
    """Enough capacity for all replicas at the beginning, in one pool or several."""
    option = PurchaseOption.SPOT if spec.use_spot else PurchaseOption.ON_DEMAND
    capacity = {Offering(p, o): random.randint(0, 2 * replicas) for p in spec.pools for o in OPTIONS.values()}
    first = Offering(random.choice(spec.pools), option)
    capacity[first] = max(capacity[first], replicas)
    base = Offering(random.choice(spec.pools), PurchaseOption.ON_DEMAND)
    capacity[base] = max(capacity[base], replicas)
    return capacity
