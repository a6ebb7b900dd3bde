"""The operator's commands without a clone: a wheel of them, in an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
UV = Path(sys.executable).parent / "uv"


def built(folder: Path) -> Path:
    """A wheel, built with what uv itself brings: without network, and with nothing in its cache."""
    _uv("build", "--wheel", "--offline", "--cache-dir", folder / "cache", "--out-dir", folder, ROOT)
    (found,) = folder.glob("spotrelay-*.whl")
    return found


def installed(wheel: Path, folder: Path) -> Path:
    """The `bin` of an environment with the wheel and what it says that it needs, in the locked versions."""
    bin_ = folder / "env" / "bin"
    _uv("venv", "--python", sys.executable, folder / "env")
    # The lock has addresses and hashes: the cache has what the set-up brought, and no index is asked.
    _uv(
        *("sync", "--project", ROOT, "--frozen", "--no-default-groups", "--no-install-project"),
        *("--active", "--python", bin_ / "python"),
        VIRTUAL_ENV=str(folder / "env"),
    )
    _uv("pip", "install", "--no-deps", "--python", bin_ / "python", wheel)
    _uv("pip", "check", "--python", bin_ / "python")
    return bin_


def _uv(*arguments: str | Path, **environment: str) -> None:
    done = subprocess.run(
        [UV, *arguments, "--no-config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
