"""docs/errors.md has every error of the sources, and no other."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from disque_trio.respclient.errors import reply_error
from tests.support import ROOT
from tests.support.documented import section

PAGE = (ROOT / "docs" / "errors.md").read_text()
SOURCES = [
    path
    for folder in (
        *(f"disque_trio/{part}" for part in ("aof", "cluster", "node", "process", "respserver")),
        "packages/bananaq/disque_bananaq",
    )
    for path in (ROOT / folder).rglob("*.py")
    if path.name not in ("table.py", "common.py", "settings.py")  # syntaxes and help
    and "client" not in path.parent.parts[-1:]
]
CODE = re.compile(r"-?([A-Z]{3,}) (.*)", re.DOTALL)
SHOWN = 5  # words of a text that the page has at least
# Texts that begin with such a word and are no error replies: they follow ERR, or are for people.
NO_CODES = {
    *("ACL", "AOF", "BEGIN", "BURST", "CLUSTER", "DEAD", "DELAY", "DELJOB", "GROUPBURST"),
    *("GROUPRATE", "PRIVATE", "RATE", "REPLICATE", "RETRY", "SLOWLOG", "TLS"),
}


def literals(tree: ast.AST) -> Iterator[str]:
    """The texts in a module, without docstrings; of an f-string, what it begins with."""
    skipped = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    skipped |= {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values[1:]
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in skipped:
            if isinstance(node.value, str):
                yield node.value
            elif isinstance(node.value, bytes):
                yield node.value.decode("latin-1")


@cache
def trees() -> list[ast.Module]:
    return [ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES]


@cache
def texts() -> dict[str, set[str]]:
    """The texts of error replies in the sources, by their codes; without ERR."""
    found: dict[str, set[str]] = {}
    for tree in trees():
        for text in literals(tree):
            if (match := CODE.match(text)) and match[1] not in NO_CODES | {"ERR"}:
                found.setdefault(match[1], set()).add(match[2].strip())
    return found


def raised(*names: str) -> set[str]:
    """The texts with which the sources make these exceptions."""
    return {
        text
        for tree in trees()
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in names
        for text in literals(call)
    }


def test_the_sources_are_read() -> None:
    assert {"NOREPL", "OOM", "MISCONF", "LEAVING", "NOUNIQ", "LOADING"} <= set(texts())


def test_the_page_has_every_code_and_no_other() -> None:
    told = re.findall(r"^### (\w+)$", PAGE.partition("\n## No reply\n")[0], re.MULTILINE)
    assert told == [*sorted(texts()), "ERR"]


@pytest.mark.parametrize("code", texts())
def test_the_page_has_every_text(code: str) -> None:
    told = section("errors.md", code)
    for text in texts()[code]:
        assert " ".join(text.split()[:SHOWN]) in told, text


@pytest.mark.parametrize("code", [*texts(), "ERR"])
def test_the_page_names_the_exception_and_says_whether_to_try_again(code: str) -> None:
    told = section("errors.md", code)
    assert f"`{type(reply_error(f'{code} some text')).__name__}`" in told
    assert re.search(r"\*\*Again:\*\* \w", told)


def test_the_page_says_why_nodes_refuse_each_other() -> None:
    told = section("errors.md", "Between nodes")
    reasons = raised("IdentityError") | {
        text
        for path in (ROOT / "disque_trio" / "protocol").glob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("IdentityError", "SealError")
        for text in literals(call)
    }
    assert len(reasons) > 10
    assert [reason for reason in reasons if f"`{reason}`" not in told] == []
