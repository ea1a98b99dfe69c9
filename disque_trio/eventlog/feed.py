"""The queue of events between the node and the process that writes them.

Owns the order, the bound and the counts. A batch is kept until the process says that it is in a
file: if it dies the next one gets it again. When too much waits, events are dropped and counted;
the log itself says how many are missing, and where.
"""

import marshal
import os
from collections import deque

from disque_trio.eventlog.child import HEAD
from disque_trio.eventlog.lines import count
from disque_trio.eventlog.schema import DROPPED, Event, LogKind

LIMIT = 16 << 20  # bytes that wait


class Feed:
    """Batches of events that are not confirmed yet, in order.

    Args:
        limit: bytes that may wait; the last batch may go beyond. Once events were dropped half of
            that has to be free before more are taken.

    Attributes:
        written: events that are in files.
        dropped: events that never will be.
        waiting: bytes that are not in files yet.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.written = 0
        self.dropped = 0
        self.waiting = 0
        self._limit = limit
        self._missing = 0  # dropped, and the log does not say so yet
        self._written_before = 0  # by earlier processes
        self._unsent: deque[bytes] = deque()  # batches
        self._sent = 0  # bytes of the first of them
        self._unconfirmed: deque[bytes] = deque()
        self._confirmed = 0  # batches, by the present process

    @property
    def unsent(self) -> bool:
        """Whether something still has to go to the process."""
        return len(self._unsent) > 0

    @property
    def busy(self) -> bool:
        """Whether something is not in files yet, or the log does not say yet what is missing."""
        return self.waiting > 0 or self._missing > 0

    def add(self, events: list[Event], now: int) -> None:
        """Take ``events``, which are to be one batch, or drop them; ``now`` (ms) is when the log
        says so."""
        if self.waiting <= self._limit // 2:
            self._say_dropped(now)
        if not events:
            return
        if self._missing or self.waiting >= self._limit:
            self._drop(events)
        else:
            self._queue(events)

    def mark(self, event: LogKind, now: int) -> None:
        """Something happened at ``now`` that has to be in the log, however much waits."""
        self._say_dropped(now)
        self._queue([(now, event)])

    def _say_dropped(self, now: int) -> None:
        if self._missing:
            self._queue([(now, DROPPED, self._missing)])
            self._missing = 0

    def _drop(self, events: list[Event]) -> None:
        lost = count(events)
        self._missing += lost
        self.dropped += lost

    def _queue(self, events: list[Event]) -> None:
        data = marshal.dumps(events)
        batch = HEAD.pack(len(data)) + data
        self._unsent.append(batch)
        self.waiting += len(batch)

    def push(self, fd: int) -> None:
        """Write what the pipe takes at once. A broken one is not noticed here."""
        unsent = self._unsent
        try:
            while unsent:
                batch = unsent[0]
                rest = memoryview(batch)[self._sent :] if self._sent else batch
                self._sent += os.write(fd, rest)
                if self._sent == len(batch):
                    self._unconfirmed.append(unsent.popleft())
                    self._sent = 0
        except (BlockingIOError, BrokenPipeError):
            pass

    def confirm(self, batches: int, events: int) -> bool:
        """So many batches, with so many events, are in files since the last ``rewind``. Whether
        that is news."""
        before = self._confirmed
        while self._confirmed < batches and self._unconfirmed:
            self.waiting -= len(self._unconfirmed.popleft())
            self._confirmed += 1
        self.written = self._written_before + events
        return self._confirmed > before

    def rewind(self) -> None:
        """The process is gone: what it has not confirmed is for the next one."""
        self._unsent.extendleft(reversed(self._unconfirmed))
        self._unconfirmed.clear()
        self._sent = 0
        self._confirmed = 0
        self._written_before = self.written

    def give_up(self) -> int:
        """Drop what waits; returns how many events that were."""
        before = self.dropped
        for batch in (*self._unconfirmed, *self._unsent):
            self._drop(marshal.loads(batch[HEAD.size :]))
        self._unsent.clear()
        self._unconfirmed.clear()
        self._sent = 0
        self.waiting = 0
        return self.dropped - before
