"""Splits the bytes of a link into packets of the cluster bus (see ``bus``)."""

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
from disque_trio.protocol.seal import IDENTITY_MAGIC, MAGIC, SealError

_SIGNATURE: Final = read_u32(SIGNATURE, 0)


class PacketParser:
    """Splits the bytes that arrive over one link into packets.

    ``pending`` is how many bytes of an incomplete packet it holds.

    Args:
        wants: whether to hold a packet with jobs that is longer than ``MAX_CONTROL_PACKET``;
            otherwise its bytes are skipped. Called with its first ``LARGE_START`` bytes; may
            raise ``PacketError``.
    """

    def __init__(self, wants: Callable[[bytes], bool] = lambda start: True) -> None:
        self._wants = wants
        self._parts: list[bytes] = []
        self._wanted = 0  # length of the incomplete packet; 0: not known
        self._passing = 0  # bytes still to skip
        self.pending = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the packets that ``data`` completes.

        Raises:
            PacketError: it is not the bus protocol, or a packet is longer than allowed. The link
                has to be closed.
            SealError: the other side requires a secret, and this one has none. Likewise.
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
        begun = self._wanted > 0  # the first packet was already accepted
        while size - at >= 8:
            if read_u32(data, at) != _SIGNATURE:
                if data[at : at + 8] == MAGIC:
                    raise SealError("it has a cluster-secret, but this node has none")
                if data[at : at + 8] == IDENTITY_MAGIC:
                    raise SealError("it has cluster-identity, but this node does not")
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
