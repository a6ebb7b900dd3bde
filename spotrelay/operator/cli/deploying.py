"""What `up` and `update` have in common: checks, the deployment, and the way until replicas serve."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import typer
from botocore.exceptions import NoRegionError

from spotrelay.file.compile.check import local_files
from spotrelay.file.service import Service, in_region
from spotrelay.file.source.inputs import Inputs, InputsError, inputs
from spotrelay.messages import few
from spotrelay.operator.cli import cdk, control_plane, models, packs
from spotrelay.operator.cli.cdk import Cdk
from spotrelay.operator.cli.errors import EXIT_FAILED, CommandError
from spotrelay.operator.cli.files import load_all
from spotrelay.operator.cli.options import Where
from spotrelay.operator.cli.telling import Teller
from spotrelay.operator.cli.times import period
from spotrelay.operator.deploy import difference
from spotrelay.operator.deploy.assembly import Assembly, Bootstrap
from spotrelay.operator.deploy.stack_remedies import way_out
from spotrelay.operator.deploy.stacks import Stack, Stacks
from spotrelay.operator.look.access import ControlPlane
from spotrelay.operator.look.progress import Progress, progress
from spotrelay.plane.aws.clients import Clients
from spotrelay.plane.aws.errors import translated
from spotrelay.plane.core.names import CONTROL_PLANE_STACK, NETWORK_STACK, SERVICE_STACK
from spotrelay.plane.core.ports import Denied, Throttled, Unavailable
from spotrelay.plane.core.spec import ServiceSpec
from spotrelay.plane.view.rows import rows
from spotrelay.plane.view.words import duration

LONGEST = timedelta(days=1)
"""That a command waits."""

LOOK_S = 1.0
"""Between looks at replicas: soon enough for a person, and three reads of the table."""

ENDED_READ = 100
"""Ended replicas that a look reads: more than fail in a deployment."""

SPOTS_ROLE = "AWSServiceRoleForEC2Spot"
"""EC2's own, in whose name it encrypts the disks of Spot instances:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html"""

FILTERED = 50
"""Parameters that one DescribeParameters takes."""


@dataclass(frozen=True, slots=True)
class Limit:
    """When a command began, and when it stops waiting."""

    started: float
    lasts_s: float

    @classmethod
    def of(cls, lasts_s: float) -> Limit:
        """From now on."""
        return cls(time.monotonic(), lasts_s)

    @classmethod
    def said(cls, timeout: str) -> Limit:
        """From now on, for as long as `--timeout` says.

        Raises:
            CommandError: that can't be.
        """
        return cls.of(period(timeout, "--timeout", LONGEST).total_seconds())

    @property
    def deadline(self) -> float:
        """On the clock of `time.monotonic`."""
        return self.started + self.lasts_s

    @property
    def elapsed_s(self) -> float:
        """Since the command began."""
        return time.monotonic() - self.started

    @property
    def is_over(self) -> bool:
        """Whether there is no time left."""
        return self.elapsed_s >= self.lasts_s


def parsed(context: Sequence[str]) -> dict[str, str]:
    """What `--context` says.

    Raises:
        CommandError: one of them can't be used.
    """
    found: dict[str, str] = {}
    for text in context:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise CommandError(f"--context: expected K=V, such as zones=us-east-1a,us-east-1b, got {text!r}")
        if name == "services":
            raise CommandError("--context services: name the service files as FILE instead")
        if name in found:
            raise CommandError(f"--context {name}: given twice: give it once")
        found[name] = value
    return found


def loaded(files: Iterable[Path], context: Mapping[str, Any]) -> list[Service]:
    """The services of these files, with the envs that the context has. Warnings go to standard error.

    Raises:
        CommandError: a file can't be used by the CDK, or at all: every problem, a line each.
    """
    files = list(files)
    for path in files:
        if str(path) == "-":
            raise CommandError("the CDK reads service files itself: name a file instead of -")
        if "," in str(path.absolute()):
            raise CommandError(f"{path}: the CDK takes a comma for the end of a path: rename it")
    services, problems = load_all(files, said_beside(context))
    if problems:
        raise CommandError("\n".join(map(str, problems)))
    for service in services:
        for problem in service.warnings:
            typer.echo(f"warning: {problem}", err=True)
        for taken in local_files(service):
            typer.echo(f"{service.name}: {taken}", err=True)
    return services


def said_beside(context: Mapping[str, Any]) -> Inputs:
    """The envs that the context has, and cdk.json.

    Raises:
        CommandError: one of them can't be used.
    """
    # A path in cdk.json is relative to where that is, and one on the command line to where that was written.
    said = {**cdk.configured(), **context}
    env, env_file = said.get("env") or (), said.get("env_file")
    file = (Path.cwd() if context.get("env_file") else cdk.ROOT) / env_file if env_file else None
    try:
        return inputs(env.split(",") if isinstance(env, str) else env, file)
    except InputsError as error:
        raise CommandError(str(error).replace("--env", "--context env")) from error


def settings(context: Mapping[str, str], services: Sequence[Service]) -> dict[str, str]:
    """The whole context, for a CDK that runs in the working copy: paths from here don't hold there."""
    found = {**context, "services": ",".join(str(service.path.absolute()) for service in services)}
    if found.get("env_file"):
        found["env_file"] = str(Path(found["env_file"]).absolute())
    found["working_directory"] = str(Path.cwd())
    return found


class Deployer:
    """Deploys services into an account, beside those that are there."""

    def __init__(
        self, where: Where, services: Sequence[Service], scratch: Path, teller: Teller, limit: Limit
    ) -> None:
        """`scratch`: an empty directory.

        Raises:
            BotoCoreError, ClientError: there is no region, or there are no credentials.
        """
        session = where.session()
        if not session.region_name:
            raise NoRegionError
        self.region = str(session.region_name)
        self.clients = Clients(session)
        self.account = str(self.clients.sts.get_caller_identity()["Account"])
        self.stacks = Stacks(self.clients)
        self._services = services
        self._scratch = scratch
        self._teller = teller
        self._limit = limit
        home = scratch / "home"
        home.mkdir()
        self._cdk = Cdk(self.region, where.profile, home, teller, limit.deadline)

    def synthesized(self, context: Mapping[str, str]) -> Assembly:
        """The templates, for this account, and nothing that a deployment would do in passing to others.

        Raises:
            CommandError: something speaks against deploying them.
            PortError, BotoCoreError: AWS can't be asked.
        """
        others = self._may_deploy()
        asked, context = context, self._with_kept(context)
        self._teller.now("cdk synth makes the templates")
        directory = self._scratch / "cdk.out"
        said = settings(context, self._services)
        latest = secret_versions(self.clients, self._services)
        own = {**cdk.configured(), **said}
        said["secret_versions"] = pinned(latest, own.get("secret_versions"))
        said["model_versions"] = pinned(self._models(), own.get("model_versions"))
        said["pack_versions"] = pinned(self._packs(), own.get("pack_versions"))
        self._cdk.synth(said, directory)
        self._teller.now("compares the templates with what is deployed")
        assembly = Assembly(directory)
        told = {str(problem) for service in self._services for problem in service.warnings}
        for warning in sorted({*assembly.warnings} - told):
            typer.echo(f"warning: {warning}", err=True)
        for account, region in assembly.elsewhere:
            if (account, region) != (self.account, self.region):
                raise CommandError(
                    f"the settings account and region (cdk.json or --context) say {account}, {region},"
                    f" and the credentials and --region {self.account}, {self.region}: change one"
                )
        self._must_be_bootstrapped(assembly.bootstrap)
        if {**cdk.configured(), **context}.get("kms_key_arn") and any(s.use_spot for s in self._services):
            self._must_have_spots_role()
        self._must_leave_others_alone(assembly, others, asked)
        return assembly

    def deploy(self, assembly: Assembly, parameters: Mapping[str, str] | None = None) -> None:
        """Deploy them, the shared ones first. No other service's stack is touched.

        `parameters`: as `Cdk.deploy` has them.

        Raises:
            CommandError: CloudFormation refuses, or it takes too long.
        """
        self._teller.say(f"deploying {', '.join(assembly.stacks)} to {self.account}, {self.region}")
        self._teller.now("cdk deploy uploads files, and asks CloudFormation")
        self._cdk.deploy(assembly.directory, assembly.stacks, parameters)

    def compared(
        self, assembly: Assembly, service: str, stack: Stack, image: str | None = None
    ) -> difference.Difference:
        """What a deployment would change of a service that is deployed; `image`: to have from now on.

        Raises:
            PortError: AWS can't be asked.
        """
        new = assembly.template(stack.name)
        deployed = self.stacks.template(stack.name) or {}
        return difference.of_service(service, deployed, new, image)

    def newer_image(self, service: Service, spec: ServiceSpec) -> str | None:
        """What the file's SSM parameter says by now, where the deployed version has another image.

        None also where the file names its image itself.

        Raises:
            PortError: AWS can't be asked.
        """
        if not service.image.is_parameter:
            return None
        with translated():
            answer = self.clients.ssm.get_parameters(Names=[service.image.reference])
            found = self.clients.ec2.describe_launch_template_versions(
                LaunchTemplateId=spec.launch_template_id, Versions=[str(spec.version)]
            )
        deployed = {v["LaunchTemplateData"].get("ImageId") for v in found["LaunchTemplateVersions"]}
        newest = next((str(parameter["Value"]) for parameter in answer["Parameters"]), None)
        return None if newest in deployed else newest

    def is_all_as_deployed(self, assembly: Assembly) -> bool:
        """Whether the shared stacks, too, are what a deployment would make of them."""
        return not any(
            difference.changes(self.stacks.template(name) or {}, assembly.template(name))
            for name in assembly.shared
        )

    def _with_kept(self, context: Mapping[str, str]) -> dict[str, str]:
        """The context with the settings of the last deployment that neither it nor cdk.json says.

        Raises:
            CommandError: the services were deployed with different ones.
        """
        said = {**cdk.configured(), **context}
        shared = self.stacks.settings(CONTROL_PLANE_STACK) or {}
        network = self.stacks.settings(NETWORK_STACK) or {}
        own = {s.name: self.stacks.settings(SERVICE_STACK + s.name) for s in self._services}
        kept = without_contradiction(shared, network, together(own, said), said)
        if kept:
            values = ", ".join(f"{name}={value}" for name, value in sorted(kept.items()))
            self._teller.say(f"kept from the last deployment: {values} (-c NAME= takes one away)")
        return {**kept, **context}

    def _models(self) -> dict[str, str]:
        """What instances will fetch, by source.

        Raises:
            CommandError: a model isn't there, or doesn't fit.
            PortError: S3 can't be asked.
        """
        there = models.found(self.clients, self._services)
        if there.problems:
            raise CommandError("\n".join(map(str, there.problems)))
        for source, one in there.stored.items():
            self._teller.say(f"{source}: {one.objects} objects, {one.size / 1e9:.1f} GB")
        for source, size in there.files.items():
            if size is not None:
                self._teller.say(f"{source}: {size / 1e9:.1f} GB")
        for words in there.notices:
            self._teller.say(f"notice: {words}")
        return there.digests

    def _packs(self) -> dict[str, str]:
        """What instances will start from, by service, or service/accelerator; a line for each that has none.

        Raises:
            PortError: S3 can't be asked.
        """
        found: dict[str, str] = {}
        for service in self._services:
            if service.pack is None:
                continue
            made = packs.there(self.clients, packs.bucket(self.account, self.region), service)
            if not made.packs:
                self._teller.say(
                    f"{service.name}: no pack fits its set-up, so each replica runs it: once this is"
                    f" deployed, spotrelay pack {service.path} makes one"
                )
            else:
                made_at = f"{made.packs[0].made_at:%Y-%m-%d %H:%M} UTC"
                age = (datetime.now(UTC) - made.packs[0].made_at).days
                self._teller.say(f"{service.name}: replicas start from the pack of {made_at}, {age} days old")
                found[service.name] = made.packs[0].manifest
            if made.packs and (words := packs.without_cache(in_region(service, self.region), made)):
                self._teller.say(words)
            found |= packs.caches(service, made)
        return found

    def _may_deploy(self) -> list[str]:
        """Ask what would end a deployment anyhow, before the templates are made; all services' stacks.

        Raises:
            CommandError, PortError: something would.
        """
        self._must_be_bootstrapped(Bootstrap(f"/cdk-bootstrap/{cdk.qualifier()}/version", 1))
        for name in (CONTROL_PLANE_STACK, NETWORK_STACK, *(SERVICE_STACK + s.name for s in self._services)):
            self._must_take_templates(name)
        return self.stacks.named(SERVICE_STACK, are_deployed=True)

    def _must_be_bootstrapped(self, needed: Bootstrap | None) -> None:
        if needed is None:
            return
        with translated():
            found = self.clients.ssm.get_parameters(Names=[needed.parameter])["Parameters"]
        version = int(found[0]["Value"]) if found else 0
        if version < needed.version:
            lacks = (
                f"was bootstrapped with version {version}, and {needed.version} is needed"
                if found
                else "has never been bootstrapped"
            )
            raise CommandError(
                f"{self.region} of {self.account} {lacks}:"
                f" run .venv/bin/cdk bootstrap aws://{self.account}/{self.region}"
            )

    def _must_have_spots_role(self) -> None:
        """EC2 makes it at the first Spot request: too late for a key, which only who exists may use."""
        try:
            with translated():
                self.clients.iam.get_role(RoleName=SPOTS_ROLE)
        except Denied as error:
            if error.code == "NoSuchEntity":
                raise CommandError(
                    f"kms_key_arn: the account has no role {SPOTS_ROLE} yet, which encrypts the disks of Spot"
                    " instances: run aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
                    " and then let it use the key (docs/security.md, A key of your own for the disks)"
                ) from error
            self._teller.say(f"it can't be seen whether the account has the role {SPOTS_ROLE}: {error}")

    def _must_take_templates(self, name: str) -> None:
        while (stack := self.stacks.find(name)) and stack.is_busy:
            doing = f"CloudFormation is at work on {name} ({stack.status})"
            if self._limit.is_over:
                raise CommandError(f"{doing}: run this command again once that is over", EXIT_FAILED)
            self._teller.now(doing)
            time.sleep(LOOK_S)
        if stack and (needed := way_out(stack, self.region)):
            raise CommandError(needed, EXIT_FAILED)

    def _must_leave_others_alone(
        self, assembly: Assembly, deployed_services: Sequence[str], asked: Collection[str]
    ) -> None:
        own = {SERVICE_STACK + name for name in assembly.services}
        others = [name for name in deployed_services if name not in own]
        for name in assembly.shared:
            deployed = self.stacks.template(name)
            if deployed is None or (name == CONTROL_PLANE_STACK and "alarm_email" in asked):
                continue  # who gets the alarms is what the command is told
            refuse_unsafe(name, deployed, assembly.template(name), others)


def together(own: Mapping[str, Mapping[str, str] | None], said: Collection[str]) -> dict[str, str]:
    """The settings with which services were deployed, those apart that are `said` now; None: it wasn't yet.

    Raises:
        CommandError: they differ, and one deployment has one value for all.
    """
    there = {service: settings for service, settings in own.items() if settings is not None}
    for name in sorted({name for settings in there.values() for name in settings} - {*said}):
        values = {service: settings.get(name, "") for service, settings in there.items()}
        if len({*values.values()}) > 1:
            each = ", ".join(f"{service} with {name}={value}" for service, value in values.items())
            raise CommandError(
                f"these services were deployed with different settings: {each}. Deploy them one at a time, or"
                f" say what all of them shall have: -c {name}=…"
            )
    return {name: value for settings in there.values() for name, value in settings.items()}


_INSTEAD_OF = {"nat_gateways": "public_addresses", "public_addresses": "nat_gateways"}
"""A setting, and another one that goes without it."""


def without_contradiction(
    shared: Mapping[str, str], network: Mapping[str, str], own: Mapping[str, str], said: Mapping[str, Any]
) -> dict[str, str]:
    """What of the kept settings goes with what is said now, which counts."""
    kept = {**shared, **own}
    # A VPC of SpotRelay's own has zones and a way out, one that exists already has its own.
    if not said.get("vpc_id", kept.get("vpc_id")):
        kept = {**network, **{n: v for n, v in kept.items() if n not in _OF_GIVEN_VPC}}
    elif "vpc_id" in said:  # another one has other subnets
        kept = {n: v for n, v in kept.items() if n not in _OF_GIVEN_VPC}
    return {
        name: value
        for name, value in kept.items()
        if name not in said and said.get(_INSTEAD_OF.get(name, "")) in (None, "", False, "false")
    }


_OF_GIVEN_VPC = ("vpc_id", "subnets", "load_balancer_subnets")


def pinned(latest: Mapping[str, object], own: str | Sequence[str] | None) -> str:
    """The context's `secret_versions`: the latest, but those that a user names, who may go back to one.

    `model_versions` alike.
    """
    named = own.split(",") if isinstance(own, str) else own or ()
    # Of two for one parameter the later one counts.
    return ",".join((*(f"{name}={version}" for name, version in latest.items()), *named))


def secret_versions(clients: Clients, services: Iterable[Service]) -> dict[str, int]:
    """The latest version of each secret's parameter, and nothing of its value.

    Says on standard error which secrets nobody has written yet.

    Raises:
        PortError: Parameter Store can't be asked.
    """
    secrets = [(service, *secret) for service in services for secret in service.secrets.items()]
    parameters = sorted({parameter for _, _, parameter in secrets})
    found: dict[str, int] = {}
    for names in (parameters[at : at + FILTERED] for at in range(0, len(parameters), FILTERED)):
        with translated():
            pages = clients.ssm.get_paginator("describe_parameters").paginate(
                ParameterFilters=[{"Key": "Name", "Option": "Equals", "Values": names}]
            )
            found |= {one["Name"]: one["Version"] for page in pages for one in page["Parameters"]}
    for service, key, parameter in secrets:
        if parameter not in found:
            typer.echo(
                f"warning: {service.name}: secret {key}: nobody has written {parameter} yet, and no replica"
                f" starts without it: spotrelay secrets {service.path} --secret {key}=…",
                err=True,
            )
    return found


def refuse_unsafe(
    stack: str, deployed: difference.Template, new: difference.Template, others: Collection[str]
) -> None:
    """Let nobody change in passing what other services have, too.

    Raises:
        CommandError: it would; with what was probably forgotten.
    """
    is_network = stack == NETWORK_STACK
    if is_network and not others:
        return
    changed = difference.unsafe(deployed, new, is_network=is_network)
    if not changed:
        return
    named = few(changed, _SHOWN)
    users = ", ".join(name.removeprefix(SERVICE_STACK) for name in sorted(others))
    whose = f", which {users} use{'s' if len(others) == 1 else ''}, too" if users else ""
    raise CommandError(
        f"{stack} would not stay as it is{whose}: {named}. It was deployed with other settings: say"
        " them with --context, or have them in cdk.json. To change it on purpose, use .venv/bin/cdk deploy"
        f" {stack}"
    )


_SHOWN = 3


def confirm_removed(service: str, made: difference.Difference, teller: Teller, *, is_confirmed: bool) -> None:
    """Ask before something of a service that is deployed is taken away: a key, a listener, an alarm.

    Raises:
        Abort: the answer is no.
    """
    if not made.removed:
        return
    typer.echo(f"{service} would lose: {', '.join(map(str, made.removed))}.", err=True)
    typer.echo("If that isn't meant, settings of its deployment are missing here (--context).", err=True)
    with teller.paused():
        control_plane.confirm("Go on?", is_confirmed=is_confirmed)


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a service got."""

    progress: Progress
    after_s: float
    why_not: str
    """Why it isn't where it should be; empty if it is."""


class Following:
    """Follows services until all is as deployed, or can't come to be."""

    def __init__(
        self,
        plane: ControlPlane,
        teller: Teller,
        limit: Limit,
        since: datetime,
        shown: Callable[[Progress], str],
    ) -> None:
        """`since`: what failed before has nothing to do with it. `shown`: its line."""
        self._plane = plane
        self._teller = teller
        self._limit = limit
        self._since = since
        self._shown = shown

    def until_done(self, services: Sequence[str]) -> list[Reached]:
        """How far each service got, in the order in which that was certain.

        Raises:
            PortError, UnreadableDocument: the replicas can't be read.
        """
        reached: list[Reached] = []
        waiting = list(services)
        seen: dict[str, Progress] = {}
        lines: dict[str, str] = {}
        while waiting:
            # Asked once a round: if time runs out while services are read, those read first have one more.
            is_over = self._limit.is_over
            for service in list(waiting):
                found = self._look(service) or seen.get(service)
                if found is None:
                    continue
                seen[service] = found
                line = self._shown(found)
                if lines.get(service) != line:
                    lines[service] = line
                    self._teller.say(line)
                self._teller.now(f"{line} ({duration(self._limit.elapsed_s)})")
                why_not = "" if found.is_done else found.stopped
                if not (found.is_done or why_not) and is_over:
                    why_not = (
                        f"not within {duration(self._limit.lasts_s)}: {found.waits_for or line}. It goes on:"
                        f" look with spotrelay status {service}, or give --timeout more"
                    )
                if found.is_done or why_not:
                    waiting.remove(service)
                    reached.append(Reached(found, self._limit.elapsed_s, why_not))
            if waiting and is_over:
                raise CommandError(
                    f"{', '.join(waiting)}: nothing could be read within"
                    f" {duration(self._limit.lasts_s)}: look with spotrelay status",
                    EXIT_FAILED,
                )
            if waiting:
                time.sleep(LOOK_S)
        return reached

    def _look(self, service: str) -> Progress | None:
        try:
            seen = rows(self._plane, service, datetime.now(UTC), ended=ENDED_READ)
        except (Throttled, Unavailable) as error:
            self._teller.now(f"{service}: {error}")  # over in a moment, and nothing depends on it
            return None
        return progress(seen, self._since)


def found(where: Where) -> ControlPlane:
    """The control plane, which is deployed.

    Raises:
        CommandError: there is none, though it has just been deployed.
    """
    return control_plane.find_any(where)


def told(command: str, reached: Reached) -> None:
    """Say on standard error why a service isn't where it should be."""
    made = reached.progress
    typer.echo(
        f"spotrelay {command}: {made.service} {made.ready}/{made.desired} ready: {reached.why_not}", err=True
    )
