"""`spotrelay bake`: runs a service's set-up once, and makes an image of the machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotrelay.operator.cli.errors import EXIT_FAILED, CommandError
from spotrelay.operator.cli.options import (
    AsJson,
    Confirmed,
    Contexts,
    EndpointUrl,
    Profile,
    Region,
    Timeout,
    Where,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spotrelay.file.service import Service
    from spotrelay.operator.aws.bakes import Baked
    from spotrelay.operator.aws.makers import Deployed, Maker
    from spotrelay.operator.cli.deploying import Limit
    from spotrelay.operator.cli.telling import Teller
    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.plane.core.pools import CapacityPool
    from spotrelay.plane.core.spec import ServiceSpec

LOOK_S = 15.0
"""Between looks at what takes minutes, and may take hours."""

SNAPSHOT_USD = 0.05
"""A month, for each GiB, in us-east-1; up to a fifth more elsewhere: https://aws.amazon.com/ebs/pricing/"""

USED_UNKNOWN = "nobody can say by what it is used"


def bake(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A service file.", show_default=False)],
    base: Annotated[
        str | None,
        typer.Option(
            help="Bake on this image: by default the deployed version's, or what that was baked on.",
            metavar="AMI",
            show_default=False,
        ),
    ] = None,
    is_pruning: Annotated[
        bool,
        typer.Option(
            "--prune", help="Bake nothing: delete images of the service that no version in use names."
        ),
    ] = False,
    context: Contexts = None,
    timeout: Timeout = "1d",
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
    is_confirmed: Confirmed = False,
) -> None:
    """Run a service's set-up once, and make an image of the machine: drivers and packages, too.

    An on-demand instance of the deployed version does it. It is stopped, EC2 makes an image of it, which
    takes minutes, and sometimes hours, and it ends. If the command is interrupted meanwhile, the next one
    goes on. It says what to write into the service file.

    Example: spotrelay bake services/llama3.yaml
    """
    from spotrelay.operator.cli import control_plane, deploying
    from spotrelay.operator.cli.telling import Teller

    with control_plane.errors_shown("bake"), Teller(is_json=is_json) as teller:
        if is_json and not is_confirmed:
            raise CommandError("--json needs --yes: its output is one document, without a question")
        if is_pruning and base:
            raise CommandError(f"--prune bakes nothing: leave out --base {base}, or --prune")
        limit = deploying.Limit.said(timeout)
        (service,) = deploying.loaded([file], deploying.parsed(context or ()))
        plane = control_plane.find_any(Where(region, profile, endpoint_url))
        spec = control_plane.deployed(plane, service.name)
        baker = _Baker(plane, spec, service, teller, limit, is_confirmed=is_confirmed)
        if is_pruning:
            baker.prune()
        else:
            _check(service)
            baker.bake(base)


def _check(service: Service) -> None:
    """Whether an image of the service would be of use.

    Raises:
        CommandError: it wouldn't.
    """
    if service.container is not None:
        raise CommandError(
            f"{service.path}: resources.image_id names a container's image, and has no place for another:"
            " build what setup makes into the container's image"
        )
    if service.setup is None:
        raise CommandError(f"{service.path}: there is no setup, so an image would have nothing new in it")


@dataclass(frozen=True, slots=True)
class _Image:
    """One that is listed, with what it costs."""

    baked: Baked
    gib: float | None
    """Of its snapshots; None: nobody knows."""
    used_by: Sequence[str]

    @property
    def usd(self) -> float | None:
        """A month, at most."""
        return None if self.gib is None else self.gib * SNAPSHOT_USD

    def __str__(self) -> str:
        of = f"of version {self.baked.version}, " if self.baked.version else ""
        used = f", used by {', '.join(self.used_by)}" if self.used_by else ""
        return f"{self.baked.id} ({of}{self.baked.made_at:%Y-%m-%d}): {_monthly(self.gib)}{used}"

    def to_json(self, *, is_deleted: bool = False) -> dict[str, Any]:
        """It as JSON."""
        return {
            "image_id": self.baked.id,
            "version": self.baked.version,
            "made_at": self.baked.made_at.isoformat(),
            "gib": None if self.gib is None else round(self.gib, 2),
            "usd_a_month": None if self.usd is None else round(self.usd, 4),
            "used_by": [*self.used_by],
            "is_deleted": is_deleted,
        }


def _monthly(gib: float | None) -> str:
    if gib is None:
        return "a snapshot of unknown size"
    return f"{gib:.1f} GiB, at most {gib * SNAPSHOT_USD:.2f} USD a month"


class _Baker:
    def __init__(
        self,
        plane: ControlPlane,
        spec: ServiceSpec,
        service: Service,
        teller: Teller,
        limit: Limit,
        *,
        is_confirmed: bool,
    ) -> None:
        self._plane = plane
        self._clients = plane.clients
        self._spec = spec
        self._service = service
        self._name = service.name
        self._teller = teller
        self._limit = limit
        self._is_confirmed = is_confirmed

    def bake(self, base: str | None) -> None:
        """Make an image, or go on with what an earlier command has left.

        Raises:
            CommandError, PortError: there is none, and why.
        """
        from spotrelay.operator.aws import bakes

        began = time.monotonic()
        there = bakes.images(self._clients, self._name)
        self._clear(there)
        begun = next((one for one in there if one.state == bakes.PENDING), None)
        if begun:
            self._teller.say(f"{begun.id} was begun {begun.made_at:%Y-%m-%d %H:%M} UTC: waiting for it")
            image_id, made = begun.id, _Made(None, None, None)
        else:
            image_id, made = self._made(base, there)
        baked = self._available(image_id)
        self._end_halted()
        found = self._listed(bakes.images(self._clients, self._name))
        (own,) = [one for one in found if one.baked.id == baked.id]
        others = [one for one in found if one is not own]
        for one in others:
            self._teller.say(f"older: {one}")
        if any(not one.used_by for one in others):
            self._teller.say(f"spotrelay bake {self._service.path} --prune deletes those that nothing uses")
        self._teller.end(
            f"{self._name}: {baked.id} is baked, with the set-up of version {baked.version}: "
            f"{made.words}{_monthly(own.gib)}. Write it into"
            f" {self._service.path}, resources: image_id: {self._written(baked.id)}, and then spotrelay up"
            f" {self._service.path}",
            {
                "service": self._name,
                "image_id": baked.id,
                "base": baked.base,
                "instance_id": made.instance_id,
                "instance_type": made.pool and made.pool.instance_type,
                "after_s": round(time.monotonic() - began, 1),
                "usd": None if made.usd is None else round(made.usd, 4),
                "images": [one.to_json() for one in found],
            },
        )

    def prune(self) -> None:
        """Delete images that nothing uses, but for the newest one.

        Raises:
            CommandError: some snapshots are left.
            PortError: AWS can't be asked, or refuses.
        """
        from spotrelay.operator.aws import bakes
        from spotrelay.operator.cli import control_plane

        found = self._listed(bakes.images(self._clients, self._name), is_needed=True)
        newest = next((one for one in found if one.baked.is_available), None)
        doomed = [
            one for one in found if one is not newest and not one.used_by and one.baked.state != bakes.PENDING
        ]
        for one in found:
            self._teller.say(f"{'goes' if one in doomed else 'stays'}: {one}")
        lefts = []
        if doomed:
            with self._teller.paused():
                control_plane.confirm("Go on?", is_confirmed=self._is_confirmed)
            lefts = [left for one in doomed if (left := bakes.delete(self._clients, one.baked))]
        self._teller.end(
            f"{self._name}: {len(doomed)} of {len(found)} images deleted",
            {
                "service": self._name,
                "image_id": None,
                "base": None,
                "instance_id": None,
                "instance_type": None,
                "after_s": round(self._limit.elapsed_s, 1),
                "usd": None,
                "images": [one.to_json(is_deleted=one in doomed) for one in found],
            },
        )
        if lefts:
            raise CommandError(
                f"snapshots are left, and cost on: {'; '.join(lefts)}: aws ec2 delete-snapshot", EXIT_FAILED
            )

    def _made(self, base: str | None, there: Sequence[Baked]) -> tuple[str, _Made]:
        """An image that has been begun, of an instance that has been stopped."""
        from spotrelay.file.instance import baking
        from spotrelay.operator.aws import bakes, makers
        from spotrelay.operator.cli import makers as common
        from spotrelay.operator.cli.control_plane import confirm
        from spotrelay.plane.core.names import TAG_BAKE

        deployed = self._deployed()
        base_id = self._base(base, deployed, there)
        survey = self._plane.store.recall(self._name, self._plane.region, datetime.now(UTC)).survey
        prices: Mapping[str, float] = survey.on_demand_prices if survey else {}
        paths = self._service.pack.paths if self._service.pack else ()
        maker = makers.Maker(
            self._clients,
            deployed,
            self._name,
            TAG_BAKE,
            baking.user_data(deployed.user_data, paths),
            self._spec.labels,
            {"ImageId": base_id},
        )
        at_work = makers.workers(self._clients, TAG_BAKE, self._name)
        if [one for one in at_work if one.version != deployed.version or one.image_id != base_id]:
            common.at_most_one([one.id for one in at_work], "bakes another version or base of", self._name)
        if at_work:
            instance_id, pool, launched_at = at_work[0].id, at_work[0].pool, at_work[0].launched_at
            self._teller.say(
                f"{instance_id} bakes {self._name} since {launched_at:%H:%M} UTC: waiting for it"
            )
        else:
            pools = common.cheapest_first(self._spec.pools, prices)
            self._announce(pools[0], prices, base_id, paths)
            with self._teller.paused():
                confirm("Go on?", is_confirmed=self._is_confirmed)
            instance_id, pool = maker.launch(pools, self._spec.subnets)
            launched_at = datetime.now(UTC)
            self._teller.say(f"{instance_id} starts: {pool}")
        tags = bakes.tags(self._name, deployed.version, base_id, self._spec.labels)
        try:
            image_id = self._begun(maker, instance_id, tags)
        except BaseException:
            maker.end(instance_id)
            raise
        self._teller.say(
            f"{image_id} is being made of {instance_id}, which is stopped: that may take hours. Whatever"
            f" becomes of this command, spotrelay bake {self._service.path} goes on"
        )
        took_s = (datetime.now(UTC) - launched_at).total_seconds()
        return image_id, _Made(instance_id, pool, common.cost_usd(prices, pool, took_s))

    def _announce(
        self, pool: CapacityPool, prices: Mapping[str, float], base_id: str, paths: Sequence[str]
    ) -> None:
        from spotrelay.file.instance.packing import LONGEST_S
        from spotrelay.operator.cli import makers
        from spotrelay.plane.view.words import duration

        size = self._service.disk.size_gib
        self._teller.say(
            f"{self._name}: an on-demand {pool.instance_type} runs set-up on {base_id}:"
            f" {makers.usd(prices.get(pool.instance_type))} an hour, {duration(LONGEST_S)} at most. Its image"
            f" keeps what its disk of {size} GiB has: {SNAPSHOT_USD} USD a month for each GiB"
        )
        if paths:
            self._teller.say(f"the image goes without {', '.join(paths)}, which replicas have from a pack")

    def _deployed(self) -> Deployed:
        """The deployed version, whose set-up is the file's.

        Raises:
            CommandError: it isn't.
        """
        from spotrelay.file.instance import fitting, packing
        from spotrelay.file.instance.unit import HOME
        from spotrelay.file.instance.userdata import environment
        from spotrelay.operator.aws.makers import Deployed

        deployed = Deployed.found(self._clients, self._spec.launch_template_id, str(self._spec.version))
        files = packing.written(deployed.user_data)
        scripts = {path.removeprefix(f"{HOME}/"): packing.content(one) for path, one in files.items()}
        if not fitting.is_deployed(self._service, environment(self._service), scripts):
            raise CommandError(
                f"{self._service.path} has another set-up than what is deployed, which would be baked:"
                f" spotrelay up {self._service.path}",
                EXIT_FAILED,
            )
        return deployed

    def _base(self, asked: str | None, deployed: Deployed, there: Sequence[Baked]) -> str:
        """What to bake on: images of ours don't pile up on each other.

        Raises:
            CommandError: it won't do.
            PortError: it isn't there.
        """
        from spotrelay.operator.aws import bakes
        from spotrelay.plane.core.ports import Denied

        own = {one.id: one.base for one in there if one.base}
        image_id = asked or own.get(deployed.image_id, deployed.image_id)
        try:
            found = bakes.base(self._clients, image_id)
        except Denied as denied:
            if not denied.code.startswith("InvalidAMIID"):
                raise
            raise CommandError(
                f"image {image_id}: {denied}: name one of {self._plane.region} with --base", EXIT_FAILED
            ) from denied
        service = self._service
        problems = {
            "isn't available": not found.is_available,
            "has its root volume not on EBS, so nothing can be baked on it": not found.is_on_ebs,
            f"is for {found.architecture}, and the instance types are {service.arch}": (
                found.architecture != service.arch
            ),
            f"calls its root volume {found.root_device}, and resources say {service.image.root_device}": (
                found.root_device != service.image.root_device
            ),
        }
        for problem, is_so in problems.items():
            if is_so:
                raise CommandError(f"image {image_id} {problem}: name another with --base", EXIT_FAILED)
        return image_id

    def _begun(self, maker: Maker, instance_id: str, tags: Mapping[str, str]) -> str:
        """An image of the instance, begun once its disk was ready and it had stopped.

        Raises:
            CommandError, PortError: there is none, and why.
        """
        from spotrelay.file.instance.bake import READY
        from spotrelay.operator.aws import bakes
        from spotrelay.operator.aws.console import console_output
        from spotrelay.operator.cli import makers

        allowed = False

        def is_ready() -> bool:
            nonlocal allowed
            allowed = allowed or bakes.is_allowed(self._clients, instance_id, self._name, tags)
            return READY in map(str.strip, console_output(self._clients, instance_id).splitlines())

        def stop() -> bool:
            bakes.stop(self._clients, instance_id)
            return True

        def is_stopped() -> bool:
            return maker.state(instance_id) == "stopped"

        def create() -> str:
            return bakes.create(self._clients, instance_id, self._name, tags)

        how = self._plane, maker, instance_id
        how_long = self._teller, self._limit
        makers.awaited(*how, is_ready, *how_long, what="a disk that is ready for an image")
        # An image of what runs would be of a disk that is being written.
        makers.awaited(*how, stop, *how_long, what="stopping")
        makers.awaited(*how, is_stopped, *how_long, what="having stopped")
        return makers.awaited(*how, create, *how_long, what="an image")

    def _available(self, image_id: str) -> Baked:
        """The image, once instances can be launched from it.

        Raises:
            CommandError: it has failed, or time is over.
        """
        from spotrelay.operator.aws import bakes
        from spotrelay.plane.core.ports import Throttled, Unavailable
        from spotrelay.plane.view.words import duration

        image: Baked | None = None
        while True:
            try:
                known, found = image, bakes.images(self._clients, self._name)
                image = next((one for one in found if one.id == image_id), None)
                if known and image is None:
                    self._end_halted()
                    raise CommandError(f"somebody has deregistered {image_id}", EXIT_FAILED)
                snapshots = bakes.snapshots(self._clients, image.snapshots if image else ())
                progress = ", ".join(one.progress for one in snapshots.values() if one.progress)
            except (Throttled, Unavailable) as error:
                progress = str(error)  # over in a moment
            if image and image.is_available:
                return image
            if image and image.state != bakes.PENDING:
                self._end_halted()
                left = bakes.delete(self._clients, image)
                raise CommandError(
                    f"EC2 has made no image: {image_id} is {image.state}: {image.why or 'it says no reason'}"
                    + (f"; left: {left}" if left else ""),
                    EXIT_FAILED,
                )
            if self._limit.is_over:
                raise CommandError(
                    f"{image_id} isn't available within {duration(self._limit.lasts_s)}. It goes on, and so"
                    f" does what its instance's disk costs: spotrelay bake {self._service.path} waits on",
                    EXIT_FAILED,
                )
            self._teller.now(f"{image_id} is pending, {progress} ({duration(self._limit.elapsed_s)})")
            time.sleep(LOOK_S)

    def _clear(self, there: Sequence[Baked]) -> None:
        """End what a command has left that died, unless EC2 still makes an image of it."""
        from spotrelay.operator.aws import bakes

        if all(one.state != bakes.PENDING for one in there):
            self._end_halted()

    def _end_halted(self) -> None:
        """End instances that are stopped: their image is there, or nobody knows whether set-up was over."""
        from spotrelay.operator.aws import makers
        from spotrelay.plane.core.names import TAG_BAKE

        if halted := makers.workers(self._clients, TAG_BAKE, self._name, ("stopped",)):
            makers.end(self._clients, [one.id for one in halted])
            self._teller.say(f"{', '.join(one.id for one in halted)} ends")

    def _listed(self, there: Sequence[Baked], *, is_needed: bool = False) -> list[_Image]:
        """Images with their costs and uses; `is_needed`: it must be known what uses them.

        Raises:
            PortError, CommandError, UnreadableDocument, OtherControlPlane: it isn't known, and is needed.
        """
        from spotrelay.operator.aws import bakes
        from spotrelay.plane.core.ports import OtherControlPlane, PortError, UnreadableDocument

        sizes = bakes.snapshots(self._clients, [id_ for one in there for id_ in one.snapshots])
        try:
            used = self._used()
        except (PortError, CommandError, UnreadableDocument, OtherControlPlane):
            if is_needed:
                raise
            used = {one.id: [USED_UNKNOWN] for one in there}
        listed = []
        for one in there:
            its = [sizes[id_].size_gib for id_ in one.snapshots if id_ in sizes]
            listed.append(_Image(one, sum(its) if its else None, used.get(one.id, ())))
        return listed

    def _used(self) -> dict[str, list[str]]:
        """By image, which versions of which services name it: those deployed, gone back to, or still there.

        Raises:
            PortError, CommandError, UnreadableDocument, OtherControlPlane: nobody can say for each service.
        """
        from spotrelay.operator.cli import control_plane
        from spotrelay.plane.aws import images

        used: dict[str, list[str]] = {}
        for name in self._plane.services.names():
            spec = self._spec if name == self._name else control_plane.deployed(self._plane, name)
            rows = self._plane.store.load(name)
            versions = {spec.version, *rows.earlier, *(one.version for one in rows.replicas.values())}
            if rows.document is not None:
                versions.add(rows.document.version)
            found = images.of_versions(self._clients, spec.launch_template_id, {v for v in versions if v > 0})
            for version, image_id in found.items():
                used.setdefault(image_id, []).append(f"version {version} of {name}")
        for image_id in (self._service.image.reference, *self._service.image.by_region.values()):
            used.setdefault(image_id, []).append(str(self._service.path))
        return used

    def _written(self, image_id: str) -> str:
        """As the file says it."""
        return f"{{{self._plane.region}: {image_id}}}" if self._service.image.by_region else image_id


@dataclass(frozen=True, slots=True)
class _Made:
    """By what an image was begun; nothing, if another command did."""

    instance_id: str | None
    pool: CapacityPool | None
    usd: float | None

    @property
    def words(self) -> str:
        """What it has cost."""
        from spotrelay.operator.cli.makers import usd

        return f"its instance cost {usd(self.usd)}, and its snapshot has " if self.instance_id else ""
