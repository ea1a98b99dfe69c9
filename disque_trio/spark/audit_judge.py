"""What is wrong with one job, and why: the rules of the audit."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from disque_trio.spark import audit_trace as tr
from disque_trio.spark.audit_gaps import FOR_EVER, Gap
from disque_trio.spark.audit_trace import Step

NEVER_DELIVERED = "never-delivered"
AFTER_ACK = "delivered-after-ack"
TWICE = "delivered-twice"
EXPIRED = "expired-undelivered"
POISON = "poison"
CLOCK_SKEW = "clock-skew"
KINDS = (NEVER_DELIVERED, AFTER_ACK, TWICE, EXPIRED, POISON, CLOCK_SKEW)

# Reasons of never-delivered and expired-undelivered.
LOG_GAP = "log-gap"
LOG_END = "log-end"
# Reasons of never-delivered, by append-only files: a node has it, and would deliver it; no node.
HELD = "held"
LOST = "lost"
# Why a job that was in a queue comes into one again.
_BY_CLIENTS = ("nack", "enqueue")
_AGAIN = ("retry", *_BY_CLIENTS)


@dataclass(frozen=True)
class Rules:
    """From where on something is a finding.

    Attributes:
        settled: seconds before the end of the log after which a job is not young any more.
        poison: more NACKs than this.
        skew: ms that the clocks of two nodes may be apart.
        tolerance: ms by which times of two nodes have to differ to say what was first.
    """

    settled: int = 60
    poison: int = 3
    skew: int = 500
    tolerance: int = 100


class Finding(NamedTuple):
    """A row of the table; ``time`` in ms by the clock of the node."""

    kind: str
    reason: str | None
    job: str | None
    queue: str | None
    time: int | None
    nodes: list[str]
    detail: str


class Judge:
    """What is wrong with one job.

    Args:
        row: of the jobs table, with at least the columns NEEDED.
        nodes, offsets, end, gaps, doubt: see `found_in`.
    """

    def __init__(
        self,
        row: dict[str, object],
        rules: Rules,
        nodes: Sequence[str],
        offsets: Sequence[int],
        end: int,
        gaps: Sequence[Gap] = (),
        doubt: Sequence[Sequence[int]] = (),
    ) -> None:
        trace = row["trace"]
        assert isinstance(trace, list)
        self._row = row
        self._rules = rules
        self._nodes = nodes
        self._offsets = offsets
        self._end = end
        self._gaps = gaps
        self._doubt = doubt
        self._steps = unpacked = tr.unpack(trace, offsets)
        self._delivered = [step for step in unpacked if step.kind == tr.DELIVERED]

    def findings(self) -> Iterator[Finding]:
        """All of it."""
        row = self._row
        if not self._delivered:
            yield from self._undelivered()
        nacks = max(_int(row["nacks_said"]), _int(row["nacks"]))
        if nacks > self._rules.poison:
            said = [step for step in self._steps if step.kind == tr.NACKED]
            yield self._finding(POISON, (said or self._steps)[-1], f"{nacks} times said NACK")
        yield from self._deliveries()

    def _undelivered(self) -> Iterator[Finding]:
        """A job that no node says it delivered."""
        ended = self._row["ended"]
        if ended not in (None, "expired", "evicted"):
            return
        said = [step for step in self._steps if step.kind in (tr.ADDED, tr.REPLICATED)]
        added = said[0] if said else self._steps[0]
        if not said and not self._is_origin_blind(added):
            # Some copies of a job of which the producer was told that it could not be had.
            return
        if ended == "expired":
            step = next(step for step in self._steps if step.kind == tr.EXPIRED)
            detail = f"after {self._row['ttl'] or '?'} s"
            reason = self._blind(added, step.time) if said else LOG_GAP
            yield self._finding(EXPIRED, step, detail, reason)
            return
        wait = 1000 * (_int(self._row["delay"]) + self._rules.settled)
        if added.time + self._offsets[added.node] + wait < self._end:
            settled = self._end - 1000 * self._rules.settled
            until = max(added.time + wait, settled - max(self._offsets, default=0))
            yield self._lost(self._blind(added, until) if said else LOG_GAP)

    def _is_origin_blind(self, first: Step) -> bool:
        """Whether the node that made the job may have told its producer without the log's saying
        so. ``first`` is what is known of it first."""
        if first.kind not in (tr.COPIED, tr.IMPORTED):
            return True  # it came from nowhere: the beginning is missing
        origin = str(self._row["id"])[2:10]
        places = [place for place, node in enumerate(self._nodes) if node.startswith(origin)]
        margin = 1000 * self._rules.settled
        return not places or any(
            gap.node in places
            and gap.start - margin <= first.time + self._offsets[gap.node] <= gap.end + margin
            for gap in self._gaps
        )

    def _blind(self, added: Step, until: int) -> str | None:
        """Why the log may not say it if the job was delivered between its adding and ``until``:
        None: it would."""
        seen = {step.node for step in self._steps}
        # It is, or may have got, where the log does not say so.
        anywhere = (
            self._steps[-1].kind == tr.EXPORTED
            or len(seen) < _int(self._row["copies"])
            # A client had it deleted, and who was told so does not say it.
            or any(step.code == tr.DELETED_PEER for step in self._steps)
        )
        reason = None
        for node, start, end in self._gaps:
            if node not in seen and not anywhere:
                continue
            if end == FOR_EVER:
                if start - self._offsets[node] < until:
                    reason = reason or LOG_END
            elif end - self._offsets[node] >= added.time:
                reason = LOG_GAP
        return reason

    def _lost(self, reason: str | None) -> Finding:
        last = self._steps[-1]
        name = tr.NAMES[last.code].strip(":").replace(":", ", ")
        detail = f"last heard of: {name}"
        if self._row["ended"] == "evicted":
            detail = "evicted, since memory was short"
        elif self._row["retry"] == 0:
            detail += "; RETRY 0, at most once"
        return self._finding(NEVER_DELIVERED, last, detail, reason)

    def _deliveries(self) -> Iterator[Finding]:
        acks = [step for step in self._steps if step.code == tr.ACKED]
        acks = acks or [step for step in self._steps if step.code == tr.ACKED_PEER]
        after = [step for step in self._delivered if acks and self._is_after(step, acks[0])]
        if after:
            gap = after[0].time - acks[0].time
            detail = f"{gap} ms after it was acknowledged"
            yield self._finding(AFTER_ACK, after[0], detail, self._why_after(after))
        late = set(after)
        reasons: dict[str, list[Step]] = {}
        for step, reason in self._again():
            if step not in late:
                reasons.setdefault(reason, []).append(step)
        for reason, steps in reasons.items():
            times = "once more" if len(steps) == 1 else f"{len(steps)} times more"
            yield self._finding(TWICE, steps[0], times, reason)

    def _why_after(self, deliveries: list[Step]) -> str | None:
        """How it may be that a job was delivered after it was acknowledged. None: the node had not
        heard of that."""
        reason = None
        for delivery in deliveries:
            heard = [
                step
                for step in self._steps
                if step.node == delivery.node
                and step.kind == tr.ACKED
                and step.time < delivery.time
                and not self._came(delivery.node, step.time, delivery.time)
            ]
            if not heard:
                continue  # word of it had not come so far
            if not self._is_silent(delivery.node, heard[-1].time, delivery.time):
                return "heard"
            reason = "restart"  # the node has died, and its file did not have the end of the job
        return reason

    def _came(self, node: int, start: int, end: int) -> bool:
        """Whether another node, which had not heard, gave the job to ``node`` in between."""
        return any(
            step.node == node and step.kind in (tr.COPIED, tr.IMPORTED) and start < step.time <= end
            for step in self._steps
        )

    def _is_silent(self, node: int, start: int, end: int) -> bool:
        """Whether the log of ``node`` has a gap between two moments."""
        ahead = self._offsets[node]
        return any(
            gap.node == node and gap.start < end + ahead and start + ahead <= gap.end
            for gap in self._gaps
        )

    def _is_after(self, step: Step, ack: Step) -> bool:
        if step.node == ack.node:
            return step.time > ack.time
        doubt = self._doubt[ack.node][step.node] if self._doubt else 0
        return step.time > ack.time + max(self._rules.tolerance, doubt)

    def _again(self) -> Iterator[tuple[Step, str]]:
        """The deliveries but for the first one, and why each happened."""
        if len(self._delivered) < 2:
            return
        entries = self._entries()
        roots = {at: self._root(entries, at) for at in entries.delivered}
        first, *others = sorted(roots, key=lambda at: self._steps[at].time)
        near = self._steps[first].time + self._rules.tolerance
        for at in others:
            # Clocks may not tell which was first, but what came by its adding was.
            if _is_new(roots[at]) and not _is_new(roots[first]) and self._steps[at].time <= near:
                first = at
        before = self._steps[first]
        for at in sorted(roots, key=lambda at: self._steps[at].time):
            if at != first:
                step = self._steps[at]
                yield step, self._why(roots[at], step, before, entries)
                before = step

    def _entries(self) -> "_Entries":
        """By which entry into a queue the job came to be delivered, or exported, each time."""
        waiting: dict[int, list[Step]] = {}
        found = _Entries([], {}, [])
        for at, step in enumerate(self._steps):
            here = waiting.setdefault(step.node, [])
            if step.kind == tr.QUEUED:
                place = len(here)
                if step.reason not in _BY_CLIENTS:
                    # Of one ms: what clients put back they had got before.
                    while place and here[place - 1].time == step.time:
                        if here[place - 1].reason not in _BY_CLIENTS:
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
        """The entry that a delivery goes back to, over all nodes that gave the job on."""
        entry = entries.delivered[at]
        if entry is None or entry.reason != "import":
            return entry
        exported = list(entries.exported)
        while entry is not None and entry.reason == "import":
            latest = entry.time + self._rules.tolerance
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
        """Why a job is delivered again in ``step``, which goes back to ``root``, after it was
        delivered ``before``."""
        if root is None:
            blind = any(gap.node == step.node for gap in self._gaps)
            return LOG_GAP if blind else "restart"  # nothing but the node's own files did it
        if _is_new(root):
            return "partition"  # it was in two queues
        if root.reason == "import":
            start = bisect_left(entries.queued, before.time, key=_time)
            end = bisect_left(entries.queued, step.time, key=_time)
            window = entries.queued[start:end]
            again = [entry.reason for entry in window if entry.reason in _AGAIN]
            if again:
                return again[-1]
            return LOG_GAP if self._gaps else "partition"
        if root.reason != "retry":
            return root.reason or "unknown"
        if root.node != before.node and root.time < before.time:
            return "partition"
        # A node that hears of the other's queueing waits for a whole retry time.
        soon = root.time - 500 * _int(self._row["retry"])
        start = bisect_right(entries.queued, soon, key=_time)
        end = bisect_left(entries.queued, root.time, key=_time)
        for other in entries.queued[start:end]:
            if other.node != root.node and other.reason == "retry":
                return "partition"
        return "retry"

    def _finding(self, kind: str, step: Step, detail: str, reason: str | None = None) -> Finding:
        seen = sorted({step.node for step in self._steps if step.kind in (tr.QUEUED, tr.DELIVERED)})
        return Finding(
            kind,
            reason,
            str(self._row["id"]),
            None if self._row["queue"] is None else str(self._row["queue"]),
            step.time + self._offsets[step.node],
            [self._nodes[node] for node in seen],
            detail,
        )


def _taken(waiting: list[Step], step: Step) -> Step | None:
    """The entry by which the job was in the queue until ``step``; None: nobody says. It leaves
    ``waiting``, and so do older ones: a job is in a queue once, so their end is not in the log."""
    # Of what happened within one ms nobody knows the order; the job may be in the queue again.
    count = sum(entry.time < step.time for entry in waiting) or min(len(waiting), 1)
    taken = waiting[count - 1] if count else None
    del waiting[:count]
    return taken


class _Entries(NamedTuple):
    """Attributes:
    queued: entries into queues.
    delivered: by which entry the job was in the queue at each delivery, the place of which in
        the steps is the key. None: nobody says.
    exported: likewise when it was given to another node.
    """

    queued: list[Step]
    delivered: dict[int, Step | None]
    exported: list[tuple[Step, Step | None]]


def _time(step: Step) -> int:
    return step.time


def _is_new(entry: Step | None) -> bool:
    """Whether the job came into the queue because it was added."""
    return entry is not None and entry.reason in ("add", "delay")


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
