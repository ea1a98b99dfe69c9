"""What clients of this node did with the jobs of a queue: how many they added, got and
acknowledged, and how long the jobs waited and were processed.

Jobs that only move, to another node or another queue, count apart or not at all, so the sums over
all nodes are what happened to the queue.
"""

from typing import TYPE_CHECKING, Final

from disque_trio.log_times import MOST, grown, quantile
from disque_trio.node.core.jobs.job import Adder
from disque_trio.node.core.queues.adders import QueueAdders
from disque_trio.resp.reply import Value

if TYPE_CHECKING:
    from mypy_extensions import i64

WINDOW: Final = 300_000  # ms; ``Times.recent`` goes back for one to two of these
EXACT: Final = 200  # durations in a window that are all observed; of those that follow ...
STEP: Final = 19  # ... only one in so many, which stands for all of them: each would cost too much
_LAST: Final = MOST - 1
_QUANTILES: Final = ((b"p50", 0.5), (b"p95", 0.95), (b"p99", 0.99))


class Times:
    """How long something takes, in ranges that double (see ``log_times``).

    Attributes:
        total: all that was observed.
    """

    __slots__ = ("_before", "_last", "_left", "_step", "_until", "total")

    def __init__(self) -> None:
        self.total: list[int] = []
        self._last: list[int] = []  # ``total`` at the beginning of the window
        self._before: list[int] = []  # and at that of the window before
        self._until: i64 = 0  # the end of the window, in ms
        self._left: i64 = 0  # to observe one by one
        self._step: i64 = 1  # for how many the next one stands

    def observe(self, duration: int, now: int) -> int:
        """Count ``duration`` (ms), which ended at ``now`` (ms). Return after how many more times to
        call it again: that one stands for them all."""
        if now >= self._until:
            self._turn(now)
        index: i64 = 0
        left: i64 = duration
        while left > 0:
            left >>= 1
            index += 1
        if index > _LAST:
            index = _LAST
        total = self.total
        while index >= len(total):
            total.append(0)
        total[index] += self._step
        if self._left > 0:
            self._left -= 1
            self._step = 1
        else:
            self._step = STEP
        return self._step

    def _turn(self, now: int) -> None:
        """Begin the window that ``now`` is in."""
        total = self.total[:]
        self._before = self._last if now < self._until + WINDOW else total
        self._last = total
        self._until = now + WINDOW
        self._left = EXACT - 1

    def recent(self, now: int) -> list[int]:
        """What was observed in the last 5 to 10 minutes before ``now`` (ms)."""
        if now >= self._until:
            self._turn(now)
        return grown(self.total, self._before)


class Traffic:
    """What clients of this node did with the jobs of a queue.

    Attributes:
        added: jobs that they added; delivered: times that they got one; acked: jobs that they
            acknowledged.
        imported, exported: jobs that came from other nodes, or were given to them.
        wait_at, processing_at: call ``waited``, ``processed`` when this many were delivered, acked.
        adder: who added the last job; None: not known. adders: all who did.
        wait: times from when a job was added, was due, or was queued again until a client got it;
            None: nobody got one.
        processing: times from when a client got a job until it was acknowledged; None: none was.
    """

    __slots__ = (
        "acked",
        "added",
        "adder",
        "adders",
        "delivered",
        "exported",
        "imported",
        "processing",
        "processing_at",
        "wait",
        "wait_at",
    )

    def __init__(self) -> None:
        self.adder: Adder | None = None
        self.adders: QueueAdders | None = None
        self.wait: Times | None = None
        self.processing: Times | None = None
        self.added: i64 = 0
        self.delivered: i64 = 0
        self.acked: i64 = 0
        self.imported: i64 = 0
        self.exported: i64 = 0
        self.wait_at: i64 = 0
        self.processing_at: i64 = 0

    def waited(self, duration: int, now: int) -> None:
        """Note that the last job that was delivered, at ``now``, had waited for ``duration``
        (ms)."""
        wait = self.wait
        if wait is None:
            wait = self.wait = Times()
        self.wait_at = self.delivered + wait.observe(duration, now)

    def processed(self, duration: int, now: int) -> None:
        """Note that the last job that was acknowledged, at ``now``, had been delivered ``duration``
        before (ms)."""
        processing = self.processing
        if processing is None:
            processing = self.processing = Times()
        self.processing_at = self.acked + processing.observe(duration, now)

    def describe(self, now: int) -> list[Value]:
        """Its fields in QSTAT at ``now`` (ms), without those that QSTAT had before."""
        found: list[Value] = [
            b"jobs-added", int(self.added),
            b"jobs-delivered", int(self.delivered),
            b"jobs-imported", int(self.imported),
            b"jobs-exported", int(self.exported),
        ]  # fmt: skip
        ranges: list[Value] = []
        for name, times in ((b"wait", self.wait), (b"processing", self.processing)):
            recent = [] if times is None else times.recent(now)
            for label, share in _QUANTILES:
                duration = quantile(recent, share)
                found += [b"%b-%b" % (name, label), -1 if duration is None else round(duration)]
            ranges += [b"%b-recent" % name, list(recent)]
            ranges += [b"%b-total" % name, [] if times is None else list(times.total)]
        return found + ranges
