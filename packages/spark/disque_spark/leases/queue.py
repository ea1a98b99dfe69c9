"""Leases kept in Disque itself, in a queue that nobody takes jobs from. The driver and the
executors need to share nothing else.

They get a ``QueuePlace``, which is a value. The one process that plans and finishes batches opens
it as a ``QueueStore``; a task sees one batch of it as a ``QueueBatch``. A batch is open from
``begin`` to ``finish``, then has to be acknowledged, and is deleted by ``clear``.

The jobs of the queue are cells and pages (see ``journal``):

    identity/7  an id that no other lease queue has; 7 is the period in which it was written
    lock/17     the lock for planning and finishing batches, see ``lock``
    7/0, 7/1    the journal of batch 7
    done/6      all batches up to 6 are acknowledged

and the pages that journals refer to. Cells and pages of finished batches are dropped whenever they
are seen: nodes that were away may bring them back. All of them expire some time after a query was
last run (``cells.LIFE``): whoever plans a batch writes the identity for the current period again,
so it outlives the batch.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from disque_spark.client import RefusedError, WireError
from disque_spark.leases import journal as words
from disque_spark.leases.cells import FAILOVER, LIFE, QueueCells
from disque_spark.leases.journal import Cell, Cells, Journal, JournalEntry, append, catch_up
from disque_spark.leases.lock import RENEW, LeaseLock, number_of
from disque_spark.leases.queue_batch import QueueBatch
from disque_spark.leases.rows import RowsWriter, batch_of_page, read_ids
from disque_spark.leases.store import LOCK_SECONDS, Lease, LeaseError, PartitionPlan
from disque_trio.respclient.login import Login

DRIVER_FAILOVER = 2.0  # s; the driver tries again later
_MARK = 2 * LIFE  # s; lifetime of an identity, and of the last finished batch
_IDENTITY = "identity"  # of earlier versions; it was written for years
_DONE = "done/"
_LACKING = ("NOEXT", "ERR")  # what nodes reply that have no UNIQUE


class QueuePlace(NamedTuple):
    """The place for the leases of a query; a value that can be pickled.

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
        """Lock it; wait up to ``seconds`` for the lock, as the process of a killed query needs a
        moment to end.

        Raises:
            LeaseError: it is in use, or its nodes cannot keep leases.
            WireError: the nodes that store it cannot be reached.
        """
        store = self._store(seconds)
        try:
            store.keep_lock(self._cells(self.nodes, DRIVER_FAILOVER))
        except BaseException:
            store.close()
            raise
        return store

    def watch(self) -> "QueueStore":
        """Look at it without the lock, to keep the jobs of batches from being delivered again while
        other processes plan them. Raises as ``open``."""
        return self._store(None)

    def batch(self, number: int, owner: str, address: str) -> "QueueBatch":
        """A batch, for a task sent by the process ``owner``, which fetches from the node at
        ``address``."""
        nodes = tuple(dict.fromkeys((address, *self.nodes)))
        return QueueBatch(self._cells(nodes, FAILOVER), self.name, number, owner)

    def _store(self, seconds: float | None) -> "QueueStore":
        cells = self._cells(self.nodes, DRIVER_FAILOVER)
        try:
            cells.wait(LOCK_SECONDS)
            return QueueStore(cells, self.name, seconds)
        except WireError:
            cells.close()
            raise
        except RefusedError as refused:
            cells.close()
            if refused.code not in _LACKING:
                raise
            raise LeaseError(
                f"{self.name}: {refused}: leases need nodes with Disque's extensions; without them"
                " there are only batch reads with ackOnRead"
            ) from refused

    def _cells(self, nodes: Sequence[str], failover: float) -> QueueCells:
        return QueueCells(self.queue, nodes, self.login, self.timeout, failover)


class QueueStore:
    """A lease queue, as seen by the one process that plans and finishes batches. It is locked while
    it is open: two queries with the same leases would acknowledge each other's jobs.

    Args:
        cells: the cells of the queue; closed with this object.
        name: name of the queue, for errors.
        seconds: how long to wait for the lock; None: only look.
        clock: returns seconds since the epoch.

    Raises:
        LeaseError: it is in use.
        WireError: too few nodes can be reached to know its contents.

    Attributes:
        name: name of the queue, for errors.
        identity: id of the leases; differs from those of earlier or later leases in the same queue.
        owner: id of this process, for tasks; see ``QueuePlace.batch``.
    """

    def __init__(
        self,
        cells: Cells,
        name: str,
        seconds: float | None,
        clock: Callable[[], float] = time.time,
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
        self._clock = clock
        self._written = ""  # the cell that has the identity
        self._lock = LeaseLock(cells, name, self.owner)
        try:
            keys = [self._identity_key(), self._identity_key(1), _IDENTITY]
            there = cells.scan() if self._is_any(keys) else []
            known = {cell.key: cell for cell in there}
            found = [known[key] for key in keys if key in known]
            self.identity = found[0].body.decode() if found else ""
            if seconds is not None:
                self._acquire(there, seconds)
                self.identity = self.identity or uuid.uuid4().hex
                self._write_identity()
                self._drop([known[_IDENTITY].id] if _IDENTITY in known else [])
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
        """Keep the previous owner from finishing open batches."""
        self._take(fresh=False)

    def forget_reads(self) -> None:
        """Forget which leases of open batches were read: another query has read them."""
        self._take(fresh=True)

    def open_batches(self) -> list[int]:
        """The numbers of the open batches, lowest first."""
        with self._turn:
            if self._look or self._only_looks:
                self._find_more()
            return [n for n, journal in sorted(self._journals.items()) if not journal.over]

    def highest(self) -> int:
        """The highest number of any batch; 0 if there has been none."""
        return max(self._journals, default=self._done)

    def highest_done(self) -> int:
        """The highest number of a finished batch; 0 if there has been none."""
        return max([n for n, journal in self._journals.items() if journal.over] + [self._done])

    def begin(
        self, number: int, plans: Sequence[PartitionPlan], first: pa.RecordBatch | None
    ) -> None:
        """Create a batch. ``first``: jobs that are already fetched, for partition 0.

        Raises:
            LeaseError: another process has planned the batch.
            WireError: it may or may not be planned now; ``open_batches`` tells.
        """
        with self._turn:
            self._lock.check()
            self._write_identity()
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
        """The partitions of an open batch; None if there is no such batch."""
        with self._turn:
            journal = self._journals.get(number)
            if journal is None or journal.over:
                return None
            return list(journal.plans or ())

    def nodes(self, number: int) -> list[str]:
        """The addresses in the plan of a batch that is open or to be acknowledged."""
        with self._turn:
            return [plan.address for plan in self._journals[number].plans or ()]

    def leases(self, number: int) -> list[Lease]:
        """The non-empty leases of a batch that is open or to be acknowledged."""
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
        """Finish a batch: no lease can be added to it any more.

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
        """The batches that are finished but not yet cleared, lowest first."""
        with self._turn:
            return sorted(n for n, journal in self._journals.items() if journal.over)

    def clear(self, number: int) -> None:
        """Delete a finished batch, whose jobs are all acknowledged; batches in order."""
        with self._turn:
            text = f"{self._lock.number}".encode()
            cell = self._cells.put(f"{_DONE}{number}", text, _MARK)
            journal = self._journals.pop(number)
            for lease in journal.leases.values():
                self._ids.pop(lease.nonce, None)
            before, self._done_cells = self._done_cells, [cell.id]
            self._done = number
            self._drop([*journal.pages(), *journal.cells, *before])

    def close(self) -> None:
        """Unlock it, and close connections. May be called again."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._turn:
            self._lock.use(self._cells)
            self._lock.release()
            self._cells.close()

    # ---- the identity ---------------------------------------------------------------------------

    def _identity_key(self, before: int = 0) -> str:
        return f"{_IDENTITY}/{int(self._clock() // LIFE) - before}"

    def _is_any(self, keys: Iterable[str]) -> bool:
        """Whether any of these cells exists, as far as is known."""
        try:
            return any(self._cells.find(key) is not None for key in keys)
        except WireError:  # nodes are away
            return True

    def _write_identity(self) -> None:
        """Write the identity for the current period, unless that has been done."""
        key = self._identity_key()
        if key != self._written:
            self.identity = self._cells.put(key, self.identity.encode(), _MARK).body.decode()
            self._written = key

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
        self._find_more()
        if not self._only_looks:
            numbers = {_batch_of(cell) for cell in there}
            over = {n for n in numbers if 0 < n <= self._done or (n and self._has_expired(n))}
            old = [cell for cell in there if _batch_of(cell) in over]
            old += [cell for number, cell in done.items() if number < self._done]
            self._drop([cell.id for cell in old])

    def _has_expired(self, number: int) -> bool:
        """Whether it is known that a batch has no plan any more, so that what is left of it must
        not come into a later batch of the same number."""
        if number in self._journals:
            return False
        try:
            return self._cells.find(f"{number}/0") is None
        except WireError:
            return False

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
