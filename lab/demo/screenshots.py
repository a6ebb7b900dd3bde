"""`python -m lab.demo.screenshots`: the pictures of the local page in docs/images, of a fleet with losses.

It brings up the demo's services, takes two replicas, one of them behind EC2's back, and photographs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser
from rich.console import Console

from lab.demo import deployment, environment, page, stopping
from lab.demo.browser import REMEDY, browser, chromium
from lab.demo.director import Director
from lab.demo.errors import DemoError, Interrupted
from lab.demo.operator import Operator
from lab.demo.processes import Processes
from lab.demo.settings import ROOT, DemoSettings
from lab.demo.view import View
from lab.local.environment import EC2_WARNING_S
from spotrelay.core.replica import Replica, ReplicaState
from spotrelay.operate.watch import Watch

IMAGES = ROOT / "docs" / "images"

SERVICE = "demo"

Scheme = Literal["light", "dark"]

PICTURES: tuple[tuple[str, int, Scheme, str, bool], ...] = (
    ("page-light", 1180, "light", f"/services/{SERVICE}", True),
    ("page-dark", 1180, "dark", f"/services/{SERVICE}", False),
    ("page-phone", 390, "light", f"/services/{SERVICE}", False),
    ("page-fleet", 1180, "light", "/", False),
)
"""File, width, colours, address, and whether all of the page is in it."""

HEIGHT = 900

SETTLED_MS = 4000
"""Two updates."""

WITHIN_S = 120.0

FAILED = 2


def main() -> int:
    """Make them; 2 if that can't be."""
    stopping.listen()
    out = Console(stderr=True)
    path = chromium()
    if path is None:
        out.print(f"screenshots: {REMEDY}", markup=False)
        return FAILED
    try:
        os.environ["no_proxy"] = "127.0.0.1"
        with tempfile.TemporaryDirectory(prefix="spotrelay-demo-") as home:
            _photograph(path, Path(home), out)
    except (DemoError, Interrupted) as error:
        out.print(f"screenshots: {error}", markup=False)
        return FAILED
    return 0


def _photograph(path: str, home: Path, out: Console) -> None:
    settings = DemoSettings(EC2_WARNING_S, home / "out", is_kept=True)
    deployment.clear(settings.out)
    processes = Processes(settings.logs, ROOT)
    try:
        with View(out) as view:
            env = {**environment.clean(os.environ), "TMPDIR": str(home)}
            deployed = Director(settings, processes, view, env, home).bring_up()
        address = page.start(processes, {**env, **environment.local(deployed.endpoint)}).rstrip("/")
        _lose(Operator(deployed))
        with browser(path) as chrome:
            for picture in PICTURES:
                _take(chrome, address, *picture)
    finally:
        stopping.ignore()
        processes.stop_all()


def _lose(operator: Operator) -> None:
    """One replica without a warning, then one with, of which the replacement serves."""
    watch = Watch(operator.store, SERVICE, lambda _: None)
    first, second, *_ = watch.look().ready
    operator.session.client("ec2").terminate_instances(InstanceIds=[first.instance_id])
    watch.until(lambda seen: _is_replaced(seen.replacements(first.id)), "a replacement", WITHIN_S)
    operator.cloud.warn(str(second.instance_id))
    watch.until(lambda seen: _is_replaced(seen.replacements(second.id)), "a replacement", WITHIN_S)


def _is_replaced(replacements: tuple[Replica, ...]) -> bool:
    return any(r.state is ReplicaState.READY for r in replacements)


def _take(
    chrome: Browser, address: str, name: str, width: int, scheme: Scheme, path: str, is_full: bool
) -> None:
    context = chrome.new_context(viewport={"width": width, "height": HEIGHT}, color_scheme=scheme)
    shown = context.new_page()
    shown.goto(address + path)
    shown.wait_for_selector(".judgement", timeout=1000 * WITHIN_S)
    if path != "/":
        shown.wait_for_selector("#chart canvas", timeout=1000 * WITHIN_S)
    shown.wait_for_timeout(SETTLED_MS)
    shown.screenshot(path=IMAGES / f"{name}.png", full_page=is_full)
    context.close()


if __name__ == "__main__":
    sys.exit(main())
