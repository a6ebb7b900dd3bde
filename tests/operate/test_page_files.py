"""The files that the page is made of."""

from __future__ import annotations

import hashlib
import tomllib

from spotrelay.operator.page.site import STATIC

OURS = {"page.css", "page.js", "icon.svg", "VENDORED.toml"}


def test_vendored_files_are_what_their_makers_published() -> None:
    """Each file that is not ours has its checksum in its package, and its licence stands beside."""
    told = tomllib.loads((STATIC / "VENDORED.toml").read_text(encoding="utf-8"))["package"]
    expected = {name: one["sha256"] for package in told for name, one in package["files"].items()}
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in STATIC.iterdir()
        if path.name not in OURS
    }
    assert found == expected
    assert all(any(name.endswith("LICENSE") for name in package["files"]) for package in told)


def test_the_page_names_nothing_outside() -> None:
    """No template, style or script of ours has an address of another machine."""
    sources = [*STATIC.parent.rglob("*.html"), *(STATIC / name for name in OURS if not name.endswith("toml"))]
    assert len(sources) > len(OURS)
    for path in sources:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "//" not in text.replace("// ", ""), path
