"""Keeps leased jobs from being delivered again, and acknowledges them when they are processed.

Streams use ``LeaseKeeper`` in their driver. ``ack`` and ``holding`` are for batch reads, which
Spark does not tell when their rows are safe.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from disque_trio.respclient.login import Login
from disque_trio.respclient.tls import Tls
from disque_trio.spark.client import BlockingClient, RefusedError, WireError
from disque_trio.spark.leases.directory import LeaseLog, batch_path, leased_ids, read_plan, was_read
from disque_trio.spark.leases.fetch import acknowledge, give_back, working
from disque_trio.spark.nodes import discovered
from disque_trio.spark.options import local

HEARTBEAT_SECONDS = 10.0


class LeaseKeeper:
    """Sends ACKJOB for the jobs of finished batches, and WORKING for those of the others.

    Args:
        log: where the leases are.
        seeds: nodes to turn to when that of a lease is gone; others are asked for.
        login, timeout: of connections, see ``BlockingClient``.
    """

    def __init__(
        self,
        log: LeaseLog,
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
        """End the batches up to ``last`` (None: all), and acknowledge them and those whose turn it
        was before. Returns how many jobs each of them had.

        Jobs that no task has read go back to their queues: sinks may leave a batch out, as file
        sinks do with one whose number they have.

        Raises:
            WireError: no node can be reached; they are acknowledged by the next call.
        """
        for number in self._log.open_batches():
            if last is None or number <= last:
                self._log.finish(number)
        counts: dict[int, int] = {}
        for number in self._log.to_acknowledge():
            counts[number] = self._acknowledge(self._log.done_path(number))
            self._log.clear(number)
        return counts

    def working(self) -> None:
        """Say WORKING for all jobs in leases of batches that are not over."""
        for number in self._log.open_batches():
            for _, address, ids in _leases(batch_path(self._log.directory, number)):
                self._working(address, ids)

    def start(self, seconds: float) -> None:
        """Call ``working`` now and every ``seconds`` in a thread of its own, until ``close``."""
        self._thread = threading.Thread(
            target=self._beat, args=(seconds,), name="disque-heartbeat", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """End the thread. The lease directory stays open."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _beat(self, seconds: float) -> None:
        while not self._stop.is_set():
            try:
                self.working()
            except (OSError, RefusedError):
                pass  # a lease that was just cleared; or a node that wants another password
            self._stop.wait(seconds)

    def _acknowledge(self, batch: Path) -> int:
        count = 0
        for number, address, ids in _leases(batch):
            count += len(ids)
            if not was_read(batch, number):
                with BlockingClient([address], self._login, self._timeout) as client:
                    give_back(client, ids)
                continue
            others = [plan.address for plan in read_plan(batch) or []]
            # Any node takes an ACKJOB and passes it on.
            nodes = list(dict.fromkeys([address, *self._seeds, *others]))
            with BlockingClient(nodes, self._login, self._timeout) as client:
                for attempt in range(len(nodes)):
                    try:
                        acknowledge(client, ids)
                    except WireError:
                        if attempt == len(nodes) - 1:
                            raise
                    else:
                        break
        return count

    def _working(self, address: str, ids: Sequence[str]) -> None:
        try:
            self._send_working(address, ids)
        except WireError:
            # Its copies are elsewhere, on nodes that deliver them again unless they hear of us.
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
    lease_directory: str | Path,
    nodes: str | Sequence[str] = (),
    password: str | None = None,
    *,
    username: str | None = None,
    tls: Tls | bool | None = None,
) -> int:
    """Acknowledge what batch reads have taken into a lease directory: its rows are safe.

    The next read takes other jobs. Without it the next read gives the same rows again.

    Args:
        lease_directory: the option ``leaseDirectory`` of the read.
        nodes: addresses to turn to when a node that jobs came from is gone.
        password, username: for AUTH. tls: connect by TLS; True: with the system's authorities.

    Returns:
        how many jobs.

    Raises:
        LeaseError: a query is using the directory.
        WireError: no node can be reached; call it again.
    """
    with LeaseLog(_path(lease_directory)) as log:
        login = Login(username, password, tls)
        return sum(LeaseKeeper(log, _as_addresses(nodes), login).finish().values())


@contextmanager
def holding(
    lease_directory: str | Path,
    nodes: str | Sequence[str] = (),
    password: str | None = None,
    heartbeat: float = HEARTBEAT_SECONDS,
    *,
    username: str | None = None,
    tls: Tls | bool | None = None,
) -> Iterator[None]:
    """A block that reads and processes a batch: its jobs are kept from being delivered again, and
    acknowledged at the end. An exception leaves them, for the next read of the same directory.

    Args:
        lease_directory, nodes, password, username, tls: as for ``ack``.
        heartbeat: seconds between two WORKINGs for each job; at most a third of the retry time.

    Raises:
        LeaseError, WireError: as ``ack``, at the end of the block.
    """
    path = _path(lease_directory)
    seeds = _as_addresses(nodes)
    log = LeaseLog(path)
    log.close()  # made and usable; while the block runs the reader of Spark needs the lock
    keeper = LeaseKeeper(log, seeds, Login(username, password, tls))
    keeper.start(heartbeat)
    try:
        yield
    finally:
        keeper.close()
    ack(path, seeds, password, username=username, tls=tls)


def _leases(batch: Path) -> Iterator[tuple[int, str, list[str]]]:
    """PartitionPlan, address and ids of each lease of a batch that has jobs."""
    for number, plan in enumerate(read_plan(batch) or []):
        ids = leased_ids(batch, number)
        if ids:
            yield number, plan.address, ids


def _as_addresses(nodes: str | Sequence[str]) -> list[str]:
    return [node.strip() for node in nodes.split(",")] if isinstance(nodes, str) else list(nodes)


def _path(directory: str | Path) -> Path:
    return Path(local(str(directory)))
