"""The engine: turns over all clients.

One task owns the node and serves every client from one epoll descriptor; a task for each client
costs three times as much (see docs/design.md). A turn reads each ready socket once, runs what
came, and sends each node of the cluster all its packets at once, and each client all its replies.
Trio supervises the task and runs everything around it; while nothing happens the engine waits for
its epoll descriptor like any other task.

Fairness: a client is served at most ``max-commands-per-turn`` requests a turn; the rest waits
in its backlog, and while there is a backlog nothing more is read from it.
"""

import os
import select
import socket
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import trio

from disque_trio.core.client import Client
from disque_trio.core.machine import Machine, misconf
from disque_trio.protocol.reply import error
from disque_trio.protocol.request import RequestParser
from disque_trio.server.clock import Clock
from disque_trio.server.connection import READ_SIZE, Connection
from disque_trio.server.links import Limits, Links
from disque_trio.server.logs import Log
from disque_trio.server.process import allow_clients

if TYPE_CHECKING:
    from disque_trio.server.stats import Stats

OTHERS_WAIT = 4  # ms of turns in a row before other tasks (timers, new clients) get their chance
EVENTS_A_TURN = 512
EVENTS_A_BATCH = 256  # of the event log; fewer wait for its own clock
LINGER = 0.001  # s; a busy client's next request usually comes sooner than a wait for it costs
BACKLOG_LIMIT = 1024 * 1024  # bytes read ahead of a client that is blocked or paused
# A client that asks for much has its turn shortened, so that what is not sent yet is looked at
# (and the client dropped, if it is too much) before more is made.
LONG_REPLY = 64 * 1024  # bytes
MANY_REPLIES = 1024
CLIENTS_LOOK = 500  # ms between looks at clients that may have to be dropped
MOST_ADDING = 1024  # jobs of one client that wait for their copies; the next ones are not begun
HALF_CLOSED = 30_000  # ms that a client waits for its replies that sends nothing any more
MONITOR_LIMIT = 256 * 1024 * 1024  # unsent bytes of a MONITOR when there is no other limit

_READ = select.EPOLLIN
_WRITE = select.EPOLLOUT
_GONE = select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP
_INTERNAL_ERROR = b"-ERR internal error, see the log of the node\r\n"


class Engine:
    """Serves clients.

    Args:
        node: the state machine; nothing else may call it while the engine runs, except from
            other tasks between turns, followed by ``after_node()``.
        bus: the links to other nodes.
        config: limits, read when they matter, so that CONFIG SET holds at once.
    """

    def __init__(
        self, node: Machine, bus: Links, config: Limits, clock: Clock, stats: "Stats", log: Log
    ) -> None:
        self.node = node
        self.bus = bus
        self.config = config
        self.clock = clock
        self.stats = stats
        self.log = log
        self.connections: dict[int, Connection] = {}  # by file descriptor
        self.by_id: dict[int, Connection] = {}  # by client id
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
        self._epoll = select.epoll()
        self._nudge = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._nudge, _READ)
        bus.join(self._epoll, self.ask_turn)
        self._waiting = False  # the engine waits; a backlog would not be looked at
        self._next_id = 1
        self._behind: dict[Connection, None] = {}  # those with a backlog that can be served
        self._dirty: list[Connection] = []  # those with replies to send
        self._serving: Connection | None = None
        self._close_after: list[Connection] = []
        self._now = clock.now()
        self._clients_looked_at = 0

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

    async def run(self) -> None:
        """Serve until cancelled."""
        poll = self._epoll.poll
        yielded = 0
        linger = 0.0
        while True:
            self._waiting = False
            events = poll(0 if self._behind else linger, EVENTS_A_TURN)
            if events or self._behind:
                self.turn(events)
                linger = self.linger
                if self._now - yielded >= self.others_wait:
                    await trio.lowlevel.checkpoint()
                    yielded = self._now
            else:
                linger = 0.0
                self._waiting = True
                await trio.lowlevel.wait_readable(self._epoll.fileno())

    def turn(self, events: list[tuple[int, int]]) -> None:
        """Serve what is ready, then send all replies."""
        self.turns += 1
        now = self._now = self.clock.now()
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
            if mask & _READ and not connection.muted:
                self._read(connection)
            elif mask & _GONE:
                self._gone(connection, mask)
            if mask & _WRITE and not connection.closed:
                self._write_rest(connection)
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
        connection.active = self._now
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
        if connection.client.adding and mask & _GONE == select.EPOLLRDHUP:
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
        now = self._now
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

    # ---- sending ----------------------------------------------------------------------------

    def _flush(self, connection: Connection) -> None:
        client = connection.client
        out = client.out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self.stats.output_bytes += len(data)
        connection.active = self._now
        if not connection.send(data):
            self.close(connection)
        elif connection.unsent:
            self._check_unsent(connection)
        elif client.close:
            self.close(connection)

    def _write_rest(self, connection: Connection) -> None:
        connection.active = self._now
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
                connection.over_soft_since = self._now
            too_long = self._now - connection.over_soft_since > limit.seconds * 1000
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
        self._epoll.register(connection.fd, _READ)

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

    def close_all(self) -> None:
        """Disconnect everybody and stop watching."""
        self.bus.close_all()
        for connection in list(self.connections.values()):
            self.close(connection)
        self._epoll.close()
        os.close(self._nudge)

    def _watch(self, connection: Connection) -> None:
        mask = _GONE if connection.muted else _READ
        if connection.client.close or connection.ended:
            mask = 0
        if connection.writing:
            mask |= _WRITE
        self._epoll.modify(connection.fd, mask)

    # ---- regular work -----------------------------------------------------------------------

    def cron(self) -> None:
        """What is done ``hz`` times a second: idle clients, slow readers, idle queues."""
        self._now = now = self.clock.now()
        if self.paused_until and now >= self.paused_until:
            self.resume()
        if now - self._clients_looked_at >= CLIENTS_LOOK:
            self._clients_looked_at = now
            self._look_at_clients(now)
        self.node.cron(now)
        self.node.memory.note_peak()
        self.after_node()

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

    async def flush_all(self, seconds: float) -> None:
        """Send what is unsent, for at most ``seconds``."""
        with trio.move_on_after(seconds):
            while True:
                waiting = [c for c in self.connections.values() if c.unsent]
                if not waiting and not self.bus.behind:
                    return
                for connection in waiting:
                    self._write_rest(connection)
                await trio.sleep(0.01)


def _ends_pause(requests: list[list[bytes]]) -> bool:
    """Whether the first request is CLIENT UNPAUSE, the one command that no pause holds back."""
    return len(requests) > 0 and [word.lower() for word in requests[0][:2]] == [
        b"client",
        b"unpause",
    ]
