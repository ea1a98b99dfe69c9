"""Makes the handshakes by which nodes show who they are (cluster-identity)."""

from functools import partial
from typing import Final

from disque_trio.cluster.buslink import BusLink
from disque_trio.cluster.trust import Trust
from disque_trio.protocol.bus import PacketWriter
from disque_trio.protocol.identity import Crypto, Handshake

MOST_PLAIN: Final = 1000  # addresses


class Identities:
    """The part of cluster-identity that concerns links.

    Args:
        crypto: the key of this node.
        trust: decides which nodes may talk to this one.
        packets: has the id of this node.

    Attributes:
        trust: as given.
        encrypt: whether this node wishes that links are encrypted.
    """

    def __init__(self, crypto: Crypto, trust: Trust, packets: PacketWriter) -> None:
        self.trust = trust
        self.encrypt = False
        self._crypto = crypto
        self._packets = packets
        self._plain: set[tuple[str, int]] = set()  # addresses to try without identity next

    def handshake(self, link: BusLink) -> Handshake | None:
        """Make the handshake for ``link``. None: this attempt goes without."""
        if link.outgoing and link.address in self._plain:
            self._plain.discard(link.address)
            if not self.trust.required:
                return None
        return Handshake(
            self._crypto,
            self._packets.id,
            link.outgoing,
            self.trust.required,
            self.encrypt,
            partial(self.trust.judge, link),
        )

    def tries_plainly(self, link: BusLink) -> bool:
        """Whether the other side of ``link``, whose handshake has failed, may just not know of
        identities; if so, the next attempt goes without."""
        handshake = link.handshake
        if handshake is None or not link.introducing:
            return False
        unheard = link.outgoing and not handshake.heard and not self.trust.required
        if unheard and len(self._plain) < MOST_PLAIN:
            self._plain.add(link.address)
            return True
        self.trust.refused += 1
        return False
