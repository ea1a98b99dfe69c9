"""Work for a cluster: jobs with copies, added at one node and taken there or at the next one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tools.bench.fleet import Fleet, Usage
from tools.bench.load import Exchange, LoadError, Script, connections, run
from tools.bench.workloads import Disque, add_batches, bodies, cycle, encode, send

ADD_TIMEOUT = b"20000"  # ms
# Nothing is to be queued again while it is measured.
LONG = (b"RETRY", b"86400", b"TTL", b"604800")
FILL_PIPELINE = 64
FILL_PORTION = 30_000
WAYS = ("add", "cycle", "cycle across")


@dataclass(frozen=True, slots=True)
class Way:
    """How jobs go through the cluster.

    ``step`` is one of WAYS: only added; added, taken and acknowledged at one node; or added at
    one node and taken and acknowledged at the next. ``replicate`` counts copies; with
    ``asynchronous`` the reply to ADDJOB does not wait for them.
    """

    step: str
    replicate: int
    asynchronous: bool
    pipeline: int
    clients: int


@dataclass(frozen=True, slots=True)
class Result:
    """One way measured once. ``seconds`` ends with the last reply; ``usage`` includes what came
    after it, until the last copy was made or removed, which took ``settled`` seconds more."""

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
        """Jobs in a second."""
        return self.jobs / self.seconds

    @property
    def cpu_per_100k(self) -> float:
        """CPU seconds of all nodes for 100,000 jobs."""
        return self.usage.cpu / self.jobs * 100_000


class Copied(Disque):
    """The words for jobs of one queue with copies; a take waits for a job."""

    def __init__(self, size: int, queue: bytes, replicate: int, asynchronous: bool) -> None:
        super().__init__(size, queue)
        self._queue = queue
        options = [ADD_TIMEOUT, b"REPLICATE", b"%d" % replicate, *LONG]
        self._options = options + [b"ASYNC"] * asynchronous
        self._take = encode(b"GETJOB", b"FROM", queue)

    def add(self, body: bytes) -> bytes:
        return encode(b"ADDJOB", self._queue, body, *self._options)

    def take(self, worker: int) -> bytes:
        return self._take


def consume(dialect: Disque, counts: Iterable[int]) -> Script:
    """Takes and ends so many jobs in a batch, whoever added them, while there are counts."""
    request = dialect.take(0)
    for count in counts:
        handles = dialect.handles((yield Exchange(request * count, dialect.taken, count)))
        acks = b"".join([dialect.ack(0, handle) for handle in handles])
        yield Exchange(acks, dialect.acked, count)


class ClusterBench:
    """Measures ways on one fleet. Raises ServerError when a node does not do the work.

    Args:
        size: of a job's body, bytes.
    """

    def __init__(self, fleet: Fleet, size: int) -> None:
        self.fleet = fleet
        self._size = size
        self._bodies = bodies(size)
        self._held = 0  # jobs, not copies
        self._copies = 0
        self._run = 0

    def fill(self, jobs: int, replicate: int) -> None:
        """Adds jobs that stay, the same number at each node."""
        for node in range(len(self.fleet)):
            share = _share(jobs, len(self.fleet), node)
            dialect = Copied(self._size, b"held-%d" % node, replicate, True)
            for at in range(0, share, FILL_PORTION):
                count = min(FILL_PORTION, share - at)
                batches = add_batches(dialect, self._bodies, count, FILL_PIPELINE)
                self._drive([(node, send(batches))])
                # No faster than the others can take the copies.
                self._copies += count * replicate
                self.fleet.settle(self._copies)
        self._held += jobs

    def measure(self, way: Way, jobs: int, round: int = 0) -> Result:
        """Runs ``jobs`` jobs, divided among nodes and clients, in this way."""
        # Nodes ask each other for jobs of a queue more and more seldom while there are none: with
        # queues that have a history, or consumers that come first, it would be waits that are
        # measured.
        self._run += 1
        seconds, before = self._drive(self._adding(way, jobs))
        if way.step == "cycle across":
            seconds += self._drive(self._taking(way, jobs))[0]
        left = jobs * way.replicate if way.step == "add" else 0
        settled = self.fleet.settle(self._copies + left, more=left > 0)
        usage = self.fleet.usage().since(before)
        if left:
            self._drain(way, jobs)
        return Result(way, len(self.fleet), self._held, round, jobs, seconds, settled, usage)

    def _parts(self, way: Way, jobs: int) -> Iterator[tuple[int, int, int, Copied]]:
        """Index, jobs, clients and words of each node."""
        nodes = len(self.fleet)
        for node in range(nodes):
            queue = b"bench-%d-%d" % (node, self._run)
            dialect = Copied(self._size, queue, way.replicate, way.asynchronous)
            yield node, _share(jobs, nodes, node), max(1, _share(way.clients, nodes, node)), dialect

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
            counts = _portions(share, way.pipeline)
            following = (node + 1) % len(self.fleet)
            scripts += [(following, consume(dialect, counts)) for _ in range(clients)]
        return scripts

    def _drain(self, way: Way, jobs: int) -> None:
        scripts = [
            (node, consume(dialect, _portions(share, FILL_PIPELINE)))
            for node, share, _, dialect in self._parts(way, jobs)
        ]
        self._drive(scripts)
        self.fleet.settle(self._copies)

    def _drive(self, scripts: Sequence[tuple[int, Script]]) -> tuple[float, Usage]:
        """Runs each script at its node; returns how many seconds they took, and what the nodes
        had used when all clients were connected."""
        wanted = [sum(node == n for node, _ in scripts) for n in range(len(self.fleet))]
        try:
            with ExitStack() as stack:
                open_ = [
                    iter(stack.enter_context(connections(server.port, count)))
                    for server, count in zip(self.fleet.servers, wanted, strict=True)
                ]
                socks = [next(open_[node]) for node, _ in scripts]
                before = self.fleet.usage()
                return run(socks, [script for _, script in scripts]).seconds, before
        except LoadError as error:
            raise self.fleet.failure(error) from error


def _share(total: int, parts: int, part: int) -> int:
    """The ``part``-th of ``parts`` nearly equal shares of ``total``."""
    return total // parts + (part < total % parts)


def _portions(total: int, most: int) -> Iterator[int]:
    return iter([min(most, total - at) for at in range(0, total, most)])


def copies(nodes: int, wanted: int) -> int:
    """The copies that so many nodes can hold of a job."""
    return min(nodes, wanted)
