"""`aws.items`: what was written comes back, also what a later version wrote."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotrelay.plane.aws import items
from spotrelay.plane.core.pools import (
    OPTIONS,
    CapacityPool,
    Cause,
    Cooldown,
    Offering,
    Reading,
    Scope,
    Survey,
)
from spotrelay.plane.core.replica import Phase, Replica, ReplicaState
from spotrelay.plane.core.requirements import Amount, Requirements
from spotrelay.plane.core.rows import Backoff, LaunchIntent, Removal, Rows, ScaleRequest, Source
from spotrelay.plane.core.timing import seconds
from tests.contract.rows import NOW, row

times = st.floats(0, 1e6).map(lambda s: NOW + seconds(round(s, 6)))
options = st.sampled_from(list(OPTIONS.values()))
pools = st.builds(
    CapacityPool,
    st.sampled_from(["us-east-1", "eu-west-1"]),
    st.sampled_from(["us-east-1a", "us-east-1b"]),
    st.sampled_from(["g5.xlarge", "p4d.24xlarge"]),
)
numbers = st.integers(1, 10**9)
replicas = st.builds(
    Replica,
    service=st.just("demo"),
    id=numbers,
    version=numbers,
    state=st.sampled_from(ReplicaState),
    reason=st.text(max_size=9),
    entered=st.fixed_dictionaries(dict.fromkeys(ReplicaState, times)),
    offering=st.none() | st.builds(Offering, pools, options),
    instance_id=st.none() | st.just("i-1"),
    launch_id=st.none() | st.just("launch-1"),
    attempts=numbers,
    retry_at=st.none() | times,
    is_denied=st.booleans(),
    is_proven=st.booleans(),
    purchase_option=options,
    is_fallback=st.booleans(),
    launch=st.none() | st.text(max_size=9),
    replaces=st.none() | numbers,
    replaced_by=st.none() | numbers,
    warned_at=st.none() | times,
    unhealthy_since=st.none() | times,
    rebalance_at=st.none() | times,
    is_adopted=st.booleans(),
    silent_since=st.none() | times,
    refusals=st.integers(0, 2),
    busy_since=st.none() | times,
    finished=st.none() | st.floats(0, 1e15),
    address=st.none() | st.ip_addresses(v=4).map(str),
    resume_s=st.none() | st.floats(0, 7200),
    trouble=st.none() | st.text(max_size=9),
    is_crashing=st.booleans(),
    phases=st.dictionaries(st.sampled_from(Phase), times),
    max_price=st.none() | st.floats(0, 1000),
    min_score=st.none() | st.integers(1, 10),
    move_tried_at=st.none() | times,
    revision=numbers,
)
prices = st.floats(0.0001, 100)
scores = st.dictionaries(st.sampled_from(["us-east-1a", "us-east-1b"]), st.integers(1, 10))
surveys = st.builds(
    Survey,
    service=st.just("demo"),
    asked=st.builds(Requirements, cpus=st.builds(Amount, st.integers(1, 99), at_least=st.booleans())),
    at=times,
    pools=st.lists(pools, unique=True).map(tuple),
    on_demand_prices=st.dictionaries(st.sampled_from(["g5.xlarge", "p4d.24xlarge"]), prices),
    spot_prices=st.dictionaries(pools, prices),
    scores=scores,
    elsewhere=scores,
    earlier=st.lists(st.builds(Reading, times, scores)).map(tuple),
)
scopes = st.builds(
    Scope,
    region=st.sampled_from(["us-east-1", "eu-west-1"]),
    zone=st.sampled_from(["", "us-east-1a"]),
    instance_type=st.sampled_from(["", "g5.xlarge"]),
    quota=st.sampled_from(["", "g", "p"]),
    purchase_option=st.none() | options,
)


@given(replicas)
def test_a_replica_comes_back(replica: Replica) -> None:
    """Whatever its fields say, a row is read as it was written."""
    assert items.replica_of(items.replica_item(replica)) == replica


@given(surveys)
def test_a_survey_comes_back(survey: Survey) -> None:
    """Pools, prices and scores survive to the last digit."""
    assert items.survey_of(items.survey_item(survey)) == survey


@given(scopes, st.sampled_from(Cause), times, st.floats(0, 1e5), st.integers(1, 40))
def test_a_cooldown_comes_back(scope: Scope, cause: Cause, since: Any, lasts_s: float, strikes: int) -> None:
    """What, why, from when, until when and how often in a row."""
    cooldown = Cooldown(scope, cause, since, since + seconds(lasts_s), "why", strikes)
    item = items.cooldowns_item([cooldown], 7)
    assert items.cooldowns_of(scope.region, item) == {scope: cooldown}
    assert item["revision"] == 7


@given(st.sets(st.builds(replace, scopes, region=st.just("us-east-1"))))
def test_each_scope_has_a_cooldown_of_its_own(cooled: set[Scope]) -> None:
    """However alike the scopes of a region are, as many cooldowns come back as were written, or none."""
    cooldowns = {
        scope: Cooldown(scope, Cause.LOSS, NOW, NOW + seconds(n), f"{n}") for n, scope in enumerate(cooled)
    }
    item = items.cooldowns_item(cooldowns.values(), 1) if cooldowns else {}
    assert items.cooldowns_of("us-east-1", item) == cooldowns


@given(
    st.builds(
        LaunchIntent,
        st.text(min_size=1, max_size=9),
        st.just("demo"),
        st.lists(numbers).map(tuple),
        times,
        st.integers(0, 10**9),
    )
)
def test_an_intent_comes_back(intent: LaunchIntent) -> None:
    """With the replicas that it is for, and the highest ID of its time."""
    assert items.intent_of(items.intent_item(intent)) == intent


@given(st.builds(Backoff, numbers, st.none() | times, numbers, st.none() | times))
def test_a_backoff_comes_back(backoff: Backoff) -> None:
    """With both times until which something is held."""
    assert _rows(_stored(items.backoff_item(backoff))).backoff == backoff


@given(st.builds(Removal, st.none() | times, st.integers(0, 99)))
def test_a_removal_comes_back(removal: Removal) -> None:
    """When it was told, and how often nothing was found since."""
    assert items.removal_of(_stored(items.removal_item(removal))) == removal


def _rows(meta: dict[str, Any]) -> Rows:
    """What a service's META item alone says."""
    return items.rows_of("demo", {items.meta_key("demo"): meta})


def _stored(item: dict[str, Any]) -> dict[str, Any]:
    """What an update with it leaves in the table: None removes an attribute."""
    return {name: value for name, value in item.items() if value is not None}


def test_what_an_earlier_version_wrote_is_read() -> None:
    """Attributes that it didn't have are as by default."""
    intent = LaunchIntent("launch-1", "demo", (1,), NOW, 7)
    older = {k: v for k, v in items.intent_item(intent).items() if k != "highest_id"}
    assert items.intent_of(older) == replace(intent, highest_id=0)
    meta = {"highest_id": 7, "failures": 2, "failing_version": 3}
    assert _rows(meta) == Rows(highest_id=7, backoff=Backoff(2, version=3))


def test_a_row_of_a_later_version_is_read() -> None:
    """What this version doesn't know of it is kept, and nothing but kept."""
    item = items.replica_item(row(1))
    later = {**item, "row": item["row"].replace("{", '{"mood":"good",', 1), "mood": "good"}
    read = items.replica_of(later)
    assert read == row(1, unknown={"mood": "good"})
    assert json.loads(items.replica_item(read)["row"])["mood"] == "good"


@pytest.mark.parametrize(
    "stored",
    [
        None,
        5,
        "5",
        [],
        {},
        {"replicas": 5},
        {"until": items.to_text(NOW)},
        {"replicas": -1, "until": items.to_text(NOW)},
        {"replicas": "many", "until": items.to_text(NOW)},
        {"replicas": Decimal("Infinity"), "until": items.to_text(NOW)},
        {"replicas": 5, "until": "tomorrow"},
        {"replicas": 5, "until": 5},
        {"replicas": 5, "until": "2026-11-21T07:00:00"},
    ],
)
def test_a_broken_request_is_left_out(stored: object) -> None:
    """Whatever stands there, it stops nobody: the service file's number counts."""
    assert items.requests_of({"requested by operator": stored}) == {}


def test_a_later_version_s_source_is_left_out() -> None:
    """A request by somebody whom this version doesn't know is none to it; the others still count."""
    request = ScaleRequest(5, NOW)
    stored = items.requests_item({Source.OPERATOR: request})
    (asked,) = stored.values()
    assert items.requests_of({**stored, "requested by schedule": asked}) == {Source.OPERATOR: request}
