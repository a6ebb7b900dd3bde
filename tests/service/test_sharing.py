"""`spotrelay.replicas_per_instance`: what a file becomes, and what it excludes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from spotrelay.file.service import InvalidServiceFileError, user_data
from tests.service.conftest import Loader
from tests.service.test_userdata import files

REGION = "us-east-1"


def text(run: str = "serve --port $PORT", **changes: Any) -> str:
    """A file of replicas that share instances, with changes to its sections."""
    values: dict[str, Any] = {
        "name": "chat",
        "service": {"replicas": 4},
        "spotrelay": {"replicas_per_instance": "auto"},
        "resources": {"accelerators": {"A10G": 1, "L4": 1}, "ports": 8000},
        "run": run,
    }
    for section, more in changes.items():
        values[section] = {**values.get(section, {}), **more}
    return json.dumps(values)


def test_types_with_several_accelerators_host_as_many_replicas(service: Loader) -> None:
    """They are eligible beside those with one; the document says how many, and names them."""
    chat = service(text())
    assert {"g5.xlarge", "g5.12xlarge", "g6.48xlarge"} <= set(chat.instance_type_names)
    assert chat.slots["g5.12xlarge"] == 4
    assert chat.slots["g6.48xlarge"] == 8
    assert "g5.xlarge" not in chat.slots
    assert chat.requirements is not None
    assert set(chat.requirements.instance_types) == set(chat.instance_type_names)


def test_each_has_what_one_replica_needs(service: Loader) -> None:
    """Four on one instance need four times the vCPUs and the memory of one."""
    names = service(text(resources={"cpus": "8+", "memory": "64+"})).instance_type_names
    assert "g5.4xlarge" in names  # 16 vCPU and 64 GiB for one
    assert "g5.2xlarge" not in names
    assert "g5.24xlarge" in names  # 96 vCPU and 384 GiB for four
    assert "g5.12xlarge" not in names  # 192 GiB for four


def test_by_default_an_instance_has_one(service: Loader) -> None:
    """Without the field nothing changes."""
    chat = service(text(spotrelay={"replicas_per_instance": 1}))
    assert not chat.slots
    assert "g5.12xlarge" not in chat.instance_type_names


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"run": "serve --port 8000"}, "use $PORT there"),
        ({"resources": {"accelerators": "A10G:4"}}, "one accelerator each"),
        ({"resources": {"accelerators": None, "cpus": "4+"}}, "one accelerator each"),
        ({"resources": {"image_id": "docker:vllm/vllm-openai"}}, "an instance has one container"),
        ({"spotrelay": {"rebalance_cost": "20%"}}, "a move to cheaper Spot"),
        ({"spotrelay": {"move_on_score": True}}, "a move to a zone with a better score"),
        (
            {
                "spotrelay": {"standby": 1},
                "service": {"readiness_probe": {"path": "/v1", "post_data": {"prompt": "Hi"}}},
            },
            "a standby is an instance of its own",
        ),
    ],
)
def test_what_excludes_it_is_said(service: Loader, changes: Any, said: str) -> None:
    """At the field, with what to do."""
    with pytest.raises(InvalidServiceFileError, match=re.escape(said)) as caught:
        service(text(**changes))
    assert [problem.field for problem in caught.value.problems] == ["spotrelay.replicas_per_instance"]


@pytest.mark.parametrize(("gpus", "servers"), [(4, 4), (1, 1)])
def test_an_instance_starts_one_server_for_each_gpu(
    service: Loader, tmp_path: Path, gpus: int, servers: int
) -> None:
    """Each has a GPU and a port of its own, and one that ends is started again while the others go on."""
    out = tmp_path / "out"
    run = f'echo "$PORT $CUDA_VISIBLE_DEVICES" >> {out}; [ "$CUDA_VISIBLE_DEVICES" = 0 ] || exec sleep 60'
    for name, content in files(user_data(service(text(run)), REGION)).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    tools = tmp_path / "bin"
    tools.mkdir()
    shown = "".join(f"echo 'GPU {number}: A10G'\n" for number in range(gpus))
    (tools / "nvidia-smi").write_text(f"#!/bin/sh\n{shown}", encoding="utf-8")
    (tools / "nvidia-smi").chmod(0o755)
    wanted = [f"{8000 + number} {number}" for number in range(servers)]
    process = subprocess.Popen(
        ["bash", str(tmp_path / "run.sh")],
        env={"PATH": f"{tools}:/usr/bin:/bin", "PORT": "8000", "HOME": str(tmp_path)},
        start_new_session=True,
    )
    try:
        found: list[str] = []
        for _ in range(600):
            found = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
            if found.count("8000 0") >= 2:
                break
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.1)
    finally:
        _kill_session(process.pid)
        process.wait()
    assert sorted(set(found)) == wanted
    assert found.count("8000 0") >= 2
    assert all(found.count(one) == 1 for one in wanted[1:])


def _kill_session(leader: int) -> None:
    for process in psutil.process_iter():
        with suppress(ProcessLookupError):
            if os.getsid(process.pid) == leader:
                os.kill(process.pid, signal.SIGKILL)
