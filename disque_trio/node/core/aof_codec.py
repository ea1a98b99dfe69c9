"""Converts jobs to records of append-only files and back: notes, loads and dumps them."""

from typing import Final

from disque_trio.node.core.job import (
    ACKED,
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_QUEUED_BEFORE,
    FLAGS_FROM_FILES,
    FLAGS_IN_FILES,
    QUEUED,
    Job,
)
from disque_trio.node.core.registry import SHARDS
from disque_trio.node.core.store import JobStore
from disque_trio.protocol.serialjob import (
    SerialJobError,
    decode_job,
    is_job_id,
    loadjob,
    loadjob_around,
    paused_queue,
    read_pause,
)
from disque_trio.resp.ints import INT64_MAX

TELL_AGAIN: Final = 1_000  # ms after loading an acknowledge: the other nodes have to be there
LARGE_BODY: Final = 256 * 1024  # bytes; it is not copied for the journal


class AofCodec:
    """Converts between the jobs of ``store`` and records of append-only files."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._machine = store.machine
        self._replicas = store.replicas
        self._next_shard = 0  # of the dump that is under way

    # ---- writing ----------------------------------------------------------------------------

    def note(self, job: Job) -> None:
        """Add a record of ``job`` to the journal."""
        body = job.body
        if body is None or len(body) < LARGE_BODY:
            self._machine.journal.append(loadjob(self.serialize(job)))
        else:
            without = self.serialize(job, False)
            head, tail = loadjob_around(without, len(job.queue), len(body))
            self._machine.journal += (head, body, tail)

    def serialize(self, job: Job, whole: bool = True) -> bytes:
        """The bytes of ``job``; not ``whole``: as if it had no body."""
        body = job.body
        if body is None or job.state == ACKED or not whole:
            body = b""
        return self._replicas.serialize(job, job.flags & FLAGS_IN_FILES, job.etime, body)

    # ---- loading ----------------------------------------------------------------------------

    def load_record(self, record: list[bytes], queue_jobs: bool) -> int:
        """Load one record. ``queue_jobs``: it was written when the node had stopped, so queued jobs
        are queued again. Returns the number of jobs in the record.

        Raises:
            SerialJobError: it is not a record of such a file.
        """
        name = record[0].upper()
        if len(record) == 2 and name == b"LOADJOB":
            return int(self.load_job(record[1], queue_jobs))
        if name == b"DELJOB" and all(is_job_id(id) for id in record[1:]):
            for id in record[1:]:
                job = self._store.jobs.get(id)
                if job is not None:
                    self._store.delete(job)
            return 0
        paused = read_pause(record)
        if paused >= 0:
            self._load_pause(record[1], paused)
            return 0
        raise SerialJobError(f"not a command of an append-only file: {record[0][:40]!r}")

    def _load_pause(self, name: bytes, paused: int) -> None:
        queues = self._store.queues
        queue = queues.by_name.get(name)
        if queue is None and paused:
            queue = queues.create(name)
        if queue is not None:
            queue.paused = paused

    def load_job(self, data: bytes, queue_it: bool) -> bool:
        """Load a job from a file, unless it has expired or is known.

        The file tells that the job was taken, not whether it was delivered since. So an
        at-least-once job is queued after a whole retry time, and an at-most-once job only when its
        delay is not over, for then it cannot have been queued before. ``queue_it`` says that the
        file was written when nothing happened any more: jobs that were queued are queued again.

        Raises:
            SerialJobError: it is not a job.
        """
        found = decode_job(data)
        store = self._store
        replicas = self._replicas
        id = found.id
        now = self._machine.now
        if found.etime * 1000 <= now or store.jobs.get(id) is not None:
            return False
        # Clients could not read a larger one, of a damaged file.
        job = store.job_of(found, found.etime, min(found.ctime, INT64_MAX))
        job.flags = found.flags & FLAGS_FROM_FILES
        if found.state == ACKED:
            job.delivered = replicas.sets.read(found.nodes)
            job.body = None  # nobody will want it
            store.register(job)
            job.state = ACKED
            store.evictable[id] = job
            store.timers.add(job, now + TELL_AGAIN)
            return True
        job.delivered = replicas.read(found.nodes)
        store.register(job)
        if found.state == QUEUED and queue_it:
            store.put(job)
            return True
        if (
            job.delay
            and now < (queued_first := job.ctime // 1_000_000 + job.delay * 1000)
            # A copy of an at-most-once job may have been delivered by the node that was chosen.
            and not (job.retry == 0 and found.flags & FLAG_QUEUED_BEFORE)
        ):
            # A clock that has gone back since must not make the delay longer.
            job.qtime = min(queued_first, now + job.delay * 1000)
        elif job.retry:
            store.postpone(job)
            return True
        else:
            job.flags |= FLAG_DELIVERED
            store.evictable[id] = job
        store.schedule(job)
        return True

    # ---- dumping ----------------------------------------------------------------------------

    def start_dump(self) -> None:
        """Begin to dump all jobs: none is in the dump yet."""
        self._store.dump_number += 1
        self._next_shard = 0

    def dump_step(self, count: int, room: int) -> tuple[list[bytes], bool]:
        """The next records of the dump, about ``count`` and ``room`` bytes at most, and whether
        these were the last."""
        records: list[bytes] = []
        while self._next_shard < SHARDS and len(records) < count and room > 0:
            more, all_of_it = self.dump_shard(self._next_shard, room)
            records += more
            for record in more:
                room -= len(record)
            if all_of_it:
                self._next_shard += 1
        return records, self._next_shard == SHARDS

    def dump_shard(self, number: int, room: int) -> tuple[list[bytes], bool]:
        """The records of the jobs in shard ``number`` of the registry that are not in the dump, no
        more than about ``room`` bytes of them, and whether these were all. The last ones are
        followed by the paused queues of the same shard.

        Jobs that are added while a dump is under way are in the journal, and so not here."""
        store = self._store
        records: list[bytes] = []
        for job in store.jobs.shards[number].values():
            if job.dump != store.dump_number:
                if room <= 0:
                    return records, False
                job.dump = store.dump_number
                # Acknowledges that are not known to all holders yet must not get lost. In the end
                # they leave no mark in the file; loaded once more, they just end once more.
                if job.state in (ACTIVE, QUEUED, ACKED):
                    records.append(loadjob(self.serialize(job)))
                    room -= len(records[-1])
        queues = store.queues.index.shards[number].values()
        records += [paused_queue(queue.name, queue.paused) for queue in queues if queue.paused]
        return records, True
