"""Docstrings, comments and pages name code that exists, and docstrings say something."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from spotrelay.file.reference import entries

from .blocks import ROOT, pages
from .names import FOLDERS, code, stale, stale_on_page

FILES = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]

PORTS = ("spotrelay/plane/core/ports.py", "spotrelay/plane/accounting/ports.py")
"""Where the methods of ports are documented."""

ADAPTERS = (
    "spotrelay/operator/aws",
    "spotrelay/plane/aws",
    "spotrelay/plane/memory.py",
    "lab/replay/ports.py",
    "lab/sim/gate.py",
    "lab/sim/load.py",
    "lab/sim/ports.py",
    "lab/sim/store.py",
)
"""Where ruff asks for no docstring of a method (D102 in pyproject.toml)."""

SKIPPED = (Path(__file__), ROOT / "lab" / "local" / "ministack.py")
"""This file shows stale names itself; the other one names MiniStack's, which it imports by their text."""


@cache
def fields() -> frozenset[str]:
    """The fields of a service file, such as `resources.cpus`."""
    return frozenset(entries())


def test_what_is_named_exists() -> None:
    """`module.name`, `Class.member`, a file's own private names and paths: what was renamed is found here.

    In docstrings, comments, messages and pages. A decision's record shows how things were on its day.
    """
    known = code(FILES)
    found = {
        file: stale(file.read_text(encoding="utf-8"), known, fields())
        for file in FILES
        if file not in SKIPPED
    }
    found |= {page: stale_on_page(page.read_text(encoding="utf-8"), known, fields()) for page in pages()}
    wrong = [
        f"{file.relative_to(ROOT)}:{line}: {name}" for file, each in found.items() for line, name in each
    ]
    assert wrong == []


SOME = code(
    ROOT / "spotrelay" / file
    for file in ("plane/placement/cooldowns.py", "plane/core/ports.py", "plane/core/replica.py")
)


@pytest.mark.parametrize(
    ("text", "is_stale"),
    [
        ("see `placement.cooldowns`", False),
        ("see `policy.cooldowns`", True),
        ("`cooldowns.no_such_name`", True),
        ("`spotrelay.plane.core.ports.Fleet.launch()`", False),
        ("`spotrelay.plane.core.ports.Fleet.lunch`", True),
        ("`Replica.is_warned`", False),
        ("`Replica.is_warmed`", True),
        ("`resources.cpus`, a service file's", False),
        ("`g5.xlarge` and `cdk.json`", False),
        ("`dataclasses.replace`", False),
        ("`_own_function`, and def _own_function", False),
        ("`_for_warned`", True),
        ("`spotrelay/plane/core/ports.py`", False),
        ("`spotrelay/plane/core/prots.py`", True),
    ],
)
def test_a_stale_name_is_found(text: str, is_stale: bool) -> None:
    """And what only looks like one isn't."""
    assert bool([*stale(f"\n{text}", SOME, fields())]) == is_stale
    assert {line for line, _ in stale(f"\n{text}", SOME, fields())} <= {2}


def test_a_stale_name_on_a_page_is_found() -> None:
    """There, code of AWS's and fields of a service file stand, too."""
    page = "`spotrelay.surge`, `Status.Code` and `Replica.is_warned`\n\n`Replica.is_warmed`, `tests/nothing`"
    assert [*stale_on_page(page, SOME, fields())] == [(3, "Replica.is_warmed"), (3, "tests/nothing")]


def test_no_docstring_only_points_elsewhere() -> None:
    """A docstring says what the thing is or does; whoever reads it shouldn't have to open another file."""
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line.strip()}"
        for file in FILES
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if line.lstrip().startswith('"""See ')
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
