"""The files of a machine's jobs that lie on disk: read late, some damaged; the disk may be full.
What a process leaves there when it ends, the next one may find, and must not take for its own.

And all jobs of a node, wherever they are, for those who look inside.
"""

from io import BytesIO
from random import Random
from typing import TYPE_CHECKING

from disque_trio.aof.format import RecordReader
from disque_trio.node.core.jobs.job import FLAGS_PRIORITY, QUEUED, Job
from disque_trio.node.core.node import Node
from disque_trio.node.core.pages.pages import DROP, READ, WRITE, Order
from disque_trio.node.core.pages.segment import Segment
from disque_trio.node.core.queues.disk_views import job_of
from disque_trio.node.core.queues.queue import Queue
from tests.simulator.events import MS

if TYPE_CHECKING:
    from tests.simulator.machine import Machine

MOST = 2  # jobs in a segment
LATEST = 20 * MS
FULL_OF = 20  # one of so many writes finds the disk full
DAMAGED_OF = 20  # one of so many files, likewise
LOST_OF = 50
SWAPPED_OF = 50
CUT_OF = 50
NAMED_OF = 6  # after one of so many orders, somebody names a job on disk


class PageFiles:
    """The files of one process.

    Args:
        left: the files that an earlier process has left.

    Attributes:
        files: what is in them, by number. written: what should be.
    """

    def __init__(self, machine: "Machine", node: Node, rng: Random, left: dict[int, bytes]) -> None:
        self.files = left
        self.written: dict[int, bytes] = {}
        self._machine = machine
        self._node = node
        self._rng = rng
        self._waiting: list[Order] = []
        self._ends = False
        pages = node.paging.pages
        pages.most = MOST
        pages.above = 1
        pages.seed = rng.getrandbits(32)
        pages.perform = self._perform
        node.aof_codec.read_file = self._read_file

    def _perform(self, orders: list[Order]) -> None:
        """Carry out ``orders`` in their order, some time later, or at once if the process
        ends."""
        loop = self._machine.world.loop
        incarnation = self._machine.incarnation
        for order in orders:
            if self._ends:
                self._do(order)
                continue
            self._waiting.append(order)
            loop.after(self._rng.randrange(LATEST), lambda: self._next(incarnation))

    def _next(self, incarnation: int) -> None:
        if self._machine.incarnation == incarnation and self._machine.up:
            self._machine.post(lambda now: self.carry_out(1, now))

    def carry_out(self, count: int, now: int) -> None:
        """Carry out the next ``count`` orders at ``now`` (ms)."""
        for _ in range(min(count, len(self._waiting))):
            order = self._waiting.pop(0)
            self._node.now = now
            self._do(order)
        if not self._rng.randrange(NAMED_OF):
            self._name_one()

    def _name_one(self) -> None:
        """Let a command name a job that lies on disk, so that it comes back alone."""
        paging = self._node.paging
        segments = [one for one in paging.pages.segments.values() if one.live]
        if segments:
            segment = self._rng.choice(segments)
            paging.want(segment, self._rng.choice(segment.places()))

    def left(self) -> dict[int, bytes]:
        """The files once the process has ended: it was writing one, and some are gone."""
        files = {number: data for number, data in self.files.items() if self._rng.randrange(4)}
        for order in self._waiting[:1]:
            if order.kind == WRITE:
                files[order.number] = order.data[: self._rng.randrange(len(order.data))]
        return files

    def end(self, now: int) -> None:
        """The process ends: carry out all orders, and those to come at once."""
        self.carry_out(len(self._waiting), now)
        self._ends = True

    @property
    def waiting(self) -> int:
        """How many orders have yet to be carried out."""
        return len(self._waiting)

    def _do(self, order: Order) -> None:
        node = self._node
        rng = self._rng
        if order.kind == WRITE:
            self.written[order.number] = order.data
            if rng.randrange(FULL_OF):
                data = bytearray(order.data)
                if not rng.randrange(DAMAGED_OF):
                    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                if not rng.randrange(CUT_OF):
                    del data[rng.randrange(len(data)) :]
                if rng.randrange(LOST_OF):
                    self.files[order.number] = bytes(data)
                    if not rng.randrange(SWAPPED_OF):
                        self._swap(order.number, rng.choice(list(self.files)))
                node.paging.paged_out(order.number, "")
            else:
                node.paging.paged_out(order.number, "No space left on device")
        elif order.kind == DROP:
            self.files.pop(order.number, None)
            self.written.pop(order.number, None)
        elif order.kind == READ:
            file = self.files.get(order.number)
            data_read = None if file is None else order.cut(file)
            node.paged_in(order.number, order.place, data_read)
        else:
            node.rebuilt(order.number, self._find(order.number))

    def _swap(self, one: int, other: int) -> None:
        files = self.files
        files[one], files[other] = files[other], files[one]

    def _read_file(self, number: int) -> bytes:
        if number not in self.files:
            raise OSError("No such file")
        return self.files[number]

    def _find(self, wanted: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for record in RecordReader(BytesIO(b"".join(self._machine.disk.records))):
            if record[0] == b"LOADJOB":
                # The id is behind four bytes of length.
                for number, place in self._node.paging.pages.located(record[1][4:44]):
                    if number == wanted:
                        found[place] = record[1]  # the last one: a job may have been changed
        return found


class AllJobs:
    """All jobs of a node, as in its registry; those on disk are made again each time."""

    def __init__(self, node: Node, files: PageFiles | None) -> None:
        self._files = files
        self._store = node.store
        self._registry = node.store.jobs
        self._pages = node.paging.pages

    @property
    def count(self) -> int:
        """How many there are."""
        return self._registry.count + self._pages.jobs

    def get(self, id: bytes) -> Job | None:
        """The job ``id``, if the node has it."""
        job = self._registry.get(id)
        if job is None and id and self._pages.jobs:
            for place in self._pages.find(id):
                job = self._read(*self._pages.at(place))
                if job.id == id:
                    return job
            return None
        return job

    def values(self) -> list[Job]:
        """All jobs."""
        jobs = self._registry.values() if self._registry.count else []
        if self._pages.jobs:
            for segment in self._pages.segments.values():
                jobs += [self._read(segment, place) for place in segment.places()]
        return jobs

    def in_order(self, queue: Queue) -> list[Job]:
        """The jobs of ``queue`` in the order of their delivery."""
        if not queue.on_disk():
            return list(queue.first_to_last())
        jobs = [job for job in self.values() if job.state == QUEUED and job.queue == queue.name]
        return sorted(jobs, key=lambda job: (-(job.flags & FLAGS_PRIORITY), job.ctime, job.id))

    def asking(self) -> set[bytes]:
        """The ids of those on disk that are queued once other nodes were asked."""
        return {
            self._read(segment, place).id
            for segment in self._pages.segments.values()
            if segment.asks
            for place in segment.places()
        }

    def _read(self, segment: Segment, place: int) -> Job:
        """The job at ``place`` of ``segment``, from what was to be written: files may be
        damaged."""
        data = segment.data
        if data is None:
            assert self._files is not None
            data = self._files.written[segment.number]
        store = self._store
        # Whoever looks must not change what the node draws next.
        drawn, store.random = store.random, _middle
        job = job_of(segment, segment.read(data, place), 0, store)
        store.random = drawn
        return job


def _middle() -> float:
    """In the place of a random number."""
    return 0.5
