"""An example's scripts, run with stand-ins for what they call."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from spotrelay.file.service import Service


class Instance:
    """A directory that serves as an instance's file system, with commands of its own first on PATH.

    What the scripts write to `opt` is in the directory of that name.
    """

    def __init__(self, root: Path, service: Service, opt: str) -> None:
        self.root, self._service, self._opt = root, service, opt
        (root / "bin").mkdir()

    def command(self, name: str, script: str) -> None:
        """Something on PATH."""
        file = self.root / "bin" / name
        file.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def run(self, script: str | None, **env: str) -> subprocess.CompletedProcess[str]:
        """The script, with the service's variables and these."""
        assert script
        return subprocess.run(
            ["bash", "-c", script.replace(self._opt, str(self.root / "opt"))],
            cwd=self.root,
            env={"PATH": f"{self.root / 'bin'}:{os.environ['PATH']}", **self._service.envs, **env},
            capture_output=True,
            text=True,
            check=False,
        )
