"""The instances of the local cloud and what happens to them: boot, warning, reclaim, termination.

A warning may be shorter here than EC2's two minutes. Whoever is warned rightly believes that the end comes
two minutes after the event's `time`; so the event, and the `UpdateTime` of the Spot request, are dated back
by as much as the warning is shortened. With a warning of 20 s the event looks like one that arrives 100 s
late: 20 s are left of its two minutes, which is the truth. A request may be marked before it was made,
then.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from lab.local.catalog import gpu_count
from lab.local.disks import LocalImage, LocalSnapshot
from lab.local.environment import EC2_WARNING_S
from lab.local.instances import (
    BY_EC2,
    BY_ITSELF,
    BY_USER,
    ENDINGS,
    Ending,
    LaunchSpec,
    LocalInstance,
    LocalInstanceState,
    SpotRequest,
    SpotStatus,
)
from lab.local.ministack import MiniStack
from lab.local.network import NetworkError, Shape
from lab.local.quotas import Quotas
from lab.local.recordings import Recordings
from lab.local.reservations import Reservations
from lab.market import Market
from spotrelay.plane.core.pools import OPTIONS, Offering, PurchaseOption

_log = logging.getLogger(__name__)

JOINS_S = 0.05
"""A fraction of how long an instance takes until it is on its network."""

SHUTDOWN_S = 1.0
"""From shutting-down to terminated: long enough to be seen, short enough not to be waited for."""

STOP_S = 1.0
"""From stopping to stopped: on EC2 up to a minute, in which it can't be started."""

UNSEEN_S, WITHOUT_ADDRESS_S = 0.5, 0.5
"""How long EC2 doesn't show a new instance, and then not its address, unless told otherwise: moments on EC2
mostly, and more than a minute where many were launched (aws/aws-parallelcluster#7265)."""

VISIBLE_S = 3600.0
"""How long a terminated instance stays visible: about an hour on EC2."""


class MachineRoom(Protocol):
    """Where instances run; see `lab.local.machines`."""

    def new_address(self) -> str:
        """An address for a new instance."""

    def start(
        self, instance_id: str, address: str, user_data: str, gpus: int = 0, image_id: str = ""
    ) -> None:
        """Boot it, at first with the disk that was kept for the image, if one was."""

    def keep_disk(self, instance_id: str, image_id: str) -> int:
        """Keep a copy of its disk; its bytes."""

    def shape(self, instance_id: str, shape: Shape) -> bool:
        """Make its network so slow; False: it isn't on its network yet."""

    def hang(self, instance_id: str) -> None:
        """Let it answer nothing any more."""

    def resume(self, instance_id: str) -> None:
        """Let it go on."""

    def halt(self, instance_id: str) -> None:
        """Kill what runs on it, and keep its disk: `start` boots it again."""

    def stop(self, instance_id: str) -> None:
        """Kill it, and drop its disk."""

    def on_console(self, instance_id: str, *, latest: bool) -> bytes:
        """What its console shows now, or showed when it came to run."""


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """How fast things go, in seconds. The names are those of the command line."""

    warning_s: float = EC2_WARNING_S
    schedule_s: float = 60.0
    boot_s: float = 1.0


@dataclass(slots=True)
class LocalInterruption:
    """One Spot interruption. `deliveries` is how often its event was delivered; 0 for a lost one."""

    instance_id: str
    warned_at: float
    deliveries: int
    deregistered_at: float | None = None
    reclaimed_at: float | None = None
    terminated_at: float | None = None
    """When a user terminated it before EC2 could take it."""
    retracted_at: float | None = None
    """When EC2 thought better of it."""

    @property
    def is_pending(self) -> bool:
        """Whether EC2 still means to take the instance."""
        return self.reclaimed_at is None and self.retracted_at is None

    def to_json(self) -> dict[str, Any]:
        """As the control API shows it."""
        event: str | int = {0: "lost", 1: "once"}.get(self.deliveries, self.deliveries)
        return {
            "instance_id": self.instance_id,
            "warned_at": self.warned_at,
            "deregistered_at": self.deregistered_at,
            "reclaimed_at": self.reclaimed_at,
            "terminated_at": self.terminated_at,
            "retracted_at": self.retracted_at,
            "event": event,
        }


class NotPossibleError(ValueError):
    """The control API was asked for something that can't happen; the text says why."""


EVENTS = {
    "instance-reboot": "The instance is scheduled for a reboot",
    "instance-retirement": "The instance is running on degraded hardware",
    "instance-stop": "The instance is running on degraded hardware",
    "system-maintenance": "The host is scheduled for maintenance",
    "system-reboot": "The host is scheduled for a reboot",
}
"""What EC2 announces for instances, and about what it says."""


class EmulatedCloud:
    """All instances. Not thread-safe: everything happens on the event loop's thread.

    `after` runs a function so many seconds later; `on_terminated` is told when an instance is gone.
    """

    def __init__(
        self,
        ministack: MiniStack,
        market: Market,
        machines: MachineRoom,
        settings: LocalSettings,
        after: Callable[[float, Callable[[], None]], object],
        recordings: Recordings | None = None,
    ) -> None:
        self.market = market
        self.recordings = recordings or Recordings()
        self.quotas = Quotas(ministack.limit_concurrency)
        self.reservations = Reservations()
        self.settings = settings
        self.instances: dict[str, LocalInstance] = {}
        self.interruptions: list[LocalInterruption] = []
        self.lost_images: set[str] = set()
        self.images: dict[str, LocalImage] = {}
        """Those that were made of an instance here."""
        self.snapshots: dict[str, LocalSnapshot] = {}
        self.disrupted: set[str] = set()
        """Zones whose service is disrupted."""
        self.unseen_s, self.without_address_s = UNSEEN_S, WITHOUT_ADDRESS_S
        self.on_terminated: Callable[[LocalInstance], None] = lambda _: None
        self._ministack = ministack
        self._machines = machines
        self._after = after
        self._stillborn: list[str] = []

    def now(self) -> datetime:
        """The present time."""
        return datetime.now(UTC)

    def publish_image(self, parameter: str, image_id: str) -> None:
        """A public parameter says another image from now on, as AWS's own do every few nights."""
        self._ministack.seed_public_parameters({parameter: image_id})

    def zone_of(self, instance_id: str) -> str | None:
        """The instance's zone, as long as it is visible."""
        instance = self.instances.get(instance_id)
        return instance.zone if instance else None

    def shown(self) -> list[LocalInstance]:
        """The instances that EC2 shows already, and still."""
        since = self.now() - timedelta(seconds=self.unseen_s)
        return [instance for instance in self.instances.values() if instance.made_at <= since]

    def shows_address(self, instance: LocalInstance) -> bool:
        """Whether EC2 shows the address that the instance has, too."""
        return self.now() - instance.made_at >= timedelta(seconds=self.unseen_s + self.without_address_s)

    def address_of(self, instance_id: str) -> str | None:
        """Where the instance listens, while it runs."""
        instance = self.instances.get(instance_id)
        return instance.address if instance and instance.state is LocalInstanceState.RUNNING else None

    def launch(
        self,
        offering: Offering,
        spec: LaunchSpec,
        reservation_id: str,
        capacity_reservation: str | None = None,
    ) -> LocalInstance:
        """A new instance; its place in the market, or in a capacity reservation, is taken already."""
        now = self.now()
        spot = (
            SpotRequest(f"sir-{secrets.token_hex(4)}", SpotStatus.FULFILLED, now)
            if offering.purchase_option is PurchaseOption.SPOT
            else None
        )
        instance = LocalInstance(
            id=f"i-{secrets.token_hex(8)}{secrets.token_hex(1)[0]}",
            offering=offering,
            spec=spec,
            address=self._machines.new_address(),
            launched_at=now,
            reservation_id=reservation_id,
            made_at=now,
            tags={**spec.tags, **spec.system_tags},
            spot_request=spot,
            is_protected=spec.is_protected and spot is None,
            capacity_reservation=capacity_reservation,
        )
        self.instances[instance.id] = instance
        if self._stillborn:
            instance.dies_of = self._stillborn.pop(0)
        self._ministack.mirror_tags(instance.id, instance.tags)
        # EventBridge may deliver at once, but nobody can know the instance before CreateFleet has answered.
        self._after(0, lambda: self._emit_state(instance))
        self._after(self.settings.boot_s, lambda: self._booted(instance))
        return instance

    def terminate(self, instance: LocalInstance) -> None:
        """The user ends it. Ending it twice is no error."""
        if not instance.state.is_over:
            for interruption in self.interruptions:
                if interruption.instance_id == instance.id and interruption.is_pending:
                    interruption.terminated_at = self.now().timestamp()
            self._shut_down(instance, BY_USER)

    def power_off(self, instance_id: str) -> None:
        """It does so itself: what follows says its InstanceInitiatedShutdownBehavior.

        Raises:
            NotPossibleError: it doesn't run.
        """
        instance = self._running(instance_id)
        if instance.spec.ends_when_off:
            self._shut_down(instance, BY_ITSELF)
        else:
            self.stop(instance, BY_ITSELF)

    def stop(self, instance: LocalInstance, code: str = BY_USER) -> None:
        """The user stops it: what it runs ends, its disk stays. Stopping it twice is no error."""
        if instance.state is not LocalInstanceState.RUNNING:
            return
        instance.state = LocalInstanceState.STOPPING
        instance.ending = Ending(code, self.now())
        self._machines.halt(instance.id)
        self._emit_state(instance)
        self._after(STOP_S, lambda: self._stopped(instance))

    def start(self, instance: LocalInstance) -> None:
        """It boots again, with its disk; its place in the market is taken already."""
        instance.state = LocalInstanceState.PENDING
        instance.ending = None
        instance.launched_at = self.now()  # EC2's LaunchTime is that of the last start
        self._emit_state(instance)
        self._after(self.settings.boot_s, lambda: self._booted(instance))

    def release(self, instance: LocalInstance) -> None:
        """Its place in the market, or in a capacity reservation, is free again, if it has one."""
        if instance.has_place and instance.capacity_reservation:
            self.reservations.release(instance.capacity_reservation)
        elif instance.has_place:
            self.market.release(instance.offering)
        instance.has_place, instance.capacity_reservation = False, None

    def warn(self, instance_id: str, deliveries: int = 1, *, by_experiment: bool = False) -> None:
        """EC2 will take the instance back when the warning is over, because a person asked for it or not.

        By the event and the Spot request this was decided two minutes before the end, however short the
        warning is.

        Raises:
            NotPossibleError: it is no running Spot instance, or is warned already.
        """
        instance = self._running(instance_id)
        if not instance.spot_request:
            raise NotPossibleError(f"{instance_id} is on-demand: EC2 interrupts Spot instances only")
        if instance.warned_at:
            raise NotPossibleError(f"{instance_id} is warned already, at {instance.warned_at:%H:%M:%S} UTC")
        instance.warned_at = self.now()
        marked_at = instance.warned_at + timedelta(seconds=self.settings.warning_s - EC2_WARNING_S)
        status = SpotStatus.BY_EXPERIMENT if by_experiment else SpotStatus.TERMINATED_NO_CAPACITY
        self._set_spot_status(instance, status, marked_at)
        interruption = LocalInterruption(instance_id, instance.warned_at.timestamp(), deliveries)
        self.interruptions.append(interruption)
        # The reclaim is certain, whatever happens to the event.
        self._after(self.settings.warning_s, lambda: self._reclaim(instance, interruption))
        if deliveries:
            self._ministack.emit(
                "EC2 Spot Instance Interruption Warning",
                {"instance-id": instance_id, "instance-action": "terminate"},
                # AWS's own samples put the zone where the region belongs.
                [f"arn:aws:ec2:{instance.zone}:instance/{instance_id}"],
                at=marked_at,
                deliveries=deliveries,
            )

    def retract(self, instance_id: str) -> None:
        """EC2 doesn't take a warned instance after all: it runs on, and nobody is told.

        Raises:
            NotPossibleError: it is no running instance, or isn't warned.
        """
        instance = self._running(instance_id)
        if not instance.warned_at:
            raise NotPossibleError(f"{instance_id} isn't warned: there is nothing to retract")
        now = self.now()
        instance.warned_at = None
        for interruption in self.interruptions:
            if interruption.instance_id == instance_id and interruption.is_pending:
                interruption.retracted_at = now.timestamp()
        self._set_spot_status(instance, SpotStatus.FULFILLED, now)

    def rebalance(self, instance_id: str) -> None:
        """EC2 recommends to move away from the instance, which may never be interrupted.

        Raises:
            NotPossibleError: it is no running Spot instance.
        """
        instance = self._running(instance_id)
        if not instance.spot_request:
            raise NotPossibleError(f"{instance_id} is on-demand: rebalance is recommended for Spot only")
        detail = {"instance-id": instance_id}
        self._ministack.emit("EC2 Instance Rebalance Recommendation", detail, [instance.arn], at=self.now())

    def announce(self, instance_id: str, code: str, in_s: float) -> None:
        """EC2 announces an event of a running instance, which begins in so many seconds; nothing comes of it.

        Raises:
            NotPossibleError: it doesn't run, or there is no such event.
        """
        if code not in EVENTS:
            raise NotPossibleError(f"no event {code!r}; there are {', '.join(EVENTS)}")
        begins = (self.now() + timedelta(seconds=in_s)).replace(microsecond=0)
        self._running(instance_id).events.append(
            {
                "InstanceEventId": f"instance-event-{secrets.token_hex(8)}0",
                "Code": code,
                "Description": EVENTS[code],
                "NotBefore": begins,
            }
        )

    def call_off(self, instance_id: str) -> None:
        """EC2 calls off what it announced for an instance, and goes on showing it.

        Raises:
            NotPossibleError: it doesn't run.
        """
        for event in self._running(instance_id).events:
            event["Description"] = f"[Canceled] {event['Description']}"

    def disrupt(self, zone: str) -> None:
        """A zone's service is disrupted: its instances answer nothing, it has no capacity, and EC2 describes
        none of them.
        """
        self.disrupted.add(zone)
        for option in OPTIONS.values():
            self.market.dry_up(zone, option=option)
        for instance in self._running_in(zone):
            self._machines.hang(instance.id)

    def mend(self, zone: str) -> None:
        """The zone works again, and what was in it goes on where it was."""
        self.disrupted.discard(zone)
        for option in OPTIONS.values():
            self.market.bring_back(zone, option=option)
        for instance in self._running_in(zone):
            self._machines.resume(instance.id)

    def _running_in(self, zone: str) -> list[LocalInstance]:
        running = LocalInstanceState.RUNNING
        return [i for i in self.instances.values() if i.state is running and i.zone == zone]

    def hang(self, instance_id: str) -> None:
        """What runs on the instance answers nothing any more; to EC2 it is as well as ever.

        Raises:
            NotPossibleError: it is no instance that runs.
        """
        self._machines.hang(self._booted_one(instance_id).id)

    def resume(self, instance_id: str) -> None:
        """A hung instance goes on where it was.

        Raises:
            NotPossibleError: it is no instance that runs.
        """
        self._machines.resume(self._booted_one(instance_id).id)

    def shape(self, instance_id: str, shape: Shape) -> None:
        """From now on the instance's network is so slow, over stops and starts, too.

        Raises:
            NotPossibleError: it is no instance that runs, or this machine can't.
        """
        instance = self._booted_one(instance_id)
        before, instance.shape = instance.shape, shape
        try:
            self._shape(instance)
        except NetworkError as error:
            instance.shape = before
            raise NotPossibleError(str(error)) from error

    def later(self, delay_s: float, do: Callable[[], None]) -> None:
        """Have something happen in so many seconds."""
        self._after(delay_s, do)

    def fail_image(self, image_id: str, why: str) -> None:
        """An image that is being made fails.

        Raises:
            NotPossibleError: it isn't being made.
        """
        image = self.images.get(image_id)
        if image is None or image.state != "pending":
            raise NotPossibleError(f"{image_id} isn't being made")
        image.state, image.why = "failed", why

    def keep_disk(self, instance: LocalInstance, image_id: str) -> int:
        """Keep a copy of its disk for an image; its bytes."""
        return self._machines.keep_disk(instance.id, image_id)

    def console_output(self, instance_id: str, *, latest: bool) -> bytes:
        """What the instance's console shows, now or when it came to run."""
        return self._machines.on_console(instance_id, latest=latest)

    def certificate_expires(self, arn: str, common_name: str, days: int) -> None:
        """What ACM says daily of a certificate that isn't renewed."""
        # https://docs.aws.amazon.com/acm/latest/userguide/supported-events.html
        self._ministack.emit(
            "ACM Certificate Approaching Expiration",
            {"DaysToExpiry": days, "CommonName": common_name},
            [arn],
            at=self.now(),
            source="aws.acm",
        )

    def let_die(self, code: str, count: int) -> None:
        """The next instances end while they are pending, as they do when a disk can't be made.

        Raises:
            NotPossibleError: EC2 has no such code.
        """
        if code not in ENDINGS:
            raise NotPossibleError(f"EC2 has no reason {code!r}; there are {', '.join(ENDINGS)}")
        self._stillborn += [code] * count

    def dry_up(self, zone: str | None, instance_type: str | None, *, warn: bool) -> list[str]:
        """Spot capacity of the matching pools goes to 0; the instances that were warned for it."""
        hit = set(self.market.dry_up(zone, instance_type))
        if not warn:
            return []
        lost = [
            instance.id
            for instance in self.instances.values()
            if self._is_reclaimable(instance) and instance.offering.pool in hit
        ]
        for instance_id in lost:
            self.warn(instance_id)
        return lost

    def deregistered(self, instance_id: str) -> None:
        """Somebody took the instance out of a target group; remembered if it is being interrupted."""
        for interruption in self.interruptions:
            if (
                interruption.instance_id == instance_id
                and interruption.retracted_at is None
                and interruption.deregistered_at is None
            ):
                interruption.deregistered_at = self.now().timestamp()

    def _is_reclaimable(self, instance: LocalInstance) -> bool:
        return instance.is_spot and not instance.state.is_over and instance.warned_at is None

    def _running(self, instance_id: str) -> LocalInstance:
        instance = self.instances.get(instance_id)
        if instance is None:
            raise NotPossibleError(f"there is no instance {instance_id}")
        if instance.state.is_over:
            raise NotPossibleError(f"{instance_id} is {instance.state.value[0]} already")
        return instance

    def _booted_one(self, instance_id: str) -> LocalInstance:
        instance = self._running(instance_id)
        if instance.state is not LocalInstanceState.RUNNING:
            raise NotPossibleError(f"{instance_id} is {instance.state.value[0]}: nothing runs on it")
        return instance

    def _booted(self, instance: LocalInstance) -> None:
        if instance.state is not LocalInstanceState.PENDING:
            return
        if instance.dies_of:
            self._shut_down(instance, instance.dies_of)
            return
        instance.state = LocalInstanceState.RUNNING
        gpus = gpu_count(instance.offering.pool.instance_type)
        spec = instance.spec
        self._machines.start(instance.id, instance.address, spec.user_data, gpus, spec.image_id)
        self._emit_state(instance)
        if instance.shape != Shape():
            self._shape(instance)

    def _shape(self, instance: LocalInstance) -> None:
        """Now, or as soon as it is on its network."""
        runs = instance.state is LocalInstanceState.RUNNING
        if runs and not self._machines.shape(instance.id, instance.shape):
            self._after(JOINS_S, lambda: self._shape(instance))

    def _reclaim(self, instance: LocalInstance, interruption: LocalInterruption) -> None:
        if instance.state.is_over or not interruption.is_pending:
            return
        interruption.reclaimed_at = self.now().timestamp()
        self._shut_down(instance, BY_EC2)

    def _shut_down(self, instance: LocalInstance, code: str) -> None:
        instance.state = LocalInstanceState.SHUTTING_DOWN
        instance.ending = Ending(code, self.now())
        self._set_spot_status(instance, _final_status(instance, code), self.now())
        self._machines.stop(instance.id)
        self._emit_state(instance)
        self._after(SHUTDOWN_S, lambda: self._terminated(instance))

    def _stopped(self, instance: LocalInstance) -> None:
        if instance.state is not LocalInstanceState.STOPPING:
            return  # terminated meanwhile
        instance.state = LocalInstanceState.STOPPED
        self.release(instance)
        self._emit_state(instance)

    def _terminated(self, instance: LocalInstance) -> None:
        instance.state = LocalInstanceState.TERMINATED
        self.release(instance)
        self._emit_state(instance)
        self.on_terminated(instance)
        self._after(VISIBLE_S, lambda: self._forget(instance))

    def _forget(self, instance: LocalInstance) -> None:
        del self.instances[instance.id]
        self._ministack.mirror_tags(instance.id, {})

    def _set_spot_status(self, instance: LocalInstance, status: SpotStatus, at: datetime) -> None:
        request = instance.spot_request
        if request and request.status is not status:
            request.status, request.updated_at = status, at

    def _emit_state(self, instance: LocalInstance) -> None:
        name, _ = instance.state.value
        _log.info("%s (%s) is %s", instance.id, instance.offering, name)
        detail = {"instance-id": instance.id, "state": name}
        self._ministack.emit("EC2 Instance State-change Notification", detail, [instance.arn], at=self.now())


def _final_status(instance: LocalInstance, code: str) -> SpotStatus:
    if code != BY_EC2:
        return SpotStatus.TERMINATED_BY_USER
    request = instance.spot_request
    is_experiment = request is not None and request.status is SpotStatus.BY_EXPERIMENT
    return SpotStatus.BY_EXPERIMENT if is_experiment else SpotStatus.TERMINATED_NO_CAPACITY
