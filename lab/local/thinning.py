"""Answers that are successful and wrong: they lack some of what there is, or all."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args

Answer = Literal["", "empty", "partial"]
"""What is left of an answer: all of it, nothing, or every second item, beginning with the first."""

ANSWERS = get_args(Answer)

_LISTS = {
    "DescribeInstances": "Reservations",
    "DescribeSpotInstanceRequests": "SpotInstanceRequests",
    "DescribeTargetHealth": "TargetHealthDescriptions",
    "GetParameters": "Parameters",
    "GetParametersByPath": "Parameters",
}
"""The list that an action's answer is about."""

THINNED = tuple(_LISTS)
"""The actions whose answers can be thinned."""


def thin(action: str, answer: Answer, result: dict[str, Any]) -> dict[str, Any]:
    """The result without what the answer lacks. An empty one doesn't promise further pages, either."""
    name = _LISTS[action]
    if action == "DescribeInstances":
        # What counts are the instances; a fleet has a reservation for each, RunInstances one for all.
        single = [{**r, "Instances": [instance]} for r in result[name] for instance in r["Instances"]]
        thinned = {**result, name: _kept(single, answer)}
    else:
        thinned = {**result, name: _kept(result[name], answer)}
    if action == "GetParameters":
        known = {parameter["Name"] for parameter in thinned[name]}
        lost = [p["Name"] for p in result[name] if p["Name"] not in known]
        thinned["InvalidParameters"] = [*result.get("InvalidParameters", []), *lost]
    if answer == "empty":
        thinned.pop("NextToken", None)
    return thinned


def thin_json(action: str, answer: Answer, body: bytes) -> bytes:
    """The same for an answer in JSON."""
    return json.dumps(thin(action, answer, json.loads(body))).encode()


def _kept(items: list[Any], answer: Answer) -> list[Any]:
    return {"": items, "empty": [], "partial": items[::2]}[answer]
