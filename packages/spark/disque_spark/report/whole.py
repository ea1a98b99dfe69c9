"""What became of the jobs: each job is in exactly one group, and the groups sum up to all jobs."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from disque_spark.audit import trace as tr
from disque_spark.audit.redelivery import BY_CLIENTS
from disque_spark.audit.rules import (
    EXPIRED,
    EXPIRED_UNACKED,
    HELD,
    LOG_END,
    LOG_GAP,
    LOG_MISSING,
    LOST,
    NEVER_ACKED,
    NEVER_DELIVERED,
    NOT_REQUEUED,
    WAITING,
    WAITING_LETTER,
    WITH_WORKER,
)
from disque_spark.defaults import LEASE_QUEUES
from disque_trio.eventlog import schema

Numbers: TypeAlias = np.ndarray
UNSURE = (LOG_GAP, LOG_END, LOG_MISSING)


class Fate(NamedTuple):
    """A group of jobs.

    Attributes:
        label: in the legend.
        said: in a sentence, after a number; "" if it is said elsewhere.
    """

    label: str
    said: str = ""


# In the order of the bar. In the sentence, losses come first.
GROUPS = {
    "done": Fate("done"),
    "redriven": Fate("letters sent back (REDRIVE)"),
    "cancelled": Fate("cancelled or deleted", "cancelled or deleted"),
    "working": Fate("with a worker", "with a worker"),
    "waiting": Fate("waiting in a queue", "waiting"),
    "delayed": Fate("delayed or paused", "delayed or paused"),
    "unjudged": Fate("not judged: too young, or not confirmed", "not judged"),
    "leases": Fate("leases of Spark"),
    "letters": Fate("dead letters, waiting", "dead letters waiting"),
    "failed": Fate("failed for good", "failed for good"),
    "expired": Fate("expired", "expired"),
    "overdue": Fate("overdue: delivered, not acknowledged in time", "overdue"),
    "unclear": Fate("perhaps lost: the logs are not complete", "perhaps lost"),
    "lost": Fate("certainly lost", "certainly lost"),
}
_NAMES = list(GROUPS)
_SENTENCE = (
    *("lost", "unclear", "overdue", "expired", "failed", "letters", "waiting", "working"),
    *("delayed", "cancelled", "unjudged"),
)
# Jobs of these ends are over, whatever a finding says about them.
_ENDS = {
    schema.ACKED: "done",
    schema.DEAD: "failed",
    schema.CANCELLED: "cancelled",
    schema.EXPIRED: "expired",
}
# The groups of jobs with findings; of several, the last one counts.
_OF_KINDS = {
    WAITING_LETTER: "letters",
    WAITING: "waiting",
    EXPIRED: "expired",
    EXPIRED_UNACKED: "expired",
    NEVER_ACKED: "overdue",
    NOT_REQUEUED: "lost",
    WITH_WORKER: "lost",
    NEVER_DELIVERED: "lost",
}
_RANKS = ("letters", "waiting", "expired", "overdue", "unclear", "lost")
_MOVES = (tr.QUEUED, tr.DELIVERED, tr.WORKING, tr.PAUSED)
_BY_CLIENTS = [code for code, name in tr.NAMES.items() if name.partition(":")[2] in BY_CLIENTS]
_REDRIVEN = tr.CODES.get("acked:redrive", -1)
NEVER = np.iinfo(np.int64).max
NEEDED = ("id", "queue", "ended", "delay", "trace")


def group_of(kind: str, reason: str | None) -> str | None:
    """The group of an unfinished job with such a finding; None: the finding says nothing about
    that."""
    group = _OF_KINDS.get(kind)
    if group not in ("lost", "overdue"):
        return group
    if reason in UNSURE:
        return "unclear"
    if reason == HELD:  # a node's file has it; whether it is in a queue, only if it was never out
        return "waiting" if kind == NEVER_DELIVERED else "overdue"
    return "lost" if reason == LOST else group


class Whole:
    """Counts the jobs of each group.

    Args:
        findings: the table of findings, with ``job``, ``kind`` and ``reason``.

    Attributes:
        counts: the number of jobs in each group.
        oldest: for the groups whose jobs are in queues: since when (ms) the oldest one waits, and
            in which queue.
        young: the number of jobs that are not over, and about which nothing was found.
    """

    def __init__(self, findings: pa.Table) -> None:
        self.counts = dict.fromkeys(GROUPS, 0)
        self.oldest: dict[str, tuple[int, str | None]] = {}
        self.young = 0
        self._ids, self._groups = _placed(findings)
        self._found = pc.unique(findings.column("job"))

    def numbers(self, end: int) -> dict[str, Any]:
        """The counts, and their sum, ``jobs``. ``oldest`` has the queue of the job that waits
        longest, ``since`` when (ms), and its ``age`` (ms) at the ``end`` of the logs."""
        oldest = {
            name: {"queue": queue, "since": since, "age": max(end - since, 0)}
            for name, (since, queue) in self.oldest.items()
        }
        return {"jobs": sum(self.counts.values()), **self.counts, "oldest": oldest}

    def add(self, jobs: pa.RecordBatch) -> None:
        """Count some jobs, with the columns NEEDED."""
        groups, since = self.groups(jobs)
        still = jobs.column("id").filter(pc.is_null(jobs.column("ended")))
        self.young += len(still.filter(pc.invert(pc.is_in(still, value_set=self._found))))
        counts = np.bincount(groups, minlength=len(_NAMES)).tolist()
        for name, count in zip(_NAMES, counts, strict=True):
            self.counts[name] += count
        for name in ("waiting", "letters"):
            mine = np.where(groups == _NAMES.index(name), since, NEVER)
            if len(mine) and mine.min() < self.oldest.get(name, (NEVER, None))[0]:
                place = int(mine.argmin())
                self.oldest[name] = (int(mine[place]), jobs.column("queue")[place].as_py())

    def groups(self, jobs: pa.RecordBatch) -> tuple[Numbers, Numbers]:
        """The group of each job, as an index into GROUPS; and since when (ms) it is in a queue, or
        NEVER."""
        ended = jobs.column("ended")
        events, job, _ = tr.flat(jobs.column("trace"))
        codes = tr.codes(events)
        groups, since = _states(jobs, events, job, codes)
        deleted = pc.fill_null(pc.equal(ended, schema.DELETED), False).to_numpy(False)
        groups[deleted] = _NAMES.index("cancelled")
        known = pc.index_in(jobs.column("id"), value_set=self._ids)
        found = pc.is_valid(known).to_numpy(False)
        groups[found] = self._groups[pc.fill_null(known, 0).to_numpy()[found]]
        groups[deleted & _has(codes == tr.FASTACKED, job, len(groups))] = _NAMES.index("done")
        for how, name in _ENDS.items():
            groups[pc.fill_null(pc.equal(ended, how), False).to_numpy(False)] = _NAMES.index(name)
        groups[_has(codes == _REDRIVEN, job, len(groups))] = _NAMES.index("redriven")
        lease = pc.fill_null(pc.starts_with(jobs.column("queue"), LEASE_QUEUES), False)
        groups[lease.to_numpy(False)] = _NAMES.index("leases")
        return groups, since


def _placed(findings: pa.Table) -> tuple[pa.Array, Numbers]:
    """The jobs whose group follows from findings, and these groups, as indexes into GROUPS."""
    kinds = findings.group_by(["job", "kind", "reason"], use_threads=False).aggregate([])
    rank = np.full(len(kinds), -1)
    for row in kinds.group_by(["kind", "reason"], use_threads=False).aggregate([]).to_pylist():
        kind, reason = row["kind"], row["reason"]
        if (group := group_of(kind, reason)) is not None:
            same = pc.equal(pc.fill_null(kinds.column("reason"), ""), reason or "")
            chosen = pc.and_(pc.equal(kinds.column("kind"), kind), same)
            rank[chosen.to_numpy()] = _RANKS.index(group)
    best = pa.table({"job": kinds.column("job"), "rank": rank}).filter(pa.array(rank >= 0))
    best = best.group_by("job", use_threads=False).aggregate([("rank", "max")])
    places = np.array([_NAMES.index(name) for name in _RANKS])
    ids = pa.array(best.column("job").to_pylist(), pa.string())
    return ids, places[best.column("rank_max").to_numpy().astype(np.int64)]


def _has(which: Numbers, job: Numbers, count: int) -> Numbers:
    """For each of ``count`` jobs, whether it has one of the events."""
    return np.bincount(job[which], minlength=count) > 0


def _states(
    jobs: pa.RecordBatch, events: Numbers, job: Numbers, codes: Numbers
) -> tuple[Numbers, Numbers]:
    """Where each job is after its last event, and since when it is in a queue."""
    count = jobs.num_rows
    kinds, times = codes - codes % 10, tr.times(events)
    pairs, pair = np.unique(job << tr.NODE_BITS | tr.nodes(events), return_inverse=True)
    came, left = np.full(len(pairs), -1), np.full(len(pairs), -1)
    # Within one ms a job is first queued, then delivered; but clients can only put back what they
    # got before.
    enters, leaves = kinds == tr.QUEUED, np.isin(kinds, tr.LEAVES)
    np.maximum.at(came, pair[enters], 2 * times[enters] + np.isin(codes[enters], _BY_CLIENTS))
    np.maximum.at(left, pair[leaves], 2 * times[leaves])
    waits = came > left
    since = np.full(count, NEVER)
    np.minimum.at(since, pairs[waits] >> tr.NODE_BITS, came[waits] // 2)
    moves = np.isin(kinds, _MOVES)
    last = np.full(count, -1)
    np.maximum.at(last, job[moves], events[moves])
    kind = np.where(last < 0, -1, tr.codes(last) - tr.codes(last) % 10)
    delay = pc.fill_null(jobs.column("delay"), 0).to_numpy()
    queued = since != NEVER
    letter = _has(codes == tr.QUEUED_DEATH, job, count)
    rules = {
        "delayed": (kind == tr.PAUSED) | ((kind == -1) & (delay > 0)),
        "letters": queued & letter,
        "waiting": queued,
        "working": (kind == tr.DELIVERED) | (kind == tr.WORKING),
    }
    places = [_NAMES.index(name) for name in rules]
    return np.select(list(rules.values()), places, _NAMES.index("unjudged")), since


# ---- words --------------------------------------------------------------------------------------


def share(part: int, whole: int) -> str:
    """A part of a whole, in per cent: never 100 % if something is missing, never 0 % if not."""
    if not whole:
        return "-"
    tenths = 1000 * part // whole
    return "<0.1 %" if part and not tenths else f"{tenths / 10:.1f}".removesuffix(".0") + " %"


def headline(whole: Mapping[str, Any]) -> str:
    """What became of the jobs, in a sentence. Leases of Spark are none."""
    jobs = whole["jobs"] - whole["leases"]
    if not jobs:
        return "The logs have no jobs."
    noun = "job" if jobs == 1 else "jobs"
    parts = [f"{share(whole['done'], jobs)} of {jobs:,} {noun} done"]
    parts += [f"{whole[name]:,} {GROUPS[name].said}" for name in _SENTENCE if whole[name]]
    return "; ".join(parts) + "."


def bar(whole: Mapping[str, Any]) -> str:
    """A bar of what became of the jobs, with a legend, as HTML."""
    jobs = whole["jobs"] - whole["leases"]
    if not jobs:
        return ""
    shown = [group for group in GROUPS if whole[group] and group != "leases"]
    # Each part can be seen, however small it is; the large ones make room.
    widths = np.array([max(whole[group] / jobs, 0.006) for group in shown])
    ends = np.concatenate(([0.0], np.cumsum(100 * widths / widths.sum())))
    rects = "".join(
        f"<rect class=g-{group} x='{start:.2f}%' width='{end - start:.2f}%' height=28>"
        f"<title>{whole[group]:,} {GROUPS[group].label}</title></rect>"
        for group, start, end in zip(shown, ends, ends[1:], strict=False)
    )
    first = [group for group in ("done", *_SENTENCE) if group in shown]
    items = "".join(
        f"<li><svg class=key viewBox='0 0 10 10' aria-hidden=true><rect class=g-{group} width=10"
        f" height=10 /></svg><b>{whole[group]:,}</b> {GROUPS[group].label}"
        f" <span>{share(whole[group], jobs)}</span></li>"
        for group in [*first, *(group for group in shown if group not in first)]
    )
    return (
        "<figure class=whole><svg class=bar role=img aria-label='What became of the jobs:"
        f" {headline(whole)}'>{rects}</svg><ul class=legend>{items}</ul></figure>"
    )
