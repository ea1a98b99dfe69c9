"""SETTLED: what a turn of a node has to tell another one about jobs that move between them.

After the header of a packet, big-endian: the packet's number u32 (0: it names no jobs); the numbers
u32 of the first and the last packet of a row that the sender has heard from the receiver and
carried out (0: none); the number u32 of jobs that were acknowledged, and their ids; then for each
queue whose jobs are wanted how many u32, the flags u8 of NEEDJOBS, the length u32 of its name, and
its name.
"""

from struct import Struct
from typing import Final, NamedTuple

from disque_trio.protocol.bus import HEADER_SIZE, PacketError, QueueMessage, read_u32
from disque_trio.protocol.serialjob import ID_LENGTH

_HEAD: Final = Struct(">IIII")
_HEAD_SIZE: Final = 16
_WANT: Final = Struct(">IBI")
WANT_SIZE: Final = 9  # bytes that a queue takes besides its name


class Confirmation(NamedTuple):
    """The numbers of the first and the last packet of a row; 0: there is none."""

    first: int
    last: int


NONE: Final = Confirmation(0, 0)


class Settled(NamedTuple):
    """The contents of a SETTLED."""

    number: int
    heard: Confirmation
    ids: list[bytes]
    wants: list[QueueMessage]


def pack_settled(message: Settled) -> bytes:
    """The bytes of ``message``."""
    number, heard, ids, wants = message
    parts = [_HEAD.pack(number, heard.first, heard.last, len(ids)), *ids]
    for want in wants:
        parts += (_WANT.pack(want.aux, want.flags, len(want.queue)), want.queue)
    return b"".join(parts)


def read_settled(packet: bytes) -> Settled:
    """Read a SETTLED.

    Raises:
        PacketError: its lengths are inconsistent.
    """
    size = len(packet)
    at = HEADER_SIZE + _HEAD_SIZE
    if size < at:
        raise PacketError("a SETTLED is too short")
    number = read_u32(packet, HEADER_SIZE)
    heard = Confirmation(read_u32(packet, HEADER_SIZE + 4), read_u32(packet, HEADER_SIZE + 8))
    end = at + read_u32(packet, HEADER_SIZE + 12) * ID_LENGTH
    if end > size:
        raise PacketError("the ids of a SETTLED go past the end")
    ids = [packet[start : start + ID_LENGTH] for start in range(at, end, ID_LENGTH)]
    wants: list[QueueMessage] = []
    at = end
    while at < size:
        start = at + WANT_SIZE
        if start > size:
            raise PacketError("a queue in a SETTLED goes past the end")
        end = start + read_u32(packet, at + 5)
        if end > size:
            raise PacketError("a queue in a SETTLED goes past the end")
        wants.append(QueueMessage(packet[start:end], read_u32(packet, at), packet[at + 4]))
        at = end
    return Settled(number, heard, ids, wants)
