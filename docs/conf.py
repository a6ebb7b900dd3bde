"""The site of these pages: `make docs` builds it into out/site. See docs/decisions/2026-11-23-docs-site.md.

The pages are plain Markdown, as a repository's front end shows them. What only the site needs is made here:
its navigation, the index of the decisions, and anchors that are the same in both places.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).parent

NAVIGATION = {
    "Start": [
        "start",
        "first-hour",
        "deploy",
        "first-deployment",
        "networking",
        "bring-your-own",
        "adopting",
    ],
    "Describe": [
        "choosing",
        "service-file",
        "scaling",
        "cold-start",
        "packs",
        "bake",
        "peers",
        "standbys",
        "loaders",
        "sharing-instances",
    ],
    "Operate": [
        "looking",
        "commands",
        "operations",
        "page",
        "json",
        "events",
        "rollouts",
        "upgrading",
        "cost",
    ],
    "Understand": [
        "architecture",
        "placement",
        "reliability",
        "rules",
        "fail-static",
        "found-by-simulation",
        "security",
        "aws-contract",
        "performance",
        "replay",
        "examples-checked",
    ],
    "Decide": ["comparison", "decisions/index"],
}
"""The pages, in the order of the site's navigation. One that isn't there yet is left out; one that is there
and isn't named here fails the build."""

project = "SpotRelay"
extensions = ["myst_parser"]
exclude_patterns = ["images/**"]
myst_heading_anchors = 6  # links may lead to any heading, by the anchor that GitHub gives it
nitpicky = True

html_theme = "furo"
html_title = project
html_static_path = ["site"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False


def toctree(pages: list[str], caption: str | None = None, *, hidden: bool = False) -> str:
    """A table of contents in MyST's words."""
    options = [*([f":caption: {caption}"] if caption else []), ":hidden:" if hidden else ":maxdepth: 1"]
    return "\n".join(["```{toctree}", *options, "", *pages, "```", ""])


def navigation() -> str:
    """The site's navigation, which the front page holds and doesn't show."""
    there = {
        group: [page for page in pages if (DOCS / f"{page}.md").exists()]
        for group, pages in NAVIGATION.items()
    }
    return "\n".join(toctree(pages, group, hidden=True) for group, pages in there.items())


def decisions() -> str:
    """The records by date, the latest first."""
    records = sorted((file.stem for file in (DOCS / "decisions").glob("20*.md")), reverse=True)
    days = groupby(records, lambda record: record[: len("2026-11-23")])
    return "\n".join(f"## {day}\n\n{toctree(sorted(those))}" for day, those in days)


OUTSIDE = re.compile(r"\]\(((?:\.\./)+[A-Z]+\.md)(?:#[\w-]*)?\)")
"""A link to one of the repository's own pages, such as SECURITY.md: they aren't part of the site."""


def add_what_is_made(_: Sphinx, page: str, source: list[str]) -> None:
    """Append to a page what is made of the other files, and offer the repository's own pages as files."""
    source[0] = OUTSIDE.sub(r"](path:\1)", source[0])
    made = {"index": navigation, "decisions/index": decisions}.get(page)
    if made:
        source[0] += f"\n{made()}"


def add_anchors(_: Sphinx, page: nodes.document) -> None:
    """Give each heading the anchor that GitHub gives it, beside Sphinx's own where the two differ."""
    for section in page.findall(nodes.section):
        slug = section.get("slug")
        if slug and slug not in section["ids"]:
            section["ids"].append(slug)


def setup(app: Sphinx) -> None:
    """What Sphinx calls first."""
    app.connect("source-read", add_what_is_made)
    app.connect("doctree-read", add_anchors)
