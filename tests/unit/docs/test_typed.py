"""Everything that a page asks its reader to type is typed by a test, or there is a reason why
not."""

import ast
import fnmatch
from functools import cache
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.doc_blocks import ALL, REASONS, TYPED, is_typed, key, told


def test_there_is_a_test_or_a_reason_for_each_block() -> None:
    assert len(ALL) > 300
    assert [str(block) for block in ALL if is_typed(block) and told(block) is None] == []


def test_the_table_has_no_unused_key() -> None:
    used = {(block.page, key(block)) for block in ALL}
    for name, of_page in TYPED.items():
        for wanted in of_page:
            found = any(fnmatch.fnmatch(page, name) for page, one in used if one == wanted)
            assert found, f"{name}: {wanted}"


@pytest.mark.parametrize("name", TYPED)
def test_the_tests_of_the_table_are_about_the_page(name: str) -> None:
    place = Path(name)
    about = place.parent.name if place.name == "README.md" and place.parent.name else place.name
    for said in TYPED[name].values():
        if said in REASONS:
            continue
        file, _, function = said.partition("::")
        names, texts = contents(file)
        assert function in names, said
        assert any(about in text for text in texts), f"{file} does not name {about}"


@cache
def contents(file: str) -> tuple[set[str], set[str]]:
    """Return the functions of a module, and its strings."""
    nodes = list(ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))))
    names = {
        node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    texts = {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    return names, texts
