"""The stories, told on a miniature of the product and the market."""

from __future__ import annotations

import pytest

from spotrelay.demo import stories
from spotrelay.demo.errors import StoryError
from spotrelay.demo.stage import Stage
from spotrelay.model import CapacityPool, PurchaseOption, ReplicaState
from tests.demo.theatre import POOLS, Theatre

A, B, C = POOLS[:3]
STARTS = {
    "three pools": (A, B, C),
    "a pair, the odd one first": (A, B, B),
    "a pair, the odd one last": (A, A, B),
    "one pool": (A, A, A),
}


def tell_all(stage: Stage) -> None:
    """Every story, then the end."""
    for story in stories.STORIES:
        story.play(stage)
    stage.settle()


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_all_stories_come_to_their_end(start: tuple[CapacityPool, ...]) -> None:
    """Wherever the first three replicas land, six are lost one after the other and three serve at the end."""
    theatre = Theatre(start)
    stage = theatre.stage()
    tell_all(stage)
    assert [loss.story for loss in stage.losses] == ["a", "b", "b", "c", "d", "e"]
    seen = stage.watch.look()
    assert max(seen.replicas) == 9
    assert len(seen.ready) == len(seen.present) == 3


def test_the_pool_of_story_b_takes_exactly_two() -> None:
    """Story (a) leaves two replicas in one pool and one elsewhere, which serves while the pool dries up."""
    theatre = Theatre((A, A, A))
    stage = theatre.stage()
    stories.one_is_taken(stage)
    pools = [r.offering.pool for r in stage.watch.look().ready if r.offering]
    assert sorted(pools.count(pool) for pool in set(pools)) == [1, 2]


def test_story_c_ends_on_demand() -> None:
    """With every Spot pool dry the replacement is on-demand, and Spot is back afterwards."""
    theatre = Theatre((A, B, C))
    stage = theatre.stage()
    stories.spot_dries_up(stage)
    bought = [r.offering.purchase_option for r in stage.watch.look().ready if r.offering]
    assert bought.count(PurchaseOption.ON_DEMAND) == 1
    stories.the_event_comes_again(stage)
    assert stage.watch.look().replicas[5].offering is not None
    assert str(stage.watch.look().replicas[5].offering).endswith("spot")


def test_story_d_waits_for_the_tick() -> None:
    """A lost event may be noticed a whole schedule later than a delivered one."""
    theatre = Theatre((A, B, C))
    stage = theatre.stage()
    stories.the_event_is_lost(stage)
    assert stage.watch.look().replicas[4].state is ReplicaState.READY


def test_a_replica_that_nobody_replaces_fails_the_story() -> None:
    """A product that doesn't react fails the story in time, with a line that says what is missing."""
    stage = Theatre((A, B, C), flaw="deaf").stage()
    with pytest.raises(
        StoryError, match=r"replica 1 out of rotation, replacement requested: not within 60 s"
    ):
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


def test_a_spot_replacement_fails_story_c() -> None:
    """A replacement that isn't on-demand contradicts a Spot market that is dry."""
    stage = Theatre((A, B, C), flaw="stubborn").stage()
    with pytest.raises(StoryError, match="replica 4 is no on-demand instance"):
        stories.spot_dries_up(stage)


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
    stories.spot_dries_up(stage)
    with pytest.raises(StoryError, match="no replica serves from a Spot instance"):
        stories.the_event_is_lost(stage)
