"""Serialises jobs for other nodes, and reads the jobs that they send."""

from collections.abc import Callable
from typing import Final, TypeAlias

from disque_trio.node.core.jobs.job import (
    FLAG_TRAILER,
    FLAGS_CARRIED,
    FLAGS_ON_BUS,
    UINT32_MAX,
    Job,
)
from disque_trio.node.core.queues.store import JobStore
from disque_trio.protocol.serialjob import (
    NODE_ID_LENGTH,
    SerialJob,
    SerialJobError,
    decode_job,
    is_job_id,
    read_u32,
)
from disque_trio.protocol.trailer import Trailer, split_body

MAX_HOLDERS: Final = 1_000  # of a job from another node

# Takes what a known job has, in its second form, from another node, with a trailer if there is one.
TakeChange: TypeAlias = Callable[[Job, Job, Trailer | None], bool]

# Bytes that are in no id become others: they would break replies, or lines of the event log.
_IN_IDS: Final = bytes(
    byte if 0x21 <= byte < 0x7F and byte not in b'"\\' else byte == 0 for byte in range(256)
)

# Offsets in a serialised job (see ``serialjob``).
_STATE_AT: Final = 44
_CTIME_AT: Final = 52
_DELAY_AT: Final = 60
_QUEUE_AT: Final = 76


def is_plain_id(id: bytes) -> bool:
    """Whether ``id`` is that of a job, without bytes that other nodes must not send."""
    return is_job_id(id) and id.translate(_IN_IDS) == id


class BusCodec:
    """Serialises the jobs of ``store`` for other nodes, and decodes jobs from them.

    Attributes:
        trailer: of the job that was decoded last; None: it has none. The caller gives it to the
            job when it holds it.
    """

    def __init__(self, store: JobStore) -> None:
        self.trailer: Trailer | None = None
        self._store = store
        # The last job that was read, and its bytes from the state to the expiry, from the delay to
        # the end of the queue, and after the body. The next job is usually similar.
        self._like = SerialJob(b"", 0, 0, 0, 0, 0, 0, 0, 0, 0, b"", b"", b"")
        self._first = b""
        self._middle = b""
        self._ending = b""

    def encode(self, job: Job) -> bytes:
        """Serialise ``job`` for other nodes, with the seconds it has left, since clocks differ."""
        left = job.etime - self._store.machine.now // 1000
        etime = left + 1 if left > 0 else 1
        flags = job.flags & FLAGS_ON_BUS
        body = job.body or b""
        if job.flags & FLAG_TRAILER:
            trailer = self._store.trailers.carried(job)
            if trailer:
                flags |= FLAG_TRAILER
                body += trailer
        return self._store.replicas.serialize(job, flags, etime, body)

    def decode(self, data: bytes) -> Job | None:
        """Decode a job from another node: ACTIVE and not registered. None: it is malformed."""
        found = self._like
        if not self._is_like_last(data):
            try:
                found = self._like = decode_job(data)
            except SerialJobError:
                return None
            self._first = data[_STATE_AT:_CTIME_AT]
            self._middle = data[_DELAY_AT : _QUEUE_AT + len(found.queue)]
            self._ending = data[-len(found.nodes) - 4 :]
        id = found.id
        if found.ctime >> 63 or len(found.nodes) > MAX_HOLDERS * NODE_ID_LENGTH:
            return None
        if id.translate(_IN_IDS) != id:
            return None
        flags = found.flags
        self.trailer = None
        if flags & FLAG_TRAILER:
            try:
                found.body, self.trailer = split_body(found.body)
            except SerialJobError:
                return None
        store = self._store
        etime = min(store.machine.now // 1000 + found.etime, UINT32_MAX)
        # The same as read_job, without a call.
        job = Job(
            id,
            store.queues.one_name(found.queue),
            found.body,
            found.repl,
            found.ctime,
            etime,
            found.delay,
            found.retry,
            store.dump_number,
        )
        job.nacks = found.nacks
        job.deliveries = found.deliveries
        job.flags = flags & FLAGS_CARRIED
        job.delivered = store.replicas.read(found.nodes)
        found.body = b""  # it may be large
        return job

    def _is_like_last(self, data: bytes) -> bool:
        """Whether the job ``data`` is well-formed and differs from the last one only in its id,
        creation time and body; these are then in ``_like``."""
        body_at = _DELAY_AT + len(self._middle) + 4
        if (
            data[_DELAY_AT : body_at - 4] != self._middle
            or data[_STATE_AT:_CTIME_AT] != self._first
            or len(data) < body_at
        ):
            return False
        ending_at = body_at + read_u32(data, body_at - 4)
        id = data[4:_STATE_AT]
        if (
            data[ending_at:] != self._ending
            or read_u32(data, 0) != len(data) - 4
            or not is_job_id(id)
        ):
            return False
        found = self._like
        found.id = id
        found.ctime = read_u32(data, _CTIME_AT) | read_u32(data, _CTIME_AT + 4) << 32
        found.body = data[body_at:ending_at]
        return True
