"""The process that writes the event log of a node: batches from the standard input, lines into
files, and an answer for each batch on the standard output.

A batch is its length (4 bytes, little-endian) and a marshalled list of events. The answers are
lines:

- ``ok BATCHES EVENTS SIZE NAME``: so many batches with so many events are in files since the start,
  and the last of these, NAME, has SIZE bytes. So the node knows what to repeat, and behind which
  byte, if this process dies.
- ``err TEXT``: the files cannot be written. The process keeps trying; meanwhile it reads no more.

The end of the input is the end of the node: the last file is closed then. No signal ends the
process before, since those that are for the node come here, too.
"""

import errno
import marshal
import os
import select
import struct
import time
from collections.abc import Callable
from pathlib import Path

from disque_trio.eventlog.closing import Closer
from disque_trio.eventlog.lines import LineWriter, count, first_time
from disque_trio.eventlog.segments import Naming, Segment, create, latest, leftovers

HEAD = struct.Struct("<I")

_READ_SIZE = 1 << 20
_RETRY_MS = 250


class Child:
    """Writes batches of events into files.

    Args:
        node: id of the node, 40 hex characters.
        size: close a file when it has so many bytes.
        age: close a file when it is so old (ms); 0: however old.
        closer: closes them.
        source, answers: descriptors.
        clock: ms since the epoch.
    """

    def __init__(
        self,
        node: str,
        directory: Path,
        size: int,
        age: int,
        closer: Closer,
        source: int,
        answers: int,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._lines = LineWriter(node)
        self._naming = Naming(node)
        self._directory = directory
        self._size = size
        self._age = age
        self._closer = closer
        self._source = source
        self._answers = answers
        self._clock = clock
        self._segment: Segment | None = None
        self._before: tuple[str, int] | None = None  # the last one, and how many lines it has
        self._count = 0  # lines of the present one but for its first
        self._batches = 0
        self._events = 0
        self._input = bytearray()

    def recover(self, resumed: str, known: int) -> None:
        """Close what processes before this one left; see ``leftovers``. Raises OSError."""
        for segment in leftovers(self._directory, self._naming, resumed, known):
            self._closer.close(segment)

    def run(self) -> bool:
        """Until the node ends. False: something of what it sent is in no file."""
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        complete = True
        while complete:
            segment = self._segment
            wait = None
            if segment is not None and self._age:
                wait = max(segment.started + self._age - self._clock(), 0)
            if poll.poll(wait):
                data = os.read(self._source, _READ_SIZE)
                if not data:
                    break
                self._input += data
                complete = self._take_batches()
            self._rotate()
        if self._segment is not None:
            self._closer.close(self._segment)
        return complete

    def _take_batches(self) -> bool:
        """Put those that have come whole into files. False: given up at one of them. The node
        counts them, so none behind it may be written."""
        start = 0
        data = self._input
        while len(data) - start >= HEAD.size:
            (length,) = HEAD.unpack_from(data, start)
            end = start + HEAD.size + length
            if len(data) < end:
                break
            events = marshal.loads(memoryview(data)[start + HEAD.size : end])
            if not self._write(self._lines.lines(events), first_time(events)):
                return False
            self._events += count(events)
            self._confirm()
            self._rotate()
            start = end
        del data[:start]
        return True

    def _write(self, lines: bytes, time: int) -> bool:
        """Put ``lines``, of which the first is of ``time``, into a file, however long it takes.
        False: the node ended meanwhile, and the disk still refuses."""
        gone = select.poll()
        gone.register(self._source, 0)
        told = ""
        last = False
        while True:
            try:
                if self._segment is None:
                    self._segment = create(self._directory, self._naming, self._clock())
                    # Before anything is in it: what will be there is not confirmed yet.
                    self._confirm()
                segment = self._segment
                segment.append(lines if segment.size else self._head(segment, time) + lines)
            except OSError as failure:
                text = f"{self._directory}: {failure.strerror or failure}"
                if text != told:
                    self.tell_trouble(text)
                    told = text
                if last:
                    return False
                last = bool(gone.poll(_RETRY_MS))
            else:
                self._batches += 1
                self._count += lines.count(b"\n")
                return True

    def _head(self, segment: Segment, time: int) -> bytes:
        """The first line of a segment."""
        if self._before is None:
            self._before = (latest(self._directory, self._naming, segment.name), -1)
        return self._lines.head(time, segment.name, *self._before)

    def _rotate(self) -> None:
        """Close the present file when it is large or old enough."""
        segment = self._segment
        if segment is not None and segment.due(self._clock(), self._size, self._age):
            self._segment = None
            self._before = (segment.name, self._count)
            self._count = 0
            self._closer.close(segment)

    def _confirm(self) -> None:
        """Tell the node what is in files."""
        segment = self._segment
        if segment is not None:
            self._answer(f"ok {self._batches} {self._events} {segment.size} {segment.name}\n")

    def tell_trouble(self, text: str) -> None:
        """Let the node say it; may be called in a thread."""
        self._answer(f"err {text.replace(chr(10), ' ')[:500]}\n")

    def _answer(self, line: str) -> None:
        try:
            os.write(self._answers, line.encode("utf-8", "backslashreplace"))
        except OSError as failure:
            if failure.errno != errno.EPIPE:  # the node is gone; what it sent is still here
                raise
