"""The jobs that a worker process has, in memory that its parent sees, too.

A process may die at any moment, or be in one long call to C code and tell nobody anything. So it
writes down each job as it takes it, without a system call, and its parent reads that when the
process has died, or does not answer.
"""

import math
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final

from disque_trio.job_past import NOTHING, Past

TAKEN: Final = 1
"""The job has arrived; its task has not begun."""
RUNNING: Final = 2
APART: Final = 3
"""Its task runs in a process of its own."""
ENDED: Final = 4
"""Its task has ended, which no node knows yet."""

CAPACITY: Final = 2048
"""The most jobs. A process that has more does not write down the others."""

_ENTRY: Final = Struct("<B40sdHHH65s")  # state, id, deadline, past, address
SIZE: Final = CAPACITY * _ENTRY.size
_STATE: Final = Struct("<B")
_BEGUN: Final = Struct("<dHHH")
_BEGUN_AT: Final = 41  # the deadline in an entry
_MOST_TIMES: Final = 0xFFFF


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A job that a process has, or had when it died.

    Attributes:
        id: its id.
        address: of the node that it came from; empty: too long to be written down.
        state: TAKEN, RUNNING, APART or ENDED.
        deadline: when its task must have ended (time.monotonic); infinite for no limit.
        past: what it has been through, without ``said``.
    """

    id: str
    address: str
    state: int
    deadline: float = math.inf
    past: Past = NOTHING


class Ledger:
    """The jobs of a process. The process writes, its parent reads.

    Args:
        memory: is shared by both.
        start: where the ledger begins there.
    """

    def __init__(self, memory: mmap.mmap, start: int) -> None:
        self._memory = memory
        self._start = start
        self._free: list[int] = []  # places that were used
        self._used = 0  # the first place that was not
        self._ended: list[tuple[int, Callable[[], bool]]] = []

    # ---- for the process --------------------------------------------------------------------

    def take(self, id: str, address: str, state: int = TAKEN, deadline: float = math.inf) -> int:
        """Write down a job that has been through nothing, as far as is known; return its place, for
        the other methods."""
        if self._free:
            place = self._free.pop()
        elif self._used < CAPACITY:
            place = self._used
            self._used += 1
        else:
            return -1
        at = self._start + place * _ENTRY.size
        raw = address.encode()
        _ENTRY.pack_into(self._memory, at, state, id.encode(), deadline, 0, 0, 0, raw)
        return place

    def begin(self, place: int, state: int, deadline: float, past: Past) -> None:
        """Note that the task of a job begins, and what it has been through. ``state``: RUNNING or
        APART."""
        if place >= 0:
            at = self._start + place * _ENTRY.size
            numbers = [min(n, _MOST_TIMES) for n in (past.returned, past.crashes, past.alone)]
            _BEGUN.pack_into(self._memory, at + _BEGUN_AT, deadline, *numbers)
            _STATE.pack_into(self._memory, at, state)

    def drop(self, place: int) -> None:
        """Forget a job that is settled."""
        if place >= 0:
            _STATE.pack_into(self._memory, self._start + place * _ENTRY.size, 0)
            self._free.append(place)

    def end(self, place: int, is_settled: Callable[[], bool]) -> None:
        """Note that the task of a job has ended. ``is_settled``: whether a node has taken that."""
        if place >= 0:
            _STATE.pack_into(self._memory, self._start + place * _ENTRY.size, ENDED)
            self._ended.append((place, is_settled))

    def sweep(self) -> None:
        """Forget the jobs that were settled since their tasks have ended."""
        if self._ended:
            ended, self._ended = self._ended, []
            for place, is_settled in ended:
                if is_settled():
                    self.drop(place)
                else:
                    self._ended.append((place, is_settled))

    # ---- for its parent ---------------------------------------------------------------------

    def entries(self) -> list[LedgerEntry]:
        """Read the jobs."""
        found: list[LedgerEntry] = []
        for place in range(CAPACITY):
            at = self._start + place * _ENTRY.size
            if not self._memory[at + 1]:
                break  # this place was never used
            state, id, deadline, returned, crashes, alone, raw = _ENTRY.unpack_from(
                self._memory, at
            )
            if state:
                # An address that was cut has no end.
                address = "" if raw[-1] else raw.rstrip(b"\0").decode()
                past = Past(returned, crashes, alone)
                found.append(LedgerEntry(id.decode(), address, state, deadline, past))
        return found
