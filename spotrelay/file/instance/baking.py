"""The user data of an instance that bakes, from that of the service's replicas.

It has all that a replica has, and another unit: that does what once.sh does, whose mark goes into the image,
makes the disk fit for it, and waits to be stopped.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from spotrelay.file.instance import bake, models, packing, packs
from spotrelay.file.instance.unit import HOME

_THEN = """ || {
  echo "spotrelay: nothing is baked: set-up has failed" >&2
  exit 1
}
exec python3 -I "$here/bake.py" /
"""

_ONCE = "once.sh"

_NO_PACK = "#!/bin/bash\nexit 1\n"
"""All of set-up runs: what it makes elsewhere is what an image is for."""


def user_data(deployed: str, paths: Sequence[str]) -> bytes:
    """In gzip. `deployed`: what the launch template has; `paths`: what replicas have from a pack."""
    its = packing.written(deployed)
    own = {
        f"{HOME}/run.sh": _run(packing.content(its[f"{HOME}/{_ONCE}"])),
        f"{HOME}/bake.py": Path(bake.__file__).read_text(encoding="utf-8"),
    }
    if f"{HOME}/{packs.SCRIPT}" in its:
        own[f"{HOME}/{packs.SCRIPT}"] = _NO_PACK
    written = sorted({*its, *own, *packing.ALWAYS})
    plan = {
        "paths": list(paths),
        "home": [path[len(HOME) + 1 :] for path in written if path.startswith(f"{HOME}/")],
        "elsewhere": [path for path in written if not path.startswith(f"{HOME}/")],
    }
    own[f"{HOME}/bake.json"] = json.dumps(plan)
    return packing.another(deployed, own, [_ONCE, models.PLAN])


def _run(once: str) -> str:
    """What the replicas' once.sh does, and then what makes the disk fit."""
    first, _, rest = once.rstrip().partition("\n")
    return f'{first}\ntouch "$(dirname "$0")/{bake.BEGAN}"\n{rest}{_THEN}'
