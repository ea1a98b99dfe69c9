"""Servers of several processes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.harness import LiveNode, Wire, free_ports, wait_until
from tests.support.live_helpers import add_job, spawn

COUNT = 2
ALONE = ("q", "body", "REPLICATE", 1)  # queue and body of a job, and one copy
NOT_YET = (OSError, EOFError, AssertionError)  # gone, ending, or still loading


class Several:
    """A server of two processes.

    Attributes:
        main: the supervisor, with the port of the first.
        nodes: for talking to each process, by its own port. That of the first serves all: who asks
            about the node there gets the first while it serves, and clients may get any.
    """

    def __init__(self, main: LiveNode) -> None:
        self.main = main
        self.nodes = [LiveNode(main.port + n, main.process, main.log) for n in range(COUNT)]

    def serves(self) -> bool:
        """Whether all processes serve and are one cluster."""
        if self.main.process.poll() is not None:
            pytest.fail(self.main.log.read_text())
        try:
            return all(
                node.info("server")["process"] == str(number) and node.sees(COUNT)
                for number, node in enumerate(self.nodes)
            )
        except NOT_YET:
            return False

    def wire(self, number: int) -> Wire:
        """A client of that process, also where clients of the common port get any."""
        wire = self.nodes[number].wire()
        wire("HELLO")  # at the common port, this leads to the first one
        return wire

    def add(self, number: int) -> str:
        """Add a job at that process; returns its id."""
        return add_job(self.wire(number), *ALONE)

    def pid(self, number: int) -> int:
        return int(self.nodes[number].info("server")["process_id"])

    def close(self) -> None:
        """End all processes; the others stop without the supervisor."""
        pids = []
        for number in range(COUNT):
            with suppress(*NOT_YET):
                pids.append(self.pid(number))
        for node in [*self.nodes, self.main]:
            node.close()
        wait_until(lambda: not any(map(is_alive, pids)))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_in(directory: Path) -> Callable[[Path], bool]:
    """Whether a process, named by its directory in /proc, works in ``directory``."""

    def check(process: Path) -> bool:
        with suppress(OSError):
            return process.name.isdigit() and (process / "cwd").readlink() == directory
        return False

    return check


def consecutive_ports() -> int:
    """The first of two consecutive free client ports, whose bus ports are also free."""
    return free_ports(COUNT)[0]


def start(directory: Path, *options: str, file: str | None = None) -> Several:
    """Start a server without waiting for it."""
    port = consecutive_ports()
    arguments = [] if file is None else [file]
    arguments += ["--port", str(port), "--bind", "127.0.0.1", "--processes", str(COUNT), *options]
    return Several(spawn(arguments, port, directory))


Start = Callable[..., Several]


@pytest.fixture
def several(tmp_path: Path) -> Iterator[Start]:
    """Starts servers, waits for them, and ends them."""
    with ExitStack() as stack:

        def started(*options: str, file: str | None = None) -> Several:
            server = start(tmp_path, *options, file=file)
            stack.callback(server.close)
            wait_until(server.serves)
            return server

        yield started
