"""A start that fails is told at once: in status, explanation, alarm, logs and at deployment."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from lab.demo.operator import Operator
from spotrelay.plane.core.names import Alarm
from spotrelay.plane.core.replica import ReplicaState
from tests.e2e.stand import Stand
from tests.e2e.starts.conftest import STARTS, Command

pytestmark = pytest.mark.slow


def _tells(stand: Stand) -> bool:
    return any(r.is_crashing for r in stand.watch.look().present)


@pytest.mark.parametrize("name", STARTS)
def test_a_start_that_fails_is_told(operator: Operator, spotrelay: Command, name: str) -> None:
    """Long before it is given up: what it said last, what mends it, where more is; and nothing is ended."""
    start, stand = STARTS[name], Stand(operator, name)
    stand.eventually(partial(_tells, stand), f"{name} tells")
    replica = next(r for r in stand.watch.look().present if r.is_crashing)
    assert replica.state is ReplicaState.STARTING

    code, out, err = spotrelay("status", name, "--check")
    assert code == 1, err
    words = " ".join(out.split())
    assert f"replica {replica.id} crashes" in words
    (found,) = spotrelay.json("status", name)["services"]
    assert start.said in found["why"]
    assert start.remedy in found["why"]
    assert f"spotrelay logs {name} {replica.id}" in found["why"]

    story = spotrelay.json("explain", name, str(replica.id))
    facts = {fact["about"]: fact["words"] for fact in story["facts"]}
    assert start.said in facts["why it isn't ready"]

    code, out, err = spotrelay("logs", name, str(replica.id))
    assert code == 0, err
    assert start.said in out

    stand.until_rings(Alarm.CRASH_LOOPING)
    assert stand.watch.look().replicas[replica.id].state is ReplicaState.STARTING


@pytest.mark.timeout(900)
def test_a_deployment_tells_it(operator: Operator, spotrelay: Command, files: Path) -> None:
    """Each of them, while it waits and when it gives up waiting: with the words and the remedy."""
    for name in STARTS:
        stand = Stand(operator, name)
        stand.eventually(partial(_tells, stand), f"{name} tells")
    code, out, err = spotrelay("up", str(files), "--timeout", "4m")  # a busy machine deploys for two
    assert code == 1, err
    for name, start in STARTS.items():
        lines = [line for line in err.splitlines() if f"up: {name} 0/1 ready" in line]
        assert len(lines) == 1, err
        (told,) = lines
        assert start.said in told
        assert start.remedy in told
        assert f"{name} 0/1 ready" in out
