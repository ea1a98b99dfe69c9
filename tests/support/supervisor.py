"""A supervisor that speaks systemd's protocols: starts nodes and receives their messages."""

import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.support.harness import HANG_SECONDS, LiveNode, trusting

WATCHDOG_SECONDS = 0.6
# What systemd does between fork and exec: move sockets to 3, 4 ..., and set the pid variable.
LAUNCHER = """
import os, sys
count = int(sys.argv[1])
for index, given in enumerate(sys.argv[2:2 + count]):
    os.dup2(int(given), 3 + index)
if count:
    os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": sys.argv[1]}
os.execv(sys.executable, [sys.executable, "-m", "disque_trio.server", *sys.argv[2 + count:]])
"""


class Supervisor:
    """Starts nodes and receives their messages."""

    def __init__(self, directory: Path, address: str) -> None:
        self.directory = directory
        self.nodes: list[LiveNode] = []
        self._address = address
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(address.replace("@", "\0", 1) if address[0] == "@" else address)

    def start(
        self, *arguments: str, port: int = 0, sockets: tuple[socket.socket, ...] = ()
    ) -> LiveNode:
        """Start a node, on ``port`` or with already opened sockets, without waiting."""
        if port:
            arguments = (*arguments, "--port", str(port), "--bind", "127.0.0.1")
        elif sockets[0].family == socket.AF_INET:
            port = sockets[0].getsockname()[1]
        log = self.directory / f"node-{len(self.nodes)}.log"
        # Descriptors that the launcher does not overwrite.
        given = [fcntl.fcntl(sock, fcntl.F_DUPFD_CLOEXEC, 50) for sock in sockets]
        numbers = [str(number) for number in given]
        options = trusting(arguments)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", LAUNCHER, str(len(given)), *numbers, *options],
                cwd=self.directory,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=given,
                env={
                    **os.environ,
                    "NOTIFY_SOCKET": self._address,
                    "WATCHDOG_USEC": str(int(WATCHDOG_SECONDS * 1e6)),
                },
            )
        for number in given:
            os.close(number)
        node = LiveNode(port, process, log)
        self.nodes.append(node)
        return node

    def message(self, seconds: float = HANG_SECONDS) -> str:
        """The next message; raises TimeoutError if there is none."""
        self._notify.settimeout(seconds)
        return self._notify.recv(4096).decode()

    def wait_for(self, start: str) -> str:
        """Wait for a message that begins like this, dropping those before it."""
        while not (message := self.message()).startswith(start):
            pass
        return message

    def starves(self) -> bool:
        """Whether a watchdog period passes without a message, as must happen soon."""
        try:
            for _ in range(20):
                self.message(WATCHDOG_SECONDS)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        self._notify.close()
