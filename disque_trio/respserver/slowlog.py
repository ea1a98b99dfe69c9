"""SLOWLOG: records the commands that took longer than a limit, the latest first."""

from collections import deque
from typing import Final, NamedTuple

MAX_ARGS: Final = 32
MAX_ARG: Final = 128


class SlowLogEntry(NamedTuple):
    """One slow command: an increasing id, its time (s since the epoch), its duration (µs), and its
    arguments, cut to 32 of 128 bytes."""

    id: int
    time: int
    duration: int
    args: list[bytes]


class SlowLog:
    """The slow commands of a node. Keeps ``max_len`` entries of commands slower than
    ``slower_than`` (µs; negative: none)."""

    def __init__(self) -> None:
        self.entries: deque[SlowLogEntry] = deque()
        self.max_len = 128
        self.slower_than = 10_000
        self._next_id = 0

    def add(self, now: int, microseconds: int, args: list[bytes]) -> None:
        """Record a command at ``now`` (ms) if it took long enough."""
        if microseconds < self.slower_than or self.slower_than < 0:
            return
        kept = [_cut(arg) for arg in args[:MAX_ARGS]]
        if len(args) > MAX_ARGS:
            kept[-1] = b"... (%d more arguments)" % (len(args) - MAX_ARGS + 1)
        self.entries.appendleft(SlowLogEntry(self._next_id, now // 1000, microseconds, kept))
        self._next_id += 1
        self.trim()

    def trim(self) -> None:
        """Drop the oldest entries beyond ``max_len``."""
        while len(self.entries) > self.max_len:
            self.entries.pop()


def _cut(arg: bytes) -> bytes:
    """``arg``, cut to MAX_ARG bytes."""
    if len(arg) <= MAX_ARG:
        return arg
    return b"%b... (%d more bytes)" % (arg[:MAX_ARG], len(arg) - MAX_ARG)
