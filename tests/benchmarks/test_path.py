"""How far a warning goes through our own files until AWS is called."""

from __future__ import annotations

import json
import subprocess
import sys

from lab.benchmarks.path import ROOT

MOST = {
    # 6 until a decision is carried out, 11 behind the ports (table, documents, clock, log, balancer), 8
    # of the decision and 4 of what it is about. It is on record before anything is taken out: all come first.
    # Two moves ask whether the service has standbys, three which slot of an instance it is, and two which
    # version and how many replicas somebody asked for. One closes connections that have rested for hours.
    "DeregisterTargets": (32, 66),
    # Also what the loss teaches of its pool, the plan that leaves that pool alone, and the launch itself.
    # Two moves more than without capacity reservations: the document knows the template of each purchase.
    "CreateFleet": (38, 92),
}
"""Files, and moves between them, of someone who reads along. When they become fewer, so do these."""


def test_a_warning_s_path_gets_no_longer() -> None:
    """In a process of its own: the functions' clients are built once, for one server."""
    script = (
        "import json; from lab.benchmarks.path import trace;"
        "print(json.dumps({call: [len(steps.files), steps.moves] for call, steps in trace().items()}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == MOST.keys()
    assert all(
        found[call][0] <= files and found[call][1] <= moves for call, (files, moves) in MOST.items()
    ), found
