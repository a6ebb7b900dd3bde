"""The pages make a site, and whatever they link to is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from myst_parser.slugs import github_slugify, unique_slug

from .blocks import ROOT, headings, links, pages


def build(docs: Path, out: Path) -> subprocess.CompletedProcess[str]:
    """Build the site as `make docs` does."""
    options = ["-b", "html", "-W", "--keep-going", "-q", "-d", str(out / "doctrees")]
    return subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(docs), str(out / "site")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Each page is in the navigation, and each internal link and anchor leads somewhere."""
    done = build(ROOT / "docs", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    for page in ("index", "comparison", "decisions/index", "decisions/2026-11-21-brakes"):
        assert (tmp_path / "site" / f"{page}.html").exists()
    pictures = (tmp_path / "site" / "_images").glob("*")
    assert "architecture.svg" in {picture.name for picture in pictures}


def anchors(file: Path) -> set[str]:
    """The anchors that GitHub, and the site after it, give to a page's headings."""
    found: list[str] = []
    for heading in headings(file):
        found.append(unique_slug(github_slugify(heading), found))
    return set(found)


@pytest.mark.parametrize("page", pages(with_decisions=True), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere_in_the_repository(page: Path) -> None:
    """As the repository's front end resolves them; README.md's, too, which isn't part of the site."""
    wrong = []
    for line, link in links(page):
        parts = urlsplit(link)
        target = (page.parent / parts.path).resolve() if parts.path else page
        if parts.scheme:
            continue
        if not target.exists():
            wrong.append(f"{page.relative_to(ROOT)}:{line}: there is no {link}")
        elif parts.fragment and parts.fragment not in anchors(target):
            wrong.append(f"{page.relative_to(ROOT)}:{line}: {link}: no heading there has this anchor")
    assert wrong == []


NAMED = re.compile(r"\b(docs/[\w/.-]+\.md)(?:#([\w-]+))?")


def test_what_the_code_names_is_there() -> None:
    """Messages, alarms and comments name pages of docs/, some with an anchor, and they exist."""
    wrong, seen = [], 0
    for folder in ("lab", "lambdas", "scripts", "services", "spotrelay", "stacks"):
        for file in sorted(
            one for one in (ROOT / folder).rglob("*") if one.suffix in (".py", ".toml", ".yaml")
        ):
            for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                for page, anchor in NAMED.findall(text):
                    seen += 1
                    there = (ROOT / page).exists() and (not anchor or anchor in anchors(ROOT / page))
                    wrong += [] if there else [f"{file.relative_to(ROOT)}:{number}: {page} {anchor}".strip()]
    assert seen
    assert wrong == []
