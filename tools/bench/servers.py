"""The servers under measurement: started on a free port, watched through /proc, ended for sure."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

START_SECONDS = 20.0
STOP_SECONDS = 10.0
POLL_SECONDS = 0.02
# The kernel hands out ports from 32768 on to clients: a server's port stays below, and so does
# that of a node's bus.
PORTS = range(10_000, 20_000)
BUS_OFFSET = 10_000
MAX_CLIENTS = 20_000
# Servers run on one CPU and the generator on the others. Left to the kernel, a server and its
# only client meet on one CPU in some runs and not in others, at half the cost or twice.
_CPUS = frozenset(os.sched_getaffinity(0))
SERVER_CPUS = frozenset({max(_CPUS)})
GENERATOR_CPUS = _CPUS - SERVER_CPUS or _CPUS

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)

DISQUE_COMMAND = (sys.executable, "-m", "disque_trio.server")
# A rewrite in the middle of a measurement would be taken for its cost.
NO_REWRITE = ("--auto-aof-rewrite-percentage", "0")
BANANAQ_COMMAND = (sys.executable, "-m", "disque_trio.bananaq.main")


class ServerError(Exception):
    """A server could not be started, or ended while it was measured."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; ``kind`` names its dialect, ``name`` it in reports."""

    name: str
    kind: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    def cpu_seconds(self) -> float:
        """User plus system time of the process so far, its children not included.

        The same sum as utime + stime in /proc/PID/stat, read from the process's CPU clock:
        that counts nanoseconds instead of clock ticks of 10 ms.
        """
        clock = (~self.process.pid << 3) | 2  # clock_getcpuclockid(3), CPUCLOCK_SCHED
        try:
            return time.clock_gettime(clock)
        except OSError as error:
            raise self.failure("its CPU time cannot be read") from error

    def rss_bytes(self) -> int:
        """Resident memory of the process."""
        try:
            pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        except (OSError, IndexError) as error:
            raise self.failure("its memory cannot be read") from error
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def failure(self, what: object) -> ServerError:
        """The error for ``what`` went wrong, with the exit status and the end of the log."""
        status = self.process.poll()
        state = "" if status is None else f"; it has ended with status {status}"
        lines = self.log.read_text(errors="replace").splitlines()[-15:]
        log = "".join(f"\n    {line[:500]}" for line in lines)
        return ServerError(f"{self.name}: {what}{state}" + (f"; its log ends:{log}" if log else ""))


@contextmanager
def redis_server(name: str = "redis", appendonly: str = "no") -> Iterator[Server]:
    """Runs Debian's redis-server, without any persistence as our node runs without an AOF, or with
    an AOF that is synced every second."""
    program = shutil.which("redis-server")
    if program is None:
        raise ServerError("redis-server is not installed: apt-get install redis-server")
    options = ("--save", "", "--appendonly", appendonly, "--maxclients", str(MAX_CLIENTS))
    with _server(name, "redis", (program, "--bind", "127.0.0.1", *NO_REWRITE, *options)) as server:
        yield server


@contextmanager
def disque_server(
    name: str = "disque",
    command: Sequence[str] = DISQUE_COMMAND,
    cpus: Collection[int] = SERVER_CPUS,
) -> Iterator[Server]:
    """Runs a Disque node; ``command`` starts the program, options are added to it."""
    options = ("--maxmemory", "8gb", "--loglevel", "warning", "--maxclients", str(MAX_CLIENTS))
    with _server(name, "disque", (*command, "--bind", "127.0.0.1", *options), cpus) as server:
        yield server


@contextmanager
def bananaq_server(
    name: str, command: Sequence[str] = BANANAQ_COMMAND, options: Sequence[str] = ()
) -> Iterator[Server]:
    """Runs a bananaq; ``command`` starts the program, options are added to it."""
    options = ("--log-level", "warn", "--maxclients", str(MAX_CLIENTS), *NO_REWRITE, *options)
    with _server(name, "bananaq", (*command, *options), listen=_listen_addr) as server:
        yield server


def _port(port: int) -> tuple[str, str]:
    return ("--port", str(port))


def _listen_addr(port: int) -> tuple[str, str]:
    return ("--listen-addr", f"127.0.0.1:{port}")


@contextmanager
def _server(
    name: str,
    kind: str,
    command: Sequence[str],
    cpus: Collection[int] = SERVER_CPUS,
    listen: Callable[[int], tuple[str, str]] = _port,
) -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-") as directory:
        port = free_port()
        log = Path(directory, "server.log")
        with log.open("wb") as output:
            try:
                process = subprocess.Popen(
                    (*command, *listen(port), "--dir", directory),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    preexec_fn=partial(_in_child, cpus),
                )
            except OSError as error:
                raise ServerError(f"{name} cannot be started: {error}") from error
        server = Server(name, kind, port, process, log)
        try:
            _wait_until_ready(server)
            yield server
        finally:
            _stop(process)


def free_port() -> int:
    """A port in PORTS that nothing listens on at the moment, nor on that of its bus."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as sock, socket.socket() as bus:
            try:
                sock.bind(("127.0.0.1", port))
                bus.bind(("127.0.0.1", port + BUS_OFFSET))
            except OSError:
                continue
            return port
    raise ServerError(f"no free port between {PORTS.start} and {PORTS.stop}")


def _in_child(cpus: Collection[int]) -> None:
    os.sched_setaffinity(0, cpus)
    # Covers the one end that no context manager sees: the benchmark itself being killed.
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_until_ready(server: Server) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", server.port), 1.0) as sock:
                sock.sendall(b"PING\r\n")
                if sock.recv(100).startswith(b"+PONG"):
                    return
        except OSError:
            pass
        if server.process.poll() is not None:
            raise server.failure("did not start")
        if time.monotonic() > deadline:
            raise server.failure(f"did not answer PING within {START_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
