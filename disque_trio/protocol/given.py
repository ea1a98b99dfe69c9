"""GIVEN: jobs that a node gives to another one, and which packets it has carried out.

After the header of a packet come the numbers u32 of a row as in SETTLED, big-endian. All that
follows is little-endian, as serialised jobs are. Jobs mostly differ only in id, creation and body,
so what they share is said once: 1 u8, flags u8, copies u16, expiry u32, delay u32, retry u32, nacks
u16, deliveries u16, the lengths u32 of queue and holders, the queue, and the ids of the nodes that
may hold the jobs. It applies to the jobs up to the next such head. Each of these is an id (which
begins with a D), the creation u64, the length u32 of its body, and the body. A job with a trailer
is serialised as in YOURJOBS, after 2 u8.
"""

from struct import Struct
from typing import Final

from disque_trio.protocol.bus import GIVEN, HEADER_SIZE, PacketError, PacketWriter, read_u32
from disque_trio.protocol.settled import Confirmation

HEAD: Final = Struct("<BBHIIIHHII")
HEAD_SIZE: Final = HEAD.size
# What ``HEAD`` unpacks.
Head = tuple[int, int, int, int, int, int, int, int, int, int]
ALIKE: Final = 1
WHOLE: Final = b"\2"
FIRST: Final = HEADER_SIZE + 8  # where the first job, or head, is
LONGEST: Final = 64 * 1024  # bytes of a body, or of a job with a trailer, in such a packet
MOST: Final = 512 * 1024  # bytes after which there are no more jobs in it
_ROW: Final = Struct(">II")


def given_packet(packets: PacketWriter, heard: Confirmation, parts: list[bytes]) -> bytes:
    """A GIVEN with these ``parts``, which confirms the packets ``heard``."""
    return packets.packet(GIVEN, b"".join([_ROW.pack(heard.first, heard.last), *parts]))


def read_row(packet: bytes) -> Confirmation:
    """The row that a GIVEN confirms. Raises ``PacketError``."""
    if len(packet) < FIRST:
        raise PacketError("a GIVEN is too short")
    return Confirmation(read_u32(packet, HEADER_SIZE), read_u32(packet, HEADER_SIZE + 4))
