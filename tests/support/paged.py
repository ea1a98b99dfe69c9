"""A node whose queues go to disk early, in small segments; the files are in memory."""

from collections import deque
from io import BytesIO
from random import Random
from typing import Any

from disque_trio.aof.format import RecordReader
from disque_trio.node.core.pages.pages import DROP, READ, REBUILD, WRITE, Order
from disque_trio.protocol.serialjob import SerialJob, decode_job
from disque_trio.respserver.client import Client
from disque_trio.respserver.slices import do_slice
from tests.support.node_bench import Bench


class PagedBench(Bench):
    """A node with segments of a few jobs.

    Attributes:
        files: what is on disk, by number.
        orders: that have yet to be carried out.
        full: whether the disk takes nothing more.
        log: the numbers of damaged segments.
    """

    def __init__(
        self, *args: Any, above: int = 0, most: int = 8, late: int | None = None, **more: Any
    ) -> None:
        super().__init__(*args, **more)
        self.files: dict[int, bytes] = {}
        self.orders: deque[Order] = deque()
        self.full = False
        self.damaged: list[tuple[int, str]] = []
        self.lost: set[bytes] = set()
        self._late = None if late is None else Random(late)
        node = self.node
        pages = self.pages = node.paging.pages
        pages.most = most
        pages.above = above
        pages.seed = 12345
        pages.perform = self.orders.extend
        node.paging.damaged = lambda number, why: self.damaged.append((number, why))
        node.aof_codec.read_file = self.files.__getitem__

    def carry_out(self) -> None:
        """Carry the next order out."""
        order = self.orders.popleft()
        node = self.node
        node.now = self.now
        if order.kind == WRITE:
            if self.full:
                node.paging.paged_out(order.number, "No space left on device")
            else:
                self.files[order.number] = order.data
                node.paging.paged_out(order.number, "")
        elif order.kind == DROP:
            self.files.pop(order.number, None)
        elif order.kind == READ:
            data = self.files.get(order.number)
            node.paged_in(order.number, order.place, data and order.cut(data))
        else:
            assert order.kind == REBUILD
            found = {}
            for record in node.journal:
                if b"LOADJOB" in record:
                    job = record.split(b"\r\n", 4)[4][:-2]
                    id = decode_job(job).id
                    for number, place in self.pages.located(id):
                        if number == order.number and id not in self.lost:
                            found[place] = job
            node.rebuilt(order.number, found)

    def dumped(self) -> list[SerialJob]:
        """The jobs of a dump of all."""
        self.node.start_dump()
        records: list[bytes] = []
        done = False
        while not done:
            more, done = self.node.dump_step(100, 1 << 20)
            records += more
        return [decode_job(record[1]) for record in RecordReader(BytesIO(b"".join(records)))]

    def turn(self) -> None:
        """End a turn. If orders are late, some are carried out, otherwise all."""
        self.node.commit()
        self.node.replied()
        while self.orders and (self._late is None or self._late.random() < 0.5):
            self.carry_out()
            self.node.replied()

    def settle(self) -> None:
        """Take turns until nothing is left to do at this time."""
        while True:
            self.turn()
            due = self.node.next_wake()
            if due and due <= self.now:
                self.node.tick(self.now)
            elif not self.orders and not self.node.paging.pages.orders:
                return

    def finish(self, client: Client) -> None:
        while client.in_slices or client.in_flight:
            if self.node.batches.waiting:
                do_slice(self.node, self.now)
            else:
                self.node.tick(self.now)
            self.turn()
            if self.orders and not self.node.batches.waiting:
                self.carry_out()

    def ask(self, client: Client, *args: bytes | str | int) -> object:
        reply = super().ask(client, *args)
        self.turn()
        return reply

    def _tick(self, now: int) -> None:
        self.now = now
        self.node.tick(now)
        self.turn()
        while self.orders:  # it is not late by as long as time may jump next
            self.carry_out()
            self.turn()
