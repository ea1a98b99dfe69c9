"""The state machine of a RESP server: dispatches commands and keeps replies in order.

Owns what all programs with a state machine behind a Redis protocol share: the node of Disque and
bananaq derive from it. Nothing here waits, reads a clock or draws a random number by itself: the
driver passes the time (ms since the epoch) in. What the outside has to do comes out as effects. At
the end of a turn, after any number of calls, the driver

1. writes ``journal`` to the append-only file, or calls ``roll_back`` where that fails; until this
   is decided it calls nothing but ``command``, for requests that are ``is_independent``;
2. calls ``commit``; replies are in ``client.out`` then, and clients other than the caller that got
   one in ``woken``;
3. lets leave what went to others, then the replies;
4. calls ``tick`` when ``next_wake()`` says;
5. calls ``slices.do_slice`` once in each turn, and takes turns, while ``batches.waiting``.
"""

from collections.abc import Callable
from typing import Final

from disque_trio.resp.reply import error
from disque_trio.respserver.acl.catalog import Catalog
from disque_trio.respserver.acl.users import Users
from disque_trio.respserver.batches import Batches
from disque_trio.respserver.client import REPLY_ON, REPLY_SKIP, REPLY_SKIP_NEXT, Client, Pending
from disque_trio.respserver.command import AnyCommand, CommandError, misconf
from disque_trio.respserver.durations import Durations
from disque_trio.respserver.groups import take
from disque_trio.respserver.host import Host
from disque_trio.respserver.latency import LatencyMonitor
from disque_trio.respserver.memory import Memory
from disque_trio.respserver.monitor import monitor_line
from disque_trio.respserver.rights import not_permitted
from disque_trio.respserver.slowlog import SlowLog
from disque_trio.respserver.wait_ends import WaitEnds

LONGEST_REST: Final = 10_000  # ms that the periodic work is put off when nothing happens
_NOAUTH: Final = b"-NOAUTH Authentication required.\r\n"
_OOM: Final = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"


class Machine:
    """A state machine driven by clients and time.

    Args:
        product: what it calls itself to clients.
        holds: what it calls what it holds.
        commands: the command table, names in lower case.
        host: what is around it (see ``host``).
        clock: monotonic ns, for the durations that SLOWLOG and commandstats show.
        maxmemory: bytes of what it holds, 0: no limit.

    Attributes:
        now: time of the current turn, ms since the epoch.
        users: who may log in, and what they may do.
        client: on whose behalf it acts, None: on its own or on another node's.
        host, commands: as given.
        memory: the account of what it holds.
        batches: commands about many ids that are under way.
        journaling: note in ``journal`` what has to be in an append-only file.
        journal: records for the append-only file; the driver takes them once a turn, before the
            replies leave.
        flushed: everything was forgotten: what the file has is void. The driver resets it.
        compactable: a process of its own can compact the append-only file.
        loading: the append-only file is being read.
        write_problem: why it cannot be written, or empty.
        answered: replies that became known this turn; ``commit`` hands them out.
        woken: clients other than the caller that were replied to; the driver empties it.
        monitors: clients that see every command.
        uncommitted: replies, by client and place in ``client.out``, that may be sent only when the
            journal of the turn is in the append-only file; ``commit`` empties it.
        blocked_clients: how many wait. wait_ends: when they do no more.
        ended: when the last command ended, ns of ``clock``.
        slowlog, latency: of commands that took long. durations: decides which did.
        in_group: what is served is one of a group of commands: it must not wait for anything.
    """

    def __init__(
        self,
        product: str,
        holds: str,
        commands: dict[bytes, AnyCommand],
        host: Host,
        clock: Callable[[], int],
        maxmemory: int = 0,
    ) -> None:
        self.product = product
        self.holds = holds
        self.now = 0
        self.client: Client | None = None
        self.host = host
        self.commands = commands
        self.users = Users(Catalog(commands.values()))
        self.memory = Memory(maxmemory)
        self.batches = Batches()
        self.journaling = False
        self.journal: list[bytes] = []
        self.flushed = False
        self.compactable = True
        self.loading = False
        self.write_problem = ""
        self.troubled = False  # one of the two
        self.answered: list[Pending] = []
        self.woken: list[Client] = []
        self.monitors: list[Client] = []
        self.uncommitted: list[tuple[Client, int, int]] = []
        self.slowlog = SlowLog()
        self.latency = LatencyMonitor()
        self.durations = Durations(self.slowlog, self.latency)
        self.total_commands = 0
        self.blocked_clients = 0
        self.ended = 0
        self.in_group = False
        self.clock = clock
        self._loading = error(f"LOADING {product.capitalize()} is loading the dataset in memory")
        self._lookup = dict(commands)
        for name, command in commands.items():
            self._lookup[name.upper()] = command
        # Commands of one kind often come in a row.
        self._last_name = b""
        self._last_command: AnyCommand | None = None
        self.wait_ends = WaitEnds()

    def find_command(self, name: bytes) -> "AnyCommand | None":
        """The command that a client calls ``name``."""
        return self._lookup.get(name) or self._lookup.get(name.lower())

    # ---- what the driver calls ------------------------------------------------------------

    def command(self, client: Client, args: list[bytes], now: int, started: int = 0) -> None:
        """Serve one request of ``client``, which must not be blocked.

        The replies are in ``client.out`` afterwards, unless the client is blocked now.

        Args:
            started: ns of ``clock``, if it has just been read; else 0.
        """
        self.now = now
        self.total_commands += 1
        name = args[0]
        if name == self._last_name:
            command = self._last_command
        else:
            command = self.find_command(name)
            if command is not None:
                self._last_name = name
                self._last_command = command
        replies = len(client.out)
        waiting = client.in_flight
        lined = len(client.reply_queue) if waiting else 0
        journaled = False
        if command is None:
            self._lets(client, None, args)
        elif (
            not client.unrestricted
            or not command.min_args <= len(args) <= command.max_args
            or self.memory.used > self.memory.evict_above
            or self.troubled
            or client.group is not None
        ) and not self._lets(client, command, args):
            pass
        else:
            client.last_command = command.name
            self.client = client
            start = replies
            if self.monitors and not command.skip_monitor:
                self.show_monitors(client, command, args)
                start = len(client.out)
            noted = len(self.journal)
            if not started:
                started = self.clock()
            try:
                command.handler(self, client, args)
            except CommandError as failure:
                client.out.append(error(str(failure)))
            self.client = None
            self.after_command()
            self.ended = self.clock()
            took = self.ended - started
            command.calls += 1
            command.nanoseconds += took
            if took >= self.durations.least:
                self.durations.note(command, args, took, self.now)
            if self.journaling and (len(self.journal) != noted or self.flushed):
                if waiting:
                    journaled = True
                else:
                    self.uncommitted.append((client, start, len(client.out)))
        if client.in_flight:
            if len(client.reply_queue) == lined:
                self._line_up(client, replies, journaled)
            if len(client.reply_queue) != lined:
                client.reply_queue[-1].silent = client.reply_mode != REPLY_ON
        if client.reply_mode != REPLY_ON:
            self._silence(client, replies)

    def _line_up(self, client: Client, replies: int, journaled: bool) -> None:
        """A request was served while others of ``client`` wait for their replies: its own, which
        are behind the first ``replies``, have to wait for theirs."""
        if len(client.out) > replies:
            entry = Pending(client, b"".join(client.out[replies:]))
            del client.out[replies:]
            entry.journaled = journaled
            client.line_up(entry)
            self.answered.append(entry)

    def roll_back(self, refusal: bytes) -> None:
        """Answer ``refusal`` instead of confirming this turn's changes, because their journal is
        not in the append-only file."""
        for client, start, end in reversed(self.uncommitted):  # so that the places stay right
            if start < min(end, len(client.out)):
                client.out[start:end] = [refusal]
        for entry in self.answered:
            if entry.journaled:
                entry.reply = refusal

    def commit(self) -> None:
        """Release the replies that became known this turn, each client's in order."""
        self.uncommitted.clear()
        if not self.answered:
            return
        answered, self.answered = self.answered, []
        for entry in answered:
            client = entry.client
            line = client.reply_queue
            released = False
            while line and line[0].reply is not None:
                first = line.popleft()
                client.in_flight -= 1
                released = True
                if not first.silent:
                    client.out.append(first.reply or b"")
            if released:
                self.woken.append(client)

    def _lets(self, client: Client, command: "AnyCommand | None", args: list[bytes]) -> bool:
        """Whether ``args`` is to be run now; answers it if not: it is refused, or kept for EXEC."""
        refusal = self.refusal(client, command, args)
        if client.group is not None:
            return not take(self, client, command, args, refusal, self.now)
        if refusal:
            client.out.append(refusal)
            if command is None and _is_http(args[0]):
                client.close = True
        return not refusal

    def refusal(self, client: Client, command: "AnyCommand | None", args: list[bytes]) -> bytes:
        """Why ``client`` must not have ``args``, a ``command``, run now: an error, or empty."""
        if not client.authenticated and (command is None or not command.unauthenticated):
            # Whatever is wrong with it: a stranger need not know which commands there are.
            return _NOAUTH
        if command is None:
            return error(b"ERR unknown command '%b'" % args[0][:128])
        if not command.min_args <= len(args) <= command.max_args:
            return error(f"ERR wrong number of arguments for '{command.name}' command")
        if not client.unrestricted:
            refusal = not_permitted(self, client, command, args)
            if refusal:
                return refusal
        if self.memory.used > self.memory.evict_above and not self.make_room(command):
            return _OOM
        if self.write_problem and command.writes:
            return misconf(self.write_problem)
        if self.loading and not command.while_loading:
            return self._loading
        return b""

    def standing(self, client: Client) -> list[tuple[bytes, list[bytes]]]:
        """What ``client`` gets without asking again: commands as rules call them, or by another
        name, with the names of the queues (or patterns of names) that jobs come from."""
        found: list[tuple[bytes, list[bytes]]] = []
        if client.monitor:
            found.append((b"monitor", []))
        if client.waits_for:
            names = [name for name in client.waits_for if name]
            found.append((client.last_command.encode(), names))
        return found

    def set_trouble(self, loading: bool, write_problem: str) -> None:
        """Say that jobs are being loaded, or why nothing can be written (empty: it can)."""
        self.loading = loading
        self.write_problem = write_problem
        self.troubled = loading or write_problem != ""

    def _silence(self, client: Client, replies: int) -> None:
        """CLIENT REPLY OFF or SKIP: drop what was replied behind the first ``replies``."""
        del client.out[replies:]
        if client.reply_mode == REPLY_SKIP_NEXT:
            client.reply_mode = REPLY_SKIP
        elif client.reply_mode == REPLY_SKIP and not client.waits_for:
            client.reply_mode = REPLY_ON

    def show_monitors(self, client: Client, command: AnyCommand, args: list[bytes]) -> None:
        """Write ``args``, which is ``command``, to those who watch."""
        address = self.host.address(client)
        for monitor in self.monitors:
            monitor.out.append(monitor_line(self.now, address, command, args, monitor.resp))
            self.woken.append(monitor)

    def tick(self, now: int) -> None:
        """Do the work due at ``now``. If it does not fit into one call, ``next_wake`` is in the
        past afterwards."""
        self.now = now

    def next_wake(self) -> int:
        """When ``tick`` has to be called, ms since the epoch; 0: not before something happens."""
        return self.wait_ends.next_due()

    def cron(self, now: int) -> None:
        """Run the periodic work, ``hz`` times a second."""
        self.now = now

    def rest(self) -> int:
        """How long (ms) ``cron`` may be put off while nothing happens; 0: not at all."""
        return 0 if self.troubled else LONGEST_REST

    # ---- what differs -----------------------------------------------------------------------

    def after_command(self) -> None:
        """Called after each command: its client may be blocked now, and others may be served."""

    def make_room(self, command: AnyCommand) -> bool:
        """Above 95% of the memory: evict what may be evicted; False when ``command`` must be
        refused."""
        return not command.denyoom or self.memory.used <= self.memory.evict_above

    def is_independent(self, request: list[bytes]) -> bool:
        """Whether ``request`` may be served while what earlier ones noted is on its way into the
        append-only file: it neither changes nor tells what that may take back."""
        command = self.find_command(request[0])
        return command is None or command.is_independent(request)

    def may_overlap(self, request: list[bytes]) -> bool:
        """Whether ``request`` may begin while earlier ones of its client wait for their replies."""
        return False

    def forget_client(self, client: Client) -> None:
        """End all waits of ``client``, which has disconnected."""
        if client.waits_for:
            self._stop_waiting(client)
        if client.monitor:
            self.monitors.remove(client)

    def stop_pushing(self, client: Client) -> None:
        """``client`` gets no push messages any more: it does not speak RESP3 now."""

    def go_on_pushing(self, client: Client) -> None:
        """``client`` is not ``slow`` any more."""

    def end_wait(self, client: Client) -> None:
        """End the wait of ``client``, which must be blocked, without what it waits for."""
        raise NotImplementedError

    def stop_waiting(self, client: Client) -> None:
        """Remove ``client``, which was blocked, from the lists of those that wait."""

    def noted(self) -> int:
        """The number of entries for an event log."""
        return 0

    def held(self) -> int:
        """The number of jobs, or events, held."""
        return 0

    def counts(self) -> "dict[str, dict[str, str | int | float]]":
        """Sections of INFO that only this machine has, and its own fields of others."""
        return {}

    def flush(self) -> None:
        """Forget all jobs, or events."""
        raise NotImplementedError

    # ---- clients that wait ------------------------------------------------------------------

    def begin_wait(self, client: Client, names: list[bytes], timeout: int) -> None:
        """``client`` waits for something of ``names``, for ``timeout`` ms (0: for ever)."""
        client.waits_for = names
        self.blocked_clients += 1
        self.wait_ends.begin(client, self.now + timeout if timeout else 0, self.blocked_clients)

    def unblock(self, client: Client, reply: bytes) -> None:
        """End the wait of ``client``, which must be blocked, with ``reply``."""
        self._stop_waiting(client)
        if client.reply_mode == REPLY_ON:
            client.out.append(reply)
        elif client.reply_mode == REPLY_SKIP:
            client.reply_mode = REPLY_ON
        self.woken.append(client)

    def end_waits(self, now: int) -> None:
        """End the waits whose time is over."""
        while (client := self.wait_ends.due(now)) is not None:
            self.time_out(client)

    def time_out(self, client: Client) -> None:
        """End the wait of ``client``, which is blocked, because its time is over."""
        self.end_wait(client)

    def _stop_waiting(self, client: Client) -> None:
        self.stop_waiting(client)
        client.waits_for = []
        self.blocked_clients -= 1

    # ---- the rest ---------------------------------------------------------------------------

    def reset_stats(self) -> None:
        """Set all counters to zero."""
        self.total_commands = 0
        self.memory.peak = self.memory.used
        for command in self.commands.values():
            command.calls = 0
            command.nanoseconds = 0
        self.durations.reset()


def _is_http(name: bytes) -> bool:
    """A web page that makes a browser send HTTP here must not get its commands served."""
    return name.lower() in (b"post", b"host:")
