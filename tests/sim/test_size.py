"""The rules of the simulation stay few: they keep promises, and restate no plan of the policy."""

from __future__ import annotations

import ast
from pathlib import Path

RULES = Path(__file__).parents[2] / "lab" / "sim" / "rules"

MOST = 4400
"""Lines of code: a larger number needs a reason, and a rule that restates what the policy decides is none."""


def lines_of_code(source: str) -> int:
    """How many lines have code: no docstring (of a constant or field, too), comment, import or blank line."""
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        is_import = isinstance(node, ast.Import | ast.ImportFrom)
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and (is_import or is_text):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(map(str.strip, source.splitlines()), 1)
    return sum(bool(line) and line[0] != "#" and number not in left_out for number, line in lines)


def test_only_code_counts() -> None:
    """What explains it doesn't."""
    source = '"""A module."""\n\nimport ast\n\n# a comment\nx = 1\n"""A number."""\n\ny = (\n    x\n)\n'
    assert lines_of_code(source) == 4


def test_the_rules_are_few_lines() -> None:
    """All modules of them together."""
    assert sum(lines_of_code(path.read_text()) for path in RULES.glob("*.py")) <= MOST
