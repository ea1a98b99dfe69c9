"""The fixtures for the tests of programs, in a separate pytest."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from disque_trio import pytest_plugin
from tests.support import ROOT
from tests.support.harness import HANG_SECONDS, LiveNode, free_port

TESTS = """
import os
from disque_trio.tasks import Disque

seen = []

def test_a_node_answers(disque_node, disque_url):
    seen.append(disque_node)
    with Disque(disque_url) as app:
        work = app.task(name="work")(lambda: 7)
        assert work.add().get_state() == "pending"

def test_another_one(disque_node):
    seen.append(disque_node)

def test_how_many_there_were():
    shared = seen[0].process.pid == seen[1].process.pid
    assert shared == ("session" in os.environ["SCOPE"])
    assert [node.process.poll() is None for node in seen] == [shared, shared]
"""


@pytest.mark.parametrize("scope", ["function", "session"])
def test_a_program_gets_a_node_for_its_tests(tmp_path: Path, scope: str) -> None:
    (tmp_path / "test_program.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\ndisque_scope = {scope}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "disque_trio.pytest_plugin"]
    done = subprocess.run(
        [*command, "-p", "no:randomly", "-p", "no:cacheprovider", "-W", "error"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SCOPE": scope},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_no_test_gets_the_node_of_another_program(
    shared_node: LiveNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = iter([shared_node.port, free_port()])
    monkeypatch.setattr(pytest_plugin, "_free_port", lambda: next(ports))
    node = pytest_plugin._start(tmp_path)
    try:
        assert node.port != shared_node.port
        assert node.process.poll() is None
    finally:
        node.process.kill()
        node.process.wait()
