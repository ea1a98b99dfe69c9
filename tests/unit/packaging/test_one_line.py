"""Each command prints one line for an error that nobody expected, and ``--debug`` the traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.workspace import distributions

SCRIPTS = {name: at for each in distributions() for name, at in each.scripts.items()}
BROKEN = {  # a module that each imports late, and arguments with which it does
    "bananaq": ("trio", []),
    "bananaq-check-aof": ("", ["a\0b"]),
    "disque": ("disque_trio.cli.top.running", ["--top"]),
    "disque-check-aof": ("", ["a\0b"]),
    "disque-console": ("trio", []),
    "disque-outbox": ("sqlalchemy", ["--database", "sqlite://"]),
    "disque-pipeline": ("pyspark", ["audit", ".", "--output", "a", "--engine", "spark"]),
    "disque-server": ("trio", []),
    "disque-worker": ("trio", ["shop:app"]),
    "pressure": ("trio", ["length", "lines"]),
}
RUN = """
import sys
from importlib.abc import MetaPathFinder
from {module} import {function}

class Broken(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {broken!r}:
            raise RuntimeError("of a\\nlibrary")

sys.meta_path.insert(0, Broken())
for more in ([], ["--debug"]):
    sys.argv[1:] = [*{arguments!r}, *more]
    try:
        print("ended with", {function}())
    except Exception as error:
        print("raised", type(error).__name__)
"""


@pytest.mark.parametrize("command", sorted(SCRIPTS))
def test_an_error_that_nobody_expected_is_one_line(command: str, tmp_path: Path) -> None:
    broken, arguments = BROKEN[command]
    module, _, function = SCRIPTS[command].partition(":")
    program = RUN.format(module=module, function=function, broken=broken, arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    kind = "RuntimeError: of a library" if broken else "ValueError: embedded null byte"
    assert done.stderr == f"{command}: {kind} (--debug shows where)\n"
    assert done.stdout.splitlines() == ["ended with 1", f"raised {kind.partition(':')[0]}"]


def test_that_covers_all_commands() -> None:
    assert sorted(BROKEN) == sorted(SCRIPTS)
