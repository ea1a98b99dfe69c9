"""Explains why a job was delivered more than once: matches deliveries to entries into queues."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from disque_spark.audit import trace as tr
from disque_spark.audit.gaps import Gap
from disque_spark.audit.rules import LINE_TWICE, LOG_GAP, RESTART, UNKNOWN
from disque_spark.audit.trace import Step
from disque_trio.eventlog.schema import (
    BY_ADD,
    BY_DEATH,
    BY_DELAY,
    BY_DISCONNECT,
    BY_ENQUEUE,
    BY_IMPORT,
    BY_NACK,
    BY_REDRIVE,
    BY_RETRY,
)

_time = attrgetter("time")
# Reasons for which a job is queued again.
BY_CLIENTS: Sequence[str] = (BY_NACK, BY_ENQUEUE, BY_DISCONNECT)
_AGAIN = (BY_RETRY, BY_REDRIVE, *BY_CLIENTS)


class Redeliveries:
    """Finds the reason of each delivery of a job after the first.

    Args:
        steps: all events of the job, in order.
        tolerance: see ``Rules``.
        retry: the job's RETRY, s.
        gaps: periods that the logs do not cover.
        no_line: the reason to give if a line must be missing.
        starts: the nodes that were started, and when (ms), with correct clocks.
    """

    def __init__(
        self,
        steps: list[Step],
        tolerance: int,
        retry: int,
        gaps: Sequence[Gap],
        no_line: str,
        starts: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._steps = steps
        self._tolerance = tolerance
        self._retry = retry
        self._gaps = gaps
        self._no_line = no_line
        self._starts = starts

    def deliveries(self) -> Iterator[tuple[Step, str]]:
        """Yield the deliveries after the first one, and the reason of each."""
        if sum(step.kind == tr.DELIVERED for step in self._steps) < 2:
            return
        entries = self._entries()
        roots = {at: self._root(entries, at) for at in entries.delivered}
        first, *others = sorted(roots, key=lambda at: self._steps[at].time)
        near = self._steps[first].time + self._tolerance
        for at in others:
            # The clocks may not tell which was first, but a delivery of the added job was.
            if _is_new(roots[at]) and not _is_new(roots[first]) and self._steps[at].time <= near:
                first = at
        before = self._steps[first]
        for at in sorted(roots, key=lambda at: self._steps[at].time):
            if at != first:
                step = self._steps[at]
                yield step, self._why(roots[at], step, before, entries)
                before = step

    def _entries(self) -> "_Entries":
        """Match each delivery and export with the entry into a queue that led to it."""
        waiting: dict[int, list[Step]] = {}
        found = _Entries([], {}, [])
        for at, step in enumerate(self._steps):
            here = waiting.setdefault(step.node, [])
            if step.kind == tr.QUEUED:
                place = len(here)
                if step.reason not in BY_CLIENTS:
                    # Within one ms: clients can only put back what they got before.
                    while place and here[place - 1].time == step.time:
                        if here[place - 1].reason not in BY_CLIENTS:
                            break
                        place -= 1
                here.insert(place, step)
                found.queued.append(step)
            elif step.kind == tr.DELIVERED:
                found.delivered[at] = _taken(here, step)
            elif step.kind == tr.EXPORTED:
                found.exported.append((step, _taken(here, step)))
            elif step.kind == tr.DEQUEUED:
                _taken(here, step)
            elif step.kind in tr.LEAVES:
                here.clear()
        return found

    def _root(self, entries: "_Entries", at: int) -> Step | None:
        """The entry that a delivery goes back to, across all nodes that passed the job on."""
        entry = entries.delivered[at]
        if entry is None or entry.reason != BY_IMPORT:
            return entry
        exported = list(entries.exported)
        while entry is not None and entry.reason == BY_IMPORT:
            latest = entry.time + self._tolerance
            given = [
                number
                for number, (step, _) in enumerate(exported)
                if step.node != entry.node and step.time <= latest
            ]
            if not given:
                return entry
            _, source = exported.pop(given[-1])
            if source is None:
                return entry
            entry = source
        return entry

    def _why(self, root: Step | None, step: Step, before: Step, entries: "_Entries") -> str:
        """Why a job was delivered again in ``step``, which goes back to ``root``, after the
        delivery ``before``."""
        if (root is None or _is_new(root)) and self._steps.count(step) > 1:
            return LINE_TWICE  # a node cannot do that within one ms
        if root is None:
            if any(gap.node == step.node for gap in self._gaps):
                return LOG_GAP
            # Only the node's own file can have done it, which it reads when it starts.
            restarted = any(
                node == step.node and before.time <= at <= step.time for node, at in self._starts
            )
            return RESTART if restarted else UNKNOWN
        if _is_new(root):
            return "partition"  # it was in two queues
        if root.reason == BY_IMPORT:
            start = bisect_left(entries.queued, before.time, key=_time)
            end = bisect_left(entries.queued, step.time, key=_time)
            window = entries.queued[start:end]
            again = [entry.reason for entry in window if entry.reason in _AGAIN]
            if again:
                return again[-1]
            return self._no_line if self._gaps else "partition"
        if root.reason != BY_RETRY:
            return root.reason or UNKNOWN
        if root.node != before.node and root.time < before.time:
            return "partition"
        # A node that hears that another one has queued the job waits for a whole retry time.
        soon = root.time - 500 * self._retry
        start = bisect_right(entries.queued, soon, key=_time)
        end = bisect_left(entries.queued, root.time, key=_time)
        for other in entries.queued[start:end]:
            if other.node != root.node and other.reason == BY_RETRY:
                return "partition"
        return "retry"


def _taken(waiting: list[Step], step: Step) -> Step | None:
    """The entry by which the job was in the queue until ``step``; None: unknown. Removes it from
    ``waiting``, and also older ones: a job is in a queue only once, so their end is missing in the
    log."""
    # The order of events within one ms is unknown; the job may already be in the queue again.
    count = sum(entry.time < step.time for entry in waiting) or min(len(waiting), 1)
    taken = waiting[count - 1] if count else None
    del waiting[:count]
    return taken


class _Entries(NamedTuple):
    """Entries of a job into queues.

    Attributes:
        queued: all entries.
        delivered: the entry that led to each delivery, by the delivery's index in the steps; None:
            unknown.
        exported: exports to other nodes, with the entry that led to each; None: unknown.
    """

    queued: list[Step]
    delivered: dict[int, Step | None]
    exported: list[tuple[Step, Step | None]]


def _is_new(entry: Step | None) -> bool:
    """Whether the job entered the queue because it was added."""
    return entry is not None and entry.reason in (BY_ADD, BY_DELAY, BY_DEATH)
