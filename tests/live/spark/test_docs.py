"""The commands of the documentation are run as they stand there; only ports and directories are
others, so that they disturb nobody."""

import os
import random
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT

DOCUMENT = ROOT / "docs" / "spark.md"
LONG = bool(os.environ.get("DISQUE_SPARK_LONG"))
NODES = 3


def commands(title: str) -> str:
    """What is indented below a title."""
    text = DOCUMENT.read_text()
    part = re.split(rf"^#+ {re.escape(title)}$", text, maxsplit=1, flags=re.MULTILINE)[1]
    part = re.split(r"^#", part, maxsplit=1, flags=re.MULTILINE)[0]
    return "".join(line[4:] for line in part.splitlines(True) if line.startswith("    "))


def free_ports() -> str:
    """The digits that free ports, one for each node, have before their last one."""
    for _ in range(200):
        digits = random.randrange(1000, 2000)
        ports = [10 * digits + n for n in range(1, NODES + 1)]
        if all(is_free(port) and is_free(port + 10_000) for port in ports):
            return str(digits)
    raise RuntimeError("no free ports")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.mark.skipif(not LONG, reason="takes two minutes; set DISQUE_SPARK_LONG")
@pytest.mark.live
@pytest.mark.timeout(600)
def test_nothing_is_lost_when_an_archive_is_killed_twice_as_documented(tmp_path: Path) -> None:
    script = commands("Nothing is lost: three nodes and an archive that is killed twice")
    assert script.count("kill -9") == 2
    assert script.count("disque-pipeline") == 3
    script = script.replace("771", free_ports()).replace("/tmp/three", str(tmp_path / "three"))
    script = script.replace("$PWD/.venv/bin", str(Path(sys.executable).parent))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with subprocess.Popen(
        ["bash"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary), "SPARK_LOCAL_IP": "127.0.0.1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            output, _ = shell.communicate(script)
        finally:
            if shell.poll() is None:
                os.killpg(shell.pid, signal.SIGKILL)
            for pid in tmp_path.glob("three/*/pid"):
                os.kill(int(pid.read_text()), signal.SIGKILL)
    assert output.count("Killed") >= 2, output
    assert "exit status 0\n" in output, output
    assert "\n0 produced and not archived\n" in output, output
    produced = (tmp_path / "three" / "produced.ids").read_text().splitlines()
    assert len(produced) > 1000
    assert "No job was lost" in (tmp_path / "three" / "report.html").read_text()
