"""One or two nodes under load and observation: the processes of one measurement."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace

from tools.bench.dialects import Disque, encode
from tools.bench.latency_load import Order, Result, work
from tools.bench.latency_watch import Watched, judge, watch_machine, watch_node
from tools.bench.load import Exchange, Script, ask_once, connections, info, run
from tools.bench.scripts import portions
from tools.bench.servers import GENERATOR_CPUS, SERVER_CPUS, Server
from tools.bench.workers import Worker, worker

HELD = b"held"
PIPELINE = 64  # for filling the node


@dataclass(frozen=True, slots=True)
class Measurement:
    """The result of one run: the load, the watchers' observations, and the nodes' CPU time (s)."""

    order: Order
    load: Result
    watched: Watched
    cpu: float


class Stage:
    """Running nodes: jobs are added to ``adds`` and taken from ``takes``, which may be the same."""

    def __init__(
        self, adds: Server, takes: Server, clients: int, size: int, whole: bool = True
    ) -> None:
        self.adds = adds
        self.takes = takes
        self._servers = [adds] if adds is takes else [adds, takes]
        self._order = Order(adds.port, takes.port, 0, 0, clients, size, whole=whole)

    def peak(self, seconds: float) -> float:
        """Cycles per second when each client begins the next as soon as it can."""
        order = replace(self._order, seconds=seconds)
        with self._load(order) as load:
            return self._result(load, order).rate

    def measure(self, rate: float, seconds: float) -> Measurement:
        """Offers ``rate`` cycles per second."""
        with self.measuring(rate, seconds) as found:
            pass
        return found[0]

    @contextmanager
    def measuring(self, rate: float, seconds: float) -> Iterator[list[Measurement]]:
        """Offers ``rate`` cycles per second while the block runs, and waits for the load at its
        end. The list then has the measurement."""
        found: list[Measurement] = []
        order = replace(self._order, rate=rate, seconds=seconds)
        with ExitStack() as stack:
            machine = stack.enter_context(worker("a watch", watch_machine, min(SERVER_CPUS)))
            watches = [
                stack.enter_context(
                    worker("a watch", watch_node, one.port, one.process.pid, min(GENERATOR_CPUS))
                )
                for one in self._servers
            ]
            for watch in (machine, *watches):
                watch.hear()
            before = self._cpu()
            with self._load(order) as load:
                yield found
                result = self._result(load, order)
            cpu = self._cpu() - before
            stalls = machine.ask()
            watched = []
            for watch in watches:
                pings, short, waits = watch.ask()
                watched.append(Watched(pings, short, judge(waits, stalls)))
        # Of two nodes, the one with the longer pause.
        worst = max(watched, key=lambda one: one.longest_own)
        found.append(Measurement(order, result, worst, cpu))

    def fill(self, jobs: int, until: float = 0.0) -> float:
        """Adds ``jobs`` jobs to a separate queue. With ``until`` they all expire then (s since the
        epoch), and are not requeued before. Returns the duration in s."""
        shape = Disque(self._order.size).added
        body = b"y" * self._order.size

        def batches() -> Script:
            for count in portions(jobs, PIPELINE):
                words = [b"ADDJOB", HELD, body, b"0"]
                if until:
                    left = max(1, int(until) - int(time.time()))
                    words += [b"RETRY", b"%d" % (left + 3600), b"TTL", b"%d" % left]
                yield Exchange(encode(*words) * count, shape, count)

        with connections(self.adds.port, 1) as socks:
            return run(socks, [batches()]).seconds

    @contextmanager
    def rewriting(self) -> Iterator[list[float]]:
        """Rewrites the AOF repeatedly while the block runs; the last rewrite ends after it. The
        list gets the duration of each, in s."""
        took: list[float] = []
        stop = threading.Event()

        def rewrite() -> None:
            while not stop.is_set():
                started = time.monotonic()
                ask_once(self.adds.port, b"BGREWRITEAOF\r\n")
                while self._rewrites():
                    time.sleep(0.02)
                took.append(time.monotonic() - started)

        thread = threading.Thread(target=rewrite)
        thread.start()
        try:
            yield took
        finally:
            stop.set()
            thread.join()
        if info(self.adds.port, b"persistence")["aof_last_bgrewrite_status"] != "ok":
            raise self.adds.failure("a rewrite failed")

    def _rewrites(self) -> bool:
        now = info(self.adds.port, b"persistence")
        return "1" in (now["aof_rewrite_scheduled"], now["aof_rewrite_in_progress"])

    def _cpu(self) -> float:
        return sum(server.cpu_seconds() for server in self._servers)

    def _load(self, order: Order) -> AbstractContextManager[Worker]:
        alone = not GENERATOR_CPUS & SERVER_CPUS
        return worker("the generator", work, order, GENERATOR_CPUS, alone)

    def _result(self, load: Worker, order: Order) -> Result:
        with self.takes.blamed():
            result: Result = load.hear(order.seconds)
        return result
