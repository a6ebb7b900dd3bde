"""What somebody may send or tag who means harm: all others go on serving, and nobody's instance is touched.

A hundred of each are tried here; `pytest --hypothesis-profile long` tries 100,000.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas import probe
from spotrelay.plane.control.intake import Intake
from spotrelay.plane.core import timing
from spotrelay.plane.core.ports import Unavailable
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.events.ticks import TickKind
from spotrelay.plane.memory import MemoryClock, MemoryDeadLetters
from tests.unit.worlds import active, alive, in_rotation, instance_of, rows, serving, settle, warn

ODD: st.SearchStrategy[object] = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just([]) | st.just({})
)
VALUES = st.recursive(
    ODD,
    lambda deeper: st.lists(deeper, max_size=3) | st.dictionaries(st.text(max_size=9), deeper, max_size=3),
)

NOW = MemoryClock().now()
TIMES = st.sampled_from([NOW + timedelta(seconds=at) for at in (-1e8, -3600, -120, 0, 60, 1e8)]).map(str)
VICTIM, FOREIGN = "i-00000000000000001", "i-foreign"
"""The first that the fleet starts, and one that isn't ours."""

DETAILS = {
    "EC2 Spot Instance Interruption Warning": {"instance-action": "terminate"},
    "EC2 Instance Rebalance Recommendation": {},
    "EC2 Instance State-change Notification": {"state": "terminated"},
    "AWS API Call via CloudTrail": {},
}


@st.composite
def events(draw: st.DrawFn) -> str:
    """As EC2 sends them, about one replica or a foreign instance, with any part of it as nobody would."""
    kind = draw(st.sampled_from(sorted(DETAILS)))
    ours = st.sampled_from([VICTIM, FOREIGN, f"{VICTIM}:8082", ""])
    detail: dict[str, Any] = {**DETAILS[kind], "instance-id": draw(ours | VALUES)}
    if draw(st.booleans()):
        detail["state"] = draw(st.sampled_from(["pending", "running", "stopped", "terminated"]) | VALUES)
    event: dict[str, Any] = {"source": "aws.ec2", "detail-type": kind, "time": draw(TIMES), "detail": detail}
    for field in draw(
        st.lists(st.sampled_from(["source", "detail-type", "time", "detail", "id"]), max_size=2)
    ):
        event[field] = draw(VALUES)
    return json.dumps(event)


@st.composite
def ticks(draw: st.DrawFn) -> str:
    """As our own functions send them, with any part of it as they wouldn't."""
    tick: dict[str, Any] = {
        "service": draw(st.sampled_from(["demo", "other", "../secrets/token"]) | VALUES),
        "kind": draw(st.sampled_from(list(TickKind)) | VALUES),
        "due": draw(TIMES | VALUES),
        "given_at": draw(TIMES | VALUES),
        "held": draw(VALUES),
        "tries": draw(VALUES | st.integers() | st.just(float("inf"))),
    }
    for field in draw(st.sets(st.sampled_from(sorted(tick)))):
        del tick[field]
    return json.dumps(tick)


@given(
    st.lists(events() | VALUES.map(json.dumps) | st.text(max_size=30), max_size=6),
    st.lists(ticks(), max_size=4),
)
def test_no_message_about_one_costs_another(bodies: list[str], asked: list[str]) -> None:
    """Its replica may be replaced, which is what a warning is for; the others never leave the rotation."""
    world, controller = serving()
    first, *others = map(instance_of, active(world))
    assert first == VICTIM
    world.fleet.instances[FOREIGN] = replace(
        world.fleet.instances[VICTIM], id=FOREIGN, launch_template_id=None
    )
    world.fleet.services[FOREIGN] = "demo"
    intake = Intake(controller, MemoryDeadLetters(), world.telemetry)
    intake.signals({f"m{n}": body for n, body in enumerate(bodies)})
    for body in asked:
        intake.tick(body)
        assert in_rotation(world) >= set(others)
    settle(world, controller)
    assert in_rotation(world) >= set(others)
    assert alive(world) >= {*others, FOREIGN}
    assert FOREIGN not in {r.instance_id for r in active(world)} | in_rotation(world)


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "launch_template_id": st.sampled_from([None, "lt-of-somebody-else"]),
                "version": st.sampled_from([None, 1, 10**9]),
                "highest_id": st.sampled_from([0, 4, 10**9]),
                "slots": st.sampled_from([1, 4]),
            }
        ),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["open", "closed", "forged", None]),
    st.booleans(),
)
def test_no_tags_make_an_instance_ours(
    tagged: list[dict[str, Any]], launch: str | None, is_service_tagged: bool
) -> None:
    """Whatever they say, and while a launch is open that got no answer: no row, no requests, no end."""
    world, controller = serving()
    victim = active(world)[0]
    world.lose("fleet.launch", Unavailable("no answer"))
    controller.handle(warn(world, victim))
    (open_one,) = rows(world).intents
    mine = world.fleet.instances[instance_of(victim)]
    launch_id = {"open": open_one, "closed": mine.launch_id, "forged": "forged"}.get(launch or "")
    foreign = {f"{FOREIGN}-{n}": facts for n, facts in enumerate(tagged)}
    for id_, facts in foreign.items():
        world.fleet.instances[id_] = replace(mine, id=id_, launch_id=launch_id, **facts)
        world.fleet.services[id_] = "demo" if is_service_tagged else "nobody"
    settle(world, controller)
    world.clock.advance(timing.ORPHAN_GRACE_S)
    settle(world, controller)
    assert alive(world) >= foreign.keys()
    assert not foreign.keys() & ({r.instance_id for r in active(world)} | in_rotation(world))
    assert sum(r.state is ReplicaState.READY for r in active(world)) >= 3
    assert rows(world).highest_id < 10


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "127.255.255.254"])
def test_nobody_has_the_prober_ask_itself(host: str) -> None:
    """On loopback is its own runtime interface, which gives out the next invocation."""
    itself = f"http://{host}:9001/2018-06-01/runtime/invocation/next"
    with pytest.raises(ValueError, match=re.escape(itself)):
        probe.handler({"urls": {"i-1": itself}, "timeout_s": 1}, object())
