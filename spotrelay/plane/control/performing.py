"""Carries decisions out: the only place that knows what must come before what.

Signals and ticks go through the same `Performer.perform`. Its order is the point of it:

1. *Commit* the rows: whoever loses the race for a row does nothing more about it. A replica that serves is
   taken out only on the strength of the others that serve, and the commit fails if they have become fewer:
   two of the last ones never leave because each relies on the other.
2. *Deregister* what the rows say has left, before anything slow: it is what the clients feel.
3. *Register* what runs, after its row says so: a warning that comes in between finds it and takes it out.
4. *Launch*, with an intent committed before, so that a crash leaves a trace for the tick to heal.
5. *Start* standbys, after the Spot launches, which a start that is refused or hangs would hold up; and before
   those on-demand, which would take the place that a standby needs.
6. *Tell* others what the losses taught, log what was done, and announce the next tick: none of it must hold
   up a launch, or fail it.
7. *Terminate*, last: nothing waits for it.

A step that fails doesn't keep the next from being taken: a load balancer that doesn't answer is no reason not
to launch. What failed is raised in the end, so that the message comes again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from itertools import takewhile
from math import ceil

from spotrelay.plane.control.reporting import Reporting
from spotrelay.plane.core import timing
from spotrelay.plane.core.names import Metric
from spotrelay.plane.core.pools import PoolMemory
from spotrelay.plane.core.ports import Conflict, Denied, PortError, Ports
from spotrelay.plane.core.replica import Replica, ReplicaState
from spotrelay.plane.core.rows import Changes, Rows
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.events import Signal
from spotrelay.plane.placement import cooldowns, launching
from spotrelay.plane.serving import changes, interruption, rollout, slots
from spotrelay.plane.serving.steps import Step


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done about one service, and what it was decided on."""

    service: str
    spec: ServiceSpec | None
    """Without one nothing is created, launched or routed."""
    rows: Rows
    steps: Sequence[Step]
    signals: Sequence[Signal] = ()
    serving: datetime | None = None
    """The announced tick that it serves, if it is one's."""


@dataclass(slots=True)
class Outcome:
    """What came of a decision's steps: one that fails is for the next ones no reason not to be taken."""

    ports: Ports
    service: str
    is_won: bool = True
    """Whether no step was decided on rows that have changed since."""
    troubles: list[PortError] = field(default_factory=list)
    """The steps that failed."""

    def attempt(self, step: str, act: Callable[[], object]) -> bool:
        """Take a step; False if it failed, which is noted."""
        try:
            act()
        except PortError as error:
            self.note(step, error)
            return False
        return True

    def note(self, step: str, error: PortError) -> None:
        """Keep what failed, and log it."""
        self.troubles.append(error)
        is_denied = isinstance(error, Denied)
        event = "denied" if is_denied else "step_failed"
        self.ports.telemetry.record(event, service=self.service, step=step, error=str(error))
        launching.count_denied(self.ports, error)

    def raise_first(self) -> None:
        """Raise what failed first, if anything did."""
        if self.troubles:
            raise self.troubles[0]


class Performer:
    """Carries decisions out through the ports."""

    def __init__(self, ports: Ports, reporting: Reporting) -> None:
        self._ports = ports
        self._reporting = reporting

    def perform(self, decision: Decision) -> Outcome:
        """Carry the steps out, as far as their rows haven't changed since they were read."""
        service, spec, signals = decision.service, decision.spec, decision.signals
        now = self._ports.clock.now()
        wanted = changes.changes(service, spec, decision.rows, decision.steps, now, self._ports.new_id)
        outcome = Outcome(self._ports, service)
        # Not past one that is lost: the rest was decided together with it, and would fit by chance at most.
        committed = list(takewhile(partial(self._commit, outcome), wanted))
        if held := sum(change.held for change in committed):
            self._ports.telemetry.count(Metric.LAUNCHES_HELD, held, service=service)
            self._ports.telemetry.record("launches_held", service=service, replicas=held)
        won = {r.id: r for change in committed for r in (*change.create, *change.update)}
        done = [step for step in decision.steps if _is_won(step, won)]
        # One that is resumed on its way back may be in rotation still: there it is needed.
        resumed = {step.starts for step in done if step.starts and step.creates}
        leaving = [step.takes_out for step in done if step.takes_out and step.takes_out not in resumed]
        kept_out = frozenset(leaving)
        out: dict[str, datetime] = {}
        is_out = True
        try:
            if spec:
                outcome.attempt("look_again", lambda: self._call_back(spec, done))
                ports = self._registered_ports(outcome, spec, decision.rows, leaving)
                if self._ports.clock.now() - now >= seconds(timing.CLOCKS_APART_S):
                    leaving = self._confirmed(outcome, decision, leaving, won)
                is_out = self._take_out(outcome, spec, leaving, ports, out)
                self._enter(outcome, decision, spec, done, kept_out, ports, won)

                @cache
                def start() -> None:
                    outcome.attempt("start", lambda: self._start(spec, done, kept_out, committed))

                outcome.attempt(
                    "launch",
                    lambda: self._launch_and_tell(spec, decision.rows, done, committed, signals, start),
                )
                start()
                # Once more what a tick may have been about to register when the warning came.
                settled = interruption.settled(decision.rows, now)
                unsettled = [i for i in leaving if i not in settled] if signals else []
                again: list[str] = []
                outcome.attempt("read", lambda: again.extend(self._still_leaving(decision, unsettled, won)))
                self._take_out(outcome, spec, again, ports, out)
        finally:
            self._reporting.done(service, done)
            if out:
                self._ports.telemetry.count(Metric.DEREGISTERED, len(out), service=service)
                self._reporting.since_warning(Metric.WARNING_TO_DEREGISTERED_MS, service, signals, out)
            if any(not step.holds_back for step in done):
                due = self.soon(decision.rows)
                outcome.attempt("announce", lambda: self.announce(service, due, decision.serving))
        if stops := [step.stops for step in done if step.stops]:
            outcome.attempt("stop", lambda: self._stop(service, stops))
        # What the load balancer may still send requests to waits; what never became ready gets none. After a
        # call that hung it may get some: its checks can have passed since they were looked at.
        stuck = set() if is_out else set(leaving)
        is_old = self._ports.clock.now() - now >= seconds(timing.CLOCKS_APART_S)
        ended = [
            s for s in done if s.terminates not in stuck or (s.enters(ReplicaState.FAILED) and not is_old)
        ]
        slots_ended = {step.terminates for step in ended if step.terminates}
        rows = replace(decision.rows, replicas={**decision.rows.replicas, **won})
        if terminate := slots.free(rows, slots_ended):
            outcome.attempt("terminate", lambda: self._terminate(service, terminate))
        return outcome

    def _registered_ports(
        self, outcome: Outcome, spec: ServiceSpec, rows: Rows, leaving: Collection[str]
    ) -> Mapping[str, int]:
        """By instance, what its server listens on; the load balancer knows it of whom the rows don't say it.

        Those are of before rows said it, or have none any more.
        """
        listens_on = {r.instance_id: r.listens_on for r in rows.replicas.values()}
        known = {slot: port for slot, port in listens_on.items() if slot and port}
        if any(r.instance_id and not r.port for r in rows.replicas.values()):
            known = rollout.ports(spec, rows)
        asked: dict[str, int] = {}
        if not known.keys() >= set(leaving):
            outcome.attempt("ports", lambda: asked.update(self._ports.router.ports(spec)))
        return asked | known

    def _call_back(self, spec: ServiceSpec, done: Sequence[Step]) -> None:
        """Have somebody look again at what serves on when its time has come, whatever else happens."""
        clock, ticker = self._ports.clock, self._ports.ticker
        began = clock.now()
        warned = [step.looks_again for step in done if step.looks_again]
        due = sorted({at for warned_at in warned for at in interruption.looks_due(spec, warned_at)})
        # Those that are due in the same second are one look, for the last of them.
        looks = {ceil(max((at - began).total_seconds(), 0)): at for at in due}
        for at in looks.values():
            # As of now: a call that takes long makes none after it late.
            ticker.schedule_leave(spec.service, max(ceil((at - clock.now()).total_seconds()), 0))

    def _take_out(
        self,
        outcome: Outcome,
        spec: ServiceSpec,
        instance_ids: Sequence[str],
        ports: Mapping[str, int],
        out: dict[str, datetime],
    ) -> bool:
        """Take instances out of rotation; `out` comes to say since when they are, if they are for certain."""
        is_done = outcome.attempt("deregister", lambda: self._deregister(spec, instance_ids, ports))
        if is_done:
            now = self._ports.clock.now()
            for instance_id in instance_ids:
                out.setdefault(instance_id, now)
        return is_done

    def _confirmed(
        self, outcome: Outcome, decision: Decision, leaving: list[str], won: Mapping[int, Replica]
    ) -> list[str]:
        """Who still leaves after a call that hung: those whose rows aren't written now may have come back.

        All of them if the table doesn't answer: they had left when they were read.
        """
        written = {r.instance_id for r in won.values()}
        unwritten = [i for i in leaving if i not in written]
        back = set[str]()

        def ask() -> None:
            back.update(set(unwritten).difference(self._still_leaving(decision, unwritten, won)))

        if unwritten:
            outcome.attempt("read", ask)
        return [i for i in leaving if i not in back]

    def _still_leaving(
        self, decision: Decision, instance_ids: Sequence[str], won: Mapping[int, Replica]
    ) -> Sequence[str]:
        """Those that didn't come back meanwhile, because nobody else served; what has ended never does."""
        known = (r for r in decision.rows.replicas.values() if r.instance_id in instance_ids)
        ids = {r.id for r in known if not (r.id in won and won[r.id].state.is_ended)}
        if not ids:
            return instance_ids
        back = frozenset(self._active(decision.service, ids).values())
        return [i for i in instance_ids if i not in back]

    def _active(self, service: str, ids: Collection[int]) -> Mapping[int, str | None]:
        """Of these replicas those that are active by now, and their instances."""
        store, clock = self._ports.store, self._ports.clock
        began = clock.now()
        rows = store.read(service, ids)
        if clock.now() - began >= seconds(timing.CLOCKS_APART_S):
            rows = store.read(service, ids)  # others may have written while the answer was on its way
        return {r.id: r.instance_id for r in rows.replicas.values() if r.state.is_active}

    def _deregister(self, spec: ServiceSpec, instance_ids: Sequence[str], ports: Mapping[str, int]) -> None:
        if instance_ids:
            self._ports.router.deregister(spec, instance_ids, ports)

    def _enter(
        self,
        outcome: Outcome,
        decision: Decision,
        spec: ServiceSpec,
        done: Sequence[Step],
        kept_out: Set[str],
        ports: Mapping[str, int],
        won: Mapping[int, Replica],
    ) -> None:
        """Register what runs. What has a readiness probe, `probing` registers once it answers."""
        coming = {
            step.replica.id: step.replica.instance_id
            for step in done
            if step.puts_in or (step.enters(ReplicaState.STARTING) and not spec.readiness_probe)
        }
        # Whoever took one out, as its time had come, did so with its row: to put it in again cuts requests.
        warned = {id_ for id_ in coming.keys() - won.keys() if decision.rows.replicas[id_].is_warned}
        active: dict[int, str | None] = {}
        if warned:
            outcome.attempt("read", lambda: active.update(self._active(decision.service, warned)))
        gone = warned - active.keys()
        # What a few rows don't tell the port of, the tick puts in.
        entrants = [
            instance_id
            for id_, instance_id in coming.items()
            if instance_id and id_ not in gone and instance_id not in kept_out
            if instance_id in ports or decision.rows.is_whole
        ]
        if entrants:
            outcome.attempt("register", lambda: self._ports.router.register(spec, entrants, ports))

    def _start(
        self,
        spec: ServiceSpec,
        done: Sequence[Step],
        kept_out: Set[str],
        committed: Sequence[Changes],
    ) -> None:
        """Start the instances of the standbys that are resumed."""
        # One that has slept on may be given up by the same tick.
        if starts := {step.starts for step in done if step.starts} - kept_out:
            written = [r for change in committed for r in change.stored if r.instance_id in starts]
            rows = {r.id: r for r in written if not r.state.is_ended}
            # One that is asked again was resumed before: its row is the one that was read.
            again = {step.replica.id: step.replica for step in done if step.starts and not step.after}
            launching.resume(self._ports, spec, starts, list((again | rows).values()))

    def _launch_and_tell(
        self,
        spec: ServiceSpec,
        rows: Rows,
        done: Sequence[Step],
        committed: Sequence[Changes],
        signals: Sequence[Signal],
        before_on_demand: Callable[[], object],
    ) -> None:
        """Launch what was ordered in other pools than were lost, and then tell others about those."""
        store, now = self._ports.store, self._ports.clock.now()
        orders = sorted((change for change in committed if change.open_intent), key=_takes_standbys_room)
        if not orders and not changes.lessons(done, PoolMemory(), now):
            return
        memory = store.recall(spec.service, spec.region, now)
        lessons = cooldowns.news(changes.lessons(done, memory, now), memory)
        memory = cooldowns.with_lessons(memory, lessons)
        # As written now: a warning that it handles may be what a launch is refused for.
        written = {r.id: r for change in committed for r in (*change.create, *change.update)}
        known = [r for r in {**rows.replicas, **written}.values() if not r.state.is_ended]
        launched_count = 0
        for order in orders:
            if _takes_standbys_room(order):
                before_on_demand()
            its = rollout.of_version(spec, rows, order.to_launch[0].version)
            launched_count += launching.launch(self._ports, its, order, memory, known)
        if launched_count:
            launched = dict.fromkeys((s.instance_id for s in signals), self._ports.clock.now())
            self._reporting.since_warning(Metric.WARNING_TO_LAUNCHED_MS, spec.service, signals, launched)
        if lessons:
            try:
                store.cool(lessons)
            except PortError as error:
                launching.note_lost(self._ports, spec.service, error)

    def _stop(self, service: str, instance_ids: Sequence[str]) -> None:
        self._note_denied("stop", service, self._ports.fleet.stop(instance_ids))

    def _terminate(self, service: str, instance_ids: Sequence[str]) -> None:
        self._note_denied("terminate", service, self._ports.fleet.terminate(instance_ids))

    def _note_denied(self, step: str, service: str, refused: Mapping[str, str]) -> None:
        """Log and count each instance of which AWS refuses the step, by its ID, with AWS's words."""
        for instance_id, why in refused.items():
            launching.count_denied(self._ports, Denied(why))
            self._ports.telemetry.record(
                "denied", step=step, service=service, instance_id=instance_id, error=why
            )

    def _commit(self, outcome: Outcome, change: Changes) -> bool:
        """Write it; False if it wasn't, or nobody knows. What was written before is carried out anyway."""
        try:
            self._ports.store.commit(change)
        except Conflict as conflict:
            self._ports.telemetry.count(Metric.CONFLICTS, service=change.service)
            self._ports.telemetry.record("conflict", service=change.service, detail=str(conflict))
            outcome.is_won = False
            return False
        except PortError as error:
            outcome.note("commit", error)
            return False
        return True

    def announce(self, service: str, due: datetime, serving: datetime | None) -> None:
        """Have the service's next tick run at `due`, unless one is announced already."""
        now = self._ports.clock.now()
        if self._ports.store.claim_tick(service, due, now, serving):
            self._ports.ticker.schedule(service, due, (due - now).total_seconds())

    def soon(self, rows: Rows) -> datetime:
        """When to look again while something is under way."""
        return self._ports.clock.now() + seconds(rows.look_again_s)


def _takes_standbys_room(order: Changes) -> bool:
    """Whether it launches what standbys are, too."""
    return order.to_launch[0].purchase_option.can_be_stopped


def _is_won(step: Step, won: Mapping[int, Replica]) -> bool:
    """Whether what the step writes was written; one that writes nothing always is."""
    taken_in = None if step.before else next((row.instance_id for row in step.creates), None)
    if taken_in:
        return any(row.instance_id == taken_in for row in won.values())
    return step.after is None or step.after.id in won
