"""Whatever the simulation makes of a service, every view of it can be drawn, and they all say the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from io import StringIO
from itertools import pairwise
from random import Random
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from lab.sim import scenario
from lab.sim.course import play
from lab.sim.faults import Call
from lab.sim.gate import Invocation, MetricRecord, at, first
from lab.sim.rules.desired import CLOCKS_S
from lab.sim.world import SimWorld
from spotrelay.operator.cli.history import _cells
from spotrelay.operator.cli.status import _rendered
from spotrelay.operator.look.cost import cost
from spotrelay.operator.look.explain import explain
from spotrelay.operator.look.history import history
from spotrelay.operator.look.progress import progress
from spotrelay.operator.look.scores import scores_of
from spotrelay.operator.page.picture import last_hour
from spotrelay.plane.accounting import days
from spotrelay.plane.accounting.spending import Changes, Spending, lives, spent, spent_on
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.notices import NoticeKind
from spotrelay.plane.core.pools import CapacityPool, Offering
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Rows, Told
from spotrelay.plane.core.slots import host
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.view.losses import Loss, losses, outages
from spotrelay.plane.view.snapshot import ServiceSnapshot
from spotrelay.plane.view.status import status
from spotrelay.plane.view.widget import rendered

pytestmark = pytest.mark.xdist_group("views")  # so that the worlds are made once, not once by each worker

SEEDS = range(40)

LOOKS = 3
"""At each service, at times that the seed draws."""

LISTED = {"g5.xlarge": 1.0}
"""The list price of the other type is unknown."""

MINUTE = timedelta(minutes=1)


class WatchedWorld(SimWorld):
    """A world that is looked at while it runs. To look changes nothing."""

    def __init__(self, seed: int) -> None:
        super().__init__(scenario.draw(seed, 3 + seed % 4, None))
        self.seen: list[ServiceSnapshot] = []
        self.judged = 0
        """Ticks whose metrics and events were compared with a status of the same rows."""
        self.disagreements: list[str] = []
        random = Random(f"{seed} looks")  # noqa: S311 - to be repeated
        for _ in range(LOOKS):
            self.scheduler.at(random.uniform(0, self.scenario.faults_s + 300), self.look)
        play(self)
        self.look()

    def look(self) -> None:
        """Keep what can be seen of each service."""
        for spec in self.scenario.specs:
            self.seen.append(self.snapshot(spec.service, self.memory.load(spec.service)))

    def snapshot(
        self, service: str, rows: Rows, spec: ServiceSpec | None = None, when: float | None = None
    ) -> ServiceSnapshot:
        """What can be seen of one service, as the commands read it."""
        now = at(self.scheduler.now if when is None else when)
        return ServiceSnapshot(
            service,
            "us-east-1",
            now,
            spec or self.services.valid(service, self.scheduler.now) or rows.document,
            rows,
            tuple(self.memory.history(service, 10_000)),
            self.memory.recall(service, "us-east-1", now),
        )

    def _ended(self, invocation: Invocation, *more: Any) -> None:
        super()._ended(invocation, *more)
        missing = [c for c in invocation.metrics if c.metric is Metric.REPLICAS_MISSING]
        rows = first(invocation.calls, Call.LOAD)
        if missing and isinstance(rows, Rows):
            self.judged += 1
            self._judge(invocation, rows, missing[0])

    def _judge(self, invocation: Invocation, rows: Rows, missing: MetricRecord) -> None:
        """Compare a status of the rows that a tick read with what the tick counted and told."""
        service = missing.service or ""
        # Which document, and which request, was in effect: a deployment or an operator may come meanwhile.
        known = (first(invocation.calls, Call.GET), rows.document)
        documents = [spec for spec in known if isinstance(spec, ServiceSpec)]
        requests = (rows.requests, self.memory.load(service).requests)
        found = [
            status(replace(self.snapshot(service, replace(rows, requests=asked), spec, when), history=()))
            for spec in documents
            for asked in requests
            for when in (invocation.began_at - CLOCKS_S, self.scheduler.now + CLOCKS_S)
        ]
        agreeing = [one for one in found if max((one.desired or 0) - one.ready, 0) == missing.value]
        told = next((c.about for c in reversed(invocation.calls) if c.call is Call.NOTE_TOLD), None)
        is_gap = isinstance(told, Told) and told.gap_since is not None
        is_whole = missing.value == 0
        if (is_gap and is_whole) or is_whole not in {one.is_whole for one in agreeing}:
            judged = {(one.judgement.value, one.ready, one.desired) for one in found}
            self.disagreements.append(f"{invocation.name}: {missing.value:g} missing, gap {is_gap}: {judged}")


@cache
def world_of(seed: int) -> WatchedWorld:
    """The world of a seed, once it is at rest."""
    return WatchedWorld(seed)


def snapshots() -> Iterator[ServiceSnapshot]:
    """What was seen of all services, as it was, and as if two replicas shared each instance."""
    for seed in SEEDS:
        for seen in world_of(seed).seen:
            yield seen
            if not any(
                r.slots > 1 for r in seen.replicas.values()
            ):  # some of the worlds' instances are shared
                yield sharing(seen)


def sharing(seen: ServiceSnapshot) -> ServiceSnapshot:
    """The same, with two replicas on each instance, bought as the first of them."""
    hosts = sorted({r.instance_id: r for r in seen.replicas.values() if r.instance_id}.items())
    slots: dict[str, tuple[str, Offering | None]] = {}
    for number, (id_, replica) in enumerate(hosts):
        before = hosts[number - 1] if number % 2 else None
        slots[id_] = (f"{before[0]}:8082", before[1].offering) if before else (id_, replica.offering)

    def moved(r: Replica) -> Replica:
        if r.instance_id is None:
            return r
        slot, offering = slots[r.instance_id]
        return replace(r, instance_id=slot, offering=offering, slots=2)

    replicas = {id_: moved(r) for id_, r in seen.rows.replicas.items()}
    return replace(seen, rows=replace(seen.rows, replicas=replicas), history=tuple(map(moved, seen.history)))


def prices(seen: ServiceSnapshot) -> Changes:
    """Spot prices that change now and then; of one zone none is known."""
    pools = {r.offering.pool for r in seen.replicas.values() if r.offering}
    found: dict[CapacityPool, Sequence[tuple[datetime, float]]] = {}
    for pool in pools:
        if (pool.zone, pool.instance_type) != ("us-east-1b", "g5.xlarge"):
            begin = seen.at - timedelta(hours=3)
            found[pool] = [(begin + timedelta(minutes=17 * n), 0.3 + n % 5 / 10) for n in range(12)]
    return found


def test_every_view_can_be_drawn() -> None:
    """Status, history, explanations, costs, scores: as JSON, in the terminal, as widget and as picture."""
    console = Console(file=StringIO(), width=200)
    drawn = Counter[str]()
    for seen in snapshots():
        found = status(seen)
        for part in _rendered(found):
            console.print(part)
        told = history(seen, seen.within(timedelta(days=1)), {seen.at.replace(second=0, microsecond=0): 3})
        views: list[object] = [found.to_json(), told.to_json()]
        assert all(isinstance(cell, str) for loss in told.losses for cell in _cells(loss, told))
        spot = prices(seen)
        for id_, row in seen.replicas.items():
            story = explain(seen, id_, spent_on(row, seen.replicas.values(), spot, LISTED, seen.at, 0.01))
            assert story
            assert [when for _, when in story.entered] == sorted(when for _, when in story.entered)
            assert all(words for line in story.lines for words in line)
            views.append(story.to_json())
        views += [one.to_json() for one in scores_of(seen, [], seen.at - timedelta(days=1))]
        assert all(json.loads(json.dumps(one)) == one for one in views)
        progress(seen, seen.at)
        ET.fromstring(last_hour(seen))  # noqa: S314 - our own
        ET.fromstring(f"<div>{rendered(seen, (), None)}</div>")  # noqa: S314 - our own
        drawn.update(["snapshots", *(r.state for r in seen.replicas.values())])
        drawn["standbys"] += any(r.stands_by for r in seen.replicas.values())
        drawn["lost"] += len(told.losses)
    assert drawn["snapshots"] > 7 * len(SEEDS)
    assert drawn["lost"] > drawn["standbys"] > 0
    assert drawn.keys() >= set(ReplicaState)


def test_status_says_what_the_metric_and_the_events_say() -> None:
    """Of the rows that a tick reads: whole is what has nothing missing, and no gap lasts while it is."""
    disagreements = {seed: world_of(seed).disagreements for seed in SEEDS if world_of(seed).disagreements}
    assert disagreements == {}
    assert sum(world_of(seed).judged for seed in SEEDS) > 20 * len(SEEDS)


def test_every_loss_is_told_once() -> None:
    """The history has exactly those that an event tells, and whose row says so."""
    compared = 0
    for seed in SEEDS:
        world = world_of(seed)
        for seen in world.seen[-len(world.scenario.specs) :]:
            found = losses(seen.replicas.values())
            ids = [loss.replica for loss in found]
            assert len(ids) == len(set(ids))
            if seen.service in world.checker.damaged or not world.is_at_rest:
                continue
            assert set(ids) == {r.id for r in seen.replicas.values() if r.lost_at}, f"seed {seed}"
            begun = world.store.first_told.get(seen.service)
            if begun is None or world.services.was_removed(seen.service, 0.0, world.scheduler.now):
                continue
            told = {
                int(notice.subject)
                for _, notice in world.notices.told
                if notice.service == seen.service and notice.kind is NoticeKind.REPLICA_LOST
            }
            new = {id_ for id_ in ids if id_ in begun.replicas or id_ > begun.highest_id}
            assert told == new, f"seed {seed}"
            compared += len(told)
    assert compared > len(SEEDS) / 2


def test_the_times_of_a_loss_are_in_order() -> None:
    """Launched before ready before whole, none before the loss; and those that overlap are whole together."""
    for seen in snapshots():
        found = losses(seen.replicas.values())
        assert [loss.at for loss in found] == sorted(loss.at for loss in found)
        for loss in found:
            assert _in_order(loss, seen.at + MINUTE), (seen.service, loss)
        for before, after in pairwise(found):
            if before.whole_at and after.whole_at:
                assert before.whole_at <= after.whole_at


def _in_order(loss: Loss, now: datetime) -> bool:
    times = [t for t in (loss.launched_at, loss.ready_at, loss.whole_at) if t]
    durations = [s for s in (loss.out_s, loss.launched_s, loss.ready_s, loss.whole_s) if s is not None]
    is_restored = loss.ready_at is None or loss.whole_at is None or loss.whole_at >= loss.ready_at
    return (
        is_restored
        and (loss.launched_at is None or loss.ready_at is None or loss.launched_at <= loss.ready_at)
        and (loss.whole_at is None or loss.whole_at >= loss.at)
        and all(s >= 0 for s in durations)
        and all(t <= now for t in times)
    )


def test_what_is_over_is_over() -> None:
    """Once a service is whole and at rest, no loss is open, whatever became of its replacement."""
    over = 0
    for seed in SEEDS:
        world = world_of(seed)
        for seen in world.seen[-len(world.scenario.specs) :] if world.is_at_rest else ():
            is_intact = seen.service not in world.checker.damaged and seen.rows.replicas
            if is_intact and status(seen).is_whole:
                found = losses(seen.replicas.values())
                assert [loss for loss in found if loss.whole_at is None] == [], f"seed {seed}"
                over += len(found)
    assert over > len(SEEDS) / 2


def test_costs_add_up() -> None:
    """However the time is cut, and by day: nothing is lost, charged twice, or saved on an unknown price."""
    random = Random("cuts")  # noqa: S311 - to be repeated
    kinds = Counter[str]()
    for seen in snapshots():
        spot, rows = prices(seen), seen.replicas.values()
        found = lives(rows, seen.at)
        begin = min((life.existed[0] for life in found), default=seen.at) - MINUTE
        whole = spent(found, spot, LISTED, begin, seen.at, 0.01)
        cuts = sorted(begin + (seen.at - begin) * random.random() for _ in range(3))
        parts = [spent(found, spot, LISTED, *span, 0.01) for span in pairwise([begin, *cuts, seen.at])]
        total = sum(parts[1:], parts[0])
        for name, value in _values(whole).items():
            assert _values(total)[name] == pytest.approx(value, abs=1e-9), name
            kinds[name] += value > 0
        dates = sorted({begin.date(), seen.at.date()} | {c.date() for c in cuts})
        by_day = [days.of(seen.service, day, rows, seen.memory, spot, LISTED, seen.at, 0.01) for day in dates]
        summed = cost(seen.service, begin, seen.at, by_day)
        assert summed.spent.total_usd == pytest.approx(whole.total_usd, abs=1e-9)
        assert summed.to_json()["saved_usd"] == pytest.approx(whole.saved_usd, abs=1e-5)
        # A price that isn't known can't be what is saved: on Spot at most the list price is.
        assert whole.spot_usd + whole.on_demand_usd <= whole.total_usd
        compared = whole.instances_usd - whole.unlisted_usd
        assert whole.saved_usd == pytest.approx(whole.listed_usd - compared, abs=1e-9)
        instances = {host(r.instance_id) for r in rows if r.instance_id}
        assert len(found) <= len(instances)
        longest = max((end - start for life in found for start, end in [life.existed]), default=MINUTE)
        hours = whole.spot_hours + whole.on_demand_hours + whole.unpriced_hours
        assert hours <= len(instances) * (longest / timedelta(hours=1)) + 1e-9
    assert kinds.keys() == {name for name, count in kinds.items() if count}, kinds


def _values(spending: Spending) -> Mapping[str, float]:
    return {name: getattr(spending, name) for name in Spending.__dataclass_fields__}


def test_pauses_are_told_from_beginning_to_end() -> None:
    """No two outages overlap, they lie within the time, and in none of them did anybody serve."""
    for seen in snapshots():
        begin = seen.at - timedelta(minutes=5)
        found = outages(seen.replicas.values(), begin, seen.at)
        assert all(start < end for start, end in found)
        assert all(before[1] <= after[0] for before, after in pairwise(found))
        if found and found[-1][1] == seen.at:
            assert not seen.in_rotation
        elif seen.in_rotation:
            assert seen.serving_since
