"""Load on a cluster of real nodes, and records of what clients were told."""

import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import hiredis
import pytest

from disque_trio.client import ConnectionLost, DisqueError
from disque_trio.client.sync import Client, connect
from tests.support.bus_proxy import HOST
from tests.support.harness import HANG_SECONDS, Wire, wait_until
from tests.support.live_cluster import LiveCluster, Member

QUEUE = "work"
ONCE = "once"  # its jobs have RETRY 0
REFUSED_PAUSE = 0.1  # s; a node that reaches too few others refuses at once
BATCH = 100  # jobs that are added at once
LET_DOWN = 0.1  # fraction of the jobs whose first consumer does not acknowledge them


class Ledger:
    """What clients were told, in all threads.

    Attributes:
        confirmed: ids of jobs that a node promised to deliver at least once. confirmed_once: those
            of jobs that it promised to deliver at most once.
        delivered: how often each job was delivered. once: those of them with RETRY 0. again: how
            many deliveries were not the first of a job, by queue.
        ended: ids sent in acknowledgements. acked: those that a node confirmed.
        refused: the first words of ADDJOB's errors.
        problems: what must never happen.
    """

    def __init__(self) -> None:
        self.confirmed: set[bytes] = set()
        self.confirmed_once: set[bytes] = set()
        self.delivered: Counter[bytes] = Counter()
        self.once: set[bytes] = set()
        self.again: Counter[bytes] = Counter()
        self.ended: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.refused: Counter[str] = Counter()
        self.problems: list[str] = []
        self._lock = threading.Lock()

    def added(self, reply: object, once: bool) -> None:
        """Note the reply to an ADDJOB; ``once``: with RETRY 0."""
        with self._lock:
            if isinstance(reply, bytes):
                if reply in self.confirmed:
                    self.problems.append(f"{reply!r} was given to two jobs")
                (self.confirmed_once if once else self.confirmed).add(reply)
            else:
                self.refused[str(reply).split()[0]] += 1

    def taken(self, queue: bytes, id: bytes) -> bool:
        """Note a delivery. Returns whether it is the first, and others are possible."""
        with self._lock:
            self.delivered[id] += 1
            first = self.delivered[id] == 1
            self.again[queue] += not first
            if queue == ONCE.encode():
                self.once.add(id)
                if self.delivered[id] > 1:
                    self.problems.append(f"{id!r} with RETRY 0 was delivered twice")
                return False
            return first

    def outstanding(self) -> set[bytes]:
        """Confirmed jobs that are not done; those that a consumer dropped must be redelivered."""
        with self._lock:
            return self.confirmed - self.ended

    def check(self) -> None:
        """Fail the test if something forbidden happened."""
        assert self.problems == []


class Load:
    """Producers and consumers in threads, each at its own node, to which it reconnects after losing
    the connection.

    Args:
        cluster: the nodes. ledger: where to note what happens.
    """

    def __init__(self, cluster: LiveCluster, ledger: Ledger | None = None) -> None:
        self.cluster = cluster
        self.ledger = Ledger() if ledger is None else ledger
        self._no_more = threading.Event()
        self._end = threading.Event()
        self._producers: list[threading.Thread] = []
        self._consumers: list[threading.Thread] = []

    def produce(
        self,
        nodes: Iterable[Member],
        *options: str | int,
        queue: str = QUEUE,
        timeout: int = 2_000,
        pause: float = 0.002,
        retry: int = 1,
        size: int = 20,
        count: int = 1,
    ) -> None:
        """Start a producer at each of ``nodes``: ADDJOB with ``options``, ``count`` at once, with a
        pause in s, and bodies of up to ``size`` bytes."""
        once = queue == ONCE
        words: list[str | int] = ["RETRY", 0, "REPLICATE", 1] if once else ["RETRY", retry]
        words += options

        def work(wire: Wire) -> None:
            for _ in range(count):
                body = os.urandom(random.randint(20, size))
                wire.send("ADDJOB", queue, body, timeout, *words)
            for _ in range(count):
                reply = wire.read()
                self.ledger.added(reply, once)
            time.sleep(pause if isinstance(reply, bytes) else max(pause, REFUSED_PAUSE))

        self._start(self._producers, nodes, work, self._no_more)

    def consume(
        self,
        nodes: Iterable[Member],
        queues: Sequence[str] = (QUEUE, ONCE),
        count: int = 20,
        let_down: float = LET_DOWN,
    ) -> None:
        """Start a consumer at each of ``nodes``: GETJOB and ACKJOB. It drops that fraction of the
        first deliveries of jobs that can be redelivered."""

        def work(wire: Wire) -> None:
            jobs = wire("GETJOB", "TIMEOUT", 200, "COUNT", count, "FROM", *queues)
            if isinstance(jobs, hiredis.ReplyError):
                # It is leaving the cluster, or loading.
                self._end.wait(0.05)
            if not isinstance(jobs, list):
                return
            ids = [
                job[1]
                for job in jobs
                if not self.ledger.taken(job[0], job[1]) or random.random() > let_down
            ]
            self.ledger.ended.update(ids)
            if ids and isinstance(wire("ACKJOB", *ids), int):
                self.ledger.acked.update(ids)

        self._start(self._consumers, nodes, work, self._end)

    def add(self, nodes: Iterable[Member], count: int, queue: str, *options: str | int) -> int:
        """Add ``count`` jobs at each of ``nodes``, now; returns how many there are."""
        before = len(self.ledger.confirmed)
        for node in nodes:
            wire = node.wire()
            for _ in range(0, count, BATCH):
                for _ in range(BATCH):
                    wire.send("ADDJOB", queue, os.urandom(20), 10_000, *options)
                for _ in range(BATCH):
                    self.ledger.added(wire.read(), False)
            wire.close()
        return len(self.ledger.confirmed) - before

    def produce_at_best(self, count: int, queues: Sequence[str], pause: float = 0.01) -> None:
        """Start ``count`` producers that go to the node that is best for each of ``queues``."""

        def work(client: Client) -> None:
            id = client.add(
                random.choice(queues), os.urandom(20), replicate=2, retry=1, timeout=1.0
            )
            self.ledger.added(id.encode(), False)
            time.sleep(pause)

        self._start_aware(self._producers, count, work, self._no_more)

    def consume_at_best(self, count: int, queues: Sequence[str]) -> None:
        """Start ``count`` consumers that go to the node that is best for ``queues``."""

        def work(client: Client) -> None:
            jobs = client.get(*queues, timeout=0.2, count=20)
            ids = [
                job.id
                for job in jobs
                if not self.ledger.taken(job.queue.encode(), job.id.encode())
                or random.random() > LET_DOWN
            ]
            self.ledger.ended.update(id.encode() for id in ids)
            if ids:
                client.ack(*ids)
                self.ledger.acked.update(id.encode() for id in ids)

        self._start_aware(self._consumers, count, work, self._end)

    def _start_aware(
        self,
        threads: list[threading.Thread],
        count: int,
        work: Callable[[Client], None],
        until: threading.Event,
    ) -> None:
        nodes = [f"{HOST}:{node.announced}" for node in self.cluster]
        for number in range(count):
            first = number % len(nodes)
            thread = threading.Thread(
                target=self._run_aware, args=(nodes[first:] + nodes[:first], work, until)
            )
            threads.append(thread)
            thread.start()

    def _run_aware(
        self, nodes: list[str], work: Callable[[Client], None], until: threading.Event
    ) -> None:
        try:
            with connect(nodes, retry_for=HANG_SECONDS) as client:
                while not until.is_set():
                    try:
                        work(client)
                    except ConnectionLost:
                        # The node ended before it answered: nobody knows whether it did it.
                        until.wait(REFUSED_PAUSE)
                    except DisqueError as error:
                        self.ledger.added(error, False)
                        until.wait(REFUSED_PAUSE)
        except Exception as problem:
            self.ledger.problems.append(repr(problem))

    def _start(
        self,
        threads: list[threading.Thread],
        nodes: Iterable[Member],
        work: Callable[[Wire], None],
        until: threading.Event,
    ) -> None:
        for node in nodes:
            thread = threading.Thread(target=self._run, args=(node, work, until))
            threads.append(thread)
            thread.start()

    def _run(self, node: Member, work: Callable[[Wire], None], until: threading.Event) -> None:
        while not until.is_set():
            wire: Wire | None = None
            try:
                wire = Wire(socket.create_connection((HOST, node.port), timeout=HANG_SECONDS))
                while not until.is_set():
                    work(wire)
            except (OSError, EOFError):
                until.wait(0.02)
            except Exception as problem:
                self.ledger.problems.append(repr(problem))
                return
            finally:
                if wire is not None:
                    wire.close()

    def wait_confirmed(self, more: int, seconds: float = HANG_SECONDS) -> None:
        """Wait until ``more`` additional jobs are confirmed."""
        wanted = len(self.ledger.confirmed) + more
        deadline = time.monotonic() + seconds
        while (missing := wanted - len(self.ledger.confirmed)) > 0:
            if time.monotonic() > deadline:
                pytest.fail(f"{missing} of {more} jobs are not confirmed: {self.ledger.refused}")
            time.sleep(0.01)

    def wait_done(self, seconds: float = HANG_SECONDS) -> None:
        """Wait until all jobs confirmed so far are done."""
        now = self.ledger.confirmed.copy()
        wait_until(lambda: now <= self.ledger.ended, seconds)

    def stop_producing(self) -> None:
        """End the producers, and wait for their last replies."""
        self._no_more.set()
        for thread in self._producers:
            thread.join()

    def finish(self, seconds: float = HANG_SECONDS) -> Ledger:
        """End cleanly: wait until every confirmed job is done, and no job is left anywhere."""
        self.stop_producing()
        deadline = time.monotonic() + seconds
        while rest := self.ledger.outstanding():
            if time.monotonic() > deadline:
                views = self.cluster.views(sorted(rest)[:3])
                pytest.fail(f"{len(rest)} jobs are lost, or late:\n{views}")
            time.sleep(0.02)
        self._acknowledge_once()
        self.cluster.wait_empty()
        self.stop()
        self.ledger.check()
        assert self.ledger.confirmed
        return self.ledger

    def _acknowledge_once(self) -> None:
        """Acknowledge remaining jobs with RETRY 0, which would stay until their TTL: their
        acknowledgement was lost with a node, or their node died before it confirmed them."""
        rest = list(self.ledger.once - self.ledger.acked)
        for node in self.cluster.running():
            reply = node.ask("JSCAN", "BUSYLOOP", "QUEUE", ONCE)
            assert isinstance(reply, list)
            rest += reply[1]
        if rest:
            for node in self.cluster.running():
                assert isinstance(node.ask("ACKJOB", *rest), int)

    def stop(self) -> None:
        """End all threads."""
        self._no_more.set()
        self._end.set()
        for thread in [*self._producers, *self._consumers]:
            thread.join()


@contextmanager
def load_on(cluster: LiveCluster) -> Iterator[Load]:
    """Load whose threads end with the block, whatever happens."""
    load = Load(cluster)
    try:
        yield load
    finally:
        # A suspended or isolated node would block its clients.
        for node in cluster:
            if node.process.poll() is None:
                node.resume()
        load.stop()
