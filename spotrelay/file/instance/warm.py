"""Starts the service twice as a replica does, and packs what its engine has compiled. A packing instance runs
it after set-up, as `warm.py`.

    python3 -I warm.py      what pack.json, beside it, says

The first start compiles. The second shows what the cache is worth, and leaves what an engine notes of a start
that has one: after compiling, vLLM counts what that took as its own need of memory. What doesn't start leaves
no cache; the set-up's pack stays.

It has the standard library alone, of Python 3.9, `fetch.py`, `pack.py` and `unpack.py` beside it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spotrelay.file.instance import fetch, pack, unpack

SERVE = "serve.sh"
"""What starts the service: a replica's run.sh."""

LOOK_S = 1.0
"""Between two probes: starts take minutes, and a probe may generate a token."""

STOP_S = 120.0
"""For a server's last answers, as `unit.STOP_S`; then what is left is killed."""


def answers(probe: Mapping[str, Any]) -> bool:
    """Whether the service answers its readiness probe with 200, as the prober wants it."""
    data = probe["post_data"]
    body = None if data is None else json.dumps(data).encode()
    headers = {"User-Agent": "SpotRelay", **({} if body is None else {"Content-Type": "application/json"})}
    # HOST is every address of the instance, 0.0.0.0: Linux takes that for its own.
    where, port = os.environ["HOST"], int(os.environ["PORT"])
    connection = http.client.HTTPConnection(where, port, timeout=probe["timeout_s"])
    try:
        method = "GET" if body is None else "POST"
        connection.request(method, probe["path"], body, {**headers, **probe["headers"]})
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return answer.status == 200


def start_s(here: Path, probe: Mapping[str, Any]) -> float:
    """How long the service takes until it answers its probe. It has ended when this returns.

    Raises:
        PackError: it doesn't.
    """
    began = time.monotonic()
    variables = {**os.environ, **probe["variables"]}
    server = subprocess.Popen(["bash", str(here / SERVE)], env=variables, start_new_session=True)
    try:
        while not answers(probe):
            if server.poll() is not None:
                raise pack.PackError(f"run has ended, with {server.returncode}, before its probe passed")
            if time.monotonic() - began > probe["within_s"]:
                raise pack.PackError(f"its readiness probe hasn't passed within {probe['within_s']:.0f} s")
            time.sleep(LOOK_S)
        return time.monotonic() - began
    finally:
        stop(here, server)


def stop(here: Path, server: subprocess.Popen[bytes]) -> None:
    """End a service as a replica's unit does: all of it, or it would keep the accelerator's memory."""
    until = time.monotonic() + STOP_S
    stopping = subprocess.Popen(["bash", str(here / "stop.sh"), str(server.pid)])
    while stopping.poll() is None and time.monotonic() < until:
        server.poll()  # what has ended is there until somebody asks, and stop.sh waits until it isn't
        time.sleep(0.1)
    stopping.kill()
    stopping.wait()
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < until + STOP_S:
            os.killpg(server.pid, signal.SIGKILL)
            server.poll()
            time.sleep(0.1)


def warm(here: Path, plan: Mapping[str, Any], image: str, kind: str, put: pack.Put) -> str:
    """Pack the cache of an accelerator; its manifest's SHA-256.

    Raises:
        PackError: the service doesn't start, or leaves nothing.
    """
    first_s = start_s(here, plan["warm"])
    fetch.say(f"the first start took {first_s:.0f} s")
    second_s = start_s(here, plan["warm"])
    fetch.say(f"the second start took {second_s:.0f} s")
    root = here / unpack.ENGINE
    found = pack.tree(root) if root.is_dir() else pack.Tree()
    if not found.size:
        raise pack.PackError(
            f"run has left nothing in {root}: does it set VLLM_CACHE_ROOT or its like itself, or compile"
            " nothing? Then spotrelay.pack.warm brings nothing"
        )
    program = (here / pack.BEGAN).read_text(encoding="utf-8").strip()
    said = {"paths": [unpack.ENGINE], "set_up_s": max(first_s - second_s, 0.0)}
    said |= {"accelerator": kind, "starts_s": [first_s, second_s]}
    return pack.write([root], [found], {"image": image, **said}, program, put)


def _fetches(here: Path) -> int:
    """Have the models, without peers; the exit code."""
    program = here / "web.py"
    if not program.exists():
        program = here / "fetch.py"
    return subprocess.run([sys.executable, "-I", str(program)], check=False).returncode


def main() -> int:
    """Pack what this instance's accelerator needs, or say why not."""
    here = Path(__file__).parent
    plan = json.loads((here / "pack.json").read_text(encoding="utf-8"))
    instance = fetch.Instance()
    if (here / "fetch.json").exists() and _fetches(here):
        return 1  # it has said why
    try:
        image = fetch.patiently(lambda: instance.get("ami-id"), "the image's ID")
        type_ = fetch.patiently(lambda: instance.get("instance-type"), "the instance's type")
        kind = plan["warm"]["kinds"][type_.partition(".")[0]]
        below = f"{plan['prefix']}/{unpack.CACHES}/{kind}"
        warm(here, plan, image, kind, pack.uploading({**plan, "prefix": below}, instance))
    except (pack.PackError, fetch.FetchError) as error:
        fetch.say(f"no engine cache is packed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
