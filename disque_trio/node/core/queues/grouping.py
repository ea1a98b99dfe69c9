"""Puts the jobs of queues into groups where a policy says so (GROUPS), and takes them out again.

A queue follows its policy from its first job on. When the policy changes it follows when somebody
wants jobs from it, and in the background: its jobs move by a few hundred per turn.

The jobs of one queue by group (ADDJOB GROUP). The groups are served in turn.

All jobs without a group form one group. Within a group, the order is that of a queue. With
``fifo``, a group waits while a job that was taken out of it may come back: until the job has ended,
or is queued here again. A job that went to another node holds back only the jobs that come after it
in the order of the group, so the first of all can be delivered on whichever node it is. Nodes do
not agree on that order to the millisecond, so they may wait for each other; therefore a job that
has been in a queue elsewhere for half its retry time is no longer waited for.

The jobs of a group lie on disk as those of a queue do, in segments of its own. If the next job of
the group whose turn it is lies there, all wait until it is back, so the turns are those of jobs in
memory; but nobody waits for jobs of a damaged file.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from disque_trio.node.core.jobs.job import FLAG_HOLDS_GROUP, Job, priority_of
from disque_trio.node.core.jobs.trailers import Trailers
from disque_trio.node.core.pages.segment import Segment
from disque_trio.node.core.queues.groups import Groups
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.queues.queues import Queues
from disque_trio.node.core.rpc.services import Services
from disque_trio.node.core.shared.policies import FIFO, Policies
from disque_trio.resp.reply import Value
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
        held_back: a limit allows none of its jobs now.
        in_turn: whether it is among the groups that are served in turn.
    """

    __slots__ = ("held_back", "held_by", "in_turn", "jobs")

    def __init__(self, name: bytes) -> None:
        self.jobs = Queue(name, 0)
        self.held_by: dict[bytes, Hold] = {}
        self.held_back = False
        self.in_turn = False

    def is_ready(self) -> bool:
        """Whether the first job can be taken out, once it is in memory."""
        if not self.jobs.length or self.held_back:
            return False
        if not self.held_by:
            return True
        first = self.first_on_disk()
        if first is None:
            place = _place(self.jobs.first())
        else:
            place = -(first.urgency >> 4), first.ctime, first.id
        return place < min([hold.place for hold in self.held_by.values()])

    def first_on_disk(self) -> Segment | None:
        """The segment that has the first job; None: that one is in memory, or there is none."""
        jobs = self.jobs
        return jobs.paged.first() if jobs.dry and jobs.paged is not None else None


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
        limited: each has limits of its own (see ``group_limits``); ``set_limited`` changes it.
        held_back: how many groups these hold back.
    """

    def __init__(self, trailers: Trailers, memory: Memory, fifo: bool) -> None:
        super().__init__()
        self.by_name: dict[bytes, Group] = {}
        self.filled = 0
        self.fifo = fifo
        self.limited = False
        self.held_back = 0
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
            if group.is_ready() and not (group.jobs.dry and self._is_damaged(group)):
                return group
            self._pass_over(group)
        return None

    def _is_damaged(self, group: Group) -> bool:
        """Whether the first job of ``group`` was in a file that cannot be read."""
        first = group.first_on_disk()
        return first is not None and first.rebuilding

    def _pass_over(self, group: Group) -> None:
        """Take ``group`` out of the turns."""
        group.in_turn = False
        del self._turns[group]

    def _forget_unused(self, group: Group) -> None:
        if not (group.jobs.length or group.held_by or group.in_turn):
            name = group.jobs.name
            self.held_back -= group.held_back
            group.held_back = False
            if self.by_name.pop(name, None) is not None:
                self._memory.used -= GROUP_OVERHEAD + len(name)

    def deliverable(self) -> int:
        group = self._next()
        if group is None or group.jobs.dry:
            return 0
        return len(self._turns) if self.fifo or self.limited else self.length

    def first(self) -> Group | None:
        """The group from which ``pop`` would take a job; None: there is none."""
        group = self._next()
        return None if group is None or group.jobs.dry else group

    def hold_back(self, group: Group) -> None:
        """Pass over ``group``, which is in turn, until it is ``let_on``."""
        group.held_back = True
        self.held_back += 1
        self._pass_over(group)

    def let_on(self, name: bytes) -> bool:
        """Let the group ``name`` have its turns again; return whether it was held back."""
        group = self.by_name.get(name)
        if group is None or not group.held_back:
            return False
        group.held_back = False
        self.held_back -= 1
        self._line_up(group)
        self._forget_unused(group)
        return True

    def set_limited(self, limited: bool) -> None:
        """Change ``limited``. No group is held back any more."""
        self.limited = limited
        for name in list(self.by_name) if self.held_back else []:
            self.let_on(name)

    def next_job(self) -> Job | None:
        group = self._next()
        return None if group is None or group.jobs.dry else group.jobs.first()

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
        self._forget_if_empty(group)
        return True

    def _forget_if_empty(self, group: Group) -> None:
        if group.in_turn and not group.jobs.length:
            self._pass_over(group)
        self._forget_unused(group)

    def pass_turn(self, job: Job) -> None:
        group = self.by_name.get(self._trailers.group(job))
        if group is not None and group.in_turn and group.jobs.first() is job:
            self._turns.move_to_end(group)

    def _has_lost_one(self, group: Group) -> None:
        self._has_lost(group, 1)

    def _has_lost(self, group: Group, count: int) -> None:
        self.length -= count
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
        return self._by_turns(Queue.first_to_last)

    def last_to_first(self) -> Iterator[Job]:
        return self._by_turns(Queue.last_to_first)

    def ready_jobs(self) -> Iterator[Job]:
        return self._by_turns(Queue.ready_jobs)

    def _by_turns(self, jobs_of: Callable[[Queue], Iterator[Job]]) -> Iterator[Job]:
        """One job of each group in turn, repeatedly until there are no more."""
        lines: list[Iterator[Job]] = []
        for group in self._in_order():
            jobs = jobs_of(group.jobs)
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
        return [group.jobs for group in self._in_order()]

    def lines(self) -> list[list[Job]]:
        return [line for group in self.by_name.values() for line in group.jobs.lines()]

    # ---- jobs on disk -----------------------------------------------------------------------

    def lane(self, name: bytes) -> Queue:
        return self.by_name[name].jobs

    def dry_changed(self, name: bytes) -> None:
        self._line_up(self.by_name[name])

    def gone_from_disk(self, segment: Segment, count: int) -> None:
        group = self.by_name[segment.group or b""]
        group.jobs.length -= count
        if not segment.live:
            group.jobs.look()
        self._has_lost(group, count)
        self._forget_if_empty(group)

    def next_on_disk(self) -> Segment | None:
        group = self._next()
        return None if group is None else group.first_on_disk()

    def take_segments(self) -> list[Segment]:
        found: list[Segment] = []
        for group in list(self.by_name.values()):
            lines = group.jobs.paged
            if lines is None or not group.jobs.length:
                continue
            for segment in lines.all():
                lines.remove(segment)
                segment.group = None
                group.jobs.length -= segment.live
                self.length -= segment.live
                found.append(segment)
            group.jobs.look()
            group.jobs.paged = None
            if not group.jobs.length:
                self.filled -= 1
                self._forget_if_empty(group)
        return found


_COMPARED: Final = 100  # queues to compare with their policies per turn
_MOVING: Final = 4  # times 512 jobs to move per turn
_REST: Final = 10  # ms, if those come from disk and memory has no room for them


class Grouping:
    """Keeps the queues of one node in groups as their policies say.

    Args:
        policies: of the queues.
        queues: the queues.
        trailers: tell a job's group.

    Attributes:
        groups: of the queues that have some, by queue name.
        due: when jobs have to be moved, in ms; 0: none have to.
    """

    def __init__(
        self, services: Services, policies: Policies, queues: Queues, trailers: Trailers
    ) -> None:
        self.groups: dict[bytes, JobGroups] = {}
        self.due = 0
        self._machine = services.machine
        self._policies = policies
        self._all = queues
        self._trailers = trailers
        self._timer = services.timer
        self._moving: dict[bytes, Queue] = {}
        self._next = 0  # index in ``groups`` of the next queue to compare with its policy
        self._left = 0  # how many of them are left to compare
        self._cursor = -1  # of the walk through all queues after a change of policies; -1: none
        queues.on_create = self._created

    def _created(self, queue: Queue) -> None:
        """Group the jobs that ``queue`` will have."""
        if self._policies.grouped:
            self.follow(queue)

    def follow(self, queue: Queue) -> None:
        """Group the jobs of ``queue`` if its policy says so, otherwise ungroup them."""
        policy = self._policies.of(queue.name)
        wanted = policy.groups
        limited = policy.limits_groups()
        if queue.groups is None:
            if not wanted:
                return
            groups = JobGroups(self._trailers, self._machine.memory, wanted == FIFO)
            groups.limited = limited
            queue.groups = self.groups[queue.name] = groups
        else:
            groups = self.groups[queue.name]
            if groups.limited != limited:
                groups.set_limited(limited)
                self._all.look_at(queue)
            if queue.grouped == (wanted != 0) and groups.fifo == (wanted == FIFO):
                return
            groups.set_fifo(wanted == FIFO)
            if not wanted:
                queue.leave_groups()
        queue.grouped = wanted != 0
        self._moving[queue.name] = queue
        self._call()
        self._all.look_at(queue)

    def _move_some(self) -> bool:
        """Move jobs to where they belong; return whether there were any."""
        moved = False
        for _ in range(_MOVING):
            for queue in self._moving.values():
                if self._rests(queue):
                    continue
                moved = True
                if not queue.move_some():
                    del self._moving[queue.name]
                    self._all.look_at(queue)
                    if queue.groups is None:
                        self.groups.pop(queue.name, None)
                break
        return moved

    def goes_on(self, queue: Queue) -> None:
        """Note that jobs of ``queue`` that are in no group have left the disk."""
        if queue.grouped:
            self._moving[queue.name] = queue
            self._call()

    def _rests(self, queue: Queue) -> bool:
        """Whether ``queue`` has jobs on disk that would come back, and memory has no room."""
        if not queue.grouped or queue.paged is None or not queue.paged.by_urgency:
            return False
        above = self._all.pages.above
        memory = self._machine.memory
        return memory.used > max((above + memory.external_above) // 2, above)

    def _call(self, later: int = 0) -> None:
        """Schedule more work for the next turn, or for ``later`` (ms), if there is any."""
        busy = self._moving or self._left or self._cursor >= 0
        self.due = self._machine.now + later if busy else 0
        self._timer.wake_by(self.due)

    def compare(self) -> None:
        """Make all queues follow their policies, which have changed, soon."""
        self._left = len(self.groups)
        if self._policies.grouped:
            self._cursor = 0
        self._call()

    def go_on(self, now: int) -> None:
        """Do some of the due work."""
        if not self.due or self.due > now:
            return
        if self._left:
            self.compare_some()
        if self._cursor >= 0:
            cursor, queues = self._all.index.scan(self._cursor, _COMPARED)
            self._cursor = cursor or -1
            for queue in queues:
                self.follow(queue)
        moved = self._move_some()
        self._call(0 if moved or self._left or self._cursor >= 0 else _REST)

    def compare_some(self) -> None:
        """Make some of the queues follow their policies, and forget those that are gone."""
        names = list(islice(self.groups, self._next, self._next + _COMPARED))
        self._left = max(self._left - _COMPARED, 0)
        self._next = self._next + _COMPARED if len(names) == _COMPARED else 0
        for name in names:
            queue = self._all.by_name.get(name)
            if queue is not None and queue.groups is self.groups[name]:
                self.follow(queue)
            else:
                del self.groups[name]
                self._moving.pop(name, None)

    def release(self, job: Job) -> None:
        """Free the group that ``job`` (FLAG_HOLDS_GROUP) holds: it ended or is about to be
        queued."""
        job.flags &= ~FLAG_HOLDS_GROUP
        groups = self.groups.get(job.queue)
        if groups is not None:
            groups.release(job)
            self._look_at(job.queue)

    def _look_at(self, name: bytes) -> None:
        queue = self._all.by_name.get(name)
        if queue is not None:
            self._all.look_at(queue)

    def hold(self, job: Job, here: bool) -> None:
        """Hold the group of ``job``, which was taken out of its queue because a client of this node
        has it (``here``), or because it is another node's turn."""
        groups = self.groups.get(job.queue)
        if groups is not None:
            groups.hold(job, here, self._machine.now)

    def left(self, job: Job) -> None:
        """Note that ``job``, which has FLAG_HOLDS_GROUP, is now in another node's queue."""
        groups = self.groups.get(job.queue)
        if groups is not None:
            groups.left(job, self._machine.now)
            self._look_at(job.queue)

    def waiting(self) -> list[Queue]:
        """Queues whose jobs clients cannot get, because all their groups wait."""
        found = [self._all.by_name.get(name) for name in self.groups]
        return [
            queue
            for queue in found
            if queue is not None and queue.length and queue.waiters and not queue.deliverable()
        ]

    def describe(self, queue: Queue) -> list[Value]:
        """The groups of ``queue`` as QSTAT shows them; empty: it has none."""
        groups = self.groups.get(queue.name)
        if groups is None:
            return []
        found: list[Value] = [b"groups", groups.filled, b"groups-waiting", groups.number_held()]
        return [*found, b"groups-held-back", groups.held_back] if groups.limited else found

    def flush(self) -> None:
        """Forget everything: there are no jobs any more."""
        self.groups.clear()
        self._moving.clear()
        self.due = self._left = 0
        self._cursor = -1
