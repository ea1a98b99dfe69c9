"""Jobs to and from files: loading an append-only file, and dumping what is in memory into one."""

from typing import Final

from disque_trio.core.job import (
    ACKED,
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_QUEUED_BEFORE,
    QUEUED,
    Job,
    is_job_id,
)
from disque_trio.core.registry import SHARDS
from disque_trio.core.store import JobStore
from disque_trio.protocol.ints import INT64_MAX
from disque_trio.protocol.serialjob import SerialJobError, decode_fields, loadjob

TELL_AGAIN: Final = 1_000  # ms after loading an acknowledge: the other nodes have to be there


class FiledStore(JobStore):
    """Jobs that outlive their node."""

    _next_shard = 0  # of the dump that is under way

    def load_record(self, record: list[bytes], queue_jobs: bool) -> int:
        name = record[0].upper()
        if len(record) == 2 and name == b"LOADJOB":
            return int(self.load_job(record[1], queue_jobs))
        if name == b"DELJOB" and all(is_job_id(id) for id in record[1:]):
            for id in record[1:]:
                self.forget_job(id)
            return 0
        raise SerialJobError(f"not a command of an append-only file: {record[0][:40]!r}")

    def load_job(self, data: bytes, queue_it: bool) -> bool:
        """Take a job that a file has, unless it has expired or is known.

        The file tells that the job was taken, not whether it was delivered since. So an
        at-least-once job is queued after a whole retry time, and an at-most-once job only when its
        delay is not over, for then it cannot have been queued before. ``queue_it`` says that the
        file was written when nothing happened any more: jobs that were queued are queued again.

        Raises:
            SerialJobError: it is not a job.
        """
        (
            id,
            state,
            _,
            flags,
            repl,
            etime,
            ctime,
            delay,
            retry,
            nacks,
            deliveries,
            name,
            body,
            nodes,
        ) = decode_fields(data)
        now = self.now
        if etime * 1000 <= now or self.jobs.get(id) is not None:
            return False
        name = self._one_name(name)
        if ctime > INT64_MAX:  # of a damaged file; clients could not read it
            ctime = INT64_MAX
        job = Job(id, name, body, repl, ctime, etime, delay, retry, self.dump_number)
        job.flags = flags & (FLAG_QUEUED_BEFORE | FLAG_DELIVERED)
        job.nacks = nacks
        job.deliveries = deliveries
        if state == ACKED:
            job.delivered = self.holders.read(nodes)
            job.body = None  # nobody will want it
            self._register(job)
            job.state = ACKED
            self.memory.evictable[id] = job
            self._timers.add(job, now + TELL_AGAIN)
            return True
        job.delivered = self._holders_with_me(nodes)
        self._register(job)
        if state == QUEUED and queue_it:
            self._put(job)
            return True
        if (
            delay
            and now < (queued_first := ctime // 1_000_000 + delay * 1000)
            # A copy of an at-most-once job may have been delivered by the node that was chosen.
            and not (retry == 0 and flags & FLAG_QUEUED_BEFORE)
        ):
            # A clock that has gone back since must not make the delay longer.
            job.qtime = min(queued_first, now + delay * 1000)
        elif retry:
            self._postpone(job)
            return True
        else:
            job.flags |= FLAG_DELIVERED
            self.memory.evictable[id] = job
        self._schedule(job)
        return True

    def _holders_with_me(self, nodes: bytes) -> tuple[bytes, ...] | None:
        """The holders that a serialised job names, and this node; None: this node alone."""
        if nodes == self.id:
            return None
        ids = self.holders.read(nodes)
        return ids if self.id in ids else self.holders.add(ids, self.id)

    def forget_job(self, id: bytes) -> None:
        """A file says that the job ``id`` was done with."""
        job = self.jobs.get(id)
        if job is not None:
            self.delete(job)

    def start_dump(self) -> None:
        """Begin to dump all jobs: none is in the dump yet."""
        self.dump_number += 1
        self._next_shard = 0

    def dump_step(self, count: int, room: int) -> tuple[list[bytes], bool]:
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
        more than about ``room`` bytes of them, and whether these were all.

        Jobs that are added while a dump is under way are in the journal, and so not here."""
        records: list[bytes] = []
        for job in self.jobs.shards[number].values():
            if job.dump != self.dump_number:
                if room <= 0:
                    return records, False
                job.dump = self.dump_number
                # Acknowledges that are not known to all holders yet must not get lost. In the end
                # they leave no mark in the file; loaded once more, they just end once more.
                if job.state in (ACTIVE, QUEUED, ACKED):
                    records.append(loadjob(self.serialize(job)))
                    room -= len(records[-1])
        return records, True
