"""The connected clients of a server, and the replies that they have not read yet.

Knows who is connected, and drops clients: one that does not read its replies, that has been silent
for too long, that holds the most when all of them hold too much, or that was told to go.
``serving`` serves their requests, in the turns of ``engine``.
"""

import socket
from typing import Final

from disque_trio.process.clock import Clock
from disque_trio.process.logs import Log
from disque_trio.resp.request import RequestParser
from disque_trio.respserver.client import Client
from disque_trio.respserver.io.beside import Beside
from disque_trio.respserver.io.close_queue import CloseQueue
from disque_trio.respserver.io.connection import Connection
from disque_trio.respserver.io.handshakes import Handshakes
from disque_trio.respserver.io.lines import Lines
from disque_trio.respserver.io.lingering import Lingering
from disque_trio.respserver.io.links import Limits
from disque_trio.respserver.io.movable import Look, MovableConnection
from disque_trio.respserver.io.poller import GONE, READ, WRITE, Poller
from disque_trio.respserver.io.sealing import Sealing
from disque_trio.respserver.io.stats import Stats
from disque_trio.respserver.io.tls_connection import TlsConnection
from disque_trio.respserver.machine import LONGEST_REST, Machine
from disque_trio.respserver.origins import Origins

CLIENTS_LOOK: Final = 500  # ms between checks for clients to drop
HALF_CLOSED: Final = 30_000  # ms that a client that sends nothing more may wait for its replies
PUSH_LIMIT: Final = 16 * 1024 * 1024  # unsent bytes from which on nothing is pushed
MONITOR_LIMIT: Final = 256 * 1024 * 1024  # unsent bytes of a MONITOR, if there is no other limit


class Clients:
    """The set of connected clients.

    Attributes:
        node: the state machine.
        connections: by file descriptor.
        by_id: by client id.
        now: time of the current turn, in ms since the epoch.
        behind: those with a backlog that can be served.
        slowed: those with a backlog that waits because of the rate of their users.
        behind_lines, slowed_lines: the same, in the order in which they go on.
        dirty: those with replies to send.
        serving: the one whose requests are being served, or None.
        origins: how many come from which address.
        close_queue: clients to disconnect, and what each client makes the process hold.
        lingering: connections of clients that broke the protocol, until they have read why.
        handshakes: TLS connections that are not clients yet.
        beside: the last two, by file descriptor, and what else there is. standing: how many of them
            need no regular work.
        next_id: the id of the next client.
    """

    def __init__(
        self,
        node: Machine,
        config: Limits,
        clock: Clock,
        stats: Stats,
        log: Log,
        poller: Poller,
    ) -> None:
        self.node = node
        self.config = config
        self.clock = clock
        self.stats = stats
        self.log = log
        self.connections: dict[int, Connection] = {}
        self.by_id: dict[int, Connection] = {}
        self.now = clock.now()
        self.close_queue = CloseQueue(stats, log)
        self.origins = Origins()
        self._epoll = poller.epoll
        self.beside: dict[int, Beside] = {}
        self.standing = 0
        self.lingering = Lingering(self._epoll, self.beside)
        self.handshakes = Handshakes(self._epoll, self.beside, self.lingering, stats, log)
        self.next_id = 1
        self.behind_lines = Lines()
        self.slowed_lines = Lines()
        self.behind = self.behind_lines.members
        self.slowed = self.slowed_lines.members
        self.dirty: list[Connection] = []
        self.serving: Connection | None = None
        self._looked_at = 0

    # ---- connections ------------------------------------------------------------------------

    def add(
        self,
        sock: socket.socket,
        address: str,
        unix: bool,
        sealing: Sealing | None = None,
        look: Look | None = None,
        id: int = 0,
    ) -> Connection:
        """Serve the client at the other end of ``sock`` from now on.

        Args:
            sealing: for TLS; may contain requests already.
            look: it may be handed to another process; see ``MovableConnection``.
            id: that it has from another process; it keeps it if it is free.
        """
        config = self.config
        if not id or id in self.by_id:
            while self.next_id in self.by_id:
                self.next_id += 1
            id = self.next_id
            self.next_id += 1
        client = Client(id, self.node.users.default)
        parser = RequestParser(
            config.proto_max_bulk_len,
            config.proto_inline_max_size,
            config.client_query_buffer_limit,
            client.authenticated,
        )
        connection: Connection
        now = self.clock.now()
        if sealing is not None:
            connection = TlsConnection(sock, client, parser, address, now, sealing)
        elif look is not None:
            connection = MovableConnection(sock, client, parser, address, now, look)
        else:
            connection = Connection(sock, client, parser, address, unix, now)
        self.connections[connection.fd] = connection
        self.by_id[client.id] = connection
        self._epoll.register(connection.fd, READ)
        return connection

    def users_changed(self) -> None:
        """Apply to all connections what their clients, and the limits of their users, are now."""
        close_queue = self.close_queue
        for connection in self.connections.values():
            client = connection.client
            connection.parser.trusted = client.authenticated
            if client.budgeted or connection.counted_for is not None:
                close_queue.count(connection)

    def close(self, connection: Connection) -> None:
        """Disconnect a client at once."""
        if connection.closed:
            return
        connection.closed = True
        self.behind_lines.drop(connection)
        self.slowed_lines.drop(connection)
        del self.connections[connection.fd]
        del self.by_id[connection.client.id]
        self.close_queue.count(connection)
        self.node.forget_client(connection.client)
        connection.client.close = True
        self._epoll.unregister(connection.fd)
        connection.say_end()
        self.origins.leave(connection.fd)
        connection.fd = -1
        if connection.parser.error is None:
            connection.sock.close()
        else:
            self.lingering.add(connection.sock, self.now)

    def close_soon(self, connection: Connection) -> None:
        """Disconnect a client; if it is being served, after its reply."""
        if connection is self.serving:
            connection.client.close = True
        else:
            self.close_queue.tell(connection)

    def set_aside(self, connection: Connection) -> None:
        """Read nothing more from ``connection`` until it is watched again: another process is to
        have it."""
        self._epoll.modify(connection.fd, 0)

    def watch(self, connection: Connection) -> None:
        """Wait for the next events of ``connection``."""
        mask = GONE if connection.reading_paused else READ
        # A client that broke the protocol may only read once its input is read and dropped.
        broken = connection.parser.error is not None and not connection.reading_paused
        if connection.ended or (connection.client.close and not broken):
            mask = 0
        if connection.writing:
            mask |= WRITE
        self._epoll.modify(connection.fd, mask)

    # ---- sending ----------------------------------------------------------------------------

    def flush(self, connection: Connection) -> None:
        """Send the replies to ``connection``."""
        client = connection.client
        out = client.out
        connection.active = self.now
        if client.long:
            client.long = False
            self.stats.output_bytes += sum(map(len, out))
            sent = connection.send_long(out)
            out.clear()
        else:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self.stats.output_bytes += len(data)
            sent = connection.send(data)
        if not sent:
            self.close(connection)
        elif connection.unsent:
            self._check_unsent(connection)
        elif client.close:
            self.close(connection)

    def write_rest(self, connection: Connection) -> None:
        """Write the unsent rest of the replies to a client."""
        connection.active = self.now
        if not connection.send_rest():
            self.close(connection)
        elif connection.unsent:
            self._check_unsent(connection)
        else:
            self.close_queue.count(connection)
            connection.over_soft_since = 0
            connection.writing = False
            self.watch(connection)
            if connection.client.slow:
                connection.client.slow = False
                self.node.go_on_pushing(connection.client)
            if connection.client.close and not connection.client.out:
                self.close(connection)

    def _check_unsent(self, connection: Connection) -> None:
        """Wait until the socket takes more, unless too much has been unsent for too long."""
        self.close_queue.count(connection)
        limit = self.config.client_output_buffer_limit
        hard = limit.hard
        if connection.client.monitor and not hard:
            hard = MONITOR_LIMIT
        unsent = len(connection.unsent)
        if unsent > PUSH_LIMIT:
            connection.client.slow = True
        too_long = False
        if limit.soft and unsent > limit.soft:
            if not connection.over_soft_since:
                connection.over_soft_since = self.now
            too_long = self.now - connection.over_soft_since > limit.seconds * 1000
        else:
            connection.over_soft_since = 0
        if too_long or (hard and unsent > hard):
            self.log.warning(
                "client closed: it does not read its replies",
                client=connection.address,
                unsent=unsent,
            )
            self.close(connection)
        elif not connection.writing:
            connection.writing = True
            self.watch(connection)

    def write_all(self) -> bool:
        """Write as much of the unsent replies as the sockets take; return whether there were
        any."""
        waiting = [c for c in self.connections.values() if c.unsent]
        for connection in waiting:
            self.write_rest(connection)
        return len(waiting) > 0

    # ---- regular work -----------------------------------------------------------------------

    def cron(self, now: int) -> None:
        """Disconnect clients that have been silent, or have not read their replies, for too long;
        at most twice a second."""
        if now - self._looked_at < CLIENTS_LOOK:
            return
        self._looked_at = now
        self.lingering.expire(now)
        self.handshakes.expire(now)
        self.close_queue.due = True  # some client may no longer be exempt
        timeout = self.config.timeout * 1000
        for connection in list(self.connections.values()):
            if connection.ended and now - connection.active > HALF_CLOSED:
                self.close(connection)
            elif connection.over_soft_since:
                self._check_unsent(connection)
            elif timeout and now - connection.active > timeout and self._may_time_out(connection):
                self.close(connection)

    def rest(self, now: int) -> int:
        """Return how long ``cron`` may wait while nothing happens, in ms; 0: not at all."""
        if len(self.beside) > self.standing:
            return 0
        timeout = self.config.timeout * 1000
        rest = LONGEST_REST
        for connection in self.connections.values():
            if connection.ended or connection.over_soft_since:
                return 0
            if timeout and self._may_time_out(connection):
                rest = min(rest, max(connection.active + timeout - now, 0))
        return rest

    def _may_time_out(self, connection: Connection) -> bool:
        """Whether to close ``connection`` when its client is silent for too long."""
        client = connection.client
        waits = client.blocked or client.monitor or client.consumes
        return not (waits or connection.backlog)

    def close_all(self) -> None:
        """Disconnect all clients."""
        for connection in list(self.connections.values()):
            self.close(connection)
        self.lingering.close_all()
        self.handshakes.close_all()
