"""How far a service is on the way to what is deployed, and when there is no way any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spotrelay.operator.look.progress import Progress, progress
from spotrelay.plane.core.pools import PurchaseOption
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Backoff
from spotrelay.plane.core.spec import OnUpdate
from tests.examples import demo_spec
from tests.operate.replicas import START, replica
from tests.operate.test_status import on, seen, starting

ROLLING = replace(demo_spec(), version=2, on_update=OnUpdate.ROLLING)

QUOTA = "spot in 9 of 9 pools (all); EC2: MaxSpotInstanceCountExceeded: Max spot instance count exceeded"
DENIED = "EC2 refuses the request: An error occurred (UnauthorizedOperation) when calling CreateFleet: no"
DRY = "spot in 9 of 9 pools (all); EC2: InsufficientInstanceCapacity"


def of(*replicas: Replica, **more: Any) -> Progress:
    """The progress of a service that rolls version 2 out to three replicas."""
    found = progress(seen(*replicas, **{"spec": ROLLING} | more), START)
    assert found
    return found


def version(made: Replica, number: int) -> Replica:
    """The replica in another version."""
    return replace(made, version=number)


def waiting(id_: int, launch: str, *, is_fallback: bool = False, attempts: int = 1) -> Replica:
    """One that EC2 has refused."""
    option = PurchaseOption.ON_DEMAND if is_fallback else PurchaseOption.SPOT
    return replace(
        on(id_, ReplicaState.REQUESTED, entered={"REQUESTED": 1}),
        instance_id=None, offering=None, launch=launch, attempts=attempts, version=2,
        is_fallback=is_fallback, purchase_option=option,
    )  # fmt: skip


def failed(id_: int, reason: str, at: float = 3000) -> Replica:
    """One of version 2 that never became ready."""
    made = replica(id_, ReplicaState.FAILED, entered={"PROVISIONING": at - 1, "FAILED": at})
    return version(replace(made, reason=reason), 2)


def test_a_roll_out_counts_new_failed_and_to_go() -> None:
    """Two of the old version are left, one of the new one serves, and one has failed."""
    made = of(version(on(1), 1), version(on(2), 1), version(on(3), 2), failed(4, "not ready"))
    assert made.rolling(1) == "v1→v2: 1/3 new, 1 failed, 2 to go"
    assert (made.is_done, made.stopped, made.before) == (False, "", (1,))


def test_it_is_done_when_all_are_new_and_there() -> None:
    """Not while an old one serves, though three new ones do; nor while one is missing."""
    new = [version(on(id_), 2) for id_ in (1, 2, 3)]
    assert of(*new).is_done
    assert not of(*new, version(on(4), 1)).is_done
    assert not of(*new[:2], version(starting(3), 2)).is_done


def test_a_version_that_is_kept_from_running_replicas_is_done_at_once() -> None:
    """With `keep`, replicas of the version before are as they should be."""
    kept = replace(ROLLING, on_update=OnUpdate.KEEP)
    assert of(version(on(1), 1), version(on(2), 1), version(on(3), 1), spec=kept).is_done


def test_what_is_warned_does_not_count_as_ready() -> None:
    """EC2 takes it back within two minutes: a deployment that ends with it ends too soon."""
    assert not of(version(on(1), 2), version(on(2), 2), version(on(3, warned_at=START), 2)).is_done


def test_a_version_that_was_given_up_stops_it_and_says_why() -> None:
    """Two failed while the old one serves: the reason of the last, where to look, and who serves."""
    made = of(
        version(on(1), 1), version(on(2), 1), version(on(3), 1),
        failed(4, "not ready"), failed(5, "not ready 20 s after its instance booted"),
        rows={"backoff": Backoff(2, None, 2)},
    )  # fmt: skip
    assert made.stopped == (
        "version 2 was given up after 2 replicas: replica 5: not ready 20 s after its instance booted"
        " (spotrelay logs chat 5 shows its console); version 1 serves on"
    )


def test_a_version_that_crashed_says_what_its_replica_said_last() -> None:
    """And what usually mends it."""
    crash = "crashes: 3 starts have failed. It said last:\nNo module named 'vllm'"
    made = of(
        version(on(1), 1),
        replace(failed(5, "not ready"), trouble=crash),
        rows={"backoff": Backoff(2, None, 2)},
    )
    assert made.stopped.startswith(
        "version 2 was given up after 2 replicas: replica 5: not ready; it crashes: 3 starts have failed. It"
        " said last: No module named 'vllm' (have setup install it"
    )


def test_failures_of_before_are_not_counted() -> None:
    """What failed before the deployment says nothing of it."""
    made = of(version(on(1), 2), version(on(2), 2), version(on(3), 2), failed(4, "not ready", at=-60))
    assert made.failed == 0


def test_what_ec2_ends_at_birth_does_not_stop_a_first_deployment() -> None:
    """It is tried again; two that fail by themselves do stop it."""
    rows = {"rows": {"backoff": Backoff(2, None, 2)}}
    ec2 = "instance terminated: Server.InsufficientInstanceCapacity: none"
    assert of(failed(1, ec2), failed(2, ec2), **rows).stopped == ""
    assert "given up" in of(failed(1, "not ready"), failed(2, "not ready"), **rows).stopped


def test_a_quota_stops_it_with_ec2s_words_and_the_remedy() -> None:
    """Neither Spot nor the fallback is launched, and no time mends it."""
    made = of(waiting(1, QUOTA), waiting(2, QUOTA), waiting(3, QUOTA, is_fallback=True))
    assert "MaxSpotInstanceCountExceeded: Max spot instance count exceeded" in made.stopped
    assert "ask for more of the quota" in made.stopped


def test_what_is_denied_stops_it() -> None:
    """A missing permission, in EC2's words."""
    made = of(waiting(1, DENIED), waiting(2, DENIED, is_fallback=True))
    assert "UnauthorizedOperation" in made.stopped


def test_a_refused_roll_out_stops_though_no_fallback_comes() -> None:
    """Where the old ones serve, nothing is bought on-demand for a new one that Spot refuses."""
    old = [version(on(id_), 1) for id_ in (1, 2, 3)]
    assert of(*old, waiting(4, QUOTA)).stopped


def test_what_may_still_come_does_not_stop_it() -> None:
    """A dry pool fills again, a fallback is yet to come, one isn't refused yet, or another one starts."""
    fallback = waiting(9, QUOTA, is_fallback=True)
    assert of(waiting(1, DRY), fallback).stopped == ""
    assert of(waiting(1, f"{QUOTA}, InsufficientInstanceCapacity"), fallback).stopped == ""
    assert of(waiting(1, QUOTA)).stopped == ""
    assert of(waiting(1, QUOTA, attempts=0), fallback).stopped == ""
    assert of(waiting(1, QUOTA), fallback, version(starting(3), 2)).stopped == ""
