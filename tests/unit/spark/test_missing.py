"""The command where Spark is not installed."""

import subprocess
import sys

import pytest

from disque_trio.extras import how_to_install

COMMANDS = {
    "audit": ["x", "--output", "y"],
    "report": ["x"],
    "archive": ["--queue", "q", "--output", "y"],
    "replay": ["--archive", "x"],
}
HIDDEN = """
import runpy, sys
for name in ("pyspark", "py4j", "pyarrow", "pandas", "numpy"):
    sys.modules[name] = None
runpy.run_module("disque_trio.spark.pipeline", run_name="__main__")
"""


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", HIDDEN, *words], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_says_in_one_line_what_to_install(command: str) -> None:
    done = run(command, *COMMANDS[command])
    assert (done.returncode, done.stdout) == (1, "")
    assert how_to_install("spark") in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_needs_no_spark() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert all(command in done.stdout for command in COMMANDS)
    assert run("archive", "--help").returncode == 0


def test_what_is_installed_is_what_the_extra_has() -> None:
    words = how_to_install("spark").split()
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert words[-1].rstrip("'").endswith("[spark]")
