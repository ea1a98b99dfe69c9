"""Jobs to and from the packets in which nodes give them to each other (see ``protocol.given``).

What is done for each job is written out here once more (see ``BusCodec``): a job that moves costs
little more than its bytes.
"""

from typing import Final

from disque_trio.node.core.jobs.job import (
    FLAG_TRAILER,
    FLAGS_CARRIED,
    FLAGS_ON_BUS,
    UINT32_MAX,
    Job,
)
from disque_trio.node.core.queues.bus_codec import MAX_HOLDERS, BusCodec, is_plain_id
from disque_trio.node.core.queues.store import JobStore
from disque_trio.protocol import given
from disque_trio.protocol.bus import PacketError
from disque_trio.protocol.given import HEAD, HEAD_SIZE, WHOLE, Head
from disque_trio.protocol.serialjob import ID_LENGTH, NODE_ID_LENGTH, read_u32
from disque_trio.protocol.trailer import Trailer

_ALIKE: Final = 1
_WHOLE: Final = 2
_D: Final = 68
_BODY_AT: Final = 52  # after id, creation and length


class GivenWriter:
    """Serialises the jobs of one packet.

    Attributes:
        parts: of the packet. size: how many bytes these and the jobs returned have.
    """

    def __init__(self, store: JobStore, codec: BusCodec) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self._codec = codec
        self._replicas = store.replicas
        self._now = store.machine.now // 1000
        # What the last head says.
        self._like: Job | None = None
        self._etime = 0
        self._flags = 0
        self._length = -1
        self._body_length = b""

    def add(self, job: Job) -> bytes:
        """Add ``job``. If it is too large for this, return it, serialised, instead."""
        body = job.body or b""
        if job.flags & FLAG_TRAILER or len(body) > given.LONGEST:
            data = self._codec.encode(job)
            self.size += len(data)
            if len(data) > given.LONGEST:
                return data
            self.parts.append(WHOLE)
            self.parts.append(data)
            return b""
        left = job.etime - self._now
        etime = left + 1 if left > 0 else 1
        flags = int(job.flags & FLAGS_ON_BUS)
        like = self._like
        if (
            like is None
            or etime != self._etime
            or flags != self._flags
            or job.retry != like.retry
            or job.delivered is not like.delivered
            or job.repl != like.repl
            or job.delay != like.delay
            or job.nacks != like.nacks
            or job.deliveries != like.deliveries
        ):
            self._begin(job, flags, etime)
        length = len(body)
        if length != self._length:
            self._length = length
            self._body_length = length.to_bytes(4, "little")
        parts = self.parts
        parts.append(job.id)
        parts.append(job.ctime.to_bytes(8, "little"))
        parts.append(self._body_length)
        parts.append(body)
        self.size += _BODY_AT + length
        return b""

    def _begin(self, job: Job, flags: int, etime: int) -> None:
        """Add what ``job`` and the following ones share. All are of one queue."""
        self._like = job
        self._flags = flags
        self._etime = etime
        holders = self._replicas.sets.encode(self._replicas.of(job))
        self.parts.append(
            HEAD.pack(
                _ALIKE,
                flags,
                job.repl,
                etime,
                job.delay,
                job.retry,
                job.nacks,
                job.deliveries,
                len(job.queue),
                len(holders),
            )
        )
        self.parts.append(job.queue)
        self.parts.append(holders)
        self.size += HEAD_SIZE + len(job.queue) + len(holders)


class GivenReader:
    """Reads the jobs of one packet.

    Attributes:
        trailer: of the job that was read last; None: it has none.
        data: that job, serialised, if the packet has it like that; otherwise empty.
    """

    def __init__(self, packet: bytes, store: JobStore, codec: BusCodec) -> None:
        self.trailer: Trailer | None = None
        self.data = b""
        self._packet = packet
        self._size = len(packet)
        self._at = given.FIRST
        self._store = store
        self._codec = codec
        self._now = store.machine.now // 1000
        self._begun = False
        self._queue = b""
        self._holders: tuple[bytes, ...] | None = None
        self._flags = 0
        self._repl = 0
        self._etime = 0
        self._delay = 0
        self._retry = 0
        self._nacks = 0
        self._deliveries = 0

    def next(self) -> Job | None:
        """The next job, ACTIVE and not registered; None: that was all. Raises ``PacketError``."""
        packet = self._packet
        at = self._at
        size = self._size
        while at < size and packet[at] == _ALIKE:
            at = self._read_head(at)
        if at >= size:
            return None
        if packet[at] == _WHOLE:
            return self._read_whole(at + 1)
        body_at = at + _BODY_AT
        if packet[at] != _D or body_at > size or not self._begun:
            raise PacketError("a GIVEN with something that is not a job")
        end = body_at + read_u32(packet, body_at - 4)
        id = packet[at : at + ID_LENGTH]
        ctime = read_u32(packet, at + 40) | read_u32(packet, at + 44) << 32
        if end > size or ctime >> 63 or not is_plain_id(id):
            raise PacketError("a GIVEN with something that is not a job")
        self._at = end
        self.trailer = None
        self.data = b""
        job = Job(
            id,
            self._queue,
            packet[body_at:end],
            self._repl,
            ctime,
            self._etime,
            self._delay,
            self._retry,
            self._store.dump_number,
        )
        job.nacks = self._nacks
        job.deliveries = self._deliveries
        job.flags = self._flags
        job.delivered = self._holders
        return job

    def _read_whole(self, at: int) -> Job:
        """Read the serialised job at ``at``."""
        packet = self._packet
        if at + 4 > self._size:
            raise PacketError("a GIVEN with something that is not a job")
        end = at + 4 + read_u32(packet, at)
        job = None
        if end <= self._size:
            self.data = packet[at:end]
            job = self._codec.decode(self.data)
        if job is None:
            raise PacketError("a GIVEN with something that is not a job")
        self.trailer = self._codec.trailer
        self._at = end
        return job

    def _read_head(self, at: int) -> int:
        """Read what the following jobs share. Returns where they begin."""
        packet = self._packet
        start = at + HEAD_SIZE
        if start > self._size:
            raise PacketError("the head of a GIVEN goes past the end")
        head: Head = HEAD.unpack_from(packet, at)
        _, flags, repl, etime, delay, retry, nacks, deliveries, name, nodes = head
        end = start + name + nodes
        if end > self._size or nodes % NODE_ID_LENGTH or nodes > MAX_HOLDERS * NODE_ID_LENGTH:
            raise PacketError("the head of a GIVEN goes past the end")
        store = self._store
        self._begun = True
        self._queue = store.queues.one_name(packet[start : start + name])
        self._holders = store.replicas.read(packet[start + name : end])
        self._flags = flags & FLAGS_CARRIED
        self._repl = repl
        etime += self._now
        self._etime = etime if etime < UINT32_MAX else UINT32_MAX
        self._delay = delay
        self._retry = retry
        self._nacks = nacks
        self._deliveries = deliveries
        return end
