"""Cuts the bytes of a link into packets of the cluster bus (see ``bus``)."""

from collections.abc import Callable
from typing import Final

from disque_trio.protocol.bus import (
    HEADER_SIZE,
    LARGE_START,
    MAX_CONTROL_PACKET,
    MAX_PACKET,
    REPLJOB,
    SIGNATURE,
    UPDATEJOB,
    YOURJOBS,
    PacketError,
    read_u32,
)
from disque_trio.protocol.seal import MAGIC, SealError

_SIGNATURE: Final = read_u32(SIGNATURE, 0)


class PacketParser:
    """Splits the bytes that arrive over one link into packets.

    ``pending`` is how many bytes of an unfinished packet it holds.

    Args:
        wants: whether a packet with jobs that is longer than ``MAX_CONTROL_PACKET`` is to be
            held; else its bytes are passed over. Is given the first ``LARGE_START`` of them, and
            may raise PacketError.
    """

    def __init__(self, wants: Callable[[bytes], bool] = lambda start: True) -> None:
        self._wants = wants
        self._parts: list[bytes] = []
        self._wanted = 0  # bytes of the packet that is not whole; 0: not known
        self._passing = 0  # bytes still to be passed over
        self.pending = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The packets that ``data`` completes.

        Raises:
            PacketError: it is not the bus protocol, or a packet is longer than any may be: the
                link has to be closed.
            SealError: the other side wants a secret of this one, which has none: the same.
        """
        if self._parts:
            self._parts.append(data)
            self.pending += len(data)
            # Joining at each piece of a large packet would copy it again and again.
            if self.pending < max(self._wanted, HEADER_SIZE):
                return []
            data = b"".join(self._parts)
            self._parts.clear()
        packets: list[bytes] = []
        size = len(data)
        at = self._passing if self._passing < size else size
        self._passing -= at
        wanted = 0
        begun = self._wanted > 0  # the first packet was found to be wanted
        while size - at >= 8:
            if read_u32(data, at) != _SIGNATURE:
                if data[at : at + 8] == MAGIC:
                    raise SealError("it has a cluster-secret, this node has none")
                raise PacketError("not the signature of the bus")
            wanted = read_u32(data, at + 4)
            if not HEADER_SIZE <= wanted <= MAX_PACKET:
                raise PacketError(f"a packet cannot have {wanted} bytes")
            if size - at < 14:
                wanted = 0  # it may be too long for its type: do not wait for all of it
                break
            if wanted > MAX_CONTROL_PACKET and not begun:
                type = data[at + 12] << 8 | data[at + 13]
                if type not in (REPLJOB, YOURJOBS, UPDATEJOB):
                    raise PacketError(f"a packet of type {type} cannot have {wanted} bytes")
                if size - at < LARGE_START:
                    wanted = 0
                    break
                if not self._wants(data[at : at + LARGE_START]):
                    end = min(at + wanted, size)
                    self._passing = at + wanted - end
                    at = end
                    wanted = 0
                    continue
            if size - at < wanted:
                break
            packets.append(data[at : at + wanted] if wanted != size else data)
            at += wanted
            wanted = 0
            begun = False
        self._wanted = wanted
        self.pending = size - at
        if at < size:
            self._parts.append(data[at:] if at else data)
        return packets
