"""The hot paths whose instructions are counted, one after the other in one process.

``guard`` runs this under callgrind, which counts only the turns of a server, not the preparation of
requests or the reading of replies.
"""

from __future__ import annotations

import ctypes
import gc
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Protocol

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.jobs.job import JOB_OVERHEAD
from disque_trio.node.core.node import Node
from disque_trio.node.core.pages.pages import READ, WRITE, Order
from disque_trio.resp.reply import Value, encode
from disque_trio.resp.request import RequestParser
from disque_trio.respserver.client import Client
from disque_trio.respserver.memory import UNLIMITED
from tools.bench.inprocess import (
    BODY,
    ENDS,
    EVENT_COMMANDS,
    JOB_COMMANDS,
    QUEUE,
    START,
    Desk,
    id_in,
    make_broker,
    make_node,
    request,
    requests_of,
)
from tools.bench.inprocess_cluster import ClusterDesk

WARM = 192  # commands before counting, so that the interpreter has specialized the code
COUNTED = 480
REQUEUED = 1000
PAGED = 2048
# For expensive paths, of which only the part between nodes is still new to the interpreter.
FEW = (48, 96)

BASE = "nothing"
"""The name of the count for the cost of counting itself, each time that it is switched on."""


class Counter(Protocol):
    """A way to count."""

    def toggle(self) -> None:
        """Start or stop counting."""

    def name(self, path: str, commands: int, turns: int) -> None:
        """Attribute the counts since the last call to ``commands`` commands of ``path``; counting
        was started ``turns`` times."""


class Callgrind:
    """Controls the callgrind that runs this process."""

    def __init__(self, library: str) -> None:
        marks = ctypes.PyDLL(library)
        self._dump = marks.guard_dump
        self.toggle: Callable[[], None] = marks.guard_toggle
        marks.guard_start()

    def name(self, path: str, commands: int, turns: int) -> None:
        self._dump(f"{path}|{commands}|{turns}".encode())


class _NoCounter:
    """For warm-up runs."""

    def toggle(self) -> None:
        pass

    def name(self, path: str, commands: int, turns: int) -> None:
        pass


def run(counter: Counter) -> None:
    """Run all paths."""
    for _ in range(WARM):
        counter.toggle()
        counter.toggle()
    counter.name("", 1, 1)
    for _ in range(COUNTED):
        counter.toggle()
        counter.toggle()
    counter.name(BASE, 1, COUNTED)
    for pipeline in (1, 16):
        with closing(Desk(make_node())) as desk:
            _life(desk, JOB_COMMANDS, pipeline, f"pipelined by {pipeline}", counter)
        with closing(Desk(make_broker())) as desk:
            _life(desk, EVENT_COMMANDS, pipeline, f"pipelined by {pipeline}", counter)
    with (
        tempfile.TemporaryDirectory() as directory,
        closing(Desk(make_node(), aof=directory)) as desk,
    ):
        _life(desk, JOB_COMMANDS, 16, "pipelined by 16, AOF", counter)
    for pipeline in (1, 16):
        with closing(ClusterDesk(3)) as desks:
            _life(
                desks, JOB_COMMANDS, pipeline, f"three nodes, pipelined by {pipeline}", counter, FEW
            )
            if desks.held():
                raise RuntimeError("jobs are left on the three nodes")
    _extended(counter)
    _paged(counter)
    _copies(counter)
    _requeues(counter)
    _codec(counter)


def _serve(desk: Desk | ClusterDesk, batches: list[bytes], counter: Counter) -> list[object]:
    replies: list[object] = []
    toggle = counter.toggle
    for batch in batches:
        desk.send(batch)
        toggle()
        desk.turn()
        toggle()
        replies += desk.replies()
    return replies


def _step(
    desk: Desk | ClusterDesk,
    requests: list[bytes],
    pipeline: int,
    path: str,
    counter: Counter,
) -> list[object]:
    starts = range(0, len(requests), pipeline)
    batches = [b"".join(requests[start : start + pipeline]) for start in starts]
    replies = _serve(desk, batches, counter)
    counter.name(path, len(requests), len(batches))
    if len(replies) != len(requests) or None in replies:
        raise RuntimeError(f"{path}: {len(requests)} requests, but {len(replies)} replies")
    return replies


def _life(
    desk: Desk | ClusterDesk,
    commands: Sequence[str],
    pipeline: int,
    how: str,
    counter: Counter,
    counts: tuple[int, int] = (WARM, COUNTED),
) -> None:
    """Add, take and acknowledge jobs or events: first without counting, then with (``counts``)."""
    for count, now in zip(counts, (_NoCounter(), counter), strict=True):
        taken: list[bytes] = []
        for command in commands:
            requests = [request(*words) for words in requests_of(command, count, taken)]
            replies = _step(desk, requests, pipeline, f"{command}, {how}", now)
            if command not in ENDS:
                taken = [id_in(reply) for reply in replies]
            elif replies != [1] * count:
                raise RuntimeError(f"{command} did not end all")


def _extended(counter: Counter) -> None:
    """The life of jobs with features that C Disque lacks, on one node, pipelined by 16."""
    add = (b"ADDJOB", QUEUE, BODY, b"0")
    get = (b"GETJOB", b"NOHANG", b"FROM", QUEUE)
    headers = (b"HEADERS", b"2", b"content-type", b"text/plain", b"traceparent", b"0" * 55)
    for count, now in ((WARM, _NoCounter()), (COUNTED, counter)):
        with closing(Desk(make_node())) as desk:
            ids = _some(desk, "ADDJOB HEADERS", [(*add, *headers)] * count, now)
            _some(desk, "GETJOB WITHHEADERS", [(*get[:2], b"WITHHEADERS", *get[2:])] * count, now)
            _some(desk, "ACKJOB, with headers", [(b"ACKJOB", id) for id in ids], now)
            keys = [b"%d of %d" % (number, count) for number in range(count)]
            ids = _some(desk, "ADDJOB UNIQUE", [(*add, b"UNIQUE", key) for key in keys], now)
            _some(desk, "ADDJOB UNIQUE, again", [(*add, b"UNIQUE", key) for key in keys], now)
            _some(desk, "GETJOB, with a key", [get] * count, now)
            _some(desk, "ACKJOB, with a key", [(b"ACKJOB", id) for id in ids], now)
            ids = _some(desk, "ADDJOB, to be cancelled", [add] * count, _NoCounter())
            _some(desk, "CANCEL", [(b"CANCEL", id) for id in ids], now)
            ids = _some(desk, "ADDJOB, to have a result", [add] * count, _NoCounter())
            _some(desk, "GETJOB, to have a result", [get] * count, _NoCounter())
            ends = [(b"ACKJOB", id, b"RESULT", b"done") for id in ids]
            _some(desk, "ACKJOB RESULT", ends, now)
            policy = (b"QSET", QUEUE, b"ATTEMPTS", b"2", b"DEAD", b"dead")
            _some(desk, "QSET", [policy], _NoCounter())
            ids = _some(desk, "ADDJOB, with a policy", [add] * count, now)
            _some(desk, "GETJOB, with a policy", [get] * count, now)
            back = [(b"NACK", id, b"REASON", b"why") for id in ids]
            _some(desk, "NACK REASON", back, now)
            _some(desk, "GETJOB, the last attempt", [get] * count, _NoCounter())
            _some(desk, "NACK, to the dead letters", [(b"NACK", id) for id in ids], now)
            many = b"4000000000"
            limits = (b"ATTEMPTS", b"0", b"DEAD", b"", b"RATE", many, b"ACTIVE", many)
            _some(desk, "QSET", [(b"QSET", QUEUE, *limits)], _NoCounter())
            ids = _some(desk, "ADDJOB, to a limited queue", [add] * count, _NoCounter())
            _some(desk, "GETJOB, with limits", [get] * count, now)
            _some(desk, "ACKJOB, with limits", [(b"ACKJOB", id) for id in ids], now)


def _some(
    desk: Desk, path: str, requests: Sequence[tuple[bytes, ...]], counter: Counter
) -> list[bytes]:
    """Run ``requests``; returns the ids in the replies."""
    replies = _step(desk, [request(*words) for words in requests], 16, path, counter)
    problems = [reply for reply in replies if isinstance(reply, Exception)]
    if problems:
        raise RuntimeError(f"{path}: {problems[0]}")
    return [reply for reply in replies if isinstance(reply, bytes)]


class _Disk:
    """Carries out the orders of ``node``'s paging at once; its files are in memory."""

    def __init__(self, node: Node) -> None:
        self._files: dict[int, bytes] = {}
        self._paging = node.paging
        self._paged_in = node.paged_in

    def perform(self, orders: list[Order]) -> None:
        """Carry ``orders`` out."""
        for order in orders:
            if order.kind == WRITE:
                self._files[order.number] = order.data
                self._paging.paged_out(order.number, "")
            elif order.kind == READ:
                data = order.cut(self._files[order.number])
                self._paged_in(order.number, order.place, data)
            else:
                del self._files[order.number]


def _paged(counter: Counter) -> None:
    """The life of jobs that go to disk and come back, with an append-only file, pipelined by 16:
    of those that are counted, each one does."""
    add = (b"ADDJOB", QUEUE, BODY, b"0")
    get = (b"GETJOB", b"NOHANG", b"FROM", QUEUE)
    quiet = _NoCounter()
    most = PAGED // 4
    above = (most - 64) * (JOB_OVERHEAD + len(BODY))  # then a segment goes, which makes room
    for count, now in ((most, quiet), (PAGED, counter)):
        with tempfile.TemporaryDirectory() as directory:
            node = make_node()
            pages = node.paging.pages
            pages.perform = _Disk(node).perform
            pages.most = most
            pages.index.bits = 8
            with closing(Desk(node, aof=directory)) as desk:
                ids = _some(desk, "ADDJOB, to stay", [add] * (4 * most - 16), quiet)
                pages.above = 0
                ids += _some(desk, "ADDJOB, the first to disk", [add] * 16, quiet)
                pages.above = node.memory.used + above
                ids += _some(desk, "ADDJOB, to disk", [add] * count, now)
                on_disk = pages.jobs
                ends = [(b"ACKJOB", id) for id in ids if pages.find(id)]
                pages.above = UNLIMITED
                _some(desk, "ACKJOB, on disk", ends[:most], now)
                _some(desk, "GETJOB, none from disk", [get] * (most + 16), quiet)
                _some(desk, "GETJOB, from disk", [get] * count, now)
                if on_disk != count + most or pages.jobs:
                    raise RuntimeError(f"{on_disk}, then {pages.jobs} jobs are on disk")


class _Pair(Peers):
    """The other of two nodes; packets for it wait in ``sent``."""

    def __init__(self, other: bytes) -> None:
        super().__init__()
        self.size = 2
        self.reachable = [other]
        self.sent: deque[bytes] = deque()

    def everyone(self) -> list[bytes]:
        return self.reachable

    def knows(self, id: bytes) -> bool:
        return id == self.reachable[0]

    def linked(self, id: bytes) -> bool:
        return True

    def send(self, id: bytes, packet: bytes) -> None:
        self.sent.append(packet)


def _copies(counter: Counter) -> None:
    """The life of a job on two nodes that both hold it, including packets."""
    ids = [make_node(seed=seed).id for seed in (1, 2)]
    peers = [_Pair(ids[1]), _Pair(ids[0])]
    nodes = [make_node(peers[index], index + 1) for index in (0, 1)]
    client = Client(1)

    def settle() -> None:
        while True:
            # Packets are sent at the end of a turn.
            nodes[0].commit()
            nodes[1].commit()
            if not (peers[0].sent or peers[1].sent):
                return
            for to, peer in ((1, peers[0]), (0, peers[1])):
                while peer.sent:
                    nodes[to].receive(ids[1 - to], peer.sent.popleft(), START)

    for count, now in ((WARM, _NoCounter()), (COUNTED, counter)):
        for _ in range(count):
            now.toggle()
            nodes[0].command(client, [b"ADDJOB", QUEUE, BODY, b"0"], START)
            settle()
            nodes[0].command(client, [b"GETJOB", b"NOHANG", b"FROM", QUEUE], START)
            settle()
            now.toggle()
            id = client.out[0].split(b"\r\n")[-2] if client.out[0][:1] == b"$" else client.out[0]
            id = id.strip(b"+\r\n")
            now.toggle()
            nodes[0].command(client, [b"ACKJOB", id], START)
            settle()
            now.toggle()
            if (
                client.out[-1] != b":1\r\n"
                or nodes[0].store.jobs.count
                or nodes[1].store.jobs.count
            ):
                raise RuntimeError(f"the job did not end on both nodes: {client.out}")
            client.out.clear()
        now.name("a job on two nodes", count, 2 * count)


def _requeues(counter: Counter) -> None:
    """Requeue jobs that were taken and not acknowledged."""
    for now in (_NoCounter(), counter):
        node: Node = make_node()
        client = Client(1)
        for _ in range(REQUEUED):
            node.command(client, [b"ADDJOB", QUEUE, BODY, b"0", b"RETRY", b"10"], START)
            node.command(client, [b"GETJOB", b"NOHANG", b"FROM", QUEUE], START)
        now.toggle()
        while 0 < node.next_wake() <= START + 60_000 and node.store.total_requeued < REQUEUED:
            node.tick(START + 60_000)
        now.toggle()
        if node.store.total_requeued != REQUEUED:
            raise RuntimeError(f"{node.store.total_requeued} of {REQUEUED} jobs were queued again")
        now.name("a job is queued again", REQUEUED, 1)


def _codec(counter: Counter) -> None:
    """Requests that do not go to hiredis, and replies that are not built by hand."""
    whole = request(b"ADDJOB", QUEUE, BODY, b"0")
    pieces = [whole[:70], whole[70:]]
    job: list[Value] = [QUEUE, BODY, 17, None]
    reply: list[Value] = [job, job, {b"nacks": 0, b"queued": 1}]
    for count, now in ((WARM, _NoCounter()), (COUNTED, counter)):
        parser = RequestParser()
        for _ in range(count):
            now.toggle()
            parser.feed(pieces[0])
            requests = parser.feed(pieces[1])
            now.toggle()
            if len(requests) != 1:
                raise RuntimeError("the parser lost a request")
        now.name("parse a request in two pieces", count, count)
        for _ in range(count):
            now.toggle()
            encode(reply, 2)
            now.toggle()
        now.name("encode a nested reply", count, count)


def main(marks: str) -> None:
    """Run all paths; ``marks`` is the library that controls callgrind."""
    gc.disable()
    run(Callgrind(marks))
