"""How every deployment of these tests comes to be, and what is looked at when it goes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.demo import deployment, environment
from lab.demo.deployment import Deployer
from lab.demo.operator import Operator
from lab.demo.processes import Processes
from lab.demo.settings import ROOT, DemoSettings
from tests.e2e import emitted
from tests.e2e.leaks import Planted
from tests.e2e.stand import MINUTE_S


@dataclass(frozen=True, slots=True)
class Unhurried(DemoSettings):
    """A schedule whose minute doesn't go by how warnings are compressed: times count from the event's."""

    minute_s: float = MINUTE_S

    @property
    def schedule_s(self) -> float:
        """The same minute."""
        return self.minute_s


@contextmanager
def deployed(settings: DemoSettings, scratch: Path, others: Sequence[Path] = ()) -> Iterator[Operator]:
    """The unmodified app with the demo's service and others, in a local cloud of its own.

    `scratch` is an empty directory outside of `settings.out`. Fails at the end if a secret got anywhere.
    """
    # Everything is on loopback; boto3 and urllib would ask a proxy for it, too.
    os.environ.setdefault("no_proxy", "127.0.0.1")
    deployment.clear(settings.out)
    planted = Planted.into(scratch)
    processes = Processes(settings.logs, ROOT)
    try:
        env, home = environment.clean(os.environ), scratch / "home"
        home.mkdir()
        deployer = Deployer(settings, processes, env, home, lambda _: None, (planted.file, *others))
        operator = Operator(deployer.deploy())
        planted.store(operator)
        try:
            yield operator
        finally:
            operator.save_function_logs(settings.logs)
        emitted.note(operator, settings.logs)
        planted.must_not_have_leaked(operator, settings.logs)
    finally:
        processes.stop_all()
