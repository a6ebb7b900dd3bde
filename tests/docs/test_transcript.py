"""A page's terminal sessions are compared strictly: whatever isn't said to differ must be the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.walk.transcript import Step, steps

PAGE = """
```console
$ spotrelay status demo    # a minute later
demo  WHOLE 3/3
…
1  READY  us-east-1a/g4dn.xlarge  i-0abc12

$ spotrelay down demo --yes
…
nothing left of demo
```

```sh
ls
```
"""


def test_a_page_is_read_as_commands_and_their_lines(tmp_path: Path) -> None:
    """Comments and blank lines are no part of it, nor are other blocks."""
    (tmp_path / "page.md").write_text(PAGE, encoding="utf-8")
    assert steps(tmp_path / "page.md") == [
        Step(
            ("spotrelay", "status", "demo"),
            ("demo  WHOLE 3/3", "…", "1  READY  us-east-1a/g4dn.xlarge  i-0abc12"),
        ),
        Step(("spotrelay", "down", "demo", "--yes"), ("…", "nothing left of demo")),
    ]


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["ready after 4.2 s"], "ready after 17 s\n"),
        (["a  b"], "  a b"),
        (["1  i-0abc"], "12 i-0fff00\n"),
        (["first", "…", "last"], "first\nsecond\nthird\nlast"),
        (["first", "…", "last"], "first\nlast"),
        (["first", "…"], "first\nsecond"),
        (["price … USD"], "price 1.23 to 4.56 USD"),
        ([], ""),
    ],
)
def test_what_may_differ_does(shown: list[str], printed: str) -> None:
    """Numbers, IDs, spaces, and what is left out."""
    assert Step(("x",), tuple(shown)).differs(printed) == ""


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["PASS"], "FAIL"),
        (["ready after 4.2 s"], "ready after 4.2 min"),
        (["first", "last"], "first\nsecond\nlast"),
        (["first"], "first\nsecond"),
        (["first", "second"], "second\nfirst"),
        (["…", "last"], "last\nmore"),
        (["PASS"], ""),
        ([], "anything"),
    ],
)
def test_all_else_must_be_the_same(shown: list[str], printed: str) -> None:
    """A line that differs, is missing, is too much or in another order is named, with its command."""
    assert Step(("x",), tuple(shown)).differs(printed).startswith("x: ")
