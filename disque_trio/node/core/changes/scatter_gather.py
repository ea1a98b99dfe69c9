"""Commands about the jobs of a queue on all nodes (scatter and gather): REDRIVE, QPURGE, QMOVE.

The work is done slice by slice, first here, then on each reachable node in turn. Clients are served
in between. A node handles no more jobs than it had in the queue at first, so that jobs that arrive
meanwhile, maybe those just moved away, do not keep it going forever.

A slice that a node is asked for may reach it late: a connection can deliver what it was given
before a partition when that is over. The client has its reply by then, and counts on the node to
keep its queue. So each answer says until when the node does the next slice, by its own clock, and
the question for that slice repeats it; the first question to a node only asks for that.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, TypeAlias

from disque_trio.eventlog import schema
from disque_trio.node.core.changes.state_counts import JobStateCounter
from disque_trio.node.core.changes.updates import Updates
from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.lifecycle.ack_gc import AckGc
from disque_trio.node.core.lifecycle.dead_letters import DeadLetters
from disque_trio.node.core.pages.pages import ALL_JOBS
from disque_trio.node.core.pages.segment import DamagedError, Segment
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.queue import PAUSED_IN, Queue
from disque_trio.node.core.rpc.calls import MOVE, PURGE, REDRIVE, Question
from disque_trio.protocol.bus import MAX_JOB
from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    number_of,
    pack_number,
    pack_texts,
    unpack_number,
    unpack_texts,
)
from disque_trio.protocol.trailer import CANCELLED, Ending
from disque_trio.resp.reply import integer
from disque_trio.respserver.client import Client, Pending

SLICE: Final = 100  # jobs
# A slice of QMOVE is smaller, since all of each job goes to its other holders. It starts no
# further job after this many bytes of bodies.
MOVED: Final = 25  # jobs
MOVED_BYTES: Final = 1 << 20
SEGMENTS_AT_ONCE: Final = 8  # to read for a slice, of as many groups
PATIENCE: Final = 5_000  # ms for a node to do a slice
# ms after its last answer in which it begins one: less, since clocks are not equally fast.
FRESH: Final = 4_000

# Types of fields.
_TEXTS: Final = 2
_MOST: Final = 3
_DONE: Final = 4
_LENGTH: Final = 5  # of the queue after that
_MORE: Final = 7  # 1: there are more, on disk
_UNTIL: Final = 6  # the node that is asked does the next slice until then, in ms of its clock

REST: Final = 10  # ms, until a node is asked again that reads its disk
BEHIND: Final = 10  # ms until a node checks again whether others have read what it sent

# Handles up to that many jobs; the texts say which, and how. Returns how many it handled.
Work: TypeAlias = Callable[[list[bytes], int], int]


class ScatterGather(Pending):
    """The pending reply of a command about the jobs of a queue.

    Attributes:
        kind: of the work.
        texts: say which jobs it is about, and how it is done.
        left: how many more jobs may be handled.
        done: how many have been.
        share: how many more jobs the current node may handle; -1: not known yet.
        nodes: ids of the other nodes that have not been asked.
        walk: over the jobs of this node that have not been looked at; None: not begun.
        until: when the current node last does the next slice, by its clock; -1: not asked yet.
    """

    __slots__ = ("done", "kind", "left", "nodes", "share", "texts", "until", "walk")

    def __init__(
        self, client: Client, kind: int, texts: list[bytes], left: int, nodes: list[bytes]
    ) -> None:
        super().__init__(client, None)
        self.kind = kind
        self.texts = texts
        self.left = left
        self.done = 0
        self.share = -1
        self.nodes = nodes
        self.until = -1
        self.walk: Iterator[Job | None] | None = None

    def most(self) -> int:
        """Return how many jobs the next slice may handle."""
        most = min(self.left, MOVED if self.kind == MOVE else SLICE)
        return most if self.share < 0 else min(most, self.share)

    def note(self, done: int, length: int) -> bool:
        """Note that ``done`` jobs were handled, and that the queue now has ``length``. Returns
        whether the same node goes on."""
        # A slice of QMOVE may be short because its jobs are large.
        goes_on = done == self.most() or (self.kind == MOVE and done > 0)
        self.share = length if self.share < 0 else self.share - done
        self.done += done
        self.left -= done
        return goes_on and self.share > 0 and self.left > 0


class ScatterGathers:
    """The commands of one node that have work to do on others, too.

    Args:
        ack_gc: ends them.
        letters: sends dead letters back.
        updates: moves them.

    Attributes:
        waiting: those with work to do on this node, the next one first.
        state_counter: counts the jobs of queues, also slice by slice.
    """

    def __init__(self, core: Core, ack_gc: AckGc, letters: DeadLetters, updates: Updates) -> None:
        self.waiting: deque[ScatterGather] = deque()
        self.state_counter = JobStateCounter(core)
        self._resting: list[ScatterGather] = []  # until jobs on other nodes are in memory there
        self._cut_short = False  # the last slice, as jobs lie on disk
        self._paging = core.paging
        self._asked: dict[int, ScatterGather] = {}  # by the number of the question
        self._machine = core.machine
        self._store = core.store
        self._ack_gc = ack_gc
        self._updates = updates
        self._letters = letters
        self._rpc = core.rpc
        self._peers = core.peers
        self._works: dict[int, Work] = {
            REDRIVE: letters.redrive,
            PURGE: self._purge,
            MOVE: self._move,
        }
        for kind in self._works:
            core.rpc.handlers[kind] = partial(self._answer, kind)

    def begin(self, client: Client, kind: int, texts: list[bytes], most: int) -> None:
        """Handle up to ``most`` jobs as ``kind`` says; the reply to ``client`` is their number."""
        scatter = ScatterGather(client, kind, texts, most, list(self._peers.reachable))
        client.line_up(scatter)
        self.waiting.append(scatter)
        self._rpc.timer.wake_by(self._machine.now)

    def do_slice(self) -> None:
        """Do a slice of the first waiting scatter, if any, and count some jobs, if need be."""
        self.state_counter.do_slice()
        resting, self._resting = self._resting, []
        for scatter in resting:
            if not self._ask(scatter, scatter.nodes[0]):
                scatter.nodes.pop(0)
                self._ask_next(scatter)
        if not self.waiting:
            return
        scatter = self.waiting.popleft()
        if scatter.kind == MOVE and any(map(self._peers.behind, self._peers.everyone())):
            # Moved jobs still wait in connections; do not let them pile up.
            self.waiting.append(scatter)
            self._rpc.timer.wake_by(self._machine.now + BEHIND)
            return
        machine = self._machine
        scatter.journaled = machine.journaling
        most = 0 if self._problem(scatter.kind) else scatter.most()
        if scatter.kind == REDRIVE:
            done = self._redrive(scatter, most)
            cut_short = self._letters.cut_short
        else:
            machine.client = scatter.client if scatter.kind == MOVE else None  # for the event log
            done = self._works[scatter.kind](scatter.texts, most)
            machine.client = None
            cut_short = self._cut_short
            self._cut_short = False
        goes_on = scatter.note(done, self._length(scatter.texts)) or (cut_short and most > 0)
        if scatter.kind == PURGE:
            self._read_ahead(scatter.texts[0], not goes_on)
        if goes_on:
            self.waiting.append(scatter)
        else:
            self._ask_next(scatter)
        if self.waiting:
            waits = self._letters.waits if scatter.kind == REDRIVE else cut_short
            later = 1 if waits else 0  # for the disk
            self._rpc.timer.wake_by(self._machine.now + later)

    def _redrive(self, scatter: ScatterGather, most: int) -> int:
        """Send up to ``most`` dead letters back; returns how many."""
        queue = self._store.queues.by_name.get(scatter.texts[0])
        on_disk = queue is not None and queue.on_disk() > 0
        # The groups of a queue in memory are walked over at once.
        if scatter.walk is None and queue is not None and (on_disk or queue.groups is None):
            scatter.walk = self._paging.walk(queue) if on_disk else queue.walk(False)
        return self._letters.redrive(scatter.texts, most, scatter.walk)

    def _problem(self, kind: int) -> str:
        """Why the file cannot take what a slice does; empty: it can."""
        return self._machine.write_problem if kind == PURGE else self._machine.add_problem

    def _length(self, texts: list[bytes]) -> int:
        """The length of the queue that ``texts`` are about."""
        queue = self._store.queues.by_name.get(texts[0]) if texts else None
        return 0 if queue is None else queue.length

    def _ask_next(self, scatter: ScatterGather) -> None:
        """Ask the next node to do a slice, or reply if there is none."""
        scatter.share = -1
        scatter.until = -1
        while scatter.left and scatter.nodes:
            if self._ask(scatter, scatter.nodes[0]):
                return
            scatter.nodes.pop(0)
        scatter.reply = integer(scatter.done)
        self._machine.answered.append(scatter)

    def _ask(self, scatter: ScatterGather, node: bytes) -> bool:
        """Ask ``node`` for the next slice. Return False if it cannot be asked."""
        fields: list[Field] = [
            (_TEXTS, pack_texts(scatter.texts)),
            (_MOST, pack_number(scatter.most())),
            (_UNTIL, pack_number(scatter.until)),
        ]
        question = self._rpc.call(scatter.kind, fields, [node], PATIENCE, self._on_answer)
        if question.over:
            return False
        self._asked[question.number] = scatter
        return True

    def _on_answer(self, question: Question) -> None:
        """Go on after a node has done a slice, or did not answer."""
        scatter = self._asked.pop(question.number, None)
        if scatter is None:
            return
        goes_on = False
        for fields in question.answers.values():
            done = min(number_of(fields, _DONE), scatter.most())
            only_asked = scatter.until < 0 and not done
            scatter.until = number_of(fields, _UNTIL)
            goes_on = only_asked or scatter.note(done, number_of(fields, _LENGTH))
            if number_of(fields, _MORE) == 1 and scatter.share > 0 and scatter.left > 0:
                self._resting.append(scatter)  # the disk takes a moment there
                self._rpc.timer.wake_by(self._machine.now + REST)
                return
        if not (goes_on and self._ask(scatter, scatter.nodes[0])):
            scatter.nodes.pop(0)
            self._ask_next(scatter)

    def _answer(self, kind: int, sender: bytes, fields: list[Field]) -> list[Field] | None:
        """Do a slice for another node, if it is not too late. Raises ``FieldsError``."""
        texts: list[bytes] = []
        most = 0
        for type, value in fields:
            if type == _TEXTS:
                texts = unpack_texts(value)
            elif type == _MOST:
                most = min(unpack_number(value), SLICE)
        now = self._machine.now
        # More than that is left if the clock was set back: then this may be late as well.
        in_time = 0 <= number_of(fields, _UNTIL) - now <= FRESH
        if self._problem(kind) or not in_time:
            most = 0
        done = self._works[kind](texts, most)
        if kind == REDRIVE and most:
            self._look_for_more(texts, done, most)
        more = self._cut_short and most > 0
        self._cut_short = False
        return [
            *([(_MORE, pack_number(1))] if more else []),
            (_DONE, pack_number(done)),
            (_LENGTH, pack_number(self._length(texts))),
            (_UNTIL, pack_number(now + FRESH)),
        ]

    def flush(self) -> None:
        """Reply with what was done so far: all jobs have been forgotten."""
        self.state_counter.flush()
        for scatter in [*self.waiting, *self._asked.values(), *self._resting]:
            scatter.reply = integer(scatter.done)
            self._machine.answered.append(scatter)
        self.waiting.clear()
        self._resting.clear()
        self._asked.clear()

    def _purge(self, texts: list[bytes], most: int) -> int:
        """Cancel the first jobs in the queue ``texts[0]``, up to ``most``; return how many. Raises
        ``FieldsError``."""
        if len(texts) != 1:
            raise FieldsError("a QPURGE without a queue")
        queue = self._store.queues.by_name.get(texts[0])
        if queue is None:
            return 0
        done = 0
        self._cut_short = False
        while done < most:
            jobs = list(islice(queue.ready_jobs(), most - done))
            for job in jobs:
                self._ack_gc.end(job, Ending(CANCELLED), schema.BY_CLIENT)
            done += len(jobs)
            segments = queue.next_segments(SEGMENTS_AT_ONCE)
            if done >= most or not segments:
                break
            for first in segments:
                more = self._purge_segment(queue.lane(first.group), first, most - done)
                if more < 0:
                    self._cut_short = True
                else:
                    done += more
            if self._cut_short:
                break
        return done

    def _purge_segment(self, queue: Queue, first: Segment, most: int) -> int:
        """Cancel jobs in ``first``, the next segment of ``queue``, or of a group, up to ``most``;
        return how many. Reads nothing but ids. -1: they are being read."""
        before = (first.ctime, first.id[:-1])
        line = [] if queue.paged is None else queue.paged.by_urgency[first.urgency]
        if (
            not first.plain
            or queue.between(first.urgency, before, first.end)
            or (len(line) > 1 and line[1].begin < first.end)
        ):
            # Other nodes have to be told, or others are among them.
            return -1 if self._paging.want(first, ALL_JOBS) else 0
        ids: list[bytes] | None = None
        try:
            if not first.rebuilding:
                ids = self._paging.views.ids(first)
        except DamagedError as problem:
            self._paging.rebuild(first, str(problem))
        if ids is None:
            return -1
        outcomes = self._store.outcomes
        for id in ids[:most]:
            outcomes.total_cancelled += 1
            outcomes.cancelled_elsewhere(id)
            self._paging.end(id, False, schema.CANCELLED, schema.BY_CLIENT)
        return min(len(ids), most)

    def _read_ahead(self, name: bytes, wanted: bool) -> None:
        """Have the next jobs of the queue ``name`` read, or not, while it is emptied."""
        queue = self._store.queues.by_name.get(name)
        if queue is not None and queue.paged is not None:
            if wanted:
                queue.look()
            elif not queue.waiters:
                self._paging.pages.hungry.pop(queue.paged, None)

    def _move(self, texts: list[bytes], most: int) -> int:
        """Move the first jobs in the queue ``texts[0]`` to the queue ``texts[1]``, up to ``most``;
        returns how many. Raises ``FieldsError``."""
        if len(texts) != 2 or texts[0] == texts[1]:
            raise FieldsError("a QMOVE without two queues")
        queues = self._store.queues.by_name
        queue = queues.get(texts[0])
        target = queues.get(texts[1])
        memory = self._machine.memory
        if (
            queue is None
            or (target is not None and target.paused & PAUSED_IN)
            or memory.used > memory.evict_above
            or not self._peers.extended
        ):
            return 0
        room = MAX_JOB - len(texts[1])
        jobs: list[Job] = []
        size = 0
        for job in queue.ready_jobs():
            if len(jobs) == most or size >= MOVED_BYTES:
                break
            if len(job.body or b"") <= room:
                jobs.append(job)
                size += len(job.body or b"")
        if size < MOVED_BYTES:
            self._call_for_more(queue, len(jobs), most)
        for job in jobs:
            if queue.groups is not None:
                queue.groups.pass_turn(job)  # the next slice goes on with the next group
            self._updates.move(job, texts[1])
        return len(jobs)

    def _look_for_more(self, texts: list[bytes], found: int, wanted: int) -> None:
        """Do ``_call_for_more`` after a slice of REDRIVE for another node. It gives up at jobs that
        stay: nobody knows here which it has looked at."""
        if len(texts) > 2:
            waiting = [id for id in texts[2:] if self._store.jobs.get(id) is None]
            coming = [self._paging.bring(id) for id in waiting]
            self._cut_short = True in coming
            return
        queue = self._store.queues.by_name.get(texts[0])
        if queue is not None and (found or not any(True for _ in queue.ready_jobs())):
            self._call_for_more(queue, found, wanted)

    def _call_for_more(self, queue: Queue, found: int, wanted: int) -> None:
        """If fewer jobs of ``queue`` than ``wanted`` were found because the next ones lie on disk,
        have these read, and note that more follow."""
        segments = queue.next_segments(SEGMENTS_AT_ONCE) if found < wanted else []
        self._cut_short = len(segments) > 0
        for segment in segments:
            self._paging.want(segment, ALL_JOBS)
