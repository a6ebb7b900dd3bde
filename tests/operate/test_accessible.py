"""The page in a real browser, of a service that has everything: axe finds nothing, and a trial streams."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypercorn.asyncio import serve
from hypercorn.config import Config
from playwright.sync_api import Browser, Page, expect

from lab.demo.browser import REMEDY, browser, chromium
from spotrelay.operator.look.curves import Curve
from spotrelay.operator.page import server as page_server
from spotrelay.plane.core.replica import ReplicaState
from spotrelay.plane.core.spec import OnUpdate
from spotrelay.plane.view.snapshot import Alarm, AlarmState, Minute, Part, ServiceSnapshot
from tests.cli.test_request import CHAT, Server, answering
from tests.examples import demo_spec
from tests.operate.replicas import POOL, replica
from tests.operate.test_page import NOW, READY, Desk, FakeSource, snapshot

AXE = Path("node_modules/axe-core/axe.min.js")
"""As `make setup` installs it: package-lock.json."""

WIDTHS = (320, 768, 1024, 1440)
"""A phone, held upright; a tablet, held upright and not; a desktop."""


def everything(address: str) -> ServiceSnapshot:
    """A service with whatever a page can show: a loss, a failure, a roll-out, an alarm, a part not read."""
    lost = replica(
        3,
        ReplicaState.DRAINING,
        entered={"REQUESTED": 0, "PROVISIONING": 1, "STARTING": 2, "READY": 30, "DRAINING": 100},
    )
    failed = replace(
        replica(4, ReplicaState.FAILED, entered={"REQUESTED": 0, "FAILED": 60}), reason="never answered"
    )
    seen = snapshot(
        replace(READY, instance_id="i-0123456789abcdef0"),
        replace(lost, warned_at=NOW - timedelta(minutes=8), reason="interruption warning"),
        failed,
        replace(READY, id=5, version=2, replaces=3),
        missing={Part.POOLS: "missing dynamodb:GetItem"},
    )
    spec = replace(
        demo_spec("chat"), version=2, on_update=OnUpdate.ROLLING, readiness_probe=CHAT, address=address
    )
    alarm = Alarm("NotWhole", AlarmState.ALARM, NOW, "Run `spotrelay status chat`. See docs/operations.md")
    return replace(seen, spec=spec, alarms=(alarm,))


@contextmanager
def listening(desk: Desk) -> Iterator[str]:
    """The desk's page for a browser."""
    socket = page_server.listen(0)
    address = f"http://{page_server.ADDRESS}:{socket.getsockname()[1]}{desk.at_token}"
    config, loop, over = Config(), asyncio.new_event_loop(), asyncio.Event()
    config.bind = [f"fd://{socket.detach()}"]
    config.accesslog = config.errorlog = None
    config.graceful_timeout = 1.0

    def run() -> None:
        loop.run_until_complete(serve(desk.app, config, shutdown_trigger=over.wait))  # type: ignore[arg-type]

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def service() -> Iterator[Server]:
    """What answers the trials."""
    with answering() as made:
        yield made


@pytest.fixture(scope="module")
def page(service: Server) -> Iterator[tuple[Page, str]]:
    """A tab of Chromium, and the address. Without Chromium it is skipped; in CI that is a failure."""
    path = chromium()
    if path is None:
        assert not os.environ.get("CI"), REMEDY
        pytest.skip(REMEDY)
    at = NOW - timedelta(minutes=3)
    curve = Curve(POOL, ((NOW - timedelta(hours=40), 0.3), (NOW - timedelta(hours=1), 0.4)), 1.0)
    desk = Desk(
        FakeSource(everything(service.address), curves=(curve,), minutes=(Minute(at, 120, 2, 0.2, 1.5),))
    )
    desk.ask("/")
    desk.ask("/services/chat")
    desk.poller.look()
    desk.poller.ask()
    with listening(desk) as address, browser(path) as found:
        yield _tab(found), address


def _tab(found: Browser) -> Page:
    tab = found.new_page()
    tab.set_default_timeout(30_000)
    return tab


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "path", ["/", "/services/chat", "/services/chat/replicas/3", "/runbook#nothingready"]
)
def test_axe_finds_nothing(page: tuple[Page, str], path: str, scheme: str) -> None:
    """No violation of its rules at four widths: names, roles, contrast, order. The page is loaded once."""
    tab, address = page
    tab.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    tab.goto(address + path)
    if path == "/services/chat":
        expect(tab.locator("#chart canvas")).to_be_visible()
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        found = tab.evaluate("axe.run().then(found => found.violations)")
        told = [f"{width}: {one['id']}: {[n['html'][:200] for n in one['nodes']]}" for one in found]
        assert told == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_trial_streams_into_the_page(page: tuple[Page, str], service: Server) -> None:
    """The form sends the prompt, shows the answer and how fast it was; an update of the page leaves it."""
    tab, address = page
    tab.goto(address + "/services/chat")
    tab.get_by_label("Prompt").fill("Are you there?")
    tab.get_by_role("button", name="Send").click()
    answer = tab.get_by_role("region", name="Answer")
    expect(answer).to_have_text("Still here, naïve.")
    told = tab.locator("#try").get_by_role("status")
    expect(told).to_contain_text("2 pieces")
    assert b"Are you there?" in service.seen[-1][3]
    with tab.expect_response(lambda response: response.url.endswith("/now")):
        pass
    expect(answer).to_have_text("Still here, naïve.")
    service.status = 503
    try:
        tab.get_by_role("button", name="Send").click()
        expect(told).to_contain_text("503: no replica is in rotation")
    finally:
        service.status = 200
