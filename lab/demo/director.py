"""The demo from beginning to end: deploy, wait, tell the stories, find out whether every promise was kept."""

from __future__ import annotations

import json
import time
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from lab.demo import page, report
from lab.demo.deployment import Deployer, Deployment
from lab.demo.environment import local
from lab.demo.errors import DemoError, StoryError
from lab.demo.load import Load, LoadError, LoadSnapshot
from lab.demo.operator import Operator
from lab.demo.processes import Processes
from lab.demo.settings import (
    CONCURRENCY,
    ENGINE_PAUSE_S,
    ENGINE_TOKENS,
    MODEL,
    SECOND_SERVICE_FILE,
    SERVICE_FILE,
    DemoSettings,
    ShownService,
)
from lab.demo.stage import Stage, range_of, standing_by, starts_s
from lab.demo.stories import IN_A_ROW, STORIES
from lab.demo.view import View
from lab.local.client import LocalCloudError
from spotrelay.operator.cli.ui import has_desktop
from spotrelay.operator.look import timeline
from spotrelay.operator.look.watch import NotInTimeError, Snapshot, Watch
from spotrelay.plane.core.ports import PortError
from spotrelay.plane.core.replica import Replica

LOAD_STOPS_WITHIN_S = 60.0
"""A request takes 2.5 s."""

COMMAND_WITHIN_S = 300.0
"""Beside the starts that it waits for: a quarter of a minute; more on busy machines."""


class Director:
    """Runs one demo. The children that it starts are the caller's to stop."""

    def __init__(
        self, settings: DemoSettings, processes: Processes, view: View, env: Mapping[str, str], home: Path
    ) -> None:
        self._settings = settings
        self._view = view
        self._processes, self._env = processes, env
        shown = settings.service
        services = [shown.file] if shown else [SERVICE_FILE, SECOND_SERVICE_FILE]
        self._told = {shown.name: IN_A_ROW} if shown else STORIES
        self._deployer = Deployer(settings, processes, env, home, view.say, services)
        self._began = time.monotonic()
        self._started_at = datetime.now(UTC)
        self._load: Load | None = None
        self._stories: list[dict[str, Any]] = []
        self._is_broken_off = False
        self._milestones: dict[str, float] = {}
        self._starts: dict[str, Any] = {}
        """How long starts took by set-up, and then from its pack, if there is one."""

    def run(self) -> dict[str, Any]:
        """The report, which is also in `report.json`.

        Raises:
            DemoError: the demo could not be given to its end.
        """
        with self._told_what_failed():
            return self._run()

    def bring_up(self) -> Deployment:
        """Deploy, and wait until every replica serves: no stories.

        Raises:
            DemoError: it didn't come to that.
        """
        with self._told_what_failed():
            operator = self._deploy()
            self._bring_up(operator)
            return operator.deployment

    @contextmanager
    def _told_what_failed(self) -> Iterator[None]:
        try:
            yield
        except (
            LoadError, LocalCloudError, NotInTimeError, PortError, BotoCoreError, ClientError
        ) as error:  # fmt: skip
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
        stages = self._bring_up(operator)
        deployment = operator.deployment
        shown = self._settings.service
        is_engine = shown is not None and shown.is_engine
        load = Load(
            deployment.endpoint,
            list(deployment.hosts.values()),
            CONCURRENCY,
            model=MODEL,
            max_tokens=ENGINE_TOKENS if is_engine else None,
            pause_s=ENGINE_PAUSE_S if is_engine else 0.0,
            stream=not is_engine,
        )
        with load:
            self._load = load
            self._view.count_with(lambda: _counters(load))
            services = " and ".join(self._told)
            what = f"stream answers from {services}, without a pause"
            if is_engine:
                what = f"ask {services} for whole answers, and wait {ENGINE_PAUSE_S:g} s after each"
            self._view.say(f"{CONCURRENCY} clients {what}")
            if shown is not None and shown.has_pack:
                self._start_from_a_pack(shown, stages[shown.name], deployment.endpoint)
            problems = self._tell_all(stages)
            self._view.headline("The last requests end")
            requests = load.stop(LOAD_STOPS_WITHIN_S)
            self._view.count_with(None)
        return self._report(operator, stages, requests, problems)

    def _bring_up(self, operator: Operator) -> dict[str, Stage]:
        stages = {service: self._stage(operator, service) for service in self._told}
        self._view.headline("The controller brings up the replicas")
        for service, stage in stages.items():
            self._wait_for_fleet(service, stage)
        self._reached("ready_s")
        return stages

    def _stage(self, operator: Operator, service: str) -> Stage:
        spec = operator.spec(service)
        return Stage(
            operator.cloud,
            Watch(operator.store, service, lambda seen: self._look(service, seen)),
            lambda text: self._view.say(f"{service}: {text}"),
            {pool.instance_type for pool in spec.pools},
            spec.replicas,
            self._settings.warning_s,
            self._settings.schedule_s,
            spec.initial_delay_s,
            spec.standby,
        )

    def _deploy(self) -> Operator:
        self._view.headline("Deploying into a local AWS")
        deployment = self._deployer.deploy()
        self._reached("deployed_s")
        if self._settings.is_shown:
            self._open_page(deployment)
        return Operator(deployment)

    def _open_page(self, deployment: Deployment) -> None:
        address = page.start(self._processes, {**self._env, **local(deployment.endpoint)})
        self._view.say(f"all of it on a page, live, until the end: {address}")
        if has_desktop():
            webbrowser.open(address)

    def _wait_for_fleet(self, service: str, stage: Stage) -> None:
        replicas = stage.replicas
        try:
            seen = stage.watch.until(
                lambda seen: len(seen.ready) == replicas,
                f"{replicas} replicas of {service} in rotation",
                self._settings.schedule_s + stage.start_s,
            )
            stage.say(f"{replicas} replicas serve: {', '.join(str(r.offering) for r in seen.ready)}")
            if stage.standbys:
                stage.say(f"{stage.standbys} standbys are prepared and tried out, one at a time")
                stage.watch.until(
                    lambda seen: len(standing_by(seen)) == stage.standbys,
                    f"{stage.standbys} standbys of {service}",
                    self._settings.schedule_s + 2 * stage.standbys * stage.start_s,
                )
        except NotInTimeError as error:
            raise DemoError(
                f"{error}; see what functions and instances say in {self._settings.logs}"
            ) from None

    def _start_from_a_pack(self, shown: ShownService, stage: Stage, endpoint: str) -> None:
        """Pack what set-up makes, and let replicas start from it, with the commands that a user would run."""
        self._view.title(f"{shown.name}: what its set-up makes is packed")
        took_s = starts_s(stage.watch.look().ready)
        warned = f"EC2 warns {stage.warning_s:g} s ahead"
        stage.say(f"its starts took {range_of(took_s)}, most of which is set-up; {warned}")
        stage.say(f"spotrelay pack {shown.file.name}: another instance runs set-up, and packs what it makes")
        self._command(shown, stage, endpoint, "pack", stage.start_s)
        stage.say(f"spotrelay up {shown.file.name}: a new version, whose replicas start from the pack")
        self._command(shown, stage, endpoint, "up", stage.replicas * stage.start_s)
        # Those of the version before may still finish requests.
        seen = stage.watch.until(
            lambda seen: len(seen.present) == len(seen.ready) == stage.replicas,
            "nobody left of the version before",
            COMMAND_WITHIN_S,
        )
        packed_s = starts_s(seen.ready)
        fits = "less" if max(packed_s) < stage.warning_s else "which isn't less"
        stage.say(f"its starts take {range_of(packed_s)} from the pack: {fits} than a warning")
        self._starts = {"starts_by_set_up_s": took_s, "starts_from_pack_s": packed_s}

    def _command(self, shown: ShownService, stage: Stage, endpoint: str, name: str, set_up_s: float) -> None:
        process = self._deployer.command(endpoint, name, shown.file)
        what = f"spotrelay {name} {shown.file.name}"
        stage.watch.until(lambda _: process.poll() is not None, what, set_up_s + COMMAND_WITHIN_S)
        self._processes.finish(process, what, COMMAND_WITHIN_S)

    def _tell_all(self, stages: Mapping[str, Stage]) -> list[str]:
        """Every service's stories, at the same time; what went wrong."""
        with ThreadPoolExecutor(len(stages)) as pool:
            told = [pool.submit(self._tell, service, stage) for service, stage in stages.items()]
            try:
                return [problem for future in as_completed(told) for problem in future.result()]
            except BaseException:
                # What ends one thread, or is Ctrl-C, ends the others: at their next look.
                self._is_broken_off = True
                raise

    def _tell(self, service: str, stage: Stage) -> list[str]:
        """A service's stories, then the end of them all; what went wrong."""
        for story in self._told[service]:
            self._view.title(f"({story.key}) {service}: {story.title}")
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
        self._view.title(f"{service}: waiting for EC2 to take all warned instances, and for fallbacks to end")
        try:
            stage.settle()
        except StoryError as error:
            return [f"{service}: {error}"]
        return []

    def _report(
        self,
        operator: Operator,
        stages: Mapping[str, Stage],
        requests: LoadSnapshot,
        problems: Sequence[str],
    ) -> dict[str, Any]:
        calls, warnings = operator.cloud.calls(), operator.cloud.interruptions()
        records = {record["instance_id"]: record for record in warnings}
        counts = report.request_counts(asdict(requests))
        all_replicas: list[Replica] = []
        all_interruptions: list[report.Interruption] = []
        all_outages: list[report.Outage] = []
        broken, late, unservable = [*problems], list[str](), 0
        for service, stage in stages.items():
            seen = stage.watch.look()
            interruptions = report.interruptions_of(stage.losses, records, seen.replicas)
            balanced = operator.cloud.requests(operator.load_balancer(service))
            outages = report.outages(interruptions, seen.replicas, seen.at)
            unservable += report.unservable_requests(balanced, outages)
            late += report.late_requests(balanced, warnings)
            found = report.broken_in_fleet(
                interruptions, seen.replicas, stage.replicas, stage.standbys, outages
            )
            broken += [f"{service}: {problem}" for problem in found]
            all_replicas += seen.replicas.values()
            all_interruptions += interruptions
            all_outages += outages
            self._draw(service, seen, interruptions, counts)
        denied = report.denied_calls(calls)
        broken += report.broken_to_clients(counts, late=late, denied=denied, unservable=unservable)
        self._reached("took_s")
        built = report.build(
            settings={
                "warning_s": self._settings.warning_s,
                "schedule_s": self._settings.schedule_s,
                "started_at": self._started_at.isoformat(timespec="seconds"),
                **self._milestones,
                **self._starts,
            },
            requests=counts,
            interruptions=sorted(all_interruptions, key=lambda i: i.story),
            replicas=all_replicas,
            calls=calls,
            bill=operator.cloud.bill(),
            stories=sorted(self._stories, key=lambda story: str(story["story"])),
            problems=broken,
            outages=all_outages,
            unservable=unservable,
        )
        path = self._settings.out / "report.json"
        path.write_text(json.dumps(built, indent=2) + "\n", encoding="utf-8")
        return built

    def _draw(
        self,
        service: str,
        seen: Snapshot,
        interruptions: Sequence[report.Interruption],
        requests: Mapping[str, Any],
    ) -> None:
        svg = timeline.draw(
            list(seen.replicas.values()),
            [i.mark for i in interruptions],
            min((min(r.entered.values()) for r in seen.replicas.values()), default=self._started_at),
            seen.at,
            f"{service}: EC2 took {len(interruptions)} of"
            f" {sum(not r.is_standby for r in seen.replicas.values())} replicas",
            f"{requests['failed']} failed and {requests['cut']} cut of {requests['sent']} streaming requests"
            f" to all services; interruption warnings of {self._settings.warning_s:g} s",
        )
        (self._settings.out / f"timeline-{service}.svg").write_text(svg, encoding="utf-8")

    def _look(self, service: str, snapshot: Snapshot) -> None:
        """Called with every snapshot: shows it, and notices when waiting on would be pointless."""
        if self._is_broken_off:
            raise DemoError("broken off")
        cloud = self._deployer.cloud
        if cloud and cloud.poll() is not None:
            raise DemoError(f"the local cloud ended; {cloud.last_words()}")
        if self._load:
            self._load.snapshot()  # raises if the load's process has died
        self._view.show(service, snapshot)

    def _reached(self, milestone: str) -> None:
        self._milestones[milestone] = round(time.monotonic() - self._began, 3)


def _counters(load: Load) -> Mapping[str, Any]:
    """For the view, which draws in a thread of its own: that the load has died is noticed elsewhere."""
    try:
        return asdict(load.snapshot())
    except LoadError:
        return {}
