"""The cluster bus: receives and sends the packets of other nodes in each turn.

Packets about nodes go to the membership, those about jobs to the node. What is passed to ``send``
of a link is sent at the end of the turn, with one system call per link, once the records of the
turn are on disk. So one GOTJOB costs the same trip through the kernel as ten thousand.
"""

import errno
import os
import select
import socket
from collections.abc import Callable

from disque_trio.cluster.buslink import BROKEN, BusLink
from disque_trio.cluster.buslinks import BusLinks
from disque_trio.cluster.halfpackets import LargePackets
from disque_trio.cluster.links import LinkOwner
from disque_trio.config import Config
from disque_trio.process.clock import Clock
from disque_trio.process.logs import Log
from disque_trio.process.sockets import is_local
from disque_trio.protocol.bus import (
    FAIL,
    MAX_CONTROL_PACKET,
    PacketError,
    packet_sender,
    packet_type,
)
from disque_trio.protocol.packet_parser import PacketParser
from disque_trio.protocol.seal import SealError
from disque_trio.respserver.io.links import Links
from disque_trio.respserver.io.stats import Stats

PATIENCE = 10_000  # ms for a new connection to show that it is a member's
MOST_UNPROVEN = 64  # connections of strangers at a time

_READ = select.EPOLLIN
_WRITE = select.EPOLLOUT
_GONE = select.EPOLLHUP | select.EPOLLERR


class Bus(Links):
    """The cluster bus of one node.

    Args:
        links: the connections to other nodes.
        membership: the other nodes; receives the events of links.
        deliver: called with sender, packet and time for each packet about jobs.
        wants_copy: whether the node would hold a copy of the job with this id.
        changed: called at the end of a turn in which the contents of nodes.conf have changed.
        config: limits, read when they are needed.
    """

    def __init__(
        self,
        links: BusLinks,
        membership: LinkOwner,
        deliver: Callable[[bytes, bytes, int], None],
        wants_copy: Callable[[bytes], bool],
        changed: Callable[[], None],
        config: Config,
        clock: Clock,
        stats: Stats,
        log: Log,
    ) -> None:
        super().__init__()
        self.links = links
        self.broken = links.broken
        self.dirty = links.dirty
        self.behind = links.behind
        self.membership = membership
        self._membership = membership
        self._deliver = deliver
        self._large = LargePackets(
            links.halves, config, stats, membership.knows, wants_copy, links.tell_once
        )
        self._changed = changed
        self._config = config
        self._clock = clock
        self._stats = stats
        self._log = log
        self._hold = links.hold

    def admit(self, sock: socket.socket, ip: str, exposed: bool) -> None:
        """Accept a connection from ``ip``. ``exposed``: the node listens on all addresses because
        none was configured."""
        links = self.links
        if exposed and not links.guarded and self._config.protected_mode and not is_local(ip):
            links.tell_once(
                "a node on another machine was refused (protected-mode). To let it in, name the "
                "addresses to listen on with bind, or use tls-cluster, cluster-identity or "
                "cluster-secret",
                ip,
            )
            sock.close()
            return
        if links.strangers >= MOST_UNPROVEN:
            links.break_off(links.strangest(), "too many connections of strangers")
        now = self._clock.now()
        link = links.take_in(sock, now + PATIENCE)
        try:
            links.prepare(link, self._parser())
        except OSError as failure:
            links.break_off(link, str(failure))
            return
        if not link.up:
            self._shake_hands(link, now)

    def _parser(self) -> PacketParser:
        return PacketParser(self._large.wants)

    def _connected(self, link: BusLink, now: int) -> None:
        """Handle the end of an attempt to connect."""
        problem = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            link.refused = problem == errno.ECONNREFUSED
            self.links.break_off(link, os.strerror(problem))
            return
        try:
            if link.sock.getsockname() == link.sock.getpeername():
                # Nobody listened, and the kernel chose the same port for this end.
                raise ConnectionRefusedError(errno.ECONNREFUSED, "connected to itself")
            self.links.prepare(link, self._parser())
        except OSError as failure:
            link.refused = isinstance(failure, ConnectionRefusedError)
            self.links.break_off(link, str(failure))
            return
        if link.up:
            self.links.watch(link)
            self._opened(link, now)
        else:
            self.links.doubt(link, now + PATIENCE)
            self._shake_hands(link, now)

    def _shake_hands(self, link: BusLink, now: int) -> None:
        """Continue the handshakes of ``link``: TLS, cluster-secret, cluster-identity."""
        try:
            wants = link.shake_hands()
        except OSError as failure:
            self.links.tell_once(f"no TLS on the cluster bus: {failure}", link.remote_ip)
            self.links.break_off(link, str(failure))
            return
        except SealError as problem:
            if self.links.tries_plainly(link):
                self.links.break_off(link, str(problem))
            else:
                self._refuse(link, problem)
            return
        if not link.up:
            self.links.wait_for(link, wants)
            return
        self.links.introduced(link)
        self.links.watch(link)
        if link.outgoing:
            del self.links.unproven[link]
            self._opened(link, now)
        if link.early and not link.closed:
            self._read(link, now)

    def _opened(self, link: BusLink, now: int) -> None:
        """Handle that an outgoing ``link`` is up."""
        self.stirred = True  # nodes that reach each other again compare what they share
        self._membership.opened(link, now)

    def _refuse(self, link: BusLink, problem: SealError) -> None:
        """Close ``link``, because the other side does not have the same secret, or is none of the
        nodes that may talk to this one."""
        self._stats.cluster_links_refused += 1
        self.links.tell_refused(f"a node was refused: {problem}", link.remote_ip)
        self.links.break_off(link, str(problem))

    # ---- turns -------------------------------------------------------------------------------

    def tell_broken(self, now: int) -> None:
        """Tell the membership which links are lost."""
        broken = list(self.links.broken)
        self.links.broken.clear()
        for link in broken:
            if not link.given_up:
                self._membership.lost(link, now)

    def handle(self, fd: int, mask: int, now: int) -> None:
        """Handle an event of the socket ``fd``."""
        link = self.links.by_fd.get(fd)
        if link is None:
            return
        if not link.connected:
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
        """Read what has arrived on ``link`` and handle the complete packets."""
        links = self.links
        try:
            data = link.receive()
        except OSError as failure:
            links.break_off(link, str(failure))
            return
        except SealError as refusal:  # another name, since mypyc gives a name one type
            self._refuse(link, refusal)
            return
        if data is None:
            return
        if not data:
            links.break_off(link, "the other side closed it")
            return
        self._stats.cluster_input_bytes += len(data)
        try:
            packets = link.parser.feed(data)
            self._handle(link, packets, now)
            if (link.parser.pending or link.half) and not link.closed:
                link.half = link.parser.pending > 0
                links.halves.holdings.note(link, link.parser.pending)
                links.close_largest()
            if links.unproven and link in links.unproven:
                if packets and self._membership.knows(packet_sender(packets[-1])):
                    del links.unproven[link]
                elif link.parser.pending > MAX_CONTROL_PACKET:
                    raise PacketError("a large packet from a stranger")
        except SealError as refusal:
            self._refuse(link, refusal)
        except PacketError as problem:
            links.tell_once(f"not a node of the cluster: {problem}", link.remote_ip)
            links.break_off(link, str(problem))
        except Exception:
            self._packet_failed(link)

    def _handle(self, link: BusLink, packets: list[bytes], now: int) -> None:
        """Handle ``packets`` that have arrived on ``link``. Raises ``PacketError``."""
        if packets and not link.heard:
            link.heard = True
            if not link.outgoing:
                self._membership.accepted(link, now)
        hold = self._hold
        for packet in packets:
            if link.closed:
                break
            if hold.back and packet_type(packet) > FAIL:
                if hold.put_by(link, packet):
                    self.links.watch_all()
            else:
                self._take(link, packet, now)

    def _take(self, link: BusLink, packet: bytes, now: int) -> None:
        """Pass ``packet`` to the membership, and on to the node if it is about jobs."""
        sender = self._membership.receive(link, packet, now)
        if sender:
            self.stirred = True
            self._deliver(sender, packet, now)

    def roll_back(self) -> None:
        """Discard this turn's packets about jobs, because its records are not on disk. It is as if
        these packets were lost. Packets of the membership promise nothing, so they stay."""
        for link in self.links.dirty:
            link.queue = [packet for packet in link.queue if packet_type(packet) <= FAIL]

    def hold(self) -> None:
        """Neither send nor accept packets about jobs before ``release`` and ``take_held``: the
        turn's records are being written. Heartbeats continue."""
        self._hold.begin()

    def release(self) -> None:
        """Allow packets to be sent again."""
        self._hold.out = False

    def take_held(self, now: int) -> None:
        """Handle the packets that arrived meanwhile; from now on, handle each as it arrives."""
        was_full = self._hold.is_full()
        held = self._hold.end()
        if was_full:
            self.links.watch_all()
        failed: set[BusLink] = set()
        for link, packet in held:
            if link not in failed:
                try:
                    # Even if the link was closed since: the packet came before that.
                    self._take(link, packet, now)
                except Exception:
                    failed.add(link)
                    self._packet_failed(link)

    def _packet_failed(self, link: BusLink) -> None:
        """Log a packet that could not be handled: nothing that another node sends may stop this
        one."""
        self._log.warning("packet failed", node=link.remote_ip, exc_info=True)
        self.links.break_off(link, "a packet failed")

    def flush(self) -> None:
        """Send this turn's packets."""
        stats = self._stats
        links = self.links
        dirty = list(links.dirty)
        links.dirty.clear()
        for link in dirty:
            queue = link.queue
            if self._hold.out:
                queue = self._hold.pick(link)
                if link.queue:
                    links.dirty.append(link)
            if not queue or link.closed:
                continue
            data = queue[0] if len(queue) == 1 else b"".join(queue)
            queue.clear()
            if link.records is not None:
                data = link.records.close(data)
            if link.unsent:
                self._keep(link, data)
                continue
            stats.cluster_sends += 1
            sent = link.write(data)
            if sent == BROKEN:
                links.break_off(link, "it cannot be written to")
                continue
            stats.cluster_output_bytes += sent
            if sent < len(data):
                link.unsent += memoryview(data)[sent:]
                link.largest = len(data)
                links.behind[link] = None
                links.watch(link)

    def _keep(self, link: BusLink, data: bytes) -> None:
        """Append ``data`` to what is unsent. A packet larger than the limit must get through, so
        the largest piece does not count."""
        link.unsent += data
        link.largest = max(link.largest, len(data))
        limit = self._config.cluster_link_sendbuf_limit
        if limit and len(link.unsent) - link.largest > limit:
            self._stats.cluster_overruns += 1
            self._log.warning(
                "connection dropped: the node does not read what is sent to it",
                node=link.remote_ip,
                unsent=len(link.unsent),
            )
            self.links.break_off(link, "too much is unsent")

    def _write_rest(self, link: BusLink) -> None:
        """Send as much of what is unsent as the socket takes."""
        unsent = link.unsent
        if unsent:
            self._stats.cluster_sends += 1
            with memoryview(unsent) as rest:
                sent = link.write(rest)
            if sent == BROKEN:
                self.links.break_off(link, "it cannot be written to")
                return
            self._stats.cluster_output_bytes += sent
            del unsent[:sent]
        if not unsent:
            self.links.behind.pop(link, None)
            self.links.watch(link)

    def membership_changed(self) -> None:
        """Called when the table of nodes has changed."""
        self._changed()

    def close_all(self) -> None:
        """Close all links, silently."""
        self.links.close_all()
