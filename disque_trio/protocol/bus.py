"""Packets of the cluster bus: bytes <-> values.

Every packet has a header of 144 bytes, big-endian: ``DbuZ``, total length u32, version u16 (1), 2
unused, type u16, gossip entries u16, sender id 40, sender's ip 46 (NUL-padded text; empty: use that
of the connection), sender's extensions u16 (C nodes send 0), sender's port for clients with TLS u16
(0: none, or a C node), sender's trouble u16 (C nodes send 0), which process of its server the
sender is (name of the server 8, number u8, count u8; zeros: the only one, or a C node), 18 unused,
sender's client port u16, sender's node flags u16, state u8, 3 bytes of message flags. The data that
follows depends on the type. Packets about a job may name many jobs, among nodes that know of that
(see ``PacketWriter.about_jobs``). Serialised jobs are little-endian (see ``serialjob``). This
module owns the layout; ``node.core`` and ``cluster`` give it meaning.
"""

from struct import Struct
from typing import Final, NamedTuple

from disque_trio.protocol import serialjob
from disque_trio.protocol.fields import Field, FieldsError, pack_fields, unpack_fields
from disque_trio.protocol.serialjob import ID_LENGTH, NODE_ID_LENGTH, split_nodes

PING: Final = 0
PONG: Final = 1
MEET: Final = 2
FAIL: Final = 3
REPLJOB: Final = 4
GOTJOB: Final = 5
ENQUEUE: Final = 6
QUEUED: Final = 7
SETACK: Final = 8
WILLQUEUE: Final = 9
GOTACK: Final = 10
DELJOB: Final = 11
NEEDJOBS: Final = 12
YOURJOBS: Final = 13
WORKING: Final = 14
PAUSE: Final = 15
# Only for nodes that announce extensions; their data are fields (see ``fields``), except for
# UPDATEJOB, which is laid out like REPLJOB.
ENDJOB: Final = 16
REQUEUED: Final = 17
UPDATEJOB: Final = 18
POLICIES: Final = 19
QUESTION: Final = 20
ANSWER: Final = 21
SCHEDULES: Final = 22
BINDINGS: Final = 23
PAUSES: Final = 24
# Only for nodes that announce this; see ``given`` and ``settled``.
GIVEN: Final = 25
SETTLED: Final = 26
LAST: Final = SETTLED  # of the types that a node hears, except KEYS
# Only for nodes that have shown their identity: the keys of nodes (see ``cluster.keyring``).
KEYS: Final = 40
TYPE_NAMES: Final = [
    "ping", "pong", "meet", "fail", "repljob", "gotjob", "enqueue", "queued", "setack",
    "willqueue", "gotack", "deljob", "needjobs", "yourjobs", "working", "pause",
    "endjob", "requeued", "updatejob", "policies", "question", "answer",
    "schedules", "bindings", "pauses", "given", "settled",
]  # fmt: skip

# Message flags.
NOREPLY: Final = 1  # REPLJOB: no GOTJOB is wanted. QUEUED: it is an answer, which gets none
INCR_NACKS: Final = 2  # QUEUED: after a negative acknowledgement
INCR_DELIVERIES: Final = 4  # QUEUED: a further delivery for another reason
CLIENT_WAITS: Final = 1  # NEEDJOBS, only for nodes that announce extensions: a client waits
CREDIT: Final = 2  # the same in SETTLED: that many, as they come
UNKNOWN_END: Final = 1  # SETACK, only for these, too: the sender cannot say how the job ended
SHARED: Final = 1  # PAUSE, likewise: a PAUSES follows, for nodes that know it

# Node flags.
NODE_PFAIL: Final = 1
NODE_FAIL: Final = 2
NODE_MYSELF: Final = 4
NODE_HANDSHAKE: Final = 8
NODE_NOADDR: Final = 16
NODE_MEET: Final = 32
NODE_DELETED: Final = 64
NODE_LEAVING: Final = 128

# Extensions: what a node can do beyond C Disque.
EXTENDED: Final = 1  # packets of fields, and jobs with trailers
TELLING: Final = 2  # tells which jobs its clients have, and hears that of others
SETTLING: Final = 4  # GIVEN and SETTLED
LOTS: Final = 8  # hears of many jobs at once that they stay in a queue
GROUPS: Final = 16  # keeps groups of jobs within limits
REPLACING: Final = 32  # knows keys that are free when a job starts, and replaces jobs
EXTENSIONS: Final = 63  # all of them

HEADER_SIZE: Final = 144
VERSION: Final = 1
MAX_PACKET: Final = 1 << 30  # bytes; a job of 512 MiB with its holders fits
MAX_CONTROL_PACKET: Final = 1 << 20  # bytes; for packets of all types that carry no jobs
MAX_QUEUE_NAME: Final = MAX_CONTROL_PACKET - HEADER_SIZE - 8  # bytes, in NEEDJOBS and PAUSE
# Bytes of a queue name in a packet of fields, or of two names together. The other contents, such as
# a key or job ids, have as much room.
MAX_NAME_IN_FIELDS: Final = MAX_CONTROL_PACKET // 2
MAX_JOB: Final = MAX_PACKET - (1 << 20)  # bytes of queue name and body; the rest is for the holders
MAX_YOURJOBS: Final = 400  # jobs that a node gives at a time; a C node asks for at most 100

SIGNATURE: Final = b"DbuZ"
_IP_LENGTH: Final = 46
_PROCESS: Final = 10  # bytes that say which process of its server a node is
_UNUSED: Final = 18
_START: Final = Struct(">4sIHHHH")  # signature, length, version, unused, type, gossip entries
_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_TWO_U32: Final = Struct(">II")
_SMALL: Final = [_U32.pack(number) for number in range(16)]
MANY_HEADS: Final = 1024  # cached beginnings of packets about jobs
_GOSSIP: Final = Struct(">40sII46sHHHI")
GOSSIP_SIZE: Final = _GOSSIP.size
_JOB_MESSAGE_SIZE: Final = HEADER_SIZE + ID_LENGTH + 4
_JOB_ID: Final = HEADER_SIZE + 12  # of the first job in a packet with jobs
LARGE_START: Final = _JOB_ID + 40  # bytes of a large packet that tell whether it is wanted


class PacketError(ValueError):
    """The bytes are not a valid packet; the text says why."""


class Gossip(NamedTuple):
    """The description of a node in a PING, PONG or MEET of another.

    Attributes:
        id: 40 bytes. ping_sent, pong_received: ms, the lower 32 bits. ip: text. port: for
            clients. flags: NODE_* bits.
    """

    id: bytes
    ping_sent: int
    pong_received: int
    ip: str
    port: int
    flags: int


class JobMessage:
    """A packet about one job, or the part for one of several jobs.

    Attributes:
        id: of the job.
        aux: ENQUEUE: delay, s. SETACK: holders known. GOTACK: whether the job is known, 0 or 1.
            QUEUED, if the receiver knows what this means: the lot that the job is in; 0: none.
            WILLQUEUE: the node that asks, if the sender passes that on to a node that knows what
            this means: the first 32 bits of its id.
        flags: INCR_NACKS, INCR_DELIVERIES, NOREPLY, UNKNOWN_END.
        mark: 16-bit mark of the sender's set of holders; 0: not told. In a GOTACK for an unknown
            job: that of the SETACK.
    """

    __slots__ = ("aux", "flags", "id", "mark")

    def __init__(self, id: bytes, aux: int, flags: int, mark: int) -> None:
        self.id = id
        self.aux = aux
        self.flags = flags
        self.mark = mark


class QueueMessage:
    """A packet about a queue.

    Attributes:
        queue: its name.
        aux: NEEDJOBS: how many jobs. PAUSE: 1 in, 2 out.
        flags: CLIENT_WAITS, CREDIT.
    """

    __slots__ = ("aux", "flags", "queue")

    def __init__(self, queue: bytes, aux: int, flags: int = 0) -> None:
        self.queue = queue
        self.aux = aux
        self.flags = flags


class JobsMessage:
    """A REPLJOB or YOURJOBS.

    Attributes:
        jobs: serialised, each preceded by its length.
        flags: NOREPLY.
    """

    __slots__ = ("flags", "jobs")

    def __init__(self, jobs: list[bytes], flags: int) -> None:
        self.jobs = jobs
        self.flags = flags


class PacketWriter:
    """Makes the packets of one node.

    Args:
        id: the node's id, 40 bytes.
        port: for clients; the bus has this port plus 10000.
        ip: address to announce; empty: others use that of the connection.

    Attributes:
        extensions: what it announces beyond C Disque: EXTENSIONS or 0.
        tls_port: for clients with TLS; 0: none.
        trouble: what keeps it from taking copies (see ``cluster.troubles``); only announced with
            extensions.
        process: which one of its server it is; empty: the only one. Announced likewise.
    """

    def __init__(self, id: bytes, port: int, ip: str = "") -> None:
        self.id = id
        self.port = port
        self.ip = ip
        self.flags = NODE_MYSELF
        self.extensions = EXTENSIONS
        self.tls_port = 0
        self.trouble = 0
        self.process = b""
        self._about_me = b""
        self.refresh()

    def refresh(self) -> None:
        """Use changed attributes in packets from now on."""
        self._about_me = (
            self.id
            + self.ip.encode().ljust(_IP_LENGTH, b"\0")
            + _U16.pack(self.extensions)
            + _U16.pack(self.tls_port)
            + _U16.pack(self.trouble if self.extensions else 0)
            + (self.process if self.extensions else b"").ljust(_PROCESS + _UNUSED, b"\0")
            + _U16.pack(self.port)
            + _U16.pack(self.flags)
            + b"\0"
        )
        self._heads: dict[int, bytes] = {}

    def packet(self, type: int, data: bytes, message_flags: int = 0, count: int = 0) -> bytes:
        """Return a packet of ``type`` with ``data`` after the header."""
        return b"".join(
            (
                _START.pack(SIGNATURE, HEADER_SIZE + len(data), VERSION, 0, type, count),
                self._about_me,
                bytes((message_flags, 0, 0)),
                data,
            )
        )

    def about_job(
        self, type: int, id: bytes, aux: int = 0, message_flags: int = 0, mark: int = 0
    ) -> bytes:
        """GOTJOB, ENQUEUE (aux: delay, s), QUEUED, SETACK (aux: holders known), WILLQUEUE, GOTACK
        (aux: known 0 or 1), DELJOB or WORKING for the job ``id``.

        ``mark`` is a 16-bit mark of the sender's set of holders; 0: not told. It uses two bytes of
        the message flags that the C server sets to 0 and ignores.
        """
        before = self._before_ids(type, 1, message_flags, mark)
        return before + id + (_SMALL[aux] if aux < len(_SMALL) else _U32.pack(aux))

    def about_jobs(self, type: int, ids: list[bytes], aux: int, mark: int) -> bytes:
        """Like ``about_job``, for all jobs in ``ids``. If there are several, only for nodes that
        are known to read such packets."""
        before = self._before_ids(type, len(ids), 0, mark)
        return b"".join([before, *ids, _SMALL[aux] if aux < len(_SMALL) else _U32.pack(aux)])

    def _before_ids(self, type: int, count: int, message_flags: int, mark: int) -> bytes:
        """Return the bytes before the IDs of ``count`` jobs.

        Cached, since they are nearly always the same.
        """
        key = ((count << 16 | mark) << 8 | message_flags) << 8 | type
        before = self._heads.get(key)
        if before is None:
            if len(self._heads) >= MANY_HEADS:
                self._heads.clear()
            length = HEADER_SIZE + count * ID_LENGTH + 4
            before = self._heads[key] = b"%b%b%c%b" % (
                _START.pack(SIGNATURE, length, VERSION, 0, type, 0),
                self._about_me,
                message_flags,
                _U16.pack(mark),
            )
        return before

    def about_queue(self, type: int, queue: bytes, aux: int, flags: int = 0) -> bytes:
        """NEEDJOBS (aux: how many) or PAUSE (aux: 1 in, 2 out) for ``queue``."""
        return self.packet(type, _TWO_U32.pack(aux, len(queue)) + queue, flags)

    def fields(self, type: int, fields: list[Field]) -> bytes:
        """ENDJOB to PAUSES, only for nodes with extensions."""
        return self.packet(type, pack_fields(fields))

    def jobs(self, type: int, jobs: list[bytes], message_flags: int = 0) -> bytes:
        """REPLJOB (one job, or several for a node that is known to read that), YOURJOBS or
        UPDATEJOB with serialised ``jobs``."""
        data = jobs[0] if len(jobs) == 1 else b"".join(jobs)
        return b"".join(
            (
                _START.pack(SIGNATURE, HEADER_SIZE + 8 + len(data), VERSION, 0, type, 0),
                self._about_me,
                bytes((message_flags, 0, 0)),
                _TWO_U32.pack(len(jobs), len(data)),
                data,
            )
        )

    def gossip(self, type: int, entries: list[Gossip]) -> bytes:
        """PING, PONG or MEET."""
        data = b"".join(
            _GOSSIP.pack(
                entry.id,
                entry.ping_sent & 0xFFFFFFFF,
                entry.pong_received & 0xFFFFFFFF,
                entry.ip.encode(),
                entry.port,
                entry.flags,
                0,
                0,
            )
            for entry in entries
        )
        return self.packet(type, data, 0, len(entries))

    def fail(self, id: bytes) -> bytes:
        """FAIL: the node ``id`` is down."""
        return self.packet(FAIL, id)


# ---- reading -------------------------------------------------------------------------------


def read_u32(data: bytes, at: int) -> int:
    """The big-endian u32 at ``at``. Compiled, a ``Struct`` takes ten times as long."""
    return data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]


def packet_type(packet: bytes) -> int:
    """The type of ``packet``; may be unknown."""
    return packet[12] << 8 | packet[13]


def packet_length(packet: bytes) -> int:
    """The length that ``packet`` states, in bytes."""
    return read_u32(packet, 4)


def first_job_id(packet: bytes) -> bytes:
    """The id of the first job in a REPLJOB or YOURJOBS; only its start is needed."""
    return packet[_JOB_ID:LARGE_START]


def packet_sender(packet: bytes) -> bytes:
    """The id of the node that sent ``packet``, 40 bytes."""
    return packet[16:56]


def packet_flags(packet: bytes) -> int:
    """The message flags (NOREPLY ...)."""
    return packet[141]


def sender_address(packet: bytes) -> tuple[str, int]:
    """The ip that the sender announces (empty: none) and its port for clients."""
    return read_ip(packet[56:102]), packet[136] << 8 | packet[137]


def sender_flags(packet: bytes) -> int:
    """The sender's own NODE_* bits."""
    return packet[138] << 8 | packet[139]


def sender_extensions(packet: bytes) -> int:
    """The sender's extensions of C Disque; 0: it is a C node."""
    return packet[102] << 8 | packet[103]


def sender_tls_port(packet: bytes) -> int:
    """The sender's port for clients with TLS; 0: it has none, or does not tell."""
    return packet[104] << 8 | packet[105]


def sender_trouble(packet: bytes) -> int:
    """What keeps the sender from taking copies; 0: nothing, or it is a C node."""
    return packet[106] << 8 | packet[107] if sender_extensions(packet) else 0


def sender_process(packet: bytes) -> bytes:
    """Which process of its server the sender is: a name of the server (8 bytes), its number and how
    many there are; empty: it is the only one, does not tell, or is a C node."""
    process = packet[108 : 108 + _PROCESS] if sender_extensions(packet) else b""
    return process if any(process) else b""


def read_ip(field: bytes) -> str:
    """Read NUL-padded text; empty if it is not text."""
    text = field.partition(b"\0")[0]
    return text.decode() if text.isascii() else ""


def read_gossip(packet: bytes) -> list[Gossip]:
    """The entries of a PING, PONG or MEET.

    Raises:
        PacketError: its length is wrong.
    """
    check_gossip(packet)
    return [read_entry(packet, at) for at in range(HEADER_SIZE, len(packet), GOSSIP_SIZE)]


def check_gossip(packet: bytes) -> None:
    """Raise ``PacketError`` if the length of a PING, PONG or MEET is wrong."""
    count = packet[14] << 8 | packet[15]
    if len(packet) != HEADER_SIZE + count * GOSSIP_SIZE:
        raise PacketError(f"{len(packet)} bytes do not hold {count} gossip entries")


def read_entry(packet: bytes, at: int) -> Gossip:
    """The gossip entry at ``at``."""
    id, ping_sent, pong_received, ip, port, flags, _, _ = _GOSSIP.unpack_from(packet, at)
    return Gossip(id, ping_sent, pong_received, read_ip(ip), port, flags)


def entry_flags(packet: bytes, at: int) -> int:
    """The NODE_* bits in the gossip entry at ``at``."""
    return packet[at + 96] << 8 | packet[at + 97]


def read_fail(packet: bytes) -> bytes:
    """The id of the node that a FAIL is about. Raises ``PacketError``."""
    if len(packet) != HEADER_SIZE + NODE_ID_LENGTH:
        raise PacketError("a FAIL has the wrong length")
    return packet[HEADER_SIZE:]


def read_about_job(packet: bytes) -> JobMessage:
    """Read a packet about a job; of several jobs (``job_ids``), the first. Raises
    ``PacketError``."""
    size = len(packet)
    if size < _JOB_MESSAGE_SIZE or (size - _JOB_MESSAGE_SIZE) % ID_LENGTH:
        raise PacketError("a message about a job has the wrong length")
    return JobMessage(
        packet[HEADER_SIZE:184],
        read_u32(packet, size - 4),
        packet[141],
        packet[142] << 8 | packet[143],
    )


def names_many(packet: bytes) -> bool:
    """Whether a packet about jobs names several."""
    return len(packet) > _JOB_MESSAGE_SIZE


def job_ids(packet: bytes) -> list[bytes]:
    """The ids of all jobs that a packet is about."""
    return split_nodes(packet[HEADER_SIZE:-4])


def read_fields(packet: bytes) -> list[Field]:
    """The fields of an ENDJOB to PAUSES. Raises ``PacketError``."""
    try:
        return unpack_fields(packet[HEADER_SIZE:])
    except FieldsError as problem:
        raise PacketError(f"malformed fields: {problem}") from problem


def read_about_queue(packet: bytes) -> QueueMessage:
    """Read a NEEDJOBS or PAUSE. Raises ``PacketError``."""
    at = HEADER_SIZE + 8
    if len(packet) >= at and len(packet) == at + read_u32(packet, HEADER_SIZE + 4):
        return QueueMessage(packet[at:], read_u32(packet, HEADER_SIZE), packet_flags(packet))
    raise PacketError("a message about a queue has the wrong length")


def read_jobs(packet: bytes) -> JobsMessage:
    """Read a REPLJOB, YOURJOBS or UPDATEJOB.

    Raises:
        PacketError: the lengths are inconsistent.
    """
    size = len(packet)
    if size < HEADER_SIZE + 8:
        raise PacketError("a packet of jobs has the wrong length")
    count = read_u32(packet, HEADER_SIZE)
    if size != HEADER_SIZE + 8 + read_u32(packet, HEADER_SIZE + 4):
        raise PacketError("a packet of jobs has the wrong length")
    at = HEADER_SIZE + 8
    flags = packet_flags(packet)
    if count == 1:
        return JobsMessage([packet[at:]], flags)
    jobs: list[bytes] = []
    while at < size:
        if at + 4 > size:
            raise PacketError("a job goes past the end")
        end = at + 4 + serialjob.read_u32(packet, at)
        if end > size:
            raise PacketError("a job goes past the end")
        jobs.append(packet[at:end])
        at = end
    if len(jobs) != count:
        raise PacketError(f"{count} jobs announced, {len(jobs)} found")
    return JobsMessage(jobs, flags)
