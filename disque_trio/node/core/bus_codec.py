"""Serialises jobs for other nodes, and reads the jobs that they send."""

from typing import Final

from disque_trio.node.core.job import FLAGS_CARRIED, FLAGS_ON_BUS, UINT32_MAX, Job
from disque_trio.node.core.store import JobStore
from disque_trio.protocol.serialjob import NODE_ID_LENGTH, SerialJobError, decode_job

MAX_HOLDERS: Final = 1_000  # of a job that another node sends


class BusCodec:
    """Serialises the jobs of ``store`` for other nodes and decodes those that arrive."""

    def __init__(self, store: JobStore) -> None:
        self._store = store

    def encode(self, job: Job) -> bytes:
        """Serialise ``job`` for other nodes: with the seconds it has left, since clocks differ."""
        left = job.etime - self._store.machine.now // 1000
        etime = left + 1 if left > 0 else 1
        flags = job.flags & FLAGS_ON_BUS
        return self._store.replicas.serialize(job, flags, etime, job.body or b"")

    def decode(self, data: bytes) -> Job | None:
        """Decode a job from another node, not registered, ACTIVE. None: it is malformed."""
        try:
            found = decode_job(data)
        except SerialJobError:
            return None
        id = found.id
        if found.ctime >> 63 or len(found.nodes) > MAX_HOLDERS * NODE_ID_LENGTH:
            return None
        if not id.isascii() or len(id.split()) > 1:
            return None  # it would break replies
        store = self._store
        etime = min(store.machine.now // 1000 + found.etime, UINT32_MAX)
        job = store.job_of(found, etime, found.ctime)
        job.flags = found.flags & FLAGS_CARRIED
        job.delivered = store.replicas.read(found.nodes)
        return job
