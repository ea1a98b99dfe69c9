"""Opens and closes the links of the cluster bus, and owns their sockets.

The links live in the engine's epoll descriptor. The membership hears of their events at the
beginning of a turn, never from within a call that it makes itself.
"""

import os
import select
import socket
from collections.abc import Callable, Sequence

from disque_trio.cluster.buslink import BusLink
from disque_trio.cluster.halfpackets import HalfPackets
from disque_trio.cluster.identities import Identities
from disque_trio.cluster.links import Link
from disque_trio.cluster.packethold import PacketHold
from disque_trio.cluster.tls import BusTls
from disque_trio.cluster.told import Told
from disque_trio.config import Config
from disque_trio.process.addresses import is_loopback, plain_ip
from disque_trio.process.logs import Log
from disque_trio.process.sockets import keep_alive
from disque_trio.protocol.packet_parser import PacketParser
from disque_trio.protocol.seal import NONCE_SIZE, Seal, master_key
from disque_trio.respserver.io.poller import Poller
from disque_trio.respserver.io.stats import Stats

MOST_TOLD, TOLD_PERIOD = 100, 3_600_000  # log lines about strangers and mismatched nodes; ms
MOST_REFUSED, REFUSED_PERIOD = 100, 600_000  # the same about refused nodes
KEEPALIVE = 30  # s of silence until the kernel checks whether a node is still there

_READ = select.EPOLLIN
_WRITE = select.EPOLLOUT


class BusLinks:
    """All links of one node.

    Args:
        poller: reports the events of their sockets.

    Attributes:
        tls: encrypts and checks links; None: nothing does.
        identities: shows who the nodes are; None: they show no identity.
        sources: addresses that the node listens on, without wildcards; links go out from the
            matching one.
        enabled: whether there is a bus at all.
        by_fd: the links by file descriptor.
        dirty: links with packets of this turn.
        broken: links that broke, of which the membership does not know yet.
        behind: links whose socket did not take everything.
        unproven: links without a valid packet so far, and until when they have time, in ms.
        halves: the incomplete packets of all links.
        hold: holds packets back while the turn's records are being written.
        hurry: called when ``cron`` may be due earlier than ``next_due`` said.
    """

    def __init__(self, config: Config, stats: Stats, log: Log, poller: Poller) -> None:
        self.tls: BusTls | None = None
        self.identities: Identities | None = None
        self._masters: list[bytes] = []  # keys of the secrets that nodes may know
        self.sources: list[str] = []
        self.enabled = True
        self.by_fd: dict[int, BusLink] = {}
        self.dirty: list[BusLink] = []
        self.broken: list[BusLink] = []
        self.behind: dict[BusLink, None] = {}
        self.unproven: dict[BusLink, int] = {}
        self.halves = HalfPackets(config, stats, log)
        self.hold = PacketHold()
        self.hurry: Callable[[], None] = _nobody
        self._config = config
        self._log = log
        self._poller = poller
        self._epoll = poller.epoll
        self._told = Told(MOST_TOLD, TOLD_PERIOD)
        self._refused = Told(MOST_REFUSED, REFUSED_PERIOD)

    @property
    def count(self) -> int:
        """The number of connections."""
        return len(self.by_fd)

    @property
    def guarded(self) -> bool:
        """Whether TLS, a secret or keys of nodes keep out strangers who reach the bus."""
        identities = self.identities
        required = identities is not None and identities.trust.required
        return self.tls is not None or len(self._masters) > 0 or required

    def use_secrets(self, secrets: Sequence[str]) -> None:
        """Accept only nodes that know one of ``secrets``, and show them that this one knows the
        first;
        empty: accept any node. Links that do not conform are closed, to be opened again."""
        masters = [master_key(secret.encode("utf-8", "surrogateescape")) for secret in secrets]
        if masters == self._masters:
            return
        self._masters = masters
        for link in list(self.by_fd.values()):
            fits = not masters if link.seal is None else link.seal.holds_with(masters)
            if link.connected and not fits:
                self.break_off(link, "cluster-secret was changed")

    @property
    def memory(self) -> int:
        """The bytes that all links hold: incomplete, unsent and held packets."""
        unsent = sum(len(link.unsent) for link in self.behind)
        return self.halves.holdings.total + self.hold.size + unsent

    # ---- new links ---------------------------------------------------------------------------

    def connect(self, ip: str, port: int) -> Link:
        """Begin to open a link to another node; see ``links.Connect``."""
        link = BusLink(True, self.dirty, self.drop)
        link.address = (ip, port)
        if not self.enabled:
            self.break_off(link, "there is no bus without a port")
            return link
        try:
            family = socket.AF_INET6 if ":" in ip else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as failure:
            self.break_off(link, str(failure))
            return link
        sock.setblocking(False)
        self._add(link, sock, _WRITE)
        try:
            source = self._source(ip)
            if source:
                sock.bind((source, 0))
            sock.connect((ip, port))
        except BlockingIOError:
            pass
        except OSError as failure:
            link.refused = isinstance(failure, ConnectionRefusedError)
            self.break_off(link, str(failure))
        return link

    def _source(self, ip: str) -> str:
        """The address to connect from; empty: let the kernel choose. Others learn from it where
        this node is, so it has to be an address that the node listens on."""
        for source in self.sources:
            if (":" in source) == (":" in ip) and is_loopback(source) == is_loopback(ip):
                return source
        return ""

    def take_in(self, sock: socket.socket, until: int) -> BusLink:
        """Make a link of ``sock``, a stranger's connection, which has time until ``until`` (ms)."""
        link = BusLink(False, self.dirty, self.drop)
        self._add(link, sock, _READ)
        self.doubt(link, until)
        return link

    @property
    def strangers(self) -> int:
        """The number of links that others have opened and that have no valid packet so far."""
        return sum(not link.outgoing for link in self.unproven)

    def strangest(self) -> BusLink:
        """The stranger's link that makes room for another one. Prefers one that has not shown a
        certificate or the secret, if that is required; then the oldest, since a node needs only a
        moment."""
        strangers = [link for link in self.unproven if not link.outgoing]
        return next((link for link in strangers if not link.up), strangers[0])

    def doubt(self, link: BusLink, until: int) -> None:
        """Give ``link`` until ``until`` (ms) to send something valid."""
        self.unproven[link] = until
        self.hurry()

    def _add(self, link: BusLink, sock: socket.socket, mask: int) -> None:
        link.take(sock)
        self.by_fd[link.fd] = link
        self._epoll.register(link.fd, mask)

    def prepare(self, link: BusLink, parser: PacketParser) -> None:
        """Set ``link`` up on its TCP connection; ``parser`` gets what arrives. Raises ``OSError``
        if the connection is gone again."""
        link.parser = parser
        sock = link.sock
        link.local_ip = plain_ip(sock.getsockname()[0])
        link.remote_ip = plain_ip(sock.getpeername()[0])
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(sock, KEEPALIVE)
        link.connected = True
        masters = self._masters
        seal = Seal(masters, os.urandom(NONCE_SIZE), link.outgoing) if masters else None
        identities = self.identities
        handshake = None if identities is None else identities.handshake(link)
        link.secure(self.tls, seal, handshake)

    def introduced(self, link: BusLink) -> None:
        """Note that ``link`` is up, and which node is at its other side, if it has shown that."""
        if self.identities is not None and link.peer:
            self.identities.trust.proved(link)

    def tries_plainly(self, link: BusLink) -> bool:
        """Whether the node at the other side of ``link``, which has failed, may just have no
        identity; if so, the next attempt goes without."""
        return self.identities is not None and self.identities.tries_plainly(link)

    def part_with(self, keys: set[bytes]) -> None:
        """Close the links of nodes with ``keys``; empty: of all that have shown their identity."""
        for link in list(self.by_fd.values()):
            if link.key and (link.key in keys or not keys):
                self.break_off(link, "the key of the node does not count any more")

    # ---- events ----------------------------------------------------------------------------

    def wait_for(self, link: BusLink, mask: int) -> None:
        """Wait for one of the events ``mask`` of ``link``."""
        self._epoll.modify(link.fd, mask)

    def watch(self, link: BusLink) -> None:
        """Read from ``link``, which is up, and write what is unsent, as far as permitted."""
        mask = 0 if self.hold.is_full() else _READ
        if link.unsent:
            mask |= _WRITE
        self._epoll.modify(link.fd, mask)

    def watch_all(self) -> None:
        """Call ``watch`` for all links that are up."""
        for link in self.by_fd.values():
            if link.up:
                self.watch(link)

    # ---- the end of links --------------------------------------------------------------------

    def break_off(self, link: BusLink, reason: str) -> None:
        """Close ``link`` because of ``reason``. If the membership knows the link, it hears of it in
        the next turn."""
        if link.closed:
            return
        self._log.debug("bus link lost", node=link.remote_ip, reason=reason)
        known = link.outgoing or link.heard
        self.drop(link)
        if known:
            self.broken.append(link)
            self._poller.ask_turn()

    def drop(self, link: BusLink) -> None:
        """Close ``link``, unless it is closed already."""
        if link.closed:
            return
        link.closed = True
        link.up = False
        link.queue.clear()
        link.unsent.clear()
        self.halves.holdings.note(link, 0)
        self.behind.pop(link, None)
        self.unproven.pop(link, None)
        if link.fd >= 0:
            del self.by_fd[link.fd]
            if link.sock.fileno() == link.fd:  # otherwise a failed start of TLS has closed it
                self._epoll.unregister(link.fd)
            link.sock.close()

    def close_largest(self) -> None:
        """Close the links that hold the most, while all together hold too much."""
        if self.halves.holdings.over:
            for link in self.halves.excess():
                self.break_off(link, "too much is held")

    def next_due(self) -> int:
        """Return when ``cron`` is due, in ms; 0: not before something happens."""
        return min(self.unproven.values()) + 1 if self.unproven else 0

    def cron(self, now: int) -> None:
        """Drop strangers whose time is over, and links that hold too much after the limit was
        lowered; read on if the others could take this node for dead. Call it when ``next_due``
        says, and with each heartbeat."""
        self.close_largest()
        if self.hold.tires(now, self._config.cluster_node_timeout // 2):
            self._log.warning("packets about jobs are dropped: too many have to wait")
            self.watch_all()
        self._told.renew(now)
        self._refused.renew(now)
        if self.unproven:
            for link, deadline in list(self.unproven.items()):
                if now > deadline:
                    self.break_off(link, "a stranger")

    def close_all(self) -> None:
        """Close all links, silently."""
        for link in list(self.by_fd.values()):
            self.drop(link)

    def tell_once(self, text: str, ip: str) -> None:
        """Log ``text`` once per address and hour, since the same thing would happen again every
        second."""
        if self._told.is_new(text, ip):
            self._log.warning(text, address=ip)

    def tell_refused(self, text: str, ip: str) -> None:
        """Log why a node was refused, once per address for a while. The texts have the keys of
        strangers, of which there is no end."""
        if self._refused.is_new(text, ip):
            self._log.warning(text, address=ip)
            if self._refused.full:
                self._log.warning("further refused nodes are not logged for some minutes")


def _nobody() -> None:
    """Default of ``hurry``."""
