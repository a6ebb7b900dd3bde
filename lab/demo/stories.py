"""The stories of the demo: what EC2 does to a fleet, and what must come of it.

Each acts on the market, waits until the replacement serves, and checks its own claim. That every warned
instance is really taken when its time is up, and replaced exactly once, is checked for all of them at the
end: reclaims overlap, so that the demo doesn't spend its time waiting for them. Story (c) takes as long as
the others together, because pools that have refused rest for half a minute. So it is told beside them, of a
service whose pools are its own. Of a service that the user names all are told in a row, but story (g) instead
of (c): it is the same, for everything at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from lab.demo.errors import StoryError
from lab.demo.stage import RETURN_WITHIN_S, Stage, names_of, option_of
from spotrelay.plane.core.pools import CapacityPool, PurchaseOption
from spotrelay.plane.core.replica import Replica

DELIVERIES = 3
"""How often story (e) delivers the same event. EventBridge promises at least once."""


@dataclass(frozen=True, slots=True)
class Story:
    """One story; `play` returns when it has come to its good end and raises `StoryError` when it hasn't."""

    key: str
    title: str
    play: Callable[[Stage], None]


def one_is_taken(stage: Stage) -> None:
    """EC2 warns one replica and takes it when the time is up."""
    victim, stays = _victim_and_survivors(stage.spot_replicas())
    with _two_in_one_pool(stage, stays):
        stage.say(f"EC2 warns replica {victim.id} ({_pool(victim)}): {stage.warning_s:g} s left")
        stage.warn("a", victim)
        stage.replaced([victim])


def a_pool_dries_up(stage: Stage) -> None:
    """Two replicas of one pool are warned at once, and their instance type is nowhere to be had."""
    pool, victims = _fullest_pool(stage.spot_replicas())
    if len(victims) != 2:
        raise StoryError(
            f"{pool} must have two replicas, so that one is left when it dries up; it has {len(victims)}"
        )
    stage.say(
        f"{pool.instance_type} has no Spot capacity left in any zone, and EC2 warns {names_of(victims)}"
        f" ({pool}) at once"
    )
    stage.market.dry_up(instance_type=pool.instance_type, warn=False)
    stage.lose_pool("b", pool, victims)
    for replacement in stage.replaced(victims):
        if _pool(replacement).instance_type == pool.instance_type:
            raise StoryError(
                f"replica {replacement.id} comes from {_pool(replacement)}, which has no capacity"
            )
    stage.market.bring_back(instance_type=pool.instance_type)


def spot_dries_up(stage: Stage) -> None:
    """No Spot pool has capacity left: an on-demand fallback serves until the replacement runs on Spot."""
    victim = stage.spot_replicas()[0]
    stage.say(
        f"no Spot pool that it may use has capacity, and EC2 warns replica {victim.id} ({_pool(victim)})"
    )
    stage.dry_up()
    stage.warn("c", victim)
    stage.taken_out([victim])
    fallback = stage.fallback()
    if option_of(fallback) is not PurchaseOption.ON_DEMAND:
        raise StoryError(f"replica {fallback.id} is no on-demand instance but {fallback.offering}")
    stage.say(
        f"fallback {fallback.id} ({fallback.offering}) serves,"
        f" {stage.ready_after_s(fallback, victim.id):.1f} s after the warning; now Spot has capacity again"
    )
    stage.bring_back()
    (replacement,) = stage.replacements([victim], return_s=RETURN_WITHIN_S)
    if option_of(replacement) is not PurchaseOption.SPOT:
        raise StoryError(f"replica {replacement.id} is no Spot instance but {replacement.offering}")


def the_event_is_lost(stage: Stage) -> None:
    """EC2 takes a replica and nobody is told: the tick finds out."""
    victim = stage.spot_replicas()[0]
    stage.say(f"EC2 warns replica {victim.id} ({_pool(victim)}), and the event is lost")
    stage.warn("d", victim, deliver="lost")
    stage.replaced([victim], notice_s=stage.schedule_s)


def the_event_comes_again(stage: Stage) -> None:
    """The same event is delivered three times, and there is one replacement."""
    victim = stage.spot_replicas()[0]
    before = _regular(stage)
    stage.say(f"EC2 warns replica {victim.id} ({_pool(victim)}), and the event arrives {DELIVERIES} times")
    stage.warn("e", victim, deliver=DELIVERIES)
    stage.replaced([victim])
    after = _regular(stage)
    if len(after) != len(before) + 1:
        raise StoryError(f"one replacement was due, and there are {sorted(after - before)}")


def everything_is_taken(stage: Stage) -> None:
    """EC2 warns every replica at the same moment: they keep serving, the last one until a replacement serves.

    Whether somebody was in rotation all the while is checked at the end, for all stories.
    """
    if any(r.is_fallback for r in stage.watch.look().ready):
        stage.say(
            "waiting until an on-demand fallback is gone: EC2 never takes those back,"
            " so it would serve throughout this story"
        )
    victims = stage.only_spot()
    stage.say(f"EC2 warns {names_of(victims)} at the same moment: {stage.warning_s:g} s left")
    stage.warn_all("f", victims)
    stage.replaced(victims)


def everything_is_taken_while_spot_is_dry(stage: Stage) -> None:
    """EC2 warns every replica at once while Spot is dry: on-demand fallbacks serve until Spot is back."""
    victims = stage.only_spot()
    stage.say(
        f"no Spot pool that it may use has capacity, and EC2 warns {names_of(victims)} at the same moment:"
        f" {stage.warning_s:g} s left"
    )
    stage.dry_up()
    stage.warn_all("g", victims)
    fallbacks = stage.fallbacks()
    ready_s = [stage.ready_after_s(r, victims[0].id) for r in fallbacks]
    stage.say(
        f"the fallbacks, {names_of(fallbacks)}, serve: the first {min(ready_s):.1f} s after the warning,"
        f" the last {max(ready_s):.1f} s; now Spot has capacity again"
    )
    stage.bring_back()
    stage.replacements(victims, return_s=RETURN_WITHIN_S)


IN_A_ROW: Sequence[Story] = (
    Story("a", "EC2 warns one replica and takes it when the time is up", one_is_taken),
    Story("b", "a capacity pool runs dry, and EC2 takes both replicas in it", a_pool_dries_up),
    Story("d", "the event of a warning is lost", the_event_is_lost),
    Story("e", f"the event of a warning arrives {DELIVERIES} times", the_event_comes_again),
    Story("f", "EC2 takes all replicas at once", everything_is_taken),
    Story("g", "EC2 takes all replicas at once, while Spot is dry", everything_is_taken_while_spot_is_dry),
)
"""What is told of a service that the user names."""

STORIES: Mapping[str, Sequence[Story]] = {
    "demo": IN_A_ROW[:-1],
    "demo-2": (Story("c", "every Spot pool runs dry", spot_dries_up),),
}
"""By the service that they are told of, one after the other; the services' stories at the same time."""


def _pool(replica: Replica) -> CapacityPool:
    if replica.offering is None:
        raise StoryError(f"replica {replica.id} is {replica.state} and has no pool")
    return replica.offering.pool


def _regular(stage: Stage) -> set[int]:
    """The IDs of all replicas so far that aren't fallbacks."""
    return {r.id for r in stage.watch.look().replicas.values() if not r.is_fallback}


def _fullest_pool(replicas: Sequence[Replica]) -> tuple[CapacityPool, list[Replica]]:
    pool = Counter(_pool(r) for r in replicas).most_common(1)[0][0]
    return pool, [r for r in replicas if _pool(r) == pool]


def _victim_and_survivors(replicas: Sequence[Replica]) -> tuple[Replica, list[Replica]]:
    """The replica that story (a) takes and those that stay: a pair in one pool among them, if there is one.

    Raises:
        StoryError: there are fewer than two.
    """
    if len(replicas) < 2:
        raise StoryError(f"two replicas on Spot instances are needed at least, and there are {len(replicas)}")
    pool, together = _fullest_pool(replicas)
    others = [r for r in replicas if _pool(r) != pool]
    victim = others[0] if others and len(together) > 1 else replicas[0]
    return victim, [r for r in replicas if r is not victim]


@contextmanager
def _two_in_one_pool(stage: Stage, stays: Sequence[Replica]) -> Iterator[None]:
    """Make sure that, with the replacement that is launched meanwhile, just two replicas share a pool.

    Story (b) needs that: a pool that takes two replicas with it, and a third elsewhere that goes on serving.
    """
    pool, together = _fullest_pool(stays)
    if len(together) > 1:
        stage.market.dry_up(zone=pool.zone, instance_type=pool.instance_type, warn=False)
    else:
        stage.dry_up()
        stage.market.bring_back(zone=pool.zone, instance_type=pool.instance_type)
    yield
    stage.bring_back()
