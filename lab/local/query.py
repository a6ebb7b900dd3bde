"""Filters and pages, as EC2's Describe calls have them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from lab.local.wire import AwsError

Attributes = Mapping[str, Callable[[], Sequence[str]]]
"""What can be filtered by: the filter's name to the item's values for it."""


def matches(
    filters: Sequence[Mapping[str, Any]], attributes: Attributes, tags: Mapping[str, str] | None = None
) -> bool:
    """Whether an item passes every filter; a filter passes when one of its values fits one of the item's.

    Values may hold `*` and `?`. An item without `tags` has no tag filters.

    Raises:
        AwsError: there is no such filter.
    """
    return all(_passes(f["Name"], f.get("Values", []), attributes, tags) for f in filters)


def _passes(name: str, wanted: Sequence[str], attributes: Attributes, tags: Mapping[str, str] | None) -> bool:
    if tags is not None and name.startswith("tag:"):
        value = tags.get(name.removeprefix("tag:"))
        values: Sequence[str] = [] if value is None else [value]
    elif tags is not None and name == "tag-key":
        values = list(tags)
    elif name in attributes:
        values = attributes[name]()
    else:
        raise AwsError("InvalidParameterValue", f"The filter '{name}' is invalid")
    return any(fnmatchcase(value, _literal_brackets(pattern)) for value in values for pattern in wanted)


def _literal_brackets(pattern: str) -> str:
    return pattern.replace("[", "[[]")


def page(
    items: Sequence[Any], params: Mapping[str, Any], *, most: int = 1000, least: int = 5
) -> tuple[list[Any], dict[str, str]]:
    """The items of the page that `MaxResults` and `NextToken` ask for, and the answer's `NextToken`, if any.

    Raises:
        AwsError: MaxResults is out of range, or the token isn't one of ours.
    """
    limit = params.get("MaxResults", most)
    if not least <= limit <= most:
        raise AwsError(
            "InvalidMaxResults",
            f"Value ({limit}) for parameter maxResults is invalid. Expected {least}-{most}",
        )
    start = _offset(params.get("NextToken"))
    end = start + limit
    more = {"NextToken": _token(end)} if end < len(items) else {}
    return list(items[start:end]), more


def _token(offset: int) -> str:
    return base64.urlsafe_b64encode(f"offset:{offset}".encode()).decode()


def _offset(token: str | None) -> int:
    if not token:
        return 0
    try:
        return int(base64.urlsafe_b64decode(token).decode().removeprefix("offset:"))
    except ValueError as error:
        raise AwsError("InvalidNextToken", f"The token '{token}' is invalid") from error
