"""The whole: the control plane, the services' network, and one stack for each service file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import aws_cdk as cdk

from spotrelay.file.service import Problem, Service, ServiceFileError, in_region, load, pinned
from spotrelay.file.source.inputs import NOTHING, Inputs
from spotrelay.plane.core.names import CONTROL_PLANE_STACK, NETWORK_STACK, SERVICE_STACK
from stacks import placement
from stacks.control_plane import ControlPlaneStack
from stacks.network import NetworkStack
from stacks.service import ServiceStack
from stacks.settings import AppSettings, SettingsError

CONTROL_PLANE = CONTROL_PLANE_STACK
NETWORK = NETWORK_STACK
SERVICE_PREFIX = SERVICE_STACK


def application() -> cdk.App:
    """The app as the CDK command line wants it: stacks chosen by its context.

    Raises: as `build` does; `SettingsError` for what the context has besides.
    """
    app = cdk.App()
    build(app, AppSettings.from_context(app.node.try_get_context, os.environ))
    return app


def build(app: cdk.App, settings: AppSettings) -> None:
    """Add every stack to the app.

    Raises:
        ServiceFileError: a service file can't be used, or not here; no stack has been added then.
        SettingsError: two service files have the same name.
        BundlingError: the functions' code can't be put together from what is installed.
    """
    loaded = load_all(settings.services, settings.inputs)
    services = [
        pinned(
            in_region(service, settings.target_region),
            settings.secret_versions,
            settings.model_versions,
            settings.pack_versions,
        )
        for service in loaded
    ]
    problems = [problem for service in services for problem in placement.problems(service, settings)]
    if problems := [*problems, *placement.conflicts(services)]:
        raise ServiceFileError(problems)
    env = cdk.Environment(account=settings.account, region=settings.region)
    control_plane = ControlPlaneStack(app, CONTROL_PLANE, settings=settings, env=env)
    shared = None
    if services and settings.network is None:
        shared = NetworkStack(app, NETWORK, settings=settings, env=env)
    for service in services:
        id_ = SERVICE_PREFIX + service.name
        stack = ServiceStack(app, id_, service=service, settings=settings, shared=shared, env=env)
        # A service's document makes the controller launch: it comes after the controller, and goes before it.
        stack.add_stack_dependency(control_plane)


def load_all(paths: Iterable[Path], inputs: Inputs = NOTHING) -> list[Service]:
    """Read every service file.

    Raises:
        ServiceFileError: with the problems of all of them.
        SettingsError: two have the same name.
    """
    services: list[Service] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            services.append(load(path, inputs))
        except ServiceFileError as error:
            problems += error.problems
    if problems:
        raise ServiceFileError(problems)
    by_name: dict[str, Path] = {}
    for service in services:
        if service.name in by_name:
            raise SettingsError(f"{by_name[service.name]} and {service.path} are both named {service.name!r}")
        by_name[service.name] = service.path
    return services
