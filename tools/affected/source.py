"""Python files as definitions, and what each of these uses."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

BODY = ""  # the name of what a module runs besides its definitions
MAIN = "__main__"  # the name of what it runs only as a program


@dataclass
class Definition:
    """A function, class or variable of a module, or the module's body.

    Attributes:
        names: what it uses, as parts of dotted names.
        fixtures: names of fixtures that it asks for.
        strings: its string constants, without docstrings.
        paths: constants joined with ``/``, each with the name on the left of the first.
        imports: its import statements.
        everywhere: whether it affects all tests of its folder without being named.
    """

    names: set[tuple[str, ...]] = field(default_factory=set)
    fixtures: set[str] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)
    paths: set[tuple[str, str]] = field(default_factory=set)
    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    everywhere: bool = False

    def add(self, other: "Definition") -> None:
        """Add what another one uses."""
        self.names |= other.names
        self.fixtures |= other.fixtures
        self.strings |= other.strings
        self.paths |= other.paths
        self.everywhere |= other.everywhere


@dataclass
class Source:
    """A module: its definitions by name, and its imports: local names, and what they stand for.

    Attributes:
        stars: modules from which it imports everything.
    """

    definitions: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    stars: set[str] = field(default_factory=set)


def parse(text: str, module: str, is_package: bool = False) -> Source:
    """What a module consists of. Raises SyntaxError."""
    source = Source({BODY: Definition()})
    package = module if is_package else module.rpartition(".")[0]
    public: set[str] = set()
    at_top: list[tuple[str, str]] = []
    for names, statement in _statements(ast.parse(text).body):
        found = _Uses(statement, module).found
        imported = [pair for node in found.imports for pair in _imported(node, package)]
        for name, target in imported:
            if name == "*":
                source.stars.add(target)
            else:
                # Of ``import a.b``, the rest is in what uses it.
                is_first = target.startswith(f"{name}.")
                source.imports.setdefault(name, name if is_first else target)
        if names == ["__all__"]:
            public = found.strings
            continue
        if not names:
            at_top += imported
        for name in names or [BODY]:
            source.definitions.setdefault(name, Definition()).add(found)
    # Names that nobody uses are imported for what the module does then.
    used = {parts[0] for one in source.definitions.values() for parts in one.names}
    for name, target in at_top:
        if name not in used | public | {"*"}:
            is_first = target.startswith(f"{name}.")
            source.definitions[BODY].names.add(tuple(target.split(".")) if is_first else (name,))
    return source


def _imported(node: ast.Import | ast.ImportFrom, package: str) -> Iterator[tuple[str, str]]:
    """The local names of an import statement, with what they stand for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], alias.name
    else:
        parts = package.split(".")
        above = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
        origin = ".".join(filter(None, (above, node.module)))
        for alias in node.names:
            target = origin if alias.name == "*" else f"{origin}.{alias.name}"
            yield alias.asname or alias.name, target


def _statements(body: Iterable[ast.stmt]) -> Iterator[tuple[list[str], ast.AST]]:
    """The parts of a module, each with the names that it defines."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield [node.name], node
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            inner = [one for target in targets for one in ast.walk(target)]
            yield [one.id for one in inner if isinstance(one, ast.Name)], node
        elif isinstance(node, ast.If) and "'__main__'" in ast.unparse(node.test):
            yield [MAIN], node
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.ExceptHandler):
                    yield from _statements(part.body)
                else:
                    yield from _statements([part]) if isinstance(part, ast.stmt) else [([], part)]
        else:
            yield [], node


class _Uses(ast.NodeVisitor):
    """Collects what a part of a module uses."""

    def __init__(self, part: ast.AST, module: str) -> None:
        self.found = Definition()
        self._module = module
        self.visit(part)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        marks = [ast.unparse(mark) for mark in node.decorator_list]
        is_fixture = any("fixture" in mark for mark in marks)
        if is_fixture or node.name.startswith("test"):
            arguments = node.args
            self.found.fixtures |= {
                one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            }
        autouse = is_fixture and any("autouse=True" in mark for mark in marks)
        self.found.everywhere |= autouse or node.name.startswith("pytest_")
        self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.visit(node.value)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.found.imports.append(node)

    visit_ImportFrom = visit_Import

    def visit_Name(self, node: ast.Name) -> None:
        self.found.names.add((node.id,))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        parts = [node.attr]
        value = node.value
        while isinstance(value, ast.Attribute):
            parts.append(value.attr)
            value = value.value
        if isinstance(value, ast.Name):
            self.found.names.add((value.id, *reversed(parts)))
        else:
            self.visit(value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.found.strings.add(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        # As one text, in which a line of a program or a module's name is whole.
        texts = [one.value if isinstance(one, ast.Constant) else "{}" for one in node.values]
        first = node.values[0] if node.values else None
        if isinstance(first, ast.FormattedValue) and ast.unparse(first.value) == "__name__":
            texts[0] = "{}" if texts[1:2] == ["."] else self._module
        self.found.strings.add("".join(map(str, texts)))
        for one in node.values:
            if isinstance(one, ast.FormattedValue):
                self.visit(one)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if called in ("usefixtures", "getfixturevalue"):
            constants = (one.value for one in node.args if isinstance(one, ast.Constant))
            self.found.fixtures |= {one for one in constants if isinstance(one, str)}
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not isinstance(node.op, ast.Div):
            self.generic_visit(node)
            return
        parts: list[ast.expr] = []
        base: ast.expr = node
        while isinstance(base, ast.BinOp) and isinstance(base.op, ast.Div):
            parts.insert(0, base.right)
            base = base.left
        known: list[str] = []
        for part in parts:
            if not (isinstance(part, ast.Constant) and isinstance(part.value, str)):
                break
            known.append(part.value)
        self.found.paths.add((ast.unparse(base), "/".join(known)))
        for part in (base, *parts[len(known) :]):
            self.visit(part)
