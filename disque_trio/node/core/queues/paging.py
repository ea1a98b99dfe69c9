"""Moves the middle of long queues to disk while memory is short, and back before it is needed.

The head and the tail of a queue stay jobs in memory. The jobs in between go to disk in segments,
in their order; those that other parts of the node refer to stay where they are in the line. They
come back with their segment when few jobs are left before it, or alone if a command names them. A
job on disk still counts in its queue; it has no timer, so a segment is read when the first of its
jobs expires, and some come back that are next. Its trailer is on disk, too; if it has a key, that
stays in memory. Other nodes that hold copies are told in time that all jobs of a segment are queued
here. Copies that this node holds for others go as well, and jobs with a delay (see
``in_no_queue``).
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final
from zlib import crc32

from disque_trio.eventlog.schema import ACKED, Kind, Reason
from disque_trio.node.core.jobs.job import (
    FLAG_TRAILER,
    FLAGS_IN_FILES,
    JOB_OVERHEAD,
    Job,
    id_minutes,
)
from disque_trio.node.core.pages.pages import ALL_JOBS, EXPIRE, TELL, VIEW, Pages
from disque_trio.node.core.pages.segment import (
    CHECKSUM,
    RETRIED,
    DamagedError,
    Segment,
    SegmentLines,
)
from disque_trio.node.core.queues.disk_views import DiskViews, line_order, remade
from disque_trio.node.core.queues.give_back import GiveBack
from disque_trio.node.core.queues.in_no_queue import LOOK_AFTER, InNoQueue
from disque_trio.node.core.queues.keys_on_disk import KeysOnDisk
from disque_trio.node.core.queues.page_in import PageIn
from disque_trio.node.core.queues.page_out import STAYING, PageOut
from disque_trio.node.core.queues.queue import Queue
from disque_trio.node.core.queues.store import WARNING_TIME, JobStore
from disque_trio.protocol.serialjob import decode_job, deljob, loadjob
from disque_trio.protocol.trailer import split_body
from disque_trio.respserver.memory import MEMORY, UNLIMITED

READ_AHEAD: Final = 8  # times the bytes of a segment, if they have few jobs
READ_AT_ONCE: Final = 4  # segments, as it is time
WALKED: Final = 500  # jobs at a time


class Paging:
    """Moves jobs of ``store`` to disk and back.

    Attributes:
        pages: what is on disk.
        ready: what waited for jobs that are now in memory; ``go_on`` calls it.
        dumping: whether a dump of all jobs is under way.
        rebuilds: how often jobs of a segment that cannot be read came from the append-only file.
        views: jobs on disk, to look at. give_back: gives single jobs back to the disk.
        aside: jobs on disk that are in no queue. keys: of jobs on disk.
        damaged: called with the number of a segment that cannot be read, and why.
        ask_first: called with each job of a segment that ``asks``, when it is held.
    """

    def __init__(self, store: JobStore) -> None:
        self.pages: Pages = store.queues.pages
        self.ready: list[Callable[[], object]] = []
        self.dumping = False
        self.rebuilds = 0
        self.damaged: Callable[[int, str], None] = _nothing_said
        self.ask_first: Callable[[Job], None] = _not_asked
        self.views = DiskViews(store, self.rebuild)
        self._awaited: dict[tuple[int, int], list[Callable[[], object]]] = {}
        self._to_read: deque[tuple[int, int]] = deque()  # numbers of segments, and places
        self._reading: set[int] = set()  # of these, numbers of those that are being read
        self.keys = KeysOnDisk(store)
        self._out = PageOut(store, self.keys)
        self._in = PageIn(store, self.keys)
        self.give_back = GiveBack(store, self._out.busy)
        self._out.busy.append(self.give_back.visits)
        self.aside = InNoQueue(store, self._out)
        self._out.more = self.aside.page_out_one
        self._dead: dict[bytes, Callable[[Job], None]] = {}
        self._store = store
        self._machine = store.machine
        self._memory = store.machine.memory
        self._replicas = store.replicas

    def set_above(self, above: int | None, off: str = "paging is no") -> None:
        """Let jobs go to disk while more than ``above`` bytes of memory are used; None: never,
        because of ``off``. Those that lie there come back in their time."""
        self.pages.above = UNLIMITED if above is None else above
        self.pages.off = off if above is None else ""
        if above is not None and self._memory.limit:
            self.pages.fit(self._memory.limit)
        self._out.wake_up()
        self.aside.wake_up()

    # ---- turns ------------------------------------------------------------------------------

    def turn(self) -> None:
        """Do what a turn has made necessary: call for segments, and move jobs to disk."""
        pages = self.pages
        if pages.hungry:
            self._feed()
        if pages.sparse:
            self._gather()
        if self._memory.used > pages.above:
            # Otherwise notes about jobs wait to be written, or what waited for jobs has to run.
            if not (self._store.progress.due or self.ready):
                if self.give_back.visits:
                    self.give_back.turn()
                self._out.some()
        elif pages.problem:
            pages.problem = ""  # there is nothing to write
        if pages.orders:
            orders, pages.orders = pages.orders, []
            pages.perform(orders)

    def _feed(self) -> None:
        """Have the segments read that queues need."""
        pages = self.pages
        soon = False
        for lines in list(pages.hungry):
            first = lines.first()
            if first is None or first.reading:
                del pages.hungry[lines]
            elif first.data is not None:
                soon = True  # no need to wait for the disk
            else:
                del pages.hungry[lines]
                for segment in lines.first_few(pages.most, READ_AHEAD * pages.most_bytes):
                    if segment.reading or segment.data is not None or not segment.live:
                        break
                    pages.order_read(segment)
        if soon:
            self.wake()

    def _gather(self) -> None:
        """Have two sparse segments read that are next to each other, so that their files go; their
        jobs go to disk with others again."""
        pages = self.pages
        memory = self._memory
        # They may come faster than they go.
        if memory.used >= min((pages.above + memory.external_above) // 2, memory.external_above):
            return
        while pages.sparse and not self._to_read:
            segment = pages.segments.get(pages.sparse.pop())
            other = None if segment is None else self._lines_of(segment).neighbour(segment)
            if segment is not None and other is not None:
                self._to_read += [(segment.number, ALL_JOBS), (other.number, ALL_JOBS)]
                self._read_next()

    def wake(self) -> None:
        """Call ``go_on`` soon."""
        self._store.limits.wake(self._machine.now)

    @property
    def due(self) -> int:
        """When ``go_on`` next has something to do, in ms; 0: never."""
        if self.pages.hungry or self.ready:
            return self._machine.now
        if self.pages.segments and self.aside.over and not self.aside.is_coming():
            return self._machine.now + LOOK_AFTER
        due, tidied = self.pages.due if self.pages.segments else 0, self.views.due
        return min(due, tidied) if due and tidied else due or tidied

    def wake_by_due(self) -> None:
        """Call ``go_on`` when it has something to do."""
        self._store.limits.wake(self.due)

    def go_on(self, now: int) -> None:
        """Bring jobs back that are still in memory, or that expire; go on with what waited."""
        self.views.tidy(now)
        if self.pages.segments:
            self._go_on_with_segments(now)
        ready, self.ready = self.ready, []
        for then in ready:
            then()

    def _go_on_with_segments(self, now: int) -> None:
        """Bring jobs back, and tell other nodes of those that stay on disk, as far as it is
        time."""
        for lines in list(self.pages.hungry):
            first = lines.first()
            if first is not None and first.data is not None:
                self.page_in(first, first.data)
        segment = self.pages.take_expired((now - 1000) // 1000)
        while segment is not None:
            self._to_read.append((segment.number, EXPIRE))
            segment = self.pages.take_expired((now - 1000) // 1000)
        segment = self.pages.take_untold(now)
        while segment is not None:
            if segment.origin is None:
                self._to_read.append((segment.number, TELL))
            elif segment.origin == RETRIED:
                self.aside.over.append(segment.number)
            elif not self.aside.look_at(segment):
                self._to_read.append((segment.number, ALL_JOBS))
            segment = self.pages.take_untold(now)
        self._read_next()
        if self.aside.over:
            self.aside.bring_retried(now, self.page_in)
        self._go_on_with_dead()

    def _read_next(self) -> None:
        """Have the next segments read whose time has come: a few at a time, as each takes a
        megabyte."""
        while self._to_read and len(self._reading) < READ_AT_ONCE:
            number, place = self._to_read.popleft()
            segment = self.pages.segments.get(number)
            if segment is None or segment.reading:
                continue
            if segment.data is None:
                self._reading.add(number)
            if place == ALL_JOBS:
                self.want(segment, ALL_JOBS)
            elif segment.data is not None:
                (self._tell if place == TELL else self._expire)(segment, segment.data)
            else:
                self.pages.order_read(segment, place)

    # ---- other holders ----------------------------------------------------------------------

    def _tell(self, segment: Segment, data: bytes) -> None:
        """Tell the other holders that the jobs of ``segment``, whose file is ``data``, are in the
        queue here, before they begin to ask; and again in time."""
        now = self._machine.now
        tell = self._replicas.tell_of_queued
        try:
            found = segment.read_all(data)
        except DamagedError as problem:
            self.rebuild(segment, str(problem))
            return
        for at in range(len(found.places)):
            holders = segment.holders_at(found.places[at])
            if holders is not None and found.shared(at).retry >> 16:
                tell(found.ids[at], holders)
        segment.told = now
        # As ``JobStore.ahead``, with a sixteenth of the time for the disk.
        retry = segment.retry * 1000
        self.pages.tell_at(segment, now + retry - retry // 16 - min(2 * WARNING_TIME, retry // 2))
        self.wake_by_due()

    def died(self, node: bytes, found: Callable[[Job], None]) -> None:
        """Bring all copies of jobs back that ``node``, which is dead, had queued, a segment at a
        time; call ``found`` with each."""
        self._dead[node] = found
        self.wake()

    def is_back(self, node: bytes) -> None:
        """Note that ``node`` is not dead after all."""
        self._dead.pop(node, None)

    def _go_on_with_dead(self) -> None:
        """Have the next segment read for each dead node."""
        for node in list(self._dead):
            segment = self.aside.of_node(node)
            if segment is None:
                del self._dead[node]
            elif segment.data is None:
                if not segment.reading:
                    self.pages.order_read(segment)
            elif not self.want(segment, ALL_JOBS):
                self.wake()

    def hears(self, node: bytes, id: bytes) -> bool:
        """Note that ``node`` has the job ``id``, of which a copy is on disk, in its queue. Return
        False if the copy is needed for that, or there is none."""
        at = self.pages.index.find_one(id)
        return at >= 0 and self.aside.hears(*self.pages.at(at), node)

    def is_copy_on(self, nodes: tuple[bytes, ...], id: bytes) -> bool:
        """Note that the job ``id``, of which a copy is on disk, may also be on ``nodes``; return
        False as ``hears`` does."""
        at = self.pages.index.find_one(id)
        return at >= 0 and self.aside.is_copy_on(*self.pages.at(at), nodes)

    def leaves(self, node: bytes, id: bytes) -> bool:
        """The same as ``hears``, if a client of ``node`` has it."""
        at = self.pages.index.find_one(id) if self.pages.jobs else -1
        return at >= 0 and self.aside.leaves(*self.pages.at(at), node)

    def answer(self, asker: bytes, id: bytes) -> bool:
        """Tell the node ``asker``, which wants to know who has the job ``id``, that it is in the
        queue here, if it is on disk, and ``asker`` known to hold it, too; return whether it was
        told."""
        at = self.pages.index.find_one(id)
        if at < 0:
            return False
        segment, place = self.pages.at(at)
        holders = segment.holders_at(place)
        if segment.origin is not None or holders is None or asker not in holders:
            return False
        self._replicas.tell_of_queued(id, (asker,))
        return True

    def ending(self, id: bytes) -> Job | None:
        """Take the job ``id``, which ends, from the disk, if it is there, without reading it: hold
        it without its body until the other holders know. It keeps its key no longer."""
        pages = self.pages
        at = pages.index.find_one(id) if pages.jobs else -1
        if at < 0:
            return None
        segment, place = pages.at(at)
        store = self._store
        now = self._machine.now
        # The id has whole minutes, rounded down.
        etime = now // 1000 + (id_minutes(id) + 1) * 60
        job = Job(id, segment.queue, None, 0, segment.ctime, etime, 0, 0, store.dump_number)
        job.delivered = segment.holders_at(place)
        self._end_key(id, self._replicas.of(job))
        self._forget(segment, place)
        store.register(job)
        return job

    def _forget(self, segment: Segment, place: int) -> None:
        """Forget the job at ``place`` of ``segment``, which is over."""
        size = self.pages.take(segment, self._lines_of(segment), place)
        if self._memory.shares is not None:
            self._memory.shares.add(segment.queue, MEMORY, -JOB_OVERHEAD - size)
        if segment.origin is None:
            queue = self._store.queues.by_name[segment.queue]
            queue.gone_from_disk(segment, 1, size)
            queue.atime = self._machine.now

    # ---- to disk ----------------------------------------------------------------------------

    def paged_out(self, number: int, problem: str) -> None:
        """Note that the file ``number`` was written, or, if there is a ``problem``, was not."""
        pages = self.pages
        segment = pages.segments.get(number)
        pages.problem = problem
        if problem:
            self._out.failed()
            if segment is not None and segment.data is not None:
                self.page_in(segment, segment.data)
        elif segment is not None:
            pages.written(segment)

    # ---- from disk --------------------------------------------------------------------------

    def paged_in(self, number: int, place: int, data: bytes | None) -> None:
        """Take what was read of the file ``number``: the record at ``place``, or all of it if that
        is -1; None: it could not be read."""
        segment = self.pages.segments.get(number)
        if place < 0 and number in self._reading:
            self._reading.remove(number)
            if self._to_read:
                self.wake()
        if place < ALL_JOBS:
            if segment is not None and not segment.reading:
                (self._tell if place == TELL else self._expire)(segment, data or b"")
            return
        if place >= VIEW:
            self.views.take_in(number, place, data or b"")
        elif segment is not None:
            if place < 0:
                segment.reading = False
                if data is None:
                    self.rebuild(segment, "the file cannot be read")
                    return
                if not self.page_in(segment, data):
                    return
            elif segment.has(place):
                try:
                    if data is None:
                        raise DamagedError("the file cannot be read")
                    found = segment.read_part(data, place)
                except DamagedError as problem:
                    self.rebuild(segment, str(problem))
                    return
                self._take_one(segment, place, self._in.read_one(segment, found, 0))
        self._is_read(number, place)

    def _is_read(self, number: int, place: int) -> None:
        """Go on soon with what waited for the segment ``number``, or one place in it."""
        self.ready += self._awaited.pop((number, place), [])
        self.wake()

    def page_in(self, segment: Segment, data: bytes) -> bool:
        """Bring all jobs of ``segment``, whose file is ``data``, back into memory. Return False if
        they have to be found elsewhere first."""
        try:
            found = segment.read_all(data)
        except DamagedError as problem:
            self.rebuild(segment, str(problem))
            return False
        jobs: list[Job] = []
        checksums: list[int] = []
        self._in.trailers.clear()
        for at in range(len(found.places)):
            jobs.append(self._in.read_one(segment, found, at))
            checksums.append(found.number(at, CHECKSUM))
        self._put_back(segment, jobs, checksums)
        return True

    def _take_one(self, segment: Segment, place: int, job: Job) -> None:
        """Bring ``job``, the one at ``place`` of ``segment``, back into memory."""
        self.pages.take(segment, self._lines_of(segment), place, not segment.plain)
        self._hold(segment, [job], [crc32(job.id)])
        if segment.origin is None:
            self._put_in(segment, [job])
            if segment.plain:
                self.give_back.note(segment, place, job)

    def _put_back(self, segment: Segment, jobs: list[Job], checksums: list[int]) -> None:
        """Put all ``jobs`` of ``segment``, whose ids have these ``checksums``, back into memory."""
        self.pages.drop(segment, self._lines_of(segment))
        self._hold_all(segment, jobs, checksums)

    def _hold_all(self, segment: Segment, jobs: list[Job], checksums: list[int]) -> None:
        """Hold ``jobs``, which were in ``segment``, and whose ids have these ``checksums``."""
        self._hold(segment, jobs, checksums)
        if segment.origin is None:
            self._put_in(segment, jobs)
            self._out.came = self._machine.now
        elif segment.origin in self._dead:
            for job in jobs:
                self._dead[segment.origin](job)

    def _expire(self, segment: Segment, data: bytes) -> None:
        """Bring those jobs of ``segment``, whose file is ``data``, back that expire next."""
        pages = self.pages
        try:
            found = segment.read_all(data)
        except DamagedError as problem:
            self.rebuild(segment, str(problem))
            return
        first, nearer = segment.expiring(found, self._machine.now // 1000)
        pages.watch(segment, first)
        self.wake_by_due()
        lines = self._lines_of(segment)
        jobs: list[Job] = []
        self._in.trailers.clear()
        for at in nearer:
            jobs.append(self._in.read_one(segment, found, at))
            pages.take(segment, lines, found.places[at])
        if jobs:
            self._hold_all(segment, jobs, [crc32(job.id) for job in jobs])

    def _lines_of(self, segment: Segment) -> SegmentLines:
        """The line that ``segment`` is in."""
        if segment.origin is not None:
            return self.aside.lines
        lines = self._store.queues.by_name[segment.queue].lane(segment.group).paged
        assert lines is not None
        return lines

    def _hold(self, segment: Segment, jobs: list[Job], checksums: list[int]) -> None:
        """Hold ``jobs``, which were in ``segment``, and whose ids have these ``checksums``."""
        self._in.hold(segment, jobs, checksums)
        if segment.asks:
            for job in jobs:
                self.ask_first(job)
        if self.dumping or segment.moved:
            for job in jobs:
                self._note(segment, job)

    def _note(self, segment: Segment, job: Job) -> None:
        """Note ``job``, which was in ``segment``, for files that may have passed its place."""
        store = self._store
        if segment.moved and store.progress.recording and store.progress.has_moved(job):
            store.progress.note(job)
        if self.dumping and self._machine.journaling:
            # A job that is loaded twice is only one.
            flags = job.flags & FLAGS_IN_FILES
            carried = store.trailers.carried(job)
            if carried:
                flags |= FLAG_TRAILER
            payload = self._replicas.serialize(job, flags, job.etime, (job.body or b"") + carried)
            self._machine.journal.append(loadjob(payload))

    def _put_in(self, segment: Segment, jobs: list[Job]) -> None:
        """Put ``jobs``, which were in ``segment``, into their queue in memory."""
        queues = self._store.queues
        queue = queues.by_name[segment.queue]
        lane = queue.lane(segment.group)
        lane.put_in(segment.urgency, jobs)
        lane.look()
        if lane.groups is not None:
            self._store.limits.grouping.goes_on(queue)
        elif lane.paged is not None and not lane.paged.by_urgency:
            lane.paged = None
        if queues.interests is not None:
            queues.interests.note(queue)
        queues.ready.append(queue)  # clients here may wait, or other nodes

    # ---- damage -----------------------------------------------------------------------------

    def rebuild(self, segment: Segment, problem: str) -> None:
        """Have the jobs of ``segment``, which cannot be read, looked for in the append-only
        file."""
        if segment.data is not None or segment.rebuilding:
            return
        if segment.number not in self.pages.segments:
            return  # its file is gone, as its jobs have left it
        segment.rebuilding = True
        self.damaged(segment.number, problem)
        segment.reading = True
        self.pages.order_rebuild(segment)

    def look_again(self) -> None:
        """Have the jobs of which the progress file has to tell, and that cannot be read, looked for
        again: no turn follows that would take what is being looked for."""
        for segment in list(self.pages.segments.values()):
            if segment.moved and segment.rebuilding:
                self.pages.order_rebuild(segment)

    def rebuilt(self, number: int, found: dict[int, bytes]) -> None:
        """Take the serialised jobs of the segment ``number`` that were ``found`` in the append-only
        file, by place. The others are lost."""
        segment = self.pages.segments.get(number)
        self.rebuilds += 1
        if segment is not None:
            self._in.trailers.clear()
            places = [place for place in segment.places() if place in found]
            jobs: list[Job] = []
            for place in places:
                one = decode_job(found[place])
                if one.flags & FLAG_TRAILER:
                    one.body, self._in.trailers[one.id] = split_body(one.body)
                one.flags &= ~STAYING
                jobs.append(remade(segment, place, one, self._store))
            jobs.sort(key=line_order)
            lost = segment.live - len(jobs)
            bodies = segment.bodies - sum([len(job.body or b"") for job in jobs])
            self._put_back(segment, jobs, [crc32(job.id) for job in jobs])
            if lost:
                self.pages.lost += lost
                if self._memory.shares is not None:
                    size = bodies + lost * JOB_OVERHEAD
                    self._memory.shares.add(segment.queue, MEMORY, -size)
                if segment.origin is None:
                    segment.live = 0
                    queue = self._store.queues.by_name[segment.queue]
                    queue.gone_from_disk(segment, lost, bodies)
                for id in self.keys.lost():
                    self._end_key(id, self._replicas.alone)
        for other, place in list(self._awaited):
            if other == number:
                self._is_read(number, place)
        self.wake()

    # ---- single jobs ------------------------------------------------------------------------

    def want(self, segment: Segment, place: int, then: Callable[[], object] | None = None) -> bool:
        """Bring the job at ``place`` of ``segment`` back, or all of them if that is -1. Return
        whether that has yet to happen: then ``then`` will be called, if given."""
        if segment.data is not None:
            if place < 0:
                return not self.page_in(segment, segment.data)
            try:
                found = segment.read(segment.data, place)
            except DamagedError:
                return False
            self._take_one(segment, place, self._in.read_one(segment, found, 0))
            return False
        key = (segment.number, place)
        waiting = self._awaited.get(key)
        if waiting is None:
            self._awaited[key] = [] if then is None else [then]
            if place >= 0 or not segment.reading:
                self.pages.order_read(segment, place)
        elif then is not None:
            waiting.append(then)
        return True

    def bring(
        self, id: bytes, then: Callable[[], object] | None = None, whole: bool = False
    ) -> bool:
        """Bring the job ``id`` back if it is on disk; return whether that has yet to happen: then
        ``then`` will be called, if given. ``whole``: bring all that are in its segment, if they are
        copies."""
        for place in self.pages.find(id):
            segment, at = self.pages.at(place)
            return self.want(
                segment, ALL_JOBS if whole and segment.origin is not None else at, then
            )
        return False

    def end(self, id: bytes, acked: bool = False, event: Kind = ACKED, reason: Reason = "") -> bool:
        """Forget the job ``id``, which is over, if it is on disk, without reading it; return
        whether it was. Use ``ending`` if other nodes hold it, too. ``acked``: a client acknowledged
        it. ``event``, ``reason``: for the event log; no reason: it is no event."""
        pages = self.pages
        at = pages.index.find_one(id) if pages.jobs else -1
        if at < 0:
            return False
        segment, place = pages.at(at)
        holders = segment.holders_at(place)
        if holders is not None and not self._machine.loading:
            return False
        store = self._store
        if reason and store.notes.noting:
            store.notes.note(event, Job(id, segment.queue, b"", 0, 0, 0, 0, 0), reason)
        if acked:
            store.total_acked += 1
            store.queues.traffic(segment.queue).acked += 1
            store.outcomes.note_acked(id)
        self._end_key(id, holders or self._replicas.alone)
        self._forget(segment, place)
        machine = self._machine
        if machine.journaling:
            machine.journal.append(deljob(id))
        return True

    def _end_key(self, id: bytes, holders: tuple[bytes, ...]) -> None:
        """Update the key of the job ``id``, which has ended, and was on ``holders``."""
        entry = self.keys.take(id)
        if entry is not None:
            self._store.uniques.end(entry, holders)

    def keep(self, ids: dict[bytes, Any]) -> None:
        """Keep the jobs ``ids`` in memory, from now on, whenever there are some."""
        self._out.busy.append(ids)

    def load_end(self, id: bytes) -> bool:
        """Do ``end`` for the job ``id``, whose end is in the append-only file."""
        entry = self.keys.entry(id)
        if entry is not None:
            self._store.uniques.load_end_of(entry)
        return self.end(id)

    def walk(self, queue: Queue) -> Iterator[Job | None]:
        """The jobs of ``queue`` in turn, each in memory; None: the next one is not there yet."""
        if queue.groups is not None:
            for lane in queue.groups.queues():
                yield from self._walk_lane(lane)
        yield from self._walk_lane(queue)

    def _walk_lane(self, queue: Queue) -> Iterator[Job | None]:
        paged = queue.paged
        urgencies = dict.fromkeys([*queue.urgencies(), *(paged.by_urgency if paged else ())])
        for urgency in sorted(urgencies, reverse=True):
            low: tuple[int, bytes] = (-1, b"")
            while True:
                segments = [] if queue.paged is None else queue.paged.by_urgency.get(urgency, [])
                later = [one for one in segments if (one.last_ctime, one.last_id) > low]
                high = (later[0].ctime, later[0].id[:-1]) if later else (1 << 64, b"")
                part = queue.between(urgency, low, high, WALKED)
                if part:
                    low = line_order(part[-1])
                    yield from part
                elif not later:
                    break
                elif self.want(later[0], ALL_JOBS):
                    yield None

    def knows(self, id: bytes) -> bool:
        """Whether the job ``id`` is on disk."""
        return len(self.pages.find(id)) > 0

    def queue_of(self, id: bytes) -> bytes | None:
        """The queue of the job ``id``, if it is on disk."""
        places = self.pages.find(id)
        return self.pages.at(places[0])[0].queue if places else None

    def flush(self) -> None:
        """Forget everything; the memory account was reset."""
        self.pages.clear()
        self.views.clear()
        self.give_back.visits.clear()
        for waiting in self._awaited.values():
            self.ready += waiting
        self._awaited.clear()
        self.keys.clear()
        if self.ready:
            self.wake()
        self._out.clear()
        self.aside.clear()
        self._dead.clear()
        self._to_read.clear()
        self._reading.clear()


def _not_asked(job: Job) -> None:
    """Where ``ask_first`` goes while nobody listens."""


def _nothing_said(number: int, problem: str) -> None:
    """Where ``damaged`` goes while nobody listens."""
