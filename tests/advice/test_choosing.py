"""docs/choosing.md says what the tool says."""

from __future__ import annotations

import json

from lab.choosing import DOCUMENT, QUESTION, ROOT, renewed

TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_the_answers_are_the_tools_own() -> None:
    """`python -m lab.choosing` would write what is there."""
    assert renewed(TEXT) == TEXT, "run: python -m lab.choosing"


def test_every_block_that_looks_like_a_question_is_one() -> None:
    """None is overlooked, and one of each kind is there."""
    questions = [match["arguments"] for match in QUESTION.finditer(TEXT)]
    assert len(questions) == TEXT.count("$ spotrelay ") >= 10
    for kind in ("llama3-8b", "fp8", "int4", "sdxl", "whisper", "600GB", "335M", "2000B", "compare"):
        assert any(kind in question for question in questions), kind


def test_an_answer_that_is_not_the_tools_is_noticed() -> None:
    """A figure changed by hand is changed back."""
    assert renewed(TEXT.replace("18.9 GiB", "17.9 GiB")) == TEXT


def test_the_price_file_is_the_one_that_is_shown() -> None:
    """Its text stands in the document."""
    shown = (ROOT / "docs" / "prices-example.json").read_text(encoding="utf-8")
    assert json.loads(shown)
    assert f"```json\n{shown}```" in TEXT
