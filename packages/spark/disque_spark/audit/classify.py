"""Classifies the problems of one job by the rules of the audit."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from disque_spark.audit import trace as tr
from disque_spark.audit.evidence import Doubt, Logs
from disque_spark.audit.gaps import FOR_EVER
from disque_spark.audit.redelivery import BY_CLIENTS, Redeliveries
from disque_spark.audit.rules import (
    AFTER_ACK,
    DEAD,
    EXPIRED,
    EXPIRED_UNACKED,
    LOG_END,
    LOG_GAP,
    LOG_MISSING,
    NEVER_ACKED,
    NEVER_DELIVERED,
    NOT_REQUEUED,
    ONCE_TWICE,
    POISON,
    RESTART,
    TWICE,
    UNKNOWN_JOB,
    UNSEEN_ACK,
    WAITING,
    WAITING_LETTER,
    WITH_WORKER,
    Rules,
)
from disque_spark.audit.trace import Step
from disque_trio.eventlog import schema

_AS_ASKED = (schema.BY_NACK, schema.BY_ENQUEUE)  # why an at-most-once job may come twice


class Finding(NamedTuple):
    """A row of the table ``findings``; ``time`` is in ms, by the node's clock.

    ``would_decide`` has the ids of nodes whose missing logs, or missing parts of logs, would tell
    whether the finding is true.
    """

    kind: str
    reason: str | None
    job: str | None
    queue: str | None
    time: int | None
    nodes: list[str]
    detail: str
    would_decide: Sequence[str] = ()


_NONE = Doubt(None)
DELIVERED = "delivered "  # so the detail begins if the job was
DECIDE = "; the {logs} of {nodes} would decide"  # in the detail of a finding


class Classifier:
    """Finds what is wrong with one job, and why.

    Args:
        row: row of the table ``jobs``, with at least the columns NEEDED.
        rules: the thresholds.
        logs: what is known about the logs.

    Attributes:
        due: end of the logs (ms) from which on time alone may change the findings.
        waits: the finding that the job is in a queue at the end, of kind WAITING or
            WAITING_LETTER, whether it is one by the rules or not; None: it is not known to be in
            one. Its time is when the job came into the queue.
    """

    def __init__(self, row: dict[str, object], rules: Rules, logs: Logs) -> None:
        trace = row["trace"]
        assert isinstance(trace, list)
        self._row = row
        self._rules = rules
        self.due = FOR_EVER
        self.waits: Finding | None = None
        self._logs = logs
        self._nodes, self._offsets, self._end, self._gaps, self._doubt, ranks, self._cut = logs[:7]
        self._without_log = [gap.node for gap in self._gaps if gap.is_whole]
        self._no_line = self._anywhere()
        self._steps = unpacked = tr.unpack(trace, self._offsets, ranks)
        self._delivered = [step for step in unpacked if step.kind == tr.DELIVERED]

    def findings(self) -> Iterator[Finding]:
        """All findings about the job."""
        row = self._row
        yield from self._unfinished() if self._delivered else self._undelivered()
        died = [step for step in self._steps if step.kind == tr.DEAD]
        if died:
            why = next((step for step in died if step.code != tr.DEAD_PEER), died[0])
            lacking = self._no_line.nodes if why.code == tr.DEAD_PEER else ()
            doubt = Doubt(why.reason, lacking)
            yield self._finding(DEAD, why, self._delivered_how_often(), doubt)
        nacks = max(_int(row["nacks_said"]), _int(row["nacks"]))
        if nacks > self._rules.poison:
            said = [step for step in self._steps if step.kind == tr.NACKED]
            yield self._finding(POISON, (said or self._steps)[-1], f"{nacks} NACKs")
        yield from self._deliveries()

    def _undelivered(self) -> Iterator[Finding]:
        """Findings about a job that no log has delivered."""
        if self._cut and not any(step.kind in tr.BEGINS for step in self._steps):
            return  # it was added, and perhaps delivered, on a day that was dropped
        ended = self._row["ended"]
        done = [step for step in self._steps if step.kind == tr.ACKED or step.code == tr.FASTACKED]
        if done and not self._is_redriven():
            yield self._finding(UNSEEN_ACK, done[0], "", self._why_undelivered(done))
        if ended not in (None, schema.EXPIRED, schema.EVICTED):
            return
        said = [step for step in self._steps if step.kind in (tr.ADDED, tr.REPLICATED)]
        added = said[0] if said else self._steps[0]
        if not said and not self._is_origin_blind(added):
            # Copies of a job whose ADDJOB failed.
            return
        if ended == schema.EXPIRED:
            step = next(step for step in self._steps if step.kind == tr.EXPIRED)
            detail = f"after {self._row['ttl'] or '?'} s"
            doubt = self._blind(added, step.time) if said else self._no_line
            yield self._finding(EXPIRED, step, detail, doubt)
            return
        until = self._should_be_queued(added)
        pause = self._pause()
        if until is not None and pause is not None:
            until = self._over(pause, 0)
        doubt = self._no_line
        if until is not None and said:
            doubt = self._blind(added, until)
        is_letter = any(step.code == tr.QUEUED_DEATH for step in self._steps) and ended is None
        queued = self._in_queue() if pause is None else None
        if queued is not None and not is_letter and self._is_past_its_time():
            yield self._finding(EXPIRED, self._steps[-1], "its node was down at the time")
            return
        if queued is not None:
            kind = WAITING_LETTER if is_letter else WAITING
            self.waits = self._finding(kind, queued, "never delivered", self._restarted(queued))
            if not is_letter:
                yield from self._waits_too_long(queued)
                return
        if until is not None:
            found = self._lost(doubt)
            if is_letter:  # dead letters are meant to wait
                found = found._replace(kind=WAITING_LETTER)
            yield found

    def _is_redriven(self) -> bool:
        """Whether REDRIVE has ended the job: a new one has taken its place."""
        codes = [step.code for step in self._steps]
        # Nodes of older versions recorded it as an ACK by nobody.
        by_nobody = tr.ACKED_BY_NOBODY in codes and tr.QUEUED_DEATH in codes
        return tr.ACKED_REDRIVE in codes or by_nobody

    def _should_be_queued(self, added: Step) -> int | None:
        """See ``_over``: when a job that nobody got should have been in a queue."""
        since, seconds = added, _int(self._row["delay"])
        changes = [step for step in self._steps if step.kind == tr.UPDATED]
        if changes:
            since = changes[-1]  # perhaps of something else, but then this is only too late
        until = self._over(since, seconds)
        # A node that was told to delete it has nothing to do with it any more; others queue it
        # after its RETRY time.
        gone = [step for step in self._steps if step.code == tr.DELETED_COMMAND]
        if until is not None and gone:
            until = self._over(gone[-1], _int(self._row["retry"]))
        return until

    def _waits_too_long(self, queued: Step) -> Iterator[Finding]:
        """The finding about a job that waits since ``queued``, if that is too long."""
        limit = self._rules.waiting
        if limit and self.waits is not None and self._over(queued, limit) is not None:
            yield self.waits

    def _born(self) -> Step:
        """The event since when the time to live in the row counts."""
        changes = [step for step in self._steps if step.kind == tr.UPDATED]
        return changes[-1] if changes else self._steps[0]

    def _is_past_its_time(self) -> bool:
        """Whether the time to live of the job is over, although no node says so."""
        ttl = self._row["ttl"]
        return isinstance(ttl, int) and self._over(self._born(), ttl) is not None

    def _why_undelivered(self, done: list[Step]) -> Doubt:
        """Why a job may be done although no log has its delivery."""
        if all(step.kind in (tr.ACKED, tr.DELETED) for step in self._steps):
            return self._no_line if self._gaps else Doubt(UNKNOWN_JOB)
        return self._blind(self._steps[0], done[0].time + 1000 * self._rules.settled)

    def _over(self, since: Step, seconds: int) -> int | None:
        """The time (ms) by which something should have happened; None if it may still happen.

        That is ``seconds`` after ``since``, if that was long enough before the end of the log.
        """
        wait = 1000 * (seconds + self._rules.settled)
        if self._ends_by(since.time + self._offsets[since.node] + wait):
            return None
        return max(since.time + wait, self._settled())

    def _settled(self) -> int:
        """The time (ms) up to which the logs that have not ended say everything."""
        return self._end - 1000 * self._rules.settled - max(self._offsets, default=0)

    def _ends_by(self, time: int) -> bool:
        """Whether the logs end at ``time`` or before, so that later lines may change findings."""
        if time < self._end:
            return False
        self.due = min(self.due, time + 1)
        return True

    def _unfinished(self) -> Iterator[Finding]:
        """Findings about a job that was delivered, but is not known to be done."""
        first, last = self._delivered[0], self._delivered[-1]
        ends = [step for step in self._steps if step.kind in (*tr.DONE, tr.DELETED)]
        if self._row["ended"] != schema.DELETED:  # other nodes still have it
            ends = [step for step in ends if step.code != tr.DELETED_COMMAND]
        # A surplus copy is deleted before anybody gets the job. Or else a client had the job
        # deleted, at a node whose log does not say so.
        if any(step.code != tr.DELETED_PEER or step.time >= first.time for step in ends):
            return
        since = self._steps[0] if ends else first
        expired = [step for step in self._steps if step.kind == tr.EXPIRED]
        if expired:
            doubt = self._blind(since, expired[0].time + 1000 * self._rules.settled)
            yield self._finding(EXPIRED_UNACKED, expired[0], self._delivered_how_often(), doubt)
            return
        retry, patience = self._row["retry"], self._rules.patience
        moves = (tr.DELIVERED, tr.WORKING, tr.UPDATED)  # a change of RETRY counts from then on
        busy = [step for step in self._steps if step.kind in moves][-1]
        # A paused job is delivered after its pause; or if the node that knew of the pause is gone,
        # after one more RETRY time.
        pause = self._pause()
        busy = pause or busy
        waits = bool(self._queued())
        kind = NOT_REQUEUED if retry else WITH_WORKER
        until = None
        queued = self._in_queue() if pause is None else None
        limit = patience or self._rules.retries * _int(retry)
        waited = self._waited()
        if queued is not None:
            kind = NEVER_ACKED
            why, times = self._restarted(queued), self._delivered_how_often()
            self.waits = self._finding(WAITING, queued, times, why)
            if limit and queued.time - first.time - waited > 1000 * (limit + self._rules.settled):
                until = max(queued.time, self._settled())
        elif isinstance(retry, int) and not waits:
            until = self._over(busy, retry or patience)
        if queued is None and until is None and (retry != 0 or waits) and (not pause or patience):
            kind = NEVER_ACKED
            until = self._over(first._replace(time=first.time + waited), limit)
        ttl, born = self._row["ttl"], self._born()
        if (
            retry
            and isinstance(ttl, int)
            and born.time + 1000 * ttl < (busy.time + 1000 * _int(retry))
        ):
            # It expires before that; a node that was down at the time did not log it.
            kind = EXPIRED_UNACKED
            until = self._over(born, ttl)
        if until is None and queued is not None:
            yield from self._waits_too_long(queued)
        if until is not None:
            if queued is not None:
                self.waits = None
            doubt = self._blind(since, until) if isinstance(retry, int) else self._no_line
            yield self._finding(kind, last, self._delivered_how_often(), doubt)

    def _delivered_how_often(self) -> str:
        times = len(self._delivered)
        if not times:
            return "never delivered"
        text = DELIVERED + ("once" if times == 1 else f"{times} times")
        if self._row["ended"] == schema.EVICTED:
            text += "; evicted, because memory was short"
        return text + ("; RETRY 0, at most once" if self._row["retry"] == 0 else "")

    def _waited(self) -> int:
        """How long the job was in queues between its deliveries, ms."""
        waited, since = 0, -1
        for step in self._steps[self._steps.index(self._delivered[0]) :]:
            if step.kind == tr.QUEUED and since < 0:
                since = step.time
            elif step.kind == tr.DELIVERED and since >= 0:
                waited += step.time - since
                since = -1
        return waited

    def _in_queue(self) -> Step | None:
        """The event by which the job came into the queue that it is in at the end, if the log of
        that node says everything since then; of several, the oldest."""
        found = [step for step in self._queued().values() if self._is_told(step)]
        return min(found, default=None)

    def _restarted(self, since: Step) -> Doubt:
        """Why a job may not be any more in the queue into which it came then."""
        at = since.time + self._offsets[since.node]
        again = any(node == since.node and start > at for node, start in self._logs.starts)
        return Doubt(RESTART) if again else _NONE

    def _is_told(self, since: Step) -> bool:
        """Whether the log of the node says everything that happened there after ``since``."""
        ahead = self._offsets[since.node]
        for gap in self._gaps:
            if gap.node != since.node or gap.end < since.time + ahead:
                continue
            if gap.end != FOR_EVER:
                return False
            if gap.node in self._logs.live:
                continue
            # While the logs go on together, it has not ended.
            apart = max(self._offsets, default=0) - ahead + 1000 * self._rules.settled
            if self._ends_by(gap.start + apart):
                continue
            return False
        return True

    def _queued(self) -> dict[int, Step]:
        """The nodes that have the job in their queues at the end, and since when."""
        since: dict[int, Step] = {}
        for step in self._steps:
            if step.kind == tr.QUEUED:
                since[step.node] = step
            elif step.kind in tr.LEAVES:
                # Within one ms: clients can only put back what they got before.
                queued = since.get(step.node)
                if queued and (queued.time < step.time or queued.reason not in BY_CLIENTS):
                    del since[step.node]
        return since

    def _pause(self) -> Step | None:
        """The end of the pause that the job is in at the end; None: it is not paused."""
        moves = (tr.QUEUED, tr.DELIVERED, tr.WORKING, tr.PAUSED)
        last = [step for step in self._steps if step.kind in moves][-1:]
        until = self._row.get("until")
        if not last or last[0].kind != tr.PAUSED or not isinstance(until, int):
            return None
        # It is not known which node logged it last, so take the latest time it can be.
        return last[0]._replace(time=until - min(self._offsets, default=0))

    def _is_origin_blind(self, first: Step) -> bool:
        """Whether the node that made the job may have confirmed it without the log showing that.
        ``first`` is the first known event."""
        if first.kind not in (tr.COPIED, tr.IMPORTED):
            return True  # its beginning is missing
        places = self._origins()
        margin = 1000 * self._rules.settled
        return not places or any(
            gap.node in places
            and gap.start - margin <= first.time + self._offsets[gap.node] <= gap.end + margin
            for gap in self._gaps
        )

    def _blind(self, added: Step, until: int) -> Doubt:
        """Why the logs may lack a delivery of the job between ``added`` and ``until``."""
        seen = {step.node for step in self._steps}
        anywhere = self._may_be_anywhere()
        missing = [
            node for node in self._without_log if anywhere or node in self._origins_missing()
        ]
        if missing:
            return Doubt(LOG_MISSING, missing)
        silent: dict[str, list[int]] = {LOG_GAP: [], LOG_END: []}
        # For a job still to be delivered, this is the end of the log, so every gap counts.
        latest = until + 1000 * self._rules.settled
        latest += max(self._offsets, default=0) - min(self._offsets, default=0)
        for node, start, end in self._gaps:
            if node not in seen and not anywhere:
                continue
            if end == FOR_EVER:
                if start - self._offsets[node] < until:
                    silent[LOG_END].append(node)
                else:  # unless ``_over`` returns a later time one day
                    ahead = max(self._offsets, default=0) - self._offsets[node]
                    self._ends_by(start + ahead + 1000 * self._rules.settled)
            elif added.time <= end - self._offsets[node] and start - self._offsets[node] <= latest:
                silent[LOG_GAP].append(node)
        nodes = sorted({*silent[LOG_GAP], *silent[LOG_END]})
        return next((Doubt(reason, nodes) for reason in silent if silent[reason]), _NONE)

    def _may_be_anywhere(self) -> bool:
        """Whether the job is, or may have been, on a node whose log does not show it."""
        codes = [step.code for step in self._steps]
        holders = {step.node for step in self._steps if step.kind not in tr.WITHOUT_JOB}
        moves = [code for code in codes if code in (tr.EXPORTED, tr.IMPORTED)]
        return (
            codes.count(tr.EXPORTED) > codes.count(tr.IMPORTED)
            or moves[-1:] == [tr.EXPORTED]
            or len(holders) < _int(self._row["copies"])
            # A client ended it, but no log shows which node was told.
            or tr.DELETED_PEER in codes
            or (
                any(peer in codes for peer in tr.DONE_BY_PEER)
                and not any(code in codes for code in tr.DONE_HERE)
            )
        )

    def _anywhere(self) -> Doubt:
        """The doubt if a line must be missing, but it is unknown in which log."""
        if self._without_log:
            return Doubt(LOG_MISSING, self._without_log)
        return Doubt(LOG_GAP, sorted({gap.node for gap in self._gaps}))

    def _origins_missing(self) -> list[int]:
        """The nodes that may have made the job and whose logs are missing."""
        return [node for node in self._origins() if node in self._without_log]

    def _origins(self) -> list[int]:
        """The nodes that may have made the job: those whose ids begin as in the job's id."""
        origin = str(self._row["id"])[2:10]
        return [place for place, node in enumerate(self._nodes) if node.startswith(origin)]

    def _lost(self, doubt: Doubt) -> Finding:
        """The finding for a job that was never delivered."""
        last = self._steps[-1]
        name = tr.NAMES[last.code].strip(":").replace(":", ", ")
        detail = f"last event: {name}"
        if self._row["ended"] == schema.EVICTED:
            detail = "evicted, because memory was short"
        elif self._row["retry"] == 0:
            detail += "; RETRY 0, at most once"
        return self._finding(NEVER_DELIVERED, last, detail, doubt)

    def _deliveries(self) -> Iterator[Finding]:
        acks = [step for step in self._steps if step.code in tr.DONE_HERE]
        acks = acks or [step for step in self._steps if step.code in tr.DONE_BY_PEER]
        after = [step for step in self._delivered if acks and self._is_after(step, acks[0])]
        if after:
            gap = after[0].time - acks[0].time
            ended = {tr.DEAD: "became a dead letter", tr.CANCELLED: "was cancelled"}
            detail = f"{gap} ms after it {ended.get(acks[0].kind, 'was acknowledged')}"
            yield self._finding(AFTER_ACK, after[0], detail, Doubt(self._why_after(after)))
        late = set(after)
        reasons: dict[str, list[Step]] = {}
        row, tolerance = self._row, self._rules.tolerance
        no_line = str(self._no_line.reason)
        starts = [(node, at - self._offsets[node]) for node, at in self._logs.starts]
        again = Redeliveries(
            self._steps, tolerance, _int(row["retry"]), self._gaps, no_line, starts
        )
        once = row["retry"] == 0  # to be delivered once or never, also after its end
        for step, reason in again.deliveries():
            if step not in late or (once and reason not in _AS_ASKED):
                reasons.setdefault(reason, []).append(step)
        for reason, steps in reasons.items():
            kind = ONCE_TWICE if once and reason not in _AS_ASKED else TWICE
            times = "1 more delivery" if len(steps) == 1 else f"{len(steps)} more deliveries"
            yield self._finding(kind, steps[0], times, self._why_again(reason, steps))

    def _why_again(self, reason: str, deliveries: list[Step]) -> Doubt:
        if reason not in (LOG_GAP, LOG_MISSING):
            return Doubt(reason)
        where = {step.node for step in deliveries}
        silent = [node for node in self._no_line.nodes if node in where]
        return Doubt(reason, silent or self._no_line.nodes)

    def _why_after(self, deliveries: list[Step]) -> str | None:
        """Why a job was delivered after its acknowledgement. None: the node had not heard of it."""
        reason = None
        for delivery in deliveries:
            heard = [
                step
                for step in self._steps
                if step.node == delivery.node
                and step.kind in tr.DONE
                and step.time < delivery.time
                and not self._came(delivery.node, step.time, delivery.time)
            ]
            if not heard:
                continue  # the node had not heard of it
            if not self._is_silent(delivery.node, heard[-1].time, delivery.time):
                return "heard"
            reason = RESTART  # the node died, and its append-only file did not have the end
        return reason

    def _came(self, node: int, start: int, end: int) -> bool:
        """Whether ``node`` got the job again in between, from a node that had not heard of it."""
        return any(
            step.node == node and step.kind in (tr.COPIED, tr.IMPORTED) and start < step.time <= end
            for step in self._steps
        )

    def _is_silent(self, node: int, start: int, end: int) -> bool:
        """Whether the log of ``node`` has a gap between two times (ms)."""
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

    def _finding(self, kind: str, step: Step, detail: str, doubt: Doubt = _NONE) -> Finding:
        seen = {step.node for step in self._steps if step.kind in (tr.QUEUED, tr.DELIVERED)}
        would_decide = sorted(self._nodes[node] for node in doubt.nodes)
        if would_decide:
            logs = "logs" if len(would_decide) > 1 else "log"
            who = ", ".join(node[:8] for node in would_decide)
            detail = f"{detail}{DECIDE.format(logs=logs, nodes=who)}".removeprefix("; ")
        return Finding(
            kind,
            doubt.reason,
            str(self._row["id"]),
            None if self._row["queue"] is None else str(self._row["queue"]),
            step.time + self._offsets[step.node],
            sorted(self._nodes[node] for node in seen),
            detail,
            would_decide,
        )


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0
