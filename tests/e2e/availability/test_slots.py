"""Replicas that share instances, on the whole stack."""

from __future__ import annotations

from functools import partial

from lab.demo.operator import Operator
from spotrelay.plane.core.slots import host
from tests.e2e.clients import Client, Requests
from tests.e2e.faults.bench import Bench

SINGLE = "g4dn.xlarge"
LARGE = "g4dn.12xlarge"

REPLICAS = 4
"""As many as a g4dn.12xlarge has GPUs."""

RATE = 10.0
"""Requests a second, so that many fall between any two steps of what is done."""


def test_four_that_share_an_instance_leave_together_and_come_back_on_four(operator: Operator) -> None:
    """EC2 takes the instance and has no other such one: one warning is for all four, and no request fails."""
    bench = Bench(operator, "shared")
    bench.cloud.dry_up(instance_type=SINGLE, warn=False)
    bench.want(REPLICAS)
    before = bench.whole(REPLICAS).ready
    (shared,) = {host(str(r.instance_id)) for r in before}
    assert len({r.instance_id for r in before}) == REPLICAS
    bench.cloud.bring_back(instance_type=SINGLE)
    with Requests(partial(Client(bench).ask, "GET", "/"), RATE) as requests:
        bench.cloud.dry_up(instance_type=LARGE, warn=False)
        bench.cloud.warn(shared)
        seen = bench.watch.until(
            lambda seen: (
                {r.id for r in seen.ready}.isdisjoint(r.id for r in before) and len(seen.ready) == REPLICAS
            ),
            "four others serve",
            150,
        )
    assert len({host(str(r.instance_id)) for r in seen.ready}) == REPLICAS
    assert requests.statuses == {200}, requests.answers
    ids = {r.id for r in before}
    ended = [r for r in bench.operator.store.history("shared", 100) if r.id in ids]
    left = [r for r in bench.watch.look().replicas.values() if r.id in ids]
    warned = {r.warned_at for r in (*ended, *left)}
    assert len(warned) == 1
    assert None not in warned
    bench.cloud.bring_back(instance_type=LARGE)
    bench.want(0)  # what EC2 takes back is there until its two minutes are over
