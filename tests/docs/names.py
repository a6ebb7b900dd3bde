"""The names of code that docstrings, comments, messages and pages mention, held against the code itself."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from .blocks import ROOT

FOLDERS = ("lab", "lambdas", "scripts", "spotrelay", "stacks", "tests")
"""Where the repository's Python is."""

DOTTED = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
PRIVATE = re.compile(r"`(_[a-z]\w{2,})(?:\(\))?`")
PATH = re.compile(rf"`((?:{'|'.join(FOLDERS)}|docs|services)/[a-z0-9_/-]+(?:\.(?:md|py|toml|yaml))?)`")

ENDINGS = frozenset(
    {"csv", "env", "html", "js", "json", "lock", "md", "py", "sh", "svg", "toml", "txt", "xlarge", "yaml"}
)
"""Of files and instance types: `cdk.json` and `g5.xlarge` are no names of code."""

WITHOUT_MEMBERS = frozenset({"Enum", "Exception", "NamedTuple", "Protocol", "StrEnum"})
"""Bases that aren't ours and give a class nothing that anybody names."""

# What stands behind a backtick is a mention, and proves nothing.
_ACCESS = re.compile(r"(?<![`\w])(?=(\w+)(?:\(\w*\))?\.(\w+))")
_OWN = re.compile(r"(?<![`\w])(_[a-z]\w+)")
_OF_SELF = re.compile(r"\bself\.(\w+)")


@dataclass(slots=True)
class Code:
    """The names that code has."""

    modules: dict[str, set[str]] = field(default_factory=dict)
    """By module, in full: what stands at its top."""
    by_last: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Modules by the last part of their names."""
    members: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """By class, whatever its module: what it has."""
    bases: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    accesses: set[tuple[str, str]] = field(default_factory=set)
    """Each name and its attribute, as the code asks for it somewhere: a variable's, too."""
    foreign: set[str] = field(default_factory=set)
    """What is imported from elsewhere, and where from: of these names nothing is known."""

    def add(self, module: str, source: str) -> None:
        """Take in one module."""
        tree = ast.parse(source)
        self.modules[module] = set(_defined(tree.body))
        self.by_last[module.split(".")[-1]].append(module)
        self.accesses |= set(_ACCESS.findall(source))
        lines = source.splitlines()
        for node in _classes(tree.body):
            text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            self.members[node.name] |= {*_defined(node.body), *_OF_SELF.findall(text)}
            self.bases[node.name] |= {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
        for statement in tree.body:
            self.foreign |= set(_foreign(statement))

    def has(self, name: str) -> bool:
        """Whether the dotted name leads somewhere."""
        parts = name.split(".")
        if any(self._leads(parts[:end], parts[end:]) for end in range(len(parts), 0, -1)):
            return True
        if parts[0] in self.members and self._is_member(parts[0], parts[1]):
            return True
        return parts[0] not in FOLDERS and all(pair in self.accesses for pair in pairwise(parts))

    def _leads(self, module: list[str], rest: list[str]) -> bool:
        tail = "." + ".".join(module)
        found = [self.modules[full] for full in self.by_last.get(module[-1], ()) if f".{full}".endswith(tail)]
        if not rest:
            return bool(found)
        return any(rest[0] in names for names in found) and (
            len(rest) == 1 or rest[0] not in self.members or self._is_member(rest[0], rest[1])
        )

    def _is_member(self, of: str, name: str) -> bool:
        """Of the class or of those that it extends; one that isn't ours may have anything."""
        if name in self.members[of]:
            return True
        return any(
            base not in self.members or self._is_member(base, name)
            for base in self.bases[of] - {of} - WITHOUT_MEMBERS
        )


def code(files: Iterable[Path]) -> Code:
    """The names of these files."""
    known = Code()
    for file in files:
        parts = file.relative_to(ROOT).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        known.add(module, file.read_text(encoding="utf-8"))
    return known


def stale(text: str, known: Code, fields: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Each name that leads nowhere in a module, with its line; `fields` are those of a service file."""
    own = set(_OWN.findall(text))
    for found in DOTTED.finditer(text):
        first, last = found[1].split(".")[0], found[1].split(".")[-1]
        is_other = first in known.foreign or last in ENDINGS or found[1] in fields
        if not is_other and not known.has(found[1]):
            yield _line(text, found), found[1]
    for found in PRIVATE.finditer(text):
        if found[1] not in own:
            yield _line(text, found), found[1]
    yield from _stale_paths(text)


def stale_on_page(text: str, known: Code, fields: frozenset[str]) -> Iterator[tuple[int, str]]:
    """The same of a page, where only a name that begins as ours do is taken for one."""
    for found in DOTTED.finditer(text):
        parts = found[1].split(".")
        # `spotrelay.surge` is a field of a service file.
        is_ours = parts[0] in known.members or ".".join(parts[:2]) in known.modules
        if is_ours and parts[-1] not in ENDINGS and found[1] not in fields and not known.has(found[1]):
            yield _line(text, found), found[1]
    yield from _stale_paths(text)


def _stale_paths(text: str) -> Iterator[tuple[int, str]]:
    for found in PATH.finditer(text):
        path = ROOT / found[1]
        if not path.exists() and not path.with_suffix(".py").exists():
            yield _line(text, found), found[1]


def _line(text: str, found: re.Match[str]) -> int:
    return text.count("\n", 0, found.start()) + 1


def _classes(body: Iterable[ast.stmt]) -> Iterator[ast.ClassDef]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield node
            yield from _classes(node.body)


def _defined(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.If | ast.Try):
            yield from _defined(node.body)


def _foreign(node: ast.stmt) -> Iterator[str]:
    if not isinstance(node, ast.Import | ast.ImportFrom) or (isinstance(node, ast.ImportFrom) and node.level):
        return
    for alias in node.names:
        full = f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        if full.split(".")[0] not in FOLDERS:
            yield from (full.split(".")[0], full.split(".")[-1])
