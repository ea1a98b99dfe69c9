"""The process that writes the event log of a node: it reads batches from standard input, writes
lines to files, and answers each batch on standard output.

A batch is its length (4 bytes, little-endian) and a marshalled list of events. A dictionary in its
place has the facts about the node for the first lines of files, and is not answered. Answers are
lines:

- ``ok BATCHES EVENTS SIZE NAME``: the number of batches and of events written to files since the
  start; the last file is NAME, with SIZE bytes. This tells the node what to repeat, and after which
  byte, if this process dies.
- ``err TEXT``: the files cannot be written. The process keeps trying, and reads nothing meanwhile.

The end of the input means the end of the node: the last file is then closed. No signal ends the
process before that, since signals for the node reach this process, too.
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
        node: the id of the node, 40 hex characters.
        size: close a file when it has this many bytes.
        age: close a file when it is this old (ms); 0: at no age.
        closer: closes the files.
        source, answers: the descriptors for input and answers.
        clock: returns ms since the epoch.
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
        self._before: tuple[str, int] | None = None  # the previous file, and its number of lines
        self._count = 0  # lines in the current file, without the first
        self._batches = 0
        self._events = 0
        self._input = bytearray()

    def recover(self, resumed: str, known: int) -> None:
        """Close files that earlier processes left behind; see ``leftovers``. Raises OSError."""
        for segment in leftovers(self._directory, self._naming, resumed, known):
            self._closer.close(segment)

    def run(self) -> bool:
        """Run until the node ends. Returns False if some of what it sent is in no file."""
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
            if segment is not None and self._segment is None:
                self._go_on()
        if self._segment is not None:
            if self._count == 0:
                self._segment.size = 0  # nothing but its first line: it is removed
            self._closer.close(self._segment)
        return complete

    def _go_on(self) -> None:
        """Begin the next file at once: that there is an open one shows that the node runs, even if
        nothing happens."""
        try:
            self._segment = create(self._directory, self._naming, self._clock())
            self._segment.append(self._head(self._segment, self._clock()))
        except OSError:
            return  # whoever has something to write will report it
        self._confirm()

    def _take_batches(self) -> bool:
        """Write complete batches to files. Returns False if it gave up at one of them: since the
        node counts them, no later batch may be written."""
        start = 0
        data = self._input
        while len(data) - start >= HEAD.size:
            (length,) = HEAD.unpack_from(data, start)
            end = start + HEAD.size + length
            if len(data) < end:
                break
            events = marshal.loads(memoryview(data)[start + HEAD.size : end])
            start = end
            if isinstance(events, dict):
                self._lines.facts = events
                continue
            if not self._write(self._lines.lines(events), first_time(events)):
                return False
            self._events += count(events)
            self._confirm()
            self._rotate()
        del data[:start]
        return True

    def _write(self, lines: bytes, time: int) -> bool:
        """Write ``lines`` to a file, however long that takes. ``time`` is that of the first line.
        Returns False if the node has ended meanwhile and the disk still refuses."""
        gone = select.poll()
        gone.register(self._source, 0)
        told = ""
        last = False
        while True:
            try:
                if self._segment is None:
                    self._segment = create(self._directory, self._naming, self._clock())
                    # Confirm it while it is empty: its future content is not confirmed yet.
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
        """Return the first line of a segment."""
        if self._before is None:
            self._before = (latest(self._directory, self._naming, segment.name), -1)
        return self._lines.head(time, segment.name, *self._before)

    def _rotate(self) -> None:
        """Close the current file when it is large or old enough."""
        segment = self._segment
        if segment is not None and segment.due(self._clock(), self._size, self._age):
            if self._count == 0:
                os.utime(segment.fd)  # the node still runs, but nothing has happened
                segment.started = self._clock()
                return
            self._segment = None
            self._before = (segment.name, self._count)
            self._count = 0
            self._closer.close(segment)

    def _confirm(self) -> None:
        """Tell the node what has been written to files."""
        segment = self._segment
        if segment is not None:
            self._answer(f"ok {self._batches} {self._events} {segment.size} {segment.name}\n")

    def tell_trouble(self, text: str) -> None:
        """Report a problem to the node. May be called in a thread."""
        self._answer(f"err {text.replace(chr(10), ' ')[:500]}\n")

    def _answer(self, line: str) -> None:
        try:
            os.write(self._answers, line.encode("utf-8", "backslashreplace"))
        except OSError as failure:
            if failure.errno != errno.EPIPE:  # the node is gone, but what it sent is still here
                raise
