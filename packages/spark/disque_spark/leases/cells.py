"""Cells and pages, stored as jobs of a queue.

A cell is a job with a key (ADDJOB UNIQUE): the nodes guarantee that there is at most one. All of
these jobs are delayed until they expire, so they are never delivered, whatever queues a client
reads. SHOW reads them, and ACKJOB drops them.
"""

import time
from collections.abc import Callable, Iterable, Sequence

import hiredis

from disque_spark.client import Arg, BlockingClient, RefusedError, WireError, accepted, by_ids
from disque_spark.defaults import LEASE_QUEUES
from disque_spark.leases.journal import Cell
from disque_spark.leases.store import LeaseError
from disque_spark.link import PAUSE, RETRIED, NodeConnections
from disque_spark.nodes import Nodes
from disque_trio.respclient.blocking import Reply
from disque_trio.respclient.login import Login

LIFE = 90 * 86_400  # s; lifetime of cells and pages: a query may be down for so long
COPIES = 3  # the most copies of a job
AGREE_MS = 5000  # timeout of ADDJOB
LOOK_MS = 1000  # timeout of an ADDJOB that only looks
NOBODY = 65_535  # more copies than any cluster can make, so that ADDJOB adds nothing
SHOW_AT_ONCE = 16  # pages in one pipeline
SCAN = 1000  # jobs that a step of JSCAN visits
FAILOVER = 10.0  # s
COUNTED = 5.0  # s after which nodes are counted again


class QueueCells:
    """The cells of a queue; see ``journal.Cells``.

    All methods raise WireError if no node that can do it is reachable, and RefusedError if nodes
    refuse for a permanent reason.

    Args:
        queue: name of the queue, without ``LEASE_QUEUES``.
        nodes: addresses, in the order to try them; they are asked for further nodes.
        login, timeout: see ``BlockingClient``.
        failover: seconds to look for a node that accepts a request.
        sleep, clock: as in the module ``time``.
    """

    def __init__(
        self,
        queue: str,
        nodes: Sequence[str],
        login: Login | None = None,
        timeout: float = 60.0,
        failover: float = FAILOVER,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = LEASE_QUEUES + queue
        self._login = login
        self._timeout = timeout
        self._failover = failover
        self._sleep = sleep
        self._clock = clock
        self._link = NodeConnections(nodes, login, timeout, failover, sleep=sleep, clock=clock)
        self._size = 0  # nodes of the cluster
        self._counted = float("-inf")  # when they were counted
        self._refusal = ""  # code of the last error

    def wait(self, seconds: float) -> None:
        """Wait up to ``seconds`` for a node to answer."""
        self._count_nodes(seconds)

    def put(self, key: str, body: bytes, seconds: int = 0) -> Cell:
        """See ``Cells``. Repeating it at another node does no harm."""
        id = self._add(body, "UNIQUE", key, seconds=seconds)
        cell = self._cell(id)
        if cell is None:  # dropped or expired meanwhile
            raise WireError(f"{self._queue}: {key} was written, but is gone")
        return cell

    def find(self, key: str, otherwise: bytes = b"") -> Cell | None:
        """See ``Cells``."""
        how: tuple[Arg, ...] = ("REPLICATE", NOBODY, *_for_seconds(0), "UNIQUE", key)
        request = ("ADDJOB", self._queue, b"", LOOK_MS, *how)
        if not otherwise:
            id = self._ask(request, ("NOREPL",))
            return None if id is None else self._cell(_text(id))
        # With so many copies, a job counts as added only if all nodes may have it. So if a node is
        # lost, this may fail to find a cell that exists.
        id = self._ask(request, ("NOREPL", "NOUNIQ"))
        if id is not None:
            return self._cell(_text(id))
        return None if self._refusal == "NOREPL" else self.put(key, otherwise)

    def add(self, body: bytes) -> str:
        """See ``Cells``. If a connection breaks, the page may be added twice."""
        return self._add(body)

    def read(self, ids: Sequence[str]) -> list[bytes]:
        """See ``Cells``. Raises LeaseError if all nodes answer and none has a page."""
        found: list[bytes] = []
        for at in range(0, len(ids), SHOW_AT_ONCE):
            for id, job in zip(
                ids[at : at + SHOW_AT_ONCE], self._show(ids[at : at + SHOW_AT_ONCE]), strict=True
            ):
                if job is None:
                    raise LeaseError(f"{self._queue}: {id} is no longer on any node")
                found.append(_bytes(job[b"body"]))
        return found

    def bodies(self, ids: Sequence[str]) -> list[bytes | None]:
        """See ``Cells``."""
        return [None if job is None else _bytes(job[b"body"]) for job in self._show(ids)]

    def lives(self, id: str) -> bool:
        """See ``Cells``."""
        try:
            return self._cell(id) is not None
        except WireError:
            return True  # it may be on an unreachable node

    def scan(self) -> list[Cell]:
        """See ``Cells``. Scans all jobs of all nodes."""
        ids: dict[str, None] = {}
        nodes = Nodes(self._link.nodes, self._login, timeout=self._timeout)
        try:
            addresses = nodes.addresses()
            lost: list[str] = []
            for address in addresses:
                try:
                    ids.update(dict.fromkeys(self._scan_node(nodes.client(address))))
                except WireError as problem:
                    lost.append(str(problem))
        finally:
            nodes.close()
        if len(lost) >= copies(len(addresses)):
            raise WireError(f"{self._queue}: too few nodes can be reached: " + "; ".join(lost))
        all_ids = list(ids)
        cells = [
            self._cell_of(id, job)
            for at in range(0, len(all_ids), SHOW_AT_ONCE)
            for id, job in zip(
                all_ids[at : at + SHOW_AT_ONCE],
                self._show(all_ids[at : at + SHOW_AT_ONCE]),
                strict=True,
            )
        ]
        return [cell for cell in cells if cell is not None]

    def drop(self, ids: Iterable[str]) -> None:
        """See ``Cells``."""
        for reply in self._link.send(by_ids("ACKJOB", list(ids))):
            accepted(reply)

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _add(self, body: bytes, *more: Arg, seconds: int = 0) -> str:
        if self._clock() - self._counted >= COUNTED:  # nodes come and go
            self._count_nodes()
        how = ("REPLICATE", copies(self._size), *_for_seconds(seconds), *more)
        return _text(self._ask(("ADDJOB", self._queue, body, AGREE_MS, *how)))

    def _count_nodes(self, seconds: float | None = None) -> None:
        self._size = self._link.size(seconds)
        self._counted = self._clock()

    def _ask(self, request: Sequence[Arg], nothing: Sequence[str] = ()) -> Reply:
        """The reply of the first node that accepts the request. None if a node replies with one of
        the errors in ``nothing``, which is then in ``_refusal``."""
        deadline = self._clock() + self._failover
        while True:
            [reply] = self._link.send([request])
            try:
                return accepted(reply)
            except RefusedError as refused:
                self._refusal = refused.code
                if refused.code in nothing:
                    return None
                if refused.code not in RETRIED:
                    raise
                if self._clock() >= deadline:
                    raise WireError(f"{self._link.address}: {refused}") from refused
            self._link.turn()  # the next node may accept it
            self._sleep(PAUSE)

    def _cell(self, id: str) -> Cell | None:
        return self._cell_of(id, self._show([id])[0])

    def _cell_of(self, id: str, job: "dict[bytes, Reply] | None") -> Cell | None:
        """The cell that a job is; None if it was dropped."""
        if job is None or job[b"state"] == b"acked":
            return None
        key = job.get(b"unique-key", b"")
        return Cell(id, _text(key), _bytes(job[b"body"]))

    def _show(self, ids: Sequence[str]) -> "list[dict[bytes, Reply] | None]":
        """The fields of jobs, from the first node that has them; None for jobs that no node has.

        Raises:
            WireError: no reachable node has a job, and not all nodes can be reached.
        """
        found: dict[str, dict[bytes, Reply]] = {}
        _note_jobs(ids, self._link.send([("SHOW", id) for id in ids]), found)
        if len(found) < len(ids):
            self._show_elsewhere(ids, found)
        return [found.get(id) for id in ids]

    def _show_elsewhere(self, ids: Sequence[str], found: dict[str, dict[bytes, Reply]]) -> None:
        nodes = Nodes(self._link.nodes, self._login, timeout=self._timeout)
        lost: WireError | None = None
        try:
            for address in nodes.addresses():
                try:
                    left = [id for id in ids if id not in found]
                    shown = nodes.client(address).pipeline([("SHOW", id) for id in left])
                    _note_jobs(left, shown, found)
                except WireError as problem:
                    lost = problem
                if len(found) == len(ids):
                    return
        finally:
            nodes.close()
        if lost is not None:
            raise lost

    def _scan_node(self, client: BlockingClient) -> Iterable[str]:
        """The ids of all jobs of the queue on a node."""
        cursor = "0"
        what = ("QUEUE", self._queue, "STATE", "active", "STATE", "queued", "STATE", "wait-repl")
        while True:
            reply = client.call("JSCAN", cursor, "COUNT", SCAN, *what)
            assert isinstance(reply, list)
            cursor = _text(reply[0])
            ids = reply[1]
            assert isinstance(ids, list)
            yield from [_text(id) for id in ids]
            if cursor == "0":
                return


def copies(nodes: int) -> int:
    """How many copies of each job to make in a cluster of ``nodes`` nodes.

    A key needs the agreement of more than half of the nodes, so that many copies can be made. An
    ADDJOB that asked for more copies and timed out could block its key until the nodes that may
    have a copy are back.
    """
    return min(COPIES, nodes // 2 + 1)


def _note_jobs(
    ids: Sequence[str], replies: Sequence[Reply], found: dict[str, dict[bytes, Reply]]
) -> None:
    """Add the jobs that a node has to ``found``, from its replies to SHOW."""
    for id, reply in zip(ids, replies, strict=True):
        if isinstance(reply, hiredis.ReplyError):
            accepted(reply)
        if isinstance(reply, list):
            found[id] = {
                _bytes(name): value for name, value in zip(reply[::2], reply[1::2], strict=True)
            }


def _for_seconds(seconds: int) -> tuple[Arg, ...]:
    """Options for a job that is never delivered: its delay ends a millisecond before its life."""
    life = seconds or LIFE
    return ("DELAY", f"{life - 1}.999", "RETRY", life, "TTL", life)


def _bytes(field: Reply) -> bytes:
    assert isinstance(field, bytes)
    return field


def _text(field: Reply) -> str:
    return _bytes(field).decode()
