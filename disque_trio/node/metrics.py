"""The figures of a node for Prometheus: jobs, queues, jobs on disk, cluster, event log.

The figures of each queue, and those that require a look at all jobs, are collected in steps of some
tens of microseconds, while jobs and queues come and go.
"""

import time
from collections.abc import Callable, Iterator
from itertools import islice

from disque_trio.cluster.cluster import Cluster
from disque_trio.eventlog.recorder import EventLog
from disque_trio.histogram import Histogram
from disque_trio.metrics.labels import escape, label_value
from disque_trio.metrics.sheet import Family, Sheet, pairs
from disque_trio.node.core.changes.state_counts import (
    COPY,
    IN_QUEUE,
    LATER,
    RETRYING,
    STATES,
    JobStateCounts,
)
from disque_trio.node.core.jobs.counts import JobCounts, QueueCounts
from disque_trio.node.core.node import Node
from disque_trio.node.core.pages.pages import Pages
from disque_trio.node.core.queues.limits import BY_ACTIVE, BY_GROUPS, BY_RATE
from disque_trio.node.core.queues.queue import PAUSED_IN, PAUSED_OUT, Queue
from disque_trio.respserver.io.stats import Stats

_JOBS_A_STEP = 256
_QUEUES_A_STEP = 64
_QUICK = 0.01  # s; a walk over all jobs that takes longer ...
_REST = 20  # ... is repeated only after this multiple of its duration
_COUNTERS = (
    ("added", "Jobs added at this node."),
    ("delivered", "Deliveries to clients of this node."),
    ("acked", "Jobs acknowledged by clients of this node."),
    ("requeued", "Times that jobs were requeued."),
    ("nacked", "Deliveries returned with NACK."),
    ("expired", "Jobs that expired unprocessed."),
    ("evicted", "Jobs evicted to free memory."),
    ("dead", "Jobs that became dead letters."),
    ("cancelled", "Jobs cancelled by clients of this node."),
)
_QUEUE_STATES = ("queued", "active", "delayed", "dead")


class Walk:
    """A walk over all jobs.

    Args:
        clock: returns seconds.

    Attributes:
        states: how many jobs are in which state.
        queues: the counts of each queue that is shown; those of all others under the empty name.
        ended: when it ended, in s; cost: how long it took, in s.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.states = dict.fromkeys(STATES, 0)
        self.queues: dict[bytes, JobStateCounts] = {}
        self.ended = 0.0
        self.cost = 0.0
        self._clock = clock

    def take(self, node: Node, counts: JobCounts) -> Iterator[None]:
        """Look at all jobs of ``node``, some at a time."""
        counter = node.scatter_gather.state_counter
        for index in range(len(node.store.jobs.shards)):
            jobs = list(node.store.jobs.shards[index].values())
            for first in range(0, len(jobs), _JOBS_A_STEP):
                began = self._clock()
                for job in jobs[first : first + _JOBS_A_STEP]:
                    name = b"" if counts.of(job.queue) is counts.rest else job.queue
                    tally = self.queues.get(name)
                    if tally is None:
                        tally = self.queues[name] = JobStateCounts()
                    self.states[counter.count(tally, job)] += 1
                self.cost += self._clock() - began
                yield
        self._take_from_disk(node, counts)
        self.ended = self._clock()

    def _take_from_disk(self, node: Node, counts: JobCounts) -> None:
        """Count the jobs that lie on disk."""
        aside = node.paging.aside
        self.states[IN_QUEUE] += node.paging.pages.jobs - aside.lines.live
        later = aside.later()
        for queue, number in later.items():
            name = b"" if counts.of(queue) is counts.rest else queue
            self.queues.setdefault(name, JobStateCounts()).delayed += number
        for queue, number in aside.retried().items():
            name = b"" if counts.of(queue) is counts.rest else queue
            self.queues.setdefault(name, JobStateCounts()).waiting += number
        for queue, number in node.paging.views.dead().items():
            name = b"" if counts.of(queue) is counts.rest else queue
            self.queues.setdefault(name, JobStateCounts()).dead += number
        delayed = sum(later.values())
        self.states[LATER] += delayed
        alone = node.paging.pages.number_retried(True)
        self.states[RETRYING] += alone
        self.states[COPY] += aside.lines.live - delayed - alone

    def free(self) -> Iterator[None]:
        """Free it bit by bit: freeing thousands of objects takes a millisecond."""
        while self.queues:
            for name in list(islice(self.queues, _QUEUES_A_STEP)):
                del self.queues[name]
            yield


class _QueueFigures:
    """The figures of a queue, or of several.

    Attributes:
        length, waiters: sums.
        oldest: when the oldest queued job was made, in ms times a million; 0: there is none.
        paused: bits of all.
    """

    __slots__ = ("length", "oldest", "paused", "waiters")

    def __init__(self) -> None:
        self.length = 0
        self.waiters = 0
        self.oldest = 0
        self.paused = 0

    def add(self, queue: Queue) -> Iterator[None]:
        """Add those of ``queue``, which may have very many groups."""
        self.length += queue.length
        self.waiters += len(queue.waiters)
        self.paused |= queue.paused
        self._see(queue.oldest_in_no_group())
        if queue.groups is not None:
            groups = queue.groups.queues()
            for index, group in enumerate(groups):
                self._see(group.oldest_in_no_group())
                if index % _QUEUES_A_STEP == 0:
                    yield

    def _see(self, ctime: int) -> None:
        if ctime and (not self.oldest or ctime < self.oldest):
            self.oldest = ctime


class _QueueFamilies:
    """The families with one or more lines for each queue."""

    def __init__(self, sheet: Sheet) -> None:
        self._jobs = sheet.gauge("disque_queue_jobs", "Jobs of the queue, by state.")
        self._age = sheet.gauge(
            "disque_queue_oldest_job_age_seconds", "Age of the oldest queued job of the queue."
        )
        self._paused = sheet.gauge(
            "disque_queue_paused", "Whether the queue is paused, by direction (1 for yes)."
        )
        self._blocked = sheet.gauge(
            "disque_queue_blocked_clients", "Clients waiting for jobs of the queue."
        )
        self._counters: list[tuple[str, Family]] = [
            (name, sheet.counter(f"disque_jobs_{name}_total", text)) for name, text in _COUNTERS
        ]
        self._wait = sheet.histogram(
            "disque_job_wait_seconds", "Time from queueing a job to its delivery."
        )
        self._processing = sheet.histogram(
            "disque_job_processing_seconds",
            "Time from the delivery of a job to its acknowledgement at this node.",
        )

    def add(
        self, name: str, queue: _QueueFigures, tally: JobStateCounts, counts: QueueCounts, now: int
    ) -> None:
        """Add the lines of a queue, or of several, with the label ``name``."""
        label = f'queue="{escape(name)}"'
        labels = self._jobs.labels(label)
        numbers = (queue.length, tally.in_hand, tally.delayed, tally.dead)
        self._jobs.write(
            "".join(
                [
                    f'disque_queue_jobs{{{labels},state="{state}"}} {number}\n'
                    for state, number in zip(_QUEUE_STATES, numbers, strict=True)
                ]
            )
        )
        age = max(now - queue.oldest // 1_000_000, 0) / 1000 if queue.oldest else 0
        self._age.add(age, label)
        self._paused.add(int(queue.paused & PAUSED_IN > 0), f'{label},direction="in"')
        self._paused.add(int(queue.paused & PAUSED_OUT > 0), f'{label},direction="out"')
        self._blocked.add(queue.waiters, label)
        for attribute, family in self._counters:
            family.add(getattr(counts, attribute), label)
        self._add_histogram(self._wait, counts.wait, label)
        self._add_histogram(self._processing, counts.processing, label)

    def _add_histogram(self, family: Family, histogram: Histogram | None, label: str) -> None:
        if histogram is not None:
            family.add_histogram(histogram, label)


class JobFigures:
    """The figures of the jobs and queues of a node.

    Args:
        counts: of what happens to jobs.
        clock: returns seconds.
    """

    def __init__(
        self, node: Node, counts: JobCounts, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._node = node
        self._counts = counts
        self._clock = clock
        self._walk: Walk | None = None

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Write the figures to ``sheet``, in short steps."""
        self._about_node(sheet)
        yield
        walk = self._walk
        if walk is None or not self._will_do(walk):
            last, walk = walk, Walk(self._clock)
            yield from walk.take(self._node, self._counts)
            self._walk = walk
            if last is not None:
                yield from last.free()
        jobs = sheet.gauge("disque_jobs", "Jobs that the node holds, by state.")
        for state, number in walk.states.items():
            jobs.add(number, pairs({"state": state}))
        sheet.gauge(
            "disque_jobs_counted_age_seconds",
            "Time since jobs were last counted by state.",
            self._clock() - walk.ended,
        )
        yield from self._queues(sheet, walk)
        yield from self._tidy(walk)

    def _will_do(self, walk: Walk) -> bool:
        """Whether ``walk``, which is over, is still recent enough."""
        return walk.cost > _QUICK and self._clock() - walk.ended < _REST * walk.cost

    def _queues(self, sheet: Sheet, walk: Walk) -> Iterator[None]:
        node, counts = self._node, self._counts
        families = _QueueFamilies(sheet)
        index = node.queues.index
        rest = _QueueFigures()
        added_up = 0
        held = dict.fromkeys((BY_RATE, BY_ACTIVE, BY_GROUPS), 0)
        shown: set[bytes] = set()
        for number in range(len(index.shards)):
            for queue in list(index.shards[number].values()):
                own = counts.of(queue.name)
                if own is counts.rest:
                    added_up += 1
                    yield from rest.add(queue)
                else:
                    figures = _QueueFigures()
                    yield from figures.add(queue)
                    tally = walk.queues.get(queue.name) or JobStateCounts()
                    families.add(label_value(queue.name), figures, tally, own, node.now)
                    shown.add(queue.name)
                reason = self._held_back(queue)
                if reason:
                    held[reason] += 1
                yield
        # A queue that was forgotten, because nothing is queued, may have jobs in clients' hands.
        for name in list(counts.by_queue):
            tally_of_gone = walk.queues.get(name)
            if name not in shown and tally_of_gone is not None:
                own = counts.of(name)
                families.add(label_value(name), _QueueFigures(), tally_of_gone, own, node.now)
            yield
        if added_up or b"" in walk.queues or counts.rest.added or counts.rest.delivered:
            families.add("", rest, walk.queues.get(b"") or JobStateCounts(), counts.rest, node.now)
        sheet.gauge("disque_queues", "Queues on the node.", index.count)
        sheet.gauge("disque_queues_added_up", 'Queues added up in queue="".', added_up)
        family = sheet.gauge("disque_queues_held", "Queues held back, by what holds them back.")
        for reason, number in held.items():
            family.add(number, pairs({"by": reason.decode()}))

    def _held_back(self, queue: Queue) -> bytes:
        """Return why clients wait in vain for jobs of ``queue``; empty: they do not."""
        if not queue.length or not queue.waiters or queue.paused & PAUSED_OUT:
            return b""
        limit = self._node.limits.by_name.get(queue.name)
        if limit is not None and limit.reason:
            return limit.reason
        groups = queue.groups
        return BY_GROUPS if groups is not None and not groups.deliverable() else b""

    def _tidy(self, walk: Walk) -> Iterator[None]:
        """Forget the counts of queues that are gone."""
        for name in list(self._counts.by_queue):
            if name not in self._node.queues.by_name and name not in walk.queues:
                self._counts.forget(name)
            yield

    def _about_node(self, sheet: Sheet) -> None:
        node = self._node
        for name, text, value in (
            ("registered_jobs", "Jobs that the node holds, in all states.", node.held()),
            (
                "jobs_waiting_retry",
                "Loaded jobs that no client has and that are not queued yet.",
                len(node.progress.waiting) + node.paging.pages.number_retried(),
            ),
            (
                "jobs_few_copies",
                "Jobs that have fewer copies than they should, and that this node sees to.",
                node.few_copies.count,
            ),
            ("consuming_clients", "Clients that have jobs pushed to them.", node.consumers.count),
            ("policies", "Queue policies.", node.policies.count),
            ("schedules", "Schedules.", node.ticks.schedules.count),
            ("unique_keys", "Reserved keys of jobs.", node.store.uniques.entries.count),
        ):
            sheet.gauge(f"disque_{name}", text, value)
        for name, text, value in (
            ("schedule_ticks", "Jobs added at this node by schedules.", node.ticks.total),
            (
                "schedule_ticks_missed",
                "Scheduled times at which no job was added.",
                node.ticks.missed,
            ),
        ):
            sheet.counter(f"disque_{name}_total", text, value)


class PagingFigures:
    """The figures of the jobs that lie on disk.

    Args:
        space: returns how many bytes of their disk are free, and how many it has.
    """

    def __init__(self, pages: Pages, space: Callable[[], tuple[int, int]]) -> None:
        self._pages = pages
        self._space = space

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Write the figures to ``sheet``."""
        pages = self._pages
        free, size = self._space()
        for name, text, value in (
            ("jobs", "Jobs that lie on disk.", pages.jobs),
            ("disk_bytes", "Size of the files of jobs on disk.", pages.disk),
            ("index_bytes", "Memory that finding jobs on disk takes.", pages.index_bytes),
            ("disk_free_bytes", "Free space where jobs on disk lie.", free),
            ("disk_size_bytes", "Size of the file system where jobs on disk lie.", size),
            ("write_ok", "Whether jobs can go to disk (1 for yes).", int(not pages.problem)),
            ("lost_jobs", "Jobs on disk that could not be read since the start.", pages.lost),
        ):
            sheet.gauge(f"disque_paging_{name}", text, value)
        sheet.counter("disque_paging_reads_total", "Reads of jobs on disk.", pages.reads)
        sheet.counter(
            "disque_paging_waits_total", "Commands that waited for jobs on disk.", pages.waits
        )
        yield


class ClusterFigures:
    """The figures of a node's surroundings: its cluster and its event log."""

    def __init__(self, cluster: Cluster, event_log: EventLog, stats: Stats) -> None:
        self._cluster = cluster
        self._event_log = event_log
        self._stats = stats

    def collect(self, sheet: Sheet) -> Iterator[None]:
        """Write the figures to ``sheet``, in short steps."""
        self._about_cluster(sheet)
        yield
        self._about_event_log(sheet)
        yield

    def _about_cluster(self, sheet: Sheet) -> None:
        membership, stats = self._cluster.membership, self._stats
        for name, text, states in (
            ("nodes", "Nodes in the cluster, by state.", membership.node_states()),
            ("processes", "Processes of all nodes, by state.", membership.states()),
        ):
            family = sheet.gauge(f"disque_cluster_{name}", text)
            for state, number in states.items():
                family.add(number, pairs({"state": state}))
        for name, text, value in (
            ("links_up", "Processes of nodes that are connected.", membership.links_up()),
            (
                "leaving",
                "Whether the node is leaving the cluster (1 for yes).",
                int(membership.leaving),
            ),
            (
                "memory_bytes",
                "Memory used by connections to other nodes.",
                self._cluster.links.memory,
            ),
        ):
            sheet.gauge(f"disque_cluster_{name}", text, value)
        dropped = stats.cluster_overruns + stats.evicted_cluster_links
        for name, text, value in (
            ("network_input_bytes", "Bytes received from other nodes.", stats.cluster_input_bytes),
            ("network_output_bytes", "Bytes sent to other nodes.", stats.cluster_output_bytes),
            ("links_dropped", "Connections to nodes dropped: too much data waited.", dropped),
        ):
            sheet.counter(f"disque_cluster_{name}_total", text, value)

    def _about_event_log(self, sheet: Sheet) -> None:
        info = self._event_log.info()
        good = int(info["event_log_last_write_status"] == "ok")
        on = int(info["event_log_enabled"])
        sheet.gauge("disque_event_log_enabled", "Whether events are logged (1 for yes).", on)
        sheet.gauge(
            "disque_event_log_last_write_ok", "Whether the last write succeeded (1 for yes).", good
        )
        for word in ("written", "dropped"):
            count = int(info[f"event_log_events_{word}"])
            sheet.counter(f"disque_event_log_{word}_total", f"Events {word}.", count)
