"""A local cloud of its own: its faults must not strike other tests, nor 200 replicas slow them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.demo.operator import Operator
from lab.demo.settings import DemoSettings
from spotrelay.plane.core.replica import Replica
from tests.e2e import deploying
from tests.e2e.conftest import WARNING_S
from tests.e2e.faults.bench import Bench

LIGHT_FILE = Path(__file__).parent / "light.yaml"

REPLICAS_TO_KILL = 8
"""Six are lost while nobody notes that a replacement is ready, and one or two more if a fault is missed."""


@pytest.fixture(scope="package")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The unmodified app with two services: the demo's, and one with light replicas."""
    settings = DemoSettings(WARNING_S, tmp_path_factory.mktemp("faults"))
    with deploying.deployed(settings, tmp_path_factory.mktemp("scratch"), [LIGHT_FILE]) as operator:
        yield operator


@pytest.fixture
def fresh(operator: Operator) -> Iterator[Bench]:
    """The light service while nothing happens to either.

    What is under way when an outage begins would use up its attempts in it, and be set aside.
    """
    Bench(operator, "demo").settled()
    bench = Bench(operator, "light")
    bench.settled()
    bench.nothing_is_under_way()
    yield bench
    bench.cloud.clear_faults()


@dataclass(frozen=True, slots=True)
class Killed:
    """The demo's service after its functions were killed in the middle of things."""

    bench: Bench
    regulars: int
    """Replicas that there had been before, fallbacks apart."""
    losses: int
    replica: Replica
    """What the killed tick was to replace."""
    orphan: str
    """The instance that it launched, and did not live to record."""


@pytest.fixture(scope="package")
def killed(operator: Operator) -> Killed:
    """A tick killed after its launch, and signal functions at every turn.

    What a dead tick leaves is a lease, and what a function leaves that dies before its launch is an intent:
    each holds for a minute. So this happens first, to one service, and is looked at when the tests that hurt
    the other one have filled the minute.
    """
    bench = Bench(operator, "demo")
    bench.want(REPLICAS_TO_KILL)
    before = bench.settled()
    replica = bench.victim()
    bench.cloud.inject_fault("CreateFleet", role=bench.reconcile, kill=True, after=True)
    bench.warn(replica, deliver="lost")
    bench.struck()
    (orphan,) = {i["instance_id"] for i in bench.cloud.instances() if i["service"] == "demo"}.difference(
        before.instances
    )
    losses = 1
    losses += bench.strike("TransactWriteItems", kill=True, after=True)
    losses += bench.strike("UpdateItem", kill=True, after=True)  # a tick that is announced, and never sent
    losses += bench.strike("CreateFleet", kill=True, after=True)
    # The last two have their work still before them, and meet no other killer when it is delivered again.
    losses += bench.strike("DeregisterTargets", kill=True, after=True)
    losses += bench.strike("BatchGetItem", kill=True)
    return Killed(bench, before.regulars, losses, replica, orphan)


@pytest.fixture
def light(operator: Operator, killed: Killed) -> Iterator[Bench]:
    """The light service, whole; the other one recovers meanwhile."""
    bench = Bench(operator, "light")
    bench.settled()
    yield bench
    bench.cloud.clear_faults()
