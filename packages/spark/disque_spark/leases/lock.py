"""The lock of leases that are kept in Disque: one process at a time plans and finishes batches.

The lock is a sequence of numbered cells, each with a lifetime of some seconds. The holder writes
the next cell before the last one expires; a process that wants the lock waits until the last cell
has expired. So a second query is refused, and the lock of a killed query is released. A process
that was suspended for longer than a cell's lifetime may not know that it has lost the lock, so the
journal of a batch, not the lock, decides who may finish the batch.
"""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from disque_spark.client import RefusedError, WireError
from disque_spark.leases.journal import Cell, Cells
from disque_spark.leases.store import LeaseError

LIFE = 15  # s; lifetime of a cell
RENEW = 4.0  # s from one cell to the next
_POLL = 0.25  # s
PREFIX = "lock/"


class LeaseLock:
    """The lock, as seen by a process that wants or holds it.

    Args:
        cells: the cells of the queue.
        name: name of the leases, for errors.
        owner: identifies this process.
        sleep, clock: as in the module ``time``.

    Attributes:
        number: number of the last known cell.
    """

    def __init__(
        self,
        cells: Cells,
        name: str,
        owner: str,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.number = 0
        self._cells = cells
        self._name = name
        self._body = json.dumps({"owner": owner, **_process()}).encode()
        self._sleep = sleep
        self._clock = clock
        self._own = ""  # id of the cell that we hold
        self._lost = False

    def use(self, cells: Cells) -> None:
        """Use these cells from now on: the connections of another thread."""
        self._cells = cells

    def acquire(self, holder: Cell | None, seconds: float) -> None:
        """Wait for the lock and take it.

        Args:
            holder: the last cell, if known.
            seconds: how long to wait.

        Raises:
            LeaseError: another process holds the lock.
            WireError: no node can be reached.
        """
        deadline = self._clock() + seconds
        while True:
            try:
                if holder is not None:
                    self._wait_for(holder, deadline)
                    holder = None
                holder = self._write()
            except WireError:
                # Perhaps a dropped cell on an unreachable node has this number.
                self.number += 1
                if self._clock() >= deadline:
                    raise
                self._sleep(_POLL)
            else:
                if holder is None:
                    return

    def renew(self) -> None:
        """Extend the lock. Raises WireError or RefusedError if it fails this time."""
        if self._lost:
            return
        before = self._own
        if self._write() is not None:
            self._lost = True
        elif before:
            self._cells.drop([before])

    def check(self) -> None:
        """Raise LeaseError if another process has taken the lock."""
        if self._lost:
            raise LeaseError(f"{self._name}: another query has taken it over")

    def release(self) -> None:
        """Release the lock at once, instead of letting it expire."""
        if self._own:
            own, self._own = self._own, ""
            with suppress(WireError, RefusedError):
                self._cells.drop([own])

    def _write(self) -> Cell | None:
        """Write the next cell. If another process has written it, returns that cell."""
        cell = self._cells.put(f"{PREFIX}{self.number + 1}", self._body, LIFE)
        self.number += 1
        if cell.body != self._body:
            return cell
        self._own = cell.id
        return None

    def _wait_for(self, holder: Cell, deadline: float) -> None:
        """Wait until nobody holds the lock."""
        gone = self._clock() + LIFE  # it has expired by then, whatever the nodes say
        while not _is_dead(holder) and self._clock() < gone:
            later = self._find_next()
            if later is not None:
                self.number += 1
                holder = later
                gone = self._clock() + LIFE
            elif not self._cells.lives(holder.id):
                return
            elif self._clock() >= deadline:
                raise LeaseError(
                    f"{self._name} is in use by another query; each query needs its own leases"
                )
            else:
                self._sleep(_POLL)

    def _find_next(self) -> Cell | None:
        with suppress(WireError):  # unknown for now
            return self._cells.find(f"{PREFIX}{self.number + 1}")
        return None


def number_of(cell: Cell) -> int:
    """The number of a cell of the lock; 0 if it is another kind of cell."""
    text = cell.key.removeprefix(PREFIX)
    return int(text) if text != cell.key and text.isdecimal() else 0


def _process() -> dict[str, object]:
    """Identifies this process among those of all machines and containers."""
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        machine += str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        machine = ""
    return {"machine": machine, "pid": os.getpid()}


def _is_dead(holder: Cell) -> bool:
    """Whether the process that wrote a cell ran on this machine, and has ended."""
    said = json.loads(holder.body)
    here = _process()["machine"]
    return bool(here) and said["machine"] == here and not Path(f"/proc/{said['pid']}").exists()
