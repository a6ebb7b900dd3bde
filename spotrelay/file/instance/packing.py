"""The user data of an instance that makes a pack, from that of the service's replicas.

It has all that a replica has, and another unit: that runs setup.sh once, packs, and powers off. Only for an
engine cache does it fetch models and start the service, for nobody: see `warm`.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from spotrelay.file.instance import models, pack, packs, unit, warm
from spotrelay.file.instance.unit import HOME
from spotrelay.plane.core.spec import ReadinessProbe

LONGEST_S = 7200
"""After which such an instance powers itself off, whoever started it: no set-up takes two hours."""

UNIT = f"""\
[Unit]
Description=SpotRelay: makes something of what set-up makes
Wants=network-online.target
After=network-online.target dlami-nvme.service

[Service]
Type=oneshot
User=root
WorkingDirectory={HOME}
EnvironmentFile={HOME}/service.env
ExecStart=/bin/bash {HOME}/run.sh
# Its last words must have reached the console, which is written every 20 seconds.
ExecStopPost=/bin/sleep 30
ExecStopPost=/bin/bash {HOME}/crash.sh
TimeoutStartSec=infinity
TimeoutStopSec=90
LimitNOFILE=1048576
LimitMEMLOCK=infinity
TasksMax=infinity
"""

_RUN = """\
#!/bin/bash
here=$(cd "$(dirname "$0")" && pwd)
bash "$here/setup.sh" || { echo "spotrelay: nothing is packed: set-up has failed" >&2; exit 1; }
"""

_BEFORE_SETUP = f"""\
#!/bin/bash
# Called where a replica would have a pack. zstd is several times as fast as gzip, and a pack is unpacked on
# this image; asked now, because set-up may install it.
if command -v zstd >/dev/null; then echo zstd; else echo gzip; fi > "$SPOTRELAY_DIR/{pack.BEGAN}"
"""

_OFF = """\
#!/bin/bash
# After the end of run.sh, whatever that was: EC2 terminates an instance of this kind that powers itself off.
exec systemctl poweroff
"""

ALWAYS = (unit.PATH, f"{HOME}/crash.sh")
"""What `another` writes itself."""

_NO_REPLICAS = ("crash.py", "slot.sh")
"""What a server's end, or several of them, call for."""

_FIRST_SLOT = {"SPOTRELAY_SLOT": "0", "CUDA_VISIBLE_DEVICES": "0"}
"""Of an instance that several replicas share one is started: the others would compile the same."""


@dataclass(frozen=True, slots=True)
class Warm:
    """What to make an engine cache by."""

    probe: ReadinessProbe
    within_s: float
    """How long a start may take."""
    kinds: Mapping[str, str]
    """Family of instance types → accelerator."""
    manifest: str | None = None
    """Of the pack that set-up is had from, and only the cache is made; None: set-up runs, and is packed."""


def user_data(deployed: str, warming: Warm | None = None) -> bytes:
    """In gzip, which cloud-init takes: a replica's may fill EC2's 16 KiB already.

    `deployed`: what the launch template has, a cloud-config of ours.
    """
    its = written(deployed)
    own = {
        f"{HOME}/run.sh": _run(warming),
        f"{HOME}/{packs.SCRIPT}": _BEFORE_SETUP + _set_up(warming),
        f"{HOME}/pack.py": models.beside_fetch(Path(pack.__file__).read_text(encoding="utf-8")),
        f"{HOME}/{models.SCRIPT}": models.script(),
    }
    others = []
    if warming is not None:
        plan = f"{HOME}/{packs.PLAN}"
        own[plan] = _plan(json.loads(content(its[plan])), warming, is_shared=f"{HOME}/slot.sh" in its)
        own[f"{HOME}/warm.py"] = models.beside_fetch(Path(warm.__file__).read_text(encoding="utf-8"))
        starts = its.get(f"{HOME}/slot.sh", its[f"{HOME}/run.sh"])
        others.append({**starts, "path": f"{HOME}/{warm.SERVE}"})
    left_out = ("once.sh", models.PLAN) if warming is None else ("once.sh",)
    return another(deployed, own, left_out, others)


def written(deployed: str) -> dict[str, dict[str, Any]]:
    """The files of a cloud-config of ours, as it has them, by path."""
    return {one["path"]: one for one in _loaded(deployed).get("write_files", [])}


def content(entry: Mapping[str, Any]) -> str:
    """What such a file has in it: long user data has it compressed."""
    text: str = entry["content"]
    if entry.get("encoding") is None:
        return text
    return gzip.decompress(base64.b64decode(text)).decode()


def _loaded(deployed: str) -> dict[str, Any]:
    if not deployed.startswith("#cloud-config"):
        return {}
    config: dict[str, Any] = YAML(typ="safe", pure=True).load(deployed)
    return config


def another(
    deployed: str,
    own: Mapping[str, str],
    left_out: Collection[str] = (),
    others: Collection[Mapping[str, Any]] = (),
) -> bytes:
    """User data of an instance that makes something and serves nobody, from that of replicas; in gzip.

    `own`: its own files, by path, in the place of theirs; `left_out`: names of theirs that it hasn't;
    `others`: more, as cloud-init takes them. It ends itself: see `LONGEST_S`.
    """
    own = {unit.PATH: UNIT, f"{HOME}/crash.sh": _OFF, **own}
    out = {*own, models.PATH, *(f"{HOME}/{name}" for name in (*_NO_REPLICAS, *left_out))}
    config = _loaded(deployed)
    config["write_files"] = [one for path, one in written(deployed).items() if path not in out] + [
        *others,
        *(
            {"path": path, "permissions": "0755" if path.startswith(HOME) else "0644", "content": content}
            for path, content in own.items()
        ),
    ]
    config["runcmd"] = [
        ["systemctl", "daemon-reload"],
        ["systemd-run", f"--on-active={LONGEST_S}", "systemctl", "poweroff"],
        ["systemctl", "start", "--no-block", "spotrelay-console.service", "spotrelay.service"],
    ]
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    text = io.StringIO()
    yaml.dump(config, text)
    return gzip.compress(f"#cloud-config\n{text.getvalue()}".encode(), mtime=0)


def _run(warming: Warm | None) -> str:
    if warming is None:
        return f'{_RUN}exec python3 -I "$here/pack.py"\n'
    packing = 'python3 -I "$here/pack.py" || exit 1\n' if warming.manifest is None else ""
    return f'{_RUN}{packing}exec python3 -I "$here/warm.py"\n'


def _set_up(warming: Warm | None) -> str:
    """Whether it is had from a pack."""
    is_had = warming is not None and warming.manifest is not None
    return packs.shell().partition("\n")[2] if is_had else "exit 1\n"


def _plan(deployed: Mapping[str, Any], warming: Warm, *, is_shared: bool) -> str:
    """Without the caches that are there: the first start shall compile."""
    plan = {name: value for name, value in deployed.items() if name != "caches"}
    plan["manifest"] = warming.manifest
    how = {**asdict(warming.probe), "within_s": warming.within_s, "kinds": dict(warming.kinds)}
    return json.dumps({**plan, "warm": {**how, "variables": _FIRST_SLOT if is_shared else {}}})


def decoded(user_data: str) -> str:
    """As DescribeLaunchTemplateVersions gives it."""
    return base64.b64decode(user_data).decode()
