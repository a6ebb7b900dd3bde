"""From a file to plain values, with the line and column of every one of them.

ruamel.yaml parses (YAML 1.2: `yes` and `on` are text, `010` is ten). We build the values from its nodes, not
from its loader, for three things that no loader gives together: the place of *every* entry, list items
included; all duplicate keys at once, not the first; and the text of a scalar as it was written, so that
`envs: {VERSION: 1.10}` stays `1.10`.
"""

from __future__ import annotations

import difflib
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.composer import ComposerError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from spotrelay.file.source.errors import MalformedServiceFileError, Problem, UnreadableServiceFileError
from spotrelay.messages import shown

STANDARD_INPUT = "-"
"""The path that stands for it."""

Location = tuple[str | int, ...]
"""The way to a value: `("resources", "accelerators", 0)`."""

MAX_FILE_BYTES = 262_144
"""Longer scripts belong into files of `workdir`; with any amount of comment a service stays far below."""

MAX_NODES = 10_000
"""A few aliases can make an endless tree out of a small file, and no service has so many values."""

MAX_DEPTH = 50
"""Far below the depth at which Python gives up."""

MAX_NUMBER = 1000
"""Characters of a number; a longer one is text. Python can't print numbers of some thousands of digits."""

_REPLACED_LATER = {
    "{{resolve:": "CloudFormation would put a value there, in the clear: name a secret under `secrets`",
    "${Token[": "it is the CDK's mark for a value of its own: give the variable another name",
    "#{Token[": "it is the CDK's mark for a list of its own: write it in another way",
}
"""What wouldn't reach an instance as it was written, and what to do instead."""

_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "y"), True),
    **dict.fromkeys(("false", "no", "off", "n"), False),
}
"""Words that a file makes booleans by `!!bool` or `%YAML 1.1`, besides YAML 1.2's own two."""

_TAG = "tag:yaml.org,2002:"
_KNOWN_TAGS = {
    _TAG + name for name in ("map", "set", "seq", "str", "int", "float", "bool", "null", "timestamp")
}


class Place(NamedTuple):
    """Where something begins, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Document:
    """A service file's values and where they stand."""

    file: str
    values: dict[str, Any]
    places: Mapping[Location, Place]
    """Of every entry, by its location in the file."""
    plain: frozenset[Location] = frozenset()
    """Of what keeps its text, the values that stand without quotes."""
    origins: Mapping[Location, Location] = field(default_factory=dict)
    """Location in `values` → location in the file, where the two differ: see `spotrelay.file.dialects`."""

    @property
    def stem(self) -> str:
        """The file's name without its suffix; empty where there is no file."""
        return "" if self.file == STANDARD_INPUT else Path(self.file).stem

    def in_file(self, location: Location) -> Location:
        """Where the file has, or would have, what is at this location in `values`."""
        for length in range(len(location), 0, -1):
            if origin := self.origins.get(location[:length]):
                return (*origin, *location[length:])
        return location

    def problem(self, location: Location, message: str) -> Problem:
        """A problem at a location in `values`, told in the file's own words."""
        for canonical, origin in self.origins.items():
            own = field_name(origin).replace("\\", r"\\")
            message = re.sub(rf"{re.escape(field_name(canonical))}(?!\w)", own, message)
        return self.problem_in_file(self.in_file(location), message)

    def problem_in_file(self, location: Location, message: str) -> Problem:
        """A problem at a location in the file: at its place, or at that of what encloses it."""
        place = self.places.get(location)
        enclosing = location
        while place is None and enclosing:
            enclosing = enclosing[:-1]
            place = self.places.get(enclosing)
        line, column = place or Place(1, 1)
        return Problem(self.file, line, field_name(location), message, column)


def field_name(location: Location) -> str:
    """The location as the user would say it: `resources.accelerators[0]`."""
    name = ""
    for step in location:
        # A key may hold anything, and this goes to a terminal, on one line.
        shown_step = repr(step) if isinstance(step, str) and not step.isprintable() else step
        name += f"[{step}]" if isinstance(step, int) else f".{shown_step}" if name else str(shown_step)
    return name


def read(path: Path, *, as_written: frozenset[str] = frozenset()) -> Document:
    """Read a file whose root is a mapping; scalars in the sections `as_written` keep their text.

    Raises:
        UnreadableServiceFileError: there is no text in it, or none that can be read.
        MalformedServiceFileError: it isn't YAML, or has duplicate keys, tags or merge keys.
    """
    file = str(path)
    text = _text(path)
    try:
        root = YAML(typ="rt", pure=True).compose(text)
    except ComposerError as error:
        if error.context != "expected a single document in the stream":
            raise MalformedServiceFileError([_not_yaml(file, error)]) from error
        mark = error.problem_mark
        message = "a second document begins here: one service per file, split it"
        problem = Problem(file, mark.line + 1, "", message, mark.column + 1)
        raise MalformedServiceFileError([problem]) from error
    except MarkedYAMLError as error:
        raise MalformedServiceFileError([_not_yaml(file, error)]) from error
    except YAMLError as error:  # a character that YAML doesn't allow
        reason = str(error).splitlines()[0]
        raise MalformedServiceFileError([Problem(file, None, "", f"not YAML: {reason}")]) from error
    except RecursionError as error:
        raise MalformedServiceFileError([Problem(file, None, "", "nested too deeply")]) from error
    if root is None:
        message = "is empty: expected at least `service`, `resources` and `run`"
        raise UnreadableServiceFileError([Problem(file, None, "", message)])
    builder = _Builder(file, as_written)
    values = builder.build(root, ())
    if builder.problems:
        raise MalformedServiceFileError(builder.problems)
    if not isinstance(values, dict):
        message = f"expected fields (`service:`, `resources:`, `run:` …), got {shown(values)}"
        raise MalformedServiceFileError([Problem(file, 1, "", message, 1)])
    return Document(file, values, builder.places, frozenset(builder.plain))


def replaced_later(text: str) -> Iterator[str]:
    """Why this text wouldn't reach an instance as it is."""
    return (f"{found} can't stand here: {why}" for found, why in _REPLACED_LATER.items() if found in text)


def _text(path: Path) -> str:
    def unreadable(message: str, line: int | None = None) -> UnreadableServiceFileError:
        return UnreadableServiceFileError([Problem(str(path), line, "", message)])

    try:
        if str(path) == STANDARD_INPUT:
            if sys.stdin is None:
                raise unreadable("standard input is closed: give it a service file's text")
            content = sys.stdin.buffer.read(MAX_FILE_BYTES + 1)
        elif (what := _no_file(path.stat().st_mode)) is not None:
            raise unreadable(f"is {what}, not a file: give its text on standard input, with -")
        else:
            with path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError as error:
        if path.is_symlink():
            raise unreadable(f"is a symbolic link to {path.readlink()}, which isn't there") from error
        raise unreadable(f"no such file{_neighbours(path)}") from error
    except OSError as error:
        raise unreadable(f"can't be read: {error.strerror}") from error
    if len(content) > MAX_FILE_BYTES:
        raise unreadable(f"is larger than {MAX_FILE_BYTES} bytes: that is no service file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        message = f"not UTF-8 (byte 0x{content[error.start]:02x}): save the file with UTF-8 encoding"
        raise unreadable(message, line) from error


def _no_file(mode: int) -> str | None:
    """What can't be opened without waiting for somebody, or has no end."""
    kinds = {
        "a pipe": stat.S_ISFIFO,
        "a device": lambda mode: stat.S_ISCHR(mode) or stat.S_ISBLK(mode),
        "a socket": stat.S_ISSOCK,
    }
    return next((what for what, matches in kinds.items() if matches(mode)), None)


def _neighbours(path: Path) -> str:
    """Where the name looks like a slip, the file that was probably meant."""
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml")]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.75)
    return f": did you mean {path.parent / close[0]}?" if close else ""


def _not_yaml(file: str, error: MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    reason = " ".join(part for part in (error.problem, error.context) if part)
    if error.problem and "'\\t'" in error.problem:
        reason += ": indent with spaces, not tabs"
    line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
    return Problem(file, line, "", f"not YAML: {reason}", column)


@dataclass(slots=True)
class _Builder:
    """Turns nodes into values, and collects what has no place in a service file."""

    file: str
    as_written: frozenset[str]
    places: dict[Location, Place] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    plain: set[Location] = field(default_factory=set)
    nodes: int = 0
    seen: set[int] = field(default_factory=set)
    has_aliases: bool = False

    def build(self, node: Node, at: Location) -> Any:
        self.nodes += 1
        self.has_aliases |= id(node) in self.seen
        self.seen.add(id(node))
        if self.nodes > MAX_NODES or len(at) > MAX_DEPTH:
            message = (
                "too large once its aliases are followed: write the values out"
                if self.has_aliases
                else f"has more than {MAX_NODES} values: that is no service file"
                if self.nodes > MAX_NODES
                else f"is nested more than {MAX_DEPTH} deep: no field of a service is"
            )
            line, column = _place(node)
            raise MalformedServiceFileError([Problem(self.file, line, "", message, column)])
        self.places.setdefault(at, _place(node))
        if str(node.tag) not in _KNOWN_TAGS:
            self._problem(node, at, f"YAML tag {node.tag} has no meaning in a service file: remove it")
            return None
        if isinstance(node, MappingNode):
            return self._mapping(node, at)
        if isinstance(node, SequenceNode):
            return [self.build(item, (*at, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, at)

    def _mapping(self, node: MappingNode, at: Location) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                self._problem(key_node, at, "expected a plain name as key")
                continue
            key = self._text(key_node, at)
            if str(key_node.tag) == _TAG + "merge":
                self._problem(key_node, at, "merge keys (<<) are not supported: write the fields out")
                continue
            here = (*at, key)
            if key in values:
                first = self.places[here].line
                self._problem(key_node, here, f"stands here twice, first in line {first}: remove one")
                continue
            self.places[here] = _place(key_node)
            values[key] = self.build(value_node, here)
        return values

    def _scalar(self, node: Node, at: Location) -> Any:
        text, kind = self._text(node, at), str(node.tag).removeprefix(_TAG)
        if kind == "null":
            return None
        if at and at[0] in self.as_written and isinstance(node, ScalarNode) and node.style is None:
            self.plain.add(at)
        if (at and at[0] in self.as_written) or len(text) > MAX_NUMBER:
            return text
        try:
            match kind:
                case "bool":
                    return _BOOLEANS.get(text.lower(), text)
                case "int":
                    return int(text, 10) if text.lstrip("+-").isdigit() else int(text.replace("_", ""), 0)
                case "float":
                    return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
                case _:
                    return text
        except ValueError:  # such as `0x`: no field takes it, and the schema will say so
            return text

    def _text(self, node: Node, at: Location) -> str:
        """The scalar's text, with each pair of surrogates as the one character that it stands for.

        JSON writes characters beyond U+FFFF as such pairs (`"\\ud83e\\udd99"`), and JSON is YAML.
        """
        text = str(node.value)
        for message in replaced_later(text):
            self._problem(node, at, message)
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            message = "has half of a surrogate pair, which is no character: write the character itself"
            self._problem(node, at, message)
            return ""

    def _problem(self, node: Node, at: Location, message: str) -> None:
        line, column = _place(node)
        self.problems.append(Problem(self.file, line, field_name(at), message, column))


def _place(node: Node) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1)
