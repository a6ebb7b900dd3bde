"""Which code is mutated: the modules, the places in them, and what is left out, with the reasons."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

PACKAGE = ROOT / "spotrelay" / "plane"
PREFIX = "spotrelay.plane."
"""Whose modules are mutated; they are named without it."""

TOP = "<module>"
"""The scope of what stands in no function and no class."""

TEXTS = {
    "spotrelay.plane.placement.plan": frozenset({"_words", "_words_of", "in_words", "shown"}),
}
"""By module, functions that only word a decision for people: no decision reads what they return."""


def modules() -> list[str]:
    """The modules of the decision core: whatever decides, and what carries it out in order."""
    rooms = ("control", "events", "placement", "serving")
    paths = [path for room in rooms for path in sorted((PACKAGE / room).glob("*.py"))]
    found = ["spotrelay.plane.core.rows", "spotrelay.plane.core.timing", "spotrelay.plane.events"]
    found += [f"{PREFIX}{path.parent.name}.{path.stem}" for path in paths if path.stem != "__init__"]
    return [module for module in found if module != "spotrelay.plane.placement.surveying"]


JUDGES = ("spotrelay", "lab/sim", "tests/unit", "tests/contract", "tests/sim", "tests/mutants")
"""What a verdict depends on."""


def digest() -> str:
    """Of all code that a verdict depends on: the same verdicts come of the same code."""
    found = hashlib.sha256()
    for path in sorted(path for room in JUDGES for path in (ROOT / room).rglob("*.py")):
        found.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return found.hexdigest()


def path_of(module: str) -> Path:
    """The file of a module, or of a package's own code."""
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def module_of(path: Path) -> str:
    """The module of a file, or the package whose own code it is."""
    name = path.parent if path.name == "__init__.py" else path.with_suffix("")
    return ".".join(name.relative_to(ROOT).parts)


@dataclass(frozen=True, slots=True)
class Site:
    """A node of a module's tree, and where it hangs."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    """Its position if the parent's field is a list."""
    scope: str
    """The function or class around it, as `__qualname__` has it."""
    function: ast.FunctionDef | None
    """The innermost function around it."""


def sites(module: str, tree: ast.Module) -> Iterator[Site]:
    """Every place where a mistake may be put, in the order of the source."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    walk = _Walk(
        texts=TEXTS.get(module, frozenset()),
        only_log=frozenset(f.name for f in functions if _is_only_log(f)),
        ends=frozenset(id(end) for f in functions for end in _ends(f.body)),
    )
    yield from walk.below(tree, TOP, None)


@dataclass(frozen=True, slots=True)
class _Walk:
    """What has to be known of a module to tell what is left out of it."""

    texts: frozenset[str]
    only_log: frozenset[str]
    """Functions that do nothing but write a log line."""
    ends: frozenset[int]
    """Identities of the statements after which their function ends anyway."""

    def below(self, node: ast.AST, scope: str, function: ast.FunctionDef | None) -> Iterator[Site]:
        """The places within a node."""
        for field, index, child in _children(node):
            if self._is_left_out(child, node, field, scope):
                continue
            yield Site(child, node, field, index, scope, function)
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inner = child.name if scope == TOP else f"{scope}.{child.name}"
                within = child if isinstance(child, ast.FunctionDef) else function
                yield from self.below(child, inner, within)
            else:
                yield from self.below(child, scope, function)

    def _is_left_out(self, node: ast.AST, parent: ast.AST, field: str, scope: str) -> bool:
        return (
            _is_declaration(node, parent, field, scope)
            or _is_prose(node, parent, field)
            or _is_log(node, self.only_log)
            or _is_guard(node)
            or self._changes_nothing(node)
            or (isinstance(node, ast.FunctionDef) and node.name in self.texts)
        )

    def _changes_nothing(self, node: ast.AST) -> bool:
        """`return None` where the function would return None anyway, and a `case _` that holds only that."""
        if isinstance(node, ast.match_case) and isinstance(node.pattern, ast.MatchAs):
            return node.pattern.pattern is None and self._changes_nothing(node.body[0])
        if not isinstance(node, ast.Return) or id(node) not in self.ends:
            return False
        return node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)


def _is_declaration(node: ast.AST, parent: ast.AST, field: str, scope: str) -> bool:
    """Imports, `__all__`, annotations, aliases, decorators, bases: mypy and the first import hold these."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    if field in ("annotation", "returns", "decorator_list", "bases"):
        return True
    if isinstance(node, ast.Assign) and scope == TOP and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        return name == "__all__" or (name[0].isupper() and not name.isupper())
    return False


def _is_prose(node: ast.AST, parent: ast.AST, field: str) -> bool:
    """Docstrings, f-strings and what an error says: words for people. (Whether it is raised is not.)"""
    is_docstring = (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
    return is_docstring or isinstance(node, ast.JoinedStr) or isinstance(parent, ast.Raise)


def _is_log(node: ast.AST, only_log: frozenset[str]) -> bool:
    """What only feeds a log line: `telemetry.record(...)`, and what is gathered as `facts` for one.

    Metrics (`telemetry.count`) are mutated: alarms go by them.
    """
    match node:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr="record"))):
            return ast.unparse(owner).endswith("telemetry")
        case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
            return name in only_log
        case ast.Assign(targets=[target]) | ast.AugAssign(target=target) | ast.AnnAssign(target=target):
            target = target.value if isinstance(target, ast.Subscript) else target
            return isinstance(target, ast.Name) and target.id == "facts"
        case _:
            return False


def _is_guard(node: ast.AST) -> bool:
    """What only forbids and never decides: `assert`, and `strict=True` of `zip`."""
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return isinstance(node.value, ast.Constant) and node.value.value is True
    return isinstance(node, ast.Assert)


def _is_only_log(function: ast.FunctionDef) -> bool:
    body = [s for s in function.body if not _is_prose(s, function, "body")]
    return all(_is_log(statement, frozenset()) for statement in body)


def _ends(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements after which nothing more follows."""
    if not body:
        return
    last = body[-1]
    yield last
    if isinstance(last, ast.If):
        yield from _ends(last.body)
        yield from _ends(last.orelse)
    elif isinstance(last, ast.Match):
        for case in last.cases:
            yield from _ends(case.body)


def _children(node: ast.AST) -> Iterator[tuple[str, int | None, ast.AST]]:
    for field, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield field, None, value
        elif isinstance(value, list):
            yield from ((field, index, v) for index, v in enumerate(value) if isinstance(v, ast.AST))
