"""The local page, photographed."""

from __future__ import annotations

from typing import Literal

from playwright.sync_api import Browser

from lab.pictures import files

Scheme = Literal["light", "dark"]

HEIGHT, PHONE_HEIGHT = 900, 844

SETTLED_MS = 4000
"""Two updates."""

WITHIN_S = 120.0


def take(chrome: Browser, address: str, service: str) -> None:
    """All pictures of it."""
    at = f"/services/{service}"
    _take(chrome, address + at, "page-light", "light", is_full=True)
    _take(chrome, address + at, "page-dark", "dark")
    _take(chrome, address + at, "page-phone", "light", phone=".judgement")
    _take(chrome, address + at, "page-phone-timeline", "dark", phone="#timeline-title")
    _take(chrome, address + "/", "page-fleet", "light")


def _take(
    chrome: Browser, url: str, name: str, scheme: Scheme, *, phone: str = "", is_full: bool = False
) -> None:
    """`phone`: as wide as one, scrolled to this; `is_full`: all of the page, however long."""
    viewport = {"width": 390, "height": PHONE_HEIGHT} if phone else {"width": 1180, "height": HEIGHT}
    context = chrome.new_context(viewport=viewport, color_scheme=scheme)  # type: ignore[arg-type]
    shown = context.new_page()
    shown.goto(url)
    shown.wait_for_selector(".judgement", timeout=1000 * WITHIN_S)
    if "/services/" in url:
        shown.wait_for_selector("#chart canvas", timeout=1000 * WITHIN_S)
    shown.wait_for_timeout(SETTLED_MS)
    if phone and phone != ".judgement":
        shown.evaluate(f"document.querySelector('{phone}').scrollIntoView()")
    files.png(name, shown.screenshot(full_page=is_full))
    context.close()
