"""Reads the requests of clients, runs them, and keeps those that have to wait.

Decides who may be served now; ``engine`` decides when replies are sent, ``clients`` how.

Fairness: at most ``max-commands-per-turn`` requests of a client are served per turn; the rest waits
in its backlog, and while it has a backlog nothing more is read from it.
"""

from itertools import islice
from select import EPOLLRDHUP
from typing import Final

from disque_trio.process.logs import Log
from disque_trio.resp.reply import error
from disque_trio.resp.request import NO_TLS, request_size
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import INTERNAL_ERROR
from disque_trio.respserver.io.clients import Clients
from disque_trio.respserver.io.connection import Connection
from disque_trio.respserver.io.hold import Hold
from disque_trio.respserver.io.links import Limits
from disque_trio.respserver.io.poller import GONE
from disque_trio.respserver.io.stats import Stats
from disque_trio.respserver.machine import Machine

BACKLOG_LIMIT: Final = 1024 * 1024  # bytes to read ahead of a client that is blocked or paused
# The turn of a client that asks for much is shortened, so that unsent data is checked (and the
# client dropped, if it is too much) before more is made.
LONG_REPLY: Final = 64 * 1024  # bytes
MANY_REPLIES: Final = 1024
SOME_REPLIES: Final = 32  # with more, their sizes are added up
MOST_IN_FLIGHT: Final = 1024  # jobs per client that wait for copies; later ones are not begun


class Serving:
    """Reads and runs the requests of ``clients``.

    Args:
        node: the state machine that runs them.
        hold: holds back what depends on records that are being written.
        config: limits, read when they are needed.

    Attributes:
        behind: the clients with a backlog that can be served.
        paused_until: end of a CLIENT PAUSE, in ms.
        halted: no command is served any more.
        made: bytes of long replies in this turn.
        cut_short: because of these, not all clients were served in the previous turn.
    """

    def __init__(
        self, node: Machine, clients: Clients, hold: Hold, config: Limits, stats: Stats, log: Log
    ) -> None:
        self.behind = clients.behind
        self.paused_until = 0
        self.halted = False
        self.made = 0
        self.cut_short = False
        self._node = node
        self._clients = clients
        self._departures = clients.departures
        self._dirty = clients.dirty
        self._hold = hold
        self._config = config
        self._stats = stats
        self._log = log

    # ---- reading ----------------------------------------------------------------------------

    def read(self, connection: Connection) -> None:
        """Read what ``connection`` sent, and serve it."""
        if self.behind and connection in self.behind:
            return  # the kernel keeps it until the backlog is served
        requests: list[list[bytes]] = []
        try:
            received = connection.receive(requests)
        except BlockingIOError:
            return
        except OSError:
            self._clients.close(connection)
            return
        if not received:
            self._end_of_input(connection)
            return
        connection.active = self._clients.now
        self._stats.input_bytes += received
        parser = connection.parser
        if parser.resized:
            self._departures.count(connection)
        client = connection.client
        if self.paused_until and client.authenticated and _ends_pause(requests):
            self.resume()
        if client.waits_for or connection.backlog_size or self.paused_until:
            self._keep(connection, requests)
            return
        served = self._serve(connection, requests)
        if served < len(requests):
            self._keep(connection, requests[served:])
        elif parser.error is not None or parser.held_back:
            self._after_backlog(connection)

    def gone(self, connection: Connection, mask: int) -> None:
        """Handle that the client closed the connection while it is not read from."""
        if self._has_to_come(connection) and mask & GONE == EPOLLRDHUP:
            self._end_of_input(connection)
        else:
            self._clients.close(connection)

    def _has_to_come(self, connection: Connection) -> bool:
        """Whether replies to, or requests of, ``connection`` wait for something that ends soon."""
        if connection.client.in_flight:
            return True
        return self._hold.on and (len(connection.backlog) > 0 or connection in self._hold.waiting)

    def _end_of_input(self, connection: Connection) -> None:
        """Handle that the client closed the connection, or only its half: then it still reads the
        replies to its requests. A client that waits for a job will no longer take it."""
        client = connection.client
        if self._has_to_come(connection):
            # The end will be seen again when there is nothing left to wait for.
            connection.ended = True
            connection.reading_paused = True
            self._clients.watch(connection)
        elif (connection.unsent or client.out) and not client.waits_for:
            client.close = True
            connection.reading_paused = True
            self._clients.watch(connection)
            self._dirty.append(connection)
        else:
            self._clients.close(connection)

    def _serve(self, connection: Connection, requests: list[list[bytes]]) -> int:
        """Serve the first of ``requests``; return how many may be served this turn."""
        node = self._node
        client = connection.client
        out = client.out
        now = self._clients.now
        self._clients.serving = connection
        if self._hold.on:
            requests = requests[: self._hold.may_serve_of(connection, requests)]
        # Reading an attribute of an uncompiled object is expensive.
        limit = 1 if len(requests) == 1 else self._config.max_commands_per_turn
        batches = node.batches
        served = 0
        for request in requests:
            if (
                served == limit
                or client.waits_for
                or client.close
                or self.paused_until
                or self.halted
                or (client.in_flight and not self._may_overlap(client, request))
                or (batches.full and len(request) > batches.size)
            ):
                break
            try:
                node.command(client, request, now, node.ended if served else 0)
            except Exception:
                # Nothing that a client sends may stop the node or another client.
                self._log.warning("command failed", command=repr(request)[:200], exc_info=True)
                out.append(INTERNAL_ERROR)
                # If replies are pending, nobody knows any more which one belongs to which request.
                client.close = client.close or client.in_flight > 0
            served += 1
            if out and (len(out[-1]) > LONG_REPLY or len(out) > MANY_REPLIES):
                break
        self._clients.serving = None
        connection.parser.trusted = client.authenticated
        if client.resized:
            client.resized = False
            self._departures.count(connection)
        if out or client.close:
            self._dirty.append(connection)
            if served > SOME_REPLIES:
                self.made += sum(map(len, out))
            elif out and len(out[-1]) > LONG_REPLY:
                self.made += len(out[-1])
        return served

    def _keep(self, connection: Connection, requests: list[list[bytes]]) -> None:
        """Append ``requests`` to the backlog; stop reading when it is long."""
        client = connection.client
        if client.close:
            return
        connection.backlog.extend(requests)
        for request in requests:
            connection.backlog_size += request_size(request)
        self._departures.count(connection)
        if not self.held(connection):
            self.behind[connection] = None
        elif connection.backlog_size > BACKLOG_LIMIT and not connection.reading_paused:
            connection.reading_paused = True
            self._clients.watch(connection)

    def serve_backlog(self, connection: Connection) -> None:
        """Serve the requests in the backlog of ``connection``."""
        client = connection.client
        del self.behind[connection]
        if client.close or self.held(connection):
            return
        backlog = connection.backlog
        share = list(islice(backlog, self._config.max_commands_per_turn))
        for _ in range(self._serve(connection, share)):
            connection.backlog_size -= request_size(backlog.popleft())
        self._departures.count(connection)
        if connection.ended and client.waits_for:
            self._clients.close(connection)
        elif not backlog:
            self._after_backlog(connection)
        elif not self.held(connection):
            self.behind[connection] = None

    def _after_backlog(self, connection: Connection) -> None:
        """Continue with what had to wait until all requests of a client were served."""
        client = connection.client
        parser = connection.parser
        if client.waits_for or self.paused_until or client.close:
            return
        if connection.reading_paused and not (connection.ended and client.in_flight):
            connection.reading_paused = connection.ended = False
            self._clients.watch(connection)
        if client.in_flight:
            return  # what follows has to come after their replies
        if parser.held_back:
            self._keep(connection, parser.go_on())
        if parser.error is not None and not connection.backlog:
            client.out.append(error("ERR " + parser.error))
            client.close = True
            self._dirty.append(connection)
            if parser.error.endswith(NO_TLS):
                self._clients.handshakes.astray(connection.address, self._clients.now)

    # ---- who has to wait --------------------------------------------------------------------

    def held(self, connection: Connection) -> bool:
        """Whether the requests of ``connection`` have to wait for something to happen: for a job,
        for the copies of jobs, for the end of a pause, for a large write."""
        client = connection.client
        batches = self._node.batches
        if client.waits_for or self.paused_until:
            return True
        backlog = connection.backlog
        if self._hold.on and (not backlog or not self._hold.may_serve(connection, backlog[0])):
            return True
        if backlog and batches.full and len(backlog[0]) > batches.size:
            return True
        if not client.in_flight:
            return False
        return not backlog or not self._may_overlap(client, backlog[0])

    def _may_overlap(self, client: Client, request: list[bytes]) -> bool:
        """Whether ``request`` may begin while jobs of ``client`` wait for their copies."""
        if client.in_slices:
            return False
        return client.in_flight < MOST_IN_FLIGHT and self._node.may_overlap(request)

    def resume(self) -> None:
        """Serve the kept requests after a CLIENT PAUSE."""
        self.paused_until = 0
        self.look_behind()

    def look_behind(self) -> None:
        """Find the clients with something to serve, now that nothing holds all clients back."""
        for connection in self._clients.connections.values():
            if connection.has_more and not self.held(connection):
                self.behind[connection] = None


def _ends_pause(requests: list[list[bytes]]) -> bool:
    """Whether the first request is CLIENT UNPAUSE, the one command that no pause holds back."""
    return len(requests) > 0 and [word.lower() for word in requests[0][:2]] == [
        b"client",
        b"unpause",
    ]
