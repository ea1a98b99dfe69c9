"""A batch of a lease queue, as seen by the Spark task that reads a part of it."""

import uuid
from collections.abc import Iterable
from contextlib import suppress

import pyarrow as pa

from disque_spark.client import RefusedError, WireError
from disque_spark.leases import journal as words
from disque_spark.leases.journal import Cells, Journal, JournalEntry, append, catch_up
from disque_spark.leases.rows import RowsWriter, Spool, read_ids, read_rows
from disque_spark.leases.store import LeaseError


class QueueBatch:
    """A batch of a lease queue, as seen by the tasks that fetch and read its jobs.

    Args:
        cells: the cells of the queue; closed with this object.
        name: name of the queue, for errors.
        number: number of the batch.
        owner: the process that has sent this task.
    """

    def __init__(self, cells: Cells, name: str, number: int, owner: str) -> None:
        self.cells = cells
        self.owner = owner
        self.journal = Journal(number)
        self._name = name
        self._ids: dict[str, list[str]] = {}  # ids of jobs, by the nonces of leases
        self._drafts: dict[int, QueueDraft] = {}  # drafts that became leases, by partition

    def __str__(self) -> str:
        return f"{self._name}, batch {self.journal.number}"

    def jobs(self, number: int) -> Iterable[pa.RecordBatch] | None:
        """The jobs of a partition's lease, to be iterated once; None if there is no lease yet."""
        if number in self._drafts:
            return self._drafts[number].spool.read(set(self.journal.leases[number].without))
        catch_up(self.journal, self.cells)
        lease = self.journal.leases.get(number)
        if lease is None:
            return None
        return read_rows(self.cells, lease.rows, lease.without)

    def draft(self, schema: pa.Schema) -> "QueueDraft":
        """Begin a lease with jobs of ``schema``, whose first column has their ids.

        Raises:
            LeaseError: there is no such batch, or it is finished.
        """
        if self.journal.plans is None or self.journal.over:
            raise LeaseError(f"{self}: finished, or does not exist; this attempt is too late")
        return QueueDraft(self, schema)

    def mark_read(self, number: int) -> None:
        """Record that a task passes a partition's jobs to Spark. Does nothing if the batch is
        finished."""
        nonce = uuid.uuid4().hex
        read = JournalEntry(words.READ, self.owner, nonce, partition=number)

        def make() -> JournalEntry | None:
            known = self.journal.over or self.journal.was_read(number)
            return None if known else read

        append(self.journal, self.cells, make)

    def leased(self) -> set[str]:
        """The ids in all existing leases of the batch."""
        return {id for lease in self.journal.leases.values() for id in self._ids_of(lease)}

    def lease(self, number: int, draft: "QueueDraft") -> bool:
        """Make a draft the lease of partition ``number``."""
        nonce = uuid.uuid4().hex

        def make() -> JournalEntry | None:
            if self.journal.over or number in self.journal.leases:
                return None
            twice = self.leased() & draft.jobs
            return JournalEntry(
                words.LEASE,
                self.owner,
                nonce,
                partition=number,
                ids=tuple(draft.pages.ids),
                rows=tuple(draft.pages.rows),
                without=tuple(sorted(twice)),
            )

        if not append(self.journal, self.cells, make):
            return False
        self._drafts[number] = draft
        return True

    def close(self) -> None:
        """Close connections and files."""
        for draft in self._drafts.values():
            draft.spool.close()
        self.cells.close()

    def _ids_of(self, lease: JournalEntry) -> list[str]:
        if lease.nonce not in self._ids:
            self._ids[lease.nonce] = read_ids(self.cells, lease.ids)
        return self._ids[lease.nonce]


class QueueDraft:
    """A lease under construction, invisible to others before ``publish``.

    Attributes:
        jobs: ids of all its jobs.
        pages: its pages in Disque.
        spool: its rows, on this machine.
    """

    def __init__(self, batch: QueueBatch, schema: pa.Schema) -> None:
        self.jobs: set[str] = set()
        self.pages = RowsWriter(batch.cells, batch.journal.number)
        self.spool = Spool(schema)
        self._batch = batch
        self._published = False
        self._kept = False

    def append(self, jobs: pa.RecordBatch) -> None:
        """Add jobs at the end."""
        self.jobs.update(jobs.column(0).to_pylist())
        self.spool.append(jobs)
        self.pages.append(jobs)

    def publish(self, number: int) -> bool:
        """Make it the lease of partition ``number``: durable, complete and immutable. Leaves out
        jobs that are in another lease of the batch, because two nodes delivered them. Returns False
        if another attempt was first, or the batch is finished."""
        self.pages.finish()
        self._kept = True  # the outcome may remain unknown: then a lease may need the pages
        self._published = self._kept = self._batch.lease(number, self)
        return self._published

    def close(self) -> None:
        """Discard it, unless it is published."""
        if not self._published:
            self.spool.close()
        if not self._kept:
            with suppress(WireError, RefusedError):
                self._batch.cells.drop([*self.pages.ids, *self.pages.rows])
