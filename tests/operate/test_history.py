"""What a history and an explanation tell."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

from spotrelay.operator.look.explain import explain
from spotrelay.operator.look.history import history
from spotrelay.plane.accounting.spending import spent_on
from spotrelay.plane.core.pools import CapacityPool, Offering, PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.timing import seconds
from tests.operate.replicas import POOL, START, replica
from tests.operate.test_status import NOW, on, seen

ELSEWHERE = Offering(CapacityPool("us-east-1", "us-east-1c", "g6.xlarge"), PurchaseOption.SPOT)


def pair() -> tuple[Replica, Replica]:
    """A replica that EC2 took and the one that replaced it."""
    lost = replace(
        on(1, ReplicaState.TERMINATED, warned_at=START + seconds(3000), replaced_by=2),
        reason="interruption warning",
    )
    entered = {"PROVISIONING": 0, "READY": 10, "DRAINING": 3000.1, "TERMINATED": 3120}
    lost = replace(lost, entered={ReplicaState(n): START + seconds(at) for n, at in entered.items()})
    came = {"REQUESTED": 3000.1, "PROVISIONING": 3000.9, "STARTING": 3002, "READY": 3096}
    launch = (
        "spot in 2 of 3 pools (rested); left out: us-east-1a/g5.xlarge (us-east-1a/g5.xlarge/spot cools until"
        " 01:05:00 (interruption warning)); EC2: us-east-1c/g6.xlarge/spot"
    )
    return lost, replace(on(2, entered=came, replaces=1, launch=launch), offering=ELSEWHERE)


def test_a_loss_has_its_times_and_what_clients_felt() -> None:
    """Errors count from the minute of the loss until the fleet was whole, and no others."""
    minute = (START + seconds(3000)).replace(second=0)
    errors = {minute - timedelta(minutes=1): 7, minute: 2, minute + timedelta(minutes=1): 1}
    errors[minute + timedelta(minutes=9)] = 5
    found = history(seen(*pair()), START, errors)
    (loss,) = found.losses
    assert (loss.replica, loss.replaced_by, loss.is_warned) == (1, 2, True)
    assert (loss.out_s, loss.launched_s, loss.ready_s, loss.whole_s) == (0.1, 0.9, 96.0, 96.0)
    assert found.felt(loss) == 3
    assert json.loads(json.dumps(found.to_json()))["losses"][0]["errors"] == 3


def test_where_nobody_counts_errors_nothing_is_claimed() -> None:
    """None isn't zero."""
    found = history(seen(*pair()), START, None)
    assert found.felt(found.losses[0]) is None


def test_what_is_older_is_left_out() -> None:
    """The look back is the caller's."""
    assert history(seen(*pair()), NOW - timedelta(minutes=5), {}).losses == ()


def test_failures_for_one_reason_are_one_line() -> None:
    """A version that doesn't start fails again and again."""
    failed = [
        replace(replica(id_, ReplicaState.FAILED, entered={"FAILED": 100.0 * id_}), reason=reason)
        for id_, reason in ((1, "setup failed"), (2, "setup failed"), (3, "not ready"), (4, "setup failed"))
    ]
    found = history(seen(*failed), START, None).failures
    assert [(one.replicas, one.reason) for one in found] == [
        ((1, 2), "setup failed"),
        ((3,), "not ready"),
        ((4,), "setup failed"),
    ]


def test_a_replacement_names_the_lost_pool_and_why_it_was_left_out() -> None:
    """Somebody who was paged reads why it is there, which pools were asked and what EC2 answered."""
    found = explain(seen(*pair()), 2, None)
    assert found
    words = dict(found.lines)
    assert "replaces replica 1 in us-east-1a/g5.xlarge/spot, which EC2 took back" in words["why it exists"]
    assert f"{POOL} was left out because it had just lost an instance" in words["why it exists"]
    assert words["asked"] == "spot in 2 of 3 pools (rested)"
    assert words["left out"].startswith("us-east-1a/g5.xlarge (")
    assert words["EC2 answered"] == "us-east-1c/g6.xlarge/spot"


def test_a_replacement_in_the_same_pool_says_nothing_of_leaving_it_out() -> None:
    """It wasn't."""
    lost, came = pair()
    found = explain(seen(lost, replace(came, offering=Offering(POOL, PurchaseOption.SPOT))), 2, None)
    assert found
    assert "was left out" not in dict(found.lines)["why it exists"]


def test_a_lost_one_says_why_it_went_and_what_followed() -> None:
    """With the times that the history tells."""
    found = explain(seen(*pair()), 1, None)
    assert found
    words = dict(found.lines)
    assert words["why it went"] == "interruption warning"
    assert "ready after 96.0 s" in words["lost"]
    assert words["replaced by"].startswith("replica 2 in us-east-1c/g6.xlarge/spot")
    assert [state for state, _ in found.entered] == ["PROVISIONING", "READY", "DRAINING", "TERMINATED"]


def test_one_that_crashes_says_what_it_said_and_what_may_mend_it() -> None:
    """All of it; also once it was given up."""
    crash = "crashes: 3 starts have failed. It said last:\nTraceback\nNo module named 'vllm'"
    starting = replica(3, ReplicaState.STARTING, trouble=crash, is_crashing=True)
    found = explain(seen(starting), 3, None)
    assert found
    assert dict(found.lines)["why it isn't ready"] == crash
    assert dict(found.lines)["what may mend it"].startswith("have setup install it")
    found = explain(
        seen(replace(starting, state=ReplicaState.FAILED, entered={ReplicaState.FAILED: NOW})), 3, None
    )
    assert found
    assert dict(found.lines)["why it wasn't ready"] == crash


def test_one_that_waits_says_for_what() -> None:
    """EC2 refused it, and is asked again."""
    waiting = replace(
        replica(3, ReplicaState.REQUESTED, launch="spot in 3 of 3 pools (rested); EC2: no capacity"),
        offering=None,
        attempts=2,
        retry_at=NOW,
    )
    found = explain(seen(waiting), 3, None)
    assert found
    assert dict(found.lines)["waits"] == "after 2 refusals EC2 is asked again at 01:00:00"


def test_of_an_unknown_one_nothing_is_told() -> None:
    """The command says which ones are known."""
    assert explain(seen(on(1)), 7, None) is None


def told_cost(replica_id: int, *replicas: Replica, price: float = 0.4) -> str:
    """What an explanation says of the cost: Spot at a price that doesn't change, on-demand at 1 USD."""
    snapshot = seen(*replicas)
    row = snapshot.replicas[replica_id]
    assert row.offering
    spent = spent_on(
        row,
        replicas,
        {row.offering.pool: [(START, price)]},
        {row.offering.pool.instance_type: 1.0},
        NOW,
        disk_usd_per_hour=0.01,
    )
    found = explain(snapshot, replica_id, spent)
    assert found
    assert (found.to_json()["cost"] is None) is (spent is None)
    return next((words for about, words in found.lines if about.startswith("cost")), "")


def test_what_a_replica_cost_is_told_with_what_it_is_made_of() -> None:
    """Spot by its time and price, its disk, and the same time on demand, against a sum made by hand."""
    lost = replace(pair()[0], warned_at=None, reason="instance gone")
    hours = 3120 / 3600
    assert told_cost(1, lost, pair()[1]) == (
        f"{hours * 0.41:.4f} USD: 52 min of Spot {hours * 0.4:.4f}, its disk {hours * 0.01:.4f};"
        f" the same time on demand {hours:.4f}, saved 60 %"
    )


def test_what_ec2_takes_back_within_an_hour_costs_its_disk() -> None:
    """And the explanation says why it costs so little."""
    assert told_cost(1, *pair()).startswith(
        "0.0087 USD: 52 min of Spot, which EC2 took back within the first hour and doesn't charge,"
        " its disk 0.0087;"
    )


def test_a_replica_on_demand_saved_nothing() -> None:
    """There is nothing to compare it with."""
    cost = told_cost(1, on(1, option=PurchaseOption.ON_DEMAND))
    assert cost == f"{3599 / 3600 * 1.01:.4f} USD: 59 min 59 s on demand {3599 / 3600:.4f}, its disk 0.0100"


def test_a_replica_costs_its_share_of_an_instance() -> None:
    """Two share one for an hour but a second: each costs half of that, disk too."""
    two = (on(1, slots=2), replace(on(2, slots=2), instance_id="i-1:8081"))
    assert told_cost(2, *two).startswith(f"{3599 / 3600 * 0.41 / 2:.4f} USD: 59 min 59 s of Spot")


def test_an_instance_that_ran_for_longer_is_charged_to_all_who_were_on_it() -> None:
    """EC2 took it back over an hour after its launch: one that was there for half an hour pays, too."""
    taken = {"warned_at": START + seconds(3500), "slots": 2}
    entered = {"REQUESTED": -900.0, "PROVISIONING": -900, "TERMINATED": 3590}
    old = replica(1, ReplicaState.TERMINATED, entered=entered, instance_id="i-1", **taken)
    late = {**entered, "PROVISIONING": 1800}
    new = replica(2, ReplicaState.TERMINATED, entered=late, instance_id="i-1:8081", **taken)
    assert told_cost(2, old, new).startswith(f"{1790 / 3600 * 0.41 / 2:.4f} USD: 29 min 50 s of Spot 0.0994,")


def test_what_isnt_known_of_a_cost_is_said() -> None:
    """Prices that can't be read, a price that there isn't; one that never had an instance cost nothing."""
    found = explain(seen(on(1)), 1, None)
    assert found
    assert dict(found.lines)["cost so far"] == "unknown: EC2's prices couldn't be read"
    unpriced = explain(seen(on(1)), 1, spent_on(on(1), [on(1)], {}, {}, NOW))
    assert unpriced
    assert dict(unpriced.lines)["cost so far"].startswith("unknown: no price is known of its 59 min 59 s")
    never = replace(on(1, ReplicaState.FAILED), instance_id=None)
    assert told_cost(1, never) == ""
