"""What to do when an alarm rings, for a browser: docs/operations.md as HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

FILE = Path(__file__).parent / "operations.md"
"""A link to the page of the docs. A wheel has a copy of it, as it has no other page."""


@cache
def runbook() -> Markup:
    """The whole page. A heading's anchor is its alarm's name in small letters."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = markdown.parse(FILE.read_text(encoding="utf-8"))
    for token, text in pairwise(tokens):
        if token.type == "heading_open":
            token.attrSet("id", anchor(text.content))
    for token in tokens:
        token.children = list(_within_the_page(token.children or ()))
    return Markup(markdown.renderer.render(tokens, markdown.options, {}))  # noqa: S704  # it escapes


def anchor(heading: str) -> str:
    """As GitHub makes one."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _within_the_page(tokens: Sequence[Token]) -> Iterator[Token]:
    """Without the links to other pages, which aren't here: their words stay. Pictures go."""
    is_dropped = False
    for token in tokens:
        if token.type == "link_open":
            is_dropped = not str(token.attrGet("href")).startswith(("#", "https://"))
        if not (is_dropped and token.type in ("link_open", "link_close")) and token.type != "image":
            yield token
