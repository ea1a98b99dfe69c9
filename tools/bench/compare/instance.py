"""A server under comparison as processes: started in a directory of its own, with the CPU time of
all that it runs, and ended for sure."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools.bench.load import LoadError
from tools.bench.servers import SERVER_CPUS, ServerError

START_SECONDS = 60.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.02
TICKS = os.sysconf("SC_CLK_TCK")

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to start a server: its ``command``, what it needs in the environment, and the
    commands of processes that have to run before (``before``)."""

    command: Sequence[str]
    port: int
    environment: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[Sequence[str]] = ()


@dataclass(frozen=True, slots=True)
class Instance:
    """A running server: its processes, the one that was started for it the last of them."""

    name: str
    port: int
    processes: Sequence[subprocess.Popen[bytes]]
    log: Path

    def cpu_seconds(self) -> float:
        """User plus system time so far of the processes and all their descendants, those that
        have ended included."""
        ours = [process.pid for process in self.processes]
        try:
            return tree_cpu_seconds(ours)
        except OSError as error:
            raise self.failure("its CPU time cannot be read") from error

    def failure(self, what: object) -> ServerError:
        """The error for ``what`` went wrong, with the exit status and the end of the log."""
        status = self.processes[-1].poll()
        state = "" if status is None else f"; it has ended with status {status}"
        lines = self.log.read_text(errors="replace").splitlines()[-15:]
        log = "".join(f"\n    {line[:500]}" for line in lines)
        return ServerError(f"{self.name}: {what}{state}" + (f"; its log ends:{log}" if log else ""))


def tree_cpu_seconds(pids: Sequence[int]) -> float:
    """The CPU time of these processes and their descendants, in seconds.

    That of living processes counts nanoseconds; what ended children have used is known in ticks
    of 10 ms. Raises OSError when one of ``pids`` does not live.
    """
    children: dict[int, list[int]] = {}
    reaped: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            pid = int(entry.name)
            children.setdefault(int(words[1]), []).append(pid)
            reaped[pid] = (int(words[13]) + int(words[14])) / TICKS
    total = 0.0
    rest = list(pids)
    while rest:
        pid = rest.pop()
        try:
            total += time.clock_gettime((~pid << 3) | 2) + reaped.get(pid, 0.0)
        except OSError:
            if pid in pids:
                raise
            continue  # it has just ended: its parent will say
        rest += children.get(pid, [])
    return total


@contextmanager
def running(
    name: str,
    recipe: Callable[[Path], Recipe],
    ready: Callable[[int], None],
    base: Path | None = None,
) -> Iterator[Instance]:
    """Runs a server in a directory of its own (below ``base``) until the block ends.

    ``ready`` is called with the port until it raises neither LoadError nor OSError.
    Raises ServerError when the server does not start.
    """
    with tempfile.TemporaryDirectory(prefix="bench-compare-", dir=base) as path, ExitStack() as end:
        directory = Path(path)
        made = recipe(directory)
        log = directory / "server.log"
        processes = []
        with log.open("ab") as output:
            for command in (*made.before, made.command):
                try:
                    process = subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        cwd=directory,
                        env={**os.environ, **made.environment},
                        preexec_fn=_in_child,
                    )
                except OSError as error:
                    raise ServerError(f"{name} cannot be started: {error}") from error
                end.callback(_stop, process)
                processes.append(process)
        instance = Instance(name, made.port, processes, log)
        _wait_until_ready(instance, ready)
        yield instance


def _in_child() -> None:
    os.sched_setaffinity(0, SERVER_CPUS)
    # Covers the one end that no context manager sees: the benchmark itself being killed.
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_until_ready(instance: Instance, ready: Callable[[int], None]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            ready(instance.port)
            return
        except (LoadError, OSError) as error:
            if instance.processes[-1].poll() is not None:
                raise instance.failure("did not start") from error
            if time.monotonic() > deadline:
                raise instance.failure(f"is not ready: {error}") from error
        time.sleep(POLL_SECONDS)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
