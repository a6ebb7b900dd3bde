"""`python -m lab.pictures`: bring the demo's services up, let them lose replicas, and make all pictures anew.

It takes a quarter of an hour, because CloudWatch counts by the minute and nothing here is made up.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from lab.demo import deployment, environment, stopping
from lab.demo import page as demo_page
from lab.demo.browser import REMEDY, browser, chromium
from lab.demo.director import Director
from lab.demo.errors import DemoError, Interrupted
from lab.demo.load import Load
from lab.demo.operator import Operator
from lab.demo.processes import Processes
from lab.demo.settings import MODEL, REGION, ROOT, DemoSettings
from lab.demo.view import View
from lab.local.environment import EC2_WARNING_S
from lab.pictures import page
from lab.pictures.camera import Camera
from lab.pictures.story import SERVICE, Story
from spotrelay.operator.look.watch import NotInTimeError
from spotrelay.plane.core.names import dashboard_name

FAILED = 2

CLIENTS = 4
"""Enough to be seen on a graph."""


def main() -> int:
    """Make them; 2 if that can't be."""
    stopping.listen()
    out = Console(stderr=True)
    path = chromium()
    if path is None:
        out.print(f"pictures: {REMEDY}", markup=False)
        return FAILED
    try:
        os.environ["no_proxy"] = "127.0.0.1"
        with tempfile.TemporaryDirectory(prefix="spotrelay-demo-") as home:
            _make(path, Path(home), out)
    except (DemoError, Interrupted, NotInTimeError) as error:
        out.print(f"pictures: {error}", markup=False)
        return FAILED
    return 0


def _make(path: str, home: Path, out: Console) -> None:
    settings = DemoSettings(EC2_WARNING_S, home / "out", is_kept=True)
    deployment.clear(settings.out)
    processes = Processes(settings.logs, ROOT)
    try:
        with View(out) as view:
            env = {**environment.clean(os.environ), "TMPDIR": str(home)}
            deployed = Director(settings, processes, view, env, home).bring_up()
            env |= environment.local(deployed.endpoint)
            operator = Operator(deployed)
            with (
                Load(deployed.endpoint, list(deployed.hosts.values()), CLIENTS, model=MODEL),
                browser(path) as chrome,
            ):
                _tell(Story(operator, view.say), Camera(chrome, operator, env))
                address = demo_page.start(processes, env).rstrip("/")
                page.take(chrome, address, SERVICE)
    finally:
        stopping.ignore()
        processes.stop_all()


def _tell(story: Story, camera: Camera) -> None:
    replacement = story.lose()
    story.dry_up()
    camera.terminal("status", ["spotrelay", "status", SERVICE], 124)
    story.bring_back()
    camera.terminal("history", ["spotrelay", "history", SERVICE], 118)
    camera.terminal("explain", ["spotrelay", "explain", SERVICE, str(replacement.id)], 110)
    camera.terminal("cost", ["spotrelay", "cost", SERVICE, "--days", "1"], 110)
    camera.board("board-service", dashboard_name(REGION), SERVICE)
    story.refuse()
    camera.board("board-fleet", dashboard_name(REGION))


if __name__ == "__main__":
    sys.exit(main())
