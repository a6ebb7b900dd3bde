"""`spotrelay pack`: runs a service's set-up once, and keeps what it makes."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotrelay.operator.cli.errors import EXIT_FAILED, CommandError
from spotrelay.operator.cli.options import (
    AsJson,
    Confirmed,
    Contexts,
    EndpointUrl,
    Profile,
    Region,
    Timeout,
    Where,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spotrelay.file.service import Service
    from spotrelay.operator.aws.packs import Found, Maker
    from spotrelay.operator.cli.deploying import Limit
    from spotrelay.operator.cli.telling import Teller
    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.plane.core.pools import CapacityPool
    from spotrelay.plane.core.spec import ServiceSpec

LOOK_S = 5.0
"""Between looks: two calls, and set-up takes minutes."""

ENDED = ("shutting-down", "terminated", "stopping", "stopped")


def pack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A service file.", show_default=False)],
    context: Contexts = None,
    timeout: Timeout = "1h",
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
    is_confirmed: Confirmed = False,
) -> None:
    """Run a service's set-up once, and keep what it makes in a bucket for its replicas' starts.

    An on-demand instance of the deployed version does it, and ends. The next `spotrelay up` lets replicas
    start from the pack.

    Example: spotrelay pack services/llama3.yaml
    """
    from spotrelay.operator.cli import control_plane, deploying
    from spotrelay.operator.cli.telling import Teller

    with control_plane.errors_shown("pack"), Teller(is_json=is_json) as teller:
        if is_json and not is_confirmed:
            raise CommandError("--json needs --yes: its output is one document, without a question")
        limit = deploying.Limit.said(timeout)
        (service,) = deploying.loaded([file], deploying.parsed(context or ()))
        if service.pack is None:
            raise CommandError(
                f"{file}: there is no spotrelay.pack: say there which directories setup makes, and deploy it"
            )
        plane = control_plane.find_any(Where(region, profile, endpoint_url))
        spec = control_plane.deployed(plane, service.name)
        _make(plane, spec, service, teller, limit, is_confirmed=is_confirmed)


def _make(
    plane: ControlPlane,
    spec: ServiceSpec,
    service: Service,
    teller: Teller,
    limit: Limit,
    *,
    is_confirmed: bool,
) -> None:
    from spotrelay.operator.aws import packs
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.deploy.stacks import Stacks
    from spotrelay.plane.core.names import PACK_PROFILE_OUTPUT, SERVICE_STACK

    clients = plane.clients
    deployed = packs.Deployed.found(clients, spec.launch_template_id, str(spec.version))
    plan = _plan(deployed.user_data)
    stack = Stacks(clients).find(SERVICE_STACK + service.name)
    profile_arn = stack.outputs.get(PACK_PROFILE_OUTPUT) if stack else None
    if plan is None or profile_arn is None:
        raise CommandError(
            f"{service.name} is deployed without spotrelay.pack: spotrelay up {service.path}", EXIT_FAILED
        )
    if plan["prefix"] != packs.below(service):
        raise CommandError(
            f"{service.path} has another set-up than what is deployed, which would be packed: spotrelay up"
            f" {service.path}",
            EXIT_FAILED,
        )
    if there := packs.at_work(clients, service.name):
        raise CommandError(
            f"{', '.join(there)} packs {service.name} already: wait until it has ended, which it does by"
            f" itself, or end it: aws ec2 terminate-instances --instance-ids {' '.join(there)}",
            EXIT_FAILED,
        )
    survey = plane.store.recall(service.name, plane.region, datetime.now(UTC)).survey
    prices: Mapping[str, float] = survey.on_demand_prices if survey else {}
    pools = _pools(spec, prices)
    first = prices.get(pools[0].instance_type)
    teller.say(
        f"{service.name}: an on-demand {pools[0].instance_type} runs set-up and packs"
        f" {', '.join(plan['paths'])}: {_usd(first)} an hour, two hours at most"
    )
    with teller.paused():
        control_plane.confirm("Go on?", is_confirmed=is_confirmed)
    maker = packs.Maker(clients, deployed, profile_arn, service.name, spec.labels)
    before = {one.manifest for one in packs.made(clients, plan["bucket"], plan["prefix"])}
    began = time.monotonic()
    instance_id, pool = maker.launch(pools, spec.subnets)
    try:
        teller.say(f"{instance_id} starts: {pool}")
        found = _followed(maker, instance_id, plane, plan, before, teller, limit)
    finally:
        maker.end(instance_id)
    took_s = time.monotonic() - began
    _sweep(plane, service.name, plan, found, teller)
    price = prices.get(pool.instance_type)
    cost = price * took_s / 3600 if price else None
    teller.end(
        f"{service.name}: packed in {took_s / 60:.0f} min, for {_usd(cost)}: spotrelay up {service.path} lets"
        " replicas start from it",
        {
            "service": service.name,
            "manifest": found.manifest,
            "instance_id": instance_id,
            "instance_type": pool.instance_type,
            "after_s": round(took_s, 1),
            "usd": None if cost is None else round(cost, 4),
        },
    )


def _sweep(plane: ControlPlane, name: str, plan: Mapping[str, Any], found: Found, teller: Teller) -> None:
    """Let go of packs that neither the deployed version nor the next one starts from."""
    from spotrelay.file.instance.packing import LONGEST_S
    from spotrelay.file.instance.packs import prefix
    from spotrelay.operator.aws import packs
    from spotrelay.plane.core.ports import PortError
    from spotrelay.plane.core.timing import seconds

    wanted = [manifest for manifest in (found.manifest, plan["manifest"]) if manifest]
    try:
        kept = packs.keys(plane.clients, plan["bucket"], plan["prefix"], wanted)
        # What another such instance writes at this moment is in no manifest yet.
        before = datetime.now(UTC) - seconds(LONGEST_S)
        count = packs.drop(plane.clients, plan["bucket"], prefix(name), kept, before)
    except PortError as error:
        teller.say(f"older packs are left below s3://{plan['bucket']}/{prefix(name)}/: {error}")
    else:
        if count:
            teller.say(f"{count} objects of older packs deleted")


def _plan(user_data: str) -> dict[str, Any] | None:
    """What a deployed instance reads of packs; None: it knows none."""
    from ruamel.yaml import YAML

    from spotrelay.file.instance import packs
    from spotrelay.file.instance.unit import HOME

    config = YAML(typ="safe", pure=True).load(user_data) if user_data.startswith("#cloud-config") else {}
    for one in config.get("write_files", []):
        if one["path"] == f"{HOME}/{packs.PLAN}":
            plan: dict[str, Any] = json.loads(one["content"])
            return plan
    return None


def _pools(spec: ServiceSpec, prices: Mapping[str, float]) -> Sequence[CapacityPool]:
    """The cheapest type first; of those without a known price, the file's order."""
    return sorted(spec.pools, key=lambda pool: prices.get(pool.instance_type, float("inf")))


def _usd(amount: float | None) -> str:
    return "an unknown price" if amount is None else f"{amount:.2f} USD"


def _followed(
    maker: Maker,
    instance_id: str,
    plane: ControlPlane,
    plan: Mapping[str, Any],
    before: set[str],
    teller: Teller,
    limit: Limit,
) -> Found:
    """The pack, once it is there.

    Raises:
        CommandError: the instance has ended without one, or time is over.
    """
    from spotrelay.operator.aws import packs
    from spotrelay.plane.core.ports import Throttled, Unavailable
    from spotrelay.plane.view.words import duration

    while True:
        try:
            state = maker.state(instance_id)
            there = packs.made(plane.clients, plan["bucket"], plan["prefix"])
        except (Throttled, Unavailable) as error:
            teller.now(str(error))  # over in a moment
            there, state = [], ""
        for one in there:
            if one.manifest not in before:
                return one
        if state in ENDED:
            raise CommandError(
                f"{instance_id} has ended without a pack: {_last_words(plane, instance_id)}",
                EXIT_FAILED,
            )
        if limit.is_over:
            raise CommandError(
                f"{instance_id} has made no pack within {duration(limit.lasts_s)}, and is ended: give"
                " --timeout more, or see why its set-up takes so long",
                EXIT_FAILED,
            )
        teller.now(f"{instance_id} is {state or 'unknown'} ({duration(limit.elapsed_s)})")
        time.sleep(LOOK_S)


def _last_words(plane: ControlPlane, instance_id: str) -> str:
    """What the instance said last of itself."""
    from spotrelay.operator.aws.console import console_output

    lines = [
        line for line in console_output(plane.clients, instance_id).splitlines() if "spotrelay: " in line
    ]
    if not lines:
        return f"its console says more: aws ec2 get-console-output --instance-id {instance_id}"
    return lines[-1].partition("spotrelay: ")[2]
