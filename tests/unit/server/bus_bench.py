"""A cluster bus over real sockets, with a membership that only notes what it is told."""

import select
import socket
import time
from collections.abc import Callable
from pathlib import Path

from harness import free_port

from disque_trio.cluster.links import Link
from disque_trio.config import Config
from disque_trio.protocol.bus import GOTJOB, PING, PacketWriter
from disque_trio.server.bus import Bus
from disque_trio.server.buslink import BusLink
from disque_trio.server.clock import Clock
from disque_trio.server.logs import Logging
from disque_trio.server.stats import Stats

PACKETS = PacketWriter(b"a" * 40, 7711)
PING_PACKET = PACKETS.gossip(PING, [])
JOB_PACKET = PACKETS.about_job(GOTJOB, b"D-" + b"j" * 38)
OS_BUFFERS = 64 << 20  # more than the kernel keeps for a connection


class Notes:
    """A membership that remembers what it was told, and checks that it was not told from within
    its own calls."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Link]] = []
        self.packets: list[bytes] = []
        self.calling = False
        self.members = {PACKETS.id}
        self.config_changed = False
        self.on_packet: Callable[[Link], None] = lambda link: None

    def _note(self, what: str, link: Link) -> None:
        assert not self.calling, f"{what} from within a call"
        self.told.append((what, link))

    def knows(self, id: bytes) -> bool:
        return id in self.members

    def accepted(self, link: Link, now: int) -> None:
        self._note("accepted", link)

    def opened(self, link: Link, now: int) -> None:
        self._note("opened", link)

    def lost(self, link: Link, now: int) -> None:
        self._note("lost", link)

    def receive(self, link: Link, packet: bytes, now: int) -> None:
        self.packets.append(packet)
        self.on_packet(link)


class Bench:
    """A bus, its events and its turns."""

    def __init__(self, path: Path, config: Config) -> None:
        self.notes = Notes()
        self.logging = Logging(path=str(path / "log"))
        self.config = config
        self.stats = Stats()
        self.clock = Clock()
        self.bus = Bus(config, self.clock, self.stats, self.logging.log)
        self.bus.membership = self.notes  # type: ignore[assignment]
        self.epoll = select.epoll()
        self.asked = 0
        self.bus.join(self.epoll, self._ask)
        self.listener = socket.create_server(("127.0.0.1", free_port()))
        self.others: list[socket.socket] = []

    def _ask(self) -> None:
        self.asked += 1

    @property
    def address(self) -> tuple[str, int]:
        """Where another node listens."""
        ip, port = self.listener.getsockname()
        return ip, port

    def connect(self) -> BusLink:
        """Have the bus open a link to ``address``."""
        self.notes.calling = True
        link = self.bus.connect(*self.address)
        self.notes.calling = False
        assert isinstance(link, BusLink)
        return link

    def accept(self) -> socket.socket:
        """The other end of a link that the bus opened."""
        self.listener.settimeout(5)
        other, _ = self.listener.accept()
        other.settimeout(5)
        self.others.append(other)
        return other

    def admit(self, exposed: bool = False) -> socket.socket:
        """Another node connects; its end."""
        other = socket.create_connection(self.address, 5)
        self.others.append(other)
        inside, peer = self.listener.accept()
        inside.setblocking(False)
        self.bus.admit(inside, peer[0], exposed)
        return other

    def turn(self, wait: float = 0.02) -> None:
        """What the engine does with the bus in a turn."""
        now = self.clock.now()
        events = self.epoll.poll(wait)
        if self.bus.broken:
            self.bus.tell_broken(now)
        for fd, mask in events:
            self.bus.handle(fd, mask, now)
        self.bus.flush()

    def turns_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline
            self.turn()

    def up(self) -> tuple[BusLink, socket.socket]:
        """A link that the bus opened, and its other end."""
        link = self.connect()
        self.turns_until(lambda: link.up)
        return link, self.accept()

    def heard(self) -> list[str]:
        """What the membership was told, in order."""
        return [what for what, _ in self.notes.told]

    def close(self) -> None:
        self.bus.close_all()
        for sock in (self.listener, *self.others):
            sock.close()
        self.epoll.close()
        self.logging.close()


def receive(sock: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        data = sock.recv(min(size, 1 << 20))
        assert data, "the connection was closed"
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def is_closed(sock: socket.socket) -> bool:
    """Whether nothing comes any more; the rest is read."""
    sock.settimeout(5)
    try:
        while sock.recv(1 << 20):
            pass
    except ConnectionError:
        pass
    return True
