"""`spotrelay adopt`: instances that already serve in a service's target group become its replicas."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from spotrelay.operator.cli.errors import CommandError
from spotrelay.operator.cli.options import Confirmed, EndpointUrl, Profile, Region, ServiceName, Where
from spotrelay.plane.core.names import target_group_name

if TYPE_CHECKING:
    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.plane.core.instances import Target
    from spotrelay.plane.core.spec import ServiceSpec

SEEN_WITHIN_S, LOOK_S = 60.0, 2.0
"""EC2 shows a new tag within seconds. A row whose instance it doesn't show by its tag looks like a loss."""

ATTEMPTS = 5
"""A tick that writes at the same time is rare, and over in a second."""


def adopt(
    name: ServiceName,
    is_to_be_replaced: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Then replace them, one after the other: launch first, then drain.",
        ),
    ] = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
    is_confirmed: Confirmed = False,
) -> None:
    """Take over instances that already serve, in the target group that the service file names.

    From then on SpotRelay looks after them: on a Spot warning each drains and is replaced.

    Example: spotrelay adopt demo
    """
    from spotrelay.operator import adoption
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.cli.telling import Teller
    from spotrelay.plane.serving import rollout

    with control_plane.errors_shown("adopt"):
        plane = control_plane.find(name, Where(region, profile, endpoint_url))
        spec = control_plane.deployed(plane, name)
        if f":targetgroup/{target_group_name(name)}/" in spec.target_group_arn:
            raise CommandError(
                f"the target group of {name} is SpotRelay's own, and has nothing else in it: name yours in"
                " spotrelay.target_group, and deploy"
            )
        rows = plane.store.load(name)
        found = adoption.foreign(plane.targets.found(spec), rows)
        wanted = rollout.in_effect(spec, rows, datetime.now(UTC))
        reasons = {
            target.id: adoption.why_not(target, wanted, is_to_be_replaced=is_to_be_replaced)
            for target in found
        }
        for target in found:
            if reasons[target.id]:
                typer.echo(f"{target.id}: left alone: {reasons[target.id]}")
        adoptable = [target for target in found if reasons[target.id] is None]
        if not adoptable:
            raise CommandError(
                f"nothing in the target group of {name} can be adopted ({spec.target_group_arn})"
            )
        try:
            adoption.check(wanted, rows, len(adoptable), is_to_be_replaced=is_to_be_replaced)
        except adoption.NotAdoptableError as error:
            raise CommandError(str(error)) from error
        for target in adoptable:
            if target.instance is not None:
                typer.echo(f"{target.id}: {target.instance.offering}, port {target.port}")
        _explain(name, len(adoptable), is_to_be_replaced=is_to_be_replaced)
        control_plane.confirm("Go on?", is_confirmed=is_confirmed)
        with Teller() as teller:
            teller.now("waits until EC2 shows the tags, and rows can be written")
            _take(plane, spec, adoptable, is_to_be_replaced=is_to_be_replaced)
        plane.tell(name, "tick")
        typer.echo(f"Adopted: {len(adoptable)}.")


def _explain(name: str, count: int, *, is_to_be_replaced: bool) -> None:
    fate = (
        "new replicas replace them one after the other, as soon as each serves"
        if is_to_be_replaced
        else "they serve on until EC2 takes them, they fail, or a new version is rolled out"
    )
    typer.echo(
        f"{count} become replicas of {name}: {fate}.\n"
        "SpotRelay then owns them: what it drains, it terminates, also when replicas are reduced,"
        f" or the stack of {name} is deleted."
    )


def _take(
    plane: ControlPlane, spec: ServiceSpec, targets: Sequence[Target], *, is_to_be_replaced: bool
) -> None:
    """Tag them, then give them rows: an instance with a row and without the tag would look lost.

    One with the tag and without a row is left alone by every tick: who breaks off here just repeats it.

    Raises:
        CommandError: EC2 doesn't show the tags, or rows are written all the time; it can be repeated.
    """
    from spotrelay.plane.core.rows import Changes

    for at in range(0, len(targets), Changes.MAX_ROWS):
        batch = targets[at : at + Changes.MAX_ROWS]
        ids = [target.id for target in batch]
        plane.targets.hand_over(spec.service, ids)
        if not _are_seen(plane, spec.service, ids):
            raise CommandError(f"EC2 doesn't show the tags of {', '.join(ids)} yet: repeat the command")
        if not _are_recorded(plane, spec, batch, is_to_be_replaced=is_to_be_replaced):
            raise CommandError("the service's rows change all the time: repeat the command")


def _are_seen(plane: ControlPlane, service: str, ids: Sequence[str]) -> bool:
    deadline_s = time.monotonic() + SEEN_WITHIN_S
    while not {instance.id for instance in plane.fleet.observe(service)}.issuperset(ids):
        if time.monotonic() >= deadline_s:
            return False
        time.sleep(LOOK_S)
    return True


def _are_recorded(
    plane: ControlPlane, spec: ServiceSpec, batch: Sequence[Target], *, is_to_be_replaced: bool
) -> bool:
    from spotrelay.operator import adoption
    from spotrelay.plane.core.ports import Conflict
    from spotrelay.plane.serving import rollout

    for _ in range(ATTEMPTS):
        rows = plane.store.load(spec.service)
        wanted, left = rollout.in_effect(spec, rows, datetime.now(UTC)), adoption.foreign(batch, rows)
        try:
            adoption.check(wanted, rows, len(left), is_to_be_replaced=is_to_be_replaced)
            plane.store.commit(
                adoption.decide(wanted, rows, left, datetime.now(UTC), is_to_be_replaced=is_to_be_replaced)
            )
        except adoption.NotAdoptableError as error:
            raise CommandError(str(error)) from error
        except Conflict:
            continue
        return True
    return False
