"""The histories of a cluster and of its queues, and how they are written to a file."""

import json
import struct
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Final

from disque_trio.overview.history import History

MOST: Final = 64 << 20  # bytes of values
IDLE: Final = 3_600.0  # s without anything after which a queue makes room for another one
_ADMIT: Final = 0.9  # the part of ``MOST`` up to which any queue gets a history
_SHRINK: Final = 0.95  # the part that is left when some are dropped
_AGAIN: Final = 10.0  # s until idle ones are looked for again

MAGIC: Final = b"disque-console charts 1 " + sys.byteorder.encode() + b"\n"
_FRAME: Final = struct.Struct(">II")  # length and checksum of what follows
_LENGTH: Final = struct.Struct(">I")  # of the words before the values
_LARGEST: Final = 16 << 20  # bytes of one history


class Histories:
    """Of a cluster, and of the queues in which something happened, as far as they fit into ``most``
    bytes of values. If there is no room, a queue gets a history only when nothing has happened in
    another one for an hour, or when somebody looks at it; then the one of least interest goes.

    Attributes:
        cluster: of the whole cluster.
        nodes: ids of the nodes of the cluster.
    """

    def __init__(self, most: int = MOST) -> None:
        self.cluster = History()
        self.nodes: Set[str] = frozenset()
        self._most = most
        self._queues: dict[str, History] = {}
        self._size = 0
        self._looked_at = -_AGAIN  # when idle ones were last looked for

    def __len__(self) -> int:
        return len(self._queues)

    @property
    def full(self) -> bool:
        """Whether there is no room for another queue."""
        return self._size >= self._most * _ADMIT

    def get(self, queue: str) -> History | None:
        """The history of a queue; None: it has none."""
        return self._queues.get(queue)

    def note(
        self,
        queue: str,
        now: float,
        counted: Mapping[str, float],
        measured: Mapping[str, float],
        since: float | None,
    ) -> None:
        """Add what happened in a queue, see ``Series.add``; its history begins when something
        does."""
        history = self._queues.get(queue)
        if history is None:
            if not (any(counted.values()) or any(measured.values())):
                return
            if self.full and not self._make_room(now):
                return
            history = self._begin(queue, History())
        before = history.size
        history.add(now, counted, measured, since)
        self._size += history.size - before
        self._shrink(queue)

    def look(self, queue: str, now: float) -> None:
        """Note that somebody looks at a queue: it has a history from now on."""
        history = self._queues.get(queue) or self._begin(queue, History())
        history.changed = now
        self._shrink(queue)

    def drop_old(self, now: float) -> None:
        """Drop the histories of queues of which nothing is known any more."""
        for queue in [name for name, history in self._queues.items() if history.empty(now)]:
            self._drop(queue)

    def clear(self) -> None:
        """Forget everything."""
        self.cluster = History()
        self._queues.clear()
        self._size = 0

    def pack(self, now: float) -> Iterator[bytes]:
        """A file, written at ``now`` (s), in parts. There may be changes between two of them."""
        queues = list(self._queues)
        yield MAGIC
        yield _frame({"written": now, "nodes": sorted(self.nodes), "queues": len(queues)})
        yield _frame({}, self.cluster)
        for queue in queues:
            yield _frame({"queue": queue}, self._queues.get(queue) or History())

    @classmethod
    def unpack(cls, data: bytes, most: int = MOST) -> "Histories":
        """The histories in a file. Raises ValueError: it is damaged, or has another form."""
        if not data.startswith(MAGIC):
            raise ValueError("it is none of this release")
        found = cls(most)
        try:
            frames = _frames(data)
            (head, _), (words, values), *queues = frames
            found.nodes = frozenset(map(str, head["nodes"]))
            found.cluster = History.unpack(words, values)
            if len(queues) != head["queues"]:
                raise ValueError("its end is missing")
            for words, values in queues:
                if found._size < most:
                    found._begin(str(words["queue"]), History.unpack(words, values))
        except (LookupError, ArithmeticError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"it is damaged: {error}") from error
        return found

    def _begin(self, queue: str, history: History) -> History:
        self._queues[queue] = history
        self._size += history.size
        return history

    def _drop(self, queue: str) -> None:
        self._size -= self._queues.pop(queue).size

    def _make_room(self, now: float) -> bool:
        """Drop the histories of idle queues. Returns whether there were any."""
        if self._looked_at <= now < self._looked_at + _AGAIN:
            return False
        self._looked_at = now
        idle = [name for name, one in self._queues.items() if not now - IDLE < one.changed <= now]
        for queue in idle:
            self._drop(queue)
        return bool(idle)

    def _shrink(self, but: str) -> None:
        """If there are too many, drop those of the least interest, but not that of ``but``."""
        if self._size <= self._most:
            return
        for name in sorted(self._queues, key=lambda name: self._queues[name].changed):
            if self._size <= self._most * _SHRINK:
                break
            if name != but:
                self._drop(name)


def _frame(head: dict[str, Any], history: History | None = None) -> bytes:
    values: Sequence[bytes] = ()
    if history is not None:
        words, values = history.pack()
        head = head | words
    text = json.dumps(head).encode()
    data = zlib.compress(b"".join((_LENGTH.pack(len(text)), text, *values)), 1)
    return _FRAME.pack(len(data), zlib.crc32(data)) + data


def _frames(data: bytes) -> Iterator[tuple[dict[str, Any], list[bytes]]]:
    """The words of each frame after ``MAGIC``, and its values. Raises ValueError."""
    at = len(MAGIC)
    while at < len(data):
        if len(data) - at < _FRAME.size:
            raise ValueError("its end is missing")
        length, checksum = _FRAME.unpack_from(data, at)
        at += _FRAME.size
        part = data[at : at + length]
        at += length
        if len(part) < length or zlib.crc32(part) != checksum:
            raise ValueError("a checksum is wrong")
        yield _parted(part)


def _parted(part: bytes) -> tuple[dict[str, Any], list[bytes]]:
    try:
        text = zlib.decompressobj().decompress(part, _LARGEST)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    length = int.from_bytes(text[: _LENGTH.size])
    start = _LENGTH.size + length
    head = json.loads(text[_LENGTH.size : start])
    sizes = [
        size
        for series in head.get("ranges", ())
        for size in [4 * series["count"]] * (1 + len(series["names"]))
    ]
    values = []
    for size in sizes:
        values.append(text[start : start + size])
        start += size
    return head, values
