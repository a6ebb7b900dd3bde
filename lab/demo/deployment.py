"""Starts the local cloud and has the CDK deploy the app into it, the way a customer deploys it into AWS."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.demo import environment
from lab.demo.errors import DemoError
from lab.demo.processes import Process, Processes
from lab.demo.settings import ACCOUNT, REGION, ROOT, DemoSettings
from lab.local.client import LocalCloud

CLOUD_WITHIN_S = 60.0
SYNTH_WITHIN_S = 180.0
CDK_WITHIN_S = 180.0
"""Each takes a few seconds; the bounds are for machines that are busy otherwise, and for what hangs."""

POLL_S = 0.05

BOOT_S = 0.5
"""From pending to running. Half of the local cloud's own second, because six stories wait for it in turn."""

CONTROL_PLANE_STACK = "SpotRelay-ControlPlane"
SERVICE_STACK = "SpotRelay-Service-"
"""Before the service's name."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What stands after a deployment."""

    endpoint: str
    """The local cloud's."""
    control_plane: Mapping[str, str]
    """What the control plane's stack puts out: names of its table, queues, functions and roles."""
    hosts: Mapping[str, str]
    """Of each service: its load balancer's DNS name."""

    @property
    def table(self) -> str:
        """Name of the table."""
        return self.control_plane["TableName"]


class Deployer:
    """Brings the local cloud up and the app into it, with these service files.

    `say` gets a line of progress at a time.
    """

    def __init__(
        self,
        settings: DemoSettings,
        processes: Processes,
        env: Mapping[str, str],
        home: Path,
        say: Callable[[str], None],
        services: Sequence[Path],
    ) -> None:
        self._services = ",".join(map(str, services))
        self._settings = settings
        self._processes = processes
        self._env = env
        self._home = home
        self._say = say
        self._assembly = settings.out / "cdk.out"
        self.cloud: Process | None = None
        """The local cloud, once it has been started."""

    def deploy(self) -> Deployment:
        """Start the local cloud, bootstrap the account, deploy the stacks.

        Raises:
            DemoError: set-up has not been run, or a step failed or hangs; with the end of its log.
        """
        cdk = _cdk()
        # It needs no cloud, and most of the time that a deployment takes.
        synth = self._start_synth(cdk)
        endpoint = self.bootstrapped()
        self._say("waiting for cdk synth, which began at the start")
        self._processes.finish(synth, "cdk synth", SYNTH_WITHIN_S)
        env = self._for_cdk(endpoint)
        services = self._services.replace(",", ", ")
        self._say(f"cdk deploy: {CONTROL_PLANE_STACK}, and a stack for each of {services}")
        outputs = self._deploy_stacks(cdk, env)
        deployed = {
            stack.removeprefix(SERVICE_STACK): values
            for stack, values in outputs.items()
            if stack.startswith(SERVICE_STACK)
        }
        hosts = {service: values["Endpoint"] for service, values in deployed.items()}
        for service, values in deployed.items():
            self._say(f"{service} is deployed, at {values['Address']}")
        return Deployment(endpoint, outputs[CONTROL_PLANE_STACK], hosts)

    def command(self, endpoint: str, name: str, file: Path) -> Process:
        """Start a command of SpotRelay's about a service file, which asks nothing, as a user would."""
        spotrelay = Path(sys.executable).parent / "spotrelay"
        return self._processes.start(
            f"spotrelay-{name}", [spotrelay, name, file, "--yes"], self._for_cdk(endpoint)
        )

    def bootstrapped(self) -> str:
        """Start the local cloud and bootstrap the account; the cloud's endpoint.

        Raises:
            DemoError: as `deploy`.
        """
        cdk = _cdk()
        self._say(
            f"starting the local cloud: EC2 warns {self._settings.warning_s:g} s ahead, not 120 s as in AWS,"
            f" and the schedule runs every {self._settings.schedule_s:g} s, not every minute"
        )
        ready = self._settings.out / "local-cloud.json"
        self.cloud = self._start_cloud(ready)
        endpoint = self._endpoint(self.cloud, ready)
        self._say(f"the local cloud answers at {endpoint}; {LocalCloud(endpoint).network()}")
        self._say("cdk bootstrap")
        bootstrap = self._processes.start(
            "cdk-bootstrap",
            [cdk, "bootstrap", f"aws://{ACCOUNT}/{REGION}"],
            self._for_cdk(endpoint),
            cwd=self._home,  # where there is no cdk.json: it would synthesize the app once more
        )
        self._processes.finish(bootstrap, "cdk bootstrap", CDK_WITHIN_S)
        return endpoint

    def _for_cdk(self, endpoint: str) -> dict[str, str]:
        return environment.for_cdk({**self._env, **environment.local(endpoint)}, self._home)

    def _start_cloud(self, ready: Path) -> Process:
        logs = self._settings.logs
        return self._processes.start(
            "local-cloud",
            [
                sys.executable, "-m", "lab.local", "--port", "0", "--ready-file", ready,
                "--warning-s", str(self._settings.warning_s), "--schedule-s", str(self._settings.schedule_s),
                "--boot-s", str(BOOT_S),
                "--call-log", logs / "calls.jsonl", "--instance-logs", logs / "instances",
            ],
            self._env,
        )  # fmt: skip

    def _start_synth(self, cdk: Path) -> Process:
        context = f"services={self._services}"
        command: list[str | Path] = [
            cdk,
            "synth",
            "--quiet",
            "--context",
            context,
            "--output",
            self._assembly,
        ]
        return self._processes.start("cdk-synth", command, self._env)

    def _deploy_stacks(self, cdk: Path, env: Mapping[str, str]) -> dict[str, dict[str, str]]:
        """The stacks' outputs."""
        outputs = self._settings.out / "outputs.json"
        deploy = self._processes.start(
            "cdk-deploy",
            [
                cdk, "deploy", "--all", "--app", self._assembly, "--method", "direct", "--concurrency", "2",
                "--require-approval", "never", "--progress", "events", "--outputs-file", outputs,
            ],
            env,
        )  # fmt: skip
        self._processes.finish(deploy, "cdk deploy", CDK_WITHIN_S)
        found: dict[str, dict[str, str]] = json.loads(outputs.read_text(encoding="utf-8"))
        return found

    def _endpoint(self, cloud: Process, ready: Path) -> str:
        deadline = time.monotonic() + CLOUD_WITHIN_S
        while not ready.exists():
            if cloud.poll() is not None or time.monotonic() > deadline:
                raise DemoError(f"the local cloud did not start; {cloud.last_words()}")
            time.sleep(POLL_S)
        endpoint: str = json.loads(ready.read_text(encoding="utf-8"))["endpoint"]
        return endpoint


def _cdk() -> Path:
    """The CDK's command line, in a working copy that it can deploy."""
    cdk = environment.cdk_command()
    if not cdk.exists():
        raise DemoError(f"{cdk} is missing: run make setup")
    if not (ROOT / "cdk.json").exists():
        raise DemoError(f"{ROOT} is no working copy of SpotRelay: run make demo in one")
    return cdk


def clear(out: Path) -> None:
    """An empty output directory: what an earlier demo left would only be mistaken for this one's."""
    shutil.rmtree(out, ignore_errors=True)
    (out / "logs").mkdir(parents=True)
