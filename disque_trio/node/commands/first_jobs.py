"""JSCAN FIRST: the jobs to look at first among all that are queued, run, wait or are dead.

All that do not just wait in a queue for the first time are marked (see ``jobs.marked``). Of the
others, the oldest are near the heads of their queues, and their number follows from the lengths of
these. So a node with a long queue looks at few of its jobs, unless the conditions say more than
queues. Of jobs on disk it reads a few segments, those that would come first.
"""

from collections.abc import Iterator
from typing import Final

from disque_trio.node.commands.job_filter import JobFilter
from disque_trio.node.commands.jobs import describe, wanted_fields
from disque_trio.node.core.changes.state_counts import (
    DEAD,
    DELAYED,
    FRESH,
    RUNNING,
    STAGES,
    stage_of,
)
from disque_trio.node.core.jobs.job import ACKED, FLAG_PAUSED, QUEUED, WAIT_REPL, Job, first_due
from disque_trio.node.core.jobs.marked import MARK_SHARDS
from disque_trio.node.core.node import Node
from disque_trio.node.core.pages.segment import LATER, Segment
from disque_trio.node.core.queues.line_walk import OldestFirst
from disque_trio.node.core.queues.queue import Queue
from disque_trio.resp.ints import parse_int
from disque_trio.resp.reply import encode
from disque_trio.respserver.batches import LOOK, TELL, UNITS_OF_ID, Sliced
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.words import Found

MOST: Final = 1_000  # jobs to tell about
READ: Final = 4  # segments of jobs on disk, each of up to 4,096 jobs or a megabyte

_MS: Final = 1_000_000  # ns
_NO_LIMIT: Final = (1 << 62) - 1
_SPARE: Final = 256  # candidates, besides those to tell about, before the last are dropped
_DESCRIBED: Final = 16  # units of work to tell all about a job
_QUEUE: Final = 2  # units of work to look at a queue


def first_count(word: bytes) -> int:
    """Parse the number of jobs to tell about; 0: just count them."""
    count = parse_int(word)
    if count is None or not 0 <= count <= MOST:
        raise CommandError(f"ERR FIRST must be a number from 0 to {MOST}")
    return count


def _stage_in(words: Found) -> bytes:
    """The stage whose jobs to tell about."""
    names = {name.lower() for name in words.all("STATE")}
    if len(names) != 1 or not names.issubset(STAGES):
        allowed = ", ".join(name.decode() for name in STAGES)
        raise CommandError(f"ERR FIRST needs one STATE of {allowed}")
    if words.text("REPLY").lower() == b"counts":
        raise CommandError("ERR FIRST replies with counts and jobs: REPLY has to be ID or ALL")
    return names.pop()


def rank(job: Job, stage: bytes) -> int:
    """Where ``job`` is among those of its stage, a time in ns; the lowest rank comes first."""
    if stage == RUNNING:
        # The longest time first, since its worker took it or last said that it works on it.
        taking = job.taking
        since = int(job.qtime) - int(job.retry) * 1000 if taking is None else int(taking.last_seen)
        return since * _MS
    if stage == DEAD:
        return -int(job.ctime)  # the last one first
    if job.state == QUEUED:
        return int(job.ctime)  # the oldest first
    if job.flags & FLAG_PAUSED or not job.delay:
        return int(job.qtime) * _MS  # the next one first; those in queues are before these
    return first_due(job) * _MS


class FirstJobs(Sliced):
    """The reply: how many jobs are in each stage, and the first ones of one of them."""

    __slots__ = (
        "_conditions", "_count", "_counts", "_fields", "_found", "_holders", "_lines", "_node",
        "_others", "_queues", "_rank_limit", "_ranked", "_reading", "_segments", "_shard", "_stage",
        "_told", "_unread", "_wanted", "_whole",
    )  # fmt: skip

    def __init__(self, node: Node, client: Client, args: list[bytes], words: Found) -> None:
        super().__init__(client, node.command_of(args))
        self._node = node
        self._stage = _stage_in(words)
        self._count = words.number("FIRST", 0)
        self._whole = words.text("REPLY").lower() == b"all"
        self._fields = wanted_fields(words)
        self._wanted = JobFilter(words)
        self._wanted.states.clear()
        # More than queues, so that each job has to be looked at.
        self._conditions = not self._wanted.only_queues()
        self._counts = dict.fromkeys(STAGES, 0)
        self._ranked: list[tuple[int, bytes, Job]] = []
        self._rank_limit = _NO_LIMIT  # those beyond are not among the first
        self._holders = node.scatter_gather.state_counter.shares
        self._shard = 0  # the next one of the marked jobs
        self._others: dict[bytes, int] = {}  # jobs in queues that are not fresh, by queue
        self._queues: Iterator[Queue] | None = None  # those to count
        self._lines: OldestFirst | None = None
        self._segments: list[Segment] = []  # to read, the next one last
        self._reading = False
        self._unread = 0
        self._found: list[Job] = []
        self._told = False

    @property
    def left(self) -> int:
        return 1 + (len(self._ranked) + len(self._found) >> 3)

    def step(self, size: int) -> None:
        most = size * UNITS_OF_ID
        self.spent = 0
        if not self._told:
            if not (
                self._look_at_marked(most) and self._look_at_queues(most) and self._read_some(most)
            ):
                return
            self._begin_to_tell()
        found = self._found
        while found and self.spent < most:
            job = found.pop()
            self.ready.append(self._entry(job))
            self.spent += TELL + (_DESCRIBED if self._whole else 0)
        if not found:
            self.reply = b""

    # ---- the marked jobs --------------------------------------------------------------------

    def _look_at_marked(self, most: int) -> bool:
        """Look at the marked jobs, as far as ``most`` units of work go; return whether that were
        all."""
        marked = self._node.store.jobs.marked.shards
        trailers, now = self._node.store.trailers, self._node.now
        while self._shard < MARK_SHARDS:
            if self.spent >= most:
                return False
            shard = marked[self._shard]
            self._shard += 1
            self.spent += 1 + LOOK * len(shard)
            unmarked: list[bytes] = []
            for job in shard.values():
                stage = stage_of(job, trailers, now)
                if stage == FRESH or (stage == DEAD and not self._is_held(job)):
                    unmarked.append(job.id)
                elif stage:
                    if job.state == QUEUED:
                        self._others[job.queue] = self._others.get(job.queue, 0) + 1
                    self._look_at(job, stage)
                elif job.state >= ACKED or not (
                    # Queued, it would have a stage without being marked again.
                    job.state == WAIT_REPL or job.delay or trailers.is_dead_letter(job)
                ):
                    unmarked.append(job.id)
            for id in unmarked:
                del shard[id]
        return True

    def _is_held(self, job: Job) -> bool:
        return self._node.store.jobs.get(job.id) is job

    def _look_at(self, job: Job, stage: bytes) -> None:
        """Count ``job``, which is in ``stage``, and keep it if it may be one of the first."""
        if not self._takes(job):
            return
        if stage != RUNNING and job.state != QUEUED and not self._holders.counts_waiting(job):
            return
        self._counts[stage] += 1
        if stage == self._stage and self._count:
            self._keep(job)

    def _takes(self, job: Job) -> bool:
        """Whether ``job`` meets the conditions."""
        wanted = self._wanted
        if not self._conditions:
            return not wanted.queues or job.queue in wanted.queues
        self.spent += wanted.work(job)
        return wanted.takes(self._node, job)

    def _keep(self, job: Job) -> None:
        """Keep ``job``, which is in the stage to tell about, if it may be one of the first."""
        place = rank(job, self._stage)
        if place < self._rank_limit:
            self._ranked.append((place, job.id, job))
            if len(self._ranked) >= 2 * self._count + _SPARE:
                self._drop_last()

    def _drop_last(self) -> None:
        """Drop the candidates that are not among the first."""
        ranked = self._ranked
        ranked.sort(key=_place_and_id)
        del ranked[self._count :]
        self._rank_limit = ranked[-1][0] + 1

    # ---- the queues -------------------------------------------------------------------------

    def _look_at_queues(self, most: int) -> bool:
        """Look at the jobs in queues that may be fresh, as far as ``most`` units of work go; return
        whether that were all."""
        if self._queues is None:
            self._queues = self._wanted_queues()
        if not self._conditions:
            for queue in self._queues:
                self._counts[FRESH] += queue.length - self._others.get(queue.name, 0)
                self.spent += _QUEUE
                if self.spent >= most:
                    return False
            if self._stage != FRESH or not self._count:
                return True
        if self._lines is None:
            self._lines = OldestFirst(self._with_fresh())
        trailers, now = self._node.store.trailers, self._node.now
        while self.spent < most:
            part = self._lines.part(_NO_LIMIT if self._conditions else self._rank_limit)
            if part is None:
                return True
            self.spent += _QUEUE + LOOK * len(part)
            for job in part:
                if stage_of(job, trailers, now) != FRESH:
                    continue
                if self._conditions:
                    self._look_at(job, FRESH)
                elif job.ctime < self._rank_limit:
                    self._keep(job)
                else:
                    break  # the next part ends this line
        return False

    def _wanted_queues(self) -> Iterator[Queue]:
        """The queues that the conditions name, or all."""
        queues = self._node.queues
        if not self._wanted.queues:
            return queues.index.in_turn()
        found = [queues.by_name.get(name) for name in self._wanted.queues]
        return iter([queue for queue in found if queue is not None])

    def _with_fresh(self) -> Iterator[Queue]:
        """Those with jobs in memory that may be fresh."""
        for queue in self._wanted_queues():
            if queue.length - queue.on_disk() > self._others.get(queue.name, 0):
                yield queue

    # ---- jobs on disk -----------------------------------------------------------------------

    def _read_some(self, most: int) -> bool:
        """Look at the jobs on disk that may be among the first, as far as ``most`` units of work
        go, and some can be read; return whether that were all."""
        self.rests = False
        if not self._reading:
            self._reading = True
            self._choose_segments()
        pages = self._node.paging.pages
        trailers, now = self._node.store.trailers, self._node.now
        while self._segments:
            if self.spent >= most:
                return False
            segment = self._segments[-1]
            jobs: list[Job] | None = []
            if segment.number in pages.segments:
                jobs = self._node.paging.views.jobs_in(segment)
            if jobs is None:
                self.rests = True
                return False
            self._segments.pop()
            self.spent += LOOK * len(jobs)
            for job in jobs:
                if stage_of(job, trailers, now) == self._stage and self._takes(job):
                    if self._conditions:
                        self._counts[self._stage] += 1
                    self._keep(job)
        return True

    def _choose_segments(self) -> None:
        """Choose the segments to read; count the jobs on disk that the conditions say nothing
        about."""
        paging, counts = self._node.paging, self._counts
        found: list[tuple[int, Segment]] = []
        queues = self._wanted.queues
        if len(self._ranked) >= self._count > 0:
            self._drop_last()
        times = paging.pages.times() if self._stage == DELAYED else {}
        for segment in paging.pages.segments.values():
            stage = _stage_on_disk(segment)
            if not stage or (queues and segment.queue not in queues):
                continue
            if not self._conditions and stage != FRESH:  # the lengths of queues have all others
                counts[stage] += segment.live
                if stage == DEAD:
                    counts[FRESH] -= segment.live
            if stage == self._stage:
                self._unread += segment.live
                found.append((_first_rank(segment, stage, times), segment))
        counts[FRESH] = max(counts[FRESH], 0)
        if self._count:
            found.sort(key=_place_of)
            chosen = [segment for place, segment in found if place < self._rank_limit][:READ]
            self._unread -= sum([segment.live for segment in chosen])
            chosen.reverse()
            self._segments = chosen

    # ---- the reply --------------------------------------------------------------------------

    def _begin_to_tell(self) -> None:
        """All were looked at: make the head of the reply."""
        self._told = True
        ranked = self._ranked
        ranked.sort(key=_place_and_id)
        # Some may have been taken, or have ended, since they were looked at.
        trailers, now = self._node.store.trailers, self._node.now
        first = [job for _, _, job in ranked if stage_of(job, trailers, now) == self._stage]
        self._found = first[: self._count]
        self._found.reverse()  # taken from the end
        self._ranked = []
        fields: list[bytes | int] = []
        for name in STAGES:
            fields += [name, self._counts[name]]
        fields += [b"on-disk", self._node.paging.pages.jobs, b"on-disk-unread", self._unread]
        self.ready.append(b"*2\r\n" + encode(list(fields)) + b"*%d\r\n" % len(self._found))

    def _entry(self, job: Job) -> bytes:
        if self._whole:
            return encode(describe(self._node, job, *self._fields), self.client.resp)
        return b"+%b\r\n" % job.id


def _stage_on_disk(segment: Segment) -> bytes:
    """The stage of the jobs of ``segment``; some of those in queues may have come back, which is
    only known when they are read."""
    if segment.origin is None:
        return DEAD if segment.letters else FRESH
    return DELAYED if segment.origin == LATER else b""


def _first_rank(segment: Segment, stage: bytes, times: dict[int, int]) -> int:
    """The lowest rank that a job of ``segment`` may have; see ``rank``."""
    if stage == DEAD:
        return -segment.last_ctime
    return segment.ctime if stage == FRESH else times.get(segment.number, 0) * _MS


def _place_and_id(entry: tuple[int, bytes, Job]) -> tuple[int, bytes]:
    return entry[0], entry[1]


def _place_of(entry: tuple[int, Segment]) -> int:
    return entry[0]
