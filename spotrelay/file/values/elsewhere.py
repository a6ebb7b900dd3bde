"""Whether a file is for something that AWS hasn't: then that is all there is to say of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from spotrelay.file.values.candidate import ALTERNATIVES, SAME, other_cloud
from spotrelay.file.values.parsing import Finding, findings_of, parse_accelerators


def why_not_on_aws(values: Mapping[str, Any]) -> Finding | None:
    """The one reason for which the whole file can't run here, if there is one: nothing else then matters."""
    nodes = values.get("num_nodes")
    if isinstance(nodes, int) and nodes > 1:
        message = f"a replica is one instance, and this asks for {nodes}: SpotRelay can't run it"
        return Finding(("num_nodes",), message, is_lack=True)
    resources = values.get("resources")
    if not isinstance(resources, dict):
        return None
    for way in ALTERNATIVES:
        inner = resources.get(way)
        if isinstance(inner, list) and inner and all(isinstance(one, dict) for one in inner):
            outside = {name: content for name, content in resources.items() if name != way}
            lacks = [_lack(_merged(outside, one)) for one in inner]
            if not all(lacks):
                return None
            messages = dict.fromkeys(lack.message for lack in lacks if lack)
            if len(messages) == 1:
                return Finding(("resources", way), next(iter(messages)))
            return Finding(("resources", way), "AWS has none of these: " + "; ".join(messages))
    lack = _lack(resources)
    return lack and lack._replace(at=("resources", *lack.at))


def _merged(outside: Mapping[str, Any], one: Mapping[str, Any]) -> dict[str, Any]:
    replaced = {other for name in one for other in SAME.get(name, ())}
    return {name: content for name, content in outside.items() if name not in replaced} | dict(one)


def _lack(values: Mapping[str, Any]) -> Finding | None:
    if elsewhere := other_cloud(values):
        return elsewhere
    for name in ("accelerators", "gpus"):
        try:
            if values.get(name) is not None:
                parse_accelerators(values[name])
        except PydanticCustomError as error:
            found = findings_of(error)
            if all(finding.is_lack for finding in found):
                return found[0]._replace(at=(name, *found[0].at))
    return None
