"""The journal of a batch whose leases are kept in Disque: a log of entries in one order.

Each entry is in a cell, which can be written only once: of several writers one wins, and the others
read what it wrote. The cells of a batch are numbered. To add an entry, a process writes the first
cell that it believes to be free; if the cell already has an entry, the process reads it, decides
again, and tries the next cell. So all processes see the same entries in the same order, nobody adds
an entry without knowing those before it, and nobody adds one after the entry that finishes the
batch.

Knows no nodes: ``Cells`` is the interface to them.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, Self

from disque_spark.leases.store import PartitionPlan

PLAN = "plan"  # always first, except for NOTHING
LEASE = "lease"
READ = "read"
TAKEN = "taken"
OVER = "over"  # always last
NOTHING = "nothing"  # written to cells that may or may not have been free


class Cell(NamedTuple):
    """A cell that has been written.

    Attributes:
        id: id of the job that is this cell.
        key: name of the cell.
        body: contents of the cell.
    """

    id: str
    key: str
    body: bytes


class Cells(Protocol):
    """A store of cells, which have keys, and pages, which have none. Both are immutable."""

    def put(self, key: str, body: bytes, seconds: int = 0) -> Cell:
        """Write a cell, unless it has been written. Returns the cell as it is now. After
        ``seconds``, it is free again; 0: after months."""
        ...

    def find(self, key: str, otherwise: bytes = b"") -> Cell | None:
        """Look up a cell; None if it is free. ``otherwise`` is written to the cell if it is unknown
        whether the cell is free, because nodes are away."""
        ...

    def add(self, body: bytes) -> str:
        """Store a page. Returns its id."""
        ...

    def read(self, ids: Sequence[str]) -> list[bytes]:
        """The bodies of pages."""
        ...

    def bodies(self, ids: Sequence[str]) -> list[bytes | None]:
        """The bodies of jobs of any queue; None for jobs that are no longer on any node."""
        ...

    def lives(self, id: str) -> bool:
        """Whether a cell is neither dropped nor expired, as far as is known."""
        ...

    def scan(self) -> list[Cell]:
        """All cells and pages; pages have an empty key."""
        ...

    def drop(self, ids: Iterable[str]) -> None:
        """Delete cells and pages. The cells are free again."""

    def close(self) -> None:
        """Close connections."""


class JournalEntry(NamedTuple):
    """An entry of a journal.

    Attributes:
        kind: PLAN, LEASE, READ, TAKEN, OVER or NOTHING.
        owner: the process that owned the leases when it sent the task that wrote this entry.
        nonce: unique to this entry.
        lock: for PLAN and TAKEN, the number of the owner's lock.
        partition: partition of a LEASE or READ. A PLAN may be a lease of partition 0.
        plans: the plans of a PLAN.
        ids: pages with the ids of a lease's jobs.
        rows: pages with a lease's rows.
        without: ids of jobs that are in these pages, but belong to an earlier lease.
        fresh: for TAKEN, ignore earlier reads.
    """

    kind: str
    owner: str
    nonce: str
    lock: int = 0
    partition: int = 0
    plans: tuple[PartitionPlan, ...] = ()
    ids: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    fresh: bool = False

    @classmethod
    def unpack(cls, body: bytes) -> Self:
        """Parse the body of a cell."""
        fields = json.loads(body)
        for name in ("plans", "ids", "rows", "without"):
            fields[name] = tuple(fields.get(name, ()))
        fields.setdefault("owner", "")
        fields.setdefault("nonce", "")
        fields["plans"] = tuple(PartitionPlan(*plan) for plan in fields["plans"])
        return cls(**fields)

    def pack(self) -> bytes:
        """The body for a cell, without fields that have their defaults."""
        given = {name: value for name, value in self._asdict().items() if value}
        return json.dumps(given).encode()


_NOTHING = JournalEntry(NOTHING, "", "").pack()


class Journal:
    """What is known about a batch.

    Attributes:
        number: number of the batch.
        plans: plans of its partitions; None: it is not planned, as far as is known.
        leases: entries of leases, by partition.
        over: whether the batch is finished.
        lock: the highest number of a lock in its entries.
        cells: ids of the cells that were read.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.plans: tuple[PartitionPlan, ...] | None = None
        self.leases: dict[int, JournalEntry] = {}
        self.over = False
        self.lock = 0
        self.cells: list[str] = []
        self._owners: list[str] = []
        self._void: set[str] = set()  # owners whose reads are ignored
        self._read: set[int] = set()

    def key(self, place: int | None = None) -> str:
        """The name of a cell; by default, of the first that was not read."""
        return f"{self.number}/{len(self.cells) if place is None else place}"

    def apply(self, cell: Cell) -> JournalEntry:
        """Apply the entry in the next cell."""
        entry = JournalEntry.unpack(cell.body)
        self.cells.append(cell.id)
        self.lock = max(self.lock, entry.lock)
        if entry.kind == PLAN:
            self.plans = entry.plans
            self._owners.append(entry.owner)
            if entry.ids:
                self.leases[0] = entry
        elif entry.kind == LEASE:
            self.leases[entry.partition] = entry
            self._note_read(entry)
        elif entry.kind == READ:
            self._note_read(entry)
        elif entry.kind == TAKEN:
            if entry.fresh:
                self._void.update(self._owners)
                self._void.discard(entry.owner)
                self._read.clear()
            self._owners.append(entry.owner)
        elif entry.kind == OVER:
            self.over = True
        return entry

    def owner(self) -> str:
        """The process that may finish the batch."""
        return self._owners[-1] if self._owners else ""

    def was_owned(self, owner: str) -> bool:
        """Whether a process has ever owned the batch."""
        return owner in self._owners

    def was_read(self, partition: int) -> bool:
        """Whether a task passed the partition's jobs to Spark. The one that made the lease did."""
        return partition in self._read

    def pages(self) -> list[str]:
        """The ids of all pages."""
        return [id for lease in self.leases.values() for id in (*lease.ids, *lease.rows)]

    def _note_read(self, entry: JournalEntry) -> None:
        if entry.owner not in self._void:
            self._read.add(entry.partition)


def catch_up(journal: Journal, cells: Cells) -> None:
    """Apply all existing entries."""
    while not journal.over:
        cell = cells.find(journal.key(), _NOTHING)
        if cell is None:
            return
        journal.apply(cell)


def append(journal: Journal, cells: Cells, make: Callable[[], JournalEntry | None]) -> bool:
    """Add an entry. Returns whether it was added.

    Args:
        make: makes the entry from the state of ``journal``. It is called again when an unknown
            entry is found in the cell. None: do not add an entry.
    """
    while (entry := make()) is not None:
        cell = cells.put(journal.key(), entry.pack())
        if journal.apply(cell).nonce == entry.nonce:
            return True
    return False
