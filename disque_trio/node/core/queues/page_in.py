"""Makes jobs of what was read from the disk, and holds them in memory again."""

from disque_trio.node.core.jobs.job import FLAG_TRAILER, JOB_OVERHEAD, Job
from disque_trio.node.core.jobs.registry import SHARD_SHIFT
from disque_trio.node.core.pages.segment import CTIME, QTIME, RETRIED, Records, Segment
from disque_trio.node.core.queues.disk_views import revive
from disque_trio.node.core.queues.keys_on_disk import KeysOnDisk
from disque_trio.node.core.queues.store import JobStore
from disque_trio.protocol.trailer import Trailer, split_body
from disque_trio.respserver.memory import MEMORY


class PageIn:
    """Brings jobs of ``store`` back that were on disk.

    Args:
        keys: of jobs on disk.

    Attributes:
        trailers: of jobs that were read, and are not held yet.
    """

    def __init__(self, store: JobStore, keys: KeysOnDisk) -> None:
        self.trailers: dict[bytes, Trailer] = {}
        self._store = store
        self._memory = store.machine.memory
        self._keys = keys

    def read_one(self, segment: Segment, found: Records, at: int) -> Job:
        """The job ``at`` of those that were ``found`` in ``segment``. Its trailer, if it has one,
        is in ``trailers``."""
        place = found.places[at]
        shared = found.shared(at)
        id = found.ids[at]
        body = found.wholes[at]
        flags = int(shared.kind & 255)
        if flags & FLAG_TRAILER:
            body, self.trailers[id] = split_body(body)
        job = Job(
            id,
            segment.queue,
            body,
            int(shared.expiry & 0xFFFF),
            found.number(at, CTIME),
            int(shared.expiry >> 16),
            int(shared.delay >> 16),
            int(shared.retry >> 16),
        )
        job.nacks = int(shared.retry & 0xFFFF)
        job.deliveries = int(shared.delay & 0xFFFF)
        revive(job, segment, place, flags, found.number(at, QTIME), self._store)
        return job

    def hold(self, segment: Segment, jobs: list[Job], checksums: list[int]) -> None:
        """Hold ``jobs``, which were in ``segment``, and whose ids have these ``checksums``."""
        store = self._store
        shards = store.jobs.shards
        size = JOB_OVERHEAD * len(jobs)
        for at in range(len(jobs)):
            job = jobs[at]
            shards[checksums[at] >> SHARD_SHIFT][job.id] = job
            size += len(job.body or b"")
        store.jobs.count += len(jobs)
        self._memory.used += size
        if not segment.plain or self._memory.shares is not None:
            for job in jobs:
                self._hold_rest(segment, job)
        for job in jobs:
            store.schedule(job)

    def _hold_rest(self, segment: Segment, job: Job) -> None:
        """Hold what belongs to ``job``, which was in ``segment``."""
        store = self._store
        id = job.id
        if segment.origin == RETRIED:
            store.progress.waiting[id] = job
        shares = self._memory.shares
        if shares is not None and not shares.counts(id):
            # It will be counted with those in memory.
            shares.add(job.queue, MEMORY, -JOB_OVERHEAD - len(job.body or b""))
        if job.flags & FLAG_TRAILER:
            trailer = self.trailers.pop(id, None)
            job.flags &= ~FLAG_TRAILER
            if trailer is not None:
                store.trailers.put(job, trailer)
            self._keys.take(id)
