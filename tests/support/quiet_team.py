"""A quiet team beside a hostile one (see ``hostile_team``): it adds jobs, takes and acknowledges
them.

Run as a program, in a process of its own, it measures how long the node makes it wait: beside the
threads of the hostile team it would wait for the interpreter, too.
"""

import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.support import ROOT
from tests.support.harness import LiveNode, Wire

COUNT = 500  # jobs of a measurement


def work(wire: Wire, number: int) -> None:
    """Add a job, take it and acknowledge it; nothing of that may be refused."""
    id = wire("ADDJOB", "good.q", f"body {number}", 0, "UNIQUE", f"key {number}")
    assert isinstance(id, bytes), id
    taken = wire("GETJOB", "FROM", "good.q")
    assert isinstance(taken, list), taken
    assert taken[0][1:] == [id, b"body %d" % number]
    assert wire("ACKJOB", id) == 1


def p99(node: LiveNode, first: int) -> float:
    """How long it takes the quiet team to add, take and acknowledge a job, in ms of CPU: its own
    and the node's, whoever that works for meanwhile. In one of a hundred cases it is more."""
    command = [sys.executable, "-m", "tests.support.quiet_team", str(node.port)]
    command += [str(node.process.pid), str(first)]
    return float(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)


def _measure(port: int, pid: int, first: int) -> float:
    schedule = Path(f"/proc/{pid}/schedstat")  # of its main thread

    def spent() -> int:
        """The CPU time of both so far, in ns."""
        return int(schedule.read_text().split()[0]) + time.process_time_ns()

    wire = Wire(socket.create_connection(("127.0.0.1", port)))
    assert wire("AUTH", "good", "good") == b"OK"
    found = []
    for number in range(first, first + COUNT):
        began = spent()
        work(wire, number)
        found.append(spent() - began)
        time.sleep(0.002)  # a quiet team
    return sorted(found)[COUNT * 99 // 100] / 1e6


if __name__ == "__main__":
    print(_measure(*map(int, sys.argv[1:])))
