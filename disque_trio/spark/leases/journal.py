"""The journal of a batch whose leases are kept in Disque: what was said about it, in one order.

An entry stands in a cell, a place that is written once: of several who write it one wins, and the
others read what that one wrote. The cells of a batch are numbered. Who adds an entry writes the
first cell that is free as far as it knows; if that has an entry it reads it, thinks again, and goes
on to the next one. So all see the same entries in the same order, nobody adds one without
knowing those before it, and who comes after the entry that ends the batch adds none any more.

Knows no node: ``Cells`` says what it needs of one.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, Self

from disque_trio.spark.leases.store import PartitionPlan

PLAN = "plan"  # always the first that says something
LEASE = "lease"
READ = "read"
TAKEN = "taken"
OVER = "over"  # always the last
NOTHING = "nothing"  # a place that could not be told to be free


class Cell(NamedTuple):
    """A cell that is written.

    Attributes:
        id: of the job that is this cell.
        key: its name.
        body: what is written in it.
    """

    id: str
    key: str
    body: bytes


class Cells(Protocol):
    """Cells by their keys, and pages, which have none; both keep what they were given."""

    def put(self, key: str, body: bytes, seconds: int = 0) -> Cell:
        """Write a cell, if nobody did. Returns what it has. ``seconds``: it is free again
        then; 0: not before years."""
        ...

    def find(self, key: str, otherwise: bytes = b"") -> Cell | None:
        """A cell, None if it is free. ``otherwise``: what to write in it if nobody can tell
        whether it is free, since nodes are away; then it is not."""
        ...

    def add(self, body: bytes) -> str:
        """Keep a page. Returns its id."""
        ...

    def read(self, ids: Sequence[str]) -> list[bytes]:
        """The bodies of pages."""
        ...

    def bodies(self, ids: Sequence[str]) -> list[bytes | None]:
        """The bodies of jobs of any queue; None for those that no node has any more."""
        ...

    def lives(self, id: str) -> bool:
        """Whether a cell is neither dropped nor over, as far as can be told."""
        ...

    def scan(self) -> list[Cell]:
        """All cells and pages that there are, these with an empty key."""
        ...

    def drop(self, ids: Iterable[str]) -> None:
        """Forget cells and pages. Cells are free then."""

    def close(self) -> None:
        """Close connections."""


class Entry(NamedTuple):
    """An entry of a journal.

    Attributes:
        kind: PLAN, LEASE, READ, TAKEN, OVER or NOTHING.
        owner: the process that had the leases when the one who says this was told to.
        nonce: of this entry alone.
        lock: of a PLAN or TAKEN: the number that the lock of its owner had.
        partition: of a LEASE or READ; of a PLAN 0, which it may be a lease of.
        plans: of a PLAN.
        ids: pages with the ids of a lease's jobs.
        rows: pages with its rows.
        without: ids of jobs that are in its pages, and in a lease before it.
        fresh: of TAKEN: what was read before does not count.
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
        """Of what is in a cell."""
        fields = json.loads(body)
        for name in ("plans", "ids", "rows", "without"):
            fields[name] = tuple(fields.get(name, ()))
        fields.setdefault("owner", "")
        fields.setdefault("nonce", "")
        fields["plans"] = tuple(PartitionPlan(*plan) for plan in fields["plans"])
        return cls(**fields)

    def pack(self) -> bytes:
        """For a cell: what is not given is left out."""
        given = {name: value for name, value in self._asdict().items() if value}
        return json.dumps(given).encode()


_NOTHING = Entry(NOTHING, "", "").pack()


class Journal:
    """What is known of a batch.

    Attributes:
        number: of the batch.
        plans: of its partitions; None: it is not planned, as far as is known.
        leases: the entry with the lease of each partition that has one.
        over: whether it is.
        lock: the highest number of a lock in it.
        cells: the ids of the cells that were read.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.plans: tuple[PartitionPlan, ...] | None = None
        self.leases: dict[int, Entry] = {}
        self.over = False
        self.lock = 0
        self.cells: list[str] = []
        self._owners: list[str] = []
        self._void: set[str] = set()  # owners whose reads do not count
        self._read: set[int] = set()

    def key(self, place: int | None = None) -> str:
        """The name of a cell; by default of the first that is not read."""
        return f"{self.number}/{len(self.cells) if place is None else place}"

    def apply(self, cell: Cell) -> Entry:
        """Learn the entry in the next cell."""
        entry = Entry.unpack(cell.body)
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
        """The process that may end the batch."""
        return self._owners[-1] if self._owners else ""

    def was_owned(self, owner: str) -> bool:
        """Whether a process might end the batch at some time."""
        return owner in self._owners

    def was_read(self, partition: int) -> bool:
        """Whether a task gave the partition's jobs to Spark. Who makes a lease does."""
        return partition in self._read

    def pages(self) -> list[str]:
        """The ids of all pages."""
        return [id for lease in self.leases.values() for id in (*lease.ids, *lease.rows)]

    def _note_read(self, entry: Entry) -> None:
        if entry.owner not in self._void:
            self._read.add(entry.partition)


def catch_up(journal: Journal, cells: Cells) -> None:
    """Read all entries that there are."""
    while not journal.over:
        cell = cells.find(journal.key(), _NOTHING)
        if cell is None:
            return
        journal.apply(cell)


def append(journal: Journal, cells: Cells, make: Callable[[], Entry | None]) -> bool:
    """Add an entry. ``make`` makes it out of what is known, again after each entry that was not;
    None: there is no sense in it. Returns whether it was added."""
    while (entry := make()) is not None:
        cell = cells.put(journal.key(), entry.pack())
        if journal.apply(cell).nonce == entry.nonce:
            return True
    return False
