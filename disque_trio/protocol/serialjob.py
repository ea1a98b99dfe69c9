"""A job as bytes, as it stands in append-only files and travels between nodes.

All numbers are little-endian. Behind a u32 with the length of the rest come 68 bytes (id 40, state
and GC attempts u8, flags u8, copies u16, expiry u32, creation u64, delay u32, retry u32, nacks u16,
deliveries u16), then the queue and the body, each behind a u32 with its length, then a u32 with the
number of nodes that may hold the job and 40 bytes for each.
"""

from struct import Struct
from typing import Final, NamedTuple

_LOADJOB: Final = b"*2\r\n$7\r\nLOADJOB\r\n$%d\r\n%b\r\n"
_DELJOB: Final = b"*2\r\n$6\r\nDELJOB\r\n$40\r\n%b\r\n"
_HEAD: Final = Struct("<I40sBBHIQIIHHI")  # the length, the 68 bytes, the length of the queue
_FIXED: Final = _HEAD.size - 8  # the 68 bytes
_U32: Final = Struct("<I")
NODE_ID_LENGTH: Final = 40


def loadjob(job: bytes) -> bytes:
    """The record of a job that was taken; ``job`` is serialised."""
    return _LOADJOB % (len(job), job)


def deljob(id: bytes) -> bytes:
    """The record of a job that is done with."""
    return _DELJOB % id


class SerialJobError(ValueError):
    """The bytes are not a job; the text says why."""


class SerialJob(NamedTuple):
    """The fields of a serialised job.

    state: 0 wait-repl, 1 active, 2 queued, 3 acked. gc_retry: attempts to collect it, up to 15.
    etime: s, absolute in files, left on the bus. ctime: ns-like, as in ``core.job.Job``. delay,
    retry: s. nodes: ids of those that may hold it.
    """

    id: bytes
    state: int
    gc_retry: int
    flags: int
    repl: int
    etime: int
    ctime: int
    delay: int
    retry: int
    nacks: int
    deliveries: int
    queue: bytes
    body: bytes
    nodes: list[bytes]


def encode_job(
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
    """The bytes of a job. ``nodes`` comes from ``encode_nodes``; ``state`` may have the GC attempts
    in its upper four bits."""
    return b"".join(
        (
            _HEAD.pack(
                _FIXED + 8 + len(queue) + len(body) + len(nodes),
                id,
                state,
                flags,
                repl,
                etime,
                ctime,
                delay,
                retry,
                nacks,
                deliveries,
                len(queue),
            ),
            queue,
            _U32.pack(len(body)),
            body,
            nodes,
        )
    )


def encode_nodes(ids: list[bytes]) -> bytes:
    """The end of a serialised job: the nodes that may hold it."""
    return _U32.pack(len(ids)) + b"".join(ids)


def decode_job(data: bytes) -> SerialJob:
    """Read one job that takes up all of ``data``.

    Raises:
        SerialJobError: it is not one.
    """
    fields = decode_fields(data)
    return SerialJob(*fields[:-1], nodes=split_nodes(fields[-1]))


def split_nodes(ids: bytes) -> list[bytes]:
    """Node ids that stand one behind the other, each by itself."""
    return [ids[at : at + NODE_ID_LENGTH] for at in range(0, len(ids), NODE_ID_LENGTH)]


def decode_fields(
    data: bytes,
) -> tuple[bytes, int, int, int, int, int, int, int, int, int, int, bytes, bytes, bytes]:
    """The same as a plain tuple, in less time; loading a file is mostly this. The ids of the nodes
    stand one behind the other: most jobs have the same ones, and whoever reads them knows them."""
    size = len(data)
    if size < _HEAD.size:
        raise SerialJobError(f"{size} bytes are too few for a job")
    (
        length,
        id,
        state,
        flags,
        repl,
        etime,
        ctime,
        delay,
        retry,
        nacks,
        deliveries,
        queue_length,
    ) = _HEAD.unpack_from(data)
    if length != size - 4:
        raise SerialJobError(f"the job says it has {length} bytes, there are {size - 4}")
    if id[:2] != b"D-" or id[10] != 45 or id[35] != 45:
        raise SerialJobError("malformed job id")
    if state & 15 > 3:
        raise SerialJobError(f"unknown job state {state & 15}")
    body_at = _HEAD.size + queue_length + 4
    if body_at > size:
        raise SerialJobError("the queue name goes past the end")
    queue = data[_HEAD.size : body_at - 4]
    nodes_at = body_at + _U32.unpack_from(data, body_at - 4)[0] + 4
    if nodes_at > size:
        raise SerialJobError("the body goes past the end")
    body = data[body_at : nodes_at - 4]
    count = _U32.unpack_from(data, nodes_at - 4)[0]
    if nodes_at + count * NODE_ID_LENGTH != size:
        raise SerialJobError(f"the list of {count} nodes does not fit")
    return (
        id,
        state & 15,
        state >> 4,
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
    )
