"""Clusters of nodes: starts, joins, watches and drives them, and sums up what they used."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tools.bench.dialects import Disque, copied, encode, idle
from tools.bench.load import LoadError, Script, ask_once, connections, info, run
from tools.bench.scripts import add_batches, bodies, consume, cycle, portions, send
from tools.bench.servers import CPUS, HOST, Server, ServerError, disque_server

JOIN_SECONDS = 30.0
SETTLE_SECONDS = 120.0
POLL_SECONDS = 0.05
# The generator has one CPU; the nodes share the others.
NODE_CPUS = CPUS - {min(CPUS)} or CPUS
FILL_PIPELINE = 64
FILL_PORTION = 30_000
WAYS = ("add", "cycle", "cycle across")


@dataclass(frozen=True, slots=True)
class Usage:
    """The usage of all nodes together: CPU seconds, packets and bytes sent over the bus.
    ``bus_bytes`` is None if the nodes do not count them."""

    cpu: float
    packets: int
    bus_bytes: int | None

    def since(self, before: Usage) -> Usage:
        """The usage since ``before``."""
        both = self.bus_bytes is not None and before.bus_bytes is not None
        return Usage(
            self.cpu - before.cpu,
            self.packets - before.packets,
            (self.bus_bytes or 0) - (before.bus_bytes or 0) if both else None,
        )


@dataclass(frozen=True, slots=True)
class Way:
    """How jobs go through the cluster.

    ``step`` is one of WAYS: only added; added, taken and acknowledged at one node; or added at one
    node, and taken and acknowledged at the next. ``replicate`` is the number of copies; with
    ``asynchronous`` the reply to ADDJOB does not wait for them.
    """

    step: str
    replicate: int
    asynchronous: bool
    pipeline: int
    clients: int


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement of a way. ``seconds`` ends with the last reply; ``usage`` includes the
    ``settled`` seconds after it, until the last copy was made or removed."""

    way: Way
    nodes: int
    held: int
    round: int
    jobs: int
    seconds: float
    settled: float
    usage: Usage

    @property
    def rate(self) -> float:
        """Jobs per second."""
        return self.jobs / self.seconds

    @property
    def cpu_per_100k(self) -> float:
        """CPU seconds of all nodes per 100,000 jobs."""
        return self.usage.cpu / self.jobs * 100_000


class Cluster:
    """Running nodes. Raises ServerError if one fails.

    Args:
        size: how many of ``servers``, in their order, form a cluster; 0: all of them form one.
    """

    def __init__(self, servers: Sequence[Server], size: int = 0) -> None:
        self.servers = list(servers)
        self._size = size or len(self.servers)

    def __len__(self) -> int:
        return len(self.servers)

    def join(self) -> None:
        """Introduces the nodes to each other, and waits until each can reach all others."""
        for start in range(0, len(self), self._size):
            first, *others = self.servers[start : start + self._size]
            for other in others:
                ask_once(first.port, encode(b"CLUSTER", b"MEET", HOST.encode(), b"%d" % other.port))
        self._wait(self._joined, JOIN_SECONDS, "the nodes do not join")

    def following(self, node: int) -> int:
        """The index of the next node in the cluster of the node with the index ``node``."""
        first = node - node % self._size
        return first + (node - first + 1) % self._size

    def settle(self, held: int, more: bool = False) -> float:
        """Waits until all copies are made and all acknowledged jobs are gone, so that the nodes
        hold ``held`` jobs in total. With ``more``, they may hold more, because a job whose copies
        are slow gets additional ones; then waits until the number is stable. Returns the duration
        in seconds.
        """
        started = time.monotonic()
        last = -1

        def settled() -> bool:
            nonlocal last
            before, last = last, self.held()
            return last == held or (more and last > held and last == before)

        self._wait(settled, SETTLE_SECONDS, f"{held} copies should be held")
        return time.monotonic() - started

    def held(self) -> int:
        """The total number of jobs on all nodes."""
        return sum(int(self._info(server, b"jobs")["registered_jobs"]) for server in self.servers)

    def usage(self) -> Usage:
        """The usage of the nodes so far."""
        cpu = sum(server.cpu_seconds() for server in self.servers)
        stats = [self._info(server, b"stats") for server in self.servers]
        sizes = [one.get("total_cluster_output_bytes") for one in stats]
        return Usage(
            cpu,
            sum(
                int(self._membership(server)["cluster_stats_messages_sent"])
                for server in self.servers
            ),
            None if None in sizes else sum(int(size) for size in sizes if size),
        )

    def failure(self, what: object) -> ServerError:
        """The error for the problem ``what``; names a node that has ended, if any."""
        ended = [server for server in self.servers if server.process.poll() is not None]
        return (ended or self.servers)[0].failure(what)

    def _joined(self) -> bool:
        return all(
            int(self._membership(server)["cluster_reachable_nodes"]) == self._size - 1
            for server in self.servers
        )

    def _wait(self, condition: Callable[[], bool], seconds: float, problem: str) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise self.failure(f"{problem} (not within {seconds:g} s; held: {self.held()})")
            time.sleep(POLL_SECONDS)

    def _info(self, server: Server, section: bytes) -> dict[str, str]:
        with server.blamed():
            return info(server.port, section)

    def _membership(self, server: Server) -> dict[str, str]:
        with server.blamed():
            text = ask_once(server.port, encode(b"CLUSTER", b"INFO")).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


@contextmanager
def cluster(
    commands: Sequence[Sequence[str]],
    cpus: Collection[int] = NODE_CPUS,
    name: str = "node",
    size: int = 0,
) -> Iterator[Cluster]:
    """A joined cluster of the nodes that these commands start, or clusters of ``size`` of them,
    until the block ends."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(disque_server(f"{name}-{n}", command, cpus))
            for n, command in enumerate(commands)
        ]
        running = Cluster(servers, size)
        running.join()
        yield running


class ClusterBench:
    """Measures ways through one cluster. Raises ServerError if a node fails.

    Args:
        size: bytes of a job's body.
    """

    def __init__(self, nodes: Cluster, size: int) -> None:
        self.nodes = nodes
        self._size = size
        self._bodies = bodies(size)
        self._held = 0  # jobs, not copies
        self._copies = 0
        self._run = 0

    def fill(self, jobs: int, replicate: int) -> None:
        """Adds jobs that stay, equally many at each node."""
        for node, share in enumerate(_shares(jobs, len(self.nodes))):
            dialect = copied(self._size, b"held-%d" % node, replicate, True)
            for count in portions(share, FILL_PORTION):
                batches = add_batches(dialect, self._bodies, count, FILL_PIPELINE)
                self._drive([(node, send(batches))])
                # No faster than the others can store the copies.
                self._copies += count * replicate
                self.nodes.settle(self._copies)
        self._held += jobs

    def fill_idle(self, jobs: int, replicate: int, retry: int) -> None:
        """Adds jobs with this retry time (s) that stay, at the first node."""
        dialect = idle(self._size, b"idle", replicate, retry)
        for count in portions(jobs, FILL_PORTION):
            self._drive([(0, send(add_batches(dialect, self._bodies, count, FILL_PIPELINE)))])
        self._held += jobs
        self._copies += jobs * replicate
        self.nodes.settle(self._copies)

    def measure(self, way: Way, jobs: int, round: int = 0) -> Result:
        """Runs ``jobs`` jobs in this way, divided among nodes and clients."""
        # Nodes ask each other for jobs of an empty queue less and less often. With used queues, or
        # with consumers that start first, this would measure those waits.
        self._run += 1
        seconds, before = self._drive(self._adding(way, jobs))
        if way.step == "cycle across":
            seconds += self._drive(self._taking(way, jobs))[0]
        left = jobs * way.replicate if way.step == "add" else 0
        settled = self.nodes.settle(self._copies + left, more=left > 0)
        usage = self.nodes.usage().since(before)
        if left:
            self._drive(
                [
                    (node, consume(dialect, 0, portions(share, FILL_PIPELINE)))
                    for node, share, _, dialect in self._parts(way, jobs)
                ]
            )
            self.nodes.settle(self._copies)
        return Result(way, len(self.nodes), self._held, round, jobs, seconds, settled, usage)

    def _parts(self, way: Way, jobs: int) -> Iterator[tuple[int, int, int, Disque]]:
        """The index, jobs, clients and dialect of each node."""
        count = len(self.nodes)
        shares = zip(_shares(jobs, count), _shares(way.clients, count), strict=True)
        for node, (share, clients) in enumerate(shares):
            queue = b"bench-%d-%d" % (node, self._run)
            dialect = copied(self._size, queue, way.replicate, way.asynchronous)
            yield node, share, max(1, clients), dialect

    def _adding(self, way: Way, jobs: int) -> list[tuple[int, Script]]:
        scripts: list[tuple[int, Script]] = []
        for node, share, clients, dialect in self._parts(way, jobs):
            adds = iter(add_batches(dialect, self._bodies, share, way.pipeline))
            for worker in range(clients):
                whole = way.step == "cycle"
                scripts.append((node, cycle(dialect, worker, adds) if whole else send(adds)))
        return scripts

    def _taking(self, way: Way, jobs: int) -> list[tuple[int, Script]]:
        scripts: list[tuple[int, Script]] = []
        for node, share, clients, dialect in self._parts(way, jobs):
            counts = portions(share, way.pipeline)
            scripts += [
                (self.nodes.following(node), consume(dialect, 0, counts)) for _ in range(clients)
            ]
        return scripts

    def _drive(self, scripts: Sequence[tuple[int, Script]]) -> tuple[float, Usage]:
        """Runs each script at its node; returns the seconds that they took, and the nodes' usage
        when all clients were connected."""
        wanted = [sum(node == n for node, _ in scripts) for n in range(len(self.nodes))]
        try:
            with ExitStack() as stack:
                open_ = [
                    iter(stack.enter_context(connections(server.port, count)))
                    for server, count in zip(self.nodes.servers, wanted, strict=True)
                ]
                socks = [next(open_[node]) for node, _ in scripts]
                before = self.nodes.usage()
                return run(socks, [script for _, script in scripts]).seconds, before
        except LoadError as error:
            raise self.nodes.failure(error) from error


def _shares(total: int, parts: int) -> list[int]:
    """Divides ``total`` into nearly equal parts."""
    return [total // parts + (part < total % parts) for part in range(parts)]
