"""Starts servers by forking a process that has imported them.

A server started for a test spends twenty times more CPU time on imports than on everything else.
Here they are imported once: ``python -m tests.support.fork_server DESCRIPTOR`` waits at a socket
for requests, and forks. The child gets the arguments, environment, directory and output of a new
process, and differs from one only in its parent and its command line.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from select import select

ROOT = Path(__file__).parents[2]
NODE = "disque_trio.server"
BANANAQ = "disque_trio.bananaq.main"
# Modules that these import when they run a server.
IMPORTED_LATER = ("disque_trio.node.main", "disque_trio.bananaq.process")
MAX_REQUEST = 1 << 20


class Forked:
    """A process started by the fork server, with the methods of ``subprocess.Popen``.

    Args:
        pid: its id. end: receives its exit status when it ends.
    """

    def __init__(self, pid: int, end: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._end = end
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit status, or None while it runs; a signal's number is negative."""
        return self._take_status(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises subprocess.TimeoutExpired after ``timeout`` seconds."""
        status = self._take_status(timeout)
        if status is None:
            raise subprocess.TimeoutExpired("a forked server", timeout or 0)
        return status

    def _take_status(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and select([self._end], [], [], timeout)[0]:
                self.returncode = int(os.read(self._end, 16))
                os.close(self._end)
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            # It may have ended although its status has not arrived yet.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


Process = Forked | subprocess.Popen[bytes]


class ForkServer:
    """The fork server, as seen by the test process. It ends with the test process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )

    def start(
        self,
        module: str,
        arguments: Sequence[str],
        directory: Path,
        output: int,
        environ: Mapping[str, str],
    ) -> Forked:
        """Start ``python -m module arguments``; standard output and error go to ``output``."""
        request = json.dumps([module, [*arguments], str(directory), dict(environ)]).encode()
        end, status = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._requests, [request], [output, status])
                pid = int(self._requests.recv(16))
        finally:
            os.close(status)
        return Forked(pid, end)

    def close(self) -> None:
        """End it; processes that it started continue."""
        self._requests.close()
        self.process.wait()


def _before_main(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of ``environ`` that affects a new process, but not a forked one."""
    names = [name for name in environ if name.startswith(("LD_", "PYTHON"))]
    found = {name: environ[name] for name in names}
    # The fork server also looks in this repository.
    return {name: value for name, value in found.items() if value != str(ROOT)}


_server: ForkServer | None = None
_BEFORE_MAIN = _before_main(os.environ)


def start_server(
    module: str,
    arguments: Sequence[str],
    directory: Path,
    output: int,
    environ: Mapping[str, str] | None = None,
) -> Process:
    """Start ``python -m module arguments`` in ``directory``: forked, unless its environment
    contains variables that the interpreter or the linker read at startup.

    Args:
        output: a descriptor for standard output and error.
        environ: its environment, that of this process if None.
    """
    global _server
    environ = os.environ if environ is None else environ
    if _before_main(environ) != _BEFORE_MAIN:
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.Popen(command, cwd=directory, stdout=output, stderr=output, env=environ)
    if _server is None:
        _server = ForkServer()
        atexit.register(_server.close)
    return _server.start(module, arguments, directory, output, environ)


# ---- in the process that forks ------------------------------------------------------------------


def serve(requests: socket.socket) -> tuple[str, list[str]]:
    """Fork for each request. Returns, in the children, the module to run and its arguments; ends
    the process when there are no more requests."""
    woken, wakes = socket.socketpair()
    woken.setblocking(False)
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    waiting: dict[int, int] = {}  # where to write the exit status of each child
    while True:
        readable, _, _ = select([requests, woken], [], [])
        if woken in readable:
            woken.recv(4096)
            _report_ended(waiting)
        if requests not in readable:
            continue
        request, descriptors, _, _ = socket.recv_fds(requests, MAX_REQUEST, 2)
        if not request:
            raise SystemExit
        module, arguments, directory, environ = json.loads(request)
        output, status = descriptors
        pid = os.fork()
        if pid:
            os.close(output)
            waiting[pid] = status
            requests.send(b"%d" % pid)
            continue
        for sock in (requests, woken, wakes):
            sock.detach()
        _become_new(directory, environ, output)
        return module, arguments


def _become_new(directory: str, environ: dict[str, str], output: int) -> None:
    """Remove everything from a forked process that a new process would not have."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(directory)


def _report_ended(waiting: dict[int, int]) -> None:
    while waiting:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        end = waiting.pop(pid)
        os.write(end, b"%d" % os.waitstatus_to_exitcode(status))
        os.close(end)


def main() -> int:
    """Fork until there are no more requests, and run the requested modules in the children."""
    for name in (NODE, BANANAQ, *IMPORTED_LATER):
        import_module(name)
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        name, arguments = serve(requests)
    module = sys.modules[name]
    # As the interpreter sets them for ``python -m``; a server that re-executes itself reads them.
    sys.argv = [str(module.__file__), *arguments]
    sys.orig_argv = [sys.executable, "-m", name, *arguments]
    result = module.main()
    return int(result)


if __name__ == "__main__":
    sys.exit(main())
