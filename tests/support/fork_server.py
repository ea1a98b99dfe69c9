"""Runs a module in processes that it forks after it has imported what the module needs.

A process started for a test spends up to twenty times more CPU time on imports than on everything
else. Here they are imported once: ``python -m tests.support.fork_server DESCRIPTOR MODULE`` waits
at a socket for requests (see ``tests/support/commands.py``), and forks. The child gets the
arguments, environment, directory and streams of a new process, and differs from one only in its
parent and its command line.
"""

import gc
import json
import os
import runpy
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from fcntl import F_DUPFD, fcntl
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from select import select

MAX_REQUEST = 1 << 20
MAX_DESCRIPTORS = 7
SHIMS = "DISQUE_TRIO_SHIMS"  # the variable with the socket of tests/support/shims.py
_ABOVE = 100  # all descriptors that a request keeps
CLIENTS = (
    "disque_bananaq.client",
    "disque_trio.client",
    "disque_trio.client.sync",
    "disque_pressure",
    "disque_trio.tasks",
)
WORKER = ("disque_trio.process.logs", "disque_trio.worker.parent")
# What modules import only when they run, or import before a request can change them.
IMPORTED_LATER: Mapping[str, tuple[str, ...]] = {
    "disque_bananaq.main": ("disque_bananaq.process",),
    "disque_trio.cli.main": (
        "disque_trio.cli.prompt",
        "disque_trio.cli.repl",
        "disque_trio.cli.top.running",
    ),
    "disque_console.command": (
        "disque_trio.client.urls",
        "disque_console.running",
        "disque_trio.process.logs",
    ),
    "disque_integrations.outbox.command": (
        "disque_integrations.outbox.sql",
        "disque_integrations.outbox.running",
    ),
    "disque_pressure.__main__": ("disque_pressure.cli",),
    "disque_trio.server": ("disque_trio.node.main",),
    "disque_trio.worker.child": ("disque_trio.tasks", "disque_trio.client.sync"),
    "disque_trio.worker.command": WORKER,
    "tests.support.build_hook": ("setuptools.build_meta", "setuptools.command.bdist_wheel"),
    "packages.integrations.tests.support.django_project": (
        "disque_integrations.django.management.commands.disque_worker",
        "django.core.management",
        "django.db.backends.sqlite3.base",
    ),
    "packages.integrations.tests.support.dramatiq_app": ("disque_integrations.dramatiq",),
    "packages.integrations.tests.support.outbox_project": (
        "disque_integrations.outbox.running",
        "django.core.management.commands.migrate",
        "django.db.backends.postgresql.base",
        "django.db.backends.sqlite3.base",
        "django.db.models",
    ),
    "flask.__main__": ("flask", "disque_trio.client.sync", "disque_trio.tasks"),
    "tests.support.forked_worker": WORKER,
    "tests.support.program": CLIENTS,
    "tests.support.script": CLIENTS,
    "benchmarks.__main__": ("benchmarks.compare",),
    "tools.bench.__main__": ("tools.bench.throughput",),
    "uvicorn.__main__": ("uvicorn", "uvicorn.loops.auto", "fastapi", *CLIENTS),
}


# What reads the environment as it is imported.
NEVER_IMPORTED = (
    "packages.integrations.tests.support.django_project",
    "packages.integrations.tests.support.dramatiq_app",
    "packages.integrations.tests.support.outbox_project",
)


@dataclass(frozen=True)
class Request:
    """A process to start. Its standard streams come with it, and then, if it has a ``terminal``,
    that.

    Attributes:
        arguments: after the module's name. session: whether it has a session of its own.
        terminal: whether its session has a terminal.
    """

    arguments: list[str]
    directory: str
    environ: dict[str, str]
    session: bool
    terminal: bool
    kept: list[int] = field(default_factory=list)

    def encoded(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def serve(requests: socket.socket) -> Request:
    """Fork for each request. Returns the request in the children; ends the process, and those that
    it forked, when there are no more requests."""
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
        data, descriptors, _, _ = socket.recv_fds(requests, MAX_REQUEST, MAX_DESCRIPTORS)
        if not data:
            # The tests may have been killed.
            for pid in waiting:
                os.kill(pid, signal.SIGKILL)
            raise SystemExit
        status, *streams = descriptors
        pid = os.fork()
        if pid:
            for descriptor in streams:
                os.close(descriptor)
            waiting[pid] = status
            requests.send(b"%d" % pid)
            continue
        for sock in (requests, woken, wakes):
            sock.detach()
        request = Request(**json.loads(data))
        become_new(request, streams)
        return request


def become_new(request: Request, streams: list[int]) -> None:
    """Remove everything from a forked process that a new process would not have."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, stream in enumerate(streams[:3]):
        os.dup2(stream, descriptor)
    if request.terminal:
        os.login_tty(streams[3])
    elif request.session:
        os.setsid()
    more = streams[len(streams) - len(request.kept) :]
    kept = [fcntl(stream, F_DUPFD, _ABOVE) for stream in more]
    os.closerange(3, _ABOVE)
    for number, stream in zip(request.kept, kept, strict=True):
        os.dup2(stream, number)
    os.closerange(_ABOVE, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(request.environ)
    time.tzset()
    os.chdir(request.directory)
    sys.path[0] = str(Path.cwd())
    if path := request.environ.get("PYTHONPATH"):
        sys.path[1:1] = path.split(os.pathsep)
    sys.dont_write_bytecode = bool(request.environ.get("PYTHONDONTWRITEBYTECODE"))
    _open_streams(unbuffered=bool(request.environ.get("PYTHONUNBUFFERED")))


def _open_streams(unbuffered: bool) -> None:
    """Open ``sys.stdin`` etc. as the interpreter does when it starts."""
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        before = getattr(sys, f"__{name}__")
        direct = unbuffered and descriptor > 0
        file = open(  # noqa: SIM115 - as long as the process lives
            descriptor, "wb" if descriptor else "rb", buffering=0 if direct else -1, closefd=False
        )
        stream = TextIOWrapper(
            file,
            encoding=before.encoding,
            errors=before.errors,
            newline="\n",
            line_buffering=not direct and (descriptor == 2 or file.isatty()),
            write_through=direct,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _report_ended(waiting: dict[int, int]) -> None:
    while waiting:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        end = waiting.pop(pid)
        os.write(end, b"%d" % os.waitstatus_to_exitcode(status))
        os.close(end)


def run_as_main(name: str, arguments: list[str]) -> None:
    """Run a module as ``python -m`` does, although it may have been imported."""
    # As the interpreter sets them for ``python -m``; a server that re-executes itself reads them.
    sys.argv = ["-m", *arguments]
    sys.orig_argv = [sys.executable, "-m", name, *arguments]
    # It is imported once more, as ``__main__``.
    sys.modules.pop(name, None)
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def main() -> None:
    """Fork until there are no more requests, and run the module in the children."""
    descriptor, name = sys.argv[1:]
    for needed in (name, *IMPORTED_LATER.get(name, ())):
        # The module itself says what is missing.
        with suppress(ImportError):
            if needed not in NEVER_IMPORTED:
                import_module(needed)
    gc.freeze()  # a collection in a child would copy all pages
    with socket.socket(fileno=int(descriptor)) as requests:
        request = serve(requests)
    run_as_main(name, request.arguments)


if __name__ == "__main__":
    main()
