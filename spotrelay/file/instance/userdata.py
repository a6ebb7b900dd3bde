"""The cloud-config that turns a new instance into a replica.

It stands in the launch template, in the clear: no secret may ever be part of it. Secrets are named in it, and
read from Parameter Store with the instance's own role each time a script starts.
"""

from __future__ import annotations

import base64
import gzip
import io
import re
from collections.abc import Collection
from dataclasses import astuple, replace
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, LiteralScalarString

from spotrelay.file.instance import boot, console, envfile, gpu, models, packs, software, unit
from spotrelay.file.instance.bundle import LONGEST_ARCHIVE, Archive
from spotrelay.file.instance.packs import LONGEST_STORE, Store
from spotrelay.file.instance.unit import HOME
from spotrelay.file.model import Service

CONSOLE_UNIT = "/etc/systemd/system/spotrelay-console.service"
GPU_UNIT = "/etc/systemd/system/spotrelay-gpu.service"
NEEDRESTART = "/etc/needrestart/conf.d/spotrelay.conf"

HOLD = (
    "command -v apt-mark >/dev/null || exit 0;"
    " dpkg-query -Wf '${db:Status-Abbrev} ${Package}\\n' 'linux-*' '*nvidia*' 2>/dev/null"
    " | sed -n 's/^ii *//p' | xargs -r apt-mark hold >/dev/null"
)
"""No upgrade that a set-up makes takes the kernel or the driver: the driver is built for this kernel, and
another kernel becomes active with the next boot, which is a standby's resume."""

MAX_BYTES = 16_384
"""EC2's limit for user data, before base64."""

LONGEST_REGION = "xx-northeast-99"
"""Stands for a region whose name isn't known yet, and is no shorter than any."""

LONGEST_VERSION = 99_999
"""Stands for a secret's version. Nobody changes one more often."""

LONGEST_DIGEST = "0" * 64
"""Stands for a model's, and a pack's."""

_NOT_LITERAL = re.compile(
    r"[^\t\n -~\u00a0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]|[\u2028\u2029]"
)
"""What no literal block may hold (control characters, U+FEFF), and what YAML 1.1 takes for a line break."""


def user_data(
    service: Service, region: str, archive: Archive = LONGEST_ARCHIVE, store: Store = LONGEST_STORE
) -> str:
    """The cloud-config of a service's instances.

    `region`, `archive`, the service's files if it has any (`bundle.is_needed`), and `store`, where its packs
    are, may hold CDK tokens: they are put in as they are, and never wrapped or escaped. The result must not
    be encoded before CDK has resolved it (use `Fn.base64`).

    Scripts stand there as they are, for people to read, unless that is more than EC2 takes.
    """
    longest = _longest(service)
    text = _yaml(_config(longest, LONGEST_REGION, LONGEST_ARCHIVE, LONGEST_STORE))
    is_short = len(text.encode()) <= MAX_BYTES
    given = (service, region, archive, store)
    if is_short and given == (longest, LONGEST_REGION, LONGEST_ARCHIVE, LONGEST_STORE):
        return text
    config = _config(*given)
    if not is_short:
        tokens = {region, *astuple(archive), store.bucket}
        config["write_files"] = [_compressed(entry, tokens) for entry in config["write_files"]]
    return _yaml(config)


def _config(service: Service, region: str, archive: Archive, store: Store) -> dict[str, list[Any]]:
    scripts = boot.scripts(service, region, archive, tuple(environment(service)))
    config: dict[str, list[Any]] = {
        # Ubuntu installs upgrades hours after a boot, and restarts what uses them: a replica, too. It has its
        # upgrades from its image.
        "bootcmd": [["systemctl", "mask", "--now", "apt-daily.timer", "apt-daily-upgrade.timer"]],
        "write_files": [
            _file(f"{HOME}/service.env", "0600", envfile.render(environment(service))),
            *(_file(f"{HOME}/{name}", "0755", content) for name, content in scripts.items()),
            _file(unit.PATH, "0644", boot.bare(_unit(service, scripts.keys()))),
            # For upgrades that a set-up makes.
            _file(NEEDRESTART, "0644", "$nrconf{override_rc}{qr(^spotrelay)} = 0;\n"),
            _file(f"{HOME}/console.sh", "0755", boot.bare(console.SCRIPT)),
            _file(CONSOLE_UNIT, "0644", console.UNIT.format(name=service.name, home=HOME)),
        ],
        "runcmd": [
            ["systemctl", "daemon-reload"],
            # cloud-init must not wait for the service, which may take long to set itself up.
            ["systemctl", "enable", "--now", "--no-block", "spotrelay-console.service", "spotrelay.service"],
        ],
    }
    if service.models:
        config["write_files"] += [
            _file(path, "0644", content) for path, content in models.files(service, HOME).items()
        ]
        # First: they take the longest.
        config["runcmd"].insert(1, ["systemctl", "enable", "--now", "--no-block", "spotrelay-models.service"])
    if not service.scripts_in_bundle:
        config["write_files"] += [_program(name, text) for name, text in packs.programs(service).items()]
    if service.pack:
        config["write_files"].append(_file(f"{HOME}/{packs.PLAN}", "0644", packs.plan(service, store)))
    if service.has_nvidia:
        config["bootcmd"].append(["sh", "-c", HOLD])
    if service.reports_gpus:
        config["write_files"] += [
            _file(f"{HOME}/gpu.json", "0644", gpu.agent_config(service)),
            _file(f"{HOME}/gpu.sh", "0755", boot.bare(gpu.SCRIPT)),
            _file(GPU_UNIT, "0644", boot.bare(gpu.UNIT.format(name=service.name, home=HOME))),
        ]
        config["runcmd"].append(["systemctl", "enable", "--now", "--no-block", "spotrelay-gpu.service"])
    return config


def _unit(service: Service, scripts: Collection[str]) -> str:
    has_files = not boot.FETCHERS.isdisjoint(scripts)
    return unit.render(service, has_setup="setup.sh" in scripts, has_files=has_files)


def environment(service: Service) -> dict[str, str]:
    """What `service.env` holds: SpotRelay's own variables, its server's, then the file's."""
    own = {"HOST": "0.0.0.0", "PORT": str(service.port), "SPOTRELAY_SERVICE": service.name}  # noqa: S104 - the
    # load balancer reaches the instance from other hosts; its security group decides who else does.
    return {**own, **software.environment(service), **service.envs}


def size(service: Service) -> int:
    """Bytes of user data, in the region with the longest name, with all that is pinned."""
    return len(user_data(_longest(service), LONGEST_REGION).encode())


def _longest(service: Service) -> Service:
    return replace(
        service,
        secret_versions=dict.fromkeys(service.secrets.values(), LONGEST_VERSION),
        models=tuple(replace(model, digest=LONGEST_DIGEST) for model in service.models),
        pack=service.pack and replace(service.pack, manifest=LONGEST_DIGEST),
    )


def _program(name: str, text: str) -> dict[str, Any]:
    """Compressed in any case: the others stay readable for longer."""
    return _compressed(_file(f"{HOME}/{name}", "0644", text), ())


def _file(path: str, permissions: str, content: str) -> dict[str, Any]:
    return {
        "path": path,
        # Quoted: cloud-init reads YAML 1.1, in which a bare 0644 is a number.
        "permissions": DoubleQuotedScalarString(permissions),
        "content": _text(content),
    }


def _compressed(entry: dict[str, Any], tokens: Collection[str]) -> dict[str, Any]:
    """It, compressed where that is shorter.

    Not what has a token in it, whose value only CDK knows; nor variables: with some hundred kilobytes of them
    no program could be started, however small they are here.
    """
    content = str(entry["content"])
    if entry["path"] == f"{HOME}/service.env" or "encoding" in entry:
        return entry
    packed = base64.b64encode(gzip.compress(content.encode(), mtime=0)).decode()
    if any(token in content for token in tokens) or len(packed) > len(content):
        return entry
    return {**entry, "encoding": "gz+b64", "content": packed}


def _text(content: str) -> str:
    """As a literal block, which people can read, wherever YAML 1.1 reads that back unchanged."""
    style = DoubleQuotedScalarString if _NOT_LITERAL.search(content) else LiteralScalarString
    styled: str = style(content)
    return styled


def _yaml(config: dict[str, Any]) -> str:
    yaml = YAML()
    yaml.width = 1_000_000  # never wrap: a CDK token must stay in one piece
    yaml.indent(mapping=1, sequence=2, offset=0)  # each line of a script has it, and there is room for 16 KiB
    yaml.allow_unicode = True
    out = io.StringIO()
    yaml.dump(config, out)
    return "#cloud-config\n" + out.getvalue()
