"""From a service file to a `Service`: read, validate, compile."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from os.path import normpath
from pathlib import Path
from typing import Any

from spotrelay.file import catalog
from spotrelay.file.compile import rounds, runtime_document
from spotrelay.file.dialects.dialect import Canonical, Dialect, canonical
from spotrelay.file.fields import brought_checks, scaling
from spotrelay.file.fields.file_fields import with_registry
from spotrelay.file.fields.resources import port_findings
from spotrelay.file.fields.schema import ServiceFile
from spotrelay.file.instance import engine, peers, software, userdata
from spotrelay.file.model import Service
from spotrelay.file.source.document import Document, Location, read
from spotrelay.file.source.errors import InvalidServiceFileError, Problem
from spotrelay.file.source.inputs import NOTHING, Inputs
from spotrelay.file.values import eligibility
from spotrelay.file.values.candidate import ALTERNATIVES
from spotrelay.file.values.disk import INSTANCE_STORE, disk
from spotrelay.file.values.elsewhere import why_not_on_aws
from spotrelay.file.values.files import Bucket, WebFile, is_url
from spotrelay.file.values.limits import (
    BALANCER_TIMEOUT_S,
    FETCHING_S,
    LEAST_FAILURE_THRESHOLD_IF_BUSY_S,
    LEAST_FAILURE_THRESHOLD_S,
    MAX_PROBE_TIMEOUT_S,
)
from spotrelay.messages import did_you_mean, few
from spotrelay.plane.core import timing
from spotrelay.plane.core.requirements import Eligibility, Requirements
from spotrelay.plane.core.spec import OnUpdate, OnWarning, ReadinessProbe, ServiceSettings

WARNING_S = 120
"""What EC2 gives between an interruption warning and the end."""

BALANCER_LAG_S = 20
"""A balancer may send requests for so long after a target began to drain: the controller's own figure."""

DEFAULT_HEALTH_CHECK = "/health"

PROMISED_CODES = "200"

ALIVE_CODES = "200-499"
"""Where no path was promised that answers a GET: a server that says 404 to / is there, one with 502 isn't."""


_METADATA_TAG = re.compile(r"[0-9a-zA-Z\-_+=,.@:]{1,255}")
"""Keys of tags that an instance may read of itself, as EC2's error has it:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/work-with-tags-in-IMDS.html"""

_PROBE_DATA: Location = ("service", "readiness_probe", "post_data")

_PACK: Location = ("spotrelay", "pack")

_CHOSEN = (
    "has an engine cache for each kind of GPU, too, as spotrelay.start_within asks for short starts:"
    " spotrelay pack then starts run twice, for nobody. warm: true says so without this notice, warm: false"
    " keeps it from that"
)

_LOOKS_SECRET = re.compile(r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|API_KEY|ACCESS_KEY|PRIVATE_KEY)$")


def load(path: str | Path, inputs: Inputs = NOTHING) -> Service:
    """Read a service file (`-`: standard input), with what its user says beside it.

    Raises:
        ServiceFileError: with every problem found; see `spotrelay.file.source.errors` for the kinds.
    """
    path = Path(path)
    found = canonical(read(path, as_written=frozenset({"envs", "secrets"})), inputs)
    document, problems = found.document, [*found.problems]
    if lack := why_not_on_aws(document.values):
        raise InvalidServiceFileError([document.problem(lack.at, lack.message)])
    problems += [document.problem(port.at, port.message) for port in port_findings(document.values)]
    places = (path.parent.absolute(), inputs.directory or Path.cwd())
    file, more = rounds.validated(found, places)
    problems += more
    if file is None or problems:
        raise InvalidServiceFileError(problems)
    service = _compile(path, file, found)
    is_cache_chosen = _wants_cache(file, service)
    if is_cache_chosen:
        service = replace(service, pack=service.pack and replace(service.pack, warm=True))
    if userdata.size(service) > userdata.MAX_BYTES:
        # They come with the service's files then.
        service = replace(service, scripts_in_bundle=True)
        problems += _size_problems(document, service)
    problems += [
        *_document_problems(document, service),
        *_warm_problems(document, service),
        *_unseen_requests(document, service),
        *_impossible_peers(document, file, service),
    ]
    if problems:
        raise InvalidServiceFileError(problems)
    notices = (document.problem(("resources", *one.at), one.message) for one in file.resources.notices())
    return replace(
        service,
        warnings=tuple(_warnings(document, file, service)),
        notices=(
            *found.notices,
            *notices,
            *_in_both_places(document, *places),
            *(document.problem(*one) for one in brought_checks.notices(service)),
            *(document.problem(*one) for one in software.notices(service)),
            *_without_peers(document, file),
            *([document.problem(_PACK, _CHOSEN)] if is_cache_chosen else ()),
        ),
    )


def _wants_cache(file: ServiceFile, service: Service) -> bool:
    """Whether what its engine compiles is to be packed, because starts are to be short and nobody says no."""
    own = file.spotrelay
    return bool(
        own.start_within
        and own.pack
        and own.pack.warm is None
        and software.engine(service) in software.COMPILING
        and engine.families(service.instance_types)
        and engine.may_be_kept(service)
    )


def _impossible_peers(document: Document, file: ServiceFile, service: Service) -> Iterator[Problem]:
    if not file.spotrelay.peers:
        return
    if not service.models:
        yield document.problem(
            ("spotrelay", "peers"),
            "replicas would fetch models from each other, and there are none: add spotrelay.models, or remove"
            " this",
        )
    for index, model in enumerate(service.models):
        if isinstance(model.source, WebFile):
            yield document.problem(
                ("spotrelay", "models", index, "source"),
                "with spotrelay.peers models come from buckets: of this file's parts nobody has hashes, by"
                " which replicas know what another sends: copy it to a bucket, or remove spotrelay.peers",
            )
    if service.port <= peers.PORT < service.port + max(service.slots.values(), default=1):
        yield document.problem(
            ("resources", "ports"),
            f"with spotrelay.peers models are served on port {peers.PORT}, and the service has it: choose"
            " another",
        )


def _unreadable_labels(labels: Iterable[str]) -> list[str]:
    """Those that EC2 takes for tags, but not where an instance reads its own."""
    return [name for name in labels if not _METADATA_TAG.fullmatch(name) or name in (".", "..", "_index")]


def _without_peers(document: Document, file: ServiceFile) -> Iterator[Problem]:
    if file.spotrelay.peers and (names := _unreadable_labels(file.resources.labels)):
        yield document.problem(
            ("spotrelay", "peers"),
            "no replica fetches from another: instances read their peers from a tag, and EC2 launches none"
            " that reads its tags if a key has other characters than letters, digits and + - = . , _ : @:"
            f" rename the label {few(names, 3)}",
        )


def _in_both_places(document: Document, own: Path, here: Path) -> Iterator[Problem]:
    """Relative paths that mean something else to SkyServe, which looks only where its command runs."""
    mounts = document.values.get("file_mounts") or {}
    texts: dict[Location, Any] = {("workdir",): document.values.get("workdir")}
    texts |= {
        ("file_mounts", name): entry.get("source") if isinstance(entry, dict) else entry
        for name, entry in mounts.items()
    }
    for at, text in texts.items():
        if not isinstance(text, str) or is_url(text) or text.startswith(("/", "~")):
            continue
        if (here / text).exists() and (own / text).exists() and not (here / text).samefile(own / text):
            yield document.problem(
                at,
                f"is {normpath(own / text)}, beside the service file; SkyServe would take"
                f" {normpath(here / text)}, where the command runs: name that in full to have it",
            )


def _wanted(file: ServiceFile) -> tuple[Requirements, Eligibility]:
    """What an instance must have, and the types that have it: of one replica, or of several that share it."""
    if not file.spotrelay.shares_instances:
        return file.resources.wanted, file.resources.found
    wanted = file.resources.wanted.shared()
    return wanted, eligibility.find(wanted)


def _compile(path: Path, file: ServiceFile, found: Canonical) -> Service:
    section, own, resources = file.service, file.spotrelay, file.resources
    wanted, eligible = _wanted(file)
    types = eligible.types
    arch = types[0].arch
    # A setting that has the same name in the file is taken as it is; only these are looked at first.
    names = {field.name for field in fields(ServiceSettings)}
    settings = {name: value for name, value in (*section, *own, *resources) if name in names}
    settings["ordered"] = resources.has_order
    settings["use_spot"] = resources.wanted.use_spot  # which only the alternatives may say
    settings["standby"] = own.standbys(file.replicas)
    settings["standby_auto"] = own.is_auto
    settings["standby_instance_types"] = tuple(own.standby_instance_types or ())
    settings["standby_zones"] = tuple(own.standby_zones or ())
    settings["bake_s"] = own.bake_seconds
    settings["rebalance_cost"] = own.rebalance_cost
    settings["replicas"] = file.replicas
    settings["peers"] = own.peers and not _unreadable_labels(resources.labels)
    settings["slots"] = {}
    if own.shares_instances:
        settings["slots"] = {t.name: t.accelerator_count for t in types if t.accelerator_count > 1}
        # The survey may find other types by then: how many replicas those host the document wouldn't say.
        wanted = replace(
            wanted, alternatives=(), instance_types=tuple(type_.name for type_ in types), accelerators=()
        )
    policy = section.replica_policy
    settings["scaling"] = scaling.compiled(file.name, file.replicas, policy, own.scaling, types)
    settings["busy"] = own.busy.compiled if own.busy else None
    settings["overprovision"] = policy.num_overprovision if policy else 0
    settings["readiness_probe"] = None
    volume = disk(resources.disk_tier, resources.disk_size, resources.disk_initialization_rate)
    settings["disk_usd_per_hour"] = volume.usd_per_hour
    promised = own.health_check or (DEFAULT_HEALTH_CHECK if found.dialect is Dialect.SPOTRELAY else None)
    probe = section.readiness_probe
    if probe:
        settings["initial_delay_s"] = probe.initial_delay_seconds + _fetching_s(file, resources.container)
        if probe.post_data is None and not probe.headers:  # a plain GET, as the load balancer sends it
            promised = probe.path
        else:
            settings["readiness_probe"] = ReadinessProbe(
                probe.path,
                probe.post_data,
                min(probe.timeout_seconds, MAX_PROBE_TIMEOUT_S),
                probe.headers,
                max(
                    probe.consecutive_failure_threshold_timeout,
                    LEAST_FAILURE_THRESHOLD_IF_BUSY_S if own.busy else LEAST_FAILURE_THRESHOLD_S,
                ),
            )
    if settings["readiness_probe"] is None and promised and (probe or not own.target_group):
        # The same GET from inside, before it is registered: a load balancer whose targets are all unhealthy
        # sends requests to all of them, also to one where nothing listens yet. What a target group of the
        # user's checks, only its owner knows.
        settings["readiness_probe"] = ReadinessProbe(promised, None, BALANCER_TIMEOUT_S)
    return Service(
        **settings,
        path=path,
        name=file.name,
        # The image is chosen now, so what the survey finds later must suit it.
        requirements=replace(wanted, arch=arch),
        max_price_share=resources.max_price,
        instance_types=types,
        port=file.port,
        health_check_path=promised or "/",
        health_check_codes=PROMISED_CODES if promised else ALIVE_CODES,
        load_balancing=section.load_balancing_policy,
        certificate_arn=own.certificate_arn,
        domain=own.domain,
        drain_s=own.drain_seconds,
        drain_unhurried_s=own.drain_unhurried,
        start_within_s=own.start_within,
        idle_timeout_s=own.idle_timeout_seconds,
        capacity_reservations=own.capacity_reservations,
        disk=volume,
        image=resources.boot_image,
        container=resources.container and with_registry(resources.container, file.envs),
        arch=arch,
        envs=file.envs,
        secrets=file.secrets,
        workdir=file.workdir,
        file_mounts=file.mounts,
        models=tuple(model.compiled for model in own.models),
        pack=own.pack.compiled if own.pack else None,
        secret_values=found.secret_values,
        security_groups=tuple(own.security_groups or ()),
        instance_profile=own.instance_profile,
        listener=own.listener,
        target_group=own.target_group,
        is_skyserve=found.dialect is Dialect.SKYSERVE,
        setup=file.setup,
        run=file.run,
        warnings=(),
        notices=(),
    )


def _fetching_s(file: ServiceFile, container: str | None) -> float:
    """What may come before SkyServe's initial delay begins, at most: pulling an image, copying buckets."""
    is_copied = any(isinstance(m.source, Bucket) and not m.is_mounted for m in file.mounts)
    return FETCHING_S * (bool(container) + (is_copied or bool(file.spotrelay.models)))


def _size_problems(document: Document, service: Service) -> Iterator[Problem]:
    size = userdata.size(service)
    if size > userdata.MAX_BYTES:
        parts: dict[Location, tuple[object, str]] = {
            ("envs",): (service.envs, "put long values into a file of `workdir`, or into secrets"),
            ("secrets",): (service.secrets, "have fewer, with shorter names"),
            ("file_mounts",): (service.file_mounts, "have fewer, with shorter paths"),
            ("spotrelay", "models"): (service.models, "have fewer, with shorter paths"),
            ("spotrelay", "pack"): (service.pack or "", "have fewer paths, or shorter ones"),
            ("resources", "image_id"): (service.container or "", "name a shorter one"),
        }
        largest = max(parts, key=lambda at: len(str(parts[at][0])))
        yield document.problem(
            largest,
            f"too much for an instance: all user data would be {size} bytes, and EC2 takes"
            f" {userdata.MAX_BYTES}: {parts[largest][1]}",
        )


def _warm_problems(document: Document, service: Service) -> Iterator[Problem]:
    if not engine.is_kept(service):
        return
    at = ("spotrelay", "pack", "warm")
    if not engine.kinds(service):
        yield document.problem(
            at,
            "an engine cache is of an accelerator, and resources allow no instance type with a whole one:"
            " remove this, or name resources.accelerators",
        )
    if service.readiness_probe is None:
        yield document.problem(
            at,
            "an engine is started until it answers, and nobody knows how to ask this one: add a"
            " service.readiness_probe, or remove this",
        )
    for name in engine.VARIABLES.keys() & service.envs.keys():
        yield document.problem(
            ("envs", name), "says where spotrelay.pack.warm lets the engine compile to: remove one of the two"
        )


def _document_problems(document: Document, service: Service) -> Iterator[Problem]:
    size = runtime_document.size(service)
    if size > runtime_document.MAX_CHARACTERS:
        probe = service.readiness_probe
        way = next((name for name in ALTERNATIVES if name in document.values["resources"]), "any_of")
        parts: dict[Location, object] = {
            _PROBE_DATA: dict(probe.post_data or {}) if probe else {},
            ("resources", "exclude"): service.requirements.exclude,
            ("resources", "instance_types"): service.requirements.instance_types,
            ("resources", way): [one.to_dict() for one in service.requirements.alternatives],
        }
        largest = max(parts, key=lambda at: len(json.dumps(parts[at])))
        yield document.problem(
            largest,
            f"makes the service's runtime document {size} characters long, and Parameter Store takes"
            f" {runtime_document.MAX_CHARACTERS}: make it shorter",
        )


def _unseen_requests(document: Document, service: Service) -> Iterator[Problem]:
    """A load balancer counts its requests under its own name, which a target group doesn't tell."""
    if service.target_group and service.scaling and service.scaling.counts_requests:
        yield document.problem(
            ("spotrelay", "target_group"),
            "a target group doesn't tell its load balancer, which counts the requests: name the load"
            " balancer's listener instead, spotrelay.listener, scale by a metric of yours,"
            " spotrelay.scaling.metric, and let min_replicas be 1 or more",
        )


def _without_effect(document: Document, file: ServiceFile, service: Service) -> Iterator[Problem]:
    """Fields that change nothing."""
    wanted = file.resources.wanted
    known = {name for type_ in catalog.all_types() for name in (type_.name, type_.family)}
    for index, name in enumerate(wanted.exclude):
        if name not in known:
            hint = did_you_mean(name, sorted(known))
            yield document.problem(
                ("resources", "exclude", index), f"{name} is no known instance type or family{hint}"
            )
    for idle in scaling.without_effect(file.service.replica_policy, service.instance_types):
        yield document.problem(idle.at, idle.message)
    if service.on_update is OnUpdate.ROLLING and service.surge == 0:
        yield document.problem(
            ("service", "surge"),
            "with 0 a new version replaces nothing: choose 1 or more, or say spotrelay.on_update: keep",
        )
    if service.on_update is OnUpdate.KEEP and service.bake_s is not None:
        yield document.problem(("spotrelay", "bake_seconds"), "with on_update: keep nothing is rolled out")
    if not service.use_spot:
        if service.max_price_share is not None:
            yield document.problem(("resources", "max_price"), "is for Spot, which use_spot turns off")
        if service.base_on_demand:
            yield document.problem(
                ("spotrelay", "base_on_demand"), "with use_spot: false every replica is on-demand"
            )


def _drain_too_long(service: Service) -> str | None:
    """What a drain that doesn't fit into an interruption's time leads to; None if it fits."""
    if service.drain_s >= WARNING_S:
        return (
            f"{service.drain_s} s hold only for replicas that EC2 doesn't take away: after a warning "
            f"there are {WARNING_S} s in all, and requests that run longer are cut"
        )
    if service.on_warning is not OnWarning.LEAVE and service.drain_s + BALANCER_LAG_S >= WARNING_S:
        return (
            f"{service.drain_s} s leave a warned replica no time to serve on: there are {WARNING_S} s "
            f"in all, and the balancer takes {BALANCER_LAG_S} of them until it sends nothing more: "
            "make it shorter, or say `on_warning: leave`"
        )
    return None


def _without_bridge(service: Service) -> tuple[str, str] | None:
    """The setting by which a warned replica leaves before a standby can have come, and what to do."""
    if not service.may_have_standbys:
        return None
    resume_s = int(timing.STANDBY_RESUME_S)
    if service.on_warning is OnWarning.LEAVE:
        return (
            "on_warning",
            f"a warned replica leaves at once, and the standby that is resumed for it comes about {resume_s}"
            " s later: say `on_warning: needed`",
        )
    longest_s = WARNING_S - BALANCER_LAG_S - resume_s
    if service.drain_s > longest_s:
        return (
            "drain_seconds",
            f"{service.drain_s} s leave a warned replica less time in rotation than a standby takes to come,"
            f" about {resume_s} s: choose {longest_s} or less",
        )
    return None


def _warnings(document: Document, file: ServiceFile, service: Service) -> Iterator[Problem]:
    wanted, found = file.resources.wanted, file.resources.found
    for skipped in file.resources.warnings():
        yield document.problem(("resources", *skipped.at), skipped.message)
    if service.use_spot and (message := eligibility.too_few(*_wanted(file))):
        yield document.problem(("resources", file.resources.field_of_choice), message)
    for accelerators in dict.fromkeys(a for choice in wanted.choices for a in choice.accelerators):
        if not any(accelerators.are_on(type_) for type_ in found.types):
            left_out = [e for e in found.excluded if accelerators.are_on(e.type)]
            reasons = "; ".join(eligibility.grouped(left_out))
            yield document.problem(
                ("resources", "accelerators"), f"{accelerators} adds no instance type: {reasons}"
            )
    yield from _without_effect(document, file, service)
    if service.use_spot and (message := _drain_too_long(service)):
        yield document.problem(("spotrelay", "drain_seconds"), message)
    elif found_gap := _without_bridge(service):
        field, message = found_gap
        yield document.problem(("spotrelay", field), message)
    if service.may_have_standbys and any(
        INSTANCE_STORE in text for text in (service.run, *service.envs.values())
    ):
        yield document.problem(
            ("spotrelay", "standby"),
            f"a stopped standby loses what is below {INSTANCE_STORE}, which this service names: what it keeps"
            " there is loaded anew when it is resumed; keep it on the root volume",
        )
    for name, value in service.envs.items():
        if value and _LOOKS_SECRET.search(name):
            yield document.problem(
                ("envs", name),
                "looks like a secret, and envs stand in the launch template in the clear: use `secrets`",
            )
