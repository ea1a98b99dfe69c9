"""The processes that tests start run the form that is to be tested, and say so."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXPECTED = os.environ.get("DISQUE_TRIO_FORM", "pure Python")


@pytest.mark.parametrize("module", ["disque_trio.server", "disque_trio.bananaq.main"])
def test_the_version_tells_the_form(module: str, tmp_path: Path) -> None:
    for directory in (tmp_path, Path.cwd()):
        done = subprocess.run(
            [sys.executable, "-m", module, "--version"],
            cwd=directory,
            capture_output=True,
            text=True,
            check=True,
        )
        assert f", {EXPECTED} (Python " in done.stdout
