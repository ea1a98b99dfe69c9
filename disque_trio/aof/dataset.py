"""The interface between the append-only file and the state machine whose records it keeps."""

from typing import Protocol


class Dataset(Protocol):
    """The records' source and destination: the jobs of a node or the events of bananaq.

    Attributes:
        holds: what it calls what it holds.
        now: time of the current turn, ms since the epoch.
        journaling: note in ``journal`` what has to be in the file.
        journal: records that are not in the file yet.
        flushed: everything was forgotten: what the file has is void.
        compactable: a process of its own can compact the file.
        loading: the file is being read.
        write_problem: why the file cannot be written, or empty.
    """

    holds: str
    now: int
    journaling: bool
    journal: list[bytes]
    flushed: bool
    compactable: bool
    loading: bool
    write_problem: str

    def held(self) -> int:
        """The number of jobs, or events, held."""

    def set_trouble(self, loading: bool, write_problem: str) -> None:
        """Say that the file is being read, or why nothing can be written (empty: it can)."""

    def load_record(self, record: list[bytes], queue_jobs: bool) -> int:
        """Load one record. ``queue_jobs``: it was written when nothing happened any more, so queued
        jobs are queued again. Returns the number of jobs, or events, in it.

        Raises:
            ValueError: it is not a record.
        """

    def load_usual(self, data: bytes, at: int, most: int, queue_jobs: bool) -> tuple[int, int, int]:
        """Load up to ``most`` records that stand in ``data`` from ``at`` on, as ``load_record``
        would, but faster; stop before any that is not all there, not as this process writes it, or
        not worth it.

        Returns:
            where the next record begins; how many records there were; jobs, or events, in them.
        """

    def start_dump(self) -> None:
        """Begin to dump everything; one dump at a time."""

    def dump_step(self, count: int, room: int) -> tuple[list[bytes], bool]:
        """The next records of the dump, about ``count`` and ``room`` bytes at most, and whether
        these were the last."""
