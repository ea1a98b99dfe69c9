"""A serialised job, as in append-only files and between nodes, and the records of such files.

All numbers are little-endian. A u32 with the length of the rest is followed by 68 bytes (id 40,
state and GC attempts u8, flags u8, copies u16, expiry u32, creation u64, delay u32, retry u32,
nacks u16, deliveries u16), then the queue and the body, each preceded by a u32 with its length,
then a u32 with the number of nodes that may hold the job and 40 bytes for each.
"""

from struct import Struct
from typing import Final

_LOADJOB: Final = b"*2\r\n$7\r\nLOADJOB\r\n$%d\r\n%b\r\n"
_LOADJOB_HEAD: Final = b"*2\r\n$7\r\nLOADJOB\r\n$%d\r\n"
_DELJOB: Final = b"*2\r\n$6\r\nDELJOB\r\n$40\r\n%b\r\n"
_PAUSE: Final = b"*3\r\n$5\r\nPAUSE\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
PAUSE_NAMES: Final = [b"none", b"in", b"out", b"all"]  # by the pause bits of a queue
HEAD: Final = Struct("<I40sBBHIQIIHHI")  # the length, the 68 bytes, the length of the queue
# What ``HEAD`` unpacks: the length, id, state, flags, copies, expiry, creation, delay, retry,
# nacks, deliveries, the length of the queue. Compiled code is faster with numbers of declared
# types.
Head = tuple[int, bytes, int, int, int, int, int, int, int, int, int, int]
_HEAD_SIZE: Final = HEAD.size
_FIXED: Final = _HEAD_SIZE - 8  # the 68 bytes
_U32: Final = Struct("<I")
_FIRST: Final = Struct("<BBHI")  # state, flags, copies, expiry
_MIDDLE: Final = Struct("<IIHHI")  # delay to the length of the queue
NODE_ID_LENGTH: Final = 40
ID_LENGTH: Final = 40  # of a job


def is_job_id(text: bytes) -> bool:
    """Whether ``text`` has the form of a job id: ``D-`` node ``-`` random ``-`` ttl (see
    ``node.core.jobs.job.JobIds``). Checks nothing else."""
    return (
        len(text) == ID_LENGTH
        and text[0] == 68  # D-
        and text[1] == 45
        and text[10] == 45
        and text[35] == 45
    )


def read_u32(data: bytes, at: int) -> int:
    """The little-endian u32 at ``at``."""
    # Compiled, a few instructions per byte; struct would take a hundred times as many.
    return data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24


def loadjob(job: bytes) -> bytes:
    """The record of a job that was taken; ``job`` is serialised."""
    return _LOADJOB % (len(job), job)


def loadjob_around(job: bytes, queue_length: int, size: int) -> tuple[bytes, bytes]:
    """Return the bytes before and after a body of ``size`` bytes in the record of a job.

    ``job`` is serialised without the body. This saves a copy of a large body.
    """
    at = _HEAD_SIZE + queue_length
    length = len(job) + size
    head = _U32.pack(length - 4) + job[4:at] + _U32.pack(size)
    return _LOADJOB_HEAD % length + head, job[at + 4 :] + b"\r\n"


def deljob(id: bytes) -> bytes:
    """The record of a job that is done with."""
    return _DELJOB % id


def paused_queue(queue: bytes, paused: int) -> bytes:
    """The record of a queue whose pause bits were set: the command of a client that does the same,
    so that C nodes can load it."""
    state = PAUSE_NAMES[paused]
    return _PAUSE % (len(queue), queue, len(state), state)


def read_pause(record: list[bytes]) -> int:
    """The pause bits that a record sets for the queue ``record[1]``; -1: it is another record."""
    if len(record) != 3 or record[0].upper() != b"PAUSE":
        return -1
    state = record[2].lower()
    return PAUSE_NAMES.index(state) if state in PAUSE_NAMES else -1


class SerialJobError(ValueError):
    """The bytes are not a job; the text says why."""


class SerialJob:
    """The fields of a serialised job.

    Attributes:
        id: 40 bytes.
        state: 0 wait-repl, 1 active, 2 queued, 3 acked.
        flags: 8 bits.
        repl: copies that the producer asked for.
        etime: expiry, in s since the epoch in files, in s from now on the bus.
        ctime: creation, as in ``node.core.jobs.job.Job``.
        delay, retry: s.
        nacks, deliveries: how often it was queued again, by reason.
        queue: name of its queue.
        body: what the producer sent.
        nodes: concatenated ids of the nodes that may hold it.
        gc_retry: attempts to collect it, up to 15.
    """

    def __init__(  # noqa: PLR0913
        self,
        id: bytes,
        state: int,
        flags: int,
        repl: int,
        etime: int,
        ctime: int,
        delay: int,
        retry: int,
        nacks: int,
        deliveries: int,
        queue: bytes,
        body: bytes,
        nodes: bytes,
        gc_retry: int = 0,
    ) -> None:
        self.id = id
        self.state = state
        self.flags = flags
        self.repl = repl
        self.etime = etime
        self.ctime = ctime
        self.delay = delay
        self.retry = retry
        self.nacks = nacks
        self.deliveries = deliveries
        self.queue = queue
        self.body = body
        self.nodes = nodes
        self.gc_retry = gc_retry


class JobWriter:
    """Serialises jobs; see ``SerialJob``. Most differ from the previous one only in id, creation
    and body, so the bytes in between are cached."""

    def __init__(self) -> None:
        self._state = -1
        self._flags = 0
        self._repl = 0
        self._etime = 0
        self._before = b""
        self._delay = 0
        self._retry = 0
        self._nacks = 0
        self._deliveries = 0
        self._queue = b""
        self._behind = bytes(_MIDDLE.size)
        self._nodes = b""
        self._ending = bytes(4)
        self._size = 0
        self._body_size = bytes(4)
        self._length = 0
        self._start = bytes(4)

    def encode(  # noqa: PLR0913
        self,
        id: bytes,
        state: int,
        flags: int,
        repl: int,
        etime: int,
        ctime: int,
        delay: int,
        retry: int,
        nacks: int,
        deliveries: int,
        queue: bytes,
        body: bytes,
        nodes: bytes,
    ) -> bytes:
        """The bytes of a job. ``state`` may contain the GC attempts in its upper four bits."""
        if (
            etime != self._etime
            or state != self._state
            or flags != self._flags
            or repl != self._repl
        ):
            self._before = _FIRST.pack(state, flags, repl, etime)
            self._state = state
            self._flags = flags
            self._repl = repl
            self._etime = etime
        if (
            queue != self._queue
            or delay != self._delay
            or retry != self._retry
            or nacks != self._nacks
            or deliveries != self._deliveries
        ):
            self._behind = _MIDDLE.pack(delay, retry, nacks, deliveries, len(queue)) + queue
            self._queue = queue
            self._delay = delay
            self._retry = retry
            self._nacks = nacks
            self._deliveries = deliveries
        if nodes != self._nodes:
            self._ending = _U32.pack(len(nodes) // NODE_ID_LENGTH) + nodes
            self._nodes = nodes
        size = len(body)
        if size != self._size:
            self._body_size = _U32.pack(size)
            self._size = size
        length = _FIXED + 12 + len(queue) + size + len(nodes)
        if length != self._length:
            self._start = _U32.pack(length)
            self._length = length
        return b"".join(
            (
                self._start,
                id,
                self._before,
                ctime.to_bytes(8, "little"),  # compiled, a third of what struct takes
                self._behind,
                self._body_size,
                body,
                self._ending,
            )
        )


def split_nodes(ids: bytes) -> list[bytes]:
    """Split concatenated node ids."""
    return [ids[at : at + NODE_ID_LENGTH] for at in range(0, len(ids), NODE_ID_LENGTH)]


def decode_job(data: bytes) -> SerialJob:
    """Read one job that takes up all of ``data``.

    Raises:
        SerialJobError: it is not one.
    """
    size = len(data)
    if size < _HEAD_SIZE:
        raise SerialJobError(f"{size} bytes are too few for a job")
    head: Head = HEAD.unpack_from(data)
    length, id, state, flags, repl, etime, ctime, delay, retry, nacks, deliveries, name_size = head
    if length != size - 4:
        raise SerialJobError(f"the job says it has {length} bytes, there are {size - 4}")
    if id[:2] != b"D-" or id[10] != 45 or id[35] != 45:
        raise SerialJobError("malformed job id")
    if state & 15 > 3:
        raise SerialJobError(f"unknown job state {state & 15}")
    body_at = _HEAD_SIZE + name_size + 4
    if body_at > size:
        raise SerialJobError("the queue name goes past the end")
    queue = data[_HEAD_SIZE : body_at - 4]
    nodes_at = body_at + read_u32(data, body_at - 4) + 4
    if nodes_at > size:
        raise SerialJobError("the body goes past the end")
    body = data[body_at : nodes_at - 4]
    count = read_u32(data, nodes_at - 4)
    if nodes_at + count * NODE_ID_LENGTH != size:
        raise SerialJobError(f"the list of {count} nodes does not fit")
    return SerialJob(
        id,
        state & 15,
        flags,
        repl,
        etime,
        ctime,
        delay,
        retry,
        nacks,
        deliveries,
        queue,
        body,
        data[nodes_at:],
        state >> 4,
    )
