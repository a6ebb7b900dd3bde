"""What happens at a tick: gather, decide, perform.

`gathering` reads, the pure functions of `serving` decide, `performing` carries out, in its own order. A tick
then asks the replicas themselves (`probing`), and in the end, after it has let others in, tells the outside
what became of the service (`notifying`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from spotrelay.plane.control.consoles import Consoles
from spotrelay.plane.control.gathering import Gatherer
from spotrelay.plane.control.notifying import Notifier
from spotrelay.plane.control.performing import Decision, Outcome, Performer
from spotrelay.plane.control.probing import Probing
from spotrelay.plane.control.reporting import Reporting
from spotrelay.plane.core import timing
from spotrelay.plane.core.held import Override
from spotrelay.plane.core.ports import OtherControlPlane, PortError, Ports
from spotrelay.plane.core.replica import Replica
from spotrelay.plane.core.rows import Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.placement import launching
from spotrelay.plane.serving import mending, reconcile, rollout, strength
from spotrelay.plane.serving.holding import Holding, overridable
from spotrelay.plane.serving.observation import Observation, known
from spotrelay.plane.serving.steps import Step


@dataclass(slots=True)
class _Round:
    """What a tick saw of a service, as far as it came: for what is told of it afterwards."""

    spec: ServiceSpec | None = None
    seen: Observation | None = None
    answered: Sequence[Replica] = ()
    """Who answered the readiness probe for the first time."""


class Ticks:
    """Makes the replicas that exist match those that should."""

    def __init__(self, ports: Ports, reporting: Reporting, performer: Performer) -> None:
        self._ports = ports
        self._reporting = reporting
        self._performer = performer
        self._gatherer = Gatherer(ports, reporting)
        self._probing = Probing(ports, reporting, performer)
        self._notifier = Notifier(ports, reporting)
        self._consoles = Consoles(ports)

    def tick(
        self,
        service: str,
        serving: datetime | None,
        override: Override | None,
        announced: Mapping[str, str],
    ) -> None:
        """Compare what is with what should be, and close the gap; `serving` is the announced time, if any.

        `override`: a person's word for what is held back, see `holding`. `announced`: what EC2 announces for
        instances, see `ports.Announcer`; the next survey says it again.

        Raises:
            PortError: it failed.
        """
        ports = self._ports
        holder = ports.new_id()
        if not ports.store.acquire(service, holder, ports.clock.now(), timing.LEASE_S):
            if override:  # nobody says it again
                self._give_again(service, override)
            return
        done = _Round()
        try:
            try:
                due = self._reconcile(service, serving, done, override, announced)
            finally:
                ports.store.release(service, holder)
            if due:
                self._performer.announce(service, due, serving)
        finally:
            if done.spec and done.seen:
                # By the minute, as CloudWatch shows it.
                memory = self._notifier.appraise(done.spec, done.seen) if serving is None else None
                self._notifier.alarm(done.spec, done.seen.read, memory)
                self._notifier.notify(done.spec, done.seen.read)
        if done.seen and done.answered:
            self._consoles.read(service, done.seen.read, done.answered)

    def _conclude(self, service: str, holding: Holding, outcome: Outcome) -> None:
        """Put on record what is held back, unless an override failed: it comes again, and is to find that."""
        override = holding.override if holding.let_go else None
        if override and not outcome.is_won and not outcome.troubles:
            # As after a tick that is at work: nobody says it again.
            outcome.attempt("override", lambda: self._give_again(service, override))
        elif not (override and outcome.troubles):
            self._note_held(service, holding)

    def _give_again(self, service: str, override: Override) -> None:
        """Have an override come again, unless it has often enough."""
        if override.tries >= len(timing.OVERRIDE_AGAIN_S):
            self._reporting.never_heard(service, override)
            return
        again = replace(override, tries=override.tries + 1)
        delay_s = timing.OVERRIDE_AGAIN_S[override.tries]
        self._ports.ticker.schedule_override(service, again, delay_s)

    def _note_held(self, service: str, holding: Holding) -> None:
        """Put on record what is held back, if that has changed, and say what became of an override."""
        self._reporting.overridden(service, holding)
        held = holding.record(self._ports.clock.now())
        if held == holding.before:
            return
        try:
            self._ports.store.note_held(service, held)
        except PortError as error:  # the next tick does it
            launching.note_failed(self._ports, "not_noted", service, error)

    def _reconcile(
        self,
        service: str,
        serving: datetime | None,
        done: _Round,
        override: Override | None,
        announced: Mapping[str, str],
    ) -> datetime | None:
        """One round; when another should follow, None if the minute's tick will do."""
        ports = self._ports
        rows: Rows | None = None
        try:
            rows = known(ports.store.load(service), ports.clock.now())
            holding = Holding(rows.held, override)
            deployed, is_removed = self._gatherer.deployed(service, rows, holding)
        except OtherControlPlane as error:
            self._reporting.kept_off(service, error)
            if rows is not None and rows.is_claimed:
                ports.store.note_claim(service, is_ours=False)
            return None
        counted = Outcome(ports, service)
        if deployed and deployed.scaling:
            rows = self._gatherer.with_load(counted, deployed, deployed.scaling, rows)
        spec = deployed and rollout.in_effect(deployed, rows, ports.clock.now())
        if spec is None and not is_removed:
            self._note_held(service, holding)
            return self._performer.soon(rows) if rows.removal.told_at or holding.let_go else None
        if deployed and spec and spec.standby_auto:
            spec = replace(spec, standby=self._gatherer.standbys(counted, deployed, spec, rows))
        pools = self._gatherer.pools(counted, spec, rows)
        # The load balancer of a removed service stays until its replicas have left it, whatever it shows.
        routed = spec or rows.document
        seen = self._gatherer.look(service, routed, rows)
        seen = replace(seen, pools=pools, prices=pools.prices, announced=announced)
        now = ports.clock.now()
        decided = _decided(spec, seen, now, holding)
        done.spec, done.seen = spec, seen
        if spec:
            self._reporting.replicas(spec, rows, now)
            self._reporting.to_mend(service, mending.late_leaves(spec, seen, decided, now))
        elif reconcile.is_gone(seen):
            ports.store.forget(service)
            return None
        outcome = self._performer.perform(Decision(service, routed, rows, decided, serving=serving))
        if spec:
            # Those that serve are asked once a minute: each probe is a request that a model answers.
            watched = reconcile.watched(spec, seen) if serving is None else {}
            done.answered = self._probing.probe(spec, seen, watched)
            if serving is None and deployed and deployed.scaling and deployed.scaling.ongoing:
                self._probing.measure(spec, seen, deployed.scaling.ongoing)
        self._conclude(service, holding, outcome)
        outcome.raise_first()
        counted.raise_first()
        is_moving = any(not step.holds_back for step in decided)
        return self._performer.soon(rows) if is_moving else strength.next_look(spec, seen, ports.clock.now())


def _decided(spec: ServiceSpec | None, seen: Observation, now: datetime, holding: Holding) -> Sequence[Step]:
    """Everything to do; decided once more if an override lets go on what would be held back."""

    def decide(seen: Observation) -> Sequence[Step]:
        return reconcile.decide(spec, seen, now) if spec else reconcile.retire(seen, now)

    decided = decide(seen)
    held = overridable(decided)
    return decide(replace(seen, vouched=held)) if holding.lets_go(held) else decided
