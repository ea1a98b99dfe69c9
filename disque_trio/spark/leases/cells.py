"""Cells and pages as jobs of a queue.

A cell is a job with a key (ADDJOB UNIQUE): the nodes see to it that there is one at most. All of
them are delayed for longer than anybody needs them, so nobody is ever given one, whatever queues he
asks for; they are read by SHOW, and dropped by ACKJOB.
"""

import time
from collections.abc import Callable, Iterable, Sequence

import hiredis

from disque_trio.respclient.login import Login
from disque_trio.spark.client import (
    Arg,
    BlockingClient,
    RefusedError,
    Reply,
    WireError,
    accepted,
    by_ids,
)
from disque_trio.spark.defaults import LEASE_QUEUES
from disque_trio.spark.leases.journal import Cell
from disque_trio.spark.leases.store import LeaseError
from disque_trio.spark.link import PAUSE, RETRIED, Link
from disque_trio.spark.nodes import Nodes

YEARS = 10 * 365 * 86_400  # s
COPIES = 3  # of each job, at most
AGREE_MS = 5000  # how long an ADDJOB may take
LOOK_MS = 1000  # and one that adds nothing
NOBODY = 65_535  # copies that no cluster can make: such an ADDJOB adds nothing
SHOW_AT_ONCE = 16  # pages
SCAN = 1000  # jobs a step of JSCAN visits
FAILOVER = 10.0
COUNTED = 5.0  # s for which a number of nodes holds


class QueueCells:
    """The cells of a queue, see ``journal.Cells``.

    All methods raise WireError where no node can be reached that does it, and RefusedError where
    nodes refuse it for good.

    Args:
        queue: its name, without ``LEASE_QUEUES``.
        nodes: addresses, in the order to try them; the others are asked for.
        login, timeout: of connections, see ``BlockingClient``.
        failover: seconds to look for a node that does what it is asked.
        sleep, clock: of the time module.
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
        self._link = Link(nodes, login, timeout, failover, sleep=sleep, clock=clock)
        self._size = 0  # of the cluster
        self._counted = float("-inf")  # when
        self._refusal = ""  # the code of the last error

    def wait(self, seconds: float) -> None:
        """Wait up to ``seconds`` until a node answers."""
        self._count_nodes(seconds)

    def put(self, key: str, body: bytes, seconds: int = 0) -> Cell:
        """See ``Cells``. To do it again, by another node, does no harm."""
        id = self._add(body, "UNIQUE", key, seconds=seconds)
        cell = self._cell(id)
        if cell is None:  # it was dropped, or its time is over, while we looked
            raise WireError(f"{self._queue}: {key} was written, and is gone")
        return cell

    def find(self, key: str, otherwise: bytes = b"") -> Cell | None:
        """See ``Cells``."""
        how: tuple[Arg, ...] = ("REPLICATE", NOBODY, *_for_seconds(0), "UNIQUE", key)
        request = ("ADDJOB", self._queue, b"", LOOK_MS, *how)
        if not otherwise:
            id = self._ask(request, ("NOREPL",))
            return None if id is None else self._cell(_text(id))
        # With so many copies a job counts as added only if all nodes may have it, so when one of
        # them is lost this may not find what there is.
        id = self._ask(request, ("NOREPL", "NOUNIQ"))
        if id is not None:
            return self._cell(_text(id))
        return None if self._refusal == "NOREPL" else self.put(key, otherwise)

    def add(self, body: bytes) -> str:
        """See ``Cells``. If a connection breaks it may be there twice."""
        return self._add(body)

    def read(self, ids: Sequence[str]) -> list[bytes]:
        """See ``Cells``. Raises LeaseError: all nodes answer, and none has it."""
        found: list[bytes] = []
        for at in range(0, len(ids), SHOW_AT_ONCE):
            for id, job in zip(
                ids[at : at + SHOW_AT_ONCE], self._show(ids[at : at + SHOW_AT_ONCE]), strict=True
            ):
                if job is None:
                    raise LeaseError(f"{self._queue}: no node has {id} any more")
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
            return True  # on a node that is away

    def scan(self) -> list[Cell]:
        """See ``Cells``. Walks over all jobs of all nodes."""
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
        """The reply of the first node that does it. None where one answers with an error of
        ``nothing``; ``_refusal`` is which."""
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
            self._link.turn()  # the next one may do it
            self._sleep(PAUSE)

    def _cell(self, id: str) -> Cell | None:
        return self._cell_of(id, self._show([id])[0])

    def _cell_of(self, id: str, job: "dict[bytes, Reply] | None") -> Cell | None:
        """None: it is dropped."""
        if job is None or job[b"state"] == b"acked":
            return None
        key = job.get(b"unique-key", b"")
        return Cell(id, _text(key), _bytes(job[b"body"]))

    def _show(self, ids: Sequence[str]) -> "list[dict[bytes, Reply] | None]":
        """The fields of jobs, of the first node that has them; None where none has it.

        Raises:
            WireError: none of those that can be reached has it, and others cannot be reached.
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
        """The ids of all jobs of the queue that a node has."""
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
    """How many copies of each job a cluster of so many nodes has.

    More than half of the nodes are always there when a key is agreed on, so these can be made. An
    ADDJOB that was given up, since there were fewer, could keep its key from being used until the
    nodes are back that may have got a copy.
    """
    return min(COPIES, nodes // 2 + 1)


def _note_jobs(
    ids: Sequence[str], replies: Sequence[Reply], found: dict[str, dict[bytes, Reply]]
) -> None:
    """Note which of the jobs a node has, as it answers to SHOW."""
    for id, reply in zip(ids, replies, strict=True):
        if isinstance(reply, hiredis.ReplyError):
            accepted(reply)
        if isinstance(reply, list):
            found[id] = {
                _bytes(name): value for name, value in zip(reply[::2], reply[1::2], strict=True)
            }


def _for_seconds(seconds: int) -> tuple[Arg, ...]:
    """Never delivered: the delay ends a millisecond before the life."""
    life = seconds or YEARS
    return ("DELAY", f"{life - 1}.999", "RETRY", life, "TTL", life)


def _bytes(field: Reply) -> bytes:
    assert isinstance(field, bytes)
    return field


def _text(field: Reply) -> str:
    return _bytes(field).decode()
