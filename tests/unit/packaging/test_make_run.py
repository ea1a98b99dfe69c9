"""What ``make run`` says and starts after everything has been set up."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT

SERVER = '#!/bin/sh\necho "serving $@"\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout whose environment has a server that only prints its arguments."""
    tree = tmp_path / "a tree in a home of é"
    programs = tree / ".venv" / "bin"
    programs.mkdir(parents=True)
    (tree / "tools").mkdir()
    for name in ("Makefile", "pyproject.toml", "tools/setup.sh"):
        shutil.copy(ROOT / name, tree / name)
    shutil.copy(tree / "pyproject.toml", tree / ".venv" / ".installed-console,cron")
    (programs / "python").symlink_to("/bin/true")
    (programs / "disque-server").write_text(SERVER)
    (programs / "disque-server").chmod(0o755)
    return tree


def make_run(tree: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    of_make = {"MAKEFLAGS", "MAKELEVEL", "MFLAGS", "PYTHON", "VENV", "COMPILED", "ARGS"}
    environ = {name: value for name, value in os.environ.items() if name not in of_make}
    return subprocess.run(
        ["make", "run", *arguments],
        cwd=tree,
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )


def test_the_node_is_started_with_the_shipped_file_and_what_the_caller_adds(tree: Path) -> None:
    done = make_run(tree, "ARGS=--port 7712")
    assert done.stdout == "serving config/disque.yaml --dir data --port 7712\n"
    assert (tree / "data").is_dir()
    assert (ROOT / "config" / "disque.yaml").is_file()


def test_one_line_says_how_to_get_the_compiled_build(tree: Path) -> None:
    done = make_run(tree, "COMPILED=elsewhere")
    assert "compiled" not in done.stdout
    (line,) = done.stderr.splitlines()
    assert "make compiled" in line
    assert "elsewhere/bin/disque-server config/disque.yaml --dir data" in line
