"""Limits: of what a service file may ask, and of SpotRelay's own, beyond which a file says so."""

from __future__ import annotations

MAX_PROBE_TIMEOUT_S = 20
"""The prober's limit: the service's tick waits for it."""

BALANCER_TIMEOUT_S = 4
"""How long the load balancer waits for its check's answer: less than the 5 s until the next one, the
fewest that ELB offers."""

LEAST_FAILURE_THRESHOLD_S = 60
"""Replicas that serve are asked once a minute."""

LEAST_FAILURE_THRESHOLD_IF_BUSY_S = 120
"""Whether one that doesn't answer is busy takes a second look to tell."""

FETCHING_S = 600
"""What an instance may take, at most, to pull a container's image, and again to copy buckets, before the time
of a file's initial_delay_seconds begins. A pull of 15 to 20 GB takes four to six minutes; a volume with
disk_tier: medium takes in 150 GB in ten."""

LEAST_START_S = 30
"""A small instance runs 17 s after EC2's answer, and the load balancer's check takes up to 10.
Nothing that serves comes sooner: docs/cold-start.md."""

LONGEST_START_S = 3600
"""Whoever can wait longer needs no `start_within`."""
