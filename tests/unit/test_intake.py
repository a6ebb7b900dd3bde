"""What becomes of messages: of any message, in any company."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from spotrelay.plane.control.controller import NOTHING, Controller
from spotrelay.plane.control.intake import Intake
from spotrelay.plane.core.held import HeldBack, Override
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.ports import Denied, PortError, Throttled, Unavailable
from spotrelay.plane.events import InterruptionWarning, Signal
from spotrelay.plane.events.ticks import Tick, TickKind, parse_tick
from spotrelay.plane.memory import MemoryDeadLetters, World
from tests.examples import demo_spec

AT = datetime(2026, 11, 21, 7, tzinfo=UTC)
HELD = HeldBack("replica 7 is kept", "EC2 doesn't show it", "it counts as gone", AT)
ODD_HELD: tuple[object, ...] = (
    None,
    7,
    [7],
    [{}],
    [{**HELD.to_values(), "what": 7}],
    [{**HELD.to_values(), "since": ""}],
)
"""What an override can't be given for."""

TOLD = Tick("demo", announced=(("i-1", "instance-stop"), ("i-2", "system-reboot")))

DEEP = "[" * 100_000
DEEP_OBJECT = '{"detail":' * 100_000
LONG = f'{{"source": "aws.ec2", "version": {"9" * 5000}}}'
"""More digits than Python makes a number of."""


class Noted(Controller):
    """A controller that writes down what it is told, and fails if it is to."""

    def __init__(self, world: World) -> None:
        super().__init__(world.ports())
        self.told: list[tuple[object, ...]] = []
        self.error: PortError | None = None

    def handle(self, signals: Sequence[Signal]) -> Sequence[Signal]:
        """Note the signals."""
        self._note("handle", *signals)
        return []

    def tick(
        self,
        service: str,
        serving: datetime | None = None,
        override: Override | None = None,
        announced: Mapping[str, str] = NOTHING,
    ) -> None:
        """Note the tick."""
        self._note("tick", service, serving, override, *([announced] if announced else []))

    def tick_all(self) -> None:
        """Note the tick of all services."""
        self._note("tick_all")

    def leave(self, service: str) -> None:
        """Note the leave."""
        self._note("leave", service)

    def note_removal(self, service: str) -> None:
        """Note the removal."""
        self._note("note_removal", service)

    def _note(self, *what: object) -> None:
        self.told.append(what)
        if self.error:
            raise self.error


class Failing(MemoryDeadLetters):
    """A dead-letter queue that fails for some messages."""

    def __init__(self, error: PortError, *bodies: str) -> None:
        super().__init__()
        self._error, self._bodies = error, bodies

    def set_aside(self, body: str, why: str, source: str) -> None:
        """Fail for some messages."""
        if body in self._bodies:
            raise self._error
        super().set_aside(body, why, source)


@dataclass
class Bench:
    """An intake over a controller that only takes notes."""

    world: World = field(default_factory=lambda: World.of(demo_spec()))
    dead_letters: MemoryDeadLetters = field(default_factory=MemoryDeadLetters)
    controller: Noted = field(init=False)

    def __post_init__(self) -> None:
        self.controller = Noted(self.world)

    @property
    def intake(self) -> Intake:
        """What is under test."""
        return Intake(self.controller, self.dead_letters, self.world.telemetry)

    @property
    def set_aside(self) -> list[str]:
        """The bodies of what was set aside."""
        return [body for body, _, _ in self.dead_letters.letters]


@pytest.fixture
def bench() -> Bench:
    """One service, and an empty dead-letter queue."""
    return Bench()


def warning(instance_id: str) -> str:
    """An interruption warning, as the queue carries it."""
    return json.dumps(
        {
            "source": "aws.ec2",
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "time": AT.isoformat(),
            "detail": {"instance-id": instance_id, "instance-action": "terminate"},
        }
    )


def event(**fields: object) -> str:
    """That warning, with some of it as no EventBridge would send it."""
    return json.dumps({**json.loads(warning("i-1")), **fields})


@pytest.mark.parametrize(
    "body",
    [
        "",
        "not JSON",
        "null",
        "7",
        pytest.param(DEEP, id="deep"),
        pytest.param(DEEP_OBJECT, id="deep-object"),
        pytest.param(LONG, id="long"),
        event(detail=[]),
        event(detail={"instance-id": ["i-1"]}),
        event(time=7),
        event(time={"at": "noon"}),
        event(time="0001-01-01T00:00:00+01:00"),
    ],
)
def test_what_cannot_be_read_is_set_aside_alone(bench: Bench, body: str) -> None:
    """Whatever a message is, it goes to the dead letters whole and with a reason; the warning is met."""
    bodies = {"m0": body, "m1": warning("i-1"), "m2": body}
    assert bench.intake.signals(bodies) == []
    assert bench.controller.told == [("handle", InterruptionWarning("i-1", AT, "terminate"))]
    assert bench.set_aside == [body, body]
    assert all(0 < len(why) <= 1000 for _, why, _ in bench.dead_letters.letters)
    assert bench.world.telemetry.counts[Metric.MESSAGES_MALFORMED] == 2


@pytest.mark.parametrize("id_", ["\0", "\ud800", "x" * 5000], ids=["control", "surrogate", "long"])
def test_the_reason_is_text_that_sqs_takes(bench: Bench, id_: str) -> None:
    """It quotes the event's ID, whatever that is: a letter that SQS refuses would come again and again."""
    assert bench.intake.signals({"m0": event(id=id_, detail={})}) == []
    ((_, why, _),) = bench.dead_letters.letters
    assert why.startswith("MalformedEventError")
    assert why.isprintable()
    assert len(why) <= 1000


@pytest.mark.parametrize(
    "body",
    [
        event(**{"detail-type": ["EC2 Spot Instance Interruption Warning"]}),
        event(**{"detail-type": {}}),
        event(**{"detail-type": None}),
        event(source=["aws.ec2"]),
        event(source="aws.s3"),
        "{}",
    ],
)
def test_what_is_not_for_us_is_counted(bench: Bench, body: str) -> None:
    """An event of a type that we don't know, or that is no text, is ignored: neither letter nor repeat."""
    assert bench.intake.signals({"m0": body, "m1": warning("i-1")}) == []
    assert bench.controller.told == [("handle", InterruptionWarning("i-1", AT, "terminate"))]
    assert bench.set_aside == []
    assert bench.world.telemetry.counts[Metric.SIGNALS_IGNORED] == 1


@pytest.mark.parametrize("error", [Throttled("SendMessage"), Unavailable("SendMessage"), Denied("no", "x")])
def test_dead_letters_that_fail_hold_up_nobody_else(error: PortError) -> None:
    """Only the message that couldn't be set aside comes again: the warning beside it is met, once."""
    bench = Bench(dead_letters=Failing(error, "bad"))
    bodies = {"m0": "bad", "m1": warning("i-1"), "m2": "worse", "m3": warning("i-2")}
    assert bench.intake.signals(bodies) == ["m0"]
    ((_, *signals),) = bench.controller.told
    assert signals == [InterruptionWarning(i, AT, "terminate") for i in ("i-1", "i-2")]
    assert bench.set_aside == ["worse"]


def test_dead_letters_that_fail_hold_up_no_replacement() -> None:
    """The same with the real controller: what is warned is replaced at once, whatever else was delivered."""
    world = World.of(demo_spec())
    controller = Controller(world.ports())
    controller.tick("demo")
    victim = world.store.load("demo").replicas[1]
    assert victim.instance_id is not None
    intake = Intake(controller, Failing(Throttled("SendMessage"), DEEP), world.telemetry)
    assert intake.signals({"m0": DEEP, "m1": warning(victim.instance_id)}) == ["m0"]
    rows = world.store.load("demo").replicas
    assert rows[1].is_warned
    assert rows[1].replaced_by in rows


def test_a_batch_that_failed_as_a_whole_comes_again(bench: Bench) -> None:
    """If nothing could be told about any signal, all of them come again, and nothing that was set aside."""
    bench.controller.error = Unavailable("BatchGetItem")
    bodies = {"m0": "bad", "m1": warning("i-1"), "m2": event(source="aws.s3"), "m3": warning("i-2")}
    assert bench.intake.signals(bodies) == ["m1", "m3"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"service": "demo"}, ("tick", "demo", None, None)),
        ({"service": "demo", "due": AT.isoformat()}, ("tick", "demo", AT, None)),
        ({"service": "demo", "due": None, "kind": "tick"}, ("tick", "demo", None, None)),
        ({"service": "demo", "due": None, "kind": "leave"}, ("leave", "demo")),
        ({"service": "demo", "kind": "removed"}, ("note_removal", "demo")),
        ({"service": "demo", "announced": {"i-1": "stop"}}, ("tick", "demo", None, None, {"i-1": "stop"})),
        ({"service": "demo", "kind": "override"}, ("tick", "demo", None, Override())),
        (
            {"service": "demo", "kind": "override", "given_at": AT.isoformat(), "held": [HELD.to_values()]},
            ("tick", "demo", None, Override(frozenset({HELD}), AT)),
        ),
        ({"service": "demo", "kind": "override", "tries": 3}, ("tick", "demo", None, Override(tries=3))),
        ({"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}, ("tick_all",)),
        (
            {"source": "aws.ssm", "detail": {"operation": "Update", "name": "/spotrelay/services/demo"}},
            ("tick", "demo", None, None),
        ),
        (
            {"source": "aws.ssm", "detail": {"operation": "Delete", "name": "/spotrelay/services/demo"}},
            ("note_removal", "demo"),
        ),
    ],
)
def test_each_kind_of_message_is_what_it_asks_for(
    bench: Bench, body: dict[str, object], told: tuple[object, ...]
) -> None:
    """A message reaches the one method of the controller that is for it."""
    bench.intake.tick(json.dumps(body))
    assert bench.controller.told == [told]
    assert bench.set_aside == []


@pytest.mark.parametrize("tick", [Tick("demo"), Tick("demo", AT), Tick("demo", kind=TickKind.LEAVE), TOLD])
def test_what_is_queued_is_what_arrives(tick: Tick) -> None:
    """Whoever announces a tick and whoever runs it mean the same; what names no kind is a plain one."""
    assert parse_tick(tick.to_json()) == tick
    assert parse_tick('{"service": "demo"}') == Tick("demo")


def test_no_kind_is_forgotten(bench: Bench) -> None:
    """Whatever kind there is, also one that is added later, does something."""
    for kind in TickKind:
        bench.controller.told.clear()
        bench.intake.tick(json.dumps({"service": "demo", "kind": kind.value}))
        assert len(bench.controller.told) == 1, kind


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"service": "demo", "kind": "remove"}),
        json.dumps({"service": "demo", "kind": None}),
        json.dumps({"service": "demo", "kind": {}}),
        json.dumps({"service": ["demo"], "kind": "removed"}),
        json.dumps({"service": None, "kind": "removed"}),
        json.dumps({"kind": "override"}),
        *(
            json.dumps({"service": "demo", "kind": "override", "given_at": AT.isoformat(), "held": held})
            for held in ODD_HELD
        ),
        json.dumps({"service": "demo", "kind": "override", "held": []}),
        json.dumps({"service": "demo", "kind": "override", "held": [], "given_at": "2026-11-21T07:00:00"}),
        *(
            f'{{"service": "demo", "kind": "override", "tries": {tries}}}'
            for tries in ("-100", '"3"', "1.5", "null", "true", "1e999", "[]")
        ),
        json.dumps({"service": "demo", "announced": ["i-1"]}),
        json.dumps({"service": "demo", "announced": None}),
        json.dumps({"service": "../secrets/token"}),
        json.dumps({"service": "demo\n"}),
        json.dumps({"service": "d" * 25}),
        json.dumps({"source": "aws.ssm", "detail": {"operation": "Delete", "name": "/spotrelay/services/"}}),
        json.dumps({"service": "demo", "due": 7}),
        json.dumps({"service": "demo", "due": "2026-11-21T07:00:00"}),
        "null",
        pytest.param(f'{{"service": "demo", "due": {"9" * 5000}}}', id="long"),
        pytest.param(DEEP, id="deep"),
        pytest.param(DEEP_OBJECT, id="deep-object"),
        "",
    ],
)
def test_a_message_of_no_known_kind_does_nothing(bench: Bench, body: str) -> None:
    """What isn't clear ends or changes nothing: it is set aside whole, with a reason."""
    bench.intake.tick(body)
    assert bench.controller.told == []
    assert bench.set_aside == [body]
    counts = bench.world.telemetry.counts
    assert (counts[Metric.TICKS_MALFORMED], counts[Metric.MESSAGES_MALFORMED]) == (1, 0)
    ((_, why, _),) = bench.dead_letters.letters
    assert 0 < len(why) <= 1000


@pytest.mark.parametrize("kind", TickKind)
def test_a_message_that_failed_comes_again(bench: Bench, kind: TickKind) -> None:
    """What couldn't be done is raised, whatever was asked: SQS delivers it again."""
    bench.controller.error = Throttled("UpdateItem")
    with pytest.raises(Throttled):
        bench.intake.tick(json.dumps({"service": "demo", "kind": kind.value}))
    records = bench.world.telemetry.records
    assert records[-1] == ("tick_failed", {"service": "demo", "error": repr(Throttled("UpdateItem"))})


def test_a_message_that_could_not_be_set_aside_comes_again() -> None:
    """Also one that isn't clear, while the dead-letter queue can't take it."""
    bench = Bench(dead_letters=Failing(Throttled("SendMessage"), "{}"))
    with pytest.raises(Throttled):
        bench.intake.tick("{}")


@pytest.mark.parametrize("held", [frozenset[HeldBack](), frozenset({HELD})])
@pytest.mark.parametrize("given_at", [AT, None])
def test_how_often_an_override_has_come_goes_with_it(
    held: frozenset[HeldBack], given_at: datetime | None
) -> None:
    """Through the queue and back; a command of before says neither what it is for nor when it was given."""
    given = Override(held if given_at else frozenset(), given_at, tries=3)
    parsed = parse_tick(Tick("demo", kind=TickKind.OVERRIDE, override=given).to_json()).override
    assert (parsed, parsed.tries) == (given, 3)
