"""The servers to measure: starts them on free ports, watches them in /proc, and always stops
them."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tools.bench.load import LoadError
from tools.ports import free_port

START_SECONDS = 60.0
STOP_SECONDS = 30.0
POLL_SECONDS = 0.02
WAIT_SECONDS = 300.0
WAIT_POLL_SECONDS = 0.1  # rarely: the server is being measured
HOST = "127.0.0.1"
MAX_CLIENTS = 20_000
# Servers run on one CPU and the generator on the others. If left to the kernel, a server and its
# only client share a CPU in some runs and not in others, which halves or doubles the cost.
CPUS = frozenset(os.sched_getaffinity(0))
SERVER_CPUS = frozenset({max(CPUS)})
GENERATOR_CPUS = CPUS - SERVER_CPUS or CPUS
TICKS = os.sysconf("SC_CLK_TCK")

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

DISQUE_COMMAND = (sys.executable, "-m", "disque_trio.server")
BANANAQ_COMMAND = (sys.executable, "-m", "disque_bananaq.main")
# A rewrite in the middle of a measurement would distort it.
NO_REWRITE = ("--auto-aof-rewrite-percentage", "0")
# For measurements with DEBUG, which is not allowed by default.
WITH_DEBUG = ("--enable-debug-command", "local")


class ServerError(Exception):
    """A server failed to start, or ended during a measurement."""


def cpu_seconds(pid: int) -> float:
    """User plus system time of a process so far, without its children.

    The same as utime + stime in /proc/PID/stat, but from the process's CPU clock, which has a
    resolution of nanoseconds instead of 10 ms.
    """
    return time.clock_gettime((~pid << 3) | 2)  # clock_getcpuclockid(3), CPUCLOCK_SCHED


def family(pids: Iterable[int], without: Collection[int] = ()) -> dict[int, float]:
    """These processes and all their living descendants, except ``without`` and theirs. The values
    are the CPU seconds of each one's ended children, in steps of 10 ms."""
    children: dict[int, list[int]] = {}
    reaped: dict[int, float] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(entry.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        reaped[pid] = (int(fields[13]) + int(fields[14])) / TICKS
    found: dict[int, float] = {}
    rest = list(pids)
    while rest:
        pid = rest.pop()
        if pid not in without:
            found[pid] = reaped.get(pid, 0.0)
            rest += children.get(pid, [])
    return found


def family_cpu_seconds(pids: Sequence[int], without: Collection[int] = ()) -> float:
    """CPU seconds of these processes and their descendants, including ended ones. Raises OSError if
    one of ``pids`` is not alive.
    """
    total = 0.0
    for pid, reaped in family(pids, without).items():
        try:
            total += cpu_seconds(pid) + reaped
        except OSError:
            if pid in pids:
                raise
            # It has just ended: its parent counts it.
    return total


@contextmanager
def highest(look: Callable[[], float], seconds: float) -> Iterator[list[float]]:
    """Calls ``look`` every ``seconds`` while the block runs; the list has the highest result so
    far, initially 0."""
    found = [0.0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(seconds):
            found[0] = max(found[0], look())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to start a server: its ``command``, its environment, and the commands of processes that
    must run first (``before``)."""

    command: Sequence[str]
    port: int
    environment: Mapping[str, str] = field(default_factory=dict)
    before: Sequence[Sequence[str]] = ()


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. ``kind`` names its dialect, ``name`` the server in reports. The last of its
    ``processes`` is the server itself."""

    name: str
    kind: str
    port: int
    processes: Sequence[subprocess.Popen[bytes]]
    log: Path

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The server's own process."""
        return self.processes[-1]

    def cpu_seconds(self) -> float:
        """User plus system time of the server's process so far, without its children."""
        with self.blamed():
            return cpu_seconds(self.process.pid)

    def family_cpu_seconds(self) -> float:
        """The same for all processes and their descendants, including ended ones."""
        with self.blamed():
            return family_cpu_seconds([process.pid for process in self.processes])

    def rss_bytes(self) -> int:
        """Resident memory of the process in bytes."""
        with self.blamed():
            statm = Path(f"/proc/{self.process.pid}/statm").read_text()
        return int(statm.split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Reports errors in the block with the end of this server's log. Raises ServerError instead
        of LoadError and OSError.
        """
        try:
            yield
        except (LoadError, OSError) as error:
            raise self.failure(error) from error

    def wait(self, condition: Callable[[], bool], problem: str) -> None:
        """Waits until ``condition()`` is true. Raises ServerError with ``problem`` if that takes
        too long."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise self.failure(problem)
            time.sleep(WAIT_POLL_SECONDS)

    def failure(self, what: object) -> ServerError:
        """The error for the problem ``what``, with the exit status and the end of the log."""
        status = self.process.poll()
        state = "" if status is None else f"; it has ended with status {status}"
        lines = self.log.read_text(errors="replace").splitlines()[-15:]
        log = "".join(f"\n    {line[:500]}" for line in lines)
        return ServerError(f"{self.name}: {what}{state}" + (f"; its log ends:{log}" if log else ""))


def redis_server(
    name: str = "redis", appendonly: str = "no", options: Sequence[str] = ()
) -> AbstractContextManager[Server]:
    """Runs Debian's redis-server, without persistence (like our node without an AOF) or with an AOF
    that is synced every second, and with additional ``options``."""
    program = shutil.which("redis-server")
    if program is None:
        raise ServerError("redis-server is not installed: apt-get install redis-server")
    usual = ("--save", "", "--appendonly", appendonly, "--maxclients", str(MAX_CLIENTS))
    options = (*usual, *options)
    return _resp(name, "redis", (program, "--bind", HOST, *NO_REWRITE, *options))


def disque_server(
    name: str = "disque",
    command: Sequence[str] = DISQUE_COMMAND,
    cpus: Collection[int] = SERVER_CPUS,
    directory: Path | None = None,
    level: str = "warning",
    memory: str = "16gb",
) -> AbstractContextManager[Server]:
    """Runs a Disque node: ``command`` with options. Its files are in ``directory``, or in a
    temporary one; ``level`` is its log level, ``memory`` its ``maxmemory``."""
    options = ("--maxmemory", memory, "--loglevel", level, "--maxclients", str(MAX_CLIENTS))
    whole = (*command, "--bind", HOST, *options)
    return _resp(name, "disque", whole, cpus=cpus, directory=directory)


def bananaq_server(
    name: str, command: Sequence[str] = BANANAQ_COMMAND, options: Sequence[str] = ()
) -> AbstractContextManager[Server]:
    """Runs a bananaq: ``command`` with options."""
    options = ("--log-level", "warn", "--maxclients", str(MAX_CLIENTS), *NO_REWRITE, *options)
    return _resp(name, "bananaq", (*command, *options), address="--listen-addr")


@contextmanager
def _resp(
    name: str,
    kind: str,
    command: Sequence[str],
    *,
    address: str = "",
    cpus: Collection[int] = SERVER_CPUS,
    directory: Path | None = None,
) -> Iterator[Server]:
    """Runs a server that answers PING."""
    port = free_port()
    listen = (address, f"{HOST}:{port}") if address else ("--port", str(port))

    def recipe(own: Path) -> Recipe:
        return Recipe((*command, *listen, "--dir", str(directory or own)), port)

    with running(name, kind, recipe, _ping, cpus=cpus) as server:
        yield server


@contextmanager
def running(
    name: str,
    kind: str,
    recipe: Callable[[Path], Recipe],
    ready: Callable[[int], None],
    *,
    base: str | None = None,
    cpus: Collection[int] = SERVER_CPUS,
) -> Iterator[Server]:
    """Runs a server in its own directory (below ``base``) until the block ends.

    Calls ``ready`` with the port until it raises neither LoadError nor OSError. Raises ServerError
    if the server does not start.
    """
    with tempfile.TemporaryDirectory(prefix=f"bench-{kind}-", dir=base) as path, ExitStack() as end:
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
                        env={**os.environ, **made.environment},
                        preexec_fn=partial(_in_child, cpus),
                    )
                except OSError as error:
                    raise ServerError(f"{name} cannot be started: {error}") from error
                end.callback(_stop, process)
                processes.append(process)
        server = Server(name, kind, made.port, processes, log)
        _wait_until_ready(server, ready)
        yield server


def _ping(port: int) -> None:
    with socket.create_connection((HOST, port), 1.0) as sock:
        sock.sendall(b"PING\r\n")
        reply = sock.recv(100)
        if not reply.startswith(b"+PONG"):
            raise OSError(f"PING was answered with {reply!r}")


def _in_child(cpus: Collection[int]) -> None:
    os.sched_setaffinity(0, cpus)
    # For the one case that no context manager covers: the benchmark itself is killed.
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_until_ready(server: Server, ready: Callable[[int], None]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            return ready(server.port)
        except (LoadError, OSError) as error:
            if server.process.poll() is not None:
                raise server.failure("did not start") from error
            if time.monotonic() > deadline:
                raise server.failure(f"is not ready: {error}") from error
        time.sleep(POLL_SECONDS)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def version_of(command: Sequence[str]) -> str:
    """The version printed by the server that ``command`` starts."""
    printed = said((*command, "--version"), r"(.*\S)")
    return re.sub(r"^(?:disque-trio |Disque server v=)", "", printed).partition(" sha=")[0]


def said(command: Sequence[str], pattern: str) -> str:
    """The group of ``pattern`` in what a command prints; "?" if it prints no such thing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise ServerError(f"{shlex.join(command)}: {error}") from error
    found = re.search(pattern, done.stdout + done.stderr)
    return found[1] if found else "?"
