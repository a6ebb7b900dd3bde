"""The number of replicas follows the load, as a SkyServe file's `replica_policy` says it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from functools import partial

import pytest

from spotrelay.operator.look.watch import Snapshot
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.rows import ScaleRequest, Source
from spotrelay.plane.core.scaling import Scaling
from tests.e2e.clients import Answer, Client, Requests
from tests.e2e.skyserve.conftest import Deployed
from tests.e2e.stand import WITHIN_S, Stand

MINUTES_S = 120.0
"""A minute, and the one for which it isn't taken for complete; see `spotrelay.plane.aws.loads`."""

MEASURED = 3
"""Requests at the low rate that are enough for a minute to have some."""

SCALED_WITHIN_S = 2 * WITHIN_S
"""What is known of the load is kept for 45 s, its delay is 10 s, and replicas come or go then."""

pytestmark = pytest.mark.timeout(4 * SCALED_WITHIN_S)


@pytest.fixture
def scaled(deployed_files: Deployed) -> Iterator[Stand]:
    """The service whose number follows the load, with its one replica while nobody asks."""
    stand = deployed_files.stand("tgi-service")
    before = _scaling(stand)
    _ready(stand, before.min_replicas)
    yield stand
    stand.change(scaling=asdict(before))


@pytest.mark.slow
def test_the_number_follows_a_ramp_and_back(scaled: Stand) -> None:
    """From 1 request a second to 50 and back: one replica, all, one, after the delays; no request fails."""
    scaling, ask = _scaling(scaled), _asking(scaled)
    assert (scaling.min_replicas, scaling.max_replicas) == (1, 5)
    with Requests(ask, rate=1) as few:
        rise = Asked(scaled, lambda request: request.rising_since)
        with Requests(ask, rate=49) as many:
            rise.until(lambda seen: len(seen.ready) == 5, "all")
        (first, *others) = _entered(scaled, ReplicaState.REQUESTED)
        assert first < rise.since
        assert min(others) - rise.since >= timedelta(seconds=scaling.upscale_delay_s)

        fall, counted = Asked(scaled, lambda request: request.falling_since), few.answers.total()
        _minutes_pass(scaled)
        fall.until(lambda _: few.answers.total() >= counted + MEASURED, "requests at the low rate")
        _minutes_pass(scaled)
        fall.until(lambda seen: len(seen.ready) == 1, "one replica")
        left = min(_entered(scaled, ReplicaState.DRAINING))
        assert left - fall.since >= timedelta(seconds=scaling.downscale_delay_s)
        (last,) = scaled.watch.look().ready
        assert last.purchase_option is PurchaseOption.ON_DEMAND, "the base"
    assert few.statuses | many.statuses == {200}


def test_the_first_request_wakes_a_service_that_has_no_replica(scaled: Stand) -> None:
    """Where nobody asks, none is left. The first request is told so, and brings one, which answers."""
    scaling, ask = replace(_scaling(scaled), min_replicas=0), _asking(scaled)
    fall = Asked(scaled, lambda request: request.falling_since)
    scaled.change(scaling=asdict(scaling))
    _minutes_pass(scaled)
    _minutes_pass(scaled)
    fall.until(lambda seen: not seen.ready, "no replica")
    left = max(_entered(scaled, ReplicaState.DRAINING))
    assert left - fall.since >= timedelta(seconds=scaling.downscale_delay_s)
    assert ask().status == 503
    _ready(scaled, 1)
    scaled.eventually(lambda: ask().status == 200, "an answer")


class Asked:
    """Since when the load has been asking for another number, by the requests on record."""

    def __init__(self, stand: Stand, since: Callable[[ScaleRequest], datetime | None]) -> None:
        self._stand = stand
        self._since = since
        self._found: list[datetime] = []

    @property
    def since(self) -> datetime:
        """When it began to; it may be asking for one more, and a minute later for three."""
        assert self._found, "the number changed, and the load had never been seen to ask for it"
        return self._found[0]

    def until(self, is_so: Callable[[Snapshot], bool], what: str) -> None:
        """Wait, and note meanwhile what is on record."""

        def look(seen: Snapshot) -> bool:
            request = self._stand.operator.store.load(self._stand.service).requests.get(Source.LOAD)
            if request and (at := self._since(request)):
                self._found.append(at)
            return is_so(seen)

        self._stand.watch.until(look, what, SCALED_WITHIN_S)


def _scaling(stand: Stand) -> Scaling:
    scaling = stand.spec.scaling
    assert scaling is not None
    return scaling


def _asking(stand: Stand) -> Callable[[], Answer]:
    return partial(Client(stand).ask, "GET", "/health")


def _minutes_pass(stand: Stand) -> None:
    """CloudWatch has all that was until now, of a minute that is complete."""
    stand.cloud.age_metrics(MINUTES_S)


def _ready(stand: Stand, replicas: int) -> None:
    stand.watch.until(lambda seen: len(seen.ready) == replicas, f"{replicas} that serve", SCALED_WITHIN_S)


def _entered(stand: Stand, state: ReplicaState) -> list[datetime]:
    """When each replica that was ever in the state came into it, earliest first."""
    return sorted(r.entered[state] for r in stand.watch.look().replicas.values() if state in r.entered)
