"""The clock of the node: wall-clock time without its jumps.

Jobs carry wall-clock times, since nodes compare them. But a clock that is set back by an hour must
not stop all retries for an hour; and one that is set forward must not expire what is not due. So
the node's clock runs with the kernel's boot clock, which never jumps and continues while the
machine sleeps, and drifts towards the wall clock by at most 50 ms per second.
"""

import time
from typing import Final

from disque_trio.native import mypyc_attr

_BOOT: Final = time.CLOCK_BOOTTIME
_MAX_SLEW = 0.05


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """``now()`` is ms since the epoch."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - self._boot()
        self._slewed_ns = self._boot()

    @staticmethod
    def _boot() -> int:
        return time.clock_gettime_ns(_BOOT)

    def now(self) -> int:
        """The time of the node, in ms since the epoch; never goes back."""
        return (time.clock_gettime_ns(_BOOT) + self._offset_ns) // 1_000_000

    def slew(self) -> float:
        """Move towards the wall clock as far as the time since the last call (at most a second)
        allows. Return how far the wall clock is ahead (s). Call it a few times a second, unless it
        is close."""
        boot = self._boot()
        room = int(min(boot - self._slewed_ns, 1_000_000_000) * _MAX_SLEW)
        self._slewed_ns = boot
        ahead = time.time_ns() - boot - self._offset_ns
        self._offset_ns += max(-room, min(room, ahead))
        return ahead / 1e9
