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
from types import TracebackType

ROOT = Path(__file__).parents[2]
HANG_SECONDS = 120


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
    clock = (~pid << 3) | 2  # the CPU time of all threads of that process, as clock_gettime has it
    schedule = Path("/proc/self/schedstat")

    def waited() -> float:
        """How long (s) this process has waited for a CPU: while it did, the node may have worked
        for others, though the answer was there, or the question was not."""
        return int(schedule.read_text().split()[1]) / 1e9

    def held() -> float:
        late = waited()
        before = time.clock_gettime(clock)
        sock.sendall(b"PING\r\n")
        assert sock.recv(100) == b"+PONG\r\n"
        return time.clock_gettime(clock) - before - (waited() - late)

    for _ in range(20):  # so the node knows that it says little
        held()
    worst = 0.0
    print("begun", flush=True)
    while not select.select([sys.stdin], [], [], 0.001)[0]:
        worst = max(worst, held())
    return worst


if __name__ == "__main__":
    print(measure(int(sys.argv[1]), int(sys.argv[2])))
