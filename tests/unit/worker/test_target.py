"""Importing what the command line names."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.worker.target import AppError, files, load


@pytest.fixture(autouse=True)
def modules(tmp_path: Path) -> Iterator[None]:
    """Files to import, and cleanup of what was imported."""
    (tmp_path / "shop_x").mkdir()
    (tmp_path / "shop_x" / "__init__.py").write_text("")
    (tmp_path / "shop_x" / "tasks.py").write_text("app = 'app'\nclass inner:\n    app = 'deep'\n")
    (tmp_path / "needs_x.py").write_text("import no_such_module_x\n")
    (tmp_path / "syntax_x.py").write_text("def\n")
    (tmp_path / "raises_x.py").write_text("raise RuntimeError('not\\ntoday')\n")
    (tmp_path / "exits_x.py").write_text("raise SystemExit(3)\n")
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_directory_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(AppError, match=r"--app-dir: .*/none is not a directory"):
        load("shop_x.tasks", str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("shop_x.tasks:app", "app"),
        ("shop_x.tasks", "app"),
        ("app:shop_x.tasks", "app"),
        ("shop_x.tasks:inner.app", "deep"),
    ],
)
def test_the_module_may_come_first_or_last(target: str, found: str, tmp_path: Path) -> None:
    assert load(target, str(tmp_path)) == found


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ("nothing_x", "'nothing_x'"),
        ("nothing_x:app", "'nothing_x'"),
        ("shop_x.nothing:app", "'shop_x.nothing'"),
        ("shop_x.tasks:other", "'other'"),
        (":app", "module:app"),
        ("shop_x/tasks.py:app", "'shop_x/tasks.py'"),
    ],
)
def test_what_does_not_exist_is_named(target: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(AppError) as error:
        load(target, str(tmp_path))
    assert word in str(error.value)
    assert "\n" not in str(error.value)
    assert not error.value.details


@pytest.mark.parametrize(
    ("target", "word"),
    [
        ("needs_x:app", "no_such_module_x"),
        ("syntax_x:app", "SyntaxError"),
        ("raises_x:app", "RuntimeError: not today"),
        ("exits_x:app", "SystemExit"),
        ("app:raises_x", "RuntimeError"),
    ],
)
def test_an_error_in_the_code_is_reported_with_its_location(
    target: str, word: str, tmp_path: Path
) -> None:
    with pytest.raises(AppError) as error:
        load(target, str(tmp_path))
    assert word in str(error.value)
    assert "\n" not in str(error.value)
    assert "Traceback" in error.value.details
    module = next(word for word in target.split(":") if word != "app")
    assert str(tmp_path / f"{module}.py") in error.value.files


def test_the_files_of_what_was_imported_are_known(tmp_path: Path) -> None:
    load("shop_x.tasks:app", str(tmp_path))
    assert str(tmp_path / "shop_x" / "tasks.py") in files(but=())
    assert str(tmp_path / "shop_x" / "tasks.py") not in files(but=(f"{tmp_path}/",))
