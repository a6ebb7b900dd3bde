"""What a start has reached is told: while it lasts by the control plane, afterwards by the instance, too."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lab.demo.operator import Operator
from spotrelay.plane.core.replica import ReplicaState
from tests.e2e.models.conftest import Command
from tests.e2e.stand import Stand

pytestmark = pytest.mark.slow  # with the deployment of its package

OF_INSTANCES = [["set-up"], ["load"]]

QUICK = {"launch", "boot", "files"}
"""A local instance may have all of it behind it before EC2's answer is on record: then they took no time."""


def _stretches(spotrelay: Command) -> list[dict[str, Any]]:
    """Of the only start there is."""
    (start,) = spotrelay.json("cold-start", "held")["starts"]
    found: list[dict[str, Any]] = start["stretches"]
    return found


def test_where_the_time_of_a_start_went(operator: Operator, spotrelay: Command, go: Path) -> None:
    """Status says how far one is; once it serves, each part is told by itself, as long as it was."""
    stand = Stand(operator, "held")
    stand.eventually(
        lambda: [r.state for r in stand.watch.look().present] == [ReplicaState.STARTING], "it starts"
    )
    (replica,) = stand.watch.look().present
    looked_at = time.monotonic()
    (found,) = spotrelay.json("status", "held")["services"]
    (row,) = found["replicas"]
    assert re.fullmatch(r"request \S+ s, launch \S+ s, then .* so far", row["note"])
    assert _stretches(spotrelay)[-1]["took_s"] is None

    held_s = time.monotonic() - looked_at
    go.touch()
    stand.whole(1)
    # A tick that was quicker than EC2's console leaves it to the next.
    stand.eventually(
        lambda: [s["parts"] for s in _stretches(spotrelay) if s["parts"] in OF_INSTANCES] == OF_INSTANCES,
        "what its instance told is on record",
    )
    stretches = _stretches(spotrelay)
    parts = [part for stretch in stretches for part in stretch["parts"]]
    assert [p for p in parts if p not in QUICK] == ["request", "set-up", "load", "registration", "check"]
    assert all(stretch["ends"] == after["begins"] for stretch, after in pairwise(stretches))
    took = {stretch["parts"][0]: stretch["took_s"] for stretch in stretches}
    assert took["set-up"] >= held_s

    story = spotrelay.json("explain", "held", str(replica.id))
    (told,) = (fact["words"] for fact in story["facts"] if fact["about"] == "start")
    assert re.search(r"set-up \S+ s, load .*, registration ", told)
    code, out, err = spotrelay("cold-start", "held")
    assert code == 0, err
    assert "the load balancer's own check" in out
