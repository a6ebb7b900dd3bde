"""The entry points: what they make of a queue's messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pytest

from lambdas import on_signal, reconcile
from spotrelay.plane.control.controller import Controller
from spotrelay.plane.control.intake import Intake
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.ports import Throttled
from spotrelay.plane.memory import MemoryDeadLetters, World
from tests.examples import demo_spec
from tests.unit.invocations import Context


@dataclass
class Functions:
    """Both functions, over one world in memory."""

    world: World
    controller: Controller
    dead_letters: MemoryDeadLetters


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> Functions:
    """A service of three replicas, of which none exists yet."""
    world = World.of(demo_spec())
    made = Functions(world, Controller(world.ports()), MemoryDeadLetters())
    intake = Intake(made.controller, made.dead_letters, world.telemetry)
    for module in (on_signal, reconcile):
        monkeypatch.setattr(module, "intake", lambda: intake)
    return made


def call(module: ModuleType, *bodies: str) -> list[str]:
    """Invoke the module's handler with messages `m0`, `m1`, …; the ones to be delivered again."""
    records = [{"messageId": f"m{n}", "body": body} for n, body in enumerate(bodies)]
    answer: Mapping[str, Any] = module.handler({"Records": records}, Context())
    return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def event(detail_type: str, instance_id: str | None, **detail: str) -> str:
    """An EventBridge event of EC2's, as the queue carries it."""
    identity = {"instance-id": instance_id} if instance_id else {}
    return json.dumps(
        {
            "source": "aws.ec2",
            "detail-type": detail_type,
            "time": datetime.now(UTC).isoformat(),
            "detail": identity | detail,
        }
    )


WARNING = "EC2 Spot Instance Interruption Warning"
SCHEDULED = json.dumps({"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}})


def test_one_bad_message_does_not_spoil_its_batch(functions: Functions) -> None:
    """Malformed ones are set aside with the reason, unknown ones counted, and the warning is acted on."""
    functions.controller.tick("demo")
    victim = functions.world.store.load("demo").replicas[1]
    bodies = [
        "not JSON",
        event(WARNING, None),
        event("EC2 Something New", "i-1"),
        event(WARNING, "i-foreign"),
        event(WARNING, victim.instance_id),
    ]
    assert call(on_signal, *bodies) == []
    assert [body for body, _, _ in functions.dead_letters.letters] == bodies[:2]
    assert "has no instance-id" in functions.dead_letters.letters[1][1]
    counts = functions.world.telemetry.counts
    assert (counts[Metric.SIGNALS_IGNORED], counts[Metric.MESSAGES_MALFORMED]) == (1, 2)
    assert counts[Metric.FOREIGN_INSTANCES] == 1
    assert functions.world.store.load("demo").replicas[1].is_warned


def test_only_what_failed_is_delivered_again(functions: Functions) -> None:
    """If the table can't be read, the signals come back, and a malformed one doesn't."""

    def throttled(instance_ids: object) -> Mapping[str, tuple[str, int]]:
        raise Throttled("BatchGetItem")

    functions.world.store.locate = throttled  # type: ignore[method-assign]  # the fault under test
    assert call(on_signal, "not JSON", event(WARNING, "i-1"), event(WARNING, "i-2")) == ["m1", "m2"]


def test_the_schedule_fans_out_to_a_tick_per_service(functions: Functions) -> None:
    """Each minute, every service gets a message of its own; a malformed tick is set aside."""
    assert call(reconcile, SCHEDULED, "{}") == []
    assert functions.world.ticker.scheduled == [("demo", None, 0)]
    assert len(functions.dead_letters.letters) == 1


def test_a_tick_message_ticks_its_service(functions: Functions) -> None:
    """The message names the service, and what is missing there is launched."""
    assert call(reconcile, json.dumps({"service": "demo", "due": None})) == []
    assert len(functions.world.store.load("demo").replicas) == 3
