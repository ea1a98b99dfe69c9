"""Programs for the shell scripts of tests, which fork instead of starting an interpreter.

``programs()`` is a directory like ``.venv/bin``. In it, the commands of this project, some servers
of web frameworks, and ``python`` with a program are small scripts: each asks this process for a
process forked by a fork server (``tests/support/commands.py``), which gets its arguments,
environment, directory and streams. The script passes on the signals that it gets, and ends like
that process, which does not outlive it.
"""

import atexit
import marshal
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from select import select

from tests.support.commands import COMMANDS, can_fork, server_of
from tests.support.fork_server import MAX_DESCRIPTORS, MAX_REQUEST, SHIMS, Request

BIN = Path(sys.executable).parent
# What a program runs: a module, and the arguments before its own.
PROGRAMS = {name: module for name, module in COMMANDS.items() if " " not in name}
PROGRAMS |= {"flask": "flask.__main__", "uvicorn": "uvicorn.__main__"}
PYTHONS = ("python", "python3")
# Imports nothing that is not built in: all of it takes ten milliseconds.
_SHIM = f"""\
#!{sys.executable} -IS
import _signal, _socket, marshal, posix, sys
real, module, arguments = {{real!r}}, {{module!r}}, sys.argv[1:]
def run_real():
    posix.execv(real, [real, *arguments])
environ = {{{{key.decode(): value.decode() for key, value in posix.environ.items()}}}}
asked = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
asked.connect({{path!r}})
words = [module, arguments, posix.getcwd(), environ, []]
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
asked.sendmsg([marshal.dumps(words)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
pid = int(asked.recv(16) or 0)
if not pid:
    run_real()
def pass_on(number, frame):
    try:
        posix.kill(pid, number)
    except ProcessLookupError:
        pass
for name in ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2"):
    number = getattr(_signal, "SIG" + name)
    if _signal.getsignal(number) is not _signal.SIG_IGN:
        _signal.signal(number, pass_on)
status = int(asked.recv(16) or 1)
if status < 0:
    _signal.signal(-status, _signal.SIG_DFL)
    posix.kill(posix.getpid(), -status)
posix._exit(status)
"""


@cache
def programs() -> Path:
    """The directory, made and served as long as this process runs."""
    directory = Path(tempfile.mkdtemp(prefix="disque-programs-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = str(directory / ".socket")
    for real in BIN.iterdir():
        module = "python" if real.name in PYTHONS else PROGRAMS.get(real.name)
        here = directory / real.name
        if module is None:
            here.symlink_to(real)
        else:
            here.write_text(_SHIM.format(real=str(real), module=module, path=path))
            here.chmod(0o755)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    atexit.register(listener.close)
    listener.bind(path)
    listener.listen(100)
    threading.Thread(target=_listen, args=(listener,), daemon=True).start()
    os.environ[SHIMS] = path
    return directory


def _listen(listener: socket.socket) -> None:
    with suppress(OSError):  # closed
        while True:
            threading.Thread(target=_serve, args=(listener.accept()[0],), daemon=True).start()


def _serve(asked: socket.socket) -> None:
    """Fork for a script, or for a worker, and tell it the process's id and exit status."""
    with asked, suppress(OSError):  # it was killed
        data, streams, _, _ = socket.recv_fds(asked, MAX_REQUEST, MAX_DESCRIPTORS)
        try:
            module, arguments, directory, environ, kept = marshal.loads(data)
            if module == "python":
                module, arguments = _of_python(arguments)
            if not module or not can_fork(environ):
                asked.send(b"0")
                return
            request = Request(arguments, directory, environ, bool(kept), terminal=False, kept=kept)
            pid, end = server_of(module).fork(request, streams)
        finally:
            for stream in streams:
                os.close(stream)
        try:
            with suppress(OSError):
                asked.send(b"%d" % pid)
            # The processes of a worker find out themselves that it is gone.
            if not kept and end not in select([asked.fileno(), end], [], [])[0]:
                os.kill(pid, signal.SIGKILL)
            asked.send(os.read(end, 16))
        finally:
            os.close(end)


def _of_python(arguments: list[str]) -> tuple[str, list[str]]:
    """The module, and its arguments, for what ``python`` is given; no module if only Python itself
    can do that."""
    first, *rest = arguments or [""]
    if first == "-c":
        return COMMANDS["python -c"], rest
    if first == "-m":
        return rest[0] if rest[0] in PROGRAMS.values() else "", rest[1:]
    return "" if first.startswith("-") or not first else "tests.support.script", arguments
