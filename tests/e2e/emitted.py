"""Is every metric that a deployed board or alarm names counted by somebody, in a run of the whole suite?

    SPOTRELAY_EMITTED=build/emitted .venv/bin/pytest -n 2 tests/e2e
    .venv/bin/python -m tests.e2e.emitted build/emitted

Each deployment of the run notes what its local cloud has in the directory that the variable names. The second
command says what is missing from all of them together, and fails then.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from lab.demo.operator import Operator
from lab.local.metrics import embedded_metrics
from spotrelay.core.names import METRICS_NAMESPACE

VARIABLE = "SPOTRELAY_EMITTED"


def note(operator: Operator, logs: Path, directory: Path) -> None:
    """Write down what a deployment's functions counted, by their logs, and what boards and alarms name."""
    counted = {
        datum.name
        for file in logs.glob("function-*.log")
        for line in file.read_text(encoding="utf-8").splitlines()
        for datum in embedded_metrics(line)
        if datum.namespace == METRICS_NAMESPACE
    }
    cloudwatch = operator.session.client("cloudwatch")
    directory.mkdir(parents=True, exist_ok=True)
    told = {"counted": sorted(counted), "named": sorted(set(_named(cloudwatch)))}
    (directory / f"{uuid4().hex}.json").write_text(json.dumps(told), encoding="utf-8")


def missing(directory: Path) -> set[str]:
    """What boards and alarms of the noted deployments name, and none of these counted.

    Raises:
        FileNotFoundError: nothing was noted there.
    """
    notes = [json.loads(file.read_text(encoding="utf-8")) for file in directory.glob("*.json")]
    if not notes:
        raise FileNotFoundError(f"{directory}: nobody has noted anything; run the suite with {VARIABLE}")
    named = {name for told in notes for name in told["named"]}
    return named - {name for told in notes for name in told["counted"]}


def _named(cloudwatch: Any) -> Iterator[str]:
    """Of our own metrics, those that alarms and boards name."""
    for page in cloudwatch.get_paginator("describe_alarms").paginate():
        for alarm in page["MetricAlarms"]:
            stats = [query["MetricStat"] for query in alarm.get("Metrics", ()) if "MetricStat" in query]
            for metric in [stat["Metric"] for stat in stats] or [alarm]:
                if metric.get("Namespace") == METRICS_NAMESPACE:
                    yield metric["MetricName"]
    for entry in cloudwatch.list_dashboards()["DashboardEntries"]:
        body = cloudwatch.get_dashboard(DashboardName=entry["DashboardName"])["DashboardBody"]
        yield from re.findall(rf'\["{METRICS_NAMESPACE}","(\w+)"', body)
        yield from re.findall(r'MetricName=\\"(\w+)', body)


def main(arguments: Sequence[str]) -> int:
    """Say what is missing."""
    lacking = missing(Path(arguments[0]))
    for name in sorted(lacking):
        sys.stdout.write(f"{name}: named by a board or an alarm, and no deployment counted it\n")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
