"""How long commands take: passes it on to SLOWLOG, to LATENCY, and to those who count all of it."""

from disque_trio.histogram import NS, STEP_TIMES, Histogram
from disque_trio.respserver.command import AnyCommand
from disque_trio.respserver.latency import LatencyMonitor
from disque_trio.respserver.memory import UNLIMITED
from disque_trio.respserver.monitor import without_password
from disque_trio.respserver.slowlog import SlowLog


class Durations:
    """The durations of commands, as far as anybody wants to know them.

    Attributes:
        least: ns from which a duration has to be noted.
        counts: all durations by the names of the commands; None: nobody counts them.
    """

    __slots__ = ("_latency", "_slow", "_slowlog", "counts", "least")

    def __init__(self, slowlog: SlowLog, latency: LatencyMonitor) -> None:
        self.least = UNLIMITED
        self.counts: dict[str, Histogram] | None = None
        self._slow = UNLIMITED  # ns from which SLOWLOG or LATENCY want one
        self._slowlog = slowlog
        self._latency = latency

    def watch(self, slower_than: int, threshold: int) -> None:
        """Keep commands of ``slower_than`` µs and more (negative: none) in the slow log and
        events of ``threshold`` ms and more (0: none) in the latency monitor."""
        self._slowlog.slower_than = slower_than
        self._latency.threshold = threshold
        self._slow = slower_than * 1000 if slower_than >= 0 else UNLIMITED
        if threshold:
            self._slow = min(self._slow, threshold * 1_000_000)
        self.least = self._slow if self.counts is None else 0

    def count(self) -> None:
        """Count all durations from now on."""
        self.counts = {}
        self.least = 0

    def reset(self) -> None:
        """Forget what was counted."""
        if self.counts is not None:
            self.counts = {}

    def note(self, command: AnyCommand, args: list[bytes], took: int, now: int) -> None:
        """``args``, a ``command``, took so many ns, until ``now`` (ms)."""
        if self.counts is not None:
            counted = self.counts.get(command.name)
            if counted is None:
                counted = self.counts[command.name] = Histogram(STEP_TIMES, NS)
            counted.observe(took)
            if took < self._slow:
                return
        self._slowlog.add(now, took // 1000, without_password(command, args))
        event = b"fast-command" if "fast" in command.flags else b"command"
        self._latency.add(event, now, took // 1_000_000)
