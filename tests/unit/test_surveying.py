"""Surveys of all services: kept, shown, and none at another's expense."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lambdas import survey
from spotrelay.plane.core import timing
from spotrelay.plane.core.mending import Finding, FindingKind
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import CapacityPool, Image, PoolMemory, Reading, Survey
from spotrelay.plane.core.ports import Denied, OtherControlPlane, PortError, Unavailable, UnreadableDocument
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.requirements import Requirements
from spotrelay.plane.core.rows import Changes, Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.events.ticks import MalformedTickError
from spotrelay.plane.memory import MemoryClock, MemoryServices, MemoryStore, MemoryTelemetry, MemoryTicker
from spotrelay.plane.placement.surveying import SurveyFailedError, Surveying, better_elsewhere, to_be_told
from tests.examples import demo_spec
from tests.unit.cases import a_replica
from tests.unit.invocations import Context

FUNCTION: ModuleType = survey

SCHEDULED = {"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}


def deployed(service: str, operation: str = "Create") -> dict[str, Any]:
    """Parameter Store's event about a runtime document."""
    detail = {"operation": operation, "name": f"/spotrelay/services/{service}", "type": "String"}
    return {"source": "aws.ssm", "detail-type": "Parameter Store Change", "detail": detail}


@dataclass
class Oracle:
    """`ports.Surveyor` that knows scores by service, and fails for those without."""

    scores: dict[str, Mapping[str, int]] = field(default_factory=dict)
    elsewhere: dict[str, int] = field(default_factory=dict)
    asked: list[ServiceSpec] = field(default_factory=list)
    coming: dict[str, str] = field(default_factory=dict)
    """What EC2 announces."""
    gone: set[int] = field(default_factory=set)
    """Versions whose image is gone."""
    findings: tuple[Finding, ...] = ()
    """What a survey finds by itself."""
    refusal: PortError | None = None
    """What AWS answers when it is asked for announced events."""

    def survey(self, spec: ServiceSpec, now: datetime) -> Survey:
        """A survey with the scores that are set; no answer for a service without scores."""
        self.asked.append(spec)
        if spec.service not in self.scores:
            raise Unavailable("DescribeInstanceTypes")
        pools = tuple(CapacityPool("us-east-1", zone, "g5.xlarge") for zone in ("us-east-1a", "us-east-1b"))
        scores = self.scores[spec.service]
        found = Survey(spec.service, spec.asked, now, pools, scores=scores, elsewhere=self.elsewhere)
        return replace(found, findings=self.findings)

    def images(self, spec: ServiceSpec, versions: Collection[int]) -> Mapping[int, Image]:
        """An image for each version; a date only for those that aren't gone."""
        assert self.asked[-1] == spec
        made_at = MemoryClock().now()
        return {v: Image(f"ami-{v}", None if v in self.gone else made_at) for v in versions}

    def announced(self) -> Mapping[str, str]:
        """What is announced, or the refusal."""
        if self.refusal:
            raise self.refusal
        return self.coming


@dataclass
class World:
    """Services, a surveyor and what came of it."""

    services: MemoryServices = field(default_factory=MemoryServices)
    oracle: Oracle = field(default_factory=Oracle)
    store: MemoryStore = field(default_factory=MemoryStore)
    ticker: MemoryTicker = field(default_factory=MemoryTicker)
    telemetry: MemoryTelemetry = field(default_factory=MemoryTelemetry)
    clock: MemoryClock = field(default_factory=MemoryClock)
    written: datetime | PortError | None = None
    """Until when days are written, or why nobody can say."""

    def deploy(self, service: str, **scores: int) -> None:
        """Deploy it; zones by their letter."""
        self.services.specs[service] = demo_spec(service)
        self.oracle.scores[service] = {f"us-east-1{zone}": score for zone, score in scores.items()}

    @property
    def surveying(self) -> Surveying:
        """What is under test."""
        return Surveying(
            self.services,
            self.oracle,
            self.store,
            self.ticker,
            self.telemetry,
            self.clock,
            self._written_until,
        )

    def _written_until(self, _service: str) -> datetime | None:
        if isinstance(self.written, PortError):
            raise self.written
        return self.written

    def known(self, service: str) -> Survey | None:
        """What a launch would know."""
        return self.store.recall(service, "us-east-1", self.clock.now()).survey


@pytest.fixture
def world() -> World:
    """No service yet."""
    return World()


def test_the_schedule_surveys_every_service(world: World) -> None:
    """What was found is kept for each service's launches."""
    world.deploy("chat", a=9, b=2)
    world.deploy("draw", a=5)
    world.surveying.on_event(SCHEDULED)
    chat, draw = world.known("chat"), world.known("draw")
    assert chat
    assert draw
    assert (chat.scores, chat.at, len(chat.pools)) == (
        {"us-east-1a": 9, "us-east-1b": 2},
        world.clock.now(),
        2,
    )
    assert draw.scores == {"us-east-1a": 5}


def test_scores_are_shown(world: World) -> None:
    """Metrics have the pools and the best score; the log line has each zone's, too."""
    world.deploy("chat", a=9, b=2)
    world.surveying.on_event(SCHEDULED)
    assert world.telemetry.counts == {Metric.ELIGIBLE_POOLS: 2, Metric.BEST_PLACEMENT_SCORE: 9}
    ((event, facts),) = world.telemetry.records
    assert (event, facts["service"], facts["best_score"], facts["are_all_scores_low"]) == (
        "surveyed",
        "chat",
        9,
        False,
    )
    assert facts["scores"] == {"us-east-1a": 9, "us-east-1b": 2}


@pytest.mark.parametrize(("scores", "is_low"), [((3, 1), True), ((4, 1), False), ((), False)])
def test_low_scores_everywhere_are_counted(world: World, scores: tuple[int, ...], is_low: bool) -> None:
    """Only if the best zone, too, scores low; unknown scores aren't low ones."""
    world.deploy("chat", **dict(zip("ab", scores, strict=False)))
    world.surveying.on_event(SCHEDULED)
    assert world.telemetry.counts[Metric.ALL_ZONES_SCORE_LOW] == is_low
    assert (Metric.BEST_PLACEMENT_SCORE in world.telemetry.counts) == bool(scores)


def test_images_of_versions_are_looked_at(world: World) -> None:
    """Of the deployed one, and of what replicas have or go back to; one that is gone rings, once for each."""
    world.deploy("chat", a=9)
    spec = demo_spec("chat")
    world.store.keep_document(spec, {v: replace(spec, version=v) for v in (4, 5)})
    world.oracle.gone = {5}
    world.surveying.on_event(SCHEDULED)
    found = world.known("chat")
    assert found
    assert {v: image.id for v, image in found.images.items()} == {v: f"ami-{v}" for v in (spec.version, 4, 5)}
    assert world.telemetry.counts[Metric.IMAGES_GONE] == 1
    (gone,) = (facts for event, facts in world.telemetry.records if event == "image_gone")
    assert (gone["service"], gone["version"], gone["image"]) == ("chat", 5, "ami-5")


def test_what_a_person_must_mend_is_kept_with_the_survey(world: World) -> None:
    """What the survey found itself, images that are gone, and what AWS refuses besides: for ticks to tell."""
    world.deploy("chat", a=9)
    world.oracle.findings = (Finding(FindingKind.QUOTA_SHORT, "0 vCPU"),)
    world.oracle.gone = {demo_spec("chat").version}
    world.oracle.refusal = Denied("not authorized")
    world.surveying.on_event(SCHEDULED)
    found = world.known("chat")
    assert found
    assert [finding.kind for finding in found.findings] == [
        FindingKind.QUOTA_SHORT,
        FindingKind.IMAGE_GONE,
        FindingKind.SURVEY_REFUSED,
    ]
    assert world.telemetry.counts[Metric.SURVEY_REFUSED] == 1
    # The next one that finds nothing has nothing.
    world.oracle.findings, world.oracle.gone, world.oracle.refusal = (), set(), None
    world.surveying.on_event(SCHEDULED)
    found = world.known("chat")
    assert found
    assert found.findings == ()


def test_no_answer_is_nobodys_to_mend(world: World) -> None:
    """A throttle, or a server error: it is counted, and the next survey asks again."""
    world.deploy("chat", a=9)
    world.oracle.refusal = Unavailable("DescribeInstanceStatus")
    world.surveying.on_event(SCHEDULED)
    found = world.known("chat")
    assert found
    assert found.findings == ()
    assert world.telemetry.counts[Metric.SURVEY_UNANSWERED] == 1


def test_a_survey_knows_until_when_days_are_written(world: World) -> None:
    """From the ledger; without days, since when they are awaited, which a failed look doesn't put off."""
    world.deploy("chat", a=9)

    def accounted_at() -> datetime | None:
        world.surveying.on_event(SCHEDULED)
        found = world.known("chat")
        assert found
        return found.accounted_at

    began = world.clock.now()
    assert accounted_at() == began
    world.clock.advance(3600)
    assert accounted_at() == began
    world.written = world.clock.now()
    world.clock.advance(60)
    assert accounted_at() == began + seconds(3600)
    world.written = Unavailable("GetItem")
    assert accounted_at() == began + seconds(3600)


def test_the_controller_hears_what_ec2_announces(world: World) -> None:
    """Of regular replicas that nothing is to replace yet, slots among them; not of others' instances."""
    ready = [a_replica(n, ReplicaState.READY) for n in range(1, 6)]
    rows = [
        ready[0],
        replace(ready[1], replaced_by=3),
        ready[2],
        replace(ready[3], is_fallback=True),
        replace(ready[4], instance_id="i-5:1"),
    ]
    announced = {str(r.instance_id): "instance-stop" for r in ready}
    assert to_be_told(
        Rows(replicas={r.id: r for r in rows}), {**announced, "i-foreign": "instance-stop"}
    ) == {str(ready[n].instance_id): "instance-stop" for n in (0, 2, 4)}
    world.deploy("demo", a=9)
    world.store.commit(Changes("demo", highest_id=(0, 1), serving=(0, 1), create=(ready[0],)))
    world.oracle.coming = {"i-foreign": "instance-stop"}
    world.surveying.on_event(SCHEDULED)
    assert world.ticker.announced == []
    world.oracle.coming = {str(ready[0].instance_id): "instance-stop"}
    world.surveying.on_event(SCHEDULED)
    assert world.ticker.announced == [("demo", world.oracle.coming)]


def read(world: World, **scores: int) -> tuple[tuple[float, Mapping[str, int]], ...]:
    """A survey that finds these scores; what came before it, and how long ago."""
    world.deploy("chat", **scores)
    world.surveying.on_event(SCHEDULED)
    found = world.known("chat")
    assert found
    return tuple(((found.at - one.at).total_seconds(), one.scores) for one in found.earlier)


A9, A1 = {"us-east-1a": 9}, {"us-east-1a": 1}


def test_a_survey_keeps_the_scores_of_the_one_before(world: World) -> None:
    """Only as far back as counts: of an hourly survey that is the last one."""
    assert read(world, a=9) == ()
    world.clock.advance(3600)
    assert read(world, a=1) == ((3600, A9),)
    world.clock.advance(3600)
    assert read(world, a=9) == ((3600, A1),)


def test_surveys_in_short_order_are_kept_up_to_one_that_is_old_enough(world: World) -> None:
    """What a deployment brings is no second reading, and what it found isn't forgotten either."""
    read(world, a=9)
    world.clock.advance(3000)
    read(world, a=1)
    world.clock.advance(20)
    assert read(world, a=9) == ((20, A1), (3020, A9))
    world.clock.advance(timing.SCORES_LAST_S - 20)
    assert read(world, a=9) == ((timing.SCORES_LAST_S - 20, A9), (timing.SCORES_LAST_S, A1))


def test_scores_from_before_a_gap_are_forgotten(world: World) -> None:
    """For so long nobody knows what they were; and other types were scored otherwise."""
    read(world, a=9)
    world.clock.advance(timing.SURVEY_OLD_S)
    assert read(world, a=9) == ((timing.SURVEY_OLD_S, A9),)
    world.clock.advance(timing.SURVEY_OLD_S + 1)
    assert read(world, a=9) == ()
    last = Survey("chat", Requirements(instance_types=("p5.48xlarge",)), world.clock.now(), (), scores=A9)
    world.store.note_survey(last)
    assert read(world, a=9) == ()


LOW = {"us-east-1a": 3, "us-east-1b": 1}
OTHERS = {"us-east-1c": 6, "us-east-1d": 5, "us-east-1": 4, "eu-west-1": 7, "us-west-2": 6}


@pytest.mark.parametrize(
    ("before", "now", "elsewhere", "better"),
    [
        (LOW, LOW, OTHERS, {"us-east-1c": 6, "eu-west-1": 7}),
        (LOW, LOW, {"eu-west-1": 6}, {"eu-west-1": 6}),  # its own region's score is unknown: the best zone's
        (LOW, LOW, {"us-east-1": 10}, {}),  # where it is already
        (LOW, LOW, {}, {}),
        ({**LOW, "us-east-1a": 4}, LOW, OTHERS, {}),  # low in one reading
        (LOW, {**LOW, "us-east-1b": 4}, OTHERS, {}),
        ({"us-east-1a": 3}, LOW, OTHERS, {}),  # nobody knows how long the other was low
        ({}, {}, OTHERS, {}),
    ],
)
def test_better_places_are_named_when_all_zones_are_low(
    before: dict[str, int], now: dict[str, int], elsewhere: dict[str, int], better: dict[str, int]
) -> None:
    """In two surveys in a row, and only what is better by three: a region than its own."""
    at = MemoryClock().now()
    survey = Survey("chat", Requirements(), at, (), scores=now, elsewhere=elsewhere)
    survey = replace(survey, earlier=(Reading(at - seconds(3600), before),))
    assert better_elsewhere(survey, "us-east-1") == better
    assert better_elsewhere(replace(survey, earlier=()), "us-east-1") == {}


def test_a_better_place_is_counted_for_its_service(world: World) -> None:
    """The metric is the service's own, and only there when it holds; the log line has the scores."""
    world.deploy("chat", a=1)
    world.oracle.elsewhere = {"us-east-1c": 9}
    world.surveying.on_event(SCHEDULED)
    assert Metric.BETTER_ELSEWHERE not in world.telemetry.counts
    world.clock.advance(3600)
    world.surveying.on_event(SCHEDULED)
    assert world.telemetry.counts[Metric.BETTER_ELSEWHERE] == 1
    (facts,) = [facts for event, facts in world.telemetry.records if event == "better_elsewhere"]
    assert (facts["service"], facts["scores"]) == ("chat", {"us-east-1c": 9})


def test_a_last_survey_that_cannot_be_read_is_replaced(world: World) -> None:
    """Whatever is wrong with it: it would be wrong for ever."""

    class Forgetful(MemoryStore):
        def recall(self, service: str, region: str, now: datetime) -> PoolMemory:
            raise ValueError("not a survey")

    world.deploy("chat", a=9)
    world.store = Forgetful()
    world.surveying.on_event(SCHEDULED)
    recalled = MemoryStore.recall(world.store, "chat", "us-east-1", world.clock.now())
    assert recalled.survey
    assert recalled.survey.scores == A9
    assert "last_survey_unread" in [event for event, _ in world.telemetry.records]


def test_a_failing_service_holds_up_no_other(world: World) -> None:
    """The others are surveyed; the failure is on record, and raised: Lambda counts it and tries again."""
    world.deploy("a-good", a=9)
    world.services.specs["b-bad"] = demo_spec("b-bad")
    world.deploy("c-good", a=9)
    with pytest.raises(SurveyFailedError, match=r"b-bad: Unavailable.*DescribeInstanceTypes"):
        world.surveying.on_event(SCHEDULED)
    assert world.known("a-good")
    assert world.known("c-good")
    assert world.known("b-bad") is None
    assert ("survey_failed", "b-bad") in [(event, f["service"]) for event, f in world.telemetry.records]


def test_a_deployment_is_surveyed_at_once_and_alone(world: World) -> None:
    """The event of one service's document surveys that service, as it is now."""
    world.deploy("chat", a=9)
    world.deploy("draw", a=5)
    world.services.specs["chat"] = replace(demo_spec("chat"), version=2)
    world.surveying.on_event(deployed("chat", "Update"))
    assert [(spec.service, spec.version) for spec in world.oracle.asked] == [("chat", 2)]


def test_a_removed_service_is_passed_over(world: World) -> None:
    """A document that is gone is no failure: its event, too, comes here."""
    world.surveying.on_event(deployed("chat", "Delete"))
    assert world.oracle.asked == []
    assert world.telemetry.records == []


class Claimed(MemoryServices):
    """Services of which some can't be read, or are another's."""

    def __init__(self, errors: Mapping[str, Exception]) -> None:
        super().__init__()
        self._errors = errors

    def get(self, service: str, *, fresh: bool = False) -> ServiceSpec | None:
        """Fail for some services."""
        if service in self._errors:
            raise self._errors[service]
        return super().get(service, fresh=fresh)


def test_what_another_control_plane_has_is_not_surveyed(world: World) -> None:
    """It is on record and no failure: a failure would be tried again, and raise an alarm for nothing."""
    world.services = Claimed({"chat": OtherControlPlane("it has table other")})
    world.deploy("chat", a=9)
    world.deploy("draw", a=5)
    world.surveying.on_event(SCHEDULED)
    world.surveying.on_event(deployed("chat"))
    assert [spec.service for spec in world.oracle.asked] == ["draw"]
    assert world.known("chat") is None
    records = [(event, facts["why"]) for event, facts in world.telemetry.records if event != "surveyed"]
    assert records == [("not_surveyed", "it has table other")] * 2


def test_a_document_that_cannot_be_read_is_a_failure(world: World) -> None:
    """Of that service: a person must deploy it again. The others are surveyed."""
    world.services = Claimed({"chat": UnreadableDocument("parameter chat: deploy it again")})
    world.deploy("chat", a=9)
    world.deploy("draw", a=5)
    with pytest.raises(SurveyFailedError, match=r"chat: .*deploy it again"):
        world.surveying.on_event(SCHEDULED)
    assert world.known("draw")


def test_an_event_of_another_kind_is_an_error(world: World) -> None:
    """What nobody sends is seen, not ignored."""
    with pytest.raises(MalformedTickError):
        world.surveying.on_event({"source": "aws.s3", "detail": {}})


def test_the_function_surveys_and_writes_its_metrics(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The handler asks the queue, hands the event over, has the days written, and flushes metrics."""
    flushed: list[None] = []
    monkeypatch.setattr(FUNCTION, "surveying", lambda: world.surveying)
    accounted: list[Any] = []
    monkeypatch.setattr(FUNCTION, "ledger", lambda: SimpleNamespace(on_event=accounted.append))
    kept: list[None] = []
    queue = SimpleNamespace(keep_in_use=lambda: kept.append(None))
    monkeypatch.setattr(FUNCTION, "dead_letters", lambda: queue)
    monkeypatch.setattr(FUNCTION.telemetry, "flush", lambda: flushed.append(None))
    world.deploy("chat", a=9)
    FUNCTION.handler(SCHEDULED, Context())
    assert world.known("chat")
    assert accounted == [SCHEDULED]
    world.oracle.scores.clear()
    with pytest.raises(SurveyFailedError):
        FUNCTION.handler(SCHEDULED, Context())
    assert len(flushed) == len(kept) == 2
