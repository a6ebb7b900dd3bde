"""Requests that fail while EC2 takes instances back: the whole path in a local cloud, under the demo's load.

EC2 takes groups of the fleet, each once the fleet is whole again, and every instance of a group at once; the
rest goes on serving meanwhile. Whatever a client sees of that counts: nothing is ever sent again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lab.benchmarks.figures import Figure, Row, Tell

if TYPE_CHECKING:
    from lab.demo.load import LoadSnapshot

SERVICE_FILE = Path(__file__).with_name("local_cloud_chat.yaml")

MODEL = "spotrelay-bench"
"""As in the service file."""

STREAMS = 50
GROUPS, AT_ONCE = 4, 25
"""A hundred interruptions. Ten of the 35 replicas are left to serve each time."""

WARNING_S = 15.0
"""From the warning until EC2 takes the instance. An eighth of EC2's own two minutes: so are the answers."""

WHOLE_WITHIN_S = 90.0
"""Until all replacements serve: ten seconds here; more on busy machines."""

STOPS_WITHIN_S = 60.0
"""A request takes 2.4 s."""


def measure(tell: Tell) -> Sequence[Figure]:
    """Deploy, stream, interrupt, count."""
    from lab.benchmarks.local_cloud import deployed
    from lab.demo.load import Load

    began = time.monotonic()

    def say(doing: str) -> None:
        tell(min(time.monotonic() - began, ROW.takes_s), ROW.takes_s, doing)

    with deployed("requests", SERVICE_FILE, say, WARNING_S) as stand:
        say("the fleet comes up")
        stand.serving(stand.spec.replicas, WHOLE_WITHIN_S)
        deployment = stand.operator.deployment
        lost: list[str] = []
        with Load(deployment.endpoint, list(deployment.hosts.values()), STREAMS, model=MODEL) as load:
            stand.eventually(
                lambda: range(load.snapshot().finished), STREAMS, "requests finished", poll_s=0.3
            )
            for number in range(1, GROUPS + 1):
                victims = stand.serving(stand.spec.replicas, WHOLE_WITHIN_S, but=lost)[:AT_ONCE]
                load.snapshot()  # raises if there is no load any more
                say(f"group {number} of {GROUPS}: EC2 takes {AT_ONCE} instances under {STREAMS} streams")
                stand.cloud.warn_all(victims)
                lost += victims
            say("EC2 takes the last ones")
            stand.eventually(
                lambda: [r for r in stand.warned(lost) if r["reclaimed_at"] is not None],
                len(lost),
                "warned instances taken by EC2",
                poll_s=0.3,
            )
            stand.serving(stand.spec.replicas, WHOLE_WITHIN_S, but=lost)
            requests = load.stop(STOPS_WITHIN_S)
    return figures(requests, len(lost))


def figures(requests: LoadSnapshot, interruptions: int) -> list[Figure]:
    """What the clients saw."""
    first = requests.failures[0] if requests.failures else None
    why = f"; the first: {first.status or 'no answer'}, {first.error}" if first else ""
    return [
        Figure("failed", requests.failed, "requests", f"no answer or an error{why}", at_most=0, tolerance=0),
        Figure("cut", requests.cut, "requests", "streams that broke off", at_most=0, tolerance=0),
        Figure(
            "interruptions",
            interruptions,
            "",
            f"instances warned and taken, {AT_ONCE} at once",
            at_least=GROUPS * AT_ONCE,
        ),
        Figure("sent", requests.sent, "requests", f"by {STREAMS} clients, one after the other each"),
        Figure("first token p50", 1000 * requests.first_token.p50_s, "ms"),
    ]


ROW = Row("requests", "Requests during a hundred interruptions, on the local cloud", 100, measure)
