"""Clusters of real nodes, each a process with its own directory."""

import re
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest

from disque_trio.node.core.lifecycle.ack_gc import MAX_GAP
from tests.support.bus_proxy import HOST, BusProxy, Door
from tests.support.commands import start_command
from tests.support.harness import (
    HANG_SECONDS,
    PATIENT,
    LiveNode,
    Wire,
    be_patient,
    free_port,
    notice_deaths,
    trusting,
    wait_for_ping,
    wait_until,
)
from tests.support.live_helpers import add_job

COLLECTED_SECONDS = MAX_GAP / 1_000 + HANG_SECONDS / 2  # below the time-out of pytest
"""Within this time a holder that was away hears that a job was acknowledged."""


def free_cluster_ports(count: int) -> list[int]:
    """Free client ports whose bus ports are also free."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return list(found)


class Member(LiveNode):
    """A node of a cluster. It can be restarted with the same port and directory. ``program`` is the
    command that starts it, if that is not the one of the tests; ``is_c``: it is C Disque."""

    program: Sequence[str] = ()
    is_c = False

    def __init__(self, index: int, port: int, announced: int, directory: Path) -> None:
        self.index = index
        self.port = port
        self.announced = announced
        self.directory = directory
        self.log = directory / "log"
        self.options: list[str] = []
        self._wires: list[Wire] = []
        directory.mkdir()

    def spawn(self) -> None:
        """Start the process without waiting for it."""
        options = ["--bind", HOST, "--port", str(self.port), *self.options]
        options = options if self.is_c else trusting(options)
        with self.log.open("ab") as output:
            if self.program:
                self.process = subprocess.Popen(
                    (*self.program, *options), cwd=self.directory, stdout=output, stderr=output
                )
                return
            self.process = start_command(
                "disque-server", *options, cwd=self.directory, stdout=output, stderr=output
            )

    def wait_ready(self) -> None:
        """Wait until it answers and has loaded its jobs."""
        assert wait_for_ping(self), self.log.read_text()[-3000:]
        wire = self.wire()
        wait_until(lambda: wire("PING") == b"PONG")
        wire.close()

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self.spawn()
        self.wait_ready()

    def pause(self) -> None:
        """Suspend the process (SIGSTOP), and wait until it is stopped."""
        self.process.send_signal(signal.SIGSTOP)
        state = Path(f"/proc/{self.process.pid}/stat")
        wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T")

    def resume(self) -> None:
        """Resume a suspended process."""
        self.process.send_signal(signal.SIGCONT)

    def meet(self, other: "Member") -> None:
        """CLUSTER MEET."""
        assert self.ask("CLUSTER", "MEET", HOST, other.announced) == b"OK"

    def info(self, section: str) -> dict[str, str]:
        """The fields of a section of INFO."""
        return _fields(self.ask("INFO", section))

    @property
    def id(self) -> bytes:
        """Its node id."""
        id = self.ask("CLUSTER", "MYID")
        assert isinstance(id, bytes)
        return id

    def remembered(self) -> set[bytes]:
        """The ids of the nodes in its nodes.conf."""
        lines = (self.directory / "nodes.conf").read_bytes().splitlines()
        return {line.split()[0] for line in lines if line and not line.startswith(b"vars")}

    def registered(self) -> int:
        """The number of jobs that it holds, including acknowledged ones."""
        return int(self.info("jobs")["registered_jobs"])

    def cluster_info(self) -> dict[str, str]:
        """CLUSTER INFO."""
        return _fields(self.ask("CLUSTER", "INFO"))

    def lines(self) -> dict[bytes, list[bytes]]:
        """CLUSTER NODES: the fields of each line, by node id."""
        text = self.ask("CLUSTER", "NODES")
        assert isinstance(text, bytes)
        rows = [line.split(b" ") for line in text.splitlines()]
        return {row[0]: row for row in rows}

    def priorities(self) -> dict[bytes, int]:
        """HELLO: the priority of each node, by id."""
        reply = self.ask("HELLO")
        assert isinstance(reply, list)
        return {row[0]: int(row[3]) for row in reply[2:]}

    def holds(self, id: bytes) -> bool:
        """Whether it has a real copy of a job, not just a record of an acknowledgement."""
        reply = self.ask("SHOW", id)
        return isinstance(reply, list) and reply[-1] is not None

    def reaches(self, count: int) -> bool:
        """Whether it knows ``count`` nodes, including itself, and is connected to all of them."""
        return self.sees(count) and set(self.priorities().values()) == {1}


def _fields(text: object) -> dict[str, str]:
    assert isinstance(text, bytes), text
    return dict(re.findall(r"^(\w+):(.*?)\r?$", text.decode(), re.MULTILINE))


class LiveCluster:
    """Nodes that know each other.

    Args:
        directory: for the directories of the nodes.
        count: of nodes.
        options: of each node; ``{index}`` in one becomes the node's index.
        proxied: whether the bus goes through ``proxy``.
        node_timeout: ms; None: patient. ``wait_failing`` makes nodes hasty while it waits.
    """

    def __init__(
        self,
        directory: Path,
        count: int,
        *options: str,
        proxied: bool = False,
        node_timeout: int | None = None,
    ) -> None:
        ports = free_cluster_ports(2 * count if proxied else count)
        self.nodes = [
            Member(n, ports[n], ports[count + n if proxied else n], directory / f"node-{n}")
            for n in range(count)
        ]
        for node in self.nodes:
            node.options = [PATIENT[0], str(node_timeout or PATIENT[1])]
            if proxied:
                node.options += ["--cluster-announce-ip", HOST]
                node.options += ["--cluster-announce-port", str(node.announced)]
            node.options += [option.replace("{index}", str(node.index)) for option in options]
        self._proxied = proxied

    def __getitem__(self, index: int) -> Member:
        return self.nodes[index]

    def __iter__(self) -> Iterator[Member]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def ids(self) -> list[bytes]:
        """The ids of the nodes."""
        return [node.id for node in self.nodes]

    def start(self, meet: bool = True) -> None:
        """Start all nodes and let every pair meet, which is faster than gossip. Nodes that show who
        they are have to be introduced: the first one meets all."""
        if self._proxied:
            proxy = BusProxy([Door(node.announced, node.port) for node in self.nodes])
            proxy.open()
            self.proxy = proxy
        for node in self.nodes:
            node.spawn()
        for node in self.nodes:
            node.wait_ready()
        if meet:
            pairs = list(combinations(self.nodes, 2))
            if "--cluster-identity" in self.nodes[0].options:
                pairs = pairs[: len(self) - 1]
            for node, other in pairs:
                node.meet(other)
            self.wait_joined()
            self.wait_saved()

    def wait_joined(self, nodes: Sequence[Member] | None = None) -> None:
        """Wait until each of ``nodes`` (default: all) knows and reaches exactly these nodes."""
        nodes = self.nodes if nodes is None else nodes
        deadline = time.monotonic() + HANG_SECONDS
        while not all(node.reaches(len(nodes)) for node in nodes):
            if time.monotonic() > deadline:
                views = [(node.index, node.port, node.ask("CLUSTER", "NODES")) for node in nodes]
                pytest.fail("\n".join(map(str, ["not joined:", *views])))
            time.sleep(0.01)

    def wait_saved(self) -> None:
        """Wait until each node would still know the others after a kill and a restart."""
        ids = set(self.ids)
        for node in self.nodes:
            wait_until(partial(_remembers, node, ids))

    def wait_failing(self, ids: Iterable[bytes], by: Iterable[Member]) -> None:
        """Wait until the nodes ``by`` consider the nodes with these ids failing."""
        ids, by = list(ids), list(by)
        notice_deaths(by)
        for node in by:
            wait_until(partial(_all_failing, node, ids))
        be_patient(by)

    def end_handshakes(self) -> None:
        """Wait until no node tries to meet a stranger any more: patient ones try for a minute."""
        notice_deaths(self.nodes)
        for node in self.nodes:
            wait_until(partial(_meets_nobody, node))
        be_patient(self.nodes)

    def running(self) -> list[Member]:
        """The nodes whose process is running."""
        return [node for node in self.nodes if node.process.poll() is None]

    def wait_empty(self, seconds: float = COLLECTED_SECONDS) -> None:
        """Wait until no running node holds any job or record of an acknowledgement."""
        deadline = time.monotonic() + seconds
        while rest := {node.index: n for node in self.running() if (n := node.registered())}:
            if time.monotonic() > deadline:
                pytest.fail(f"jobs left: {rest}\n{self._leftovers()}")
            time.sleep(0.01)

    def _leftovers(self) -> str:
        """Some of the remaining jobs, as each of their nodes sees them."""
        ids: list[bytes] = []
        for node in self.running():
            reply = node.ask("JSCAN", "BUSYLOOP")
            assert isinstance(reply, list)
            ids += reply[1]
        return self.views(dict.fromkeys(ids[:5]))

    def views(self, ids: Iterable[bytes]) -> str:
        """These jobs, as each node sees them."""
        short = {node.id: b"%d" % node.index for node in self.running()}
        lines = []
        for id in ids:
            for node in self.running():
                shown = str(node.ask("SHOW", id))
                for long, number in short.items():
                    shown = shown.replace(long.decode(), number.decode())
                lines.append(f"node {node.index}: {shown}")
        return "\n".join(lines)

    def wait_copies(self, id: bytes, count: int) -> list[Member]:
        """Wait until ``count`` nodes or more have a copy of the job; returns them."""
        wait_until(lambda: len(self.holders(id)) >= count)
        return self.holders(id)

    def holders(self, id: bytes) -> list[Member]:
        """The nodes that have a copy of the job."""
        return [node for node in self.running() if node.holds(id)]

    def end_test(self) -> None:
        """Leave nothing of a test, such as strangers that are met in vain, to the next one."""
        self.end_handshakes()
        self.wait_joined()
        self.clean()

    def clean(self) -> None:
        """Remove what a test left behind: connections, jobs, and jobs in transit."""
        for node in self.nodes:
            for wire in node._wires:
                wire.close()
            node._wires.clear()
        wait_until(self._flushed)

    def _flushed(self) -> bool:
        for node in self.nodes:
            assert node.ask("DEBUG", "FLUSHALL") == b"OK"
        return all(node.registered() == 0 for node in self.nodes)

    def close(self) -> None:
        """Leave nothing behind."""
        for node in self.nodes:
            if hasattr(node, "process"):
                node.close()
        if hasattr(self, "proxy"):
            self.proxy.close()


def _remembers(node: Member, ids: set[bytes]) -> bool:
    return ids <= node.remembered()


def _meets_nobody(node: Member) -> bool:
    return not any("handshake" in words[2] for words in node.cluster_nodes())


def _all_failing(node: Member, ids: list[bytes]) -> bool:
    priorities = node.priorities()
    return all(priorities.get(id, 0) >= 10 for id in ids)


@contextmanager
def live_cluster(
    directory: Path,
    count: int,
    *options: str,
    proxied: bool = False,
    node_timeout: int | None = None,
) -> Iterator[LiveCluster]:
    """A joined cluster, which ends with the block."""
    cluster = LiveCluster(directory, count, *options, proxied=proxied, node_timeout=node_timeout)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def job_goes_round(cluster: LiveCluster) -> None:
    """Add a large job at one node, take it at another and acknowledge it at the third."""
    body = b"x" * 300_000
    id = add_job(cluster[0].wire(), "q", body, "REPLICATE", 3).encode()
    assert cluster[1].ask("GETJOB", "FROM", "q") == [[b"q", id, body]]
    assert cluster[2].ask("ACKJOB", id) == 1
    cluster.wait_empty()
