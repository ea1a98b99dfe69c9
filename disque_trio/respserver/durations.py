"""Passes the durations of commands to SLOWLOG, to LATENCY, and to those who count them all."""

from collections.abc import Mapping

from disque_trio.histogram import NS, STEP_TIMES, Histogram
from disque_trio.respserver.command import AnyCommand
from disque_trio.respserver.latency import LatencyMonitor
from disque_trio.respserver.memory import UNLIMITED
from disque_trio.respserver.monitor import without_password
from disque_trio.respserver.slowlog import SlowLog


class Durations:
    """The durations of commands, as far as anybody wants to know them.

    Attributes:
        least: duration from which on it has to be noted, in ns.
        counts: all durations by command name; None: nobody counts them.
    """

    __slots__ = ("_commands", "_latency", "_slow", "_slowlog", "counts", "least")

    def __init__(
        self, slowlog: SlowLog, latency: LatencyMonitor, commands: Mapping[bytes, AnyCommand]
    ) -> None:
        self.least = UNLIMITED
        self.counts: dict[str, Histogram] | None = None
        self._slow = UNLIMITED  # ns from which on SLOWLOG or LATENCY wants it
        self._slowlog = slowlog
        self._latency = latency
        self._commands = commands

    def watch(self, slower_than: int, threshold: int) -> None:
        """Set the thresholds: commands of ``slower_than`` µs or more go into the slow log
        (negative: none), events of ``threshold`` ms or more into the latency monitor (0: none)."""
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
        """Note that ``args``, a ``command``, took ``took`` ns, until ``now`` (ms)."""
        if self.counts is not None:
            counted = self.counts.get(command.name)
            if counted is None:
                counted = self.counts[command.name] = Histogram(STEP_TIMES, NS)
            counted.observe(took)
            if took < self._slow:
                return
        self._slowlog.add(now, took // 1000, without_password(command, args, self._commands))
        event = b"fast-command" if "fast" in command.flags else b"command"
        self._latency.add(event, now, took // 1_000_000)
