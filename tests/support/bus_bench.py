"""A cluster bus over real sockets, with a membership that only records calls."""

import socket
import time
from collections.abc import Callable
from pathlib import Path

from disque_trio.cluster.bus import Bus
from disque_trio.cluster.buslink import BusLink
from disque_trio.cluster.buslinks import BusLinks
from disque_trio.cluster.links import Link
from disque_trio.config import Config
from disque_trio.process.clock import Clock
from disque_trio.process.logs import Logging
from disque_trio.protocol.bus import GOTJOB, PING, PacketWriter
from disque_trio.respserver.io.poller import Poller
from disque_trio.respserver.io.stats import Stats
from tests.support.harness import HANG_SECONDS, free_port

PACKETS = PacketWriter(b"a" * 40, 7711)
PING_PACKET = PACKETS.gossip(PING, [])
JOB_PACKET = PACKETS.about_job(GOTJOB, b"D-" + b"j" * 38)
OS_BUFFERS = 64 << 20  # more than the kernel buffers for a connection


class Notes:
    """A membership that records calls, and checks that they are not nested in its own."""

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

    def receive(self, link: Link, packet: bytes, now: int) -> bytes:
        self.packets.append(packet)
        self.on_packet(link)
        return b""


class AskedPoller(Poller):
    """Counts how often a turn is requested."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def ask_turn(self) -> None:
        self.asked += 1


class Bench:
    """A bus, its events and its turns."""

    def __init__(self, path: Path, config: Config) -> None:
        self.notes = Notes()
        self.logging = Logging(path=str(path / "log"))
        self.config = config
        self.stats = Stats()
        self.clock = Clock()
        self.poller = AskedPoller()
        self.wants_copy: Callable[[bytes], bool] = lambda id: True
        log = self.logging.log
        self.links = BusLinks(config, self.stats, log, self.poller)
        self.bus = Bus(
            self.links,
            self.notes,
            lambda sender, packet, now: None,
            lambda id: self.wants_copy(id),
            lambda: None,
            config,
            self.clock,
            self.stats,
            log,
        )
        self.listener = socket.create_server(("127.0.0.1", free_port()))
        self.others: list[socket.socket] = []

    @property
    def asked(self) -> int:
        """How often a turn was requested."""
        return self.poller.asked

    @property
    def address(self) -> tuple[str, int]:
        """The address at which another node listens."""
        ip, port = self.listener.getsockname()
        return ip, port

    def connect(self) -> BusLink:
        """Make the bus open a link to ``address``."""
        self.notes.calling = True
        link = self.links.connect(*self.address)
        self.notes.calling = False
        assert isinstance(link, BusLink)
        return link

    def accept(self) -> socket.socket:
        """The other end of a link that the bus opened."""
        self.listener.settimeout(HANG_SECONDS)
        other, _ = self.listener.accept()
        other.settimeout(HANG_SECONDS)
        self.others.append(other)
        return other

    def admit(self, exposed: bool = False) -> socket.socket:
        """Connect as another node; returns its end."""
        other = socket.create_connection(self.address, 5)
        self.others.append(other)
        self._let_in(exposed)
        return other

    def connect_to_itself(self) -> BusLink:
        """Make the bus open a link whose other end is in the same bus."""
        link = self.connect()
        self._let_in(False)
        return link

    def joined(self) -> tuple[BusLink, BusLink]:
        """Both ends of such a link that is up and has received a packet."""
        link = self.connect_to_itself()
        self.turns_until(lambda: "opened" in self.heard())
        link.send(PING_PACKET)
        self.turns_until(lambda: "accepted" in self.heard())
        (back,) = (other for other in self.links.by_fd.values() if other is not link)
        return link, back

    def _let_in(self, exposed: bool) -> None:
        """Let the bus take the next connection."""
        inside, peer = self.listener.accept()
        inside.setblocking(False)
        self.bus.admit(inside, peer[0], exposed)

    def turn(self, wait: float = 0.02) -> None:
        """Run the engine's work for the bus in a turn."""
        now = self.clock.now()
        events = self.poller.epoll.poll(wait)
        if self.bus.broken:
            self.bus.tell_broken(now)
        for fd, mask in events:
            self.bus.handle(fd, mask, now)
        self.bus.flush()

    def turns_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + HANG_SECONDS
        while not condition():
            assert time.monotonic() < deadline
            self.turn()

    def up(self) -> tuple[BusLink, socket.socket]:
        """A link that the bus opened, and its other end."""
        link = self.connect()
        self.turns_until(lambda: link.up)
        return link, self.accept()

    def heard(self) -> list[str]:
        """The membership's recorded calls, in order."""
        return [what for what, _ in self.notes.told]

    def close(self) -> None:
        self.bus.close_all()
        for sock in (self.listener, *self.others):
            sock.close()
        self.poller.close()
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
    """Read the rest; returns whether the connection is closed."""
    sock.settimeout(HANG_SECONDS)
    try:
        while sock.recv(1 << 20):
            pass
    except ConnectionError:
        pass
    return True
