"""`$NAME` and `${NAME}` in a service file: the values of envs, wherever SkyServe puts them.

In SkyServe's format an unknown name stays as it is, and there is no escape for a dollar sign. In SpotRelay's
format an unknown name in the probe is an error, and `$$` is a dollar sign.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Mapping
from typing import Any

from spotrelay.file.source.document import Location
from spotrelay.file.source.draft import Dialect, Draft
from spotrelay.messages import did_you_mean, shown

_SECTIONS = ("service", "file_mounts", "workdir")
"""Where SkyServe substitutes. Scripts get variables from their environment."""

_PROBE: Location = ("service", "readiness_probe")

_VARIABLE = re.compile(r"\$\{?\b([A-Za-z_][A-Za-z0-9_]*)\b\}?")
"""As SkyPilot has it."""


def substitute(draft: Draft) -> None:
    """Put values for the names, and say which names can't have one."""
    data: Location = (*_PROBE, "post_data")
    if isinstance(text := draft.get(data), str):
        # Inside of JSON text, a value with a quotation mark would end the text that it stands in.
        try:
            draft.get(_PROBE)["post_data"] = json.loads(text)
        except (ValueError, RecursionError):
            return  # the schema refuses it
    envs = {name: value for name, value in draft.section("envs").items() if isinstance(value, str)}
    secrets = draft.section("secrets")
    if draft.dialect is Dialect.SPOTRELAY:
        _in_our_words(draft, envs, secrets)
    skys = _Skys(draft, envs, secrets)
    for section in _SECTIONS:
        if section not in draft.values:
            continue
        if section == "service" and draft.dialect is Dialect.SPOTRELAY:
            continue
        draft.values[section] = _each(draft.values[section], (section,), skys.replace)


def _in_our_words(draft: Draft, envs: Mapping[str, str], secrets: Mapping[str, Any]) -> None:
    port = draft.get(("service", "ports")) or draft.get(("resources", "ports"))
    if isinstance(port, list) and len(port) == 1:
        (port,) = port
    known = {**({"PORT": str(port)} if isinstance(port, int | str) else {}), **envs}
    ours = _Ours(draft, known, secrets)
    if isinstance(draft.get(_PROBE), str):
        draft.put(_PROBE, ours.replace(draft.get(_PROBE), _PROBE), _PROBE)
    for name in ("path", "post_data"):
        if draft.has((*_PROBE, name)):
            draft.get(_PROBE)[name] = _each(draft.get((*_PROBE, name)), (*_PROBE, name), ours.replace)


def _each(value: Any, at: Location, replace: Callable[[str, Location], str]) -> Any:
    match value:
        case str():
            return replace(value, at)
        case list():
            return [_each(item, (*at, index), replace) for index, item in enumerate(value)]
        case dict():
            return {
                (replace(key, at) if at[0] == "file_mounts" else key): _each(item, (*at, key), replace)
                for key, item in value.items()
            }
        case _:
            return value


class _Skys:
    """As SkyServe does it."""

    def __init__(self, draft: Draft, values: Mapping[str, str], secrets: Mapping[str, Any]) -> None:
        self._draft, self._values, self._secrets = draft, values, secrets

    def replace(self, text: str, at: Location) -> str:
        def value(match: re.Match[str]) -> str:
            name = match[1]
            if name in self._secrets:
                self._draft.problem(self._draft.origins.get(at, at), _secret(name))
            return self._values.get(name, match[0])

        return _VARIABLE.sub(value, text)


class _Ours:
    """As SpotRelay's files have always had it in the probe."""

    def __init__(self, draft: Draft, values: Mapping[str, str], secrets: Mapping[str, Any]) -> None:
        self._draft, self._values, self._secrets = draft, values, secrets

    def replace(self, text: str, at: Location) -> str:
        try:
            return string.Template(text).substitute(self._values)
        except KeyError as error:
            name = str(error.args[0])
            if name in self._secrets:
                message = _secret(name)
            else:
                hint = did_you_mean(name, list(self._values))
                message = (
                    f"${name} isn't defined under envs{hint}: define it there, or write $$ for a dollar sign"
                )
        except ValueError:
            message = f"a $ without a name in {shown(text)}: write $$ for a dollar sign"
        self._draft.problem(at, message)
        return text


def _secret(name: str) -> str:
    return f"${name} is a secret, and this is stored in the clear: leave it out"
