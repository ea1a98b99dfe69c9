"""The interface between the append-only file and the state machine whose records it keeps."""

from typing import Protocol


class Account(Protocol):
    """What a dataset takes. used: bytes of memory; on_disk: of what lies on disk. Together they are
    at least as many as in a new file."""

    @property
    def used(self) -> int: ...

    @property
    def on_disk(self) -> int: ...


class Dataset(Protocol):
    """The records' source and destination: the jobs of a node or the events of bananaq.

    Attributes:
        holds: the word for what it holds.
        now: time of the current turn, in ms since the epoch.
        journaling: whether to put records for the file into ``journal``.
        journal: records that are not in the file yet.
        flushed: everything was forgotten: the contents of the file are void.
        compactable: a separate process can compact the file.
        loading: the file is being read.
        may_lag: work can go on while the file cannot be written, see ``lagging``.
        write_problem: why nothing may be done that the file has to know, or empty.
        add_problem: why no jobs, or events, may be added: the same, that the disk is full, or that
            the file lags; empty: they may.
        lagging: the file cannot be written, and records wait in memory.
    """

    holds: str
    now: int
    journaling: bool
    journal: list[bytes]
    flushed: bool
    compactable: bool
    loading: bool
    may_lag: bool
    write_problem: str
    add_problem: str
    lagging: bool

    @property
    def memory(self) -> Account:
        """What the jobs, or events, take."""

    def held(self) -> int:
        """The number of jobs, or events, held."""

    def set_trouble(
        self, loading: bool, write_problem: str, full: str = "", lagging: bool = False
    ) -> None:
        """Set whether the file is being read, why nothing can be written (empty: it can), why
        nothing may be added even so (empty: it may), and whether the file is ``lagging``."""

    def load_record(self, record: list[bytes], queue_jobs: bool) -> int:
        """Load one record. ``queue_jobs``: it was written after all work had stopped, so jobs that
        were queued are queued again. Return the number of jobs, or events, in it.

        Raises:
            ValueError: it is not a record.
        """

    def load_suspect(self, record: list[bytes]) -> bool:
        """Load ``record``, which is not as it was written, if that can do no harm; return whether
        it is left out. Raises ``ValueError`` if nothing says where it ends."""

    def load_usual(self, data: bytes, at: int, most: int, queue_jobs: bool) -> tuple[int, int, int]:
        """Load up to ``most`` records from ``data``, starting at ``at``, like ``load_record`` but
        faster. Stops before any record that is incomplete, not in the form that this process
        writes, or not worth it.

        Returns:
            where the next record begins; the number of records; jobs, or events, in them.
        """

    def start_dump(self) -> None:
        """Begin to dump everything. There is only one dump at a time."""

    def dump_step(self, count: int, room: int) -> tuple[list[bytes], bool]:
        """The next records of the dump, about ``count`` and ``room`` bytes at most, and whether it
        is complete."""
