"""Filters and pages of Describe calls."""

from __future__ import annotations

import pytest

from lab.local.query import matches, page
from lab.local.wire import AwsError

ITEM = {"type": lambda: ["g5.xlarge"], "zones": lambda: ["a", "b"], "nothing": list}


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("type", ["g5.xlarge"], True),
        ("type", ["g6.xlarge", "g5.*"], True),
        ("type", ["g?.xlarge"], True),
        ("type", ["G5.xlarge"], False),
        ("type", ["g[5].xlarge"], False),
        ("zones", ["b"], True),
        ("nothing", ["*"], False),
        ("type", [], False),
        ("tag:team", ["vision"], True),
        ("tag:team", ["v*"], True),
        ("tag:other", ["*"], False),
        ("tag-key", ["te*"], True),
    ],
)
def test_a_filter_passes_when_one_value_fits(name: str, values: list[str], expected: bool) -> None:
    """Wildcards are EC2's two, brackets are just brackets, and an empty attribute fits nothing."""
    assert matches([{"Name": name, "Values": values}], ITEM, {"team": "vision"}) is expected


def test_an_unknown_filter_is_refused_by_name() -> None:
    """A misspelt filter must not silently match everything, or nothing."""
    with pytest.raises(AwsError, match="'typo' is invalid"):
        matches([{"Name": "typo", "Values": ["x"]}], ITEM)


def test_pages_cover_everything_once() -> None:
    """Following the tokens gives all items in order, and the last page has none."""
    items, seen = list(range(12)), []
    params: dict[str, object] = {"MaxResults": 5}
    while True:
        shown, more = page(items, params)
        seen += shown
        if not more:
            break
        params = {"MaxResults": 5, **more}
    assert seen == items


@pytest.mark.parametrize("params", [{"MaxResults": 4}, {"MaxResults": 1001}, {"NextToken": "nonsense"}])
def test_bad_pages_are_refused(params: dict[str, object]) -> None:
    """A size out of range and a token that isn't ours are errors, not an empty page."""
    with pytest.raises(AwsError, match="Invalid"):
        page([1, 2, 3], params)
