"""Reads what a decision is made on: documents, rows, and what EC2 and the load balancer show."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from spotrelay.plane.control.performing import Outcome
from spotrelay.plane.control.reporting import Reporting
from spotrelay.plane.core import timing
from spotrelay.plane.core.instances import Instance
from spotrelay.plane.core.pools import PoolMemory
from spotrelay.plane.core.ports import PortError, Ports, Unavailable, UnreadableDocument, highest_ended_id
from spotrelay.plane.core.rows import Removal, Rows, ScaleRequest, Source
from spotrelay.plane.core.scaling import Load, Needed, Scaling
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.core.timing import seconds
from spotrelay.plane.placement import launching
from spotrelay.plane.serving import autoscaling, moves, reconcile, rollout, slots, standby_count, strength
from spotrelay.plane.serving.holding import Holding
from spotrelay.plane.serving.observation import Observation
from spotrelay.plane.serving.steps import HoldBack

ENDED_LOOKED_AT = 100
"""Ended replicas, the newest first, among which the owners of leftover instances are looked for: a page."""


class Gatherer:
    """Reads. All that it writes is what it learns by that: documents, numbers asked for, lost IDs."""

    def __init__(self, ports: Ports, reporting: Reporting) -> None:
        self._ports = ports
        self._reporting = reporting

    def deployed(self, service: str, rows: Rows, holding: Holding) -> tuple[ServiceSpec | None, bool]:
        """The service file's document, and whether the service's stack is gone for certain.

        A document that is missing or can't be read ends nothing: then the last one counts. So it does if
        the document is missing without a sign, or names another target group, and no override says so. And
        while nobody can be asked, unless another control plane had the service, or a removal was told.

        Raises:
            OtherControlPlane: see `ports.Services.get`.
        """
        store, kept = self._ports.store, rows.document
        try:
            spec = self._ports.services.get(service, fresh=True)
        except UnreadableDocument as error:
            self._reporting.held_back(
                service, "the last document counts", str(error), "deploy the service again"
            )
            self._note_presence(service, rows)
            return kept, False
        except PortError as error:
            launching.note_failed(self._ports, "document_unknown", service, error)
            return rows.last_document, False
        if not rows.is_claimed:
            store.note_claim(service, is_ours=True)
        if spec is None:
            return self._missed(service, rows, holding)
        spec = standby_count.with_number_so_far(spec, kept)
        self._note_presence(service, rows)
        if kept and kept.target_group_arn != spec.target_group_arn and rows.replicas:
            moved = HoldBack(
                "the last document counts",
                f"the target group is {spec.target_group_arn} instead of {kept.target_group_arn}, where the"
                " replicas are registered",
                then="the deployed one counts, and the replicas are registered in its target group",
            )
            if not self._is_let_go(service, moved, holding):
                return kept, False
        if spec != kept:
            store.keep_document(spec, rollout.earlier_kept(kept, spec, rows))
        return spec, False

    def with_load(self, outcome: Outcome, deployed: ServiceSpec, wanted: Scaling, rows: Rows) -> Rows:
        """The rows with the number that the load asks for by now; as before if nobody can tell."""
        from zoneinfo import ZoneInfoNotFoundError  # no warning waits for this

        ports, service = self._ports, deployed.service
        known = rows.requests.get(Source.LOAD)
        before = known or autoscaling.begun(deployed, rows)
        load = Load()
        try:
            needed = autoscaling.needed(wanted, before, rows, ports.clock.now())
            load, decided = self._by_load(deployed, wanted, needed, before, rows)
            if autoscaling.is_open(before, decided, load):
                needed = replace(needed, silence=True)
                load, decided = self._by_load(deployed, wanted, needed, before, rows)
        except ZoneInfoNotFoundError as error:
            remedy = "name a time zone that IANA's database has"
            self._reporting.held_back(service, "the number of replicas is kept", str(error), remedy)
            decided = before
        if decided != known and outcome.attempt(
            "scale", lambda: ports.store.note_request(service, Source.LOAD, decided)
        ):
            self._reporting.scaled(service, before, decided, load)
            before = decided
        return replace(rows, requests={**rows.requests, Source.LOAD: before})

    def standbys(self, outcome: Outcome, deployed: ServiceSpec, spec: ServiceSpec, rows: Rows) -> int:
        """How many standbys pay, where the service file leaves that to us; as before if nobody can tell."""
        store, service = self._ports.store, spec.service
        try:
            wanted = standby_count.derive(spec, rows, store.history(service, standby_count.RECORD))
            if wanted.count != spec.standby:
                self._reporting.standbys(service, spec.standby, wanted)
                store.keep_document(replace(deployed, standby=wanted.count))
        except PortError as error:  # no reason not to replace what is lost
            outcome.note("count_standbys", error)
            return spec.standby
        return wanted.count

    def pools(self, outcome: Outcome, spec: ServiceSpec | None, rows: Rows) -> PoolMemory:
        """What is known of the pools, where replicas move or some are to go.

        Nothing if nobody can tell.
        """
        if spec is None or not (moves.may_move(spec) or strength.surplus(spec, rows)):
            return PoolMemory()
        try:
            return self._ports.store.recall(spec.service, spec.region, self._ports.clock.now())
        except PortError as error:  # no reason not to replace what is lost
            outcome.note("recall", error)
            return PoolMemory()

    def look(self, service: str, spec: ServiceSpec | None, rows: Rows) -> Observation:
        """What EC2 and the load balancer show."""
        ports = self._ports
        observed = self._observed(service, rows)
        # After them, and about each that was alive: what has ended since is still said to be taken back.
        said = slots.warned(rows, self._taken_back(service, slots.on_spot(rows, observed)))
        known = {r.instance_id for r in rows.replicas.values() if r.instance_id}
        health = ports.router.health(spec, known) if spec else {}
        instances = slots.instances(spec, rows, observed, health)
        seen = Observation(
            rows,
            instances,
            health,
            warned={slot: at for slot, at in said.items() if at},
            spared=frozenset(slot for slot, at in said.items() if at is None),
        )
        if strangers := {i.id for i in reconcile.unowned(seen, ports.clock.now())}:
            located = ports.store.locate(strangers)
            recorded = {i: id_ for i, (owner, id_) in located.items() if owner == service}
            # A row may have ended, and whoever was to terminate its instance died over it.
            ended = {r.id for r in ports.store.history(service, ENDED_LOOKED_AT)} if recorded else set()
            of_ended = frozenset(i for i, id_ in recorded.items() if id_ in ended)
            registered = ports.router.ports(spec, known) if spec and strangers & health.keys() else {}
            seen = replace(seen, recorded=frozenset(recorded), of_ended=of_ended, ports=registered)
        # A new service, or one whose entry got lost with all that it had: then the history knows its IDs.
        if rows.highest_id == 0:
            seen = replace(seen, ended_id=highest_ended_id(self._ports.store, service))
        return seen

    def _by_load(
        self, deployed: ServiceSpec, wanted: Scaling, needed: Needed, before: ScaleRequest, rows: Rows
    ) -> tuple[Load, ScaleRequest]:
        """What is seen of the load, and the number that it asks for.

        Raises:
            zoneinfo.ZoneInfoNotFoundError: see `Scaling.bounds`.
        """
        ports = self._ports
        try:
            load = ports.loads.observe(deployed, needed, ports.clock.now())
        except PortError as error:  # no reason not to replace what is lost
            launching.note_failed(ports, "load_unknown", deployed.service, error)
            load = Load()
        now = ports.clock.now()
        load = autoscaling.with_ongoing(load, rows.ongoing, now)
        return load, autoscaling.decide(
            wanted, before, load, autoscaling.serving_types(deployed, wanted, rows), now
        )

    def _observed(self, service: str, rows: Rows) -> Sequence[Instance]:
        """What EC2 shows: where it doesn't say, what it shows of the zones that answer.

        While a zone is disrupted EC2 refuses to describe instances unless they are named, and none is in it.
        What is in that zone isn't shown then: it is gone once the load balancer says so, too.
        https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstances.html
        """
        fleet = self._ports.fleet
        try:
            return fleet.observe(service)
        except Unavailable as error:
            shown, answers = list[Instance](), dict[str, str]()
            for zone, ids in slots.by_zone(rows).items():
                try:
                    shown += fleet.look_up(ids)
                    answers[zone] = "answers"
                except PortError as silence:
                    answers[zone] = repr(silence)
            if "answers" not in answers.values():
                raise
            self._ports.telemetry.record("zones_looked_at", service=service, error=repr(error), **answers)
            return shown

    def _taken_back(self, service: str, on_spot: Collection[str]) -> Mapping[str, datetime | None]:
        """What EC2 says of their Spot requests; nothing if it doesn't: events tell of warnings first."""
        try:
            return self._ports.fleet.warned(on_spot)
        except PortError as error:  # no reason not to replace what is lost
            launching.note_failed(self._ports, "requests_unknown", service, error)
            return {}

    def _note_presence(self, service: str, rows: Rows) -> None:
        """The service has a document: whatever was told of a removal is over."""
        if rows.removal != Removal():
            self._ports.store.note_removal(service, Removal())

    def _is_let_go(self, service: str, held: HoldBack, holding: Holding) -> bool:
        """Whether an override lets it go on; if not, that is told."""
        if holding.lets_go([held]):
            return True
        self._reporting.held_back(service, held.what, held.why)
        return False

    def _missed(self, service: str, rows: Rows, holding: Holding) -> tuple[ServiceSpec | None, bool]:
        """What a missing document means: an end only if we were told, and it stays missing."""
        told_at = rows.removal.told_at
        if told_at is None:
            kept = HoldBack(
                "its replicas are kept",
                "its document is missing, and nothing says that it was removed",
                then="the service counts as removed: once some more ticks have found no document, its"
                " replicas are drained and ended",
            )
            if not self._is_let_go(service, kept, holding):
                return rows.document, False
            told_at = self._ports.clock.now()
        told_for = self._ports.clock.now() - told_at
        removal = Removal(told_at, rows.removal.absent + 1)
        if removal.absent > timing.REMOVED_TICKS and told_for >= seconds(timing.REMOVED_AFTER_S):
            return None, True
        self._ports.store.note_removal(service, removal)
        return None, False
