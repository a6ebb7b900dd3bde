"""Which pack replicas of a service will start from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from spotrelay.file.catalog import find_type
from spotrelay.file.instance import engine
from spotrelay.file.instance.packs import bootstrap_bucket
from spotrelay.file.service import Service
from spotrelay.operator.aws.makers import Deployed
from spotrelay.operator.aws.packs import Found, Made, below, made
from spotrelay.operator.cli import cdk
from spotrelay.operator.look.access import ControlPlane
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.core.spec import ServiceSpec


def bucket(account: str, region: str) -> str:
    """Where they are."""
    return bootstrap_bucket(cdk.qualifier(), account, region)


def there(clients: Clients, bucket: str, service: Service) -> Made:
    """The packs and engine caches of a service's present set-up.

    Raises:
        PortError: S3 can't be asked.
    """
    return made(clients, bucket, below(service))


def caches(service: Service, made: Made) -> dict[str, str]:
    """The manifests of the engine caches that it has use for, by service/accelerator."""
    kinds = [kind for kind in engine.kinds(service) if kind in made.caches]
    return {f"{service.name}/{kind}": made.caches[kind][0].manifest for kind in kinds}


def due(newest: Found | None, its_image: str, image: str, now: datetime, oldest: timedelta) -> str | None:
    """Why a pack or an engine cache is to be made anew, on an image; None: the newest will do."""
    if newest is None:
        return "there is none for this set-up"
    if its_image != image:
        return f"the newest was made on {its_image or 'an unknown image'}, and replicas have {image}"
    if now - newest.made_at > oldest:
        return f"the newest is {(now - newest.made_at).days} days old"
    return None


def without_cache(service: Service, made: Made) -> str | None:
    """Which of its accelerators have no engine cache, and how to make one; None: all have one."""
    lacking = [kind for kind in engine.kinds(service) if kind not in made.caches]
    return no_cache(service.name, str(service.path), lacking, is_packed=bool(made.packs))


def no_cache(service: str, file: str, lacking: Sequence[str], *, is_packed: bool) -> str | None:
    """The same, of these accelerators. `is_packed`: set-up has a pack, on which a cache is made."""
    if not lacking:
        return None
    which = f" --accelerator {lacking[0]}" if is_packed else ""
    return (
        f"{service}: no engine cache for {', '.join(lacking)}: there each start compiles; spotrelay pack"
        f" {file}{which} makes one"
    )


def without_cache_deployed(plane: ControlPlane, spec: ServiceSpec) -> list[str]:
    """The accelerators of a deployed version for which its replicas know no engine cache.

    Nothing where none is kept (`spotrelay.pack.warm`).

    Raises:
        PortError: EC2 doesn't say.
    """
    types = list(filter(None, map(find_type, sorted({pool.instance_type for pool in spec.pools}))))
    families = engine.families(types)
    if not families:
        return []
    deployed = Deployed.found(plane.clients, spec.launch_template_id, str(spec.version))
    known = (deployed.plan or {}).get("caches")
    if known is None:
        return []
    return sorted({kind for family, kind in families.items() if family not in known})
