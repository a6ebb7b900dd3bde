"""What the CDK made of the app and its settings: the stacks that a deployment would write, as files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotrelay.plane.core.names import CONTROL_PLANE_STACK, NETWORK_STACK, SERVICE_STACK

UNKNOWN = "unknown-"
"""How an account or region begins that the credentials decide on, at deployment."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """What `cdk bootstrap` must have left in the region."""

    parameter: str
    """Name of the parameter with its version."""
    version: int
    """The least that will do."""


class Assembly:
    """A cloud assembly: the directory that `cdk synth` writes and `cdk deploy --app` takes."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
        self._stacks: Mapping[str, Mapping[str, Any]] = {
            name: artifact
            for name, artifact in manifest["artifacts"].items()
            if artifact["type"] == "aws:cloudformation:stack"
        }

    @property
    def stacks(self) -> tuple[str, ...]:
        """The stacks' names: what others need first."""
        order = {CONTROL_PLANE_STACK: 0, NETWORK_STACK: 1}
        return tuple(sorted(self._stacks, key=lambda name: (order.get(name, 2), name)))

    @property
    def shared(self) -> tuple[str, ...]:
        """Those that all services have in common."""
        return tuple(name for name in self.stacks if not name.startswith(SERVICE_STACK))

    @property
    def services(self) -> tuple[str, ...]:
        """Names of the services."""
        return tuple(name.removeprefix(SERVICE_STACK) for name in self.stacks if name not in self.shared)

    @property
    def elsewhere(self) -> Iterator[tuple[str, str]]:
        """(account, region) of each stack whose settings say them."""
        for artifact in self._stacks.values():
            account, _, region = str(artifact["environment"]).removeprefix("aws://").partition("/")
            if not account.startswith(UNKNOWN) and not region.startswith(UNKNOWN):
                yield account, region

    @property
    def warnings(self) -> Iterator[str]:
        """What speaks against a deployment and doesn't forbid it, without the ID to acknowledge it by."""
        for artifact in self._stacks.values():
            if file := artifact.get("additionalMetadataFile"):
                metadata = json.loads((self.directory / file).read_text(encoding="utf-8"))
                for entry in (entry for entries in metadata.values() for entry in entries):
                    if entry["type"] == "aws:cdk:warning":
                        yield str(entry["data"]).partition(" [ack: ")[0]

    @property
    def bootstrap(self) -> Bootstrap | None:
        """None: the app deploys without."""
        for artifact in self._stacks.values():
            properties = artifact["properties"]
            if name := properties.get("bootstrapStackVersionSsmParameter"):
                return Bootstrap(str(name), int(properties.get("requiresBootstrapStackVersion", 0)))
        return None

    def template(self, stack: str) -> Mapping[str, Any]:
        """One stack's template."""
        path = self.directory / self._stacks[stack]["properties"]["templateFile"]
        template: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return template
