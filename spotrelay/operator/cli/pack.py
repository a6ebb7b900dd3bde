"""`spotrelay pack`: runs a service's set-up once, and keeps what it makes."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
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
from spotrelay.operator.cli.times import period

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from spotrelay.file.instance.packing import Warm
    from spotrelay.file.service import Service
    from spotrelay.operator.aws.makers import Deployed, Maker
    from spotrelay.operator.aws.packs import Found, Made
    from spotrelay.operator.cli.deploying import Limit
    from spotrelay.operator.cli.telling import Teller
    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.plane.aws.clients import Clients
    from spotrelay.plane.core.pools import CapacityPool
    from spotrelay.plane.core.spec import ServiceSpec

OLDEST = timedelta(days=365)
"""A longer `--if-older-than` is probably a mistake."""


def pack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A service file.", show_default=False)],
    accelerator: Annotated[
        str | None,
        typer.Option(
            help="Only make the engine cache of this accelerator, on the set-up that is packed.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    if_older_than: Annotated[
        str | None,
        typer.Option(
            help="Do nothing if the newest fits set-up and image, and isn't older: 90m, 2h or 7d.",
            metavar="TIME",
            show_default=False,
        ),
    ] = None,
    context: Contexts = None,
    timeout: Timeout = "1h",
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
    is_confirmed: Confirmed = False,
) -> None:
    """Run a service's set-up once, and keep what it makes in a bucket for its replicas' starts.

    An on-demand instance of the deployed version does it, and ends. With spotrelay.pack.warm it also starts
    the service, twice, and keeps what its engine has compiled, for its own accelerator. The next `spotrelay
    up` lets replicas start from the pack. For a schedule there is --if-older-than: it packs if set-up or
    image have changed since, or that time is over.

    Example: spotrelay pack services/llama3.yaml
    """
    from spotrelay.operator.cli import control_plane, deploying
    from spotrelay.operator.cli.telling import Teller

    with control_plane.errors_shown("pack"), Teller(is_json=is_json) as teller:
        if is_json and not is_confirmed:
            raise CommandError("--json needs --yes: its output is one document, without a question")
        limit = deploying.Limit.said(timeout)
        oldest = period(if_older_than, "--if-older-than", OLDEST) if if_older_than else None
        (service,) = deploying.loaded([file], deploying.parsed(context or ()))
        if service.pack is None:
            raise CommandError(
                f"{file}: there is no spotrelay.pack: say there which directories setup makes, and deploy it"
            )
        kind = _kind(service, accelerator)
        plane = control_plane.find_any(Where(region, profile, endpoint_url))
        spec = control_plane.deployed(plane, service.name)
        _make(plane, spec, service, kind, teller, limit, oldest, is_confirmed=is_confirmed)


def _kind(service: Service, accelerator: str | None) -> str | None:
    """Our name of the accelerator that was asked for.

    Raises:
        CommandError: there is no such one, or the service has no use for it.
    """
    from spotrelay.file.catalog import accelerator_names, find_accelerator
    from spotrelay.file.instance import engine
    from spotrelay.messages import did_you_mean, shown

    if accelerator is None:
        return None
    if not engine.is_kept(service):
        raise CommandError(
            f"--accelerator: {service.path} has no engine cache: say spotrelay.pack.warm: true, and deploy it"
        )
    kind = find_accelerator(accelerator)
    if kind is None:
        raise CommandError(
            f"--accelerator: unknown accelerator {shown(accelerator)}"
            f"{did_you_mean(accelerator, accelerator_names())}"
        )
    if kind not in engine.kinds(service):
        raise CommandError(
            f"--accelerator: resources allow no instance type with a whole {kind}: they allow"
            f" {', '.join(engine.kinds(service))}"
        )
    return kind


def _make(
    plane: ControlPlane,
    spec: ServiceSpec,
    service: Service,
    kind: str | None,
    teller: Teller,
    limit: Limit,
    oldest: timedelta | None,
    *,
    is_confirmed: bool,
) -> None:
    from spotrelay.file.instance import packing
    from spotrelay.operator.aws import packs
    from spotrelay.operator.aws.makers import Maker
    from spotrelay.operator.cli import control_plane, makers
    from spotrelay.plane.core.names import TAG_PACK

    clients = plane.clients
    deployed, plan, profile_arn = _deployed(plane, spec, service)
    before = packs.made(clients, plan["bucket"], plan["prefix"])
    warming = _warming(spec, service, before, kind) if "caches" in plan else None
    survey = plane.store.recall(service.name, plane.region, datetime.now(UTC)).survey
    prices: Mapping[str, float] = survey.on_demand_prices if survey else {}
    pools = _pools(spec, prices, warming, kind)
    if oldest is not None:
        makes = warming.kinds[_family(pools[0])] if warming else None
        why = _due(clients, plan, before, deployed.image_id, oldest, kind, makes)
        if why is None:
            days = oldest.total_seconds() / 86400
            teller.end(
                f"{service.name}: nothing to pack: the newest fits set-up and image, and isn't older than"
                f" {days:g} days",
                {"service": service.name, "is_packed": False},
            )
            return
        teller.say(f"{service.name}: to be packed: {why}")
    teller.say(_announced(service, plan, pools[0], prices, warming, kind))
    with teller.paused():
        control_plane.confirm("Go on?", is_confirmed=is_confirmed)
    user_data = packing.user_data(deployed.user_data, warming)
    profile = {"IamInstanceProfile": {"Arn": profile_arn}}
    maker = Maker(clients, deployed, service.name, TAG_PACK, user_data, spec.labels, profile)
    began = time.monotonic()
    instance_id, pool = maker.launch(pools, spec.subnets)
    its_kind = warming.kinds[_family(pool)] if warming else None
    cache: Found | None = None
    try:
        teller.say(f"{instance_id} starts: {pool}")
        follower = _Follower(plane, maker, instance_id, plan, before, teller, limit)
        found = before.packs[0] if kind else follower.pack()
        if its_kind:
            cache = follower.cache(its_kind)
    finally:
        maker.end(instance_id)
    took_s = time.monotonic() - began
    _sweep(plane, service.name, plan, found, teller)
    if its_kind and cache:
        _tell_cache(plane, service, plan, its_kind, cache, teller)
    cost = makers.cost_usd(prices, pool, took_s)
    teller.end(
        f"{service.name}: packed in {took_s / 60:.0f} min, for {makers.usd(cost)}: spotrelay up"
        f" {service.path} lets replicas start from it",
        {
            "service": service.name,
            "is_packed": True,
            "manifest": found.manifest,
            "cache": cache and cache.manifest,
            "accelerator": its_kind,
            "instance_id": instance_id,
            "instance_type": pool.instance_type,
            "after_s": round(took_s, 1),
            "usd": None if cost is None else round(cost, 4),
        },
    )


def _due(
    clients: Clients,
    plan: Mapping[str, Any],
    before: Made,
    image: str,
    oldest: timedelta,
    kind: str | None,
    makes: str | None,
) -> str | None:
    """Why something is to be packed; None: nothing is.

    `kind`: of the engine cache that alone is asked for; `makes`: of the one that is made, in any case.
    """
    from spotrelay.file.instance.unpack import CACHES
    from spotrelay.operator.aws import packs
    from spotrelay.operator.cli.packs import due

    looked_at = [] if kind else [("pack", plan["prefix"], before.packs)]
    if makes:
        below = f"{plan['prefix']}/{CACHES}/{makes}"
        looked_at.append((f"engine cache for {makes}", below, before.caches.get(makes, [])))
    for what, prefix, found in looked_at:
        newest = found[0] if found else None
        its_image = packs.image(clients, plan["bucket"], prefix, newest.manifest) if newest else ""
        if why := due(newest, its_image, image, datetime.now(UTC), oldest):
            return f"{what}: {why}"
    return None


def _deployed(
    plane: ControlPlane, spec: ServiceSpec, service: Service
) -> tuple[Deployed, dict[str, Any], str]:
    """What an instance is launched from, what it reads of packs, and its profile.

    Raises:
        CommandError: something speaks against packing now.
    """
    from spotrelay.operator.aws import packs
    from spotrelay.operator.aws.makers import Deployed, at_work
    from spotrelay.operator.cli import makers
    from spotrelay.operator.deploy.stacks import Stacks
    from spotrelay.plane.core.names import PACK_PROFILE_OUTPUT, SERVICE_STACK, TAG_PACK

    clients = plane.clients
    deployed = Deployed.found(clients, spec.launch_template_id, str(spec.version))
    plan = deployed.plan
    stack = Stacks(clients).find(SERVICE_STACK + service.name)
    profile_arn = stack.outputs.get(PACK_PROFILE_OUTPUT) if stack else None
    if plan is None or profile_arn is None:
        raise CommandError(
            f"{service.name} is deployed without spotrelay.pack: spotrelay up {service.path}", EXIT_FAILED
        )
    if plan["prefix"] != packs.below(service):
        raise CommandError(
            f"{service.path} has another set-up than what is deployed, which would be packed: spotrelay up"
            f" {service.path}",
            EXIT_FAILED,
        )
    if service.pack and service.pack.warm and "caches" not in plan:
        raise CommandError(
            f"{service.name} is deployed without spotrelay.pack.warm: spotrelay up {service.path}",
            EXIT_FAILED,
        )
    makers.at_most_one(at_work(clients, TAG_PACK, service.name), "packs", service.name)
    return deployed, plan, profile_arn


def _warming(spec: ServiceSpec, service: Service, before: Made, kind: str | None) -> Warm:
    """How the engine cache is made; with a kind that was asked for on the pack that is there.

    Raises:
        CommandError: it can't be.
    """
    from spotrelay.file.catalog import find_type
    from spotrelay.file.instance.engine import families
    from spotrelay.file.instance.packing import Warm

    if kind and not before.packs:
        raise CommandError(
            f"{service.name} has no pack of its set-up, on which an engine cache is made: spotrelay pack"
            f" {service.path} makes both",
            EXIT_FAILED,
        )
    if spec.readiness_probe is None:
        raise CommandError(
            f"{service.name} is deployed without a readiness probe, which tells when its engine is up:"
            f" spotrelay up {service.path}",
            EXIT_FAILED,
        )
    types = filter(None, map(find_type, {pool.instance_type for pool in spec.pools}))
    manifest = before.packs[0].manifest if kind else None
    return Warm(spec.readiness_probe, spec.initial_delay_s, families(types), manifest)


def _pools(
    spec: ServiceSpec, prices: Mapping[str, float], warming: Warm | None, kind: str | None
) -> Sequence[CapacityPool]:
    """The cheapest type first; of those without a known price, the file's order.

    Raises:
        CommandError: none has the accelerator.
    """
    from spotrelay.operator.cli import makers

    pools = list(spec.pools)
    if warming:
        kinds = {kind} if kind else {*warming.kinds.values()}
        pools = [pool for pool in pools if warming.kinds.get(_family(pool)) in kinds]
    if not pools:
        raise CommandError(
            f"{spec.service} is deployed without an instance type that has {kind or 'a whole accelerator'}",
            EXIT_FAILED,
        )
    return makers.cheapest_first(pools, prices)


def _family(pool: CapacityPool) -> str:
    return pool.instance_type.partition(".")[0]


def _announced(
    service: Service,
    plan: Mapping[str, Any],
    pool: CapacityPool,
    prices: Mapping[str, float],
    warming: Warm | None,
    kind: str | None,
) -> str:
    from spotrelay.operator.cli import makers

    does = [] if kind else [f"runs set-up and packs {', '.join(plan['paths'])}"]
    if warming:
        does.append(f"starts the service twice for an engine cache for {warming.kinds[_family(pool)]}")
    return (
        f"{service.name}: an on-demand {pool.instance_type} {', and '.join(does)}:"
        f" {makers.usd(prices.get(pool.instance_type))} an hour, two hours at most"
    )


def _tell_cache(
    plane: ControlPlane, service: Service, plan: Mapping[str, Any], kind: str, cache: Found, teller: Teller
) -> None:
    """What it is worth, and which accelerators have none."""
    from spotrelay.file.service import in_region
    from spotrelay.operator.aws import packs
    from spotrelay.operator.cli.packs import without_cache

    where = plan["bucket"], plan["prefix"]
    first_s, second_s = packs.starts_s(plane.clients, *where, kind, cache.manifest)
    teller.say(
        f"{service.name}: engine cache for {kind}: the first start of run took {first_s:.0f} s, the second"
        f" {second_s:.0f} s"
    )
    if words := without_cache(in_region(service, plane.region), packs.made(plane.clients, *where)):
        teller.say(words)


def _sweep(plane: ControlPlane, name: str, plan: Mapping[str, Any], found: Found, teller: Teller) -> None:
    """Let go of packs that neither the deployed version nor the next one starts from."""
    from spotrelay.file.instance.packing import LONGEST_S
    from spotrelay.file.instance.packs import prefix
    from spotrelay.file.instance.unpack import CACHES
    from spotrelay.operator.aws import packs
    from spotrelay.plane.core.ports import PortError
    from spotrelay.plane.core.timing import seconds

    wanted = [manifest for manifest in (found.manifest, plan["manifest"]) if manifest]
    try:
        kept = packs.keys(plane.clients, plan["bucket"], plan["prefix"], wanted)
        deployed = {one.rpartition("/")[2] for one in plan.get("caches", {}).values()}
        for kind, caches in packs.made(plane.clients, plan["bucket"], plan["prefix"]).caches.items():
            its = [o.manifest for o in caches if o is caches[0] or o.manifest in deployed]
            kept |= packs.keys(plane.clients, plan["bucket"], f"{plan['prefix']}/{CACHES}/{kind}", its)
        # What another such instance writes at this moment is in no manifest yet.
        before = datetime.now(UTC) - seconds(LONGEST_S)
        count = packs.drop(plane.clients, plan["bucket"], prefix(name), kept, before)
    except PortError as error:
        teller.say(f"older packs are left below s3://{plan['bucket']}/{prefix(name)}/: {error}")
    else:
        if count:
            teller.say(f"{count} objects of older packs deleted")


class _Follower:
    """Waits for what an instance makes."""

    def __init__(
        self,
        plane: ControlPlane,
        maker: Maker,
        instance_id: str,
        plan: Mapping[str, Any],
        before: Made,
        teller: Teller,
        limit: Limit,
    ) -> None:
        self._plane = plane
        self._maker = maker
        self._instance_id = instance_id
        self._plan = plan
        self._before = before
        self._teller = teller
        self._limit = limit

    def pack(self) -> Found:
        """The pack, once it is there.

        Raises:
            CommandError: the instance has ended without one, or time is over.
        """
        known = {one.manifest for one in self._before.packs}
        return self._awaited("a pack", "", lambda made: (o for o in made.packs if o.manifest not in known))

    def cache(self, kind: str) -> Found:
        """The engine cache of an accelerator, once it is there.

        Raises:
            CommandError: as `pack`; the set-up's pack stays.
        """
        known = {one.manifest for one in self._before.caches.get(kind, ())}
        return self._awaited(
            f"an engine cache for {kind}",
            "what set-up makes is packed, but ",
            lambda made: (one for one in made.caches.get(kind, ()) if one.manifest not in known),
        )

    def _awaited(self, what: str, kept: str, new: Callable[[Made], Iterator[Found]]) -> Found:
        from spotrelay.operator.aws import packs
        from spotrelay.operator.cli import makers

        plan = self._plan

        def look() -> Found | None:
            made = packs.made(self._plane.clients, plan["bucket"], plan["prefix"])
            return next(new(made), None)

        return makers.awaited(
            self._plane,
            self._maker,
            self._instance_id,
            look,
            self._teller,
            self._limit,
            what=what,
            kept=kept,
        )
