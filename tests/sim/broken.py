"""Controllers with one mistake each: what the checker must notice, or it isn't worth its seeds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from spotrelay.controller import Controller
from spotrelay.intake import Intake
from spotrelay.memory import MemoryStore
from spotrelay.model import Changes, Replica, ServiceSpec
from spotrelay.policy import changes, interruption, reconcile
from spotrelay.policy.actions import Action, CloseIntent, Request, Terminate
from spotrelay.ports import Conflict, LaunchRequest, LaunchResult, Router, Unavailable
from spotrelay.sim.ports import SimFleet
from spotrelay.sim.rules import Rule


@dataclass(frozen=True)
class Broken:
    """A mistake: what is replaced by what, and the rules of which one must notice."""

    name: str
    rules: frozenset[Rule]
    replaced: tuple[tuple[Any, str, Any], ...]

    @contextmanager
    def made(self) -> Iterator[None]:
        """The production code with the mistake in it."""
        with ExitStack() as stack:
            for owner, name, value in self.replaced:
                stack.enter_context(patch.object(owner, name, value))
            yield


BROKEN: list[Broken] = []


def mistake(owner: Any, name: str, *rules: Rule) -> Callable[[Any], Any]:
    """Have the function that follows stand in for `owner.name`; its docstring says what is wrong with it."""

    def add(function: Any) -> Any:
        BROKEN.append(Broken(function.__name__, frozenset(rules), ((owner, name, function),)))
        return function

    return add


def also(owner: Any, name: str) -> Callable[[Any], Any]:
    """A second part of the mistake before."""

    def add(value: Any) -> Any:
        broken = BROKEN.pop()
        BROKEN.append(replace(broken, replaced=(*broken.replaced, (owner, name, value))))
        return value

    return add


_commit = Controller._commit
_perform = Controller._perform
_store_commit = MemoryStore.commit
_terminate = SimFleet.terminate
_warned = SimFleet.warned
_launch = SimFleet.launch
_signals = Intake.signals
_for_rebalance = reconcile._for_rebalance
_reconcile = Controller._reconcile


@mistake(MemoryStore, "_check", Rule.LEGAL)
def rows_without_revisions(kept: Any, changes: Changes) -> None:
    """A row is written whatever became of it since it was read."""
    if changes.highest_id and changes.highest_id[0] != kept.highest_id:
        raise Conflict("highest ID")


BROKEN[-1] = replace(BROKEN[-1], replaced=((MemoryStore, "_check", staticmethod(rows_without_revisions)),))


@staticmethod  # type: ignore[misc]  # it stands in for one
def ids_without_condition(kept: Any, changes: Changes) -> None:
    """New rows are written whoever gave IDs since the highest was read."""
    for row in changes.update:
        stored = kept.replicas.get(row.id)
        if stored is None or stored.revision != row.revision:
            raise Conflict("revision")


BROKEN.append(
    Broken("ids_without_condition", frozenset({Rule.IDS}), ((MemoryStore, "_check", ids_without_condition),))
)


@mistake(Controller, "_commit", Rule.INTENT_FIRST)
def no_launch_intent(self: Controller, change: Changes) -> bool:
    """Launches are made without a trace before."""
    return _commit(self, replace(change, open_intent=None))


@mistake(Controller, "_perform", Rule.OUT_FIRST)
def deregisters_last(self: Controller, *args: Any, **kwargs: Any) -> bool:
    """The load balancer hears of it when everything else is done."""
    router = _LateRouter(self._ports.router)
    done = _perform(Controller(replace(self._ports, router=router)), *args, **kwargs)
    for spec, ids in router.late:
        self._ports.router.deregister(spec, ids)
    return done


class _LateRouter:
    """Keeps deregistrations for later."""

    def __init__(self, router: Router) -> None:
        self.register, self.health = router.register, router.health
        self.late: list[tuple[ServiceSpec, Collection[str]]] = []

    def deregister(self, spec: ServiceSpec, instance_ids: Collection[str]) -> None:
        self.late.append((spec, instance_ids))


@mistake(reconcile, "_terminate", Rule.WARNED_SPARED)
def terminates_warned_instances(
    instance: Any, seen: Any, why: str, replica: Replica | None = None
) -> Iterator[Terminate]:
    """What is drained is terminated, whoever takes it anyway."""
    if instance.state.is_alive:
        yield Terminate(instance.id, why, replica)


also(Replica, "is_warned")(property(lambda _: False))


@mistake(interruption, "_for_draining", Rule.STRENGTH)
def replaces_for_each_warning(replica: Replica, told: Any) -> Action | None:
    """A duplicate counts as another loss."""
    return Request(1, "warned again") if told.warned_at else None


@mistake(reconcile, "_adoptions", Rule.ADOPTION)
def no_adoption(seen: Any, now: Any) -> dict[int, Any]:
    """What a launch brought without an answer stays nobody's."""
    return {}


@mistake(reconcile, "_for_unowned", Rule.NO_ORPHAN)
def no_end_for_orphans(seen: Any, adopted: Any, now: Any) -> list[Action]:
    """Instances of ours that nobody knows live on."""
    return []


@mistake(SimFleet, "warned", Rule.TICK_TAKES_OUT)
def tick_ignores_warnings(self: SimFleet) -> frozenset[str]:
    """The tick looks, and sees nothing."""
    _warned(self)
    return frozenset()


@mistake(Controller, "_commit", Rule.REPLACED_ONCE, Rule.NO_SURPRISE)
def drains_and_replaces_in_two_commits(self: Controller, change: Changes) -> bool:
    """Between the two anything may happen."""
    drained = Changes(change.service, update=change.update)
    return _commit(self, drained) and _commit(self, replace(change, update=()))


@mistake(SimFleet, "launch", Rule.INTENT_FIRST)
def launches_again_with_a_new_token(self: SimFleet, request: LaunchRequest) -> LaunchResult:
    """No answer is taken for no launch."""
    try:
        return _launch(self, request)
    except Unavailable:
        return _launch(self, replace(request, launch_id=f"{request.launch_id}-again"))


@mistake(MemoryStore, "commit", Rule.NO_OPEN_INTENT, Rule.SETTLES, Rule.INTENT_FIRST)
def intents_are_never_closed(self: MemoryStore, changes: Changes) -> None:
    """What is done stays on the list."""
    _store_commit(self, replace(changes, close_intents=()))


@mistake(MemoryStore, "release", Rule.LEASES)
def leases_are_never_released(self: MemoryStore, service: str, holder: str) -> None:
    """The next tick must wait until it expires."""


@mistake(Intake, "signals", Rule.SIGNAL_HANDLED)
def failed_signals_are_dropped(self: Intake, messages: Mapping[str, str]) -> list[str]:
    """What failed is deleted from the queue."""
    _signals(self, messages)
    return []


@mistake(reconcile, "is_in_transition", Rule.SETTLES)
def ticks_never_rest(seen: Any, spec: Any) -> bool:
    """A tick every three seconds for ever."""
    return True


@mistake(reconcile, "_for_strength", Rule.WHOLE, Rule.SETTLES)
def nobody_counts(*args: Any) -> list[Action]:
    """Losses are replaced, but nobody looks whether there are as many as wanted."""
    return []


@mistake(Controller, "_reconcile", Rule.FOREIGN, Rule.WARNED_SPARED)
def ends_whatever_is_warned(self: Controller, *args: Any) -> bool:
    """The account has others' instances, too."""
    if going := self._ports.fleet.warned():
        self._ports.fleet.terminate(going)
    return _reconcile(self, *args)


@mistake(reconcile, "_for_rebalance", Rule.STRENGTH)
def supersedes_all_at_once(spec: ServiceSpec, *args: Any) -> Iterator[Action]:
    """Every recommendation is followed at the same time."""
    return _for_rebalance(replace(spec, surge=99), *args)


@mistake(changes._Brake, "passes", Rule.LAUNCH_RATE)
def launches_without_a_brake(self: Any, wanted: int) -> int:
    """As many as wanted, at once."""
    return wanted


@mistake(reconcile, "_for_intents", Rule.PATIENCE, Rule.ADOPTION, Rule.NO_ORPHAN)
def intents_are_given_up_at_once(seen: Any, adopted: Any, now: Any) -> list[Action]:
    """A launch that isn't recorded by the next tick is taken for failed."""
    return [CloseIntent(intent) for intent in seen.rows.intents]


@mistake(reconcile, "_one_for_each", Rule.NO_SURPRISE)
def a_row_is_written_twice(actions: Sequence[Action]) -> list[Action]:
    """Two actions about one replica in one commit."""
    return list(actions)


@mistake(Intake, "_set_aside", Rule.DEAD_LETTERS)
def malformed_messages_vanish(self: Intake, body: str, why: Exception) -> None:
    """What can't be read is nobody's business."""


@mistake(reconcile, "_for_draining", Rule.NO_ORPHAN, Rule.SETTLES)
def drained_instances_are_left_running(*args: Any) -> list[Action]:
    """Somebody else will end them."""
    return []
