"""Which set-up a pack or an image stands for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace

from spotrelay.file.instance import boot, bundle, envfile
from spotrelay.file.model import Service

SETUP = ("setup.sh", "aws.sh", "prepare.sh", "task/shell.sh")
"""The scripts that once.sh asks for, too."""


def fit(service: Service, environment: Mapping[str, str]) -> str:
    """A name for all that set-up depends on; packs of another one don't fit.

    `environment`: what service.env holds. Not the versions of secrets: a token that was renewed fetches the
    same. Nor `run`, which is short-lived, so that a changed option of a server needs no new pack.

    Raises:
        FilesError: the service's files can't be read.
    """
    # Scripts that come with the files would make them others with each change of `run`.
    alone = replace(service, scripts_in_bundle=False, secret_versions={})
    files = bundle.digest(alone) if bundle.is_needed(alone) else ""
    scripts = boot.scripts(alone, "", bundle.Archive("", files), tuple(environment))
    parts = [
        [scripts.get(name) for name in SETUP],
        dict(environment),
        [service.image.reference, dict(service.image.by_region), service.arch],
        list(service.pack.paths if service.pack else ()),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def is_deployed(service: Service, environment: Mapping[str, str], scripts: Mapping[str, str]) -> bool:
    """Whether instances with these scripts, by their path below /opt/spotrelay, have the service's set-up.

    `environment`: what service.env should hold. Versions of secrets, tools, and where its files lie don't
    count: the file doesn't say them.

    Raises:
        FilesError: the service's files can't be read.
    """
    given = bundle.digest(service) if bundle.is_needed(service) else ""
    return (
        scripts.get("setup.sh", "").endswith(boot.own_setup(service))
        and scripts.get("service.env") == envfile.render(environment)
        and given in scripts.get("prepare.sh", "")
    )
