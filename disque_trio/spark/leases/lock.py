"""The lock of leases that are kept in Disque: one process plans and ends batches at a time.

The lock is a row of cells with numbers, each of which lives for some seconds. Who holds it writes
the next one in time; who wants it waits until the last one is gone. That refuses a second query in
good time, and lets go of a killed one. A process that was stopped for longer than a cell lives may
not know that it has lost the lock: so it is the journal of a batch that decides who may end it.
"""

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from disque_trio.spark.client import RefusedError, WireError
from disque_trio.spark.leases.journal import Cell, Cells
from disque_trio.spark.leases.store import LeaseError

LIFE = 15  # s, of a cell
RENEW = 4.0  # s between two of them
_POLL = 0.25  # s
PREFIX = "lock/"


class LeaseLock:
    """The lock, as the process sees it that wants it or has it.

    Args:
        cells: where it is.
        name: of the leases, for errors.
        owner: this process.
        sleep, clock: of the time module.

    Attributes:
        number: of the last cell that is known.
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
        """From now on by these cells: connections of another thread."""
        self._cells = cells

    def acquire(self, holder: Cell | None, seconds: float) -> None:
        """Wait for it, and take it.

        Args:
            holder: the last cell that there is, if one is known.
            seconds: how long to wait.

        Raises:
            LeaseError: somebody else holds it.
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
                # The number may be that of a cell that was dropped, on a node that is away.
                self.number += 1
                if self._clock() >= deadline:
                    raise
                self._sleep(_POLL)
            else:
                if holder is None:
                    return

    def renew(self) -> None:
        """Hold it for longer. Raises WireError, RefusedError: it did not succeed this time."""
        if self._lost:
            return
        before = self._own
        if self._write() is not None:
            self._lost = True
        elif before:
            self._cells.drop([before])

    def check(self) -> None:
        """Raise LeaseError if somebody else has taken it."""
        if self._lost:
            raise LeaseError(f"{self._name}: another query has taken it over meanwhile")

    def release(self) -> None:
        """Let others have it at once."""
        if self._own:
            own, self._own = self._own, ""
            with suppress(WireError, RefusedError):
                self._cells.drop([own])

    def _write(self) -> Cell | None:
        """Write the next cell. Returns that of somebody else who did it before."""
        cell = self._cells.put(f"{PREFIX}{self.number + 1}", self._body, LIFE)
        self.number += 1
        if cell.body != self._body:
            return cell
        self._own = cell.id
        return None

    def _wait_for(self, holder: Cell, deadline: float) -> None:
        """Wait until nobody has it."""
        gone = self._clock() + LIFE  # whatever nodes say that are there
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
                    f"{self._name} is in use by another query: each needs leases of its own"
                )
            else:
                self._sleep(_POLL)

    def _find_next(self) -> Cell | None:
        with suppress(WireError):  # nobody can tell now
            return self._cells.find(f"{PREFIX}{self.number + 1}")
        return None


def number_of(cell: Cell) -> int:
    """The number of a cell of the lock; 0: it is no such cell."""
    text = cell.key.removeprefix(PREFIX)
    return int(text) if text != cell.key and text.isdecimal() else 0


def _process() -> dict[str, object]:
    """What tells this process from all others, also of other machines and containers."""
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        machine += str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        machine = ""
    return {"machine": machine, "pid": os.getpid()}


def _is_dead(holder: Cell) -> bool:
    """Whether the process that wrote a cell ran here, and does not any more."""
    said = json.loads(holder.body)
    here = _process()["machine"]
    return bool(here) and said["machine"] == here and not Path(f"/proc/{said['pid']}").exists()
