"""Every row, in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping

from lab.benchmarks import (
    asset,
    batch,
    calls,
    cold_start,
    fetching,
    local_cloud_requests,
    local_cloud_warned,
    looking,
    peers,
    throughput,
    tick,
)
from lab.benchmarks.figures import Row

ROWS: Mapping[str, Row] = {
    row.name: row
    for row in (
        batch.ROW,
        calls.ROW,
        throughput.ROW,
        cold_start.ROW,
        asset.ROW,
        fetching.ROW,
        tick.ROW,
        local_cloud_warned.ROW,
        local_cloud_requests.ROW,
        looking.ROW,
        peers.ROW,
    )
}
