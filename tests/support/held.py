"""Measures how long a node keeps a client waiting, in CPU time of the node.

Run as a program, in a process of its own: a thread beside one that reads a long reply would wait
for the interpreter, and count as the node's what the node does for others meanwhile.
"""

import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from struct import Struct
from types import TracebackType
from typing import Final

ROOT = Path(__file__).parents[2]
HANG_SECONDS = 120
_TIMESTAMPS: Final = 35  # SO_TIMESTAMPNS of Linux: say when the network got what is read
_TIMESTAMP: Final = Struct("@ll")


class Held:
    """Sends PINGs to the node with process id ``pid`` at ``port`` until the ``with`` block ends.

    Attributes:
        worst: the most CPU time (s) that the node took until it answered one.
    """

    def __init__(self, port: int, pid: int) -> None:
        self.worst = 0.0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.held", str(port), str(pid)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> "Held":
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"begun\n"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        output, _ = self._process.communicate(timeout=HANG_SECONDS)
        if kind is None:
            self.worst = float(output)


def measure(port: int, pid: int) -> float:
    """The most CPU time (s) until standard input ends."""
    sock = socket.create_connection(("127.0.0.1", port), timeout=HANG_SECONDS)
    sock.setsockopt(socket.SOL_SOCKET, _TIMESTAMPS, 1)
    clock = (~pid << 3) | 2  # the CPU time of all threads of that process, as clock_gettime has it

    def answered() -> float:
        """When the answer was there, by the clock of the kernel, which may have yet to note it."""
        answer, stamps, _, _ = sock.recvmsg(100, 100)
        assert answer == b"+PONG\r\n"
        if not stamps:
            return time.time()
        seconds, nanoseconds = _TIMESTAMP.unpack(stamps[0][2])
        return float(seconds + nanoseconds / 1e9)

    def held() -> float:
        """Without what the node does for others while this process should send, or the answer is
        there: a machine may take long to run a process that could run."""
        begun = time.time()
        before = time.clock_gettime(clock)
        sock.sendall(b"PING\r\n")
        sent = time.time()
        there = answered()
        used = time.clock_gettime(clock) - before
        return used - (sent - begun) - (time.time() - there)

    for _ in range(20):  # so the node knows that it says little
        held()
    worst = 0.0
    print("begun", flush=True)
    while not select.select([sys.stdin], [], [], 0.001)[0]:
        worst = max(worst, held())
    return worst


if __name__ == "__main__":
    print(measure(int(sys.argv[1]), int(sys.argv[2])))
