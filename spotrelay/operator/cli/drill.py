"""`spotrelay drill`: interrupts Spot replicas as EC2 does it, and says how well that went."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from spotrelay.operator.cli.errors import EXIT_FAILED, EXIT_NO_ACCESS, CommandError
from spotrelay.operator.cli.options import AsJson, Confirmed, EndpointUrl, Profile, Region, ServiceName, Where
from spotrelay.operator.cli.telling import echo_json

if TYPE_CHECKING:
    from spotrelay.operator.cli.telling import Teller
    from spotrelay.operator.drill import Plan, Verdict
    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.plane.aws.experiments import OperatorExperiments

ACTION_MINUTE_USD = 0.10
"""Of Fault Injection Service: https://aws.amazon.com/fis/pricing/ (0.12 in GovCloud)."""

RECENT_S = 300.0
"""Requests that failed so short a time before a drill would be taken for its own."""


def drill(
    name: ServiceName,
    replicas: Annotated[
        int, typer.Option("--replicas", help="How many to interrupt, 1 to 5.", metavar="K")
    ] = 1,
    goes_on: Annotated[
        bool, typer.Option("--keep-going", help="Go on although requests fail, or failed shortly before.")
    ] = False,
    is_confirmed: Confirmed = False,
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
) -> None:
    """Interrupt Spot replicas of a service as EC2 does, and watch until the service is whole again.

    PASS means that no request failed and a replica always served. The exit code is 0 for PASS, 1 for FAIL or
    a service that isn't whole.

    Example: spotrelay drill demo
    """
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.cli.telling import Teller

    with control_plane.errors_shown("drill"):
        _check(replicas, is_json=is_json, is_confirmed=is_confirmed)
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        experiments = _experiments(plane)
        plan = _plan(plane, name, replicas)
        if not goes_on:
            _check_requests(plane, plan)
        if not is_json:
            typer.echo(_question(plan))
        control_plane.confirm("Go on?", is_confirmed=is_confirmed)
        with Teller(is_json=is_json) as teller:
            teller.now(f"the drill waits until {name} is whole again, and EC2 has taken what it warned")
            found = _run(plane, experiments, plan, teller, is_json=is_json, goes_on=goes_on)
        if is_json:
            echo_json(found.to_json())
        else:
            typer.echo(_in_words(found))
        _end(found)


def _run(
    plane: ControlPlane,
    experiments: OperatorExperiments,
    plan: Plan,
    teller: Teller,
    *,
    is_json: bool,
    goes_on: bool,
) -> Verdict:
    from spotrelay.operator.drill import Drill
    from spotrelay.operator.look.watch import Watch

    run = Drill(
        plan,
        Watch(plane.store, plan.spec.service, lambda _: None),
        experiments,
        plane.requests,
        (lambda _: None) if is_json else teller.say,
        goes_on,
    )
    try:
        return run.run()
    except KeyboardInterrupt:
        raise CommandError(
            "stopped; EC2 takes what it has warned all the same, and SpotRelay replaces it",
            EXIT_FAILED,
        ) from None


def _check(replicas: int, *, is_json: bool, is_confirmed: bool) -> None:
    from spotrelay.plane.aws.experiments import MOST_INSTANCES

    if not 1 <= replicas <= MOST_INSTANCES:
        raise CommandError(f"--replicas: expected 1 to {MOST_INSTANCES}, got {replicas}: FIS takes no more")
    if is_json and not is_confirmed:
        raise CommandError("--json needs --yes: its output is one document, without a question")


def _experiments(plane: ControlPlane) -> OperatorExperiments:
    from spotrelay.plane.aws.experiments import UNSUPPORTED

    if plane.region in UNSUPPORTED:
        raise CommandError(
            f"Fault Injection Service can't interrupt Spot instances in {plane.region}"
            f" ({UNSUPPORTED[plane.region]}): rehearse in another region"
        )
    if plane.experiments is None:
        raise CommandError(
            f"the control plane of {plane.region} has no function for drills: deploy the control plane again",
            EXIT_FAILED,
        )
    return plane.experiments


def _plan(plane: ControlPlane, name: str, replicas: int) -> Plan:
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.drill import RefusedError, plan
    from spotrelay.plane.serving import rollout

    deployed = control_plane.deployed(plane, name)
    rows = plane.store.load(name)
    spec = rollout.in_effect(deployed, rows, datetime.now(UTC))
    try:
        return plan(spec, rows, replicas)
    except RefusedError as error:
        raise CommandError(f"{name}: {error}", EXIT_FAILED) from None


def _check_requests(plane: ControlPlane, plan: Plan) -> None:
    from spotrelay.plane.core.timing import seconds

    now = datetime.now(UTC)
    recent = plane.requests.between(plan.spec, now - seconds(RECENT_S), now)
    if recent and recent.failed:
        raise CommandError(
            f"{plan.spec.service}: {recent.failed} of {recent.total} requests failed in the last"
            f" {RECENT_S / 60:.0f} minutes: find out why first, or drill with --keep-going",
            EXIT_FAILED,
        )


def _question(plan: Plan) -> str:
    from spotrelay.plane.core.timing import NOTICE_S

    count, all_of = len(plan.victims), len(plan.victims) + plan.remaining
    lines = [f"{plan.spec.service}: EC2 will take {count} of {all_of} replicas back, as in an interruption:"]
    lines += [f"  replica {r.id}, {r.offering}, {r.instance_id}" for r in plan.victims]
    usd = ACTION_MINUTE_USD * NOTICE_S / 60
    serving = f"{plan.remaining} remain{'s' if plan.remaining == 1 else ''}"
    if not plan.remaining:
        serving = "None remains: they serve until shortly before their end"
    return "\n".join([*lines, f"{serving}. Fault Injection Service charges about {usd:.2f} USD."])


def _in_words(found: Verdict) -> str:
    late = "Requests are as far as CloudWatch knows them: it is a minute late." if found.requests else ""
    return "\n".join(filter(None, [str(found), *(f"  {line}" for line in found.problems), late]))


def _end(found: Verdict) -> None:
    """Leave with what the verdict says, if it isn't PASS."""
    if any("not authorized to perform" in problem for problem in found.problems):
        raise typer.Exit(EXIT_NO_ACCESS)
    if not found.is_pass:
        raise typer.Exit(EXIT_FAILED)
