"""In a small tree, tests are selected that a change can reach."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.affected import changes
from tools.affected.__main__ import main
from tools.affected.graph import Graph
from tools.affected.selection import Selection, graph_of, select

PROJECT = """\
[project]
scripts = {till-server = "shop.till:main"}
entry-points = {pytest11 = {shop = "shop.plugin"}}
[tool.setuptools.packages.find]
include = ["shop*"]
"""
FILES = {
    "pyproject.toml": PROJECT,
    "shop/__init__.py": "",
    "shop/price.py": "",
    "shop/basket.py": "from shop.price import total",
    "shop/rare.py": "",
    "shop/till.py": "def main():\n    from shop import rare",
    "shop/parts/__init__.py": "from importlib import import_module\nNAMES = {'Part': 'part'}",
    "shop/parts/part.py": "",
    "shop/parts/page.html": "",
    "shop/kinds/__init__.py": "BACKENDS = {'a': f'{__name__}.first:Backend'}",
    "shop/kinds/first.py": "",
    "shop/app/__init__.py": "",
    "shop/app/apps.py": "",
    "shop/typed.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from shop.price import total"
    ),
    "shop/plugin.py": "import pytest\n@pytest.fixture\ndef shop():\n    ...",
    "docs/guide.md": "Start it:\n\n    $ till-server --open\n",
    "docs/other.md": "",
    "config/till.conf": "",
    "strange.txt": "",
    "tests/support/__init__.py": "ROOT = 0",
    "tests/support/servers.py": """
        from shop import basket
        TILL = "shop.till"
        def start():
            return ["-m", TILL]
        def sums():
            return basket.total
        """,
    "conftest.py": """
        import pytest
        from tests.support.servers import start
        @pytest.fixture
        def till():
            start()
        """,
    "tests/unit/conftest.py": """
        import pytest
        from shop import price
        @pytest.fixture(autouse=True)
        def prices():
            price.total
        """,
    "tests/unit/test_price.py": "from shop.price import total\ndef test_it():\n    total()",
    "tests/test_basket.py": "import shop.basket\ndef test_it():\n    shop.basket.add()",
    "tests/unit/test_nothing.py": "def test_it():\n    ...",
    "tests/test_typed.py": "from shop.typed import a\ndef test_it():\n    a()",
    "tests/test_parts.py": "from shop.parts import Part\ndef test_it():\n    Part()",
    "tests/test_plugin.py": "def test_it(shop):\n    ...",
    "tests/test_sums.py": "from tests.support.servers import sums\ndef test_it():\n    sums()",
    "tests/test_kinds.py": "import shop.kinds\ndef test_it():\n    shop.kinds.BACKENDS['a']",
    "tests/test_app.py": "APPS = ['shop.app']",
    "tests/live/test_till.py": "def test_it(till):\n    ...",
    "tests/live/test_named.py": "def test_it(request):\n    request.getfixturevalue('till')",
    "tests/live/test_script.py": "def test_it(run):\n    run('exec till-server --open')",
    "tests/live/test_guide.py": """
        from tests.support import ROOT
        GUIDE = ROOT / "docs" / "guide.md"
        def test_it():
            GUIDE.run()
        """,
    "tests/unit/test_links.py": """
        from tests.support import ROOT
        def test_it():
            [page.read_text() for page in (ROOT / "docs").glob("*.md")]
        """,
    "tests/unit/test_config.py": "def test_it(read):\n    read('config/till.conf')",
}
BELOW_UNIT = {f"tests/unit/test_{name}.py" for name in ("price", "nothing", "links", "config")}
USING_TILL = {f"tests/live/test_{name}.py" for name in ("till", "named", "script", "guide")}


def git(root: Path, *words: str) -> None:
    """Run git as somebody."""
    name = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *name, *words], cwd=root, check=True, capture_output=True)


def write(root: Path, path: str, text: str) -> None:
    """Write a file of the tree, whose text may be indented."""
    lines = text.split("\n")
    indent = " " * 8 if lines[0] == "" else ""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text("\n".join(line.removeprefix(indent) for line in lines) + "\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a tree with a package and its tests."""
    for path, text in FILES.items():
        write(tmp_path, path, text)
    return tmp_path


@pytest.fixture
def checkout(tree: Path) -> Path:
    """Return the tree as a checkout of git, committed."""
    git(tree, "init")
    git(tree, "add", ".")
    git(tree, "commit", "--message", "first")
    return tree


@pytest.fixture
def reached(tree: Path) -> Callable[..., set[str]]:
    """Return the function that says which tests a change of files reaches."""
    graph = Graph(tree, FILES)
    return lambda *paths: {*graph.reached_from(paths)}


@pytest.fixture
def selected(checkout: Path) -> Callable[..., Selection]:
    """Return the function that selects tests for what is changed in the tree."""

    def run(base: str | None = None) -> Selection:
        found = changes.since_base(checkout, base)
        return select(checkout, found, graph_of(checkout, found))

    return run


def test_a_module_reaches_its_importers_and_theirs(reached: Callable[..., set[str]]) -> None:
    sums = {"tests/test_basket.py", "tests/test_sums.py"}
    assert reached("shop/basket.py") == sums
    assert reached("shop/price.py") == sums | BELOW_UNIT


def test_an_import_for_type_checkers_reaches_nobody(reached: Callable[..., set[str]]) -> None:
    assert reached("shop/typed.py") == {"tests/test_typed.py"}
    assert "tests/test_typed.py" not in reached("shop/price.py")


def test_an_import_within_a_function_counts(reached: Callable[..., set[str]]) -> None:
    assert reached("shop/rare.py") == USING_TILL


def test_an_import_by_a_name_in_a_table_counts(reached: Callable[..., set[str]]) -> None:
    assert reached("shop/parts/part.py") == {"tests/test_parts.py"}


def test_a_module_named_after_the_one_that_names_it_counts(
    reached: Callable[..., set[str]],
) -> None:
    assert reached("shop/kinds/first.py") == {"tests/test_kinds.py"}


def test_what_django_loads_of_an_app_counts(reached: Callable[..., set[str]]) -> None:
    assert reached("shop/app/apps.py") == {"tests/test_app.py"}


def test_a_package_reaches_the_importers_of_its_modules(reached: Callable[..., set[str]]) -> None:
    assert reached("shop/parts/__init__.py") == {"tests/test_parts.py"}
    assert {"tests/test_basket.py", *USING_TILL} < reached("shop/__init__.py")


def test_a_server_is_reached_by_its_fixture_its_script_and_pages(
    reached: Callable[..., set[str]],
) -> None:
    assert reached("shop/till.py") == USING_TILL


def test_a_helper_reaches_only_those_who_use_it(reached: Callable[..., set[str]]) -> None:
    # test_till starts the server with a function of the same module.
    assert "tests/live/test_till.py" not in reached("shop/basket.py")


def test_a_changed_module_of_helpers_reaches_all_its_users(
    reached: Callable[..., set[str]],
) -> None:
    users = {f"tests/{name}.py" for name in ("test_sums", "live/test_till", "live/test_named")}
    assert users <= reached("tests/support/servers.py")


def test_a_conftest_reaches_all_tests_below_it(reached: Callable[..., set[str]]) -> None:
    assert reached("tests/unit/conftest.py") == BELOW_UNIT


def test_a_fixture_of_a_plugin_of_the_package_counts(reached: Callable[..., set[str]]) -> None:
    assert reached("shop/plugin.py") == {"tests/test_plugin.py"}


def test_a_page_reaches_those_who_read_it(reached: Callable[..., set[str]]) -> None:
    assert reached("docs/guide.md") == {"tests/unit/test_links.py", "tests/live/test_guide.py"}
    assert reached("docs/other.md") == {"tests/unit/test_links.py"}


def test_other_files_reach_those_who_name_them(reached: Callable[..., set[str]]) -> None:
    assert reached("config/till.conf") == {"tests/unit/test_config.py"}


def test_a_file_of_the_package_reaches_the_importers_of_the_modules_beside_it(
    reached: Callable[..., set[str]],
) -> None:
    assert reached("shop/parts/page.html") == {"tests/test_parts.py"}


def test_a_test_reaches_itself(reached: Callable[..., set[str]]) -> None:
    assert reached("tests/live/test_till.py") == {"tests/live/test_till.py"}


def test_it_says_how_a_test_reaches_the_change(tree: Path) -> None:
    way = Graph(tree, FILES).reached_from(["shop/rare.py"])["tests/live/test_till.py"]
    assert way == [
        "tests/live/test_till.py",
        "tests/live/test_till.py::test_it",
        "conftest.py::till",
        "tests/support/servers.py::start",
        "tests/support/servers.py::TILL",
        "shop/till.py",
        "shop/rare.py",
    ]


@pytest.mark.parametrize("path", ["strange.txt", "conftest.py", "setup.py"])
def test_what_anything_may_depend_on_selects_everything(
    tree: Path, selected: Callable[..., Selection], path: str
) -> None:
    write(tree, path, "# new")
    found = selected()
    assert {*found.ways} == {path for path in FILES if "/test_" in path}
    assert path in found.reasons[0]


def test_what_is_installed_selects_everything_but_settings_of_linters_do_not(
    tree: Path, selected: Callable[..., Selection]
) -> None:
    write(tree, "pyproject.toml", f"{PROJECT}[tool.ruff]\nline-length = 90\n")
    assert not selected().ways
    write(
        tree, "pyproject.toml", PROJECT.replace("[project]", "[project]\ndependencies = ['trio']")
    )
    assert len(selected().ways) == len(selected().all)


def test_a_new_distribution_selects_everything(
    tree: Path, selected: Callable[..., Selection]
) -> None:
    new = PROJECT.replace("shop", "stall")
    write(tree, "packages/stall/pyproject.toml", new)
    write(tree, "packages/stall/stall/__init__.py", "")
    assert len(selected().ways) == len(selected().all)


def test_a_removed_module_reaches_the_importers_of_its_package(
    tree: Path, selected: Callable[..., Selection]
) -> None:
    (tree / "shop/parts/part.py").unlink()
    assert {*selected().ways} == {"tests/test_parts.py"}


def test_a_removed_helper_reaches_its_users(tree: Path, selected: Callable[..., Selection]) -> None:
    git(tree, "mv", "tests/support/servers.py", "tests/support/moved.py")
    users = {f"tests/{name}.py" for name in ("test_sums", "live/test_till", "live/test_named")}
    assert users <= {*selected().ways}


def test_a_removed_conftest_reaches_all_tests_below_it(
    tree: Path, selected: Callable[..., Selection]
) -> None:
    (tree / "tests/unit/conftest.py").unlink()
    assert {*selected().ways} == BELOW_UNIT


def test_a_removed_page_reaches_those_who_read_it(
    tree: Path, selected: Callable[..., Selection]
) -> None:
    (tree / "docs/guide.md").unlink()
    assert {*selected().ways} == {"tests/unit/test_links.py", "tests/live/test_guide.py"}


@pytest.mark.parametrize("path", ["shop/rare.py", "tests/test_sums.py"])
def test_a_module_that_cannot_be_parsed_selects_everything(
    tree: Path, selected: Callable[..., Selection], path: str
) -> None:
    write(tree, path, "def ")
    found = selected()
    assert list(found.ways) == found.all
    assert {"tests/test_basket.py", *USING_TILL} < {*found.all}
    assert found.reasons


def test_without_changes_the_last_commit_counts(
    tree: Path, selected: Callable[..., Selection]
) -> None:
    write(tree, "shop/rare.py", "new = 1")
    git(tree, "commit", "--all", "--message", "second")
    assert {*selected().ways} == USING_TILL
    write(tree, "tests/unit/test_new.py", "def test_it(): ...")
    assert [*selected().ways] == ["tests/unit/test_new.py"]


def test_commits_since_the_base_count_with_what_is_not_committed(
    tree: Path, selected: Callable[..., Selection]
) -> None:
    git(tree, "checkout", "-b", "mine")
    write(tree, "shop/rare.py", "new = 1")
    git(tree, "commit", "--all", "--message", "mine")
    git(tree, "checkout", "main")
    write(tree, "config/till.conf", "of = others")
    git(tree, "commit", "--all", "--message", "theirs")
    git(tree, "checkout", "mine")
    write(tree, "tests/test_plugin.py", "def test_it(): ...")
    assert {*selected("main").ways} == USING_TILL | {"tests/test_plugin.py"}


def test_the_command_writes_files_for_pytest(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(checkout, "shop/price.py", "new = 1")
    monkeypatch.chdir(checkout)
    file = checkout / "build" / "affected"
    only = "tests/unit --ignore=tests/unit/test_nothing.py"
    assert main(["--write", str(file), "--compiled", only]) == 0
    assert file.read_text().split() == sorted(
        BELOW_UNIT | {"tests/test_basket.py", "tests/test_sums.py"}
    )
    compiled = file.with_name("affected-compiled").read_text().split()
    assert compiled == sorted(BELOW_UNIT - {"tests/unit/test_nothing.py"})
    printed = capsys.readouterr().out
    assert "tests/unit 4" in printed
    assert "tests 2 of 7" in printed
    assert "tests/live 4" in printed


def test_the_past_is_measured(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, test in enumerate(["tests/test_parts.py", "tests/test_plugin.py"]):
        write(checkout, "shop/parts/part.py", f"number = {number}")
        write(checkout, test, f"{FILES[test]}\nNUMBER = {number}")
        git(checkout, "commit", "--all", "--message", "next")
    ids = [path for path in FILES if "/test_" in path] * 2
    durations = checkout.parent / "durations"
    durations.write_text("".join(f'{{"id": "{one}::test_it", "cpu": 1.5}}\n' for one in ids))
    monkeypatch.chdir(checkout)
    assert main(["--history", "2", "--durations", str(durations)]) == 0
    second, first, cases, seconds, missed = capsys.readouterr().out.splitlines()
    assert second.endswith("misses tests/test_plugin.py")
    assert first.endswith(" 3.0 s")
    assert seconds == "CPU seconds: mean 4.5, median 4.5"
    assert cases.startswith("test cases: mean ")
    assert missed.endswith(": 1, of 2 that change both")
