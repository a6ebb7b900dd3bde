"""services/slow-start.yaml: what the demo shows standbys with."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from lab.local.environment import EC2_WARNING_S
from spotrelay.file.service import load

SERVICES = Path(__file__).parents[2] / "services"
SLOW = load(SERVICES / "slow-start.yaml")


def test_it_is_the_demo_with_standbys_and_time_to_start() -> None:
    """As many standbys as replicas, the demo's requests and drain, and time for five of EC2's warnings."""
    demo = load(SERVICES / "demo.yaml")
    assert SLOW.replicas == SLOW.standby == demo.replicas
    assert SLOW.initial_delay_s > 5 * EC2_WARNING_S
    assert (SLOW.drain_s, SLOW.envs, SLOW.instance_types) == (demo.drain_s, demo.envs, demo.instance_types)
    assert SLOW.warnings == ()


def test_only_the_first_start_on_a_disk_takes_five_warnings(tmp_path: Path) -> None:
    """A second one finds the engine that the first has built; one that was cut off builds it again."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, script in {
        "sleep": 'echo sleep "$1" >> log; eval "$SLEEP"',
        "python3": "echo serve >> log",
    }.items():
        (commands / name).write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        (commands / name).chmod(0o755)

    def start(sleep: str = "true") -> list[str]:
        """What a start does, with this instead of sleeping."""
        env = {"PATH": f"{commands}:{os.environ['PATH']}", "WARNING_S": "12.5", "SLEEP": sleep}
        subprocess.run(["bash", "-c", SLOW.run], cwd=tmp_path, env=env, check=False)
        log = tmp_path / "log"
        done = log.read_text(encoding="utf-8").splitlines()
        log.unlink()
        return done

    assert start(sleep="kill -9 $PPID") == ["sleep 12.5"]
    assert start() == [*["sleep 12.5"] * 5, "serve"]
    assert start() == ["serve"]
