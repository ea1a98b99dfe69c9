"""Starts and runs the commands of this project, forked from a process that has imported them.

``run_command("disque", "ping")`` is for tests what ``subprocess.run`` is for ``python -m
disque_trio.cli.main ping``, and ``start_command`` what ``subprocess.Popen`` is. A test whose
subject is the start itself (a script, imports, memory) starts a process as usual.
"""

import atexit
import inspect
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from select import select
from typing import Any

from tests.support import HANG_SECONDS, PYTHONPATH, ROOT, fork_server
from tests.support.fork_server import Request

# The modules of the commands. Any other module can be started, too, by its own name.
COMMANDS = {
    "bananaq": "disque_bananaq.main",
    "bananaq-check-aof": "disque_bananaq.check",
    "disque": "disque_trio.cli.main",
    "disque-check-aof": "disque_trio.aof.check",
    "disque-console": "disque_console.command",
    "disque-outbox": "disque_integrations.outbox.command",
    "disque-server": "disque_trio.server",
    "disque-worker": "tests.support.forked_worker",
    "pressure": "disque_pressure.__main__",
    "python -c": "tests.support.program",
}
# The order of the arguments of a method that differs between versions of Python.
_CHILD = [*inspect.signature(subprocess.Popen._execute_child).parameters][1:]  # type: ignore[attr-defined]
# Variables that the interpreter, the C library or the linker read at startup; and those of them
# that a forked process also heeds.
_READ_EARLY = ("LANG", "LC_", "LD_", "PYTHON")
_HEEDED = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
_HERE = (str(ROOT), PYTHONPATH)


def _before_main(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of ``environ`` that affects a new process, but not a forked one."""
    return {
        name: value
        for name, value in environ.items()
        # The fork server also looks in this repository.
        if name.startswith(_READ_EARLY) and name not in _HEEDED and value not in _HERE
    }


_ENVIRON = dict(os.environ)
_BEFORE_MAIN = _before_main(_ENVIRON)


class ForkServer:
    """The process that forks for one module, as seen by the test process, with which it ends."""

    def __init__(self, module: str) -> None:
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", fork_server.__name__, str(theirs.fileno()), module],
                cwd=ROOT,
                env=_ENVIRON,
                pass_fds=[theirs.fileno()],
            )

    def fork(self, request: Request, descriptors: Sequence[int]) -> tuple[int, int]:
        """Fork a process with these streams: its id, and a descriptor that receives its exit
        status when it ends."""
        end, status = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._requests, [request.encoded()], [status, *descriptors])
                return int(self._requests.recv(16)), end
        finally:
            os.close(status)

    def close(self) -> None:
        """End it, and the processes that it forked."""
        self._requests.close()
        self._process.wait()


class Forked(subprocess.Popen[Any]):
    """A process started by a fork server. Not its parent, this process learns of its end from the
    fork server."""

    def __init__(
        self,
        server: ForkServer,
        words: Sequence[str | os.PathLike[str]],
        terminal: int | None,
        **options: Any,
    ) -> None:
        self._server = server
        self._terminal = terminal
        self._ends_lock = threading.Lock()
        super().__init__(words, **options)

    def _execute_child(self, *values: Any) -> None:
        child = dict(zip(_CHILD, values, strict=True))
        for name in ("preexec_fn", "pass_fds"):
            assert not child[name], f"{name} is not for forked processes"
        _, _, _, *arguments = map(os.fsdecode, child["args"])
        request = Request(
            arguments,
            os.fspath(child["cwd"] or Path.cwd()),
            dict(os.environ if child["env"] is None else child["env"]),
            child["start_new_session"],
            self._terminal is not None,
        )
        streams = [child["p2cread"], child["c2pwrite"], child["errwrite"]]
        descriptors = [number if given == -1 else given for number, given in enumerate(streams)]
        if self._terminal is not None:
            descriptors.append(self._terminal)
        try:
            self.pid, self._end = self._server.fork(request, descriptors)
        finally:
            pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(child[name] for name in pipes))  # type: ignore[attr-defined]
        self._child_created = True

    def poll(self) -> int | None:
        return self._take_status(0)

    def wait(self, timeout: float | None = None) -> int:
        status = self._take_status(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return status

    def _take_status(self, timeout: float | None) -> int | None:
        with self._ends_lock:
            if self.returncode is None and select([self._end], [], [], timeout)[0]:
                self.returncode = int(os.read(self._end, 16))
                os.close(self._end)
            return self.returncode


_servers: dict[str, ForkServer] = {}
_servers_lock = threading.Lock()


def can_fork(environ: Mapping[str, str]) -> bool:
    """Whether a process with this environment can be forked: it contains no variables that are read
    before a program starts."""
    return _before_main(environ) == _BEFORE_MAIN


def server_of(module: str) -> ForkServer:
    """The process that forks for a module."""
    with _servers_lock:
        if module not in _servers:
            server = _servers[module] = ForkServer(module)
            atexit.register(server.close)
        return _servers[module]


def start_command(
    command: str,
    *arguments: str | os.PathLike[str],
    env: Mapping[str, str] | None = None,
    terminal: int | None = None,
    **options: Any,
) -> "subprocess.Popen[Any]":
    """Start a command, or a module by its name. It is forked, unless its environment contains
    variables that are read before a program starts.

    Args:
        terminal: a descriptor of a terminal for it, whose session it leads.
        options: others of ``subprocess.Popen``: streams, ``cwd``, ``text``, ``start_new_session``.
    """
    module = COMMANDS.get(command, command)
    words = [sys.executable, "-m", module, *arguments]
    if not can_fork(os.environ if env is None else env):
        if terminal is not None:
            options["preexec_fn"] = partial(os.login_tty, terminal)
        return subprocess.Popen(words, env=env, **options)
    return Forked(server_of(module), words, terminal, env=env, **options)


def run_command(
    command: str,
    *arguments: str | os.PathLike[str],
    input: str | bytes | None = None,
    timeout: float = HANG_SECONDS,
    check: bool = False,
    **options: Any,
) -> "subprocess.CompletedProcess[Any]":
    """Run a command to its end, with options as for ``start_command``. Captures its output, unless
    ``stdout`` or ``stderr`` says otherwise."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    with start_command(command, *arguments, **options) as process:
        try:
            output, errors = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done
