"""The names of code that docstrings, comments and pages mention, held against the code itself."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

from .blocks import ROOT

FOLDERS = ("lab", "lambdas", "scripts", "spotrelay", "stacks", "tests")
"""Where the repository's Python is."""

WITHOUT_MEMBERS = frozenset({"Enum", "Exception", "NamedTuple", "Protocol", "StrEnum"})
"""Bases that aren't ours and give a class nothing that anybody names."""

DOTTED = re.compile(r"`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)(?:\(\))?`")
PRIVATE = re.compile(r"`(_[a-z]\w{2,})(?:\(\))?`")
PATH = re.compile(rf"`((?:{'|'.join(FOLDERS)}|docs|services)/[a-z0-9_/-]+(?:\.(?:md|py|toml|yaml))?)`")


@dataclass(frozen=True, slots=True)
class Said:
    """What a docstring, a comment or a page says, and where."""

    file: Path
    line: int
    text: str

    def at(self, offset: int) -> str:
        """File and line of a place in the text."""
        return f"{self.file.relative_to(ROOT)}:{self.line + self.text.count(chr(10), 0, offset)}"


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
    identifiers: dict[str, set[str]] = field(default_factory=dict)
    """By module: every name in it."""
    foreign: set[str] = field(default_factory=set)
    """What is imported from elsewhere, and where from: of these names nothing is known."""

    def add(self, module: str, tree: ast.Module) -> None:
        """Take in one module."""
        self.modules[module] = set(_defined(tree.body))
        self.by_last[module.split(".")[-1]].append(module)
        own = self.identifiers[module] = set[str]()
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self.members[node.name] |= set(_defined(node.body)) | set(_of_self(node))
                self.bases[node.name] |= {
                    ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases
                }
            elif isinstance(node, ast.Attribute):
                own.add(node.attr)
                value = node.value
                before = value.func if isinstance(value, ast.Call) else value
                name = getattr(before, "id", None) or getattr(before, "attr", None)
                if name:
                    self.accesses.add((name, node.attr))
            elif isinstance(node, ast.Name):
                own.add(node.id)
            elif isinstance(node, ast.arg | ast.keyword):
                own.add(node.arg or "")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                own.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                own |= self._imported(node)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> set[str]:
        names = set()
        for alias in node.names:
            full = f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
            is_ours = (isinstance(node, ast.ImportFrom) and node.level) or full.split(".")[0] in FOLDERS
            names.add(full.split(".")[-1])
            if not is_ours:
                self.foreign |= {full.split(".")[0], full.split(".")[-1]}
        return names

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
        known.add(module_of(file), _tree(file))
    return known


def module_of(file: Path) -> str:
    """As it is imported."""
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def said_in(file: Path) -> Iterator[Said]:
    """Its docstrings, of attributes too, and its comments."""
    for node in ast.walk(_tree(file)):
        text = node.value if isinstance(node, ast.Expr) else None
        if isinstance(text, ast.Constant) and isinstance(text.value, str):
            yield Said(file, text.lineno, text.value)
    with tokenize.open(file) as source:
        for token in tokenize.generate_tokens(io.StringIO(source.read()).readline):
            if token.type == tokenize.COMMENT:
                yield Said(file, token.start[0], token.string)


def stale(said: Said, known: Code, own: Set[str], fields: frozenset[str]) -> Iterator[str]:
    """Each name that leads nowhere, with its place.

    `own` are the identifiers of the file itself: a private name alone is one of them. `fields` are those of a
    service file.
    """
    for found in DOTTED.finditer(said.text):
        name = found[1]
        first, last = name.split(".")[0], name.split(".")[-1]
        if first not in known.foreign and last not in ENDINGS and name not in fields and not known.has(name):
            yield f"{said.at(found.start())}: `{name}`"
    for found in PRIVATE.finditer(said.text):
        if found[1] not in own:
            yield f"{said.at(found.start())}: `{found[1]}`"
    yield from stale_paths(said)


def stale_on_page(said: Said, known: Code, fields: frozenset[str]) -> Iterator[str]:
    """The same of a page, where only a name that begins as ours do is taken for one."""
    for found in DOTTED.finditer(said.text):
        first, last = found[1].split(".")[0], found[1].split(".")[-1]
        # `spotrelay.surge` is a field of a service file.
        is_ours = first in known.members or ".".join(found[1].split(".")[:2]) in known.modules
        if is_ours and last not in ENDINGS and found[1] not in fields and not known.has(found[1]):
            yield f"{said.at(found.start())}: `{found[1]}`"
    yield from stale_paths(said)


def stale_paths(said: Said) -> Iterator[str]:
    """Each path of the repository that isn't there."""
    for found in PATH.finditer(said.text):
        path = ROOT / found[1]
        if not path.exists() and not path.with_suffix(".py").exists():
            yield f"{said.at(found.start())}: `{found[1]}`"


ENDINGS = frozenset(
    {"csv", "env", "html", "js", "json", "lock", "md", "py", "sh", "svg", "toml", "txt", "xlarge", "yaml"}
)
"""Of files and instance types: `cdk.json` and `g5.xlarge` are no names of code."""


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


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


def _of_self(node: ast.ClassDef) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self":
            yield one.attr
