"""The demo from beginning to end: deploy, wait, tell the stories, find out whether every promise was kept."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from lab.demo import report
from lab.demo.deployment import Deployer
from lab.demo.errors import DemoError, StoryError
from lab.demo.load import Load, LoadError, LoadSnapshot
from lab.demo.operator import Operator
from lab.demo.processes import Processes
from lab.demo.settings import CONCURRENCY, Settings
from lab.demo.stage import Stage
from lab.demo.stories import STORIES
from lab.demo.view import View
from lab.local.client import LocalCloudError
from spotrelay.core.ports import PortError
from spotrelay.operate import timeline
from spotrelay.operate.watch import NotInTimeError, Snapshot, Watch

SERVICE = "demo"
MODEL = "spotrelay-demo"
"""As in services/demo.yaml."""

READY_WITHIN_S = 120.0
"""After the first tick: boot, model load, health check, and the tick that sees it. Some 10 s here; the bound
is for machines that are busy otherwise."""

LOAD_STOPS_WITHIN_S = 60.0
"""A request takes 2.5 s."""


class Director:
    """Runs one demo. The children that it starts are the caller's to stop."""

    def __init__(
        self, settings: Settings, processes: Processes, view: View, env: Mapping[str, str], home: Path
    ) -> None:
        self._settings = settings
        self._view = view
        self._deployer = Deployer(settings, processes, env, home, view.say)
        self._began = time.monotonic()
        self._started_at = datetime.now(UTC)
        self._load: Load | None = None
        self._stories: list[dict[str, Any]] = []
        self._milestones: dict[str, float] = {}

    def run(self) -> dict[str, Any]:
        """The report, which is also in `report.json`.

        Raises:
            DemoError: the demo could not be given to its end.
        """
        try:
            return self._run()
        except (LoadError, LocalCloudError, PortError, BotoCoreError, ClientError) as error:
            raise DemoError(
                f"{type(error).__name__}: {error}; see the logs in {self._settings.logs}"
            ) from error

    def _run(self) -> dict[str, Any]:
        operator = self._deploy()
        try:
            return self._show(operator)
        finally:
            # Best effort: whatever ended the demo matters more, and may be why this fails.
            with suppress(BotoCoreError, ClientError, OSError):
                operator.save_function_logs(self._settings.logs)

    def _show(self, operator: Operator) -> dict[str, Any]:
        spec = operator.spec(SERVICE)
        watch = Watch(operator.store, SERVICE, self._look)
        stage = Stage(
            operator.cloud,
            watch,
            self._view.say,
            spec.replicas,
            self._settings.warning_s,
            self._settings.schedule_s,
        )
        self._wait_for_fleet(watch, spec.replicas)
        load = Load(operator.deployment.endpoint, operator.deployment.host, CONCURRENCY, model=MODEL)
        with load:
            self._load = load
            self._view.count_with(lambda: _counters(load))
            self._view.say(f"{CONCURRENCY} clients stream answers through that address, without a pause")
            problems = self._tell_stories(stage)
            self._view.headline("The last requests end")
            requests = load.stop(LOAD_STOPS_WITHIN_S)
            self._view.count_with(None)
        return self._report(operator, stage, requests, problems)

    def _deploy(self) -> Operator:
        self._view.headline("Deploying into a local AWS")
        deployment = self._deployer.deploy()
        self._reached("deployed_s")
        return Operator(deployment)

    def _wait_for_fleet(self, watch: Watch, replicas: int) -> None:
        self._view.headline(f"The controller brings up {replicas} replicas")
        self._view.say(f"the controller finds {replicas} replicas wanted and 0 there")
        try:
            seen = watch.until(
                lambda seen: len(seen.ready) == replicas,
                f"{replicas} replicas in rotation",
                self._settings.schedule_s + READY_WITHIN_S,
            )
        except NotInTimeError as error:
            raise DemoError(
                f"{error}; see what functions and instances say in {self._settings.logs}"
            ) from None
        self._reached("ready_s")
        pools = ", ".join(str(r.offering) for r in seen.ready)
        self._view.say(f"{replicas} replicas serve: {pools}")

    def _tell_stories(self, stage: Stage) -> list[str]:
        """Every story, then the end of them all; what went wrong."""
        for story in STORIES:
            self._view.title(f"({story.key}) {story.title}")
            record: dict[str, Any] = {"story": story.key, "title": story.title, "ok": True}
            self._stories.append(record)
            began = time.monotonic()
            try:
                story.play(stage)
            except StoryError as error:
                record |= {"ok": False, "problem": str(error)}
            record |= {"took_s": round(time.monotonic() - began, 3)}
            if not record["ok"]:
                return [f"story ({story.key}): {record['problem']}"]
        self._view.title("The end: EC2 takes the last of the warned instances, and no fallback is left")
        try:
            stage.settle()
        except StoryError as error:
            return [str(error)]
        return []

    def _report(
        self, operator: Operator, stage: Stage, requests: LoadSnapshot, problems: Sequence[str]
    ) -> dict[str, Any]:
        snapshot = stage.watch.look()
        calls = operator.cloud.calls()
        records = {r["instance_id"]: r for r in operator.cloud.interruptions()}
        interruptions = report.interruptions_of(stage.losses, records, snapshot.replicas)
        counts = report.request_counts(asdict(requests))
        balanced = operator.cloud.requests(operator.load_balancer())
        gaps = report.gaps(interruptions, snapshot.replicas, snapshot.at)
        unservable = report.unservable_requests(balanced, gaps)
        broken = report.problems(
            requests=counts,
            interruptions=interruptions,
            replicas=snapshot.replicas,
            wanted=stage.replicas,
            late=report.late_requests(balanced, operator.cloud.interruptions()),
            denied=report.denied_calls(calls),
            gaps=gaps,
            unservable=unservable,
        )
        self._reached("took_s")
        built = report.build(
            settings={
                "warning_s": self._settings.warning_s,
                "schedule_s": self._settings.schedule_s,
                "service": SERVICE,
                "started_at": self._started_at.isoformat(timespec="seconds"),
                **self._milestones,
            },
            requests=counts,
            interruptions=interruptions,
            replicas=snapshot.replicas,
            calls=calls,
            stories=self._stories,
            problems=[*problems, *broken],
            gaps=gaps,
            unservable=unservable,
        )
        out = self._settings.out
        (out / "report.json").write_text(json.dumps(built, indent=2) + "\n", encoding="utf-8")
        (out / "timeline.svg").write_text(self._draw(snapshot, interruptions, counts), encoding="utf-8")
        return built

    def _draw(
        self, snapshot: Snapshot, interruptions: Sequence[report.Interruption], requests: Mapping[str, Any]
    ) -> str:
        first = min((min(r.entered.values()) for r in snapshot.replicas.values()), default=self._started_at)
        return timeline.draw(
            list(snapshot.replicas.values()),
            [i.mark for i in interruptions],
            first,
            snapshot.at,
            f"{len(interruptions)} interruptions, {requests['failed']} failed and {requests['cut']} cut"
            f" of {requests['sent']} requests",
            f"service {SERVICE}: {len(snapshot.ready)} replicas; {CONCURRENCY} streaming requests at once;"
            f" interruption warnings of {self._settings.warning_s:g} s",
        )

    def _look(self, snapshot: Snapshot) -> None:
        """Called with every snapshot: shows it, and notices when waiting on would be pointless."""
        cloud = self._deployer.cloud
        if cloud and cloud.poll() is not None:
            raise DemoError(f"the local cloud ended; {cloud.last_words()}")
        if self._load:
            self._load.snapshot()  # raises if the load's process has died
        self._view.show(snapshot)

    def _reached(self, milestone: str) -> None:
        self._milestones[milestone] = round(time.monotonic() - self._began, 3)


def _counters(load: Load) -> Mapping[str, Any]:
    """For the view, which draws in a thread of its own: that the load has died is noticed elsewhere."""
    try:
        return asdict(load.snapshot())
    except LoadError:
        return {}
