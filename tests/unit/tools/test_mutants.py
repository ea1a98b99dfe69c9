"""Changes of the code, and whether tests notice them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutants.__main__ import sample
from tools.mutants.mutations import AT, find, woven

ROOT = Path(__file__).resolve().parents[3]

SHOP = """
TAX = 10
REASONS: dict[int, str] = {}


def may_buy(age: int, cents: int = 0) -> bool:
    return age >= 18 and cents > 100


def drain(items: list[int]) -> None:
    while items:
        items.clear()


def start() -> None:
    REASONS[1] = "young"


start()
"""
GOOD_TEST = """
import shop


def test_who_may_buy():
    assert shop.may_buy(18, 101)
    assert not shop.may_buy(17, 101)
    assert not shop.may_buy(18, 100)


def test_draining():
    items = [1, 2]
    shop.drain(items)
    assert items == []
"""
# They fail without a mutation too, when they run in another process, for the second time, or after
# others have done so.
UNSOUND = """
import os

import pytest
import shop

seen = []


@pytest.mark.parametrize("pid", [os.getpid()], ids=["own"])
def test_in_another_process(pid):
    assert shop.may_buy(18, 101)
    assert pid == os.getpid()


def test_the_second_time():
    shop.may_buy(18, 101)
    seen.append(1)
    assert len(seen) == 1


def test_after_others():
    shop.drain([sum(range(1_000_000))])
    shop.may_buy(18, 101)
    assert 2 not in seen


def test_that_others_run_after():
    shop.drain([])
    shop.may_buy(18, 101)
    seen.append(2 if 3 in seen else 3)
"""
ROOM = """
import shop


def test_room():
    assert len(shop.room(31)) > 0
"""
HOLE = GOOD_TEST.replace("    assert not shop.may_buy(18, 100)\n", "")
# The others take most of a second to import.
FEW_PLUGINS = {
    "PYTEST_ADDOPTS": "",
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "_hypothesis_pytestplugin",
}
OPTIONS = ["--jobs", "1", "--at-least", "100", "--equal", "equal.yaml", "--tests", "test_shop.py"]


def run(directory: Path, test: str, equal: str = "[]", shop: str = SHOP) -> tuple[int, list[str]]:
    """Run the tool on ``shop`` and ``test``; return its status and what it prints."""
    (directory / "shop.py").write_text(shop)
    (directory / "test_shop.py").write_text(test)
    (directory / "equal.yaml").write_text(equal)
    done = subprocess.run(
        [sys.executable, "-m", "tools.mutants", *OPTIONS, "--", "shop.py"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{directory}", **FEW_PLUGINS},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.returncode, done.stdout.splitlines()


@pytest.mark.slow
def test_tests_without_a_hole_kill_everything_even_what_loops_forever(tmp_path: Path) -> None:
    status, lines = run(tmp_path, GOOD_TEST)
    assert status == 0
    assert "all: 100.0 % killed: 9 killed, 0 survived, 0 equal, 3 at import" in lines


@pytest.mark.slow
def test_a_hole_is_found_but_not_what_is_judged_equal(tmp_path: Path) -> None:
    before, after = "return age >= 18 and cents > 100", "return age >= 18 and cents >= 100"
    other = "return age >= 18 and cents > 99"
    equal = (
        f"[{{file: shop.py, function: may_buy, before: {before}, after: {other}, why: test}},"
        "{file: shop.py, function: drain, before: items.pop(), after: pass, why: has changed}]"
    )
    status, lines = run(tmp_path, HOLE, equal)
    assert status == 1
    assert [line for line in lines if "->" in line] == [
        f"shop.py:7  {before}  ->  {after}  (1 tests reach it)"
    ]
    assert "all: 87.5 % killed: 7 killed, 1 survived, 1 equal, 3 at import" in lines
    assert "items.pop()" in lines[-1]  # it says that this is no longer in the code


@pytest.mark.slow
def test_what_fails_without_a_mutation_too_kills_none(tmp_path: Path) -> None:
    status, lines = run(tmp_path, UNSOUND)
    assert status == 1
    # Only the endless loop is.
    assert "all: 11.1 % killed: 1 killed, 8 survived, 0 equal, 3 at import" in lines
    left_out = [line.rpartition("::")[2] for line in lines if "fails in a fork" in line]
    assert sorted(left_out) == ["test_in_another_process[own]", "test_the_second_time"]
    by_chance = {line.partition("::")[2].split()[0] for line in lines if "only once" in line}
    assert by_chance == {"test_after_others,"}


@pytest.mark.slow
def test_what_needs_very_much_memory_is_killed(tmp_path: Path) -> None:
    status, lines = run(tmp_path, ROOM, shop="def room(bits):\n    return bytes(1 << bits)\n")
    assert "all: 100.0 % killed: 4 killed, 0 survived, 0 equal, 0 at import" in lines
    assert status == 0


def test_a_seed_always_draws_the_same_mutations() -> None:
    mutations = find([ROOT / "tools" / "mutants"])
    assert len(mutations) > 200
    assert find([ROOT / "tools" / "mutants"]) == mutations
    drawn = sample(mutations, 1, 30)
    assert sample(mutations, 1, 30) == drawn
    assert len({*drawn}) == 30
    assert sample(mutations, 2, 30) != drawn
    assert sorted(sample(mutations, 1, 1_000_000)) == sorted(mutations)


def changes(directory: Path, body: str) -> list[str]:
    """What may become of the statements of a function."""
    file = directory / "code.py"
    file.write_text("def f(a, b, c):\n" + "".join(f"    {line}\n" for line in body.split("\n")))
    return [mutation.after for mutation in find([file])]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("if a < b: pass", ["if True:", "if False:", "if a <= b:"]),
        ("b = a and c", ["pass", "b = a or c", "b = not a and c", "b = a and (not c)"]),
        ("while not a: break", ["while a:", "pass"]),
        ("c += 2", ["pass", "c -= 2", "c += 3", "c += 1"]),
        (
            "x = a if b else 0",
            ["x = a if True else 0", "x = a if False else 0", "x = a if b else 1"],
        ),
        ("return a - b", ["return None", "return a + b"]),
        ("return", ["pass"]),
        ("a.b(False)", ["pass", "a.b(True)"]),
        ("a.b = c", ["pass"]),
        ("raise ValueError(a - b)", ["pass"]),
        ("with a: del b", ["pass"]),
        ("def g():\n    continue", ["pass"]),
    ],
)
def test_what_a_statement_may_become(tmp_path: Path, body: str, found: list[str]) -> None:
    assert changes(tmp_path, body) == found


@pytest.mark.parametrize(
    "body",
    [
        '"""a"""',
        "log.info(a - 1)",
        "self._log.info(a - 1)",
        "assert a - 1",
        "raise NotImplementedError",
        "x: A[1]",
        "x = b'a' + a",
        "def g(x: A[1] = 1) -> A[1]: pass",
        "class A: b = 1",
        "def __repr__(self): return self.a + 1",
    ],
)
def test_what_no_test_need_notice_is_left_alone(tmp_path: Path, body: str) -> None:
    assert changes(tmp_path, body) == []


def test_mutations_in_one_statement_are_switched_on_one_at_a_time(tmp_path: Path) -> None:
    source = "def f(a, b):\n    if a < b:\n        a += 1\n    return a\n"
    file = tmp_path / "code.py"
    file.write_text(source)
    mutations = find([file])
    tree = woven(source, {mutation.number: mutation.number for mutation in mutations})
    on = [-1]
    passed: set[int] = set()

    def at(mutation: int) -> bool:
        passed.add(mutation)
        return mutation == on[0]

    names = {AT: at}
    exec(compile(tree, "code.py", "exec"), names)
    f: object = names["f"]
    assert callable(f)
    found = {"none": (f(1, 2), f(2, 2), f(3, 2))}
    for mutation in mutations:
        on[0] = mutation.number
        found[mutation.after] = (f(1, 2), f(2, 2), f(3, 2))
    assert found == {
        "none": (2, 2, 3),
        "if True:": (2, 3, 4),
        "if False:": (1, 2, 3),
        "if a <= b:": (2, 3, 3),
        "pass": (1, 2, 3),
        "a -= 1": (0, 2, 3),
        "a += 2": (3, 2, 3),
        "a += 0": (1, 2, 3),
        "return None": (None, None, None),
    }
    assert passed == {mutation.number for mutation in mutations}
