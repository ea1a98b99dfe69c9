"""The engine: turns over all clients.

One task owns the node and serves every client from one epoll descriptor; a task for each client
costs three times as much (see docs/design.md). A turn reads each ready socket once, runs what
came, and sends each node of the cluster all its packets at once, and each client all its replies.
Trio supervises the task and runs everything around it; while nothing happens the task waits for
the epoll descriptor like any other (see ``loop``).

Fairness: a client is served at most ``max-commands-per-turn`` requests a turn; the rest waits
in its backlog, and while there is a backlog nothing more is read from it.
"""

import os
from collections.abc import Callable, Sequence
from itertools import islice
from select import EPOLLRDHUP
from typing import TYPE_CHECKING, Final

from disque_trio.core.client import Client
from disque_trio.core.machine import Machine, misconf
from disque_trio.protocol.reply import error
from disque_trio.server.clients import CLIENTS_LOOK, GONE, READ, WRITE, Clients
from disque_trio.server.clock import Clock
from disque_trio.server.connection import READ_SIZE, Connection
from disque_trio.server.process import allow_clients
from disque_trio.server.stats import Stats

if TYPE_CHECKING:
    from disque_trio.server.links import Limits, Links
    from disque_trio.server.logs import Log

OTHERS_WAIT: Final = 4  # ms of turns in a row before other tasks (timers, new clients) get theirs
EVENTS_A_TURN: Final = 512
EVENTS_A_BATCH: Final = 256  # of the event log; fewer wait for its own clock
LINGER: Final = 0.001  # s; a busy client's next request usually comes sooner than a wait costs
BACKLOG_LIMIT: Final = 1024 * 1024  # bytes read ahead of a client that is blocked or paused
# A client that asks for much has its turn shortened, so that what is not sent yet is looked at
# (and the client dropped, if it is too much) before more is made.
LONG_REPLY: Final = 64 * 1024  # bytes
MANY_REPLIES: Final = 1024
MOST_ADDING: Final = 1024  # jobs of one client that wait for their copies; the next are not begun

_INTERNAL_ERROR: Final = b"-ERR internal error, see the log of the node\r\n"


class Engine(Clients):
    """Serves clients.

    Args:
        node: the state machine; nothing else may call it while the engine runs, except from
            other tasks between turns, followed by ``after_node()``.
        bus: the links to other nodes.
        config: limits, read when they matter, so that CONFIG SET holds at once.
    """

    def __init__(
        self,
        node: Machine,
        bus: "Links",
        config: "Limits",
        clock: Clock,
        stats: Stats,
        log: "Log",
    ) -> None:
        super().__init__(node, config, clock, stats, log)
        self.bus = bus
        self.paused_until = 0  # ms; CLIENT PAUSE
        self.turns = 0  # taken so far: the sign of life for a watchdog
        self.on_wake_changed: Callable[[int], None] = lambda due: None
        self.on_cluster_changed: Callable[[], None] = lambda: None
        self.on_events: Callable[[], None] = lambda: None  # the node has many events
        self.persist: Callable[[], bool] = lambda: True  # what must be on disk before replies go
        # Both keep all other tasks waiting: for less where those have to do with clients.
        self.linger = LINGER
        self.others_wait = OTHERS_WAIT
        self.halted = False  # no command is served any more
        self._nudge = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._nudge, READ)
        bus.join(self._epoll, self.ask_turn)
        self._waiting = False  # the engine waits; a backlog would not be looked at

    def apply(self, names: Sequence[str]) -> None:
        """Make the settings ``names``, which have changed, take effect where they are not read
        when they matter."""
        config = self.config
        node = self.node
        node.memory.set_limit(config.maxmemory)
        node.slowlog.max_len = config.slowlog_max_len
        node.slowlog.trim()
        node.watch_durations(config.slowlog_log_slower_than, config.latency_monitor_threshold)
        for connection in self.connections.values():
            if "requirepass" in names and not config.requirepass:
                connection.client.authenticated = True
            parser = connection.parser
            parser.trusted = connection.client.authenticated
            parser.max_bulk = config.proto_max_bulk_len
            parser.max_inline = config.proto_inline_max_size
            parser.max_query = config.client_query_buffer_limit
        if "maxclients" in names:
            config.maxclients = allow_clients(config.maxclients, self.log)

    # ---- turns ------------------------------------------------------------------------------

    def poll(self, linger: float) -> bool:
        """Take a turn if something is ready, or gets ready within ``linger`` s; False when nothing
        does, and the engine then waits for its epoll descriptor or ``ask_turn``."""
        self._waiting = False
        events = self._epoll.poll(0 if self._behind else linger, EVENTS_A_TURN)
        if events or self._behind:
            self.turn(events)
            return True
        self._waiting = True
        return False

    def fileno(self) -> int:
        """The epoll descriptor: it is readable when there is something to serve."""
        return self._epoll.fileno()

    def turn(self, events: list[tuple[int, int]]) -> None:
        """Serve what is ready, then send all replies."""
        self.turns += 1
        now = self.now = self.clock.now()
        bus = self.bus
        if bus.broken:
            bus.tell_broken(now)
        if self._behind:
            for behind in list(self._behind):
                self._serve_backlog(behind)
        for fd, mask in events:
            connection = self.connections.get(fd)
            if connection is None:
                if fd == self._nudge:
                    os.eventfd_read(fd)
                else:
                    if self.halted:
                        bus.stop_reading()
                    bus.handle(fd, mask, now)
                continue
            if mask & READ and not connection.muted:
                self._read(connection)
            elif mask & GONE:
                self._gone(connection, mask)
            if mask & WRITE and not connection.closed:
                self.write_rest(connection)
        self.after_node()

    def ask_turn(self) -> None:
        """Take a turn soon, even if there is nothing to serve."""
        os.eventfd_write(self._nudge, 1)

    def after_node(self) -> None:
        """Carry out what the node left behind: records, packets, replies, and when it wants to be
        called. What tells others of a job comes behind its record, in this order, so that nobody
        hears of what a crash would take back."""
        node = self.node
        bus = self.bus
        if (node.journal or node.flushed) and not self.persist():
            node.revoke(misconf(node.write_problem))
            bus.revoke()
        node.settle()
        if len(node.events) >= EVENTS_A_BATCH:
            self.on_events()
        dirty = self._dirty
        if node.woken:
            woken = node.woken
            node.woken = []
            for client in woken:
                other = self.by_id.get(client.id)
                if other is not None:
                    dirty.append(other)
                    if other.has_more and not self._held(other):
                        self._behind[other] = None
        if bus.membership.config_changed:
            self.on_cluster_changed()
        if bus.dirty:
            # Before the replies: other nodes work while those are sent.
            bus.flush()
        if dirty:
            for connection in dirty:
                if connection.client.out or connection.client.close:
                    self._flush(connection)
            dirty.clear()
        if self._close_after:
            for connection in self._close_after:
                self.close(connection)
            self._close_after.clear()
        self.on_wake_changed(node.next_wake())
        if self._behind and self._waiting:
            self.ask_turn()

    def _held(self, connection: Connection) -> bool:
        """Whether what ``connection`` sent has to wait for something to happen: for a job, for
        the copies of jobs, for the end of a pause."""
        client = connection.client
        if client.waits_for or self.paused_until:
            return True
        if not client.adding:
            return False
        backlog = connection.backlog
        return not backlog or not self._may_overlap(client, backlog[0])

    def _may_overlap(self, client: Client, request: list[bytes]) -> bool:
        """Whether ``request`` may begin while jobs of ``client`` wait for their copies."""
        return client.adding < MOST_ADDING and self.node.may_overlap(request)

    def _read(self, connection: Connection) -> None:
        if connection in self._behind:
            return  # the kernel keeps it until the backlog is served
        try:
            data = connection.sock.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close(connection)
            return
        if not data:
            self._end_of_input(connection)
            return
        connection.active = self.now
        self.stats.input_bytes += len(data)
        parser = connection.parser
        requests = parser.feed(data)
        client = connection.client
        if self.paused_until and client.authenticated and _ends_pause(requests):
            self.resume()
        if client.waits_for or connection.backlog or self.paused_until:
            self._keep(connection, requests)
            return
        served = self._serve(connection, requests)
        if served < len(requests):
            self._keep(connection, requests[served:])
        elif parser.error is not None or parser.held_back:
            self._after_backlog(connection)

    def _gone(self, connection: Connection, mask: int) -> None:
        """The client closed the connection while it is not read from."""
        if connection.client.adding and mask & GONE == EPOLLRDHUP:
            self._end_of_input(connection)
        else:
            self.close(connection)

    def _end_of_input(self, connection: Connection) -> None:
        """The client closed the connection, or only its half of it: then it still reads what it
        asked for. A client that waits for a job will not take it any more."""
        client = connection.client
        if client.adding:
            # The end is seen again when there is nothing to wait for.
            connection.ended = True
            connection.muted = True
            self._watch(connection)
        elif (connection.unsent or client.out) and not client.waits_for:
            client.close = True
            self._watch(connection)
            self._dirty.append(connection)
        else:
            self.close(connection)

    def _serve(self, connection: Connection, requests: list[list[bytes]]) -> int:
        """Serve the first of ``requests``; returns how many may be served this turn."""
        node = self.node
        client = connection.client
        out = client.out
        now = self.now
        self._serving = connection
        limit = self.config.max_commands_per_turn
        served = 0
        for request in requests:
            if (
                served == limit
                or client.waits_for
                or client.close
                or self.paused_until
                or self.halted
                or (client.adding and not self._may_overlap(client, request))
            ):
                break
            try:
                node.command(client, request, now)
            except Exception:
                # Nothing that a client sends may stop the node or another client.
                self.log.warning("command failed", command=repr(request)[:200], exc_info=True)
                out.append(_INTERNAL_ERROR)
                # Where replies are to come, nobody knows any more which is for what.
                client.close = client.close or client.adding > 0
            served += 1
            if out and (len(out[-1]) > LONG_REPLY or len(out) > MANY_REPLIES):
                break
        self._serving = None
        connection.parser.trusted = client.authenticated
        if out or client.close:
            self._dirty.append(connection)
        return served

    def _keep(self, connection: Connection, requests: list[list[bytes]]) -> None:
        """Put ``requests`` behind what waits already; stop reading when that is much."""
        client = connection.client
        if client.close:
            return
        connection.backlog.extend(requests)
        for request in requests:
            connection.backlog_size += 64 + sum(map(len, request))
        if not self._held(connection):
            self._behind[connection] = None
        elif connection.backlog_size > BACKLOG_LIMIT and not connection.muted:
            connection.muted = True
            self._watch(connection)

    def _serve_backlog(self, connection: Connection) -> None:
        client = connection.client
        del self._behind[connection]
        if client.close or self._held(connection):
            return
        backlog = connection.backlog
        share = list(islice(backlog, self.config.max_commands_per_turn))
        for _ in range(self._serve(connection, share)):
            connection.backlog_size -= 64 + sum(map(len, backlog.popleft()))
        if connection.ended and client.waits_for:
            self.close(connection)
        elif not backlog:
            self._after_backlog(connection)
        elif not self._held(connection):
            self._behind[connection] = None

    def _after_backlog(self, connection: Connection) -> None:
        """All requests of a client are served: what had to wait for that?"""
        client = connection.client
        parser = connection.parser
        if client.waits_for or self.paused_until or client.close:
            return
        if connection.muted and not (connection.ended and client.adding):
            connection.muted = connection.ended = False
            self._watch(connection)
        if client.adding:
            return  # what follows comes behind their replies
        if parser.held_back:
            self._keep(connection, parser.go_on())
        if parser.error is not None and not connection.backlog:
            client.out.append(error("ERR " + parser.error))
            client.close = True
            self._dirty.append(connection)

    def resume(self) -> None:
        """CLIENT PAUSE is over: serve what was kept."""
        self.paused_until = 0
        for connection in self.connections.values():
            if connection.has_more and not self._held(connection):
                self._behind[connection] = None

    # ---- regular work -----------------------------------------------------------------------

    def cron(self) -> None:
        """What is done ``hz`` times a second: idle clients, slow readers, idle queues."""
        self.now = now = self.clock.now()
        if self.paused_until and now >= self.paused_until:
            self.resume()
        if now - self._clients_looked_at >= CLIENTS_LOOK:
            self._clients_looked_at = now
            self._look_at_clients(now)
        self.node.cron(now)
        self.node.memory.note_peak()
        self.after_node()

    def send_unsent(self) -> bool:
        """Send what sockets take of what they did not take before; whether there was any."""
        waiting = [c for c in self.connections.values() if c.unsent]
        for connection in waiting:
            self.write_rest(connection)
        return len(waiting) > 0 or bool(self.bus.behind)

    def close_all(self) -> None:
        """Disconnect everybody and stop watching."""
        self.bus.close_all()
        for connection in list(self.connections.values()):
            self.close(connection)
        self._epoll.close()
        os.close(self._nudge)


def _ends_pause(requests: list[list[bytes]]) -> bool:
    """Whether the first request is CLIENT UNPAUSE, the one command that no pause holds back."""
    return len(requests) > 0 and [word.lower() for word in requests[0][:2]] == [
        b"client",
        b"unpause",
    ]
