"""`setup` and `run` as SkyServe's users write them, run as an instance runs them, with stand-in engines.

Each starts its server in an environment that its `setup` could install into, again after the server has died,
and ends it with time for its answers. What is downloaded is made up; the scripts around it are real.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from .conftest import GOOD, Loader
from .test_boot import Instance
from .units import Unit

# An engine that pip, uv or conda have installed: it says who it is and where it was installed to.
ENGINE = f"""\
#!{sys.executable}
import os, signal, sys, time
def end(*_):
    print("asked", flush=True)
    time.sleep(0.2)
    print("answered", flush=True)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
where, name = os.path.split(os.path.abspath(sys.argv[0]))
print("serves", name, *sys.argv[1:], "of", os.path.dirname(where), flush=True)
while True:
    signal.pause()
"""

# `install` makes a program of each package's name, in the environment that is active, as the real ones do.
PIP = """\
[ "$1" = install ] || exit 0
[ -n "$VIRTUAL_ENV$CONDA_PREFIX" ] || { echo "externally-managed-environment" >&2; exit 1; }
for package in "${@:2}"; do case $package in -* | pip) ;; *)
  cp "$ENGINE" "${VIRTUAL_ENV:-$CONDA_PREFIX}/bin/${package%%[=<>[]*}" ;;
esac; done
"""

# A Python of an environment: `-m` of a package is the program that stands for it.
PYTHON = f"""\
[ "$1" != -u ] || shift
case "$1 $2" in
  "-m pip") exec "$(dirname "$0")/pip" "${{@:3}}" ;;
  "-m "*) name=${{2%%.*}}; exec "$(dirname "$0")/$name" "${{@:2}}" ;;
  *) exec {sys.executable} "$@" ;;
esac
"""

UV = """\
case "$1 $2" in
  "pip install")
    # Real uv refuses conda's own environment by its name.
    if [ -z "$VIRTUAL_ENV" ] && [ "$CONDA_DEFAULT_ENV" = base ] && [ ! -d .venv ]; then
      echo "No virtual environment found" >&2; exit 2
    fi
    [ -n "$VIRTUAL_ENV$CONDA_PREFIX" ] || VIRTUAL_ENV=$PWD/.venv
    VIRTUAL_ENV=$VIRTUAL_ENV "$PIP_OF_ALL" install "${@:3}" ;;
  venv*)
    at=.venv
    for argument in "${@:2}"; do case $argument in -* | 3.*) ;; *) at=$argument ;; esac; done
    mkdir -p "$at/bin"; at=$(cd "$at" && pwd)
    for of in "" 3; do cp "$PIP_OF_ALL" "$at/bin/pip$of"; cp "$PYTHON_OF_ALL" "$at/bin/python$of"; done
    echo "export VIRTUAL_ENV=$at PATH=$at/bin:\\$PATH" > "$at/bin/activate" ;;
  "run "*) exec "${@:2}" ;;
esac
"""

CONDA = """\
[ "$1 $2" != "info --base" ] || echo ~/conda
"""

CONDA_FUNCTIONS = """\
conda() {
  case $1 in
    create) for name; do case $last in -n | --name) break ;; esac; last=$name; done
      mkdir -p ~/conda/envs/$name/bin; cp "$PIP_OF_ALL" ~/conda/envs/$name/bin/pip
      cp "$PYTHON_OF_ALL" ~/conda/envs/$name/bin/python ;;
    activate) [ -d ~/conda/envs/$2 ] || return 1
      export CONDA_DEFAULT_ENV=$2 CONDA_PREFIX=~/conda/envs/$2 PATH=~/conda/envs/$2/bin:$PATH ;;
  esac
}
"""


@dataclass(frozen=True)
class Pair:
    """One of them, and what its server says when it serves."""

    id: str
    run: str
    serves: str
    setup: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    """In `workdir`."""


OURS = "sky-user-env"

INSTALL = "pip install vllm"

PAIRS = (
    Pair(
        "module",
        "python -m vllm.server --port 1",
        f"vllm vllm.server --port 1 of {OURS}",
        "pip install vllm==0.6.3",
    ),
    Pair(
        "command",
        "vllm serve $SKYPILOT_NUM_GPUS_PER_NODE",
        f"vllm serve 2 of {OURS}",
        f"pip install wheel\n{INSTALL}",
    ),
    Pair("exec", "exec vllm serve m", f"vllm serve m of {OURS}", INSTALL),
    Pair("uv-pip", "vllm serve m", f"vllm serve m of {OURS}", "uv pip install vllm"),
    Pair("uv-run", "uv run vllm serve m", f"vllm serve m of {OURS}", "uv pip install vllm"),
    Pair(
        "uv-venv",
        "source .venv/bin/activate\npython -m vllm.server",
        "vllm vllm.server of sky_workdir/.venv",
        "uv venv --python 3.12\nsource .venv/bin/activate\nuv pip install vllm",
    ),
    Pair(
        "uv-venv-elsewhere",
        "~/env/bin/vllm serve m",
        "vllm serve m of env",
        "uv venv ~/env\nsource ~/env/bin/activate\nuv pip install 'vllm>=0.8'",
    ),
    Pair(
        "conda-made-once",
        "conda activate vllm\npython -m vllm.server",
        "vllm vllm.server of conda/envs/vllm",
        "conda activate vllm\n"
        "if [ $? -ne 0 ]; then conda create -n vllm python=3.10 -y; conda activate vllm; fi\n"
        f"{INSTALL}",
    ),
    Pair(
        "conda-in-both",
        "conda activate serve && exec vllm serve m",
        "vllm serve m of conda/envs/serve",
        "conda create --name serve -y\nconda activate serve\nuv pip install vllm",
    ),
    Pair(
        "scripts-of-the-work-directory",
        "bash run.sh",
        f"vllm serve m of {OURS}",
        "bash install.sh",
        {"install.sh": INSTALL, "run.sh": "cd /tmp && vllm serve m"},
    ),
    Pair(
        "in-the-background",
        "nohup vllm serve m > log 2>&1 &\nsleep 0.2\ntail -n +1 -f log",
        f"vllm serve m of {OURS}",
        INSTALL,
    ),
    Pair("left-in-the-background", "vllm serve m &\necho started", f"vllm serve m of {OURS}", INSTALL),
    Pair("through-a-pipe", "vllm serve m 2>&1 | cat", f"vllm serve m of {OURS}", INSTALL),
    Pair("with-a-helper", "vllm helper > /dev/null &\nvllm serve m", f"vllm serve m of {OURS}", INSTALL),
    Pair(
        "in-a-directory",
        "export A=1\ncd sub\nvllm serve $A",
        f"vllm serve 1 of {OURS}",
        INSTALL,
        {"sub/x": ""},
    ),
    Pair("unbuffered", "python -u -m vllm.server --port 1", f"vllm vllm.server --port 1 of {OURS}", INSTALL),
    Pair("python3", "python3 -m vllm.server", f"vllm vllm.server of {OURS}", "pip3 install vllm"),
    Pair("python-m-pip", "vllm serve m", f"vllm serve m of {OURS}", "python -m pip install -U pip vllm"),
    Pair(
        "torchrun",
        "torchrun --nproc 2 serve.py",
        f"torchrun --nproc 2 serve.py of {OURS}",
        "pip install torchrun",
    ),
    Pair(
        "web-server",
        "uvicorn main:app --port 1",
        f"uvicorn main:app --port 1 of {OURS}",
        "pip install uvicorn[standard]",
    ),
    Pair("own-script", "cd src\npython app.py", "app.py of sky_workdir", None, {"src/app.py": ENGINE}),
    Pair(
        "requirements",
        "python src/app.py --port 1",
        "app.py --port 1 of sky_workdir",
        "pip install -r requirements.txt",
        {"src/app.py": ENGINE, "requirements.txt": "vllm"},
    ),
    Pair(
        "written-by-setup",
        "python ~/app/src/app.py",
        "app.py of app",
        f"mkdir -p ~/app/src\ncat > ~/app/src/app.py <<'EOF'\n{ENGINE}EOF",
    ),
    Pair(
        "cloned-by-setup",
        "cd ~/repo/src && exec ./serve.py",
        "serve.py of repo",
        "[ -d ~/repo ] || cp -r ~/sky_workdir/repo ~/repo\nchmod +x ~/repo/src/serve.py",
        {"repo/src/serve.py": ENGINE},
    ),
    Pair(
        "own-virtual-environment",
        ". ~/env/bin/activate\nvllm serve m",
        "vllm serve m of env",
        "uv venv ~/env --python 3.11\n. ~/env/bin/activate\npip install vllm",
    ),
    Pair(
        "conda-shell-hook",
        'eval "$(conda shell.bash hook)"\nconda activate serve\nvllm serve m',
        "vllm serve m of conda/envs/serve",
        "conda create -n serve -y\nconda activate serve\npip install vllm",
    ),
    Pair(
        "controller-and-worker",
        "vllm controller &\nsleep 0.1\nvllm worker &\nsleep 0.1\nvllm serve m",
        f"vllm serve m of {OURS}",
        INSTALL,
    ),
    Pair(
        "waited-for-in-the-end",
        "vllm serve m &\npid=$!\nuntil kill -0 $pid; do sleep 0.1; done\nwait $pid",
        f"vllm serve m of {OURS}",
        INSTALL,
    ),
    Pair("bash-c", "bash -c 'vllm serve m'", f"vllm serve m of {OURS}", INSTALL),
    Pair("env-first", "env A=1 nice vllm serve m", f"vllm serve m of {OURS}", INSTALL),
    Pair(
        "strict",
        "set -euo pipefail\nvllm serve ${MODEL:-m}",
        f"vllm serve m of {OURS}",
        "set -euo pipefail\npip install vllm",
    ),
    Pair("as-root", "vllm serve m", f"vllm serve m of {OURS}", f"sudo true\n{INSTALL}"),
    Pair(
        "looks-first",
        "nvidia-smi\nulimit -n 4096\necho $SKYPILOT_SERVE_REPLICA_ID\nvllm serve m",
        f"vllm serve m of {OURS}",
        f"nvidia-smi\nwhich python pip\n{INSTALL}",
    ),
    Pair(
        "on-its-path",
        'export PATH="$HOME/.local/bin:$PATH"\nvllm serve m',
        "vllm serve m of .local",
        'mkdir -p ~/.local/bin\ncp "$ENGINE" ~/.local/bin/vllm',
    ),
    Pair("in-a-subshell", "(cd /tmp && vllm serve m)", f"vllm serve m of {OURS}", INSTALL),
    Pair("group-and-log", "{ vllm serve m; } 2>&1 | tee ~/log", f"vllm serve m of {OURS}", INSTALL),
    Pair(
        "tried-again-by-itself",
        "while true; do vllm serve m; sleep 1; done",
        f"vllm serve m of {OURS}",
        INSTALL,
    ),
    Pair(
        "by-a-makefile",
        "make serve",
        f"vllm serve m of {OURS}",
        INSTALL,
        {"Makefile": "serve:\n\tvllm serve m\n"},
    ),
    Pair(
        "by-name-of-an-interpreter",
        "~/sky-user-env/bin/python -m vllm.server",
        f"vllm vllm.server of {OURS}",
        "uv pip install --python ~/sky-user-env/bin/python vllm",
    ),
    Pair(
        "function-and-trap",
        "serve() { vllm serve $1; }\ntrap 'echo bye' EXIT\nserve m",
        f"vllm serve m of {OURS}",
        f"set -ex\n{INSTALL}",
    ),
)


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    """One with stand-ins for what downloads."""
    (tmp_path / "instance").mkdir()
    found = Instance(tmp_path / "instance")
    for name, script in (("uv", UV), ("conda", CONDA), ("pip-of-all", PIP), ("python-of-all", PYTHON)):
        found.command(name, script)
    (found.root / "engine").write_text(ENGINE, encoding="utf-8")
    (found.root / "engine").chmod(0o755)
    functions = found.home / "conda" / "etc" / "profile.d" / "conda.sh"
    functions.parent.mkdir(parents=True)
    functions.write_text(CONDA_FUNCTIONS, encoding="utf-8")
    return found


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.id for pair in PAIRS])
def test_a_pair_serves_comes_back_and_ends_in_time(
    service: Loader, instance: Instance, tmp_path: Path, pair: Pair
) -> None:
    """What its server says names the environment that it was found in."""
    work = tmp_path / "work"
    for name, text in {"readme": "", **pair.files}.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text, encoding="utf-8")
    chat = replace(service(GOOD), is_skyserve=True, run=pair.run, setup=pair.setup, workdir=work)
    shared = {
        "ENGINE": str(instance.root / "engine"),
        "PIP_OF_ALL": str(instance.root / "bin" / "pip-of-all"),
        "PYTHON_OF_ALL": str(instance.root / "bin" / "python-of-all"),
    }
    env = {**instance.boot(chat), **shared}
    set_up = instance.run("setup.sh", **env)
    assert set_up.returncode == 0, set_up.stderr
    unit = Unit(
        instance.directory, ["bash", str(instance.directory / "run.sh")], {**instance.environment, **env}
    )
    serves = f"serves {pair.serves}".replace(" of ", f" of {instance.home}/")
    try:
        for _ in range(2):
            unit.start(until=serves)
            assert unit.main.poll() is None
            unit.stop()
            unit.until("answered")
            unit.kill()
    finally:
        unit.kill()
