"""`spotrelay down`: removes a service, shows its drain, and says what was and whether anything is left."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from spotrelay.operator.cli.errors import EXIT_FAILED, CommandError
from spotrelay.operator.cli.options import AsJson, Confirmed, EndpointUrl, Profile, Region, Timeout, Where
from spotrelay.plane.core.names import PACKS_OUTPUT, SERVICE_STACK, TAG_BAKE, TAG_PACK
from spotrelay.plane.core.quotas import LEAST_GIVEN, services_carried
from spotrelay.plane.view.words import duration

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spotrelay.operator.cli.deploying import Limit
    from spotrelay.operator.cli.telling import Teller
    from spotrelay.operator.deploy.remains import Remains
    from spotrelay.operator.deploy.stacks import Stack, Stacks
    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.plane.aws.clients import Clients

LOOK_S = 1.0

AT_ONCE = services_carried(LEAST_GIVEN)
"""Services that are removed at once. For each a function waits until its replicas have ended: if those took
all that the account may run, the control plane's, which drain the replicas, couldn't run any more."""

GONE_WITHIN_S = 60.0
"""After its stack, a service's last disk may take moments to go: EC2 deletes it after the instance."""


def down(
    name: Annotated[
        str | None, typer.Argument(help="The service.", metavar="NAME", show_default=False)
    ] = None,
    is_all: Annotated[
        bool,
        typer.Option(
            "--all", help="Every service of the region, and then the network and the control plane."
        ),
    ] = False,
    timeout: Timeout = "1h",
    is_json: AsJson = False,
    region: Region = None,
    profile: Profile = None,
    endpoint_url: EndpointUrl = None,
    is_confirmed: Confirmed = False,
) -> None:
    """Remove a service: its replicas finish their requests first. Ends when nothing is left.

    It lists what will be removed, and asks. The exit code is 1 if something is left; it says what.

    Example: spotrelay down demo
    """
    from spotrelay.operator.cli import control_plane, deploying
    from spotrelay.operator.cli.telling import Teller

    with control_plane.errors_shown("down"), Teller(is_json=is_json) as teller:
        if (name is None) is not is_all:
            raise CommandError(
                "which service? Name one, or all of them with --all" if not is_all else
                f"--all removes every service: leave out {name}, or --all"
            )  # fmt: skip
        limit = deploying.Limit.said(timeout)
        where = Where(region, profile, endpoint_url)
        removal = _everything(where) if name is None else _one(name, where)
        for line in removal.listed():
            typer.echo(line, err=is_json)
        with teller.paused():
            control_plane.confirm("Go on?", is_confirmed=is_confirmed)
        ends = removal.carried_out(teller, limit)
        teller.end("", {"removed": [end.to_json() for end in ends], "kept": list(removal.kept)})
        if not is_json:
            for line in removal.kept:
                typer.echo(f"kept: {line}")
        if any(end.left for end in ends):
            raise typer.Exit(EXIT_FAILED)


@dataclass(frozen=True, slots=True)
class End:
    """What became of one stack."""

    name: str
    was: str
    """What there was of it."""
    left: str
    """What is left, and why; empty if nothing is."""

    def __str__(self) -> str:
        if self.left:
            return f"{self.name} isn't gone ({self.was}): {self.left}"
        return f"{self.name} gone: {self.was}; nothing left"

    def to_json(self) -> dict[str, str | None]:
        """It as JSON."""
        return {"name": self.name, "was": self.was, "left": self.left or None}


def _one(name: str, where: Where) -> Removal:
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.deploy.remains import remains
    from spotrelay.operator.deploy.stacks import Stacks

    plane = control_plane.find(name, where)
    stacks = Stacks(plane.clients)
    stack = stacks.find(SERVICE_STACK + name)
    if stack is not None:
        there = {name: remains(plane.clients, name)}
        baked = images(plane.clients, there)
        return Removal(plane.clients, plane, stacks, there, {name: stack}, images=baked)
    found = remains(plane.clients, name)
    if found:
        raise CommandError(
            f"{name} has no stack, and is still there: {found.named}. Run spotrelay retire {name}, and its"
            " replicas are drained and end",
            EXIT_FAILED,
        )
    raise control_plane.not_deployed(plane, name)


def _everything(where: Where) -> Removal:
    from spotrelay.operator.cli import control_plane
    from spotrelay.operator.deploy.remains import remains
    from spotrelay.operator.deploy.stacks import Stacks
    from spotrelay.operator.look.access import ControlPlane
    from spotrelay.plane.aws.clients import Clients
    from spotrelay.plane.core.names import CONTROL_PLANE_STACK, NETWORK_STACK

    session = where.session()
    plane = ControlPlane.found_with(session)
    clients = plane.clients if plane else Clients(session)
    stacks = Stacks(clients)
    found = {n.removeprefix(SERVICE_STACK): s for n in stacks.named(SERVICE_STACK) if (s := stacks.find(n))}
    shared = [s for n in (NETWORK_STACK, CONTROL_PLANE_STACK) if (s := stacks.find(n))]
    if not (found or shared):
        control_plane.find_any(where)  # which says that there is none
        raise CommandError(
            f"the control plane of {session.region_name} isn't one of the stack {CONTROL_PLANE_STACK}: remove"
            " the stack that it was deployed with"
        )
    there = {name: remains(clients, name) for name in found}
    return Removal(clients, plane, stacks, there, found, tuple(shared), images(clients, there))


def images(clients: Clients, services: Iterable[str]) -> tuple[str, ...]:
    """What was baked for them.

    Raises:
        PortError: EC2 doesn't say.
    """
    from spotrelay.operator.aws import bakes

    return tuple(one.id for name in services for one in bakes.images(clients, name))


@dataclass(frozen=True, slots=True)
class Removal:
    """Services that go, and what goes after them."""

    clients: Clients
    plane: ControlPlane | None
    stacks: Stacks
    there: dict[str, Remains]
    """By service, what there is of it now."""
    services: dict[str, Stack]
    shared: tuple[Stack, ...] = ()
    """The network's and the control plane's, in this order, where they go, too."""
    images: tuple[str, ...] = ()
    """IDs of images that were baked for these services: who deploys again may name them."""

    @property
    def kept(self) -> tuple[str, ...]:
        """What stays on purpose."""
        tables = [stack.outputs["TableName"] for stack in self.shared if "TableName" in stack.outputs]
        return (
            *(
                f"table {name}, with the history: aws dynamodb delete-table --table-name {name} deletes it"
                for name in tables
            ),
            *(
                f"image {id_}, whose snapshot costs on: aws ec2 deregister-image --image-id {id_}"
                " --delete-associated-snapshots deletes both"
                for id_ in self.images
            ),
        )

    def listed(self) -> list[str]:
        """What goes, a line for each stack."""
        lines = [
            f"{name}: {self.there[name]}, stack {stack.name} with its load balancer or rules"
            + (f" ({self.there[name].named})" if self.there[name] else "")
            for name, stack in self.services.items()
        ]
        lines += [f"stack {stack.name}" for stack in self.shared]
        return [f"These go for good:\n{chr(10).join('  ' + line for line in lines)}"]

    def carried_out(self, teller: Teller, limit: Limit) -> list[End]:
        """Remove them: a few services at once, then the rest one by one. What fails leaves the rest there.

        Raises:
            PortError: AWS can't be asked.
        """
        ends = self._services_end(teller, limit)
        for stack in self.shared:
            if any(end.left for end in ends):
                ends.append(End(stack.name, "stack", "not begun, since a service is left"))
                continue
            end = self._shared_end(stack, teller, limit)
            teller.say(str(end))
            ends.append(end)
        return ends

    def _services_end(self, teller: Teller, limit: Limit) -> list[End]:
        ends: list[End] = []
        waiting, begun, draining = list(self.services), dict[str, str](), set[str]()
        while waiting or begun:
            for name in waiting[: AT_ONCE - len(draining)]:
                self._end_makers(name, teller)
                begun[name] = self.stacks.delete(self.services[name])
                waiting.remove(name)
                draining.add(name)
            for name, before in list(begun.items()):
                stack = self.services[name]
                left, drain = self._left(stack, before, limit), self._drain(name)
                if left is None and drain:
                    teller.say(drain)
                else:
                    draining.discard(name)
                if left is None:
                    teller.now(f"{drain or name}: {stack.name} is deleted ({duration(limit.elapsed_s)})")
                    continue
                del begun[name]
                left = "; ".join(filter(None, (self._all_left(name, left, limit), self._packs_left(name))))
                ends.append(End(name, str(self.there[name]), left))
                teller.say(str(ends[-1]))
            if limit.is_over:
                over = f"not begun within {duration(limit.lasts_s)}"
                ends += (End(name, str(self.there[name]), over) for name in waiting)
                waiting.clear()
            elif begun:
                time.sleep(LOOK_S)
        return ends

    def _shared_end(self, stack: Stack, teller: Teller, limit: Limit) -> End:
        before = self.stacks.delete(stack)
        while (left := self._left(stack, before, limit)) is None:
            teller.now(f"{stack.name} is deleted ({duration(limit.elapsed_s)})")
            time.sleep(LOOK_S)
        return End(stack.name, "stack", left)

    def _left(self, stack: Stack, before: str, limit: Limit) -> str | None:
        """Why the stack isn't gone; empty: it is; None: that isn't certain yet."""
        now = self.stacks.find(stack.id)
        if now is None or now.is_gone:
            return ""
        if now.is_busy and not limit.is_over:
            return None
        if now.is_stuck and (failures := self.stacks.failures(now, before)):
            return f"stack {stack.name}: {'; '.join(failures)}"
        if limit.is_over:
            return f"stack {stack.name} is {now.status} after {duration(limit.lasts_s)}; it goes on"
        return None  # it hasn't begun

    def _drain(self, name: str) -> str:
        """The replicas that are left, as far as they can be read: the stack's end is what counts."""
        from spotrelay.plane.core.ports import PortError

        if self.plane is None:
            return ""
        try:
            rows = self.plane.store.load(name)
        except PortError as error:
            return f"{name}: its replicas can't be read: {error}"
        states = Counter(str(r.state) for r in rows.replicas.values())
        counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        return f"{name}: {counted}" if counted else ""

    def _end_makers(self, name: str, teller: Teller) -> None:
        """End what makes a pack or an image: its network interface would keep the stack from going."""
        from spotrelay.operator.aws import makers
        from spotrelay.plane.core.ports import PortError

        tags = [TAG_BAKE, *([TAG_PACK] if PACKS_OUTPUT in self.services[name].outputs else [])]
        try:
            there = [
                one.id
                for tag in tags
                for one in makers.workers(self.clients, tag, name, (*makers.AT_WORK, *makers.HALTED))
            ]
            if there:
                makers.end(self.clients, there)
        except PortError as error:
            teller.say(f"{name}: an instance that packs or bakes may hold the stack until it ends: {error}")

    def _packs_left(self, name: str) -> str:
        """Delete its packs, which are in no stack; why some are left."""
        from spotrelay.operator.aws import packs
        from spotrelay.plane.core.ports import PortError

        where = self.services[name].outputs.get(PACKS_OUTPUT)
        if where is None:
            return ""
        bucket, _, prefix = where.removeprefix("s3://").partition("/")
        try:
            packs.drop(self.clients, bucket, prefix, (), datetime.max.replace(tzinfo=UTC))
        except PortError as error:
            return f"packs below {where}/: {error}"
        return ""

    def _all_left(self, name: str, left: str, limit: Limit) -> str:
        """What is left of a service, by its ID."""
        from spotrelay.operator.deploy.remains import remains

        begun = time.monotonic()
        found = remains(self.clients, name)
        while found and not left and time.monotonic() < min(begun + GONE_WITHIN_S, limit.deadline):
            time.sleep(LOOK_S)
            found = remains(self.clients, name)
        return "; ".join(filter(None, (f"{found} left: {found.named}" if found else "", left)))
