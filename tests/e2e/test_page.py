"""The local page in a real browser, of the service on the local cloud."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Response, expect

from lab.demo import environment
from lab.demo.browser import REMEDY, browser, chromium
from spotrelay.operator.page.poller import LOOK_S
from tests.e2e.stand import WITHIN_S, Stand

SOON_MS = 1000 * WITHIN_S

SHOWN_WITHIN_S = 5.0
"""Of a replacement, from its being in the rows: what the page promises."""

SHOWN_WITHIN_POLLS = 4
"""The same as a test can hold it on a machine that is busy otherwise: one poll that was under way, and one or
two while the server looks, are usual. Seconds would be the machine's."""

PHONE = {"width": 390, "height": 844}

LEGIBLE = 9
"""Pixels that a line of letters is high."""

ROLES: tuple[Literal["banner", "main", "contentinfo"], ...] = ("banner", "main", "contentinfo")


@dataclass
class Opened:
    """A page in a browser, and all that it complained about."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    polls: int = 0
    """How often it was told the present state, as far as it has said so."""

    def listen(self) -> Opened:
        """Note errors, broken requests, which hosts are asked, and how often for the present state."""

        def said(message: ConsoleMessage) -> None:
            if message.type in ("error", "warning"):
                self.complaints.append(message.text)

        def answered(response: Response) -> None:
            self.polls += response.url.endswith("/now")

        self.page.on("console", said)
        self.page.on("response", answered)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        return self

    def polls_until_now(self) -> int:
        """After everything that the browser has said by now was heard."""
        self.page.evaluate("0")
        return self.polls


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    """Chromium. Where there is none, these tests are skipped; in continuous integration that is a failure."""
    path = chromium()
    if path is None:
        assert not os.environ.get("CI"), REMEDY
        pytest.skip(REMEDY)
    with browser(path) as found:
        yield found


@pytest.fixture(scope="module")
def address(deployed: Stand, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`spotrelay ui demo`, as a user runs it."""
    log = tmp_path_factory.mktemp("ui") / "ui.log"
    spotrelay = Path(sys.executable).with_name("spotrelay")
    with log.open("w") as output:
        process = subprocess.Popen(
            [spotrelay, "ui", deployed.service, "--port", "0", "--no-browser"],
            env=environment.clean(os.environ) | environment.local(deployed.operator.deployment.endpoint),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + WITHIN_S
        while "until Ctrl-C" not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield log.read_text().split()[0]
    finally:
        process.terminate()
        assert process.wait(30) == 0
        assert log.read_text().count("\n") == 1, log.read_text()


def opened(chrome: Browser, address: str, **more: object) -> Opened:
    """The page in a window of its own."""
    found = Opened(chrome.new_context(**more).new_page()).listen()  # type: ignore[arg-type]
    found.page.goto(address)
    return found


def test_a_replacement_is_shown_soon(stand: Stand, chrome: Browser, address: str) -> None:
    """After a loss, the table has the replacement a few polls after it is in the rows, then the losses;
    there is no error on the console, and no request to anyone else.
    """
    shown = opened(chrome, address)
    page = shown.page
    expect(page.get_by_text("WHOLE 3/3")).to_be_visible(timeout=SOON_MS)
    lost = stand.watch.look().ready[0]
    assert lost.instance_id
    stand.cloud.warn(lost.instance_id)
    seen = stand.watch.until(lambda seen: bool(seen.replacements(lost.id)), "a replacement", WITHIN_S)
    (replacement,) = seen.replacements(lost.id)
    before = shown.polls_until_now()
    page.wait_for_selector(f"#replica-{replacement.id}", timeout=SOON_MS)
    polls = shown.polls_until_now() - before
    expect(page.locator(f"#replica-{replacement.id} td[data-label=Replaces]")).to_have_text(str(lost.id))
    expect(page.locator(f"#loss-{lost.id}")).to_contain_text("warned", timeout=SOON_MS)
    expect(page.locator(".on-screens svg")).to_contain_text(f"#{replacement.id}")
    stand.whole(stand.spec.replicas)
    expect(page.locator(f"#replica-{replacement.id} .state")).to_have_text("READY", timeout=SOON_MS)
    assert polls <= SHOWN_WITHIN_POLLS
    assert shown.complaints == []
    assert shown.hosts == {address.split("/")[2]}


def test_what_is_in_the_rows_is_due_within_five_seconds(chrome: Browser, address: str) -> None:
    """The server's pause and then the browser's leave a second for the look itself and for the drawing."""
    every = opened(chrome, address).page.locator("#now").get_attribute("hx-trigger") or ""
    browser_s = float(every.removeprefix("every ").removesuffix("s"))
    assert LOOK_S + browser_s <= SHOWN_WITHIN_S - 1


def test_the_charts_have_points(stand: Stand, chrome: Browser, address: str) -> None:
    """The curve of prices is drawn, from as many times as the endpoint has; scores and cost are there."""
    shown = opened(chrome, address)
    page = shown.page
    expect(page.locator("#chart canvas")).to_be_visible(timeout=SOON_MS)
    assert int(page.locator("#chart").get_attribute("data-points") or 0) > 2
    colored = page.evaluate(
        "() => { const c = document.querySelector('#chart canvas');"
        " const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        " let n = 0; for (let i = 3; i < d.length; i += 4) if (d[i]) n++; return n; }"
    )
    assert colored > 1000
    expect(page.locator("#prices tbody tr").first).to_be_visible()
    expect(page.get_by_role("heading", name="Cost, 7 days")).to_be_visible(timeout=SOON_MS)
    expect(page.get_by_text("the same instances on demand")).to_be_visible()
    assert shown.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_all_of_it(stand: Stand, chrome: Browser, address: str, scheme: str) -> None:
    """390 px wide the page doesn't scroll sideways, and its text differs from its ground, light and dark."""
    shown = opened(chrome, address, viewport=PHONE, color_scheme=scheme)
    page = shown.page
    expect(page.locator("#chart canvas")).to_be_visible(timeout=SOON_MS)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    expect(page.locator(".on-screens")).to_be_hidden()
    drawing = page.locator(".on-phones svg")
    expect(drawing).to_be_visible()
    sizes = drawing.evaluate(
        "e => [...e.querySelectorAll('text')].map(t => t.getBoundingClientRect().height)"
    )
    assert min(sizes) > LEGIBLE, "its letters are as large as the page's small print"
    ink, ground = (
        page.evaluate(f"getComputedStyle(document.documentElement).{name}")
        for name in ("color", "backgroundColor")
    )
    light, dark = (sum(int(n) for n in color.strip("rgb()").split(",")) for color in (ground, ink))
    assert (light > dark) is (scheme == "light")
    assert shown.complaints == []


def test_the_keyboard_and_a_screen_reader_find_their_way(stand: Stand, chrome: Browser, address: str) -> None:
    """Landmarks and headings are there; the first Tab leads to the content; focus survives an update."""
    page = opened(chrome, address).page
    expect(page.get_by_text("WHOLE 3/3")).to_be_visible(timeout=SOON_MS)
    for role in ROLES:
        assert page.get_by_role(role).count() == 1
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.get_by_role("status").inner_text().startswith("WHOLE")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    timeline = page.get_by_role("region", name="Timeline of the last hour")
    timeline.focus()
    with page.expect_response(lambda answer: answer.url.endswith("/now")):
        pass
    with page.expect_response(lambda answer: answer.url.endswith("/now")):
        pass  # the one before has been put in
    expect(timeline).to_be_focused()


def test_a_request_from_the_page_is_answered_by_the_service(
    stand: Stand, chrome: Browser, address: str
) -> None:
    """Through the load balancer, as a stream; what clients met is beside it, as CloudWatch has it."""
    shown = opened(chrome, address)
    page = shown.page
    page.get_by_role("button", name="Send").click(timeout=SOON_MS)
    told = page.locator("#try").get_by_role("status")
    expect(told).to_contain_text("pieces", timeout=SOON_MS)
    expect(told).to_contain_text("Answered by")
    expect(page.get_by_role("region", name="Answer")).not_to_be_empty()
    expect(page.locator(".graphs figure").first).to_be_visible(timeout=SOON_MS)
    assert shown.complaints == []
