"""The clients of a server: their connections, and the replies that these have not taken yet.

Owns who is connected, and who is dropped: a client that does not read its replies, that has been
silent for too long, or that is told to go. What they ask for is served by ``engine``, which is
built on this.
"""

import select
import socket
from typing import TYPE_CHECKING, Final

from disque_trio.core.client import Client
from disque_trio.core.machine import Machine
from disque_trio.protocol.request import RequestParser
from disque_trio.server.clock import Clock
from disque_trio.server.connection import Connection
from disque_trio.server.stats import Stats

if TYPE_CHECKING:
    from disque_trio.server.links import Limits
    from disque_trio.server.logs import Log

CLIENTS_LOOK: Final = 500  # ms between looks at clients that may have to be dropped
HALF_CLOSED: Final = 30_000  # ms that a client waits for its replies that sends nothing any more
MONITOR_LIMIT: Final = 256 * 1024 * 1024  # unsent bytes of a MONITOR when there is no other limit

READ: Final[int] = select.EPOLLIN
WRITE: Final[int] = select.EPOLLOUT
GONE: Final[int] = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP


class Clients:
    """Those who are connected.

    Attributes:
        node: the state machine. connections: by file descriptor. by_id: by client id.
        now: time of the current turn, ms since the epoch.
    """

    def __init__(
        self, node: Machine, config: "Limits", clock: Clock, stats: Stats, log: "Log"
    ) -> None:
        self.node = node
        self.config = config
        self.clock = clock
        self.stats = stats
        self.log = log
        self.connections: dict[int, Connection] = {}
        self.by_id: dict[int, Connection] = {}
        self.now = clock.now()
        self._epoll = select.epoll()
        self._next_id = 1
        self._behind: dict[Connection, None] = {}  # those with a backlog that can be served
        self._dirty: list[Connection] = []  # those with replies to send
        self._serving: Connection | None = None
        self._close_after: list[Connection] = []
        self._clients_looked_at = 0

    # ---- connections ------------------------------------------------------------------------

    def add(self, sock: socket.socket, address: str, unix: bool) -> None:
        """Serve the client at the other end of ``sock`` from now on."""
        config = self.config
        client = Client(self._next_id, not config.requirepass)
        self._next_id += 1
        parser = RequestParser(
            config.proto_max_bulk_len,
            config.proto_inline_max_size,
            config.client_query_buffer_limit,
            client.authenticated,
        )
        connection = Connection(sock, client, parser, address, unix, self.clock.now())
        self.connections[connection.fd] = connection
        self.by_id[client.id] = connection
        self._epoll.register(connection.fd, READ)

    def close(self, connection: Connection) -> None:
        """Disconnect a client at once."""
        if connection.closed:
            return
        connection.closed = True
        self._behind.pop(connection, None)
        del self.connections[connection.fd]
        del self.by_id[connection.client.id]
        self.node.forget_client(connection.client)
        connection.client.close = True
        self._epoll.unregister(connection.fd)
        connection.sock.close()

    def close_soon(self, connection: Connection) -> None:
        """Disconnect a client; if it is being served, when it has its reply."""
        if connection is self._serving:
            connection.client.close = True
        else:
            self._close_after.append(connection)

    def _watch(self, connection: Connection) -> None:
        mask = GONE if connection.muted else READ
        if connection.client.close or connection.ended:
            mask = 0
        if connection.writing:
            mask |= WRITE
        self._epoll.modify(connection.fd, mask)

    # ---- sending ----------------------------------------------------------------------------

    def _flush(self, connection: Connection) -> None:
        client = connection.client
        out = client.out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self.stats.output_bytes += len(data)
        connection.active = self.now
        if not connection.send(data):
            self.close(connection)
        elif connection.unsent:
            self._check_unsent(connection)
        elif client.close:
            self.close(connection)

    def write_rest(self, connection: Connection) -> None:
        connection.active = self.now
        if not connection.send_rest():
            self.close(connection)
        elif connection.unsent:
            self._check_unsent(connection)
        else:
            connection.over_soft_since = 0
            connection.writing = False
            self._watch(connection)
            if connection.client.close and not connection.client.out:
                self.close(connection)

    def _check_unsent(self, connection: Connection) -> None:
        """Wait until the socket takes more, unless too much is unsent for too long."""
        limit = self.config.client_output_buffer_limit
        hard = limit.hard
        if connection.client.monitor and not hard:
            hard = MONITOR_LIMIT
        unsent = len(connection.unsent)
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
            self._watch(connection)

    def _look_at_clients(self, now: int) -> None:
        """Drop those that have been silent, or have not read their replies, for too long."""
        timeout = self.config.timeout * 1000
        for connection in list(self.connections.values()):
            if connection.ended and now - connection.active > HALF_CLOSED:
                self.close(connection)
            elif connection.over_soft_since:
                self._check_unsent(connection)
            elif timeout and now - connection.active > timeout:
                client = connection.client
                if not client.blocked and not client.monitor and not connection.backlog:
                    self.close(connection)
