"""A forked command behaves like a new process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import PYTHONPATH, ROOT
from tests.support.commands import Forked, run_command, start_command
from tests.support.harness import HANG_SECONDS

PYTHON = "python -c"


@pytest.fixture(params=["new", "forked"])
def environ(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """The environment of a process that is forked or not."""
    found = {"PYTHONPATH": str(ROOT), **os.environ}
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
        found.pop(name, None)
    # Only the interpreter heeds this one, at its start.
    return found if request.param == "forked" else {**found, "PYTHONNODEBUGRANGES": "1"}


def test_only_what_is_not_read_before_a_program_starts_is_given_to_a_fork(
    environ: Mapping[str, str],
) -> None:
    with start_command(PYTHON, "", env=environ) as process:
        assert isinstance(process, Forked) == ("PYTHONNODEBUGRANGES" not in environ)


@pytest.mark.parametrize("path", [str(ROOT), PYTHONPATH])
def test_a_fork_finds_this_repository_by_itself(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a session of Spark leaves it in the environment of the tests that come after it."""
    monkeypatch.setenv("PYTHONPATH", path)
    with start_command(PYTHON, "") as process:
        assert isinstance(process, Forked)


def test_it_gets_arguments_input_environment_and_directory(
    environ: Mapping[str, str], tmp_path: Path
) -> None:
    program = """
import json, os, sys, time
here = [os.getcwd(), sys.path[0], os.environ["MINE"], time.tzname[0]]
print(json.dumps([sys.argv, sys.stdin.read(), *here, sys.dont_write_bytecode]))
"""
    mine = {**environ, "MINE": "x\udcff", "TZ": "ABC-3", "PYTHONDONTWRITEBYTECODE": "1"}
    words = ["a b", "", "\udcff"]
    done = run_command(PYTHON, program, *words, input="ü\r\n", text=True, cwd=tmp_path, env=mine)
    here = str(tmp_path)
    expected = [["-c", *words], "ü\r\n", here, here, "x\udcff", "ABC", True]
    assert (json.loads(done.stdout), done.returncode, done.stderr) == (expected, 0, "")


@pytest.mark.parametrize(
    ("program", "status", "says"),
    [
        ("", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("raise SystemExit('so')", 1, "so\n"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
    ],
)
def test_it_ends_with_its_status_and_complaint(
    environ: Mapping[str, str], program: str, status: int, says: str
) -> None:
    done = run_command(PYTHON, program, text=True, env=environ)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.endswith(says)
    assert bool(done.stderr) == bool(says)


def test_it_is_interrupted(environ: Mapping[str, str]) -> None:
    program = """
import sys, time
try:
    print("up", flush=True)
    time.sleep(600)
except KeyboardInterrupt:
    sys.exit(130)
"""
    with start_command(PYTHON, program, stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout.read(3) == b"up\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG_SECONDS) == 130


def test_its_output_is_written_at_the_end_unless_it_is_unbuffered(
    environ: Mapping[str, str],
) -> None:
    program = """
import atexit, os, sys
atexit.register(print, "last")
print("first")
os.write(1, b"direct ")
"""
    done = run_command(PYTHON, program, env=environ)
    assert done.stdout == b"direct first\nlast\n"
    done = run_command(PYTHON, program, env={**environ, "PYTHONUNBUFFERED": "1"})
    assert done.stdout == b"first\ndirect last\n"


def test_a_full_disk_fails_the_last_write(environ: Mapping[str, str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run_command(PYTHON, "print('x')", stdout=full, env=environ)
    assert done.returncode == 120
    assert b"No space left" in done.stderr


def test_it_has_three_descriptors_and_a_session_if_asked(environ: Mapping[str, str]) -> None:
    program = """
import os
listed = sorted(map(int, os.listdir("/proc/self/fd")))
print(listed[:3], len(listed), os.getsid(0) == os.getpid())
"""
    done = run_command(PYTHON, program, text=True, env=environ)
    assert done.stdout == "[0, 1, 2] 4 False\n"  # the fourth one is that of the listing
    done = run_command(PYTHON, program, text=True, start_new_session=True, env=environ)
    assert done.stdout == "[0, 1, 2] 4 True\n"


def test_it_leads_the_session_of_its_terminal(environ: Mapping[str, str]) -> None:
    program = """
import os, sys
streams = [stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)]
print(streams, sys.stdout.line_buffering, os.tcgetpgrp(0) == os.getpid())
"""
    ours, theirs = os.openpty()
    try:
        with start_command(PYTHON, program, terminal=theirs, env=environ) as process:
            assert process.wait(HANG_SECONDS) == 0
        assert os.read(ours, 1000) == b"[True, True, True] True True\r\n"
    finally:
        os.close(theirs)
        os.close(ours)


def test_waiting_for_it_ends_in_time(environ: Mapping[str, str]) -> None:
    with start_command(PYTHON, "input()", stdin=subprocess.PIPE, env=environ) as process:
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.kill()
        assert process.wait(HANG_SECONDS) == -signal.SIGKILL
        assert process.poll() == -signal.SIGKILL


def test_a_failed_command_can_raise(environ: Mapping[str, str]) -> None:
    with pytest.raises(subprocess.CalledProcessError, match="status 3"):
        run_command(PYTHON, "raise SystemExit(3)", env=environ, check=True)


def test_forked_processes_end_with_the_tests_even_if_these_are_killed() -> None:
    tests = """
import subprocess, sys
from tests.support.commands import start_command
process = start_command("python -c", "import time; time.sleep(600)", stdout=sys.stdout)
print(process.pid, flush=True)
sys.stdin.read()
"""
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", tests], cwd=ROOT, **streams) as process:
        assert process.stdout.readline().strip().isdigit()
        process.kill()
        assert process.stdout.read() == b""  # nobody can write to it any more


def test_what_a_fork_cannot_have_is_refused() -> None:
    with pytest.raises(AssertionError, match="pass_fds"):
        start_command(PYTHON, "", pass_fds=[0])
