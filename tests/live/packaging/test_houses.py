"""The wheels of the distributions that are built on the queue."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support import ROOT
from tools.workspace import Distribution, distributions

_, *OTHERS = distributions()
BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.mark.parametrize("house", OTHERS, ids=lambda house: house.folder.name)
def test_a_wheel_has_all_files_of_its_package(house: Distribution, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    ignored = shutil.ignore_patterns("__pycache__", "tests", "*.egg-info")
    shutil.copytree(ROOT / house.folder, tree, ignore=ignored)
    command = [sys.executable, "-c", BUILD, str(tmp_path)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    files = [*tree.glob("*.py"), *(tree / house.package).rglob("*")]
    wanted = {path.relative_to(tree).as_posix() for path in files if path.is_file()} - {"setup.py"}
    assert len(wanted) > 10
    assert wanted <= names
