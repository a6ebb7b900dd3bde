"""Which registry a container image comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ECR = re.compile(
    r"(?P<host>(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.(?P<domain>amazonaws\.com(?:\.cn)?))"
    r"/(?P<repository>[a-z0-9][a-z0-9._/-]*)(?:[:@].*)?"
)


@dataclass(frozen=True, slots=True)
class EcrRepository:
    """A repository of Amazon's registry, into which an instance logs in with its role."""

    host: str
    account: str
    region: str
    name: str


def ecr_registry(image: str) -> EcrRepository | None:
    """The ECR repository of an image; None for an image from elsewhere."""
    match = _ECR.fullmatch(image)
    return match and EcrRepository(match["host"], match["account"], match["region"], match["repository"])
