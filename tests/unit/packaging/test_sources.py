"""What all sources avoid, because not every supported Python can do it."""

import ast

from tests.support import ROOT


def test_no_exception_is_raised_in_an_except_star_block() -> None:
    """Python 3.11.2, which Debian 12 has, wraps such an exception in a group."""
    found = [
        f"{path.relative_to(ROOT)}:{statement.lineno}"
        for path in sorted((ROOT / "disque_trio").rglob("*.py"))
        if "except*" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.TryStar)
        for handler in node.handlers
        for statement in ast.walk(handler)
        if isinstance(statement, ast.Raise)
    ]
    assert found == []
