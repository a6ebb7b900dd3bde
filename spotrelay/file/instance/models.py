"""What an instance needs to have its models: the fetcher, what it fetches, and the unit that starts it.

The fetcher runs beside set-up. `run` begins once the models are there: run.sh calls the fetcher, too, which
waits for the unit's. If that failed it tries again, and so its words are the service's last ones, which
`crash` tells.

Where user data has no room for the fetcher beside a service's scripts, it comes with the service's files,
some seconds later: see `bundle`.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from spotrelay.file.instance import fetch, peers, web
from spotrelay.file.model import Service
from spotrelay.file.values.files import Model, WebFile

SCRIPT = "fetch.py"
PEERS = "peers.py"
WEB = "web.py"
PLAN = "fetch.json"
PATH = "/etc/systemd/system/spotrelay-models.service"

BEGIN = """\
systemctl start --no-block spotrelay-models.service || true  # run.sh fetches them, too
"""
"""Where the fetcher came with the service's files."""

_UNIT = """\
[Unit]
Description=SpotRelay: the models of {name}
Wants=network-online.target
# dlami-nvme mounts the instance store in AWS's Deep Learning images.
After=network-online.target dlami-nvme.service
ConditionPathExists={home}/{script}

[Service]
EnvironmentFile={home}/service.env
ExecStart=/usr/bin/env python3 -I {home}/{script} --keep
{more}
[Install]
WantedBy=multi-user.target
"""


_RESTART = """\
# What was fetched by run.sh is to be served, too.
Restart=on-failure
RestartSec=5
"""


def files(service: Service, home: str) -> dict[str, str]:
    """What the fetcher reads, and its unit, by their paths."""
    plan = [_entry(model) for model in service.models]
    more = _RESTART if service.peers else ""
    return {
        f"{home}/{PLAN}": json.dumps(plan, ensure_ascii=False) + "\n",
        PATH: _UNIT.format(name=service.name, home=home, script=_started(service), more=more),
    }


def _entry(model: Model) -> dict[str, Any]:
    source = model.source
    if isinstance(source, WebFile):
        return {"url": source.url, "sha256": source.sha256, "path": model.path}
    pinned = {"digest": model.digest} if model.digest else {}
    return {"bucket": source.name, "prefix": source.prefix, "path": model.path} | pinned


def wait(service: Service) -> str:
    """What run.sh begins with."""
    return f"""\
# Fetched since the boot: this waits for the rest.
python3 -I "$SPOTRELAY_DIR/{_started(service)}" || exit 1
"""


def _started(service: Service) -> str:
    # No file of a service with peers is from the web.
    return WEB if _has_web(service) else PEERS if service.peers else SCRIPT


def _has_web(service: Service) -> bool:
    return any(isinstance(model.source, WebFile) for model in service.models)


def scripts(service: Service) -> dict[str, str]:
    """The fetcher's files, by their names."""
    if not service.models:
        return {}
    found = {SCRIPT: script()} | ({PEERS: peers_script()} if service.peers else {})
    return found | ({WEB: web_script()} if _has_web(service) else {})


def script() -> str:
    """The fetcher."""
    return stripped(Path(fetch.__file__).read_text(encoding="utf-8"))


def peers_script() -> str:
    """What fetches from peers, too."""
    return beside_fetch(Path(peers.__file__).read_text(encoding="utf-8"))


_IMPORT = "from spotrelay.file.instance import fetch"

_BESIDE = "sys.path.insert(0, str(Path(__file__).parent))\nimport fetch"
"""-I leaves the script's own directory out."""


def web_script() -> str:
    """What fetches from web servers, too."""
    return beside_fetch(Path(web.__file__).read_text(encoding="utf-8"))


def beside_fetch(text: str) -> str:
    """A program as it is on an instance: beside the fetcher, and without what only explains."""
    return stripped(text).replace(_IMPORT, _BESIDE, 1)


def stripped(text: str) -> str:
    """A program without what only explains: user data has room for 16 KiB."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else []:
            value = one.value if isinstance(one, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                end = one.end_lineno or one.lineno
                lines[one.lineno - 1 : end] = [""] * (end - one.lineno + 1)
                if body == [one]:  # a class needs something
                    lines[one.lineno - 1] = f"{' ' * one.col_offset}..."
    return "".join(f"{line}\n" for line in lines if line.strip() and not line.lstrip().startswith("# "))
