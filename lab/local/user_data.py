"""Reads an instance's user data: the cloud-config that SpotRelay compiles a service into.

The local cloud doesn't run cloud-init: it takes the files that matter out of `write_files` and runs them.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import zlib
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

DIRECTORY = "/opt/spotrelay"
ENVIRONMENT_FILE = f"{DIRECTORY}/service.env"
RUN_SCRIPT = f"{DIRECTORY}/run.sh"

_CLOUD_CONFIG = "#cloud-config"
_BASE64 = frozenset({"b64", "base64"})
_GZIP = frozenset({"gz+b64", "gz+base64", "gzip+b64", "gzip+base64"})
_PLAIN = frozenset({"", "text/plain"})

# systemd's EnvironmentFile: KEY="value" with backslash escapes, KEY='value' without, or KEY=value.
_ASSIGNMENT = re.compile(
    r"""^[ \t]*(?P<key>[A-Za-z_][A-Za-z0-9_]*)=
        (?:"(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>[^']*)' | (?P<bare>[^"'\n][^\n]*|))
        [ \t]*$""",
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(\n|.)", re.DOTALL)


class UserDataError(ValueError):
    """User data that claims to be a cloud-config and can't be read as one."""


@dataclass(frozen=True, slots=True)
class ServiceFiles:
    """What an instance of ours runs, for ever, and what that needs."""

    run: str
    environment: dict[str, str] = field(default_factory=dict)
    others: dict[str, str] = field(default_factory=dict)
    """Scripts that it calls, or that run before it, by their path below its directory."""

    @property
    def reach_console(self) -> bool:
        """Whether what they say is on the instance's console, too: systemd writes it to its journal alone."""
        return any("/dev/console" in text for text in self.others.values())


def parse(user_data: str) -> ServiceFiles | None:
    """Reads user data, plain or in base64 as launch templates carry it.

    Returns None if it isn't SpotRelay's: empty, a shell script, or a cloud-config without our run.sh.
    Raises UserDataError if it is a cloud-config that can't be read.
    """
    text = _plain(user_data)
    if text.partition("\n")[0].strip() != _CLOUD_CONFIG:
        return None
    try:
        document = YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise UserDataError(f"user data: the cloud-config is not valid YAML: {error}") from error
    files = _files(document)
    if RUN_SCRIPT not in files:
        return None
    return ServiceFiles(
        run=files[RUN_SCRIPT],
        environment=parse_environment(files.pop(ENVIRONMENT_FILE, "")),
        others={
            path.removeprefix(f"{DIRECTORY}/"): content
            for path, content in files.items()
            if path != RUN_SCRIPT
        },
    )


def parse_environment(text: str) -> dict[str, str]:
    """Reads KEY="VALUE" lines as systemd's EnvironmentFile does: no expansion, later lines win.

    Raises UserDataError naming the line that is no assignment.
    """
    values: dict[str, str] = {}
    position = 0
    while position < len(text):
        end_of_line = text.find("\n", position)
        line = text[position:] if end_of_line < 0 else text[position:end_of_line]
        if not line.strip() or line.lstrip()[0] in "#;":
            position += len(line) + 1
            continue
        match = _ASSIGNMENT.match(text, position)
        if match is None:
            number = text.count("\n", 0, position) + 1
            raise UserDataError(f'{ENVIRONMENT_FILE}, line {number}: expected KEY="VALUE", got {line!r}')
        values[match["key"]] = _value(match)
        position = match.end() + 1
    return values


def _value(match: re.Match[str]) -> str:
    if match["double"] is not None:
        return _ESCAPE.sub(_unescape, match["double"])
    if match["single"] is not None:
        return match["single"]
    return match["bare"].strip()


def _unescape(match: re.Match[str]) -> str:
    character = match[1]
    if character == "\n":
        return ""
    # Like a shell, systemd keeps a backslash before anything it needn't escape.
    return character if character in '"\\`$' else match[0]


def _plain(user_data: str) -> str:
    if user_data.lstrip().startswith("#"):
        return user_data
    try:
        return base64.b64decode(user_data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return user_data


def _files(document: Any) -> dict[str, str]:
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise UserDataError(f"user data: a cloud-config is a mapping, this is a {type(document).__name__}")
    entries = document.get("write_files") or []
    if not isinstance(entries, list):
        raise UserDataError(f"user data: write_files is a list, this is a {type(entries).__name__}")
    files: dict[str, str] = {}
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
            raise UserDataError(f"user data: write_files[{number}] has no path")
        if not entry["path"].startswith(f"{DIRECTORY}/") or ".." in entry["path"].split("/"):
            continue
        files[entry["path"]] = _content(entry, f"write_files[{number}] ({entry['path']})")
    return files


def _content(entry: dict[str, Any], place: str) -> str:
    content, encoding = entry.get("content") or "", entry.get("encoding") or ""
    if not isinstance(content, str):
        raise UserDataError(f"user data: {place}: content is text, this is a {type(content).__name__}")
    if encoding in _PLAIN:
        return content
    if encoding not in _BASE64 | _GZIP:
        raise UserDataError(
            f"user data: {place}: encoding {encoding!r} is unknown here; use b64, gz+b64 or none"
        )
    try:
        decoded = base64.b64decode(content, validate=True)
        return (gzip.decompress(decoded) if encoding in _GZIP else decoded).decode()
    except (binascii.Error, UnicodeDecodeError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserDataError(f"user data: {place}: not base64 of UTF-8 text: {error}") from error
