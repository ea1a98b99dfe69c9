"""Small changes of functions, of the kind that a test should notice.

Only the bodies of functions are changed: what runs at import has run before a change can be
switched on. Annotations, assertions, ``__repr__``, log messages and the arguments of exceptions
stay as they are.
"""

import ast
import copy
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

AT = "__at__"  # the name of the function that woven code calls: is this mutation switched on?

_COMPARISONS: list[tuple[type[ast.cmpop], type[ast.cmpop]]] = [
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),  # codespell:ignore notin
]
_OPERATORS: list[tuple[type[ast.operator], type[ast.operator]]] = [
    (ast.Add, ast.Sub),
    (ast.Mult, ast.FloorDiv),
    (ast.BitAnd, ast.BitOr),
    (ast.LShift, ast.RShift),
]
_OTHER_COMPARISON = {one: other for pair in _COMPARISONS for one, other in (pair, pair[::-1])}
_OTHER_OPERATOR = {one: other for pair in _OPERATORS for one, other in (pair, pair[::-1])}
_TEXTS = (ast.List, ast.Tuple, ast.JoinedStr, ast.ListComp)
_COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)
_LOGS = ("log", "logger", "_log")


class Mutation(NamedTuple):
    """A change of one expression or statement.

    Attributes:
        file: as found, relative to where the search began.
        number: of all mutations of the file.
        line: where it is.
        function: in which function, such as ``Queue.push``.
        before, after: the statement, or its first line.
    """

    file: str
    number: int
    line: int
    function: str
    before: str
    after: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What names it in later versions of the file, whose lines may have moved."""
        return self.file, self.function, self.before, self.after

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.before}  ->  {self.after}"


class _Site(NamedTuple):
    """Where a mutation is: ``node``, of ``statement``, becomes ``new``."""

    function: str
    statement: ast.stmt
    node: ast.expr | ast.stmt
    new: ast.expr | ast.stmt


def find(paths: Iterable[Path]) -> list[Mutation]:
    """All mutations of the Python files in ``paths``, files or directories, in a fixed order."""
    files = [file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))]
    return [mutation for file in sorted({*files}) for mutation in _of_file(file)]


def _of_file(file: Path) -> Iterator[Mutation]:
    for number, site in enumerate(_sites(ast.parse(file.read_text()))):
        header = _header(site.statement)
        before, after = (
            ast.unparse(ast.fix_missing_locations(tree)).splitlines()[0]
            for tree in (header, _rebuilt(header, {id(site.node): site.new}))
        )
        yield Mutation(str(file), number, site.node.lineno, site.function, before, after)


def woven(source: str, chosen: Mapping[int, int]) -> ast.Module:
    """Return the tree of ``source`` with mutations that can be switched on. ``chosen``: the numbers
    of the mutations, and what to pass to the function called AT for each."""
    tree = ast.parse(source)
    nodes: dict[int, list[tuple[int, ast.expr | ast.stmt]]] = {}
    for number, site in enumerate(_sites(tree)):
        if number in chosen:
            nodes.setdefault(id(site.node), []).append((chosen[number], site.new))
    made: ast.Module = _woven(tree, nodes)
    return ast.fix_missing_locations(made)


def _woven(node: Any, nodes: dict[int, list[tuple[int, ast.expr | ast.stmt]]]) -> Any:
    """Return ``node``, in which each of ``nodes`` has been put behind a switch."""
    made = _mapped(node, lambda child: _woven(child, nodes))
    for id_, new in nodes.get(id(node), ()):
        test = ast.Call(ast.Name(AT, ast.Load()), [ast.Constant(id_)], [])
        made = (
            ast.IfExp(test, new, made) if isinstance(new, ast.expr) else ast.If(test, [new], [made])
        )
        ast.copy_location(made, node)
    return made


def _rebuilt(node: Any, swaps: dict[int, ast.AST]) -> Any:
    """Return a copy of ``node`` with some nodes inside replaced, by their ``id``."""
    found = swaps.get(id(node))
    return found or _mapped(node, lambda child: _rebuilt(child, swaps))


def _mapped(node: Any, change: Any) -> Any:
    """Return a copy of ``node`` with ``change`` applied to the nodes right inside."""
    made = copy.copy(node)
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            setattr(made, name, change(value))
        elif isinstance(value, list):
            setattr(made, name, [change(v) if isinstance(v, ast.AST) else v for v in value])
    return made


def _header(statement: ast.stmt) -> ast.stmt:
    """Return ``statement`` without the statements inside."""
    if not isinstance(statement, _COMPOUND):
        return statement
    made = copy.copy(statement)
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        if hasattr(made, name):
            setattr(made, name, [ast.Pass()] if name == "body" else [])
    return made


# ---- what can be changed ------------------------------------------------------------------------


def _sites(tree: ast.AST, function: str = "") -> Iterator[_Site]:
    """The mutations of all functions in ``tree``, which is inside ``function``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _sites(node, f"{function}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name != "__repr__":
                yield from _of_body(node.body, f"{function}{node.name}", _reassigned(node))
        elif isinstance(node, ast.stmt):
            yield from _sites(node, function)


def _reassigned(function: ast.AST) -> set[str]:
    """The variables of ``function`` that are set more than once, or as arguments too. Without its
    only assignment, a variable does not exist: every test that runs the line notices that."""
    nodes = [*ast.walk(function)]
    stores = [node.arg for node in nodes if isinstance(node, ast.arg)]
    names = [node for node in nodes if isinstance(node, ast.Name)]
    stores += [name.id for name in names if isinstance(name.ctx, ast.Store)]
    return {name for name in stores if stores.count(name) > 1}


def _of_body(body: list[ast.stmt], function: str, names: set[str]) -> Iterator[_Site]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _sites(ast.Module([statement], []), f"{function}.")
            continue
        if isinstance(statement, ast.Assert) or _is_text(statement):
            continue
        for node, new in _of_statement(statement, names):
            yield _Site(function, statement, node, new)
        for name in ("body", "orelse", "finalbody"):
            yield from _of_body(getattr(statement, name, []), function, names)
        for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield from _of_body(part.body, function, names)


def _is_text(statement: ast.stmt) -> bool:
    """Whether ``statement`` is a docstring, or writes to the log."""
    if not isinstance(statement, ast.Expr):
        return False
    value = statement.value
    if not isinstance(value, ast.Call):
        return isinstance(value, ast.Constant)
    root = ast.unparse(value.func).removeprefix("self.").partition(".")[0]
    return root in _LOGS


def _of_statement(
    statement: ast.stmt, names: set[str]
) -> Iterator[tuple[ast.expr | ast.stmt, ast.expr | ast.stmt]]:
    """The changes of ``statement``, but not of statements inside: a node and what it becomes."""
    if _can_go(statement, names):
        yield statement, ast.Pass()
    if isinstance(statement, ast.Raise):
        return
    if isinstance(statement, ast.Return) and not isinstance(statement.value, ast.Constant | None):
        assert statement.value is not None
        yield statement.value, ast.Constant(None)
    if isinstance(statement, ast.AugAssign) and (swap := _OTHER_OPERATOR.get(type(statement.op))):
        yield statement, _rebuilt(statement, {id(statement.op): swap()})
    for name, value in ast.iter_fields(statement):
        if name in ("annotation", "body", "orelse", "finalbody", "handlers", "cases"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from _of_expression(part, isinstance(statement, ast.If))


def _can_go(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a mutation is to leave out ``statement``."""
    if isinstance(statement, ast.Raise):
        return statement.exc is not None and "NotImplementedError" not in ast.unparse(statement)
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return statement.value is not None and all(
            isinstance(target, ast.Attribute | ast.Subscript)
            or (isinstance(target, ast.Name) and target.id in names)
            for target in targets
        )
    if isinstance(statement, ast.Return):
        return statement.value is None
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call)
    return isinstance(statement, ast.AugAssign | ast.Delete | ast.Continue | ast.Break)


def _of_expression(node: ast.AST, decides: bool) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The changes of an expression and of its parts. ``decides``: it is the test of an ``if``."""
    if isinstance(node, ast.expr):
        if decides:
            yield node, ast.Constant(True)
            yield node, ast.Constant(False)
        for new in _variants(node):
            yield node, new
    for name, value in ast.iter_fields(node):
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.AST):
                yield from _of_expression(part, isinstance(node, ast.IfExp) and name == "test")


def _variants(node: ast.expr) -> Iterator[ast.expr]:
    """The expressions that may stand in the place of ``node``."""
    if isinstance(node, ast.Compare):
        for op in node.ops:
            yield _rebuilt(node, {id(op): _OTHER_COMPARISON[type(op)]()})
    elif isinstance(node, ast.BoolOp):
        yield _rebuilt(node, {id(node.op): ast.Or() if isinstance(node.op, ast.And) else ast.And()})
        for value in node.values:
            if isinstance(value, ast.Name | ast.Attribute | ast.Call):
                yield _rebuilt(node, {id(value): ast.UnaryOp(ast.Not(), value)})
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.BinOp):
        swap = _OTHER_OPERATOR.get(type(node.op))
        if swap is not None and not _is_of_texts(node):
            yield _rebuilt(node, {id(node.op): swap()})
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int):
            yield ast.Constant(node.value + 1)
            if node.value:
                yield ast.Constant(node.value - 1)


def _is_of_texts(node: ast.BinOp) -> bool:
    """Whether ``node`` joins texts or lists, which no other operator can do."""
    return any(
        isinstance(part, _TEXTS)
        or (isinstance(part, ast.Constant) and isinstance(part.value, str | bytes))
        for part in (node.left, node.right)
    )
