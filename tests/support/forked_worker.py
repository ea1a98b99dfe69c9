"""``disque-worker``, whose processes are forked, too, if ``tests/support/shims.py`` serves: each
would import as much as the worker itself.

To their parent they are as others are; only the module that they run is not imported again. Tests
that start ``disque_trio.worker.command`` have the usual processes.
"""

import marshal
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from select import select
from types import SimpleNamespace
from typing import Any

from disque_trio.worker import link
from disque_trio.worker.command import main
from tests.support.fork_server import SHIMS


class Process:
    """A forked process of a worker: what the parent uses of ``subprocess.Popen``.

    Args:
        asked: the connection that tells its exit status.
    """

    def __init__(self, asked: socket.socket, pid: int) -> None:
        self._asked = asked
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and select([self._asked], [], [], 0)[0]:
            self.returncode = int(self._asked.recv(16))
            self._asked.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def start(
    command: Sequence[str], stdin: int, pass_fds: Sequence[int], start_new_session: bool
) -> "Process | subprocess.Popen[bytes]":
    """Ask for a forked process; starts the usual one if its environment forbids that."""
    _, _, module, *arguments = command
    words = [module, arguments, str(Path.cwd()), dict(os.environ), [*pass_fds]]
    asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asked.connect(os.environ[SHIMS])
    with open(os.devnull) as nothing:
        streams = [nothing.fileno(), 1, 2, *pass_fds]
        socket.send_fds(asked, [marshal.dumps(words)], streams)
    if pid := int(asked.recv(16)):
        return Process(asked, pid)
    asked.close()
    options: dict[str, Any] = {"stdin": stdin, "start_new_session": start_new_session}
    return subprocess.Popen(command, pass_fds=pass_fds, **options)


if __name__ == "__main__":
    if SHIMS in os.environ:
        replaced = SimpleNamespace(Popen=start, DEVNULL=subprocess.DEVNULL)
        link.subprocess = replaced  # type: ignore[assignment]
    sys.exit(main())
