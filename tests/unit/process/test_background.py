"""Going to the background, in a process of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.harness import HANG_SECONDS

START = """
import os, signal, sys
from disque_trio.process.process import detach
{before}
served = detach()
print("starts", file=sys.stderr)
{then}
"""


def run(then: str, before: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a server that does ``then`` in the background."""
    return subprocess.run(
        [sys.executable, "-c", START.format(before=before, then=then)],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def test_the_first_process_waits_until_the_server_serves() -> None:
    done = run("served(); print('serves', file=sys.stderr)")
    assert (done.returncode, done.stderr) == (0, "starts\n")


@pytest.mark.parametrize("before", ["", "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"])
def test_the_first_process_ends_like_a_server_that_cannot_start(before: str) -> None:
    done = run("sys.exit('no')", before)
    assert (done.returncode, done.stderr) == (1, "starts\nno\n")
    assert run("sys.exit(3)", before).returncode == 3


@pytest.mark.parametrize("end", ["sys.exit(0)", f"os.kill(os.getpid(), {signal.SIGKILL:d})"])
def test_a_server_that_ends_before_it_serves_has_not_started(end: str) -> None:
    done = run(end)
    assert done.returncode == 1
    assert done.stderr.startswith("starts\ndisque-server: ")


def test_programs_of_the_server_do_not_hold_the_output_of_the_first_process(
    tmp_path: Path,
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    done = run(f"import subprocess; subprocess.Popen(['cat', {str(gate)!r}]); served()")
    assert done.returncode == 0
    gate.open("w").close()  # cat, which was still there, ends
