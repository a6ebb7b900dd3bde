"""A mutant: one module with one mistake in it, under an ID that outlives changes elsewhere."""

from __future__ import annotations

import ast
import difflib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.mutants.operators import OPERATORS
from tests.mutants.sites import PREFIX, ROOT, Site, path_of, sites

SHOWN = 90
"""Characters of a change in a list: what it was and what it is have half a line each."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one mistake in it."""

    id: str
    """Module, scope, operator, and a digest of the code that is changed: no line numbers, no positions."""
    module: str
    line: int
    change: str
    """What is wrong, in one line."""
    texts: Callable[[], tuple[str, str]]
    """The module's source without and with the mistake."""

    @property
    def place(self) -> str:
        """File and line."""
        return f"{path_of(self.module).relative_to(ROOT)}:{self.line}"

    @property
    def source(self) -> str:
        """The module's source with the mistake."""
        return self.texts()[1]

    def diff(self) -> str:
        """What is changed, as `diff -u` has it. Drawn ones are compared as Python writes a tree."""
        before, after = (text.splitlines() for text in self.texts())
        return "\n".join(difflib.unified_diff(before, after, "right", self.id, lineterm=""))


def unchanged(module: str) -> Mutant:
    """No mistake at all: what nothing may object to."""

    def texts() -> tuple[str, str]:
        source = path_of(module).read_text(encoding="utf-8")
        return source, source

    return Mutant("unchanged", module, 1, "nothing", texts)


def possible(module: str, source: str | None = None) -> Iterator[Mutant]:
    """Every mutant that the operators can make of a module (or of another `source` for it)."""
    if source is None:
        source = path_of(module).read_text(encoding="utf-8")
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    tree = ast.parse(source)
    seen: Counter[str] = Counter()
    for site in sites(module, tree):
        for name, operator in OPERATORS.items():
            for variant, replacement in enumerate(operator(site)):
                # By what is written there: unlike a position it changes with that alone.
                written = " ".join(_segment(site.node, lines).split())
                digest = hashlib.sha256(f"{variant} {written}".encode()).hexdigest()[:4]
                id_ = f"{module.removeprefix(PREFIX)}:{site.scope}:{name}:{digest}"
                seen[id_] += 1
                yield Mutant(
                    id_ if seen[id_] == 1 else f"{id_}-{seen[id_]}",
                    module,
                    _first_line(site.node),
                    _change(site.node, replacement),
                    _texts(tree, site, replacement),
                )


def rank(mutant: Mutant, seed: int) -> str:
    """Where a mutant stands in a draw. It hangs on the mutant alone: a change to the code redraws little."""
    return hashlib.sha256(f"{seed} {mutant.id}".encode()).hexdigest()


def drawn(candidates: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """So many of the candidates, from each module in proportion to how many it has."""
    by_module: dict[str, list[Mutant]] = {}
    for mutant in candidates:
        by_module.setdefault(mutant.module, []).append(mutant)
    shares = {m: len(of) * min(count / len(candidates), 1) for m, of in by_module.items()}
    quotas = {m: int(share) for m, share in shares.items()}
    # What rounding down left goes to those that lost most by it.
    left = min(count, len(candidates)) - sum(quotas.values())
    for module in sorted(shares, key=lambda m: quotas[m] - shares[m])[:left]:
        quotas[module] += 1
    return [
        mutant
        for module, of in by_module.items()
        for mutant in sorted(of, key=lambda m: rank(m, seed))[: quotas[module]]
    ]


def _texts(tree: ast.Module, site: Site, replacement: ast.AST | None) -> Callable[[], tuple[str, str]]:
    def texts() -> tuple[str, str]:
        before, value = ast.unparse(tree), getattr(site.parent, site.field)
        changed: object = replacement
        if site.index is not None:
            put = [] if replacement is None else [replacement]
            changed = [*value[: site.index], *put, *value[site.index + 1 :]]
        setattr(site.parent, site.field, changed)
        try:
            return before, ast.unparse(tree)
        finally:
            setattr(site.parent, site.field, value)

    return texts


def _change(node: ast.AST, replacement: ast.AST | None) -> str:
    was = _short(ast.unparse(node))
    if replacement is None or isinstance(replacement, ast.Pass):
        return f"without: {was}"
    return f"{was}  →  {_short(ast.unparse(replacement))}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


def _parts(node: ast.AST) -> list[ast.expr | ast.stmt | ast.pattern | ast.excepthandler]:
    """What of a node has a position: a case of `match` itself has none."""
    if isinstance(node, ast.match_case):
        return [node.pattern, *node.body]
    return [node] if isinstance(node, ast.expr | ast.stmt | ast.pattern | ast.excepthandler) else []


def _first_line(node: ast.AST) -> int:
    return _parts(node)[0].lineno


def _segment(node: ast.AST, lines: list[bytes]) -> str:
    """The source of a node; the standard library's own way splits the whole module each time."""
    first, last = _parts(node)[0], _parts(node)[-1]
    assert last.end_lineno is not None
    assert last.end_col_offset is not None
    text = lines[first.lineno - 1 : last.end_lineno]
    text[-1] = text[-1][: last.end_col_offset]
    text[0] = text[0][first.col_offset :]
    return b"".join(text).decode()
