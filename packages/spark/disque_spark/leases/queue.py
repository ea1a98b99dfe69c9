"""Leases kept in Disque itself, in a queue that nobody takes jobs from. The driver and the
executors need to share nothing else.

The jobs of the queue are cells and pages (see ``journal``):

    identity    an id that no other lease queue has
    lock/17     the lock for planning and finishing batches, see ``lock``
    7/0, 7/1    the journal of batch 7
    done/6      all batches up to 6 are acknowledged

and the pages that journals refer to. Cells and pages of finished batches are dropped whenever they
are seen: nodes that were away may bring them back.
"""

import threading
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from disque_spark.client import RefusedError, WireError
from disque_spark.leases import journal as words
from disque_spark.leases.cells import FAILOVER, QueueCells
from disque_spark.leases.journal import Cell, Cells, Journal, JournalEntry, append, catch_up
from disque_spark.leases.lock import RENEW, LeaseLock, number_of
from disque_spark.leases.queue_batch import QueueBatch
from disque_spark.leases.rows import RowsWriter, batch_of_page, read_ids
from disque_spark.leases.store import LOCK_SECONDS, Lease, LeaseError, PartitionPlan
from disque_trio.respclient.login import Login

DRIVER_FAILOVER = 2.0  # s; the driver tries again later
_IDENTITY = "identity"
_DONE = "done/"


class QueuePlace(NamedTuple):
    """A lease queue, as a ``LeasePlace``.

    Attributes:
        queue: name of the queue, without the common prefix.
        nodes: addresses to begin with; they are asked for further nodes.
        login, timeout: see ``BlockingClient``.
    """

    queue: str
    nodes: tuple[str, ...]
    login: Login | None = None
    timeout: float = 60.0

    @property
    def name(self) -> str:
        """The name, for errors."""
        return f"the lease queue {self.queue}"

    def open(self, seconds: float = LOCK_SECONDS) -> "QueueStore":
        """See ``LeasePlace``."""
        store = QueueStore(self._patient(), self.name, seconds)
        try:
            store.keep_lock(self._cells(self.nodes, DRIVER_FAILOVER))
        except BaseException:
            store.close()
            raise
        return store

    def watch(self) -> "QueueStore":
        """See ``LeasePlace``."""
        return QueueStore(self._patient(), self.name, None)

    def batch(self, number: int, owner: str, address: str) -> "QueueBatch":
        """See ``LeasePlace``."""
        nodes = tuple(dict.fromkeys((address, *self.nodes)))
        return QueueBatch(self._cells(nodes, FAILOVER), self.name, number, owner)

    def _patient(self) -> QueueCells:
        """Cells for a driver. Raises WireError if no node can be reached for ``LOCK_SECONDS``."""
        cells = self._cells(self.nodes, DRIVER_FAILOVER)
        cells.wait(LOCK_SECONDS)
        return cells

    def _cells(self, nodes: Sequence[str], failover: float) -> QueueCells:
        return QueueCells(self.queue, nodes, self.login, self.timeout, failover)


class QueueStore:
    """A lease queue, as a ``LeaseStore``.

    Args:
        cells: the cells of the queue; closed with this object.
        name: name of the queue, for errors.
        seconds: how long to wait for the lock; None: only look.
        lock: for tests.

    Raises:
        LeaseError: it is in use.
        WireError: too few nodes can be reached to know its contents.

    Attributes:
        name, identity, owner: see ``LeaseStore``.
    """

    def __init__(
        self, cells: Cells, name: str, seconds: float | None, lock: LeaseLock | None = None
    ) -> None:
        self.name = name
        self.owner = uuid.uuid4().hex
        self._cells = cells
        self._turn = threading.RLock()  # the heartbeat reads, too
        self._journals: dict[int, Journal] = {}
        self._done = 0
        self._done_cells: list[str] = []
        self._ids: dict[str, list[str]] = {}  # ids of jobs, by the nonces of leases
        self._look = True  # there may be an unknown batch
        self._only_looks = seconds is None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = lock or LeaseLock(cells, name, self.owner)
        try:
            found = cells.find(_IDENTITY, uuid.uuid4().hex.encode())
            there = cells.scan() if found is not None else []
            if seconds is not None:
                self._acquire(there, seconds)
                found = found or cells.put(_IDENTITY, uuid.uuid4().hex.encode())
            self.identity = found.body.decode() if found else ""
            self._learn(there)
        except BaseException:
            self._lock.release()
            cells.close()
            raise

    def keep_lock(self, cells: Cells) -> None:
        """Renew the lock regularly until ``close``, in a thread that uses ``cells``."""
        self._lock.use(cells)
        self._thread = threading.Thread(
            target=self._renew, args=(cells,), name="disque-lease-lock", daemon=True
        )
        self._thread.start()

    def take_over(self) -> None:
        """See ``LeaseStore``."""
        self._take(fresh=False)

    def forget_reads(self) -> None:
        """See ``LeaseStore``."""
        self._take(fresh=True)

    def open_batches(self) -> list[int]:
        """See ``LeaseStore``."""
        with self._turn:
            if self._look or self._only_looks:
                self._find_more()
            return [n for n, journal in sorted(self._journals.items()) if not journal.over]

    def highest(self) -> int:
        """See ``LeaseStore``."""
        return max(self._journals, default=self._done)

    def highest_done(self) -> int:
        """See ``LeaseStore``."""
        return max([n for n, journal in self._journals.items() if journal.over] + [self._done])

    def begin(
        self, number: int, plans: Sequence[PartitionPlan], first: pa.RecordBatch | None
    ) -> None:
        """See ``LeaseStore``.

        Raises:
            LeaseError: another process has planned the batch.
            WireError: it may or may not be planned now; ``open_batches`` tells.
        """
        with self._turn:
            self._lock.check()
            self._look = True
            pages = RowsWriter(self._cells, number)
            if first is not None:
                pages.append(first)
                pages.finish()
            journal = Journal(number)
            entry = JournalEntry(
                words.PLAN,
                self.owner,
                uuid.uuid4().hex,
                self._lock.number,
                plans=tuple(plans),
                ids=tuple(pages.ids),
                rows=tuple(pages.rows),
            )
            own = append(journal, self._cells, lambda: entry if journal.plans is None else None)
            self._journals[number] = journal
            if not own and journal.owner() == self.owner:
                # An attempt that seemed to have failed has succeeded late.
                raise WireError(f"{self.name}: batch {number} was planned before")
            if not own:
                raise LeaseError(f"{self.name}: another query has planned batch {number}")
            self._look = False

    def plans(self, number: int) -> list[PartitionPlan] | None:
        """See ``LeaseStore``."""
        with self._turn:
            journal = self._journals.get(number)
            if journal is None or journal.over:
                return None
            return list(journal.plans or ())

    def nodes(self, number: int) -> list[str]:
        """See ``LeaseStore``."""
        with self._turn:
            return [plan.address for plan in self._journals[number].plans or ()]

    def leases(self, number: int) -> list[Lease]:
        """See ``LeaseStore``."""
        with self._turn:
            journal = self._journals.get(number)
            if journal is None or journal.plans is None:
                return []
            if not journal.over:
                catch_up(journal, self._cells)
            found = [
                Lease(
                    place,
                    journal.plans[place].address,
                    self._ids_of(entry),
                    journal.was_read(place),
                    journal.plans[place].elsewhere,
                )
                for place, entry in sorted(journal.leases.items())
            ]
            return [lease for lease in found if lease.ids]

    def finish(self, number: int) -> None:
        """See ``LeaseStore``.

        Raises:
            LeaseError: another process has taken the batch over.
        """
        with self._turn:
            journal = self._journals[number]
            if not journal.was_owned(self.owner):
                self._take_one(journal, fresh=False)
            over = JournalEntry(words.OVER, self.owner, uuid.uuid4().hex)
            append(journal, self._cells, partial(self._if_owned, journal, over))

    def to_acknowledge(self) -> list[int]:
        """See ``LeaseStore``."""
        with self._turn:
            return sorted(n for n, journal in self._journals.items() if journal.over)

    def clear(self, number: int) -> None:
        """See ``LeaseStore``. Batches are cleared in order."""
        with self._turn:
            text = f"{self._lock.number}".encode()
            cell = self._cells.put(f"{_DONE}{number}", text)
            journal = self._journals.pop(number)
            for lease in journal.leases.values():
                self._ids.pop(lease.nonce, None)
            before, self._done_cells = self._done_cells, [cell.id]
            self._done = number
            self._drop([*journal.pages(), *journal.cells, *before])

    def close(self) -> None:
        """See ``LeaseStore``."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._turn:
            self._lock.use(self._cells)
            self._lock.release()
            self._cells.close()

    # ---- existing batches -----------------------------------------------------------------------

    def _acquire(self, there: Sequence[Cell], seconds: float) -> None:
        held = max((cell for cell in there if number_of(cell)), key=number_of, default=None)
        noted = [int(cell.body) for cell in there if cell.key.startswith(_DONE)]
        noted += [
            JournalEntry.unpack(cell.body).lock for cell in there if cell.key[:1].isdigit()
        ]  # numbers of locks that are gone
        self._lock.number = max([number_of(held) if held else 0, *noted], default=0)
        self._lock.acquire(held, seconds)

    def _learn(self, there: Sequence[Cell]) -> None:
        done = {int(c.key.removeprefix(_DONE)): c for c in there if c.key.startswith(_DONE)}
        self._done = max(done, default=0)
        self._done_cells = [done[self._done].id] if done else []
        known = {cell.key: cell for cell in there}
        for number in sorted({_batch_of(cell) for cell in there}):
            if number > self._done and f"{number}/0" in known:
                journal = Journal(number)
                while not journal.over and journal.key() in known:
                    journal.apply(known[journal.key()])
                catch_up(journal, self._cells)
                if journal.plans is not None:
                    self._journals[number] = journal
        if not self._only_looks:
            over = [cell for cell in there if 0 < _batch_of(cell) <= self._done]
            over += [cell for number, cell in done.items() if number < self._done]
            self._drop([cell.id for cell in over])
        self._find_more()

    def _find_more(self) -> None:
        """Look for batches after the last known one."""
        while True:
            journal = Journal(self.highest() + 1)
            catch_up(journal, self._cells)
            if journal.plans is None:
                break
            self._journals[journal.number] = journal
        self._look = False
        if self._only_looks:
            self._see_ends()

    def _see_ends(self) -> None:
        """Forget batches that other processes have finished."""
        for number, journal in list(self._journals.items()):
            catch_up(journal, self._cells)
            if self._cells.find(f"{_DONE}{number}") is not None:
                journal.over = True
                self._done = max(self._done, number)

    # ---- entries ------------------------------------------------------------------------------

    def _take(self, fresh: bool) -> None:
        with self._turn:
            self._lock.check()
            for journal in self._journals.values():
                if not journal.over and (fresh or journal.owner() != self.owner):
                    self._take_one(journal, fresh)

    def _take_one(self, journal: Journal, fresh: bool) -> None:
        nonce = uuid.uuid4().hex
        taken = JournalEntry(words.TAKEN, self.owner, nonce, self._lock.number, fresh=fresh)
        append(journal, self._cells, lambda: None if journal.over else taken)

    def _if_owned(self, journal: Journal, entry: JournalEntry) -> JournalEntry | None:
        """``entry``, unless the batch is over."""
        if journal.over:
            return None
        if journal.owner() != self.owner:
            raise LeaseError(f"{self.name}: another query has taken it over")
        return entry

    def _ids_of(self, lease: JournalEntry) -> list[str]:
        if lease.nonce not in self._ids:
            without = set(lease.without)
            ids = read_ids(self._cells, lease.ids)
            self._ids[lease.nonce] = [id for id in ids if id not in without]
        return self._ids[lease.nonce]

    def _drop(self, ids: Iterable[str]) -> None:
        with suppress(WireError, RefusedError):  # the next process that opens the queue does it
            self._cells.drop(ids)

    def _renew(self, cells: Cells) -> None:
        while not self._stop.wait(RENEW):
            with suppress(WireError, RefusedError):
                self._lock.renew()
        cells.close()


def _batch_of(cell: Cell) -> int:
    """The batch whose journal or page it is; 0 if it belongs to none."""
    if not cell.key:
        return batch_of_page(cell.body)
    text, _, _ = cell.key.partition("/")
    return int(text) if text.isdecimal() else 0
