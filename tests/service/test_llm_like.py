"""services/llm-like.yaml: what the demo shows packs with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lab.local.environment import EC2_WARNING_S
from lab.local.machine_init import OWN_DISK
from spotrelay.file.service import load

SERVICES = Path(__file__).parents[2] / "services"
LLM = load(SERVICES / "llm-like.yaml")


def test_it_is_the_demo_with_a_pack_and_time_for_set_up() -> None:
    """The demo's drain and types, a pack where instances have disks, and time for four of EC2's warnings."""
    demo = load(SERVICES / "demo.yaml")
    assert (LLM.replicas, LLM.drain_s) == (demo.replicas, demo.drain_s)
    assert LLM.instance_types == demo.instance_types
    assert LLM.envs["MODEL_NAME"] == demo.envs["MODEL_NAME"]
    assert LLM.initial_delay_s > 4 * EC2_WARNING_S
    assert LLM.pack
    assert [path.startswith(f"{OWN_DISK}/") for path in LLM.pack.paths] == [True]
    assert LLM.idle_timeout_s < 5, "after which its engine closes a connection: tests/engine"
    assert LLM.warnings == ()


def test_set_up_takes_four_warnings_and_makes_all_that_run_needs(tmp_path: Path) -> None:
    """`run` asks for nothing but what lies below the pack's path."""
    commands, made = tmp_path / "bin", tmp_path / "made"
    commands.mkdir()
    (commands / "sleep").write_text('#!/bin/bash\necho "$1" >> slept\n', encoding="utf-8")
    (commands / "sleep").chmod(0o755)
    (path,) = LLM.pack.paths if LLM.pack else ()
    found = os.pathsep.join((str(commands), str(Path(sys.executable).parent), os.environ["PATH"]))
    env = {**os.environ, **LLM.envs, "PATH": found, "WARNING_S": "12.5"}
    assert LLM.setup
    setup = LLM.setup.replace(path, str(made))
    subprocess.run(["bash", "-c", setup], cwd=tmp_path, env=env, check=True)
    assert (tmp_path / "slept").read_text().split() == ["12.5"] * 4
    assert {file.name for file in made.iterdir()} == {"xllamacpp", "spotrelay-demo.gguf"}
    assert LLM.run.count(path) == 2, "the engine's, and the weights'"
