"""What `validate` and `up` tell of starts, where a service file says how long one may take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from spotrelay.file.instance import engine, software
from spotrelay.file.model import IMAGES_GIB, LEAST_DISK_GIB, Service
from spotrelay.file.values.disk import INSTANCE_STORE, TIERS
from spotrelay.file.values.files import Bucket
from spotrelay.operator.advice import models, start_time
from spotrelay.operator.advice.start_plan import MeasuredStarts, Plan, planned, told, warning
from spotrelay.operator.advice.start_time import NOT_OURS, Image, Packed, Phase, Setting, Weights, usual_pack
from spotrelay.operator.aws import packs
from spotrelay.operator.aws.packs import Made
from spotrelay.operator.deploy.difference import THE_IMAGE, Difference
from spotrelay.operator.look.access import ControlPlane
from spotrelay.operator.look.cold_start import cold_starts
from spotrelay.operator.look.details import ENDED
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.core.ports import PortError
from spotrelay.plane.view.rows import rows

BYTES = {"bf16": 2, "fp16": 2}
"""Of a parameter."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What AWS has told of a service. Nothing: nobody has asked."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of models, by source."""
    is_known: bool = False
    """Whether anybody has looked for packs."""
    is_packed: bool = False
    pack: Packed | None = None
    """Its size; None: unknown."""
    caches: frozenset[str] = frozenset()
    cached_start_s: Mapping[str, float] = field(default_factory=dict)
    measured: MeasuredStarts = field(default_factory=dict)


def looked_at(clients: Clients, bucket: str, service: Service, made: Made) -> Seen:
    """What the manifests of a service's packs say. What may not be read is unknown."""
    if not made.packs:
        return Seen(is_known=True)
    prefix, kinds = packs.below(service), [kind for kind in engine.kinds(service) if kind in made.caches]
    size: Packed | None = None
    starts_s: dict[str, float] = {}
    try:
        size = Packed(*packs.sizes(clients, bucket, prefix, made.packs[0].manifest))
        for kind in kinds:
            newest = made.caches[kind][0].manifest
            _, starts_s[kind] = packs.starts_s(clients, bucket, prefix, kind, newest)
    except (PortError, LookupError, ValueError):
        pass  # `up` needs no right to read packs, and what is unknown is told as such
    return Seen(is_known=True, is_packed=True, pack=size, caches=frozenset(kinds), cached_start_s=starts_s)


def plan_of(service: Service, seen: Seen) -> Plan | None:
    """What becomes of `spotrelay.start_within`; None: the file asks for nothing."""
    if service.start_within_s is None:
        return None
    return planned(
        service.name,
        str(service.path),
        service.start_within_s,
        setting_of(service, seen),
        service.instance_types,
        seen.measured,
    )


def lines(service: Service, seen: Seen) -> Iterator[str]:
    """What `up` says of it. Nothing if the file asks for nothing."""
    plan = plan_of(service, seen)
    if plan is None:
        return
    first, *more = told(plan)
    yield f"{service.name}: start_within {first}"
    yield from (f"  {line}" for line in more)
    if words := warning(plan):
        yield f"warning: {words}"


def measured(plane: ControlPlane, service: str, made: Difference) -> MeasuredStarts:
    """What starts of the deployed version took: in all phases, if a deployment leaves its instances alone.

    Otherwise in those that no file changes, but for what a newer image may.

    Raises:
        PortError, UnreadableDocument: they can't be read.
    """
    phases = NOT_OURS if made.is_new_version else tuple(Phase)
    if THE_IMAGE in made.instances:
        phases = (Phase.BALANCER,)
    seen = rows(plane, service, datetime.now(UTC), ended=ENDED)
    version = seen.spec.version if seen.spec else None
    return start_time.measured(
        (one for one in cold_starts(seen).starts if one.replica.version == version), phases
    )


def setting_of(service: Service, seen: Seen) -> Setting:
    """What a start depends on."""
    name, kinds = software.engine(service), engine.families(service.instance_types)
    weights, size = _weights(service, seen)
    has_standbys = service.may_have_standbys
    tiers = {speed: tier for tier, speed in TIERS.items()}
    image = _IMAGES.get(service.image.reference, Image.OWN)
    pack = (seen.pack or usual_pack(name)) if service.pack and seen.is_packed else None
    return Setting(
        image=image,
        is_in_container=service.container is not None,
        copies=any(isinstance(m.source, Bucket) and not m.is_mounted for m in service.file_mounts),
        sets_up=bool(service.setup),
        pack=pack,
        is_pack_declared=service.pack is not None,
        is_pack_known=seen.is_known,
        may_be_packed=bool(service.setup) and not service.container and service.instance_profile is None,
        engine=name,
        is_cache_kept=engine.is_kept(service),
        may_keep_cache=engine.may_be_kept(service) and bool(kinds),
        caches=seen.caches,
        cached_start_s=seen.cached_start_s,
        weights=weights,
        weights_bytes=size,
        is_on_volume=not service.models
        or any(not model.path.startswith(f"{INSTANCE_STORE}/") for model in service.models),
        may_use_store=image is Image.GPU and bool(kinds) and not has_standbys and not service.container,
        disk_tier=tiers.get((service.disk.iops, service.disk.throughput_mibps)),
        throughput_mibps=service.disk.throughput_mibps,
        has_peers=service.peers,
        may_have_standbys=service.use_spot and not has_standbys,
    )


_IMAGES = {
    reference: Image.GPU if size == LEAST_DISK_GIB else Image.PLAIN for reference, size in IMAGES_GIB.items()
}
"""The default ones, which differ in size."""


def _weights(service: Service, seen: Seen) -> tuple[Weights, float | None]:
    """Where they are from, and how large they are, as the script or the bucket says."""
    if service.models:
        known = [seen.sizes.get(model.source.url) for model in service.models]
        size = sum(one or 0 for one in known)
        return Weights.BUCKET, (size if None not in known else _named(service))
    size_named = _named(service)
    return (Weights.HUB, size_named) if size_named else (Weights.ELSEWHERE, None)


def _named(service: Service) -> float | None:
    """Bytes of the model that the file names as Hugging Face does, to two digits: more isn't known of it."""
    model = models.on_hub("\n".join([service.run, *service.envs.values()]))
    if model is None or model.precision not in BYTES:
        return None
    return float(f"{model.params * BYTES[model.precision]:.1e}")
