"""What SkyServe's own fields amount to here, and what its words mean by what they don't say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from spotrelay.file.source.document import Location
from spotrelay.file.source.draft import SECTION, Dialect, Draft
from spotrelay.file.values.files import MountMode
from spotrelay.file.values.limits import BALANCER_TIMEOUT_S, LEAST_FAILURE_THRESHOLD_S, MAX_PROBE_TIMEOUT_S

_PROBE: Location = ("service", "readiness_probe")

_POLICY: Location = ("service", "replica_policy")

_BALANCER: Location = ("service", "load_balancer")

SAME: dict[Location, Location] = {
    (SECTION, "base_on_demand"): (*_POLICY, "base_ondemand_fallback_replicas"),
    (SECTION, "on_demand_fallback"): (*_POLICY, "dynamic_ondemand_fallback"),
    (SECTION, "idle_timeout_seconds"): (*_BALANCER, "stream_timeout_seconds"),
}
"""Our field → SkyServe's, which means the same."""

_WITHOUT_EFFECT = {
    "config": "SkyPilot's own configuration says nothing to SpotRelay",
    "experimental": "SkyPilot's own configuration says nothing to SpotRelay",
    "event_callback": "SpotRelay makes no callbacks: alarms and metrics say what happens",
    "inputs": "they are for SkyPilot's optimizer",
    "outputs": "they are for SkyPilot's optimizer",
}
"""Top-level fields that mean nothing to a service here, and why."""

_BOOLEANS = {"yes": True, "on": True, "no": False, "off": False}
"""What SkyPilot's YAML 1.1 takes for true and false, and YAML 1.2 for text."""


def translate(draft: Draft) -> None:
    """Bring SkyServe's fields into the canonical form, and fill in what SkyServe's format leaves unsaid."""
    if "pool" in draft.values:
        draft.refuse(("pool",), "a pool of workers serves no HTTP: SpotRelay runs services, as in `service:`")
    for name, why in _WITHOUT_EFFECT.items():
        if name in draft.values:
            del draft.values[name]
            draft.note((name,), f"has no effect: {why}")
    _load_balancer(draft)
    _replica_policy(draft)
    _tls(draft)
    _probe(draft)
    if draft.dialect is Dialect.SKYSERVE:
        _purchase(draft)
        _health(draft)
        _mounts(draft)


def _load_balancer(draft: Draft) -> None:
    if draft.get(("service", "load_balancing_policy")) == "instance_aware_least_load":
        draft.note(
            ("service", "load_balancing_policy"),
            "the load balancer counts each replica's outstanding requests, whatever its accelerator: a faster"
            " one finishes sooner and so gets more",
        )


def _replica_policy(draft: Draft) -> None:
    policy = draft.get(_POLICY)
    if policy is None:
        return
    if draft.get(("service", "replicas")) is not None:
        draft.problem(
            ("service", "replicas"), "stands beside replica_policy, which says it, too: keep one of the two"
        )
    if not isinstance(policy, dict):
        return
    if policy.get("spot_placer") is not None:
        draft.note(
            (*_POLICY, "spot_placer"),
            "SpotRelay always spreads replicas over the pools, and avoids those that were interrupted lately",
        )


def _tls(draft: Draft) -> None:
    if draft.get(("service", "tls")) is not None and draft.get((SECTION, "certificate_arn")) is None:
        draft.note(
            ("service", "tls"),
            "keys stay out of files here: import the certificate into AWS Certificate Manager"
            " (aws acm import-certificate), and name it in spotrelay.certificate_arn or with"
            " -c certificate_arn=…. Until then clients reach the load balancer without TLS",
        )


def _probe(draft: Draft) -> None:
    probe = draft.get(_PROBE)
    if not isinstance(probe, dict):
        return
    timeout_s = _number(probe.get("timeout_seconds"))
    if not (probe.get("post_data") or probe.get("headers")):
        if timeout_s > BALANCER_TIMEOUT_S:
            draft.note(
                (*_PROBE, "timeout_seconds"),
                f"without post_data or headers this is the load balancer's own check, which waits for"
                f" {BALANCER_TIMEOUT_S} s: a server that answers later is taken for unhealthy. With post_data"
                f" SpotRelay's prober asks, and waits for {MAX_PROBE_TIMEOUT_S} s at most",
            )
    elif timeout_s > MAX_PROBE_TIMEOUT_S:
        draft.note(
            (*_PROBE, "timeout_seconds"),
            f"SpotRelay's prober waits for {MAX_PROBE_TIMEOUT_S} s: ask for less, such as one token",
        )
    if 0 < _number(probe.get("consecutive_failure_threshold_timeout")) < LEAST_FAILURE_THRESHOLD_S:
        draft.note(
            (*_PROBE, "consecutive_failure_threshold_timeout"),
            f"a replica that serves is asked once a minute, so it is {LEAST_FAILURE_THRESHOLD_S} s here",
        )
    if "endpoint_probe_interval_seconds" in probe:
        draft.note(
            (*_PROBE, "endpoint_probe_interval_seconds"),
            "SpotRelay asks a replica that starts every few seconds, and one that serves once a minute; the"
            " load balancer asks every five seconds",
        )


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0


def _purchase(draft: Draft) -> None:
    resources = draft.section("resources")
    sections = list(_alternatives(resources))
    for section in sections:
        value = section.get("use_spot")
        if isinstance(value, str):
            section["use_spot"] = _BOOLEANS.get(value.lower(), value)
    fallback: Location = (SECTION, "on_demand_fallback")
    if isinstance(said := draft.get(fallback), str):
        draft.put(fallback, _BOOLEANS.get(said.lower(), said), draft.origins[fallback])
    if not any("use_spot" in section for section in sections):
        draft.note(
            ("resources",),
            "use_spot isn't given, which in SkyServe's format means on-demand. For Spot, at a third of the"
            " price or less, with on-demand where there is none, add `spotrelay: {}`",
        )
    uses_spot = any(section.get("use_spot") is True for section in sections)
    if "resources" in draft.values and isinstance(draft.values["resources"], dict):
        resources.setdefault("use_spot", False)
    if draft.get(fallback) is None:
        draft.put(fallback, value=False, origin=(*_POLICY, "dynamic_ondemand_fallback"))
        if uses_spot:
            draft.note(
                ("resources", "use_spot"),
                "means Spot only in SkyServe's format: where there is none, replicas are missing. To launch"
                " on-demand then, set dynamic_ondemand_fallback: true under service.replica_policy, or add"
                " `spotrelay: {}`",
            )


def _health(draft: Draft) -> None:
    probe = draft.get(_PROBE)
    is_get = isinstance(probe, str) or (
        isinstance(probe, dict) and probe.get("post_data") is None and not probe.get("headers")
    )
    if not is_get:
        draft.note(
            ("service",),
            "the load balancer can't send this probe, and no path is known that answers a GET: it takes any"
            " status from 200 to 499 in answer to GET / for healthy. Name a better path in"
            " spotrelay.health_check",
        )


def _mounts(draft: Draft) -> None:
    mounts = draft.values.get("file_mounts")
    for name, entry in mounts.items() if isinstance(mounts, dict) else ():
        if isinstance(entry, dict) and str(entry.get("mode", MountMode.MOUNT)).upper() != MountMode.COPY:
            draft.note(
                ("file_mounts", name),
                "is mounted read-only, so that one replica can't change what the others load. Where the"
                f" service writes files, add `spotrelay: {{writable_mounts: [{name}]}}`",
            )


def _alternatives(resources: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The section itself, and each alternative in it."""
    yield resources
    for way in ("any_of", "ordered"):
        for one in resources.get(way) or ():
            if isinstance(one, dict):
                yield one
