"""What an instance needs to have its set-up from a pack: see `pack`, which makes one, and `unpack`.

A pack stands for the file's `setup` alone. The rest of setup.sh runs as ever: tools, the service's files,
mounts. Where no pack is pinned, or it can't be had, `setup` runs, too. Engine caches come the same way: see
`engine`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from spotrelay.file.instance import engine, models, unpack
from spotrelay.file.model import Service

UNPACK = "unpack.py"
SCRIPT = "pack.sh"
PLAN = "pack.json"

PREFIX = "spotrelay/packs"
"""Below it in the bootstrap bucket is a part for each service, in that one for each set-up, see `fitting`."""

DEFAULT_QUALIFIER = "hnb659fds"
"""Of what `cdk bootstrap` makes: https://docs.aws.amazon.com/cdk/v2/guide/bootstrapping-customizing.html"""

HAVE = f"""\
if bash "$SPOTRELAY_DIR/{SCRIPT}"; then exit 0; fi
"""
"""In setup.sh, before the file's `setup`."""

_SCRIPT = f"""\
#!/bin/bash
exec python3 -I "$SPOTRELAY_DIR/{UNPACK}"
"""


@dataclass(frozen=True, slots=True)
class Store:
    """Where a service's packs are."""

    bucket: str
    """May be a CDK token."""
    fit: str
    """Of what set-up they are, see `fitting.fit`."""


LONGEST_STORE = Store("b" * 63, "0" * 16)
"""Stands for one that isn't known yet, and is no shorter than any."""


def prefix(service: str, fit: str = "") -> str:
    """Where packs of a service are, of one set-up or of all; without a slash at the end."""
    return f"{PREFIX}/{service}/{fit}".rstrip("/")


def bootstrap_bucket(qualifier: str, account: str, region: str) -> str:
    """What `cdk bootstrap` makes for files: https://docs.aws.amazon.com/cdk/v2/guide/bootstrapping-env.html"""
    return f"cdk-{qualifier}-assets-{account}-{region}"


def plan(service: Service, store: Store) -> str:
    """What instances read: which paths, from which pack."""
    if service.pack is None:
        return ""
    said = {
        "bucket": store.bucket,
        "prefix": prefix(service.name, store.fit),
        "paths": service.pack.paths,
        "manifest": service.pack.manifest,
        **({"caches": _caches(service)} if engine.is_kept(service) else {}),
    }
    return json.dumps(said, ensure_ascii=False) + "\n"


def _caches(service: Service) -> dict[str, str]:
    """Families of instance types, each with accelerator and manifest of its engine cache."""
    known = service.pack.caches if service.pack else {}
    its = engine.families(service.instance_types).items()
    return {family: f"{kind}/{known[kind]}" for family, kind in its if kind in known}


def shell() -> str:
    """What setup.sh calls."""
    return _SCRIPT


def script() -> str:
    """What unpacks."""
    return models.beside_fetch(Path(unpack.__file__).read_text(encoding="utf-8"))


def programs(service: Service) -> dict[str, str]:
    """What an instance gets of ours, by name: what fetches models, and what unpacks by means of it."""
    own = {models.SCRIPT: models.script(), UNPACK: script()} if service.pack else {}
    return models.scripts(service) | own
