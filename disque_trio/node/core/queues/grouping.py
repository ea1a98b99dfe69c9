"""Puts the jobs of queues into groups where a policy says so (GROUPS), and takes them out again.

A queue follows its policy from its first job on. When the policy changes it follows when somebody
wants jobs from it, and in the background: its jobs move by a few hundred per turn.
"""

from itertools import islice
from typing import Final

from disque_trio.node.core.jobs.job import FLAG_HOLDS_GROUP, Job
from disque_trio.node.core.jobs.trailers import Trailers
from disque_trio.node.core.queues.job_groups import JobGroups
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.queues.queues import Queues
from disque_trio.node.core.rpc.services import Services
from disque_trio.node.core.shared.policies import FIFO, Policies
from disque_trio.resp.reply import Value

_COMPARED: Final = 100  # queues to compare with their policies per turn
_MOVING: Final = 4  # times 512 jobs to move per turn


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
        self._agenda = services.agenda
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
        wanted = self._policies.of(queue.name).groups
        if queue.groups is None:
            if not wanted:
                return
            groups = JobGroups(self._trailers, self._machine.memory, wanted == FIFO)
            queue.groups = self.groups[queue.name] = groups
        else:
            groups = self.groups[queue.name]
            if queue.grouped == (wanted != 0) and groups.fifo == (wanted == FIFO):
                return
            groups.set_fifo(wanted == FIFO)
        queue.grouped = wanted != 0
        self._moving[queue.name] = queue
        self._call()
        self._all.look_at(queue)

    def _move_some(self) -> None:
        """Move jobs to where they belong."""
        for _ in range(_MOVING):
            for queue in self._moving.values():
                if not queue.move_some():
                    del self._moving[queue.name]
                    self._all.look_at(queue)
                    if queue.groups is None:
                        self.groups.pop(queue.name, None)
                break

    def _call(self) -> None:
        """Schedule more work for the next turn, if there is any."""
        busy = self._moving or self._left or self._cursor >= 0
        self.due = self._machine.now if busy else 0
        self._agenda.call(self.due)

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
        self._move_some()
        self._call()

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
        return [b"groups", groups.filled, b"groups-waiting", groups.number_held()]

    def flush(self) -> None:
        """Forget everything: there are no jobs any more."""
        self.groups.clear()
        self._moving.clear()
        self.due = self._left = 0
        self._cursor = -1
