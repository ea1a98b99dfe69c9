"""Jobs that stay in a queue for long, in lots that cost the same as one job.

A job that nobody has taken for a whole retry time is announced (QUEUED) before the other holders
ask. From then on it is in a lot: up to a thousand jobs with the same holders and retry time, which
have one timer. QUEUED says which lot, and each holder puts its copies into one of its own. When the
time of a lot has come, its node only tells its number, how many jobs are in it, and a digest of
their ids (STAYS). A holder whose own lot has just these jobs puts it off for a further retry time.
Otherwise, its copies get timers of their own again, and it says so (UNSURE); then each job of the
lot is announced. So what a lot says is never believed of a job that is not in it on both sides.

Whatever happens to a job takes it out of its lot: on a node that has it queued, anything but
staying there; on a holder, any news of where it is. If one of its holders does not know lots, all
are told of the job alone, as ever.
"""

import hashlib
from heapq import heappop, heappush
from struct import Struct
from typing import Any, Final

from disque_trio.node.core.jobs.job import (
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_HOLDS_GROUP,
    FLAG_WILLQUEUE,
    QUEUED,
    UINT32_MAX,
    Job,
)
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.store import TIME_ERROR, TOGETHER, WARNING_TIME
from disque_trio.node.core.rpc.calls import STAYS, UNSURE
from disque_trio.protocol import bus
from disque_trio.protocol.fields import Field, FieldsError

MOST: Final = 1_000  # jobs in a lot, as in a packet
LEAST_RETRY: Final = 2  # s; the others would ask before a lot of jobs with less is told
A_TURN: Final = 3_000  # jobs of lots to look at
A_PACKET: Final = 8_000  # jobs in the lots that a packet tells of
_LOTS: Final = 2  # type of the field with entries about lots
_ENTRY: Final = Struct(">III8s")  # number, jobs, when others expire (s), digest
_NUMBER: Final = Struct(">I")
_ASK_BEFORE: Final = WARNING_TIME + TIME_ERROR // 2  # ms before the retry time of any job is over


class Lot:
    """Jobs that have one timer.

    Attributes:
        bucket: of the timers, which has the jobs.
        node: id of the node that has them in its queues; empty: this one.
        number: by which that node tells of it; never 0.
        holders: of the jobs, if they are queued here; otherwise empty.
        retry: of all jobs, in s.
        due: when to tell the holders; or when the jobs get timers of their own, as nothing was
            heard, in ms.
        closes: when no job is added any more, in ms.
        digest: of ``digested`` jobs; jobs only leave it meanwhile.
    """

    __slots__ = (
        "bucket", "closes", "digest", "digested", "due", "holders", "node", "number", "retry",
    )  # fmt: skip

    def __init__(
        self, bucket: int, node: bytes, number: int, holders: tuple[bytes, ...], retry: int
    ) -> None:
        self.bucket = bucket
        self.node = node
        self.number = number
        self.holders = holders
        self.retry = retry
        self.due = 0
        self.closes = 0
        self.digest = b""
        self.digested = -1

    def digest_of(self, jobs: list[Job]) -> bytes:
        """The digest of the ids of ``jobs``, which are all that are in it."""
        if self.digested != len(jobs):
            ids = sorted([job.id for job in jobs])
            self.digest = hashlib.blake2b(b"".join(ids), digest_size=8).digest()
            self.digested = len(jobs)
        return self.digest


class Lots:
    """The lots of one node: of jobs in its queues, and of copies that others have in theirs.

    Attributes:
        open_for: how long jobs are added to a lot, in ms for each second of retry time.
    """

    def __init__(self, core: Core) -> None:
        store = self._store = core.store
        self._machine = store.machine
        self._memory = store.machine.memory
        self._pages = core.paging.pages
        self._timers = store.timers
        self._replicas = store.replicas
        self._peers = core.peers
        self._notices = core.notices
        self._rpc = core.rpc
        self._random = core.rng.random
        self.open_for = TOGETHER
        self._last = 0  # number; those of an earlier process are others, as the first is random
        self._by_bucket: dict[int, Lot] = {}
        self._own: dict[int, Lot] = {}  # by number
        self._others: dict[tuple[bytes, int], Lot] = {}  # by node and number
        self._open: dict[tuple[tuple[bytes, ...], int], Lot] = {}  # by holders and retry
        self._order: list[tuple[int, int]] = []  # heap: when to look, at which bucket
        self._told: dict[bytes, list[bytes]] = {}  # entries that have yet to be sent
        self._jobs_told = 0
        core.paging.aside.break_up = self._break_up_one
        core.rpc.handlers[STAYS] = self._on_stays
        core.rpc.handlers[UNSURE] = self._on_unsure

    @property
    def due(self) -> int:
        """When to look at the next lot, in ms; 0: there is none."""
        return self._order[0][0] if self._order else 0

    def flush(self) -> None:
        """Start over: all jobs have been forgotten."""
        self._by_bucket.clear()
        self._own.clear()
        self._others.clear()
        self._open.clear()
        self._order.clear()
        self._told.clear()
        self._jobs_told = 0
        self._replicas.lots.clear()

    def _add(self, lot: Lot) -> None:
        self._by_bucket[lot.bucket] = lot
        heappush(self._order, (lot.due, lot.bucket))
        self._rpc.timer.wake_by(lot.due)

    def _drop(self, lot: Lot) -> list[Job]:
        """Forget ``lot``; return its jobs, which have no timers now."""
        jobs = self._timers.drop_lot(lot.bucket)
        del self._by_bucket[lot.bucket]
        if lot.node:
            del self._others[lot.node, lot.number]
        else:
            del self._own[lot.number]
            self._replicas.lots.pop(self._timers.awake_in(lot.bucket), None)
            self._close(lot)
        return jobs

    def _close(self, lot: Lot) -> None:
        """Add no more jobs to ``lot``, which are queued here."""
        key = (lot.holders, lot.retry)
        if self._open.get(key) is lot:
            del self._open[key]

    # ---- jobs that are queued here --------------------------------------------------------------

    def stays(self, job: Job) -> None:
        """Tell the other holders of ``job``, which nobody has taken for a whole retry time, that it
        stays in its queue here; from now on with others."""
        lot = self._lot_for(job)
        if lot is None:
            self._tell_alone(job)
            return
        job.flags |= FLAG_WILLQUEUE
        job.qtime = self._machine.now + job.retry * 1000
        self._put(job, lot)
        self._replicas.announce(job, bus.QUEUED)

    def _tell_alone(self, job: Job) -> None:
        """The same for ``job`` alone."""
        self._replicas.announce(job, bus.QUEUED)
        self._store.postpone(job)

    def _put(self, job: Job, lot: Lot) -> None:
        self._timers.put_in_lot(job, lot.bucket)
        lot.digested = -1

    def _lot_for(self, job: Job) -> Lot | None:
        """The lot to put ``job`` into, which is queued here; None: it has to be alone."""
        now = self._machine.now
        retry = int(job.retry)
        holders = job.delivered
        if holders is None or retry < LEAST_RETRY or job.etime * 1000 <= now + 2000 * retry:
            return None
        key = (holders, retry)
        lot = self._open.get(key)
        if lot is not None and now < lot.closes and self._timers.lot_size(lot.bucket) < MOST:
            return lot
        if not self._all_know_lots(holders):
            return None
        self._last = (self._last or int(self._random() * (1 << 32))) % 0xFFFF_FFFF + 1
        lot = Lot(self._timers.make_lot(), b"", self._last, holders, retry)
        lot.due = self._next_time(retry)
        lot.closes = now + retry * self.open_for
        self._own[lot.number] = self._open[key] = lot
        self._replicas.lots[self._timers.awake_in(lot.bucket)] = lot.number
        self._add(lot)
        return lot

    def _all_know_lots(self, holders: tuple[bytes, ...]) -> bool:
        """Whether all ``holders`` know lots; those that have left the cluster do not count."""
        peers = self._peers
        for id in holders:
            if id != self._replicas.own and peers.knows(id) and not peers.keeps_lots(id):
                return False
        return True

    def _next_time(self, retry: int) -> int:
        """When to tell the holders of a lot that is told now: like ``JobStore.ahead``."""
        last = self._machine.now + retry * 1000 - min(2 * WARNING_TIME, retry * 500)
        return last - last % (retry * TOGETHER + 1)

    def go_on(self, now: int) -> None:
        """Look at lots whose time has come."""
        order = self._order
        left = A_TURN
        while order and order[0][0] <= now and left > 0:
            bucket = heappop(order)[1]
            lot = self._by_bucket.get(bucket)
            if lot is None:
                continue
            if lot.due > now:
                heappush(order, (lot.due, bucket))
                continue
            left -= self._timers.lot_size(bucket) + 1
            if lot.node:
                self._break_up(lot)
            else:
                self._tell(lot)
        if self._told and (self._jobs_told >= A_PACKET or not order or order[0][0] > now):
            self._send()

    def _tell(self, lot: Lot) -> None:
        """Tell the other holders that the jobs of ``lot`` stay in queues here."""
        self._close(lot)
        again = self._machine.now + lot.retry * 1000
        until = again // 1000 + 1
        holders = lot.holders
        together = self._all_know_lots(holders)
        for job in self._timers.in_bucket(lot.bucket):
            if job.state != QUEUED:
                self._store.schedule(job)
            elif (
                not together
                or job.etime <= until
                or (job.delivered is not holders and job.delivered != holders)
            ):
                self._tell_alone(job)
            else:
                job.qtime = again
        jobs = self._timers.in_bucket(lot.bucket)
        if not jobs:
            self._drop(lot)
            return
        lot.due = self._next_time(lot.retry)
        heappush(self._order, (lot.due, lot.bucket))
        until = min(until + 1, UINT32_MAX)  # there, the jobs that were made here expire 1 s later
        entry = _ENTRY.pack(lot.number, len(jobs), until, lot.digest_of(jobs))
        self._jobs_told += len(jobs)
        for node in holders:
            if node != self._replicas.own:
                self._told.setdefault(node, []).append(entry)

    def _send(self) -> None:
        """Send what holders are told of lots."""
        told, self._told = self._told, {}
        self._jobs_told = 0
        for node, entries in told.items():
            if self._peers.keeps_lots(node):
                self._notify(node, STAYS, entries)

    def _notify(self, node: bytes, kind: int, entries: list[bytes]) -> None:
        self._peers.send(node, self._rpc.notification(kind, [(_LOTS, b"".join(entries))]))

    def _on_unsure(self, sender: bytes, fields: list[Field]) -> None:
        """Handle UNSURE: ``sender`` does not know lots as they are here. Tell it of their jobs."""
        for (number,) in _read(_NUMBER, fields):
            lot = self._own.get(number)
            if lot is not None and sender in lot.holders:
                for job in self._timers.in_bucket(lot.bucket):
                    self._notices.announce(sender, bus.QUEUED, job.id, number)

    # ---- copies of jobs that other nodes have queued --------------------------------------------

    def has(self, job: Job, node: bytes, number: int) -> bool:
        """Whether ``job`` is in the lot with this ``number`` of ``node``, as far as is known."""
        lot = self._by_bucket.get(self._timers.lot_of(job))
        return lot is not None and lot.number == number and lot.node == node

    def join(self, job: Job, node: bytes, number: int) -> None:
        """Put ``job``, a copy of one that is queued on ``node``, into the lot with this ``number``
        of that node."""
        if self._memory.used > self._pages.above or not self._peers.keeps_lots(node):
            return
        if job.flags & (FLAG_DELIVERED | FLAG_HOLDS_GROUP):
            return  # a client or a group here has to hear of it alone
        again = self._machine.now + job.retry * 1000
        lot = self._others.get((node, number))
        if lot is None:
            lot = Lot(self._timers.make_lot(), node, number, (), int(job.retry))
            lot.due = again - _ASK_BEFORE
            self._others[node, number] = lot
            self._add(lot)
        elif lot.retry != job.retry or self._timers.lot_size(lot.bucket) >= MOST:
            return
        job.qtime = again
        self._put(job, lot)

    def _on_stays(self, sender: bytes, fields: list[Field]) -> None:
        """Handle STAYS: lots of jobs are still in queues of ``sender``."""
        unsure: list[bytes] = []
        for number, count, until, digest in _read(_ENTRY, fields):
            if not self._is_as_told(sender, number, count, until, digest):
                unsure.append(_NUMBER.pack(number))
        if unsure:
            self._notify(sender, UNSURE, unsure)

    def _is_as_told(self, node: bytes, number: int, count: int, until: int, digest: bytes) -> bool:
        """Put off the lot with this ``number`` of ``node``, if it has the ``count`` jobs with the
        ``digest``; return False if it does not. Jobs that expire by ``until`` (s) do not belong to
        it."""
        lot = self._others.get((node, number))
        if lot is None:
            return False
        place = self._replicas.places.queued(node)
        for job in self._timers.in_bucket(lot.bucket):
            if job.state != ACTIVE or job.place is not place or job.etime <= until:
                self._store.schedule(job)
        jobs = self._timers.in_bucket(lot.bucket)
        if len(jobs) != count or lot.digest_of(jobs) != digest:
            self._break_up(lot)
            return False
        again = self._machine.now + lot.retry * 1000
        for job in jobs:
            job.qtime = again
        lot.due = again - _ASK_BEFORE
        return True

    def _break_up(self, lot: Lot) -> None:
        """Give the jobs of ``lot``, which another node has queued, timers of their own: this node
        asks for each whether that is still so."""
        for job in self._drop(lot):
            job.qtime += int(self._random() * TIME_ERROR) - TIME_ERROR // 2
            self._store.schedule(job)

    def _break_up_one(self) -> None:
        """The same for any such lot: its jobs may go to disk."""
        for lot in self._others.values():
            self._break_up(lot)
            return


def _read(entry: Struct, fields: list[Field]) -> list[tuple[Any, ...]]:
    """The entries in ``fields``. Raises ``FieldsError``."""
    found: list[tuple[Any, ...]] = []
    for type, value in fields:
        if type == _LOTS:
            if len(value) % entry.size:
                raise FieldsError("entries about lots have the wrong length")
            found += entry.iter_unpack(value)
    return found
