"""JSCAN FIRST: the jobs to look at first among all that are queued, run, wait or are dead.

All jobs in memory are looked at, slice by slice. An index would add to the cost of every delivery,
for a list that people look at now and then; a look at a job takes a fraction of a microsecond.
"""

from typing import Final

from disque_trio.node.commands.job_filter import JobFilter
from disque_trio.node.commands.jobs import describe, wanted_fields
from disque_trio.node.core.changes.state_counts import (
    DEAD,
    DELAYED,
    FRESH,
    RETRIED,
    RUNNING,
    STAGES,
    stage_of,
)
from disque_trio.node.core.jobs.job import FLAG_PAUSED, QUEUED, Job, first_due
from disque_trio.node.core.jobs.registry import SHARDS
from disque_trio.node.core.node import Node
from disque_trio.resp.ints import parse_int
from disque_trio.resp.reply import encode
from disque_trio.respserver.batches import LOOK, TELL, UNITS_OF_ID, Sliced
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.words import Found

MOST: Final = 1_000  # jobs to tell about

_MS: Final = 1_000_000  # ns
_SPARE: Final = 256  # candidates, besides those to tell about, before the last are dropped
_DESCRIBED: Final = 16  # units of work to tell all about a job


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
        "_conditions", "_count", "_counts", "_fields", "_found", "_holds", "_node", "_rank_limit",
        "_ranked", "_shard", "_stage", "_told", "_wanted", "_whole",
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
        self._conditions = self._wanted.some
        self._counts = dict.fromkeys(STAGES, 0)
        self._ranked: list[tuple[int, bytes, Job]] = []
        self._rank_limit = (1 << 62) - 1  # those beyond are not among the first
        self._holds: dict[tuple[bytes, ...], bool] = {}
        self._shard = 0  # the next one of the registry
        self._found: list[Job] = []
        self._told = False

    @property
    def left(self) -> int:
        return 1 + (len(self._ranked) + len(self._found) >> 3)

    def step(self, size: int) -> None:
        most = size * UNITS_OF_ID
        self.spent = 0
        shards = self._node.store.jobs.shards
        while self._shard < SHARDS:
            if self.spent >= most:
                return
            shard = shards[self._shard]
            self._shard += 1
            self.spent += LOOK * len(shard)
            trailers, now = self._node.store.trailers, self._node.now
            passes = not (self._conditions or (self._stage == FRESH and self._count))
            fresh = 0
            for job in shard.values():
                stage = stage_of(job, trailers, now)
                if stage == FRESH and passes:
                    fresh += 1  # as nearly all do
                elif stage:
                    self._look_at(job, stage)
            self._counts[FRESH] += fresh
        if not self._told:
            self._begin_to_tell()
        found = self._found
        while found and self.spent < most:
            job = found.pop()
            self.ready.append(self._entry(job))
            self.spent += TELL + (_DESCRIBED if self._whole else 0)
        if not found:
            self.reply = b""

    def _look_at(self, job: Job, stage: bytes) -> None:
        """Count ``job``, which is in ``stage``, and keep it if it may be one of the first."""
        if self._conditions:
            wanted = self._wanted
            self.spent += wanted.work(job)
            if not wanted.takes(self._node, job):
                return
        if stage in (DELAYED, RETRIED) and not self._counts_here(job):
            return
        self._counts[stage] += 1
        if stage == self._stage and self._count:
            place = rank(job, stage)
            if place < self._rank_limit:
                self._ranked.append((place, job.id, job))
                if len(self._ranked) >= 2 * self._count + _SPARE:
                    self._drop_last()

    def _counts_here(self, job: Job) -> bool:
        """Whether this node counts ``job``, which waits for its time on all nodes that hold it: it
        does if it is the first of those that answer."""
        holders = job.delivered
        if holders is None or job.state == QUEUED:
            return True
        here = self._holds.get(holders)
        if here is None:
            peers, own = self._node.peers, self._node.id
            here = min([id for id in holders if id == own or peers.answers(id)], default=own) == own
            self._holds[holders] = here
        return here

    def _drop_last(self) -> None:
        """Drop the candidates that are not among the first."""
        ranked = self._ranked
        ranked.sort(key=_place_and_id)
        del ranked[self._count :]
        self._rank_limit = ranked[-1][0] + 1

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
        counts = self._counts
        pages = self._node.paging.pages
        if pages.jobs and not self._conditions:
            for number in self._node.paging.aside.later().values():
                counts[DELAYED] += number
            for number in self._node.paging.views.dead().values():
                counts[DEAD] += number
        fields: list[bytes | int] = []
        for name in STAGES:
            fields += [name, counts[name]]
        fields += [b"on-disk", pages.jobs]
        self.ready.append(b"*2\r\n" + encode(list(fields)) + b"*%d\r\n" % len(self._found))

    def _entry(self, job: Job) -> bytes:
        if self._whole:
            return encode(describe(self._node, job, *self._fields), self.client.resp)
        return b"+%b\r\n" % job.id


def _place_and_id(entry: tuple[int, bytes, Job]) -> tuple[int, bytes]:
    return entry[0], entry[1]
