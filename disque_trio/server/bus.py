"""The cluster bus: connections to other nodes.

Owns the links, their sockets and the bytes on them; what packets say is the membership's. The
links live in the epoll descriptor of the engine and take part in its turns: what is given to
``send`` leaves at the end of the turn, in one call of the system for each link, and only when what
the turn noted is on disk. So one GOTJOB or ten thousand cost the same trip through the kernel.

The membership learns of what happens to its links at the beginning of a turn, never from within a
call that it makes itself.
"""

import errno
import os
import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from disque_trio.cluster.addresses import is_loopback, plain_ip
from disque_trio.cluster.links import Link, Network
from disque_trio.config import Config
from disque_trio.protocol.bus import (
    FAIL,
    MAX_CONTROL_PACKET,
    PacketError,
    packet_sender,
    packet_type,
)
from disque_trio.server.buslink import BROKEN, BusLink
from disque_trio.server.clock import Clock
from disque_trio.server.logs import Log
from disque_trio.server.sockets import is_local, keep_alive
from disque_trio.server.tls import BusTls

if TYPE_CHECKING:
    from disque_trio.cluster.membership import Membership
    from disque_trio.server.stats import Stats

PATIENCE = 10_000  # ms that a new connection has until it is known to be that of a member
MOST_YOUNG = 64  # connections of strangers at a time
KEEPALIVE = 30  # s until the kernel asks whether a silent node is still there

_READ = select.EPOLLIN
_WRITE = select.EPOLLOUT
_GONE = select.EPOLLHUP | select.EPOLLERR


class Bus(Network):
    """All links of a node.

    Args:
        config: limits, read when they matter.

    Attributes:
        membership: is told what happens; to be set before the first turn.
        tls: how links are encrypted and checked, None: not at all.
        sources: addresses that the node listens on, wildcards left out; links go out from the one
            that fits.
        enabled: whether there is a bus at all.
        dirty: links with packets of this turn.
        broken: links of which the membership has not been told that they broke.
        behind: links whose socket did not take everything.
    """

    def __init__(self, config: Config, clock: Clock, stats: "Stats", log: Log) -> None:
        self.membership: Membership
        self.tls: BusTls | None = None
        self.sources: list[str] = []
        self.enabled = True
        self.dirty: list[BusLink] = []
        self.broken: list[BusLink] = []
        self.behind: dict[BusLink, None] = {}
        self._config = config
        self._clock = clock
        self._stats = stats
        self._log = log
        self._links: dict[int, BusLink] = {}  # by file descriptor
        self._young: dict[BusLink, int] = {}  # of strangers, with their end in ms
        self._told: set[str] = set()  # what was said in the log once
        self._deaf = False
        self._epoll: select.epoll
        self._ask_turn: Callable[[], None]

    def join(self, epoll: select.epoll, ask_turn: Callable[[], None]) -> None:
        """Have the events of the links come from ``epoll``; ``ask_turn`` makes a turn come soon."""
        self._epoll = epoll
        self._ask_turn = ask_turn

    @property
    def links(self) -> int:
        """How many connections there are."""
        return len(self._links)

    # ---- new links ---------------------------------------------------------------------------

    def connect(self, ip: str, port: int) -> Link:
        link = BusLink(self, outgoing=True)
        if not self.enabled:
            self._break(link, "there is no bus without a port")
            return link
        try:
            family = socket.AF_INET6 if ":" in ip else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as failure:
            self._break(link, str(failure))
            return link
        sock.setblocking(False)
        link.take(sock)
        self._links[link.fd] = link
        self._epoll.register(link.fd, _WRITE)
        try:
            source = self._source(ip)
            if source:
                sock.bind((source, 0))
            sock.connect((ip, port))
        except BlockingIOError:
            pass
        except OSError as failure:
            self._break(link, str(failure))
        return link

    def _source(self, ip: str) -> str:
        """The address to connect from; empty: the kernel knows best. Others learn from it where
        this node is, so it has to be one that the node listens on."""
        for source in self.sources:
            if (":" in source) == (":" in ip) and is_loopback(source) == is_loopback(ip):
                return source
        return ""

    def admit(self, sock: socket.socket, ip: str, exposed: bool) -> None:
        """Take in a connection from ``ip``. ``exposed``: the node was not told on which addresses
        to listen, so it listens on all of them."""
        if exposed and self.tls is None and self._config.protected_mode and not is_local(ip):
            self._tell_once(
                "a node of another machine was refused (protected-mode). To let it in, name the "
                "addresses to listen on with bind, or use tls-cluster",
                ip,
            )
            sock.close()
            return
        if len(self._young) >= MOST_YOUNG:
            # Whoever is slow makes room: a node needs a moment only.
            self._break(next(iter(self._young)), "too many connections of strangers")
        link = BusLink(self, outgoing=False)
        link.take(sock)
        self._links[link.fd] = link
        self._young[link] = self._clock.now() + PATIENCE
        self._epoll.register(link.fd, _READ)
        try:
            self._prepare(link)
        except OSError as failure:
            self._break(link, str(failure))

    def _prepare(self, link: BusLink) -> None:
        """The TCP connection is there. Raises OSError: it is gone again."""
        sock = link.sock
        link.local_ip = plain_ip(sock.getsockname()[0])
        link.remote_ip = plain_ip(sock.getpeername()[0])
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(sock, KEEPALIVE)
        link.connected = True
        if self.tls is None:
            link.up = True
        else:
            link.secure(self.tls)

    def _connected(self, link: BusLink, now: int) -> None:
        """The attempt to connect has come to an end."""
        problem = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            self._break(link, os.strerror(problem))
            return
        try:
            if link.sock.getsockname() == link.sock.getpeername():
                # Nobody listened, and the kernel chose the same port for this end.
                raise ConnectionRefusedError(errno.ECONNREFUSED, "connected to itself")
            self._prepare(link)
        except OSError as failure:
            self._break(link, str(failure))
            return
        if link.up:
            self._watch(link)
            self.membership.opened(link, now)
        else:
            self._young[link] = now + PATIENCE
            self._shake_hands(link, now)

    def _shake_hands(self, link: BusLink, now: int) -> None:
        try:
            wants = link.shake_hands()
        except OSError as failure:
            self._tell_once(f"no TLS on the cluster bus: {failure}", link.remote_ip)
            self._break(link, str(failure))
            return
        if not link.up:
            self._epoll.modify(link.fd, wants)
            return
        self._watch(link)
        if link.outgoing:
            del self._young[link]
            self.membership.opened(link, now)

    # ---- turns -------------------------------------------------------------------------------

    def tell_broken(self, now: int) -> None:
        """Tell the membership which links are lost."""
        broken = self.broken
        self.broken = []
        for link in broken:
            if not link.given_up:
                self.membership.lost(link, now)

    def handle(self, fd: int, mask: int, now: int) -> None:
        """Something happened to the socket ``fd``."""
        link = self._links.get(fd)
        if link is None:
            return
        if self._deaf:
            if link.unsent and mask & _WRITE:
                self._write_rest(link)
            elif mask & _GONE or not link.up:
                self.drop(link)
        elif not link.connected:
            if mask & (_WRITE | _GONE):
                self._connected(link, now)
        elif not link.up:
            self._shake_hands(link, now)
        else:
            if mask & (_READ | _GONE):
                self._read(link, now)
            if mask & _WRITE and not link.closed:
                self._write_rest(link)

    def _read(self, link: BusLink, now: int) -> None:
        try:
            data = link.receive()
        except OSError as failure:
            self._break(link, str(failure))
            return
        if data is None:
            return
        if not data:
            self._break(link, "the other side closed it")
            return
        self._stats.cluster_input_bytes += len(data)
        try:
            packets = link.parser.feed(data)
            if packets and not link.heard:
                link.heard = True
                if not link.outgoing:
                    self.membership.accepted(link, now)
            receive = self.membership.receive
            for packet in packets:
                if link.closed:
                    break
                receive(link, packet, now)
            if link in self._young:
                if packets and self.membership.knows(packet_sender(packets[-1])):
                    del self._young[link]
                elif link.parser.pending > MAX_CONTROL_PACKET:
                    raise PacketError("a large packet of a stranger")
        except PacketError as problem:
            self._tell_once(f"not a node of the cluster: {problem}", link.remote_ip)
            self._break(link, str(problem))
        except Exception:
            # Nothing that another node says may stop this one.
            self._log.warning("packet failed", node=link.remote_ip, exc_info=True)
            self._break(link, "a packet failed")

    def revoke(self) -> None:
        """What was done this turn is not on disk: what it tells others of jobs must not be told.
        It is as if the packets were lost. Those of the membership promise nothing."""
        for link in self.dirty:
            link.queue = [packet for packet in link.queue if packet_type(packet) <= FAIL]

    def flush(self) -> None:
        """Send what this turn has for others."""
        stats = self._stats
        dirty = self.dirty
        self.dirty = []
        for link in dirty:
            queue = link.queue
            if not queue or link.closed:
                continue
            data = queue[0] if len(queue) == 1 else b"".join(queue)
            queue.clear()
            if link.unsent:
                self._keep(link, data)
                continue
            stats.cluster_sends += 1
            sent = link.write(data)
            if sent == BROKEN:
                self._break(link, "it cannot be written to")
                continue
            stats.cluster_output_bytes += sent
            if sent < len(data):
                link.unsent += memoryview(data)[sent:]
                link.largest = len(data)
                self.behind[link] = None
                self._watch(link)

    def _keep(self, link: BusLink, data: bytes) -> None:
        """Send ``data`` when what waits already is sent. A packet larger than the limit must get
        through, so the largest that waits does not count."""
        link.unsent += data
        link.largest = max(link.largest, len(data))
        limit = self._config.cluster_link_sendbuf_limit
        if limit and len(link.unsent) - link.largest > limit:
            self._stats.cluster_overruns += 1
            self._log.warning(
                "a node does not take what is sent to it, connection dropped",
                node=link.remote_ip,
                unsent=len(link.unsent),
            )
            self._break(link, "too much waits for it")

    def _write_rest(self, link: BusLink) -> None:
        unsent = link.unsent
        if unsent:
            self._stats.cluster_sends += 1
            with memoryview(unsent) as rest:
                sent = link.write(rest)
            if sent == BROKEN:
                self._break(link, "it cannot be written to")
                return
            self._stats.cluster_output_bytes += sent
            del unsent[:sent]
        if not unsent:
            self.behind.pop(link, None)
            self._watch(link)

    def _watch(self, link: BusLink) -> None:
        mask = 0 if self._deaf else _READ
        if link.unsent:
            mask |= _WRITE
        self._epoll.modify(link.fd, mask)

    # ---- the end of links -----------------------------------------------------------------------

    def _break(self, link: BusLink, reason: str) -> None:
        """``link`` is of no use any more; the membership hears of it in the next turn, if it knows
        it at all."""
        if link.closed:
            return
        self._log.debug("bus link lost", node=link.remote_ip, reason=reason)
        known = link.outgoing or link.heard
        self.drop(link)
        if known:
            self.broken.append(link)
            self._ask_turn()

    def drop(self, link: BusLink) -> None:
        """Close ``link``, which may be closed."""
        if link.closed:
            return
        link.closed = True
        link.up = False
        link.queue.clear()
        link.unsent.clear()
        self.behind.pop(link, None)
        self._young.pop(link, None)
        if link.fd >= 0:
            del self._links[link.fd]
            if link.sock.fileno() == link.fd:  # else a TLS that failed to begin has closed it
                self._epoll.unregister(link.fd)
            link.sock.close()

    def cron(self, now: int) -> None:
        """Drop strangers that had all their time; to be called a few times a second."""
        if self._young:
            for link, deadline in list(self._young.items()):
                if now > deadline:
                    self._break(link, "a stranger")

    def stop_reading(self) -> None:
        """The jobs are written: nothing may change them any more. What waits is still sent."""
        if not self._deaf:
            self._deaf = True
            for link in self._links.values():
                self._epoll.modify(link.fd, _WRITE if link.unsent else 0)

    def close_all(self) -> None:
        """Close all links, silently."""
        for link in list(self._links.values()):
            self.drop(link)

    def _tell_once(self, text: str, ip: str) -> None:
        """Whatever it is comes again each second: say it once."""
        if text not in self._told and len(self._told) < 100:
            self._told.add(text)
            self._log.warning(text, address=ip)
