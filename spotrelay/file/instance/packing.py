"""The user data of an instance that makes a pack, from that of the service's replicas.

It has all that a replica has, and another unit: that runs setup.sh once, packs, and powers off. It neither
serves nor fetches models.
"""

from __future__ import annotations

import base64
import gzip
import io
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from spotrelay.file.instance import models, pack, packs, unit
from spotrelay.file.instance.unit import HOME

LONGEST_S = 7200
"""After which such an instance powers itself off, whoever started it: no set-up takes two hours."""

_UNIT = f"""\
[Unit]
Description=SpotRelay: packs what set-up makes
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
"""

_RUN = """\
#!/bin/bash
here=$(cd "$(dirname "$0")" && pwd)
bash "$here/setup.sh" || { echo "spotrelay: nothing is packed: set-up has failed" >&2; exit 1; }
exec python3 -I "$here/pack.py"
"""

_BEFORE_SETUP = f"""\
#!/bin/bash
# Called where a replica would have a pack. zstd is several times as fast as gzip, and a pack is unpacked on
# this image; asked now, because set-up may install it.
if command -v zstd >/dev/null; then echo zstd; else echo gzip; fi > "$SPOTRELAY_DIR/{pack.BEGAN}"
exit 1
"""

_OFF = """\
#!/bin/bash
# After the end of run.sh, whatever that was: EC2 terminates an instance of this kind that powers itself off.
exec systemctl poweroff
"""

_LEFT_OUT = ("once.sh", "crash.py", "slot.sh", models.PLAN)


def user_data(deployed: str) -> bytes:
    """In gzip, which cloud-init takes: a replica's may fill EC2's 16 KiB already.

    `deployed`: what the launch template has, a cloud-config of ours.
    """
    config: dict[str, Any] = YAML(typ="safe", pure=True).load(deployed)
    own = {
        unit.PATH: _UNIT,
        f"{HOME}/run.sh": _RUN,
        f"{HOME}/crash.sh": _OFF,
        f"{HOME}/{packs.SCRIPT}": _BEFORE_SETUP,
        f"{HOME}/pack.py": models.beside_fetch(Path(pack.__file__).read_text(encoding="utf-8")),
        f"{HOME}/{models.SCRIPT}": models.script(),
    }
    left_out = {*own, *(f"{HOME}/{name}" for name in _LEFT_OUT), models.PATH}
    config["write_files"] = [one for one in config["write_files"] if one["path"] not in left_out] + [
        {"path": path, "permissions": "0755" if path.startswith(HOME) else "0644", "content": content}
        for path, content in own.items()
    ]
    config["runcmd"] = [
        ["systemctl", "daemon-reload"],
        ["systemd-run", f"--on-active={LONGEST_S}", "systemctl", "poweroff"],
        ["systemctl", "start", "--no-block", "spotrelay-console.service", "spotrelay.service"],
    ]
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    out = io.StringIO()
    yaml.dump(config, out)
    return gzip.compress(f"#cloud-config\n{out.getvalue()}".encode(), mtime=0)


def decoded(user_data: str) -> str:
    """As DescribeLaunchTemplateVersions gives it."""
    return base64.b64decode(user_data).decode()
