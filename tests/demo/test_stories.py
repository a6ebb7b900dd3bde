"""The stories, told on a miniature of the product and the market."""

from __future__ import annotations

import pytest

from lab.demo import stories
from lab.demo.errors import StoryError
from lab.demo.stage import Stage, option_of
from spotrelay.plane.core.pools import CapacityPool, PurchaseOption
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.timing import seconds
from tests.demo.theatre import ALL_STORIES, POOLS, REST_S, START, Theatre

A, B, C = POOLS[:3]
STARTS = {
    "three pools": (A, B, C),
    "a pair, the odd one first": (A, B, B),
    "a pair, the odd one last": (A, A, B),
    "one pool": (A, A, A),
}


def tell_all(stage: Stage) -> None:
    """Every story, then the end."""
    for story in ALL_STORIES:
        story.play(stage)
    stage.settle()


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_all_stories_come_to_their_end(start: tuple[CapacityPool, ...]) -> None:
    """Wherever the first three replicas land, nine are lost, one gets a fallback, three serve at the end."""
    theatre = Theatre(start)
    stage = theatre.stage()
    tell_all(stage)
    assert [loss.story for loss in stage.losses] == ["a", "b", "b", "c", "d", "e", "f", "f", "f"]
    seen = stage.watch.look()
    assert max(seen.replicas) == 13
    assert [r.state for r in seen.replicas.values() if r.is_fallback] == [ReplicaState.TERMINATED]
    assert len(seen.ready) == len(seen.present) == 3


def test_the_pool_of_story_b_takes_exactly_two() -> None:
    """Story (a) leaves two replicas in one pool and one elsewhere, which serves while the pool dries up."""
    theatre = Theatre((A, A, A))
    stage = theatre.stage()
    stories.one_is_taken(stage)
    pools = [r.offering.pool for r in stage.watch.look().ready if r.offering]
    assert sorted(pools.count(pool) for pool in set(pools)) == [1, 2]


def test_story_c_ends_on_spot() -> None:
    """With every Spot pool dry a fallback serves on-demand; once the replacement has its Spot it goes."""
    theatre = Theatre((A, B, C))
    stage = theatre.stage()
    stories.spot_dries_up(stage)
    replicas = stage.watch.look().replicas
    assert [option_of(r) for r in replicas.values() if r.is_fallback] == [PurchaseOption.ON_DEMAND]
    assert option_of(replicas[4]) is PurchaseOption.SPOT
    assert replicas[4].replaces == 1
    assert replicas[4].state is ReplicaState.READY
    assert {option_of(r) for r in stage.settle().present} == {PurchaseOption.SPOT}


def test_story_c_leaves_pools_that_have_rested() -> None:
    """The story after it begins when no pool cools any more, so that its loss needs no fallback."""
    theatre = Theatre((A, B, C))
    stage = theatre.stage()
    stories.spot_dries_up(stage)
    assert theatre.now - START >= seconds(REST_S)


def test_story_d_waits_for_the_tick() -> None:
    """A lost event may be noticed a whole schedule later than a delivered one."""
    theatre = Theatre((A, B, C))
    stage = theatre.stage()
    stories.the_event_is_lost(stage)
    assert stage.watch.look().replicas[4].state is ReplicaState.READY


def test_story_f_says_who_served_on_and_until_when() -> None:
    """With everything warned all keep serving; the last one leaves in the tick that finds others ready."""
    theatre = Theatre((A, B, C))
    stories.everything_is_taken(theatre.stage())
    assert [line for line in theatre.said if "keeps serving" in line or "out of rotation" in line] == [
        *(f"replica {id_} keeps serving: no other replica would be left" for id_ in (1, 2, 3)),
        "replica 1 out of rotation 2.00 s after the warning, at its drain deadline",
        "replica 2 out of rotation 2.00 s after the warning, at its drain deadline",
        "replica 3 out of rotation 6.10 s after the warning, because replicas 4, 5 and 6 served by then",
    ]


def test_story_f_says_how_long_the_last_one_stays() -> None:
    """Where no replacement is ready in time the last one stays until shortly before its end."""
    theatre = Theatre((A, B, C), flaw="slow")
    stories.everything_is_taken(theatre.stage())
    line = "replica 3 out of rotation 10.00 s after the warning, 10.0 s before its end: it was the last one"
    assert line in theatre.said


def test_story_f_waits_for_fallbacks_to_leave() -> None:
    """On-demand, which EC2 doesn't take, would serve all the while: with a fallback it is no story."""
    theatre = Theatre((A, B, C))
    stage = theatre.stage()
    stories.spot_dries_up(stage)
    assert any(r.is_fallback for r in stage.watch.look().ready)
    stories.everything_is_taken(stage)
    began = stage.interruption(2)["warned_at"]
    (fallback,) = (r for r in stage.watch.look().replicas.values() if r.is_fallback)
    assert fallback.entered[ReplicaState.DRAINING].timestamp() <= began


def test_story_g_has_on_demand_stand_in_for_all() -> None:
    """With everything lost and Spot dry there are as many fallbacks as replicas, until Spot is back."""
    theatre = Theatre((A, B, C))
    stage = theatre.stage()
    stories.everything_is_taken_while_spot_is_dry(stage)
    line = "the fallbacks, replicas 5, 7 and 9, serve: the first 7.1 s after the warning, the last 7.1 s"
    assert f"{line}; now Spot has capacity again" in theatre.said
    assert {option_of(r) for r in stage.settle().present} == {PurchaseOption.SPOT}


def test_standbys_are_waited_for() -> None:
    """Each of a service's standbys stands by before all of it is taken, and at the end; none serves."""
    theatre = Theatre((A, B, C))
    stage = theatre.stage()
    theatre.stand_by()
    stage.standbys = 1
    assert len(stage.only_spot()) == len(stage.settle().ready) == 3
    stage.standbys = 2
    with pytest.raises(StoryError, match="all of them on Spot, and 2 standbys: not within"):
        stage.only_spot()
    with pytest.raises(StoryError, match="3 replicas on Spot that serve, 2 standbys, and nothing else: not"):
        stage.settle()


def test_a_fallback_does_not_count_as_one_of_those_on_spot() -> None:
    """Three that serve, one of them on-demand, aren't three that EC2 could take."""
    theatre = Theatre((A, B, C))
    stage = theatre.stage()
    theatre.dry_up(warn=False)
    stage.warn("c", stage.spot_replicas()[0])
    stage.fallback()
    assert len(stage.watch.look().ready) == 3
    theatre.bring_back()
    assert {option_of(r) for r in stage.only_spot()} == {PurchaseOption.SPOT}


def test_story_b_says_who_served_on() -> None:
    """Of three, one is too few to let the other two go at once."""
    theatre = Theatre((A, A, B))
    stories.a_pool_dries_up(theatre.stage())
    assert "replica 1 keeps serving: only 1 of 3 would be left" in theatre.said


def test_a_replica_that_nobody_replaces_fails_the_story() -> None:
    """A product that doesn't react fails the story in time, with a line that says what is missing."""
    stage = Theatre((A, B, C), flaw="deaf").stage()
    with pytest.raises(StoryError, match=r"a replacement of replica 1 requested: not within 60 s"):
        stories.one_is_taken(stage)


def test_two_replacements_fail_the_story() -> None:
    """One lost replica and two that say they replace it is a broken promise."""
    stage = Theatre((A, B, C), flaw="twins").stage()
    with pytest.raises(StoryError, match="exactly one replacement; it has: 4, 5"):
        stories.the_event_comes_again(stage)


def test_a_replacement_from_the_dry_pool_fails_the_story() -> None:
    """Capacity that the market hasn't got can't be had: then the story isn't what it claims to be."""
    stage = Theatre((A, A, B), flaw="stubborn").stage()
    with pytest.raises(StoryError, match="which has no capacity"):
        stories.a_pool_dries_up(stage)


@pytest.mark.parametrize(
    ("flaw", "said"),
    [
        ("stubborn", "a fallback in rotation: not within 60 s"),
        ("stingy", "replica 5 is no on-demand instance but us-east-1a/g5.xlarge/spot"),
        ("homeless", r"replica 4 is no Spot instance but us-east-1a/g[56]\.xlarge/on-demand"),
    ],
)
def test_story_c_fails_without_a_fallback_and_a_return(flaw: str, said: str) -> None:
    """No fallback, one that isn't on-demand, and a replacement that isn't on Spot contradict the story."""
    stage = Theatre((A, B, C), flaw=flaw).stage()
    with pytest.raises(StoryError, match=said):
        stories.spot_dries_up(stage)


def test_a_fallback_that_stays_fails_the_end() -> None:
    """On-demand that is still paid for when everything is back on Spot is called out."""
    stage = Theatre((A, B, C), flaw="clinging").stage()
    stories.spot_dries_up(stage)
    with pytest.raises(StoryError, match=r"a whole fleet: .*replicas: 2 READY, 3 READY, 4 READY, 5 READY"):
        stage.settle()


def test_an_instance_that_ec2_does_not_get_to_take_fails_the_end() -> None:
    """A warned instance that is gone before EC2 takes it was terminated by somebody, which must not be."""
    theatre = Theatre((A, B, C), flaw="greedy")
    stage = theatre.stage()
    stories.one_is_taken(stage)
    with pytest.raises(StoryError, match="EC2 takes every instance that it warned: not within 50 s"):
        stage.settle()


def test_without_spot_there_is_no_story() -> None:
    """Nothing to interrupt is said in so many words, instead of an index error."""
    theatre = Theatre((A,))
    stage = theatre.stage()
    theatre.dry_up()
    stage.fallback()
    with pytest.raises(StoryError, match="no replica serves from a Spot instance"):
        stories.the_event_is_lost(stage)
