"""Docstrings, comments and pages name code that exists, and docstrings say something."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from spotrelay.service.reference import entries

from .blocks import ROOT, pages
from .names import FOLDERS, Code, Said, code, module_of, said_in, stale, stale_on_page

FILES = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]

PORTS = ("spotrelay/core/ports.py", "spotrelay/accounting/ports.py")
"""Where the methods of ports are documented."""

ADAPTERS = (
    "spotrelay/aws",
    "spotrelay/memory.py",
    "lab/replay/ports.py",
    "lab/sim/gate.py",
    "lab/sim/load.py",
    "lab/sim/ports.py",
    "lab/sim/store.py",
)
"""Where ruff asks for no docstring of a method (D102 in pyproject.toml)."""

NOT_YET = ("spotrelay/serving/actions.py", "spotrelay/control/controller.py", "tests/e2e/emitted.py")
"""Where docstrings still only point elsewhere."""


@cache
def known() -> Code:
    """All names of the repository's code."""
    return code(FILES)


@cache
def fields() -> frozenset[str]:
    """The fields of a service file, such as `resources.cpus`."""
    return frozenset(entries())


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_and_comments_name_code_that_exists(folder: str) -> None:
    """`module.name`, `Class.member`, a file's own `_private` and paths: what was renamed is found here."""
    files = [file for file in FILES if file.is_relative_to(ROOT / folder)]
    wrong = [
        why
        for file in files
        for said in said_in(file)
        for why in stale(said, known(), known().identifiers[module_of(file)], fields())
    ]
    assert wrong == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_code_that_exists(page: Path) -> None:
    """What they write as code of ours; a decision's record shows how things were on its day."""
    said = Said(page, 1, page.read_text(encoding="utf-8"))
    assert list(stale_on_page(said, known(), fields())) == []


@pytest.mark.parametrize(
    ("text", "is_stale"),
    [
        ("see `placement.cooldowns`", False),
        ("see `policy.cooldowns`", True),
        ("`cooldowns.no_such_name`", True),
        ("`spotrelay.core.ports.Fleet.launch()`", False),
        ("`spotrelay.core.ports.Fleet.lunch`", True),
        ("`Replica.is_warned`", False),
        ("`Replica.is_warmed`", True),
        ("`resources.cpus`, a service file's", False),
        ("`g5.xlarge` and `cdk.json`", False),
        ("`boto3.Session.client`", False),
        ("`_own_function`", False),
        ("`_for_warned`", True),
        ("`spotrelay/core/ports.py`", False),
        ("`spotrelay/core/prots.py`", True),
    ],
)
def test_a_stale_name_is_found(text: str, is_stale: bool) -> None:
    """And what only looks like one isn't."""
    found = list(stale(Said(ROOT / "spotrelay" / "x.py", 7, text), known(), {"_own_function"}, fields()))
    assert bool(found) == is_stale
    assert all(why.startswith("spotrelay/x.py:7: ") for why in found)


def documented(tree: ast.AST) -> list[tuple[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Each class and function, with its docstring; empty if it has none."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [(node, ast.get_docstring(node) or "") for node in ast.walk(tree) if isinstance(node, kinds)]


def test_no_docstring_only_points_elsewhere() -> None:
    """A docstring says what the thing is or does; whoever reads it shouldn't have to open another file."""
    found = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {said}"
        for file in FILES
        if str(file.relative_to(ROOT)) not in NOT_YET
        for node, said in documented(ast.parse(file.read_text(encoding="utf-8")))
        if said.startswith("See ")
    ]
    assert found == []


def test_only_a_ports_method_may_lack_its_docstring() -> None:
    """Ruff asks for none in the adapters; whatever isn't declared by a port has one all the same."""
    declared = {
        method.name
        for file in PORTS
        for port in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
        if isinstance(port, ast.ClassDef)
        for method in port.body
        if isinstance(method, ast.FunctionDef) and ast.get_docstring(method)
    }
    silent = [
        f"{file.relative_to(ROOT)}:{method.lineno}: {method.name}"
        for file in FILES
        if any(file.is_relative_to(ROOT / adapter) for adapter in ADAPTERS)
        for owner in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(owner, ast.ClassDef) and not owner.name.startswith("_")
        for method in owner.body
        if isinstance(method, ast.FunctionDef)
        and not method.name.startswith("_")
        and not ast.get_docstring(method)
        and method.name not in declared
    ]
    assert silent == []
