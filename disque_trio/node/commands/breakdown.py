"""QTOP: whose jobs a queue has, by group, task, user or client.

All jobs in memory are looked at, slice by slice, as for JSCAN FIRST: an index would add to the cost
of every job.
"""

from itertools import islice
from typing import Final

from disque_trio.node.core.changes.state_counts import IN_HAND, IN_QUEUE, LATER, state_of
from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.jobs.registry import SHARDS
from disque_trio.node.core.node import Node
from disque_trio.node.core.queues.adders import MOST_SHOWN
from disque_trio.node.core.queues.traffic import Traffic
from disque_trio.resp.ints import parse_int
from disque_trio.resp.reply import Value, encode
from disque_trio.respserver.batches import LOOK, UNITS_OF_ID, Sliced
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX
from disque_trio.respserver.words import Value as Parser

GROUP: Final = b"group"
TASK: Final = b"task"
USER: Final = b"user"
CLIENT: Final = b"client"
KINDS: Final = (GROUP, TASK, USER, CLIENT)
DEFAULT_COUNT: Final = 10
MOST_ROWS: Final = 1_000
MOST_NAMES: Final = 10_000  # that stay when there are twice as many: those with most jobs
_TASK_HEADER: Final = b"task"  # of ``disque_trio.tasks``


def _kind(args: list[bytes]) -> bytes:
    """The word after BY."""
    if args[2].lower() != b"by":
        raise CommandError(SYNTAX)
    kind = args[3].lower()
    if kind not in KINDS:
        raise CommandError("ERR BY needs group, task, user or client")
    return kind


def _count(word: bytes) -> int:
    count = parse_int(word)
    if count is None or not 1 <= count <= MOST_ROWS:
        raise CommandError(f"ERR COUNT must be a number from 1 to {MOST_ROWS}")
    return count


QTOP: Final[dict[str, Parser]] = {"COUNT": _count}


class _Row:
    """The jobs of one name: ``added`` by it, -1: not counted; in the queue, in the hands of
    clients, delayed."""

    __slots__ = ("added", "delayed", "in_hand", "queued")

    def __init__(self, added: int) -> None:
        self.added = added
        self.queued = 0
        self.in_hand = 0
        self.delayed = 0

    @property
    def here(self) -> int:
        """How many jobs there are."""
        return self.queued + self.in_hand + self.delayed

    def add(self, other: "_Row") -> None:
        """Add those of another name."""
        self.added += max(other.added, 0)
        self.queued += other.queued
        self.in_hand += other.in_hand
        self.delayed += other.delayed

    def shown(self) -> list[Value]:
        """The numbers, as in the reply."""
        return [self.added, self.queued, self.in_hand, self.delayed]


class Breakdown(Sliced):
    """The reply of QTOP."""

    __slots__ = ("_count", "_kind", "_names", "_node", "_others", "_queue", "_rows", "_shard")

    def __init__(self, node: Node, client: Client, args: list[bytes]) -> None:
        super().__init__(client, node.command_of(args))
        words = node.read(args)
        self._node = node
        self._queue = args[1]
        self._kind = _kind(args)
        self._count = words.number("COUNT", DEFAULT_COUNT)
        self._rows: dict[bytes, _Row] = {}
        self._others = _Row(self._none)
        self._names = 0  # of the others
        self._shard = 0  # the next one of the registry

    @property
    def _none(self) -> int:
        """The number of jobs that a name has added before any is counted."""
        return 0 if self._kind in (USER, CLIENT) else -1

    @property
    def left(self) -> int:
        return 1 + (len(self._rows) >> 3)

    def step(self, size: int) -> None:
        most = size * UNITS_OF_ID
        self.spent = 0
        shards = self._node.store.jobs.shards
        while self._shard < SHARDS:
            if self.spent >= most:
                return
            shard = shards[self._shard]
            self._shard += 1
            self.spent += LOOK * len(shard)
            for job in shard.values():
                if job.queue == self._queue:
                    self._look_at(job)
            if len(self._rows) >= 2 * MOST_NAMES:
                self._keep(MOST_NAMES)
        self.ready.append(self._tell())
        self.reply = b""

    def _look_at(self, job: Job) -> None:
        """Count ``job``, if it waits or runs and this node counts it."""
        node = self._node
        state = state_of(job, node.now)
        if state == IN_QUEUE:
            self._row(self._name(job)).queued += 1
        elif state == IN_HAND:
            self._row(self._name(job)).in_hand += 1
        elif state == LATER and node.scatter_gather.state_counter.shares.counts_waiting(job):
            self._row(self._name(job)).delayed += 1

    def _name(self, job: Job) -> bytes:
        """The name that ``job`` counts for; empty: none is known."""
        if self._kind in (USER, CLIENT):
            adder = job.adder
            if adder is None:
                return b""
            return adder.user if self._kind == USER else adder.origin
        trailer = self._node.store.trailers.of(job)
        if trailer is None:
            return b""
        if self._kind == GROUP:
            return trailer.group[:MOST_SHOWN]
        headers = trailer.headers
        for at in range(0, len(headers), 2):
            if headers[at] == _TASK_HEADER:
                return headers[at + 1][:MOST_SHOWN]
        return b""

    def _row(self, name: bytes) -> _Row:
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = _Row(self._none)
        return row

    def _keep(self, most: int) -> None:
        """Add up all names but the ``most`` largest."""
        rows = sorted(self._rows.items(), key=_rank)
        for _, row in rows[most:]:
            self._others.add(row)
        self._names += len(rows[most:])
        self._rows = dict(rows[:most])

    def _tell(self) -> bytes:
        """The reply, when all jobs were looked at."""
        node = self._node
        queue = node.queues.by_name.get(self._queue)
        unread = node.paging.aside.later().get(self._queue, 0)
        if queue is not None:
            unread += queue.on_disk()
            if self._kind == GROUP and queue.groups is not None:
                for lane in islice(queue.groups.queues(), MOST_NAMES):
                    if lane.on_disk():
                        self._row(lane.name[:MOST_SHOWN]).queued += lane.on_disk()
                        unread -= lane.on_disk()
        if self._kind in (USER, CLIENT):
            self._add_added(node.queues.known_traffic(self._queue))
        self._keep(self._count)
        rows: list[Value] = [[name, *row.shown()] for name, row in self._rows.items()]
        fields: list[Value] = [
            b"by", self._kind,
            b"rows", rows,
            b"others", [self._names, *self._others.shown()],
            b"unread", max(unread, 0),
        ]  # fmt: skip
        return encode(fields, self.client.resp)

    def _add_added(self, traffic: Traffic | None) -> None:
        """Count who added how many."""
        adders = None if traffic is None else traffic.adders
        if adders is None:
            return
        for adder in adders.known.values():
            name = adder.user if self._kind == USER else adder.origin
            self._row(name).added += adder.added
        self._names += adders.dropped
        self._others.added += adders.dropped_jobs


def _rank(entry: tuple[bytes, _Row]) -> tuple[int, int, bytes]:
    name, row = entry
    return -row.here, -row.added, name


def qtop(node: Node, client: Client, args: list[bytes]) -> None:
    """QTOP queue BY group|task|user|client: whose jobs the queue has."""
    node.batches.read(Breakdown(node, client, args))
