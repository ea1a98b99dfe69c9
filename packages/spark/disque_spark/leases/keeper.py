"""Keeps leased jobs from being delivered again, and acknowledges them when they are processed.

Streams use ``LeaseKeeper`` in the driver. ``ack`` and ``holding`` are for batch reads: Spark does
not tell the source when the rows of a batch read are safe.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from disque_spark.client import BlockingClient, RefusedError, WireError, accepted, by_ids
from disque_spark.defaults import DEFAULT_NODES
from disque_spark.leases.fetch import give_back, working
from disque_spark.leases.queue import QueuePlace, QueueStore
from disque_spark.leases.store import LeaseError
from disque_spark.link import NodeConnections
from disque_spark.nodes import discovered
from disque_trio.respclient.login import Login
from disque_trio.respclient.tls import Tls

HEARTBEAT_SECONDS = 10.0


class LeaseKeeper:
    """Sends ACKJOB for the jobs of finished batches, and WORKING for those of open ones.

    Args:
        log: the store of the leases.
        seeds: nodes to use when the node of a lease is gone; they are asked for further nodes.
        login, timeout: see ``BlockingClient``.
    """

    def __init__(
        self,
        log: QueueStore,
        seeds: Sequence[str] = (),
        login: Login | None = None,
        timeout: float = 60.0,
    ) -> None:
        self._log = log
        self._seeds = list(seeds)
        self._login = login
        self._timeout = timeout
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def finish(self, last: int | None = None) -> dict[int, int]:
        """Finish the batches up to ``last`` (None: all), and acknowledge their jobs and those of
        batches that were finished before but not acknowledged. Returns the number of jobs of each.

        Jobs that no task has read go back to their queues: a sink may skip a batch, as file sinks
        do with a batch whose number they already have.

        Raises:
            WireError: no node can be reached; the next call acknowledges the jobs.
        """
        for number in self._log.open_batches():
            if last is None or number <= last:
                self._log.finish(number)
        counts: dict[int, int] = {}
        for number in self._log.to_acknowledge():
            counts[number] = self._acknowledge(number)
            self._log.clear(number)
        return counts

    def working(self) -> None:
        """Send WORKING for all jobs in leases of open batches."""
        for number in self._log.open_batches():
            for lease in self._log.leases(number):
                if not lease.given:
                    self._working(lease.address, lease.ids)

    def start(self, seconds: float) -> None:
        """Call ``working`` now and every ``seconds``, in a thread of its own, until ``close``."""
        self._thread = threading.Thread(
            target=self._beat, args=(seconds,), name="disque-heartbeat", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the thread. The leases stay open."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _beat(self, seconds: float) -> None:
        while not self._stop.is_set():
            try:
                self.working()
            except (OSError, RefusedError, LeaseError):
                pass  # a lease that was just cleared, or a node that rejects the password
            self._stop.wait(seconds)

    def _acknowledge(self, batch: int) -> int:
        count = 0
        others = self._log.nodes(batch)
        for lease in self._log.leases(batch):
            count += len(lease.ids)
            if not lease.read:
                with BlockingClient([lease.address], self._login, self._timeout) as client:
                    give_back(client, lease.ids)
                continue
            if lease.given:
                continue
            # Every node accepts an ACKJOB, and passes it on.
            nodes = [lease.address, *self._seeds, *others]
            link = NodeConnections(nodes, self._login, self._timeout, failover=0, discover=False)
            with closing(link):
                for reply in link.send(by_ids("ACKJOB", lease.ids)):
                    accepted(reply)
        return count

    def _working(self, address: str, ids: Sequence[str]) -> None:
        try:
            self._send_working(address, ids)
        except WireError:
            # Nodes with copies of the jobs would deliver them again unless they hear from us.
            for other in self._other_nodes(address):
                try:
                    self._send_working(other, ids)
                except WireError:
                    continue

    def _other_nodes(self, address: str) -> list[str]:
        nodes = [seed for seed in self._seeds if seed != address]
        if not nodes:
            return []
        try:
            with BlockingClient(nodes, self._login, self._timeout) as client:
                nodes += discovered(client)
        except WireError:
            return []
        return [node for node in dict.fromkeys(nodes) if node != address]

    def _send_working(self, address: str, ids: Sequence[str]) -> None:
        with BlockingClient([address], self._login, self._timeout) as client:
            working(client, ids)


def ack(
    *,
    lease_queue: str,
    nodes: str | Sequence[str] = (),
    password: str | None = None,
    username: str | None = None,
    tls: Tls | bool | None = None,
) -> int:
    """Acknowledge the jobs that batch reads have leased. Call it when their rows are safe.

    The next read then takes other jobs; without this call, it returns the same rows again.

    Args:
        lease_queue: the option ``leaseQueue`` of the read.
        nodes: addresses of nodes that hold the leases; they are also used when a node that jobs
            came from is gone.
        password, username: for AUTH.
        tls: connect with TLS; True: trust the system's certificate authorities.

    Returns:
        the number of jobs.

    Raises:
        LeaseError: a query is using the leases.
        WireError: no node can be reached; call ``ack`` again.
    """
    place = _place(lease_queue, nodes, Login(username, password, tls))
    with closing(place.open()) as log:
        return sum(LeaseKeeper(log, place.nodes, place.login).finish().values())


@contextmanager
def holding(
    *,
    lease_queue: str,
    nodes: str | Sequence[str] = (),
    password: str | None = None,
    username: str | None = None,
    tls: Tls | bool | None = None,
    heartbeat: float = HEARTBEAT_SECONDS,
) -> Iterator[None]:
    """Context manager for code that reads and processes a batch: keeps its jobs from being
    delivered again, and acknowledges them at the end of the block. After an exception they stay
    leased, for the next read with the same leases.

    Args:
        lease_queue, nodes, password, username, tls: as for ``ack``.
        heartbeat: seconds from one WORKING for a job to the next; at most a third of the job's
            retry time.

    Raises:
        LeaseError, WireError: as ``ack``, at the beginning and the end of the block.
    """
    place = _place(lease_queue, nodes, Login(username, password, tls))
    # While the block runs, Spark's reader needs the lock.
    log = place.watch()
    keeper = LeaseKeeper(log, place.nodes, place.login)
    keeper.start(heartbeat)
    try:
        yield
    finally:
        keeper.close()
        log.close()
    ack(lease_queue=lease_queue, nodes=nodes, password=password, username=username, tls=tls)


def _place(queue: str, nodes: str | Sequence[str], login: Login) -> QueuePlace:
    given = [node.strip() for node in nodes.split(",")] if isinstance(nodes, str) else nodes
    return QueuePlace(queue, tuple(given) or (DEFAULT_NODES,), login)
