"""The queue of events between the node and the process that writes them.

Owns the order, the limit and the counts. A batch is kept until the process reports that it is in a
file; if the process dies, the next one gets the batch again. If too much is waiting, events are
dropped and counted; the log itself says how many are missing, and where.
"""

import marshal
import os
from collections import deque
from collections.abc import Mapping
from typing import Any

from disque_trio.eventlog.child import HEAD
from disque_trio.eventlog.lines import count
from disque_trio.eventlog.schema import DROPPED, Event, LogKind

LIMIT = 16 << 20  # bytes that may wait


class Feed:
    """Batches of events that are not confirmed yet, in order.

    Args:
        limit: bytes that may wait; the last batch may exceed it. Once events were dropped, half of
            this must be free before more are accepted.

    Attributes:
        written: how many events are in files.
        dropped: how many events never will be.
        waiting: bytes that are not in files yet.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.written = 0
        self.dropped = 0
        self.waiting = 0
        self._limit = limit
        self._missing = 0  # dropped events that the log does not mention yet
        self._written_before = 0  # by earlier processes
        self._unsent: deque[bytes] = deque()  # batches
        self._sent = 0  # bytes sent of the first of them
        self._unconfirmed: deque[bytes] = deque()
        self._confirmed = 0  # batches confirmed by the current process
        self._greeting = b""  # for the current process, which has not got it yet

    @property
    def unsent(self) -> bool:
        """Whether something still has to be sent to the process."""
        return len(self._unsent) > 0

    @property
    def busy(self) -> bool:
        """Whether something is not in files yet, or dropped events are not in the log yet."""
        return self.waiting > 0 or self._missing > 0

    def add(self, events: list[Event], now: int) -> None:
        """Take ``events`` as one batch, or drop them. ``now`` (ms) is the time of a line about
        dropped events."""
        if self.waiting <= self._limit // 2:
            self._say_dropped(now)
        if not events:
            return
        if self._missing or self.waiting >= self._limit:
            self._drop(events)
        else:
            self._queue(events)

    def greet(self, facts: Mapping[str, Any]) -> None:
        """Tell a new process the facts about the node before anything else."""
        self._greeting = _packed(dict(facts))

    def mark(self, event: LogKind, now: int, about: str = "") -> None:
        """Note an event at ``now`` that must be in the log, however much is waiting; ``about``: its
        reason, or whatever else it has."""
        self._say_dropped(now)
        self._queue([(now, event, about) if about else (now, event)])

    def _say_dropped(self, now: int) -> None:
        if self._missing:
            self._queue([(now, DROPPED, self._missing)])
            self._missing = 0

    def _drop(self, events: list[Event]) -> None:
        lost = count(events)
        self._missing += lost
        self.dropped += lost

    def _queue(self, events: list[Event]) -> None:
        batch = _packed(events)
        self._unsent.append(batch)
        self.waiting += len(batch)

    def push(self, fd: int) -> None:
        """Write what the pipe accepts at once. Does not notice if the pipe is broken."""
        unsent = self._unsent
        try:
            while self._greeting:
                self._greeting = self._greeting[os.write(fd, self._greeting) :]
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
        """Note that this many batches and events are in files since the last ``rewind``. Returns
        whether that is news."""
        before = self._confirmed
        while self._confirmed < batches and self._unconfirmed:
            self.waiting -= len(self._unconfirmed.popleft())
            self._confirmed += 1
        self.written = self._written_before + events
        return self._confirmed > before

    def rewind(self) -> None:
        """Prepare for a new process, which gets everything that the last one did not confirm."""
        self._unsent.extendleft(reversed(self._unconfirmed))
        self._unconfirmed.clear()
        self._greeting = b""
        self._sent = 0
        self._confirmed = 0
        self._written_before = self.written

    def give_up(self) -> int:
        """Drop everything that is waiting; return how many events that were."""
        before = self.dropped
        for batch in (*self._unconfirmed, *self._unsent):
            self._drop(marshal.loads(batch[HEAD.size :]))
        self._unsent.clear()
        self._unconfirmed.clear()
        self._sent = 0
        self.waiting = 0
        return self.dropped - before


def _packed(data: Any) -> bytes:
    """Return ``data`` as the process reads it."""
    packed = marshal.dumps(data)
    return HEAD.pack(len(packed)) + packed
