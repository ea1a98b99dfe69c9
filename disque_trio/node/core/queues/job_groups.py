"""The jobs of one queue by group (ADDJOB GROUP). The groups are served in turn.

All jobs without a group form one group. Within a group, the order is that of a queue. With
``fifo``, a group waits while a job that was taken out of it may come back: until the job has ended,
or is queued here again. A job that went to another node holds back only the jobs that come after it
in the order of the group, so the first of all can be delivered on whichever node it is. Nodes do
not agree on that order to the millisecond, so they may wait for each other; therefore a job that
has been in a queue elsewhere for half its retry time is no longer waited for.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from disque_trio.node.core.jobs.job import FLAG_HOLDS_GROUP, Job, priority_of
from disque_trio.node.core.jobs.trailers import Trailers
from disque_trio.node.core.queues.queue import Groups, Queue
from disque_trio.respserver.memory import Memory

# What a group costs in addition to its jobs and its name, in bytes.
GROUP_OVERHEAD: Final = 1_000

_BEFORE_ALL: Final = (-8, 0, b"")  # the place of a job that holds back all others


def _place(job: Job) -> tuple[int, int, bytes]:
    """The place of ``job`` in the order of its group."""
    return -priority_of(job), job.ctime, job.id


class Group:
    """The queued jobs of one group.

    Attributes:
        jobs: in order; this queue has the name of the group.
        held_by: the jobs for which it waits, by id.
        in_turn: whether it is among the groups that are served in turn.
    """

    __slots__ = ("held_by", "in_turn", "jobs")

    def __init__(self, name: bytes) -> None:
        self.jobs = Queue(name, 0)
        self.held_by: dict[bytes, Hold] = {}
        self.in_turn = False

    def is_ready(self) -> bool:
        """Whether the first job can be taken out."""
        if not self.jobs.length:
            return False
        if not self.held_by:
            return True
        first = _place(self.jobs.first())
        return first < min([hold.place for hold in self.held_by.values()])


class Hold:
    """A job for which its group waits.

    Attributes:
        group: the group.
        place: holds back the jobs that come after it in the order of the group.
        since: when it went to another node, in ms.
    """

    __slots__ = ("group", "place", "since")

    def __init__(self, group: Group, place: tuple[int, int, bytes], since: int) -> None:
        self.group = group
        self.place = place
        self.since = since


class JobGroups(Groups):
    """The groups of one queue.

    Args:
        trailers: tell a job's group.
        memory: the account that includes the groups.
        fifo: whether only one job of a group may be out at a time.

    Attributes:
        by_name: the groups that have jobs or wait for one.
        filled: how many have jobs.
        fifo: as given; ``set_fifo`` changes it.
    """

    def __init__(self, trailers: Trailers, memory: Memory, fifo: bool) -> None:
        super().__init__()
        self.by_name: dict[bytes, Group] = {}
        self.filled = 0
        self.fifo = fifo
        self._trailers = trailers
        self._memory = memory
        # Groups with jobs, some of which may wait. A plain dict would have to skip all removed
        # entries to find its first one.
        self._turns: OrderedDict[Group, None] = OrderedDict()
        self._held: dict[bytes, Hold] = {}  # by the id of the job

    def push(self, job: Job) -> None:
        group = self._group_of(job)
        group.jobs.push(job)
        self.length += 1
        if group.jobs.length == 1:
            self.filled += 1
        self._line_up(group)

    def _group_of(self, job: Job) -> Group:
        """The group of ``job``, which is created if it does not exist."""
        name = self._trailers.group(job)
        group = self.by_name.get(name)
        if group is None:
            group = self.by_name[name] = Group(name)
            self._memory.used += GROUP_OVERHEAD + len(name)
        return group

    def _line_up(self, group: Group) -> None:
        """Put ``group`` at the end of the turns, if it can be served and is not there."""
        if not group.in_turn and group.is_ready():
            group.in_turn = True
            self._turns[group] = None

    def _next(self) -> Group | None:
        """The group whose turn it is."""
        turns = self._turns
        while turns:
            group = next(iter(turns))
            if group.is_ready():
                return group
            self._pass_over(group)
        return None

    def _pass_over(self, group: Group) -> None:
        """Take ``group`` out of the turns."""
        group.in_turn = False
        del self._turns[group]

    def _forget_unused(self, group: Group) -> None:
        if not (group.jobs.length or group.held_by or group.in_turn):
            name = group.jobs.name
            if self.by_name.pop(name, None) is not None:
                self._memory.used -= GROUP_OVERHEAD + len(name)

    def deliverable(self) -> int:
        if self._next() is None:
            return 0
        return len(self._turns) if self.fifo else self.length

    def next_job(self) -> Job | None:
        group = self._next()
        return None if group is None else group.jobs.first()

    def pop(self) -> Job:
        group = self._next()
        assert group is not None
        job = group.jobs.pop()
        self._has_lost_one(group)
        if self.fifo and job.retry:
            self._hold(group, job, _BEFORE_ALL, 0)
        if group.is_ready():
            self._turns.move_to_end(group)
        else:
            self._pass_over(group)
            self._forget_unused(group)
        return job

    def _hold(self, group: Group, job: Job, place: tuple[int, int, bytes], since: int) -> None:
        job.flags |= FLAG_HOLDS_GROUP
        self._held[job.id] = group.held_by[job.id] = Hold(group, place, since)

    def hold(self, job: Job, here: bool, now: int) -> None:
        """Hold the group of ``job``, which was removed at ``now`` (ms) although it has not ended.
        ``here``: a client of this node has it."""
        if self.fifo and job.retry:
            self._hold(self._group_of(job), job, _BEFORE_ALL if here else _place(job), now)

    def remove(self, job: Job) -> bool:
        group = self.by_name.get(self._trailers.group(job))
        if group is None or not group.jobs.has(job):
            return False
        group.jobs.remove(job)
        self._has_lost_one(group)
        if group.in_turn and not group.jobs.length:
            self._pass_over(group)
        self._forget_unused(group)
        return True

    def pass_turn(self, job: Job) -> None:
        group = self.by_name.get(self._trailers.group(job))
        if group is not None and group.in_turn and group.jobs.first() is job:
            self._turns.move_to_end(group)

    def _has_lost_one(self, group: Group) -> None:
        self.length -= 1
        if group.jobs.length == 0:
            self.filled -= 1

    def release(self, job: Job) -> None:
        """Stop waiting for ``job``, which has ended, or is about to be queued again."""
        hold = self._held.pop(job.id, None)
        if hold is not None:
            del hold.group.held_by[job.id]
            self._line_up(hold.group)
            self._forget_unused(hold.group)

    def left(self, job: Job, now: int) -> None:
        """Note that ``job``, which was taken out, is in another node's queue at ``now`` (ms)."""
        hold = self._held.get(job.id)
        if hold is None:
            return
        if hold.place == _BEFORE_ALL:
            hold.place = _place(job)
            hold.since = now
            self._line_up(hold.group)
        elif now - hold.since >= job.retry * 500:
            self.release(job)

    def number_held(self) -> int:
        return len(self._held)

    def set_fifo(self, fifo: bool) -> None:
        """Change ``fifo``. No group goes on waiting for jobs that are out."""
        self.fifo = fifo
        held, self._held = self._held, {}
        for hold in held.values():
            hold.group.held_by.clear()
            self._line_up(hold.group)
            self._forget_unused(hold.group)

    # ---- all of them ------------------------------------------------------------------------

    def first_to_last(self) -> Iterator[Job]:
        return self._by_turns(False)

    def last_to_first(self) -> Iterator[Job]:
        return self._by_turns(True)

    def _by_turns(self, backwards: bool) -> Iterator[Job]:
        """One job of each group in turn, repeatedly until there are no more."""
        lines: list[Iterator[Job]] = []
        for group in self._in_order():
            jobs = group.jobs.last_to_first() if backwards else group.jobs.first_to_last()
            job = next(jobs, None)
            if job is not None:
                lines.append(jobs)
                yield job
        while lines:
            left: list[Iterator[Job]] = []
            for jobs in lines:
                job = next(jobs, None)
                if job is not None:
                    left.append(jobs)
                    yield job
            lines = left

    def _in_order(self) -> Iterator[Group]:
        """The groups that can be served, in turn, then the waiting ones."""
        yield from self._turns
        for group in self.by_name.values():
            if not group.in_turn:
                yield group

    def oldest(self) -> int:
        return min([g.jobs.oldest() for g in self.by_name.values() if g.jobs.length])

    def queues(self) -> list[Queue]:
        return [group.jobs for group in self.by_name.values()]

    def lines(self) -> list[list[Job]]:
        return [line for group in self.by_name.values() for line in group.jobs.lines()]
