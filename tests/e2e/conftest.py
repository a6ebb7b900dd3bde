"""One local cloud and one deployment, a dozen seconds to make, for all tests that don't bring their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.demo.settings import DemoSettings
from spotrelay.operator.look.watch import Snapshot
from tests.e2e import deploying
from tests.e2e.stand import Stand

HERE = Path(__file__).parent

WARNING_S = 12.0
"""Short, because tests wait for reclaims; a replacement serves sooner than this."""

SLOW = ("availability", "chains", "counted", "faults", "lifecycle", "no_harm", "rollouts", "walk")
"""Groups whose tests wait for minutes together: what is damaged, cut off or given up must be seen to come
back. `make test` runs the others: losses, drills, alarms, events, permissions, what operators see."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups, and pytest the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test here, and keep those of one deployment in one worker, so that it is made once."""
    for item in items:
        if HERE in item.path.parents:
            group = _group(item)
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.xdist_group(group))
            if group in SLOW:
                item.add_marker(pytest.mark.slow)


def _group(item: pytest.Item) -> str:
    """The deployment that it needs: its directory's, the one for all here, or its module's own, if any."""
    if item.path.parent != HERE:
        return item.path.parent.name
    return "e2e" if "deployed" in getattr(item, "fixturenames", ()) else item.path.stem


@pytest.fixture(scope="session")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """The unmodified app with services/demo.yaml in a local cloud of its own."""
    settings = DemoSettings(WARNING_S, tmp_path_factory.mktemp("e2e"))
    with deploying.deployed(settings, tmp_path_factory.mktemp("scratch")) as operator:
        yield Stand(operator)


@pytest.fixture
def stand(deployed: Stand) -> Stand:
    """The deployment with a whole fleet and an empty dead-letter queue, whatever the test before has left."""
    deployed.whole(deployed.spec.replicas)
    deployed.dead_letters()
    return deployed


@dataclass(frozen=True)
class Rescaled:
    """A service that was scaled from three replicas to two and back."""

    before: Snapshot
    fewer: Snapshot
    more: Snapshot
    instance_states: Mapping[int, str]
    """By replica, what EC2 said when there were fewer."""


@pytest.fixture(scope="session")
def rescaled(deployed: Stand) -> Rescaled:
    """Once for all: it is the one way to a termination that lasts seconds only."""
    before = deployed.whole(deployed.spec.replicas)
    deployed.want(2)
    fewer = deployed.whole(2)
    states = {i["instance_id"]: i["state"] for i in deployed.cloud.instances()}
    deployed.want(3)
    ids = {r.id: r.instance_id for r in fewer.replicas.values()}
    seen = {id_: states[instance] for id_, instance in ids.items() if instance in states}
    return Rescaled(before, fewer, deployed.whole(3), seen)
