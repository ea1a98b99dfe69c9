"""Reads the requests of clients, runs them, and keeps those that have to wait.

Owns who may be served now. When replies leave is the ``engine``'s, how they leave is that of
``clients``.

Fairness: a client is served at most ``max-commands-per-turn`` requests a turn; the rest waits
in its backlog, and while there is a backlog nothing more is read from it.
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

BACKLOG_LIMIT: Final = 1024 * 1024  # bytes read ahead of a client that is blocked or paused
# A client that asks for much has its turn shortened, so that what is not sent yet is looked at
# (and the client dropped, if it is too much) before more is made.
LONG_REPLY: Final = 64 * 1024  # bytes
MANY_REPLIES: Final = 1024
SOME_REPLIES: Final = 32  # so many are looked at, since they may be long together
MOST_IN_FLIGHT: Final = (
    1024  # jobs of one client that wait for their copies; the next are not begun
)


class Serving:
    """Reads and runs the requests of ``clients``.

    Args:
        node: the state machine that runs them.
        hold: what waits while records are on their way into the file.
        config: limits, read when they matter.

    Attributes:
        behind: the clients with a backlog that can be served.
        paused_until: ms; CLIENT PAUSE.
        halted: no command is served any more.
        made: bytes of long replies in this turn.
        cut_short: for these not all were served in the turn before.
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
        """The client closed the connection while it is not read from."""
        if self._has_to_come(connection) and mask & GONE == EPOLLRDHUP:
            self._end_of_input(connection)
        else:
            self._clients.close(connection)

    def _has_to_come(self, connection: Connection) -> bool:
        """Whether replies, or requests, of ``connection`` wait for something that ends soon."""
        if connection.client.in_flight:
            return True
        return self._hold.on and (len(connection.backlog) > 0 or connection in self._hold.waiting)

    def _end_of_input(self, connection: Connection) -> None:
        """The client closed the connection, or only its half of it: then it still reads what it
        asked for. A client that waits for a job will not take it any more."""
        client = connection.client
        if self._has_to_come(connection):
            # The end is seen again when there is nothing to wait for.
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
        """Serve the first of ``requests``; returns how many may be served this turn."""
        node = self._node
        client = connection.client
        out = client.out
        now = self._clients.now
        self._clients.serving = connection
        if self._hold.on:
            requests = requests[: self._hold.may_serve_of(connection, requests)]
        # An attribute of what is not compiled costs more than it looks.
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
                # Where replies are to come, nobody knows any more which is for what.
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
        """All requests of a client are served: what had to wait for that?"""
        client = connection.client
        parser = connection.parser
        if client.waits_for or self.paused_until or client.close:
            return
        if connection.reading_paused and not (connection.ended and client.in_flight):
            connection.reading_paused = connection.ended = False
            self._clients.watch(connection)
        if client.in_flight:
            return  # what follows comes behind their replies
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
        """Whether what ``connection`` sent has to wait for something to happen: for a job, for
        the copies of jobs, for the end of a pause, for a large write."""
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
        """Nothing holds all clients back any more: who has something to be served?"""
        for connection in self._clients.connections.values():
            if connection.has_more and not self.held(connection):
                self.behind[connection] = None


def _ends_pause(requests: list[list[bytes]]) -> bool:
    """Whether the first request is CLIENT UNPAUSE, the one command that no pause holds back."""
    return len(requests) > 0 and [word.lower() for word in requests[0][:2]] == [
        b"client",
        b"unpause",
    ]
