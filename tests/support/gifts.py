"""The packets in which nodes give jobs to each other."""

from disque_trio.protocol.bus import GIVEN, YOURJOBS, packet_type, read_jobs
from disque_trio.protocol.given import ALIKE, FIRST, HEAD, HEAD_SIZE, WHOLE
from disque_trio.protocol.serialjob import ID_LENGTH, read_u32


def is_gift(packet: bytes) -> bool:
    """Whether ``packet`` gives jobs."""
    return packet_type(packet) in (YOURJOBS, GIVEN)


def given_ids(packet: bytes) -> list[bytes]:
    """The ids of the jobs that ``packet``, a well-formed YOURJOBS or GIVEN, gives."""
    if packet_type(packet) == YOURJOBS:
        return [data[4 : 4 + ID_LENGTH] for data in read_jobs(packet).jobs]
    found: list[bytes] = []
    at = FIRST
    while at < len(packet):
        if packet[at] == ALIKE:
            head = HEAD.unpack_from(packet, at)
            at += HEAD_SIZE + head[8] + head[9]
        elif packet[at] == WHOLE[0]:
            found.append(packet[at + 5 : at + 5 + ID_LENGTH])
            at += 5 + read_u32(packet, at + 1)
        else:
            found.append(packet[at : at + ID_LENGTH])
            at += 52 + read_u32(packet, at + 48)
    return found
