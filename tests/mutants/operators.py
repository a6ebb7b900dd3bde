"""What mistakes are drawn from: each operator names what may stand in a place instead.

An operator yields replacements of a site's node; None stands for nothing at all, in a list.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

from tests.mutants.sites import PACKAGE, TOP, Site, modules, path_of

Operator = Callable[[Site], Iterator[ast.AST | None]]

OPERATORS: dict[str, Operator] = {}
"""By name, which is part of a mutant's ID."""


def _operator(function: Operator) -> Operator:
    OPERATORS[function.__name__] = function
    return function


_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}


@_operator
def comparison(site: Site) -> Iterator[ast.AST | None]:
    """The boundary moved by one, or the opposite."""
    node = site.node
    if isinstance(node, ast.Compare):
        for index, op in enumerate(node.ops):
            for other in _COMPARISONS[type(op)]:
                yield _with(node, ops=[*node.ops[:index], other(), *node.ops[index + 1 :]])


@_operator
def connective(site: Site) -> Iterator[ast.AST | None]:
    """`and` for `or`, and the reverse."""
    node = site.node
    if isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())


@_operator
def operand(site: Site) -> Iterator[ast.AST | None]:
    """One operand of `and`, `or` or `|` forgotten."""
    node = site.node
    if isinstance(node, ast.BoolOp):
        for index in range(len(node.values)):
            values = _without(node.values, index)
            yield _with(node, values=values) if len(values) > 1 else values[0]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from (node.left, node.right)


@_operator
def negation(site: Site) -> Iterator[ast.AST | None]:
    """`not` or a minus sign forgotten."""
    node = site.node
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand


@_operator
def constant(site: Site) -> Iterator[ast.AST | None]:
    """Another truth value; a number and one more, or 0.

    A module's own constants only become 0: that such a setting has an effect is to be noticed, whereas its
    value is a judgement, and a test that repeats it would prove nothing.
    """
    value = site.node.value if isinstance(site.node, ast.Constant) else None
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        if site.scope != TOP:
            yield ast.Constant(value + 1)
        if value:
            yield ast.Constant(type(value)(0))


_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@_operator
def arithmetic(site: Site) -> Iterator[ast.AST | None]:
    """Another sign. Of a difference, which sets have too, also the subtraction forgotten."""
    node = site.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        yield node.left
    is_union = isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _ARITHMETIC and not is_union:
        yield _with(node, op=_ARITHMETIC[type(node.op)]())
    if isinstance(node, ast.AugAssign):
        yield ast.Assign([node.target], node.value, lineno=node.lineno)


@_operator
def condition(site: Site) -> Iterator[ast.AST | None]:
    """A condition that always holds, or never."""
    has_test = isinstance(site.parent, ast.If | ast.IfExp | ast.While) and site.field == "test"
    if has_test or site.field in ("ifs", "guard"):
        yield from (ast.Constant(True), ast.Constant(False))


@_operator
def statement(site: Site) -> Iterator[ast.AST | None]:
    """A statement forgotten; an assignment only where its names have a value before it."""
    node = site.node
    match node:
        case ast.Expr() | ast.Return() | ast.Raise() | ast.Continue() | ast.Break() | ast.AugAssign():
            yield ast.Pass()
        case ast.Assign() if site.function and _is_bound_before(node, site.function):
            yield ast.Pass()


@_operator
def keyword(site: Site) -> Iterator[ast.AST | None]:
    """An argument with a default forgotten."""
    match site.node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), keywords=keywords) as node:
            for index, given in enumerate(keywords):
                if given.arg in _defaults().get(name, ()) or (given.arg and name in _ALL_OPTIONAL):
                    yield _with(node, keywords=_without(keywords, index))


_ALL_OPTIONAL = frozenset({"max", "min", "replace", "sorted"})
"""Functions of the standard library that can do without any of their keyword arguments."""


@_operator
def builtin(site: Site) -> Iterator[ast.AST | None]:
    """The smallest for the largest, any for all, the last first."""
    swapped = {"min": "max", "max": "min", "any": "all", "all": "any"}
    match site.node:
        case ast.Call(func=ast.Name(id=name)) as node if name in swapped:
            yield _with(node, func=ast.Name(swapped[name], ast.Load()))
        case ast.Call(func=ast.Name(id="sorted"), keywords=keywords) as node:
            if not any(given.arg == "reverse" for given in keywords):
                yield _with(node, keywords=[*keywords, ast.keyword("reverse", ast.Constant(True))])


@_operator
def element(site: Site) -> Iterator[ast.AST | None]:
    """An element of a literal forgotten; of a tuple only where it is a collection, not a record."""
    match site.node:
        case ast.Dict(keys=keys, values=values) as node:
            for index in range(len(keys)):
                yield _with(node, keys=_without(keys, index), values=_without(values, index))
        case ast.Set() | ast.List(ctx=ast.Load()) | ast.Tuple() as node:
            if not isinstance(node, ast.Tuple) or _is_collection(site):
                yield from (_with(node, elts=_without(node.elts, i)) for i in range(len(node.elts)))


@_operator
def case(site: Site) -> Iterator[ast.AST | None]:
    """A case of `match` forgotten, or a part of what it asks for."""
    node = site.node
    if isinstance(node, ast.match_case) and isinstance(site.parent, ast.Match):
        if len(site.parent.cases) > 1:
            yield None
    elif isinstance(node, ast.MatchOr):
        for index in range(len(node.patterns)):
            patterns = _without(node.patterns, index)
            yield _with(node, patterns=patterns) if len(patterns) > 1 else patterns[0]
    elif isinstance(node, ast.MatchClass):
        for index, pattern in enumerate(node.kwd_patterns):
            # Without one that binds a name, the name would be missing.
            if not any(isinstance(part, ast.MatchAs) and part.name for part in ast.walk(pattern)):
                yield _with(
                    node,
                    kwd_attrs=_without(node.kwd_attrs, index),
                    kwd_patterns=_without(node.kwd_patterns, index),
                )


@_operator
def member(site: Site) -> Iterator[ast.AST | None]:
    """Another member of the same enumeration: the next one."""
    match site.node:
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) as node if name in _enumerations():
            names = _enumerations()[name]
            if attribute in names:
                yield _with(node, attr=names[(names.index(attribute) + 1) % len(names)])


@_operator
def handler(site: Site) -> Iterator[ast.AST | None]:
    """An exception that isn't caught."""
    if isinstance(site.node, ast.ExceptHandler):
        yield _with(site.node, body=[ast.Raise()])


def _with(node: Any, **fields: Any) -> Any:
    """A copy of a node with some fields changed."""
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _without(values: Sequence[Any], index: int) -> list[Any]:
    """All values but one."""
    return [*values[:index], *values[index + 1 :]]


def _is_collection(site: Site) -> bool:
    """Whether a tuple is gone through or looked into: records are unpacked, which would fail at once."""
    if isinstance(site.parent, ast.Compare):
        return site.field == "comparators"
    if isinstance(site.parent, ast.For | ast.comprehension):
        return site.field == "iter"
    return isinstance(site.parent, ast.Call | ast.keyword | ast.IfExp | ast.ExceptHandler)


def _is_bound_before(node: ast.Assign, function: ast.FunctionDef) -> bool:
    """Whether what is assigned has a value without that, so that its loss isn't a NameError."""
    if function.name == "__init__":
        return False
    arguments = function.args
    bound = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    bound |= {
        name.id
        for name in ast.walk(function)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store) and name.lineno < node.lineno
    }
    assigned = [t for target in node.targets for t in ast.walk(target) if isinstance(t, ast.Name)]
    return all(name.id in bound for name in assigned if isinstance(name.ctx, ast.Store))


@cache
def _defaults() -> dict[str, frozenset[str]]:
    """By function, method or class of the core, the parameters that have a default."""
    found: dict[str, set[str]] = {}
    for node in _definitions():
        if isinstance(node, ast.FunctionDef):
            arguments = node.args
            positional = [*arguments.posonlyargs, *arguments.args]
            optional = positional[len(positional) - len(arguments.defaults) :]
            only = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            names = {a.arg for a in optional} | {a.arg for a, default in only if default is not None}
        else:
            names = {
                s.target.id
                for s in node.body
                if isinstance(s, ast.AnnAssign) and s.value is not None and isinstance(s.target, ast.Name)
            }
        found.setdefault(node.name, set()).update(names)
    return {name: frozenset(names) for name, names in found.items()}


@cache
def _enumerations() -> dict[str, list[str]]:
    """By name, the members of the model's enumerations."""
    return {
        node.name: [
            target.id
            for s in node.body
            if isinstance(s, ast.Assign)
            for target in s.targets
            if isinstance(target, ast.Name)
        ]
        for node in _definitions()
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id.endswith("Enum") for base in node.bases)
        # A wrong metric is for whoever reads it; that it is counted at all is drawn as a statement.
        and node.name != "Metric"
    }


@cache
def _definitions() -> list[ast.FunctionDef | ast.ClassDef]:
    """The functions and classes that decide, and of the core they stand on."""
    paths = sorted({*(PACKAGE / "core").glob("*.py"), *map(path_of, modules())})
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in paths)
    nodes = (node for tree in trees for node in ast.walk(tree))
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
