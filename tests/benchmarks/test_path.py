"""How far a warning goes through our own files until AWS is called."""

from __future__ import annotations

import json
import subprocess
import sys

from lab.benchmarks.path import ROOT, Steps, Tracer

MOST = {
    # 5 until a decision is carried out, 8 behind the ports (clients, log, table, documents, balancer), 7 of
    # the decision and 4 of what it is about. It is on record before anything is taken out: all come first.
    # One move asks whether the service has standbys, three which slot of an instance it is, and two which
    # version and how many replicas somebody asked for. One closes connections that have rested for hours.
    "DeregisterTargets": (24, 51),
    "DeregisterTargets to the contracts": (19, 38),
    # Also what the loss teaches of its pool, the plan that leaves that pool alone, and the launch itself.
    # Two moves more than without capacity reservations: the document knows the template of each purchase.
    "CreateFleet": (29, 77),
    "CreateFleet to the contracts": (23, 58),
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


def test_what_stands_behind_a_contract_is_not_read() -> None:
    """A call of an adapter is one move, to its port, whatever it calls; what composes them is read itself."""
    whole, tracer = Tracer(to_contracts=False), Tracer(to_contracts=True)
    for one in (whole, tracer):
        one.enter("lambdas/on_signal.py", "handler")
        one.enter("spotrelay/plane/aws/runtime.py", "invocation")
        one.leave()
        one.enter("spotrelay/plane/control/signals.py", "handle")
        one.enter("spotrelay/plane/aws/store.py", "locate")
        one.enter("spotrelay/plane/core/replica.py", "of")
        one.leave()
        one.leave()
        one.enter("spotrelay/plane/core/rows.py", "of")
        one.reach("DeregisterTargets")
    assert whole.until == {
        "DeregisterTargets": Steps(
            (
                "lambdas/on_signal.py",
                "spotrelay/plane/aws/runtime.py",
                "spotrelay/plane/control/signals.py",
                "spotrelay/plane/aws/store.py",
                "spotrelay/plane/core/replica.py",
                "spotrelay/plane/core/rows.py",
            ),
            5,
        )
    }
    assert tracer.until == {
        "DeregisterTargets": Steps(
            (
                "lambdas/on_signal.py",
                "spotrelay/plane/aws/runtime.py",
                "spotrelay/plane/control/signals.py",
                "spotrelay/plane/core/ports.py",
                "spotrelay/plane/core/rows.py",
            ),
            4,
        )
    }
