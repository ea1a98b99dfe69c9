"""The description of this node that it sends to others."""

from disque_trio.process.addresses import plain_ip, usefulness
from disque_trio.protocol.bus import PacketWriter


class Myself:
    """The id, addresses and flags of this node.

    Attributes:
        packets: makes its packets; has its id, port and announced ip.
        ip: its own address, as other nodes reach it; empty until learned.
    """

    def __init__(self, packets: PacketWriter) -> None:
        self.packets = packets
        self.ip = ""
        self._ip_from_file = False

    def endpoint(self) -> tuple[str, int]:
        """Its ip (empty until it is learned) and its port for clients."""
        return self.packets.ip or self.ip, self.packets.port

    def remember(self, ip: str) -> None:
        """Set the address from before the restart to ``ip``."""
        self.ip = ip
        self._ip_from_file = True

    def learn(self, ip: str, met: bool) -> bool:
        """Note that another node used the address ``ip`` for this one, in a MEET if ``met``.
        Returns whether that changes anything.

        A MEET takes precedence over a PING, as on C nodes, and both over the address from before
        the restart. But an address that only this machine can use does not replace one that all
        can: clients get it from HELLO.
        """
        ip = plain_ip(ip)
        better = usefulness(ip) - usefulness(self.ip)
        if better > 0 or (better == 0 and (met or self._ip_from_file)):
            self._ip_from_file = False
            if ip != self.ip:
                self.ip = ip
                return True
        return False
