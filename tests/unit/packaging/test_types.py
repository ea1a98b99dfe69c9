"""The types of the clients are known to the type checkers of those who use them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

BIN = Path(sys.executable).parent


def pyright(*arguments: str) -> "subprocess.CompletedProcess[str]":
    program = shutil.which("pyright", path=BIN)
    if program is None:
        pytest.skip("pyright is not installed")
    # It finds packages with the python of PATH.
    environ = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [program, *arguments], env=environ, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("package", ["disque_trio.client", "disque_trio.tasks"])
def test_all_public_types_are_known(package: str) -> None:
    if pyright("--version").returncode:
        pytest.skip("pyright could not fetch itself")
    done = pyright("--verifytypes", package, "--ignoreexternal")
    assert done.returncode == 0, done.stdout
    assert "Type completeness score: 100%" in done.stdout
