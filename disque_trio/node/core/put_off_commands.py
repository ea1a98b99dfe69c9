"""Commands that wait for jobs that lie on disk.

A command that names such a job, or needs more of a queue than is in memory, is put off until the
jobs are there; then it runs as if it had just arrived, so commands need not know where jobs are.
Later commands of its client wait for it. Acknowledgements need no job: they are not put off.
"""

from collections import deque
from functools import partial

from disque_trio.glob import Glob
from disque_trio.node.core.lifecycle.job_waits import MOST_IDS
from disque_trio.node.core.pages.pages import ALL_JOBS
from disque_trio.node.core.pages.segment import Segment
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.queue import PAUSED_OUT
from disque_trio.protocol.serialjob import is_job_id
from disque_trio.respserver.client import Client, Pending
from disque_trio.respserver.command import AnyCommand
from disque_trio.respserver.machine import Machine, serve

KEPT = 1_000  # ms that its jobs stay after it began to run; EXEC may take several turns
MOST_ROUNDS = 100  # in which a command waits; then it runs with what is there
_BY_ID = frozenset(
    ("cancel", "updatejob", "waitjob", "nack", "working", "enqueue", "promote", "dequeue", "queue",
     "show", "copyjob", "ackjob", "fastack", "deljob", "redrive")
)  # fmt: skip
# Need no job, unless they have a result, or an event says more about it than its id.
_ENDS = frozenset(("ackjob", "fastack", "deljob"))
_AT_ONCE = frozenset(("waitjob", "redrive"))  # for all jobs that they may be about
_TAKES = frozenset(("getjob", "getjobs"))

Need = tuple[Segment, int]  # a place in a segment, or -1


class PutOffCommand(Pending):
    """The pending reply of a command that is put off.

    Attributes:
        args: of the command.
        ids: of the jobs that it names.
        left: how many reads it waits for.
        rounds: how often it was put off.
    """

    __slots__ = ("args", "ids", "left", "rounds")

    def __init__(self, client: Client, args: list[bytes], rounds: int, ids: list[bytes]) -> None:
        super().__init__(client, None)
        self.args = args
        self.ids = ids
        self.left = 0
        self.rounds = rounds


class PutOffCommands:
    """The commands of one node that are put off."""

    def __init__(self, core: Core) -> None:
        self.ready: list[PutOffCommand] = []
        self._machine: Machine = core.machine
        self._store = core.store
        self._paging = core.paging
        self._pages = core.paging.pages
        self._grouping = core.store.limits.grouping
        self._again: PutOffCommand | None = None  # that is being run
        # The ids that commands name, and how many do: meanwhile these jobs do not leave again.
        self._named: dict[bytes, int] = {}
        self._begun: deque[tuple[int, PutOffCommand]] = deque()  # when each began to run, in ms
        core.paging.keep(self._named)

    def puts_off(self, client: Client, command: AnyCommand, args: list[bytes]) -> bool:
        """Put ``args``, a ``command`` of ``client``, off if it needs jobs that lie on disk; return
        whether it was. Call it only while there are such jobs."""
        name = command.name
        if name in _TAKES:
            # What moves into groups may come to an end in memory at any time.
            if not self._pages.dry and not self._grouping.due:
                return False
        elif name in _ENDS:
            if len(args) < 4 and not self._store.notes.noting:
                return False
        elif name not in _BY_ID and name != "exec":
            return False
        again = self._again
        rounds = 0 if again is None else again.rounds + 1
        if self._machine.in_group or not client.authenticated or rounds > MOST_ROUNDS:
            return False
        if client.group is None:
            needs = self._needs(name, args)
        elif name == "exec":
            needs = []
            for request in client.group.requests:
                other = self._machine.find_command(request[0])
                if other is not None:
                    needs += self._needs(other.name, request)
        else:
            return False
        requests = [args] if client.group is None else client.group.requests
        ids = [arg for request in requests for arg in request[1:] if is_job_id(arg)]
        for id in ids:
            self._named[id] = self._named.get(id, 0) + 1
        held = PutOffCommand(client, args, rounds, ids)
        for segment, place in needs:
            if segment.number in self._pages.segments:
                then = partial(self._is_here, held)
                held.left += int(self._paging.want(segment, place, then))
        if not held.left:
            self._release(held)
            return False
        self._pages.waits += 1
        client.line_up(held)
        client.in_slices = 1  # what comes next waits for this
        return True

    def _needs(self, name: str, args: list[bytes]) -> list[Need]:
        """What the command ``name`` needs that lies on disk."""
        if name in _BY_ID:
            ends = name in _ENDS and not _has_result(args)
            if ends and not self._store.notes.noting:
                return []
            # What is about many ids is done in slices, and waits before each.
            most = self._machine.batches.size
            ids = [arg for arg in args[1:] if is_job_id(arg)]
            if len(ids) > (MOST_IDS if name in _AT_ONCE else most):
                return []
            needs = self.jobs(ids)
            return [need for need in needs if not need[0].plain] if ends else needs
        if name in _TAKES:
            return self._for_getjob(args)
        return []

    def jobs(self, ids: list[bytes]) -> list[Need]:
        """Where those of the jobs ``ids`` are that lie on disk."""
        needs: list[Need] = []
        jobs = self._store.jobs
        for id in dict.fromkeys(ids):
            if jobs.get(id) is None:
                needs += [self._pages.at(place) for place in self._pages.find(id)]
        return needs

    def are_here(self, ids: list[bytes]) -> bool:
        """Whether none of the jobs ``ids`` lies on disk; otherwise they are on their way."""
        if not self._pages.jobs:
            return True
        here = True
        jobs = self._store.jobs
        for id in ids:
            if jobs.get(id) is None and self._paging.bring(id):
                here = False
        return here

    def can_be_noted(self, ids: list[bytes]) -> bool:
        """Whether the end of the jobs ``ids`` can be noted in the event log; otherwise those of
        which that needs more than their ids are on their way."""
        needs = [need for need in self.jobs(ids) if not need[0].plain]
        for segment, place in needs:
            self._paging.want(segment, place)
        return not needs

    def _for_getjob(self, args: list[bytes]) -> list[Need]:
        """The segments that a GETJOB needs to begin."""
        names: list[bytes] = []
        by_patterns = False
        for i in range(1, len(args)):
            word = args[i].upper()
            if word == b"FROM":
                names = args[i + 1 :]
                break
            by_patterns = by_patterns or word == b"PATTERN"
        if by_patterns:
            names = self._matching(names)
        needs: list[Need] = []
        for name in dict.fromkeys(names):
            queue = self._store.queues.by_name.get(name)
            if queue is not None and not queue.paused & PAUSED_OUT:
                self._grouping.follow(queue)
                first = queue.next_on_disk()
                if first is not None:
                    needs.append((first, ALL_JOBS))
        return needs

    def _matching(self, patterns: list[bytes]) -> list[bytes]:
        """The queues that match one of ``patterns``, of those whose next job lies on disk."""
        globs = [Glob(pattern) for pattern in patterns]
        names = dict.fromkeys([lines.name for lines in self._pages.dry])
        return [name for name in names if any(glob.matches(name) for glob in globs)]

    def _is_here(self, held: PutOffCommand) -> None:
        """Note that something that ``held`` waits for is in memory."""
        held.left -= 1
        if not held.left:
            self.ready.append(held)

    def _release(self, held: PutOffCommand) -> None:
        """Note that ``held`` needs its jobs no longer."""
        for id in held.ids:
            self._named[id] -= 1
            if not self._named[id]:
                del self._named[id]

    def go_on(self, now: int) -> None:
        """Run the commands that need not wait any longer."""
        while self._begun and self._begun[0][0] + KEPT <= now:
            self._release(self._begun.popleft()[1])
        ready, self.ready = self.ready, []
        machine = self._machine
        for held in ready:
            client = held.client
            if client.gone and held not in client.reply_queue:
                self._release(held)
                continue
            client.reply_queue.remove(held)
            client.in_flight -= 1
            client.in_slices = 0
            if client.gone:
                command = machine.find_command(held.args[0])
                if command is None or command.name in _TAKES or command.name == "waitjob":
                    self._release(held)
                    continue
            machine.total_commands -= 1
            self._again = held
            serve(machine, client, held.args, now)
            self._again = None
            if client.in_slices or client.in_flight:
                self._begun.append((now, held))
            else:
                self._release(held)
            machine.woken.append(client)


def _has_result(args: list[bytes]) -> bool:
    return len(args) > 3 and args[-2].upper() == b"RESULT"
