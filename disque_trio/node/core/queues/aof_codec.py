"""Converts jobs to records of append-only files and back: journals, loads and dumps them."""

from collections.abc import Callable
from struct import Struct
from typing import Final

from disque_trio.node.core.jobs.job import (
    ACKED,
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_QUEUED_BEFORE,
    FLAG_TRAILER,
    FLAGS_FROM_FILES,
    FLAGS_IN_FILES,
    QUEUED,
    Job,
    first_due,
    read_job,
)
from disque_trio.node.core.jobs.registry import SHARDS
from disque_trio.node.core.pages.segment import MOST_JOBS, DamagedError
from disque_trio.node.core.queues.disk_views import job_of
from disque_trio.node.core.queues.paging import Paging
from disque_trio.node.core.queues.recovery import Recovery
from disque_trio.node.core.queues.store import JobStore
from disque_trio.protocol.keyrecord import CONFIRMED, KeyRecord, read_key
from disque_trio.protocol.serialjob import (
    HEAD,
    ID_LENGTH,
    NODE_ID_LENGTH,
    Head,
    SerialJob,
    SerialJobError,
    decode_job,
    is_job_id,
    loadjob,
    loadjob_around,
    paused_queue,
    read_pause,
    read_u32,
)
from disque_trio.protocol.trailer import Trailer, split_body
from disque_trio.resp.ints import INT64_MAX

TELL_AGAIN: Final = 1_000  # ms from loading until the other nodes are told
LARGE_BODY: Final = 256 * 1024  # bytes; a larger body is not copied for the journal

_LOADJOB: Final = b"*2\r\n$7\r\nLOADJOB\r\n$"
_LENGTH_AT: Final = len(_LOADJOB)
_LENGTH_MOST: Final = 10  # digits of the length
_DELJOB: Final = b"*2\r\n$6\r\nDELJOB\r\n$40\r\n"
_ID_AT: Final = len(_DELJOB)
_DELJOB_SIZE: Final = _ID_AT + ID_LENGTH + 2
_HEAD_SIZE: Final = HEAD.size
_SHORTEST: Final = _HEAD_SIZE + 8
_U32: Final = Struct("<I")


class AofCodec:
    """Converts between the jobs of ``store`` and records of append-only files. ``recovery`` knows
    what became of the jobs, ``paging`` has those that lie on disk.

    Attributes:
        read_file: reads the file of a segment for a dump, by its number; raises ``OSError``.
    """

    def __init__(self, store: JobStore, recovery: Recovery, paging: Paging) -> None:
        self.read_file: Callable[[int], bytes] = _no_file
        self._store = store
        self._paging = paging
        self._pages = paging.pages
        self._segments: list[int] = []  # of the dump under way, that are yet to be dumped
        self._recovery = recovery
        self._machine = store.machine
        self._replicas = store.replicas
        self._next_shard = 0  # of the dump under way
        # Of the usual job that was loaded last; the next one usually has the same.
        self._queue = b""
        self._ending = b""
        self._holders: tuple[bytes, ...] | None = None

    # ---- writing ----------------------------------------------------------------------------

    def note(self, job: Job) -> None:
        """Add a record of ``job`` to the journal."""
        body = job.body
        if body is None or len(body) < LARGE_BODY or job.flags & FLAG_TRAILER:
            self._machine.journal.append(loadjob(self.serialize(job)))
        else:
            without = self.serialize(job, False)
            head, tail = loadjob_around(without, len(job.queue), len(body))
            self._machine.journal += (head, body, tail)

    def serialize(self, job: Job, whole: bool = True) -> bytes:
        """The serialised ``job``; if not ``whole``, as if it had no body."""
        body = job.body
        if body is None or job.state == ACKED or not whole:
            body = b""
        flags = job.flags & FLAGS_IN_FILES
        if job.flags & FLAG_TRAILER:
            trailer = self._store.trailers.carried(job)
            if trailer:
                flags |= FLAG_TRAILER
                body += trailer
        return self._replicas.serialize(job, flags, job.etime, body)

    # ---- loading ----------------------------------------------------------------------------

    def load_record(self, record: list[bytes], queue_jobs: bool) -> int:
        """Load one record. ``queue_jobs``: it was written after the node had stopped, so jobs that
        were queued are queued again. Return the number of jobs taken from it.

        Raises:
            SerialJobError: it is not a record of an append-only file.
        """
        name = record[0].upper()
        if len(record) == 2 and name == b"LOADJOB":
            return int(self.load_job(record[1], queue_jobs))
        if name == b"DELJOB" and all(is_job_id(id) for id in record[1:]):
            for id in record[1:]:
                self._load_end(id)
            return 0
        paused = read_pause(record)
        if paused >= 0:
            self._load_pause(record[1], paused)
            return 0
        key = read_key(record)
        if key is not None:
            self._load_key(key)
            return 0
        raise SerialJobError(f"not a command of an append-only file: {record[0][:40]!r}")

    def load_suspect(self, record: list[bytes]) -> bool:
        """Load ``record``, which is not as it was written, if it says that a job has ended: an id
        that is wrong ends nothing. Return whether it is left out, as a job is, whose body or id may
        be another; other nodes will be asked for it.

        Raises:
            SerialJobError: nothing says where it ends.
        """
        name = record[0].upper()
        if name == b"DELJOB":
            for id in record[1:]:
                if is_job_id(id):
                    self._load_end(id)
            return False
        if read_pause(record) < 0 and read_key(record) is None:
            job = record[-1]
            if len(record) != 2 or len(job) < _SHORTEST or read_u32(job, 0) != len(job) - 4:
                raise SerialJobError("its checksum does not match, and nothing says where it ends")
            self._recovery.lose(job[4 : 4 + ID_LENGTH])
        return True

    def _load_end(self, id: bytes) -> None:
        """Forget the job ``id``: the file says that it has ended."""
        job = self._store.jobs.get(id)
        if job is not None:
            self._store.uniques.load_end(job)
            self._store.delete(job)
        elif not (self._pages.jobs and self._paging.load_end(id)):
            self._recovery.forget(id)

    def _load_key(self, key: KeyRecord) -> None:
        uniques = self._store.uniques
        uniques.load(key)
        job = None if key.until else self._store.jobs.get(key.id)
        if job is not None:
            uniques.note_start(job)

    def _load_pause(self, name: bytes, paused: int) -> None:
        queues = self._store.queues
        queue = queues.by_name.get(name)
        if queue is None and paused:
            queue = queues.create(name)
        if queue is not None:
            queues.set_paused(queue, paused)

    def load_job(self, data: bytes, stopped: bool) -> bool:
        """Load a job from a file, unless it has expired or is already known.

        One that has expired meanwhile is still taken if it has to become a dead letter.

        The file says that the job was taken, not whether it was delivered since. So an
        at-least-once job is queued after a whole retry time, and an at-most-once job only if its
        delay is not over, because then it cannot have been queued before; unless the recovery knows
        more. ``stopped`` says that the file was written after all work had stopped: then jobs that
        were queued are queued again, and so are those whose delay has ended since.

        A later record of a known job replaces it if it has a trailer, which may say what became of
        the job.

        Raises:
            SerialJobError: it is not a job.
        """
        found = decode_job(data)
        trailer: Trailer | None = None
        if found.flags & FLAG_TRAILER:
            found.body, trailer = split_body(found.body)
        store = self._store
        now = self._machine.now
        known = store.jobs.get(found.id)
        if trailer is not None:
            if known is not None:
                store.delete(known)
            elif self._pages.jobs:
                self._paging.end(found.id)
        if found.etime * 1000 <= now and not self._leaves_letter(found):
            self._recovery.skip(found.id, found.retry)
            return False
        # Clients could not read a larger one, from a damaged file.
        queue = store.queues.one_name(found.queue)
        ctime = min(found.ctime, INT64_MAX)
        job = read_job(found, queue, found.etime, ctime, store.dump_number)
        if found.state != ACKED:
            job.delivered = self._replicas.read(found.nodes)
            return self._take(job, found.flags, stopped, found.state == QUEUED, trailer)
        job.delivered = self._replicas.sets.read(found.nodes)
        job.flags = found.flags & FLAGS_FROM_FILES
        job.body = None  # nobody will want it
        job.state = ACKED
        if not store.register(job):
            return False
        if trailer is not None:
            store.trailers.put(job, trailer)
        store.evictable[job.id] = job
        store.timers.add(job, now + TELL_AGAIN)
        return True

    def _leaves_letter(self, found: SerialJob) -> bool:
        """Whether the job ``found``, which expired while the node was down, has to become a dead
        letter: then it is taken, and expires again."""
        policies = self._store.policies
        if not policies.count or found.state == ACKED or found.retry == 0:
            return False
        return policies.of(found.queue).dead != b""

    def _take(
        self, job: Job, flags: int, stopped: bool, was_queued: bool, trailer: Trailer | None
    ) -> bool:
        """Hold ``job``, which had ``flags`` and a ``trailer`` in a file, unless it is known: queue
        it, or schedule when it will be queued. ``stopped``: see ``load_job``."""
        store = self._store
        job.flags = flags & FLAGS_FROM_FILES
        if not store.register(job):
            return False
        if trailer is not None:  # before it is queued: it may say in which group
            store.trailers.put(job, trailer)
            store.uniques.hold(job, CONFIRMED)
        if self._recovery.knows:
            self._recovery.place(job, flags, was_queued)
            return True
        now = self._machine.now
        if stopped and was_queued:
            store.put(job)
        elif self._recovery.delays(job, flags):
            pass
        elif (
            job.delay
            and stopped
            and not flags & (FLAG_QUEUED_BEFORE | FLAG_DELIVERED)
            # After the retry time another holder may have queued it.
            and (job.delivered is None or now < first_due(job) + job.retry * 1000)
        ):
            job.qtime = now if job.delivered is None else now + TELL_AGAIN
            store.schedule(job)
        elif job.retry:
            self._recovery.postpone(job, was_queued)
        else:
            self._recovery.hold(job)
        return True

    def load_usual(self, data: bytes, at: int, most: int, queue_jobs: bool) -> tuple[int, int, int]:
        """Load up to ``most`` usual records from ``data``, starting at ``at``: complete records of
        one job each, written the way nodes write them. Nearly all are; stops before any other.

        The result is that of ``load_record`` for each, in a fraction of the time.

        Returns:
            where the next record begins; the number of records; the number of jobs taken.
        """
        size = len(data)
        self._ending = b""
        records = jobs = 0
        while records < most and at + _DELJOB_SIZE <= size:
            start = at + _LENGTH_AT
            if data[at:start] == _LOADJOB:
                length = 0
                digits = start
                while start < digits + _LENGTH_MOST and 48 <= data[start] <= 57:
                    length = length * 10 + data[start] - 48
                    start += 1
                start += 2
                end = start + length
                if length < _SHORTEST or end + 2 > size or data[start - 2 : start] != b"\r\n":
                    break
                taken = self._load_usual_job(data, start, end, queue_jobs)
                if taken < 0:
                    break
                jobs += taken
                at = end + 2
            else:
                id_at = at + _ID_AT
                end = id_at + ID_LENGTH
                id = data[id_at:end]
                if data[at:id_at] != _DELJOB or data[end : end + 2] != b"\r\n" or not is_job_id(id):
                    break
                self._load_end(id)
                at = end + 2
            records += 1
        return at, records, jobs

    def _load_usual_job(self, data: bytes, start: int, end: int, queue_jobs: bool) -> int:
        """Load the job in ``data[start:end]``, which a line end follows. Return 1 if it was taken,
        0 if it is known or has expired, -1 if it is malformed or unusual."""
        head: Head = HEAD.unpack_from(data, start)
        length, id, state, flags, repl, etime, ctime, delay, retry, nacks, deliveries, size = head
        queue_at = start + _HEAD_SIZE
        body_at = queue_at + size + 4
        # ``load_job`` limits a creation time that clients could not read.
        if (
            length != end - start - 4
            or state & 15 >= ACKED
            or flags & FLAG_TRAILER
            or ctime >> 63
            or body_at > end
        ):
            return -1
        ending_at = body_at + read_u32(data, body_at - 4)
        if ending_at + 4 > end or not is_job_id(id):
            return -1
        ending = data[ending_at : end + 2]
        if ending != self._ending:
            nodes = ending[4:-2]
            count, rest = divmod(len(nodes), NODE_ID_LENGTH)
            if rest or ending != _U32.pack(count) + nodes + b"\r\n":
                return -1
            self._ending = ending
            self._holders = self._replicas.read(nodes)
        if etime <= self._machine.now // 1000:
            if self._store.policies.count:
                return -1
            self._recovery.skip(id, retry)
            return 0
        queue = data[queue_at : body_at - 4]
        if queue == self._queue:
            queue = self._queue
        else:
            queue = self._queue = self._store.queues.one_name(queue)
        body = data[body_at:ending_at]
        dump = self._store.dump_number
        job = Job(id, queue, body, repl, ctime, etime, delay, retry, dump)
        job.nacks = nacks
        job.deliveries = deliveries
        job.delivered = self._holders
        return int(self._take(job, flags, queue_jobs, state & 15 == QUEUED, None))

    # ---- dumping ----------------------------------------------------------------------------

    def start_dump(self) -> None:
        """Begin to dump all jobs."""
        self._store.dump_number += 1
        self._next_shard = 0
        self._segments = []
        self._paging.dumping = True

    def dump_step(self, count: int, room: int) -> tuple[list[bytes], bool]:
        """The next records of the dump, about ``count`` and ``room`` bytes at most, and whether it
        is complete. Raises ``OSError`` if jobs that lie on disk cannot be read."""
        records: list[bytes] = []
        while self._next_shard < SHARDS and len(records) < count and room > 0:
            more, all_of_it = self.dump_shard(self._next_shard, room)
            records += more
            for record in more:
                room -= len(record)
            if all_of_it:
                self._next_shard += 1
                if self._next_shard == SHARDS:
                    # Last, as jobs went to disk meanwhile. Those that come back are in the journal.
                    self._segments = list(self._pages.segments)
        while self._segments and len(records) < count and room > 0:
            more = self._dump_segment(self._segments.pop())
            records += more
            for record in more:
                room -= len(record)
        done = self._next_shard == SHARDS and not self._segments
        if done:
            self._paging.dumping = False
        return records, done

    def _dump_segment(self, number: int) -> list[bytes]:
        """The records of the jobs in the segment ``number``, if it still exists."""
        segment = self._pages.segments.get(number)
        if segment is None:
            return []
        try:
            data = segment.data
            if data is None:
                data = self.read_file(number)
            return list(map(loadjob, self._paging.views.payloads(segment, data)))
        except (DamagedError, OSError) as problem:
            self._paging.rebuild(segment, str(problem))
            raise OSError(f"jobs that lie on disk cannot be read: {problem}") from problem

    def moved_segments(self) -> list[int]:
        """The numbers of the segments of which the progress file has to tell."""
        return [number for number, segment in self._pages.segments.items() if segment.moved]

    def jobs_in(self, number: int, first: int = 0, most: int = MOST_JOBS) -> tuple[list[Job], int]:
        """Up to ``most`` jobs in the segment ``number``, if it still exists, to look at, from the
        place ``first`` on, and the place of the next; 0: there is none, or it cannot be read."""
        segment = self._pages.segments.get(number)
        if segment is None:
            return [], 0
        places = segment.places()
        if first:
            places = [place for place in places if place >= first]
        try:
            data = self.read_file(number) if segment.data is None else segment.data
            found = segment.read_all(data)
            jobs = [
                job_of(segment, found, at, self._store)
                for at in range(len(found.places))
                if found.places[at] >= first
            ][:most]
        except (DamagedError, OSError) as problem:
            self._paging.rebuild(segment, str(problem))
            return [], 0
        return jobs, places[most] if len(places) > most else 0

    def dump_shard(self, number: int, room: int) -> tuple[list[bytes], bool]:
        """The records of the jobs in shard ``number`` of the registry that are not in the dump yet,
        up to about ``room`` bytes, and whether these were all. The paused queues and the keys of
        the same shard follow the last job.

        Jobs that are added while a dump is under way are in the journal, so not in the dump."""
        store = self._store
        records: list[bytes] = []
        for job in store.jobs.shards[number].values():
            if int(job.dump) != store.dump_number:
                if room <= 0:
                    return records, False
                job.dump = store.dump_number
                # Acknowledgements that not all holders know of must not get lost. No record says
                # when all do; a job that is loaded again just ends again.
                if job.state in (ACTIVE, QUEUED, ACKED):
                    records.append(loadjob(self.serialize(job)))
                    room -= len(records[-1])
        queues = store.queues.index.shards[number].values()
        records += [paused_queue(queue.name, queue.paused) for queue in queues if queue.paused]
        records += store.uniques.dump_shard(number)
        return records, True


def _no_file(number: int) -> bytes:
    raise OSError("no jobs lie on disk")
