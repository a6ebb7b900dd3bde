"""Pages that people read whole stay short; detail has pages of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from .blocks import ROOT

MOST_WORDS = {"README.md": 900, "docs/reliability.md": 1500}
"""As `wc -w` counts: code, tables and links included."""

MOST_WORDS_OF_A_DECISION = 500
"""One page. A second topic is a second decision."""


RECORDS = sorted((ROOT / "docs" / "decisions").glob("20*.md"))


@pytest.mark.parametrize(("page", "most"), MOST_WORDS.items(), ids=MOST_WORDS)
def test_a_page_that_is_read_whole_stays_short(page: str, most: int) -> None:
    """What is too much goes to a page of docs/ that it links to."""
    assert words(ROOT / page) <= most


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.stem)
def test_a_decision_takes_one_page(record: Path) -> None:
    """Its question, what was decided and why."""
    assert words(record) <= MOST_WORDS_OF_A_DECISION


def words(page: Path) -> int:
    """How many words a page has."""
    return len(page.read_text(encoding="utf-8").split())
