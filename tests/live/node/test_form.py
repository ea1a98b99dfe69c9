"""The processes started by tests run the build under test, and report it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXPECTED = os.environ.get("DISQUE_TRIO_FORM", "pure Python")


@pytest.mark.pure
@pytest.mark.parametrize("module", ["disque_trio.server", "disque_bananaq.main"])
def test_version_prints_the_build(module: str, tmp_path: Path) -> None:
    for directory in (tmp_path, Path.cwd()):
        done = subprocess.run(
            [sys.executable, "-m", module, "--version"],
            cwd=directory,
            capture_output=True,
            text=True,
            check=True,
        )
        assert f", {EXPECTED} (Python " in done.stdout
