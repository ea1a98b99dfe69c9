"""The report about the packages of an environment."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.harness import free_port
from tools.packages import licences, verdict

SOUND = {"name": "trio", "version": "0.30", "vulns": []}
BAD = {"name": "old", "version": "1.0", "vulns": [{"id": "CVE-1", "fix_versions": ["1.1"]}]}
UNKNOWN = {"name": "ours", "skip_reason": "not found"}


def report(*packages: object) -> str:
    return json.dumps({"dependencies": packages})


def test_a_known_vulnerability_is_named_and_a_failure() -> None:
    text, well = verdict(report(SOUND, BAD))
    assert not well
    assert "old 1.0: CVE-1, fixed in 1.1" in text


def test_packages_without_one_are_no_failure_and_those_not_asked_about_are_counted() -> None:
    text, well = verdict(report(SOUND, UNKNOWN))
    assert well
    assert "1 of 2 packages" in text


def test_an_index_that_knows_none_of_them_is_not_taken_for_all_is_well() -> None:
    text, well = verdict(report(UNKNOWN))
    assert well
    assert "not audited" in text


def run(*options: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run the command on the packages that the tests run with."""
    return subprocess.run(
        [sys.executable, "-m", "tools.packages", sys.executable, *options],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def instead(directory: Path, program: str) -> str:
    """A ``PYTHONPATH`` with another program under the name of pip-audit."""
    (directory / "pip_audit.py").write_text(program)
    return os.pathsep.join([str(directory), str(ROOT)])


def test_a_vulnerability_fails_the_audit_but_a_note_of_it_fails_nothing(tmp_path: Path) -> None:
    path = instead(tmp_path, f"print({report(SOUND, BAD)!r}); raise SystemExit(1)")
    assert run(PYTHONPATH=path).returncode == 1
    note = tmp_path / "build" / "note"
    assert run("--note", str(note), PYTHONPATH=path).returncode == 0
    assert "old 1.0: CVE-1, fixed in 1.1" in note.read_text()


def test_a_note_of_packages_without_one_is_empty(tmp_path: Path) -> None:
    path = instead(tmp_path, f"print({report(SOUND)!r})")
    note = tmp_path / "note"
    note.write_text("of yesterday")
    assert run("--note", str(note), PYTHONPATH=path).returncode == 0
    assert note.read_text() == ""


def test_without_the_network_it_is_no_failure() -> None:
    pytest.importorskip("pip_audit")
    nobody = f"http://127.0.0.1:{free_port()}"
    done = run(HTTPS_PROXY=nobody, https_proxy=nobody, NO_PROXY="", no_proxy="")
    assert done.returncode == 0, done.stderr
    assert "not audited" in done.stdout


def test_a_network_that_does_not_answer_in_time_is_no_failure(tmp_path: Path) -> None:
    path = instead(tmp_path, "import time\nwhile True: time.sleep(60)")
    done = run("--limit", "0.1", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert "not audited" in done.stdout


def test_an_audit_that_fails_by_itself_is_not_taken_for_all_is_well(tmp_path: Path) -> None:
    path = instead(tmp_path, "raise RuntimeError")
    assert run(PYTHONPATH=path).returncode == 1


def test_licences_are_told_as_they_are_declared() -> None:
    assert licences({"licenses": [{"license": {"id": "MIT"}}]}) == "MIT"
    assert licences({"licenses": [{"expression": "MIT OR Apache-2.0"}]}) == "MIT OR Apache-2.0"
    name = "License :: OSI Approved :: BSD License"
    assert licences({"licenses": [{"license": {"name": name}}]}) == "BSD License"
    assert licences({}) == "not declared"
