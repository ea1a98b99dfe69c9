"""The engine: serves all clients in event-loop turns.

One task owns the node and serves all clients from one epoll descriptor; a task per client would
cost three times as much (see docs/design.md). A turn reads each ready socket once, runs the
requests, and sends each node of the cluster all its packets at once, and each client all its
replies. Trio supervises the task and runs everything around it; while nothing happens, the task
waits for the epoll descriptor like any other (see ``tasks``).
"""

import os
from collections.abc import Callable, Sequence
from typing import Final

from disque_trio.config.words import to_bytes
from disque_trio.process.clock import Clock
from disque_trio.process.logs import Log
from disque_trio.process.process import allow_clients
from disque_trio.respserver.io.beside import Beside
from disque_trio.respserver.io.clients import Clients
from disque_trio.respserver.io.connection import Connection
from disque_trio.respserver.io.handshakes import MOST as MOST_HANDSHAKES
from disque_trio.respserver.io.hold import Hold
from disque_trio.respserver.io.links import Limits, Links, NoFile, RecordFile
from disque_trio.respserver.io.poller import GONE, READ, WRITE, Poller
from disque_trio.respserver.io.serving import LONG_READ, REPLIES_A_TURN, Serving
from disque_trio.respserver.io.stats import Stats
from disque_trio.respserver.machine import Machine
from disque_trio.respserver.rights import users_changed
from disque_trio.respserver.slices import do_slice

OTHERS_WAIT: Final = 4  # ms of consecutive turns before other tasks (timers, new clients) run
EVENTS_A_TURN: Final = 512
EVENTS_A_BATCH: Final = 256  # for the event log; fewer wait for its own clock
LINGER: Final = 0.001  # s; a busy client's next request usually comes sooner than a wait costs


class Engine:
    """Serves all clients from one epoll descriptor.

    Args:
        node: the state machine. While the engine runs, other tasks may only call it between turns,
            followed by ``after_node()``.
        bus: the links to other nodes.
        config: limits, read when they are needed, so that CONFIG SET takes effect at once.
        file: keeps what must be on disk before replies are sent; None: nothing must.
        poller: shared with ``bus``; None: the engine has its own.
        on_wake: called at the end of a turn with the time when ``node`` wants to be called, in ms;
            0: not at all.
        on_events: called when ``node`` has a batch of events.
        linger: s that a turn waits for a busy client before other tasks may run.
        others_wait: ms of consecutive turns before other tasks may run.

    Attributes:
        clients: the connected ones.
        turns: number of turns so far, for a watchdog.
        others_ready: other tasks have something to do; the code that lets them run resets it.
        stirred: a client, or something about jobs, was served; the code that reads it resets it.
        sleepers: called once, at the end of the next turn in which it was.
        hold: holds back what depends on records that are being written.
    """

    def __init__(  # noqa: PLR0913
        self,
        node: Machine,
        bus: Links,
        config: Limits,
        clock: Clock,
        stats: Stats,
        log: Log,
        file: RecordFile | None = None,
        poller: Poller | None = None,
        on_wake: Callable[[int], None] = lambda due: None,
        on_events: Callable[[], None] = lambda: None,
        linger: float = LINGER,
        others_wait: int = OTHERS_WAIT,
    ) -> None:
        self._poller = poller or Poller()
        self.node = node
        self.config = config
        self.clock = clock
        self.stats = stats
        self.log = log
        self.bus = bus
        self.file: RecordFile = file or NoFile()
        self.hold = Hold(node, bus)
        self.clients = Clients(node, config, clock, stats, log, self._poller)
        self._serving = Serving(node, self.clients, self.hold, config, stats, log)
        self.turns = 0
        # Both keep all other tasks waiting; shorten them if these tasks deal with clients.
        self.linger = linger
        self.others_wait = others_wait
        self.others_ready = False
        self._others = -1  # the descriptor that tells
        self.stirred = False
        self.sleepers: list[Callable[[], None]] = []
        self._on_wake = on_wake
        self._on_events = on_events
        self._epoll = self._poller.epoll
        self._poll = self._poller.poll
        self._wakeup = self._poller.wakeup
        self._behind = self._serving.behind
        self._dirty = self.clients.dirty
        self._waiting = False  # the engine waits; nobody would look at a backlog
        # Uncompiled, CPython 3.11 stores up to 29 attributes compactly; with more, each turn takes
        # 3,000 more instructions.

    @property
    def halted(self) -> bool:
        """Whether commands are no longer served."""
        return self._serving.halted

    @property
    def paused(self) -> bool:
        """Whether CLIENT PAUSE, or a large write, keeps commands from being served."""
        return self._serving.paused_until > 0 or self.hold.on

    def halt(self) -> None:
        """Stop serving commands, after the end of a group that is being run."""
        self.end_group()
        self._serving.halted = True

    def end_group(self) -> None:
        """Run the rest of the group that is being run, if there is one."""
        while self.node.batches.exclusive:
            self._do_slice()

    def pause(self, milliseconds: int) -> None:
        """CLIENT PAUSE: serve no client for this time; 0: end the pause."""
        if milliseconds:
            self._serving.paused_until = self.clock.now() + milliseconds
        else:
            self._serving.resume()

    def apply(self, names: Sequence[str]) -> None:
        """Make changes of the settings ``names`` take effect, except those that are read when they
        are needed."""
        config = self.config
        node = self.node
        node.memory.set_limit(config.maxmemory)
        self.clients.close_queue.bound(config.maxmemory_clients.of(config.maxmemory))
        self.stir()
        node.slowlog.max_len = config.slowlog_max_len
        node.slowlog.trim()
        node.durations.watch(config.slowlog_log_slower_than, config.latency_monitor_threshold)
        node.users.log.max_len = config.acllog_max_len
        node.users.log.trim()
        node.users.logins.limit = config.auth_failures_per_minute
        if "requirepass" in names:
            node.users.require(to_bytes(config.requirepass), node.client is not None)
            users_changed(node)
        for connection in self.clients.connections.values():
            parser = connection.parser
            parser.trusted = connection.client.authenticated
            parser.max_bulk = config.proto_max_bulk_len
            parser.max_inline = config.proto_inline_max_size
            parser.max_query = config.client_query_buffer_limit
        if "maxclients" in names:
            strangers = MOST_HANDSHAKES if config.tls_port else 0
            config.maxclients = allow_clients(config.maxclients, self.log, strangers)

    def read(self, connection: Connection) -> None:
        """Serve what a TLS connection already held when it became a client."""
        self.stirred = True
        self._serving.read(connection)

    def go_on(self, connection: Connection, requests: list[list[bytes]]) -> None:
        """Read from ``connection`` from now on; its ``requests`` were read by another process, or
        before it was set aside."""
        self.stirred = True
        self.clients.watch(connection)
        if requests:
            self._serving.keep(connection, requests)

    def attend(self, fd: int, beside: Beside, events: int = READ) -> None:
        """Pass events of ``fd`` on to ``beside``, which needs no regular work."""
        self._epoll.register(fd, events)
        self.clients.beside[fd] = beside
        self.clients.standing += 1

    def leave(self, fd: int) -> None:
        """Pass no more events of ``fd`` on."""
        self._epoll.unregister(fd)
        del self.clients.beside[fd]
        self.clients.standing -= 1

    # ---- turns ------------------------------------------------------------------------------

    def poll(self, linger: float) -> bool:
        """Take a turn if something is ready, or becomes ready within ``linger`` s. Return False if
        nothing does; the engine then waits for its epoll descriptor or ``ask_turn``."""
        self._waiting = False
        busy = self._behind or self._has_slice()
        events = self._poll(0.0 if busy else linger, EVENTS_A_TURN)
        if events or busy:
            self.turn(events)
            return True
        self._waiting = True
        return False

    def watch(self, others: int) -> None:
        """Note in ``others_ready`` when the descriptor ``others`` is readable."""
        self._others = others
        self._epoll.register(others, READ)

    def fileno(self) -> int:
        """The epoll descriptor, which is readable when there is something to serve."""
        return self._epoll.fileno()

    def turn(self, events: list[tuple[int, int]]) -> None:
        """Serve what is ready, then send all replies."""
        self.turns += 1
        clients = self.clients
        serving = self._serving
        serving.turn = self.turns
        now = clients.now = self.clock.now()
        bus = self.bus
        if bus.broken:
            bus.tell_broken(now)
        if clients.slowed:
            # As soon as possible, one by one, rather than many at once in ``cron``.
            serving.let_slowed_go_on()
        if self._behind:
            self._serve_behind()
        if serving.cut_short:
            # Otherwise the same ones would be served in each turn.
            first = self.turns % max(len(events), 1)
            events = events[first:] + events[:first]
            # Who says little does not wait for those that say much.
            events.sort(key=self._says_much)
        for fd, mask in events:
            connection = clients.connections.get(fd)
            if connection is None:
                self._handle_other(fd, mask, now)
                continue
            self.stirred = True
            if mask & READ and not connection.reading_paused:
                if serving.made <= REPLIES_A_TURN:  # otherwise it is ready again in the next turn
                    serving.read(connection)
            elif mask & GONE:
                serving.gone(connection, mask)
            if mask & WRITE and not connection.closed:
                clients.write_rest(connection)
        serving.cut_short = serving.made > REPLIES_A_TURN
        serving.made = 0
        if self._has_slice():
            self._do_slice()
        if bus.stirred:
            bus.stirred = False
            self.stirred = True
        self.after_node()

    def _handle_other(self, fd: int, mask: int, now: int) -> None:
        """Handle what has happened at a descriptor that is not a client's."""
        if fd == self._wakeup:
            os.eventfd_read(fd)
        elif fd == self._others:
            self.others_ready = True
        elif fd in self.clients.beside:
            self.clients.beside[fd].ready(mask, now)
        else:
            self.bus.handle(fd, mask, now)

    @property
    def is_behind(self) -> bool:
        """Whether requests that have come may wait for the next turn."""
        return bool(self._behind) or self._serving.cut_short

    def _says_much(self, event: tuple[int, int]) -> bool:
        """Whether ``event`` is about a client that has lately sent much at a time, or asked for
        what takes long."""
        connection = self.clients.connections.get(event[0])
        return connection is not None and (
            connection.costly > 0 or connection.read_size > LONG_READ
        )

    def _serve_behind(self) -> None:
        """Serve clients with a backlog, for half of a turn: others may have sent little."""
        serving = self._serving
        half = REPLIES_A_TURN // 2
        if serving.serve_behind(half):
            serving.made = half

    def _has_slice(self) -> bool:
        """Whether a slice of a command can be run now."""
        batches = self.node.batches
        if not batches.waiting:
            return False
        return batches.exclusive or not (self._serving.halted or self.hold.on)

    def _do_slice(self) -> None:
        """Run a slice of one of the commands that run in slices."""
        batches = self.node.batches
        alone = batches.waiting[0].alone
        if alone and not batches.exclusive:
            self.after_node()  # nobody else's replies and records wait for the group
            if self.hold.on:
                return
            self.hold.begin_group()
            self.file.begin_group()
        was_full = batches.full
        client = batches.waiting[0].client
        began = self.node.clock() if client.paced else 0
        try:
            do_slice(self.node, self.clients.now)
        except Exception:
            self.log.warning("command failed", exc_info=True)
        if client.paced:
            client.user.use.pace.spend_time(self.node.clock() - began)
        connection = self.clients.by_id.get(client.id)
        if connection is not None:
            self.clients.close_queue.count(connection)
        if alone and not batches.exclusive:
            self.hold.end_group()
            self.file.end_group()
            self.after_node()
            self._serving.look_behind()
            if not self.hold.on:
                self.bus.take_held(self.clients.now)
        if was_full and not batches.full:
            self._serving.look_behind()

    def ask_turn(self) -> None:
        """Take a turn soon, even if there is nothing to serve."""
        self._poller.ask_turn()

    def after_node(self) -> None:
        """Carry out the effects of the state machine: records, packets, replies, and the time of
        its next call. In this order: nobody may hear of a job before its record is written, or a
        crash could take it back."""
        node = self.node
        bus = self.bus
        clients = self.clients
        if (node.journal or node.flushed) and not self.hold.on:
            self._write()
        if not self.hold.on:
            node.commit()
        if node.noted() >= EVENTS_A_BATCH:
            self._on_events()
        dirty = self._dirty
        if node.woken:
            self._line_up_woken()
        if bus.membership.config_changed:
            self.stirred = True
            bus.membership_changed()
        if bus.dirty:
            # Before the replies, so that other nodes work while those are sent.
            bus.flush()
        if dirty:
            waiting = self.hold.waiting
            if waiting:
                dirty[:] = [connection for connection in dirty if connection not in waiting]
            for connection in dirty:
                if connection.client.out or connection.client.close:
                    clients.flush(connection)
            dirty.clear()
        if clients.close_queue.due:
            self._close_departed()
        if not self.hold.on:
            node.replied()
            self._on_wake(node.next_wake())
        if self._waiting and (self._behind or self._has_slice()):
            self.ask_turn()
        if self.sleepers and self.stirred:
            self.stir()

    def _write(self) -> None:
        """Write the records of this turn. If that is not possible, none of it has happened."""
        node = self.node
        lagged = node.lagging and not node.flushed
        if not self.file.turn():
            if self.file.storing:
                self.hold_replies()
            elif lagged:  # so nothing was done that needs the file
                node.refuse_added()
            else:
                node.roll_back(node.misconf)
                self.bus.roll_back()

    def _close_departed(self) -> None:
        """Close the connections that are due to go."""
        for connection in self.clients.close_queue.take(self.clients.now):
            self.clients.close(connection)

    def _line_up_woken(self) -> None:
        """Let the clients that wait no longer get their replies first, so that they start to work
        while the others get theirs."""
        woken = self.node.woken
        self.node.woken = []
        waited: list[Connection] = []
        for client in woken:
            other = self.clients.by_id.get(client.id)
            if other is not None:
                waited.append(other)
                if other.has_more:
                    self._serving.line_up(other)
        self._dirty[:0] = waited

    def stir(self) -> None:
        """Wake the tasks that rest while nothing happens."""
        self.stirred = True
        sleepers = self.sleepers
        self.sleepers = []
        for wake in sleepers:
            wake()

    def when_stirred(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` when a client, or something about jobs, has been served."""
        self.sleepers.append(wake)

    def hold_replies(self) -> None:
        """Hold back the replies of clients that wait for a record that a thread is writing, until
        ``stored`` is called."""
        connections = list(self._dirty)
        for client in self.node.woken:
            other = self.clients.by_id.get(client.id)
            if other is not None:
                connections.append(other)
        self.hold.begin(connections)

    def stored(self, good: bool) -> None:
        """Go on after a thread has written the records or, if not ``good``, has failed to."""
        now = self.clients.now = self.clock.now()
        node = self.node
        serving = self._serving
        self.stirred = True
        waited = self.hold.end(good)
        self._dirty += [connection for connection in waited if not connection.closed]
        # Everything that waited for it is sent before another large write can begin.
        self.after_node()
        serving.look_behind()
        self._serve_behind()
        serving.made = 0
        if not self.hold.on and self._has_slice():
            self._do_slice()
        # Replies need not wait for what other nodes sent, which may be large again. But packets
        # that had to wait for what clients sent meanwhile are handled together with the next such
        # write.
        hold = self.hold
        if not hold.passed_over:
            self.after_node()
        hold.passed_over = hold.on
        if not hold.on:
            self.bus.take_held(now)
            # Last, since links that are new, of which it tells the node, are newer than what has
            # just been handled: a node that said that it stops may be back.
            due = node.next_wake()
            if 0 < due <= now and not serving.halted:
                node.tick(now)
            self.after_node()
        self.ask_turn()

    # ---- regular work -----------------------------------------------------------------------

    def cron(self) -> None:
        """Run the periodic work, ``hz`` times a second: idle clients, slow readers, idle queues."""
        now = self.clients.now = self.clock.now()
        serving = self._serving
        if serving.paused_until and now >= serving.paused_until:
            serving.resume()
        self.clients.cron(now)
        if self.clients.slowed:
            serving.let_slowed_go_on()
        if not self.hold.on:
            self.node.cron(now)
        self.node.memory.note_peak()
        self.after_node()

    def rest(self) -> int:
        """Return how long the periodic work may wait without events, in ms; 0: not at all."""
        serving = self._serving
        if serving.paused_until or self._behind or self.hold.on or self.node.batches.waiting:
            return 0
        if self.clients.slowed:
            return 0
        return min(self.node.rest(), self.clients.rest(self.clock.now()))

    def send_unsent(self) -> bool:
        """Write as much of the unsent replies as the sockets take; return whether there were
        any."""
        waiting = self.clients.write_all()
        return waiting or bool(self.bus.behind)

    def close_all(self) -> None:
        """Disconnect everybody and stop watching."""
        self.bus.close_all()
        self.clients.close_all()
        self._poller.close()
