"""When the parent keeps the jobs of a process from being delivered again, in its place."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from disque_trio.process.fleet import BEAT, OVERRUN
from disque_trio.worker.ledger import LedgerEntry

QUIET: Final = 1.5 * BEAT
"""Seconds without a sign of life after which a process is not expected to do it itself."""

_FRACTION: Final = 0.5
"""The fraction of a job's retry time that passes between two WORKING commands."""

_AGAIN: Final = 1.0  # s between two looks at the jobs


class Lease:
    """The jobs of one process that its parent keeps. Callers pass in the time (time.monotonic)."""

    def __init__(self) -> None:
        self._next = 0.0
        self._busy = False
        self._due: dict[str, float] = {}

    def is_due(self, silent: float, now: float) -> bool:
        """Return whether to look at the jobs. ``silent``: how long the process has been, in s."""
        if silent <= QUIET:
            self._next = 0.0
            self._due.clear()
            return False
        return not self._busy and now >= self._next

    def wanted(self, entries: Sequence[LedgerEntry], now: float) -> list[LedgerEntry]:
        """Return those of the process's jobs for which WORKING is due. A task beyond its timeout
        does not keep its job."""
        self._next = now + _AGAIN
        return [
            entry
            for entry in entries
            if now <= entry.deadline + OVERRUN and now >= self._due.get(entry.id, now)
        ]

    @contextmanager
    def renewing(self, now: float) -> Iterator[dict[str, float]]:
        """Within the block, WORKING is sent. Yields a dict for the retry times (s) of the jobs that
        nodes keep, by id."""
        self._busy = True
        kept: dict[str, float] = {}
        try:
            yield kept
        finally:
            self._busy = False
            self._due |= {id: now + _FRACTION * retry for id, retry in kept.items()}
