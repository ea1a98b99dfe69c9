"""How the CPU time of tests is added up, and which tests are left to the compiled build."""

import json
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT
from tests.support.spent import cpu_seconds, folder

# A child of a child spends CPU time, and says how much.
SPENDING = """
import subprocess, sys, time
if len(sys.argv) == 1:
    sys.exit(subprocess.call([sys.executable, __file__, "again"]))
while time.process_time() < 0.3:
    pass
"""


def run(*arguments: str, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_the_processes_that_a_test_starts_count(tmp_path: Path) -> None:
    program = tmp_path / "spending.py"
    program.write_text(SPENDING)
    before = cpu_seconds()
    subprocess.run([sys.executable, str(program)], check=True)
    assert cpu_seconds() - before >= 0.3


def test_a_file_counts_for_the_folder_below_unit_or_live() -> None:
    assert folder(ROOT / "tests/unit/node/core/test_job.py") == "tests/unit/node"
    assert folder(ROOT / "tests/sim/test_seeds.py") == "tests/sim"


def test_a_run_in_several_processes_writes_all_folders(tmp_path: Path) -> None:
    spent = tmp_path / "new" / "spent.json"
    done = run("-n", "2", "--spent", str(spent), "tests/unit/resp/test_reply.py")
    assert done.returncode == 0, done.stdout
    found = json.loads(spent.read_text())
    assert set(found) == {"(no test)", "tests/unit/resp"}
    assert found["(no test)"] > 0.1


def collected(*arguments: str) -> str:
    return run("--collect-only", *arguments).stdout


def test_of_what_the_compiled_build_tests_only_tests_marked_pure_are_left() -> None:
    both = ("tests/live/node/test_form.py", "tests/live/node/test_auth.py")
    left = collected(*both, "--compiled-only", "tests/live/node tests/sim")
    assert "test_form.py::test_version_prints_the_build" in left
    assert "test_auth.py::" not in left
    assert "test_auth.py::" in collected(*both, "--compiled-only", "tests/live/node/test_form.py")
