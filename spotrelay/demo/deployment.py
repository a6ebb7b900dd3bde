"""Starts the local cloud and has the CDK deploy the app into it, the way a customer deploys it into AWS."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from spotrelay.demo import environment
from spotrelay.demo.errors import DemoError
from spotrelay.demo.processes import Process, Processes
from spotrelay.demo.settings import ACCOUNT, REGION, ROOT, SERVICE_FILE, Settings

CLOUD_WITHIN_S = 60.0
SYNTH_WITHIN_S = 180.0
CDK_WITHIN_S = 180.0
"""Each takes a few seconds; the bounds are for machines that are busy otherwise, and for what hangs."""

POLL_S = 0.05

BOOT_S = 0.5
"""From pending to running. Half of the local cloud's own second, because five stories wait for it in turn."""

CONTROL_PLANE_STACK = "SpotRelay-ControlPlane"
SERVICE_STACK = "SpotRelay-Service-demo"


@dataclass(frozen=True, slots=True)
class Deployment:
    """What stands after a deployment."""

    endpoint: str
    """The local cloud's."""
    control_plane: Mapping[str, str]
    """What the control plane's stack puts out: names of its table, queues, functions and roles."""
    host: str
    """The service's: its load balancer's DNS name."""

    @property
    def table(self) -> str:
        """Name of the table."""
        return self.control_plane["TableName"]


class Deployer:
    """Brings the local cloud up and the app into it. `say` gets a line of progress at a time."""

    def __init__(
        self,
        settings: Settings,
        processes: Processes,
        env: dict[str, str],
        home: Path,
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._processes = processes
        self._env = env
        self._home = home
        self._say = say
        self._assembly = settings.out / "cdk.out"
        self._outputs = settings.out / "outputs.json"
        self.cloud: Process | None = None

    def start_cloud(self) -> str:
        """Start the local cloud on a free port; its endpoint. Synth starts alongside.

        Raises:
            DemoError: it doesn't start, or set-up has not been run.
        """
        if not environment.cdk_command().exists():
            raise DemoError(f"{environment.cdk_command()} is missing: run make setup")
        if not (ROOT / "cdk.json").exists():
            raise DemoError(f"{ROOT} is no working copy of SpotRelay: run make demo in one")
        ready = self._settings.out / "local-cloud.json"
        logs = self._settings.logs
        self.cloud = self._processes.start(
            "local-cloud",
            [
                sys.executable, "-m", "spotrelay.local", "--port", "0",
                "--warning-s", str(self._settings.warning_s), "--schedule-s", str(self._settings.schedule_s),
                "--boot-s", str(BOOT_S), "--ready-file", ready, "--call-log", logs / "calls.jsonl",
            ],
            self._env,
        )  # fmt: skip
        self._synth = self._processes.start(
            "cdk-synth",
            [
                environment.cdk_command(), "synth", "--quiet",
                "--context", f"services={SERVICE_FILE}", "--output", self._assembly,
            ],
            self._env,
        )  # fmt: skip
        return self._endpoint(self.cloud, ready)

    def deploy(self, endpoint: str) -> Deployment:
        """Bootstrap the account and deploy both stacks.

        Raises:
            DemoError: a step failed or hangs; the error has the end of its log.
        """
        env = environment.for_cdk({**self._env, **environment.local(endpoint)}, self._home)
        cdk = environment.cdk_command()
        self._say("cdk bootstrap, and cdk synth beside it")
        bootstrap = self._processes.start(
            "cdk-bootstrap",
            [cdk, "bootstrap", f"aws://{ACCOUNT}/{REGION}"],
            env,
            cwd=self._home,  # where there is no cdk.json: it would synthesize the app once more
        )
        self._processes.finish(bootstrap, "cdk bootstrap", CDK_WITHIN_S)
        self._processes.finish(self._synth, "cdk synth", SYNTH_WITHIN_S)
        self._say(f"cdk deploy: {CONTROL_PLANE_STACK} and {SERVICE_STACK} ({SERVICE_FILE})")
        deploy = self._processes.start(
            "cdk-deploy",
            [
                cdk, "deploy", "--all", "--app", self._assembly, "--method", "direct", "--concurrency", "2",
                "--require-approval", "never", "--progress", "events", "--outputs-file", self._outputs,
            ],
            env,
        )  # fmt: skip
        self._processes.finish(deploy, "cdk deploy", CDK_WITHIN_S)
        outputs = json.loads(self._outputs.read_text(encoding="utf-8"))
        return Deployment(endpoint, outputs[CONTROL_PLANE_STACK], outputs[SERVICE_STACK]["Endpoint"])

    def _endpoint(self, cloud: Process, ready: Path) -> str:
        deadline = time.monotonic() + CLOUD_WITHIN_S
        while not ready.exists():
            if cloud.poll() is not None or time.monotonic() > deadline:
                raise DemoError(f"the local cloud did not start; {cloud.last_words()}")
            time.sleep(POLL_S)
        endpoint: str = json.loads(ready.read_text(encoding="utf-8"))["endpoint"]
        return endpoint


def clear(out: Path) -> None:
    """An empty output directory: what an earlier demo left would only be mistaken for this one's."""
    shutil.rmtree(out, ignore_errors=True)
    (out / "logs").mkdir(parents=True)
