"""Puts the local cloud together and serves it, until a signal or the end of the parent process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import psutil
from hypercorn.asyncio import serve
from hypercorn.config import Config

from lab.local import catalog, ec2, ec2_offers, images, price_list, service_quotas, wire
from lab.local.balancer import Balancer
from lab.local.calls import CallLog
from lab.local.cloud import EmulatedCloud, LocalSettings
from lab.local.context import Handler
from lab.local.control import Control
from lab.local.elbv2 import Routing, TargetActions
from lab.local.environment import WORKER_THREADS, prepare_environment, share_network
from lab.local.faults import Faults
from lab.local.fis import FaultInjection
from lab.local.fleet import FleetActions
from lab.local.front import Front
from lab.local.instances import LocalInstance
from lab.local.machines import Machines
from lab.local.metrics import Metrics
from lab.local.ministack import MiniStack
from lab.local.network import Network, SharedNetwork
from lab.local.own_events import refusal_of, why_no_call
from lab.local.parameters import ParameterChanges, why_refused
from lab.local.recordings import Recordings
from lab.local.run_instances import RunActions
from lab.local.secure import SecurePorts
from lab.local.seeds import AMI_PARAMETERS
from lab.market import Market

_log = logging.getLogger(__name__)

HOST = "127.0.0.1"
PARENT_POLL_S = 0.5
ACCEPT_POLL_S = 0.02
REFRESH_S = 0.5
"""How soon the balancer sees a target group, and EventBridge a parameter, that CloudFormation made."""
SHUTDOWN_GRACE_S = 1.0
"""How long open requests may go on once we are told to stop."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says. `root` is where instances keep their files, and their logs by default."""

    settings: LocalSettings
    ready_file: Path | None = None
    call_log: Path | None = None
    root: Path | None = None
    instance_logs: Path | None = None
    recordings: Recordings = field(default_factory=Recordings)
    network: Network = field(default_factory=SharedNetwork)


def bind(port: int) -> socket.socket:
    """A socket on loopback; port 0 takes a free one.

    Raises:
        OSError: the port is in use.
    """
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # Without it a port stays taken for a minute after its last connection closed.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except OSError:
        listener.close()
        raise
    return listener


def run(listener: socket.socket, options: Options, on_ready: Callable[[str], None]) -> None:
    """Serve on the socket until SIGINT, SIGTERM or the end of the parent; `on_ready` gets the endpoint."""
    port = listener.getsockname()[1]
    prepare_environment(port)
    with tempfile.TemporaryDirectory(prefix="spotrelay-local-") as scratch:
        tempfile.tempdir = scratch  # where MiniStack unpacks functions: nothing is left behind
        try:
            asyncio.run(_run(listener, options, options.root or Path(scratch), on_ready))
        finally:
            kill_children()


async def _run(
    listener: socket.socket, options: Options, root: Path, on_ready: Callable[[str], None]
) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    # MiniStack sets one of its own at start-up; this is for what comes before.
    loop.set_default_executor(ThreadPoolExecutor(WORKER_THREADS))

    ministack = MiniStack()
    ministack.seed_public_parameters(AMI_PARAMETERS)
    ministack.name_resources()
    ministack.check_parameter_values(why_refused)
    ministack.check_own_events(why_no_call, refusal_of)
    ministack.compress_schedules(options.settings.schedule_s / 60)
    ministack.redrive_dead_letters()
    ministack.count_chains()
    ministack.compress_redelivery(options.settings.schedule_s / 60)
    ministack.keep_whole_logs()
    ministack.write_reports()
    ministack.search_any_term()
    ministack.name_leading_keys()
    ministack.name_event_sources()
    ministack.name_resource_accounts()
    ministack.ask_resource_policies()
    ministack.ask_for_certificates()
    wire.warm_up()
    network, port = options.network, listener.getsockname()[1]
    if network.gateway is None:
        share_network()
    listeners = [listener, *([network.gateway.bind(port)] if network.gateway else [])]
    endpoint = f"http://{network.gateway.address if network.gateway else HOST}:{port}"
    machines = Machines(root, options.instance_logs, options.settings.warning_s, endpoint, network)
    recordings = options.recordings.as_of(datetime.now(UTC))
    market = Market(catalog.pools(prices=recordings.on_demand), recorded=recordings.spot)
    cloud = EmulatedCloud(ministack, market, machines, options.settings, loop.call_later, recordings)
    balancer = Balancer(cloud.address_of, cloud.zone_of)
    secure = SecurePorts(HOST, balancer, _configured)
    routing = Routing(ministack, balancer)
    cloud.on_terminated = lambda instance: _deregister(instance, balancer, routing)
    metrics = Metrics(ministack, balancer, routing, compressed=options.settings.schedule_s / 60)
    calls, faults = CallLog(options.call_log), Faults()
    ministack.on_permission(calls.decided)
    fault_injection = FaultInjection(cloud, ministack, loop.call_later)
    control = Control(
        cloud, balancer, metrics, calls, faults, network.words, secure, ministack.longest_chains
    )
    front = Front(
        ministack,
        cloud,
        balancer,
        routing,
        control,
        calls,
        faults,
        {
            **_handlers(balancer, routing),
            **{("fis", action): handler for action, handler in fault_injection.handlers.items()},
        },
    )
    await balancer.start()
    background = [
        asyncio.create_task(metrics.run()),
        asyncio.create_task(_refresh(routing, secure, ParameterChanges(ministack))),
        asyncio.create_task(_watch_parent(stop)),
        asyncio.create_task(_announce(port, options, on_ready)),
    ]
    try:
        # Hypercorn spells ASGI's messages out as types of its own; ours are plain mappings.
        await serve(cast("Any", front), _hypercorn(listeners), shutdown_trigger=stop.wait)
    finally:
        for task in background:
            task.cancel()
        machines.stop_all()
        await secure.close()
        await balancer.close()
        ministack.stop()
        calls.close()


def _handlers(balancer: Balancer, routing: Routing) -> dict[tuple[str, str], Handler]:
    on_ec2 = {
        **ec2.HANDLERS,
        **ec2_offers.HANDLERS,
        **images.HANDLERS,
        "CreateFleet": FleetActions().create_fleet,
        "RunInstances": RunActions().run_instances,
    }
    on_elb = TargetActions(balancer, routing).handlers
    return {
        **{("ec2", action): handler for action, handler in on_ec2.items()},
        **{("pricing", action): handler for action, handler in price_list.HANDLERS.items()},
        **{("servicequotas", action): handler for action, handler in service_quotas.HANDLERS.items()},
        **{("elasticloadbalancing", action): handler for action, handler in on_elb.items()},
    }


def _hypercorn(listeners: Sequence[socket.socket]) -> Config:
    config = _configured(Config())
    config.bind = [f"fd://{listener.detach()}" for listener in listeners]
    return config


def _configured(config: Config) -> Config:
    config.keep_alive_timeout = 75  # longer than the idle connections that botocore keeps
    config.graceful_timeout = SHUTDOWN_GRACE_S
    config.include_server_header = False
    config.errorlog = logging.getLogger("hypercorn.error")
    return config


async def _announce(port: int, options: Options, on_ready: Callable[[str], None]) -> None:
    """Say that we are ready once we accept connections."""
    while True:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            await asyncio.sleep(ACCEPT_POLL_S)
        else:
            writer.close()
            break
    endpoint = f"http://{HOST}:{port}"
    if options.ready_file:
        write_ready_file(options.ready_file, endpoint)
    on_ready(endpoint)


async def _refresh(routing: Routing, secure: SecurePorts, parameters: ParameterChanges) -> None:
    while True:
        routing.refresh()
        secure.refresh()
        parameters.emit()
        await asyncio.sleep(REFRESH_S)


async def _watch_parent(stop: asyncio.Event) -> None:
    """A cloud that nobody owns any more must not stay behind. Works where PDEATHSIG doesn't exist, too."""
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(PARENT_POLL_S)
    _log.warning("the parent process is gone: stopping")
    stop.set()


def _deregister(instance: LocalInstance, balancer: Balancer, routing: Routing) -> None:
    """A load balancer drops a terminated instance by itself."""
    for arn in routing.target_groups():
        for row in balancer.health(arn):
            if row["id"] == instance.id:
                balancer.deregister(arn, [(instance.id, row["port"])])


def kill_children() -> None:
    """Kill every process below this one: functions, and what they may have started."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, timeout=SHUTDOWN_GRACE_S)


def write_ready_file(path: Path, endpoint: str) -> None:
    """All at once, so that whoever waits for it never reads half of it."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(json.dumps({"endpoint": endpoint}), encoding="utf-8")
    draft.replace(path)
