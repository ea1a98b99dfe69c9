"""Reads the requests of clients, runs them, and keeps those that have to wait.

Decides who may be served now; ``engine`` decides when replies are sent, ``clients`` how.

Fairness: at most ``max-commands-per-turn`` requests of a client are served per turn; the rest waits
in its backlog, and while it has a backlog nothing more is read from it.

A user with a rate (``%rate``) is not refused what exceeds it: its clients are served, and read
from, so much more slowly. A command that was refused could be an acknowledgement, and a program
that repeats it at once would cost as much as one that is served.
"""

from itertools import islice
from select import EPOLLRDHUP
from typing import Final

from disque_trio.process.logs import Log
from disque_trio.resp.reply import error
from disque_trio.resp.request import NO_TLS, request_size
from disque_trio.respserver.acl.user import User
from disque_trio.respserver.client import LONG_REPLY, Client
from disque_trio.respserver.command import INTERNAL_ERROR
from disque_trio.respserver.io.clients import Clients
from disque_trio.respserver.io.connection import Connection
from disque_trio.respserver.io.hold import Hold
from disque_trio.respserver.io.links import Limits
from disque_trio.respserver.io.poller import GONE
from disque_trio.respserver.io.stats import Stats
from disque_trio.respserver.machine import Machine, serve
from disque_trio.respserver.over_budget import name_of
from disque_trio.respserver.pace import STEP, affordable, cost

BACKLOG_LIMIT: Final = 1024 * 1024  # bytes to read ahead of a client that is blocked or paused
# The turn of a client that asks for much is shortened, so that unsent data is checked (and the
# client dropped, if it is too much) before more is made.
MANY_REPLIES: Final = 1024
LONG_SHARE: Final = 10_000_000  # ns; a sync of the file follows, so it is not shorter
LONG_READ: Final = 16 * 1024  # bytes of requests, maybe of a thousand ids
READ_COSTS: Final = 8  # to read a byte of these is as much work as to send so many
WORD_COSTS: Final = 8192  # and to serve one of their words
COSTLY: Final = 16  # times that a client must be served quickly to count as cheap again
LONG_COSTS: Final = 16  # and so is a ns of a command that takes long
# Bytes of long replies after which a turn serves nobody else: they are sent, and clients that hold
# too much are dropped, before more are made. All other long work counts as well; in time, it is 2
# ms.
REPLIES_A_TURN: Final = 32 * 1024 * 1024
SOME_REPLIES: Final = 32  # with more, their sizes are added up
SLOWED_A_TURN: Final = 100  # clients of a user of whose rate nothing is left
GOING_A_TURN: Final = 1_000  # clients of a user that had to wait
NO_RATE: Final = 1 << 30  # commands that a user without a rate may send at once
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
        made: bytes of long replies in this turn, and of what was read at length, in its measure.
        turn: the number of the current turn.
        cut_short: because of these, not all clients were served in the previous turn.
    """

    def __init__(
        self, node: Machine, clients: Clients, hold: Hold, config: Limits, stats: Stats, log: Log
    ) -> None:
        self.behind = clients.behind
        self._lines = clients.behind_lines
        self.paused_until = 0
        self.halted = False
        self.made = 0
        self.turn = 0
        self._looked_at = 0  # ms; when those who have to wait were last looked at
        self.cut_short = False
        self._node = node
        self._clients = clients
        self._close_queue = clients.close_queue
        self._dirty = clients.dirty
        self._slowed = clients.slowed_lines
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
        if received > LONG_READ:
            words = sum([len(request) for request in requests])
            self.made += received * READ_COSTS + words * WORD_COSTS
        parser = connection.parser
        if parser.resized:
            self._close_queue.count(connection)
        client = connection.client
        if self.paused_until and client.authenticated and _ends_pause(requests):
            self.resume()
        if client.waits_for or connection.backlog_size or self.paused_until:
            self.keep(connection, requests)
            return
        served = self._serve(connection, requests)
        if served < len(requests):
            self.keep(connection, requests[served:])
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
        client = connection.client
        if client.in_flight or (connection.backlog and not client.waits_for):
            return True
        return self._hold.on and connection in self._hold.waiting

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

    def _serve(self, connection: Connection, requests: list[list[bytes]]) -> int:  # noqa: C901
        """Serve the first of ``requests``; return how many may be served this turn."""
        node = self._node
        client = connection.client
        out = client.out
        now = self._clients.now
        began = first = 0
        self._clients.serving = connection
        if self._hold.on:
            requests = requests[: self._hold.may_serve_of(connection, requests)]
        paced = client.user if client.paced else None
        if paced is not None:
            requests = requests[: affordable(requests, self._left_now(paced))]
            began = node.clock()
        # Reading an attribute of an uncompiled object is expensive.
        limit = 1 if len(requests) == 1 else self._config.max_commands_per_turn
        batches = node.batches
        served = 0
        for request in requests:
            if (
                client.waits_for
                or client.close
                or self.paused_until
                or self.halted
                or (client.in_flight and not self._may_overlap(client, request))
                or (batches.full and len(request) > batches.size)
            ):
                break
            try:
                serve(node, client, request, now, node.ended if served else 0)
            except Exception:
                # Nothing that a client sends may stop the node or another client.
                self._log.warning("command failed", command=repr(request)[:200], exc_info=True)
                out.append(INTERNAL_ERROR)
                # If replies are pending, nobody knows any more which one belongs to which request.
                client.close = client.close or client.in_flight > 0
            served += 1
            if served == limit:
                break  # nearly always the only one
            if client.paced and (paced is None or node.ended - began > STEP):
                break  # it has just logged in, or took long
            if served == 1:
                first = node.ended
            if (
                node.long
                or client.long
                or node.ended - first > LONG_SHARE
                or (out and (len(out[-1]) > LONG_REPLY or len(out) > MANY_REPLIES))
            ):
                break
        self._clients.serving = None
        if paced is not None:
            # The end of the last command is not from this turn if none was run.
            longer = max(node.ended - began, 0) // STEP
            paced.use.pace.spend(sum([cost(request) for request in requests[:served]]) + longer)
        connection.parser.trusted = client.authenticated
        if node.long:
            self.made += node.long * LONG_COSTS
            node.long = 0
            connection.costly = COSTLY
        elif connection.costly:
            connection.costly -= 1
        if client.resized:
            client.resized = False
            self._close_queue.count(connection)
        if out or client.close:
            self._dirty.append(connection)
            if served > SOME_REPLIES or client.long:
                self.made += sum(map(len, out))
            elif out and len(out[-1]) > LONG_REPLY:
                self.made += len(out[-1])
        return served

    def keep(self, connection: Connection, requests: list[list[bytes]]) -> None:
        """Append ``requests`` to the backlog; stop reading when it is long."""
        client = connection.client
        if client.close:
            return
        connection.backlog.extend(requests)
        for request in requests:
            connection.backlog_size += request_size(request)
        self._close_queue.count(connection)
        self.line_up(connection)
        if connection in self.behind:
            return
        if connection.backlog_size > BACKLOG_LIMIT and not connection.reading_paused:
            connection.reading_paused = True
            self._clients.watch(connection)

    def serve_backlog(self, connection: Connection) -> None:
        """Serve the requests in the backlog of ``connection``."""
        client = connection.client
        self._lines.drop(connection)
        if client.close:
            return
        if self.held(connection):
            self.line_up(connection)
            return
        backlog = connection.backlog
        share = list(islice(backlog, self._config.max_commands_per_turn))
        for _ in range(self._serve(connection, share)):
            connection.backlog_size -= request_size(backlog.popleft())
        self._close_queue.count(connection)
        if connection.ended and client.waits_for:
            self._clients.close(connection)
        elif not backlog:
            self._after_backlog(connection)
        else:
            self.line_up(connection)

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
            self.keep(connection, parser.go_on())
        if parser.error is not None and not connection.backlog:
            client.out.append(error("ERR " + parser.error))
            client.close = True
            self._dirty.append(connection)
            if parser.error.endswith(NO_TLS):
                self._clients.handshakes.astray(connection.address, self._clients.now)

    def line_up(self, connection: Connection) -> None:
        """Serve the backlog of ``connection`` soon, if nothing holds it back."""
        client = connection.client
        if connection in self._slowed.members:
            return  # it keeps its place
        if not self.held(connection):
            self._lines.put(connection)
        elif client.paced and not self._left(client.user):
            self._slow_down(connection)

    # ---- who has to wait --------------------------------------------------------------------

    def held(self, connection: Connection) -> bool:
        """Whether the requests of ``connection`` have to wait for something to happen: for a job,
        for the copies of jobs, for the end of a pause, for a large write."""
        client = connection.client
        batches = self._node.batches
        if client.waits_for or self.paused_until:
            return True
        if client.paced and not self._left(client.user):
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
            if connection.has_more:
                self.line_up(connection)

    # ---- users with a rate ------------------------------------------------------------------

    def _left(self, user: User) -> int:
        """Return how many commands the clients of ``user`` may send now."""
        budget = user.budget
        if budget is None or not budget.rate:
            return NO_RATE
        return int(user.use.pace.left(budget.rate, self._clients.now))

    def _left_now(self, user: User) -> int:
        """The same for this turn."""
        budget = user.budget
        if budget is None or not budget.rate:
            return NO_RATE
        left = user.use.pace.left(budget.rate, self._clients.now)
        return int(min(left, user.use.pace.left_in_turn(budget.rate, self.turn)))

    def serve_behind(self, most: int) -> bool:
        """Serve clients with a backlog until ``made`` exceeds ``most``; return whether it did.
        Those whose user has had its share of this turn keep their places."""
        lines = self._lines
        for user in list(lines.by_user):
            line = lines.by_user.get(user)
            if line is None:
                continue
            number = len(line)
            if user is not None:
                # If nothing is left, they are slowed down.
                number = self._left_now(user) if self._left(user) else SLOWED_A_TURN
            for connection in list(islice(line, max(number, 0))):
                if self.made > most:
                    lines.pass_on(user)
                    return True
                if user is not None and self._left(user) > 0 >= self._left_now(user):
                    break
                if connection in self.behind:
                    self.serve_backlog(connection)
            lines.pass_on(user)
        return False

    def _slow_down(self, connection: Connection) -> None:
        """Go on with the backlog of ``connection`` when the rate of its user lets it."""
        user = connection.client.user
        if user.budget is None:
            return
        self._slowed.put(connection)
        user.use.waited += 1
        if user.use.tells("rate", self._clients.now):
            self._log.warning(
                "clients have to wait: their user sends more than its %rate allows",
                user=name_of(user),
                commands_a_second=user.budget.rate,
            )
        if not connection.reading_paused:
            connection.reading_paused = True
            self._clients.watch(connection)

    def let_slowed_go_on(self) -> None:
        """Serve those who had to wait, as far as the rates of their users let them. Those for whom
        nothing would be left keep their places."""
        if self._looked_at == self._clients.now or self.paused_until or self._hold.on:
            return
        self._looked_at = self._clients.now
        slowed = self._slowed
        for user, line in list(slowed.by_user.items()):
            if user is None:
                continue
            for connection in list(islice(line, min(self._left(user), GOING_A_TURN))):
                slowed.drop(connection)
                self.line_up(connection)  # what else it waits for lines it up again


def _ends_pause(requests: list[list[bytes]]) -> bool:
    """Whether the first request is CLIENT UNPAUSE, the one command that no pause holds back."""
    return len(requests) > 0 and [word.lower() for word in requests[0][:2]] == [
        b"client",
        b"unpause",
    ]
