"""What rules let pass is to become less: long functions, and words that name many things."""

import ast
import re
from collections import Counter

import pytest

from tests.support import ROOT
from tools.workspace import distributions

# By rule of ruff: how many such functions a file has. Nothing is added here.
LEFT = {
    "C901": {
        "disque_trio/respserver/io/serving.py": 1,
        "disque_trio/respserver/machine.py": 1,
        "tools/bench/latency_load.py": 1,
    },
    "PLR0913": {
        "disque_trio/node/core/unique/quorum.py": 1,
        "disque_trio/protocol/serialjob.py": 2,
        "disque_trio/respserver/command.py": 1,
        "disque_trio/respserver/io/engine.py": 1,
        "packages/bananaq/disque_bananaq/redis_store/store.py": 1,
        "packages/spark/disque_spark/audit/run.py": 1,
        "packages/spark/disque_spark/processing/run.py": 1,
    },
}


@pytest.mark.parametrize("rule", LEFT)
def test_no_function_is_added_to_those_that_a_rule_lets_pass(rule: str) -> None:
    found: Counter[str] = Counter()
    houses = (house.folder / house.package for house in distributions())
    others = ("benchmarks", *ROOT.glob("packages/*/tests"), "tests", "tools")  # no builds
    for folder in (*houses, *others):
        for path in (ROOT / folder).rglob("*.py"):
            if count := len(re.findall(rf"# noqa: .*{rule}", path.read_text())):
                found[path.relative_to(ROOT).as_posix()] = count
    found.pop("tests/unit/tools/test_rules.py", None)
    assert found == LEFT[rule]


# What the program is about: many classes may be about one of these. Nothing is added here, and
# whatever has four classes or fewer goes.
NOUNS = {
    *("Aof", "Bus", "Client", "Command", "Consumer", "Disque", "Event", "File", "Job", "Jobs"),
    *("Key", "Node", "Nodes", "Queue", "Task", "User"),
}


def test_no_word_names_many_things() -> None:
    names: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for house in distributions():
        for path in (ROOT / house.folder / house.package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not _is_error(node) and node.name[0] != "_":
                    names[node.name] += 1
                    words[re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|\w+", node.name)[0]] += 1
    assert {name for name, count in names.items() if count > 4} == set()
    assert {word for word, count in words.items() if count > 4} == NOUNS


def _is_error(node: ast.ClassDef) -> bool:
    """Whether it is an exception, which is named for what went wrong."""
    return any(
        name.endswith(("Error", "Exception")) for name in (node.name, *map(ast.unparse, node.bases))
    )
