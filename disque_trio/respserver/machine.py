"""The state machine of a RESP server: dispatches commands and keeps replies in order.

The parts shared by all programs with a state machine behind a Redis protocol: the node of Disque
and bananaq derive from it. Nothing here waits, reads a clock or draws random numbers: the driver
passes in the time (ms since the epoch). What has to be done outside comes out as effects. At the
end of a turn, after any number of calls, the driver

1. writes ``journal`` to the append-only file, or calls ``roll_back`` if that fails; until then it
   calls nothing but ``command``, for requests that are ``is_independent``;
2. calls ``commit``; then replies are in ``client.out``, and clients other than the caller that got
   one are in ``woken``;
3. sends the packets for other nodes, then the replies;
4. calls ``tick`` when ``next_wake()`` says;
5. calls ``slices.do_slice`` once in each turn, and keeps taking turns, while ``batches.waiting``.
"""

from collections.abc import Callable
from typing import Final

from disque_trio import humanize
from disque_trio.native import mypyc_attr
from disque_trio.resp.reply import error
from disque_trio.respserver.acl.catalog import Catalog
from disque_trio.respserver.acl.user import User
from disque_trio.respserver.acl.users import Users
from disque_trio.respserver.batches import Batches, Sliced
from disque_trio.respserver.client import REPLY_ON, REPLY_SKIP, REPLY_SKIP_NEXT, Client, Pending
from disque_trio.respserver.command import AnyCommand, CommandError, misconf
from disque_trio.respserver.durations import Durations
from disque_trio.respserver.groups import take
from disque_trio.respserver.host import Host
from disque_trio.respserver.latency import LatencyMonitor
from disque_trio.respserver.memory import Memory
from disque_trio.respserver.monitor import monitor_line, without_password
from disque_trio.respserver.over_budget import connections_refused
from disque_trio.respserver.rights import not_permitted
from disque_trio.respserver.slowlog import SlowLog
from disque_trio.respserver.wait_ends import WaitEnds
from disque_trio.respserver.words import Found

LONG: Final = 200_000  # ns; a command that takes longer counts in its turn
LONGEST_REST: Final = 10_000  # ms for which to put off the periodic work when nothing happens
_NOAUTH: Final = b"-NOAUTH Authentication required.\r\n"


@mypyc_attr(allow_interpreted_subclasses=True)
class Machine:
    """A state machine driven by clients and time.

    Args:
        product: its name, for clients.
        holds: the word for what it holds.
        commands: the command table, by name in lower case.
        host: the surroundings (see ``host``).
        clock: monotonic, in ns; for the durations in SLOWLOG and commandstats.
        maxmemory: limit for what it holds, in bytes; 0: no limit.

    Attributes:
        now: time of the current turn, in ms since the epoch.
        users: who may log in, and what they may do.
        client: for which it acts; None: on its own or for another node.
        host, commands: as given.
        memory: the account of what it holds.
        batches: unfinished commands about many ids.
        journaling: whether to put records for the append-only file into ``journal``.
        journal: records for the append-only file; the driver takes them once per turn, before the
            replies are sent.
        flushed: everything was forgotten: the contents of the file are void. The driver resets it.
        compactable: a separate process can compact the append-only file.
        loading: the append-only file is being read.
        may_lag: work can go on while the file cannot be written.
        lagging: it does: the records wait in memory.
        slow_disk: an fsync of the file takes long.
        write_problem: why nothing may be done that the file has to know, or empty.
        add_problem: why nothing may be added to it: the same, that the disk is full, or that the
            file lags; empty: it may. misconf: the error that says so.
        name: what errors call this server, or empty.
        answered: replies that became known this turn; ``commit`` hands them out.
        woken: clients other than the caller that got replies; the driver empties it.
        monitors: clients that see every command.
        uncommitted: replies, by client and indexes in ``client.out``, that may be sent only when
            the journal of the turn is in the append-only file; ``commit`` empties it.
        blocked_clients: how many wait. wait_ends: when their waits end.
        ended: when the last command ended, in ns of ``clock``.
        long: ns that long commands have taken; the driver resets it.
        slowlog, latency: of slow commands. durations: decides which ones were.
        in_group: the current command is in a group: it must not wait for anything.
        holding: some commands may have to wait for what is not in memory (see ``puts_off``).
        follows_up: whether ``after_command`` is called after every command; otherwise only while
            clients wait.
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
        self.add_problem = ""
        self.misconf = b""
        self.name = ""
        self.may_lag = False
        self.lagging = False
        self.slow_disk = False
        self.troubled = False  # any of these
        self.answered: list[Pending] = []
        self.woken: list[Client] = []
        self.monitors: list[Client] = []
        self.uncommitted: list[tuple[Client, int, int]] = []
        self.slowlog = SlowLog()
        self.latency = LatencyMonitor()
        self.durations = Durations(self.slowlog, self.latency, commands)
        self.total_commands = 0
        self.blocked_clients = 0
        self.ended = 0
        self.long = 0
        self.in_group = False
        self.holding = False
        self.follows_up = True
        self.clock = clock
        self._loading = error(f"LOADING {product.capitalize()} is loading the dataset in memory")
        self._lookup = dict(commands)
        for name, command in commands.items():
            self._lookup[name.upper()] = command
        # Several commands of one kind often come in a row.
        self._last_name = b""
        self._last_command: AnyCommand | None = None
        self.wait_ends = WaitEnds()

    def find_command(self, name: bytes) -> "AnyCommand | None":
        """The command that a client calls ``name``."""
        return self._lookup.get(name) or self._lookup.get(name.lower())

    def command_of(self, request: list[bytes]) -> "AnyCommand":
        """The command of a ``request`` that is being served, so there is one."""
        command = self.find_command(request[0])
        assert command is not None
        return command

    def read(self, request: list[bytes]) -> Found:
        """What the words of a ``request`` that is being served are. Raises ``CommandError``."""
        return self.command_of(request).words.read(request)

    # ---- called by the driver -------------------------------------------------------------

    def command(self, client: Client, args: list[bytes], now: int) -> None:
        """Serve one request of ``client``, which must not be blocked.

        The replies are in ``client.out`` afterwards, unless the client is now blocked.
        """
        serve(self, client, args, now)

    def _line_up(self, client: Client, replies: int, journaled: bool) -> None:
        """Queue the replies of a request that was served while earlier ones of ``client`` wait for
        theirs: those after the first ``replies``."""
        if len(client.out) > replies:
            entry = Pending(client, b"".join(client.out[replies:]))
            del client.out[replies:]
            entry.journaled = journaled
            client.line_up(entry)
            self.answered.append(entry)

    def roll_back(self, refusal: bytes) -> None:
        """Reply ``refusal`` instead of confirming this turn's changes, because their journal is not
        in the append-only file."""
        for client, start, end in reversed(self.uncommitted):  # so that the indexes stay valid
            if start < min(end, len(client.out)):
                client.out[start:end] = [refusal]
        for entry in self.answered:
            if entry.journaled:
                entry.refuse(refusal)

    def refuse_added(self) -> None:
        """Confirm nothing that was added this turn: the file lags. For all else it is enough that
        the records are kept."""
        for entry in self.answered:
            if entry.journaled:
                entry.refuse(self.misconf)

    def commit(self) -> None:
        """Release the replies that became known this turn, in order for each client."""
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
                if first.silent:
                    continue
                if isinstance(first, Sliced) and first.ready:
                    client.out += first.ready
                    client.long = True
                if first.reply:
                    client.out.append(first.reply)
            if released:
                self.woken.append(client)

    def _lets(self, client: Client, command: "AnyCommand | None", args: list[bytes]) -> bool:
        """Whether ``args`` has to run now. If not, it was refused with a reply, or kept for
        EXEC."""
        refusal = self.refusal(client, command, args)
        if client.group is not None:
            return not take(self, client, command, args, refusal, self.now)
        if refusal:
            client.out.append(refusal)
            if command is None and _is_http(args[0]):
                client.close = True
        return not refusal

    def refusal(self, client: Client, command: "AnyCommand | None", args: list[bytes]) -> bytes:
        """The error that keeps ``args``, a ``command`` of ``client``, from running now; empty:
        none."""
        if not client.authenticated and (command is None or not command.unauthenticated):
            # Whatever else is wrong: a stranger need not learn which commands there are.
            default = self.users.default
            if not default.open:
                return _NOAUTH
            full = connections_refused(self, default)
            if full:
                return error(full)
            client.log_in(default)  # a connection has become free
        if command is None:
            return error(b"ERR unknown command '%b'" % args[0][:128])
        if not command.min_args <= len(args) <= command.max_args:
            return error(f"ERR wrong number of arguments for '{command.name}' command")
        if not client.unrestricted:
            refusal = not_permitted(self, client, command, args)
            if refusal:
                return refusal
        if self.memory.used > self.memory.evict_above and not self.make_room(command):
            return self._oom()
        if self.add_problem and (command.adds or (self.write_problem and command.writes)):
            return self.misconf
        if self.loading and not command.while_loading:
            return self._loading
        return b""

    def _oom(self) -> bytes:
        memory = self.memory
        return error(
            "OOM command not allowed when used memory > 'maxmemory'. Of "
            f"{humanize.size(memory.limit)}, {humanize.size(memory.used)} are used: take "
            f"{self.holds}, or raise maxmemory"
        )

    def standing(self, client: Client) -> list[tuple[bytes, list[bytes]]]:
        """Return what ``client`` gets without asking again.

        Pairs of a command (by any name) and the names, or patterns of names, of the queues that
        its jobs come from.
        """
        found: list[tuple[bytes, list[bytes]]] = []
        if client.monitor:
            found.append((b"monitor", []))
        if client.waits_for:
            names = [name for name in client.waits_for if name]
            found.append((client.last_command.encode(), names))
        return found

    def set_trouble(
        self, loading: bool, write_problem: str, full: str = "", lagging: bool = False
    ) -> None:
        """Set whether jobs are being loaded, why nothing can be written (empty: it can), why
        nothing may be added even so (empty: it may), and whether the file is ``lagging``."""
        self.loading = loading
        self.write_problem = write_problem
        self.add_problem = write_problem or full
        self.misconf = misconf(self.add_problem, self.name)
        self.lagging = lagging
        self.troubled = loading or self.add_problem != ""

    def set_slow_disk(self, slow: bool) -> None:
        """Set whether an fsync of the file takes long."""
        self.slow_disk = slow

    @property
    def may_confirm(self) -> bool:
        """Whether others, such as other nodes, may rely on what is done here: it is recorded in the
        file."""
        return not (self.lagging or self.write_problem)

    def _silence(self, client: Client, replies: int) -> None:
        """CLIENT REPLY OFF or SKIP: drop the replies after the first ``replies``."""
        del client.out[replies:]
        if client.reply_mode == REPLY_SKIP_NEXT:
            client.reply_mode = REPLY_SKIP
        elif client.reply_mode == REPLY_SKIP and not client.waits_for:
            client.reply_mode = REPLY_ON

    def show_monitors(self, client: Client, command: AnyCommand, args: list[bytes]) -> None:
        """Send ``args``, which is ``command``, to the clients that monitor."""
        address = self.host.address(client)
        shown = without_password(command, args, self.commands)
        for monitor in self.monitors:
            monitor.out.append(monitor_line(self.now, address, shown, monitor.resp))
            self.woken.append(monitor)

    def tick(self, now: int) -> None:
        """Do the work due at ``now``. If it does not fit into one call, ``next_wake`` then returns
        a time in the past."""
        self.now = now

    def next_wake(self) -> int:
        """Return when to call ``tick`` next, in ms since the epoch; 0: not before an event."""
        return self.wait_ends.next_due()

    def cron(self, now: int) -> None:
        """Run the periodic work, ``hz`` times a second."""
        self.now = now

    def rest(self) -> int:
        """Return how long ``cron`` may wait while nothing happens, in ms; 0: not at all."""
        return 0 if self.troubled else LONGEST_REST

    # ---- for subclasses ---------------------------------------------------------------------

    def users_changed(self) -> None:
        """Called when users, or their rules, have changed."""

    def used_by(self, user: User) -> dict[str, int]:
        """What ``user`` uses of what a budget can limit, by the names of the limits."""
        return {"connections": user.use.connections, "output": self.host.held_by(user)}

    def replied(self) -> None:
        """Called at the end of a turn, when its replies have left."""

    def after_command(self) -> None:
        """Called after a command: its client may now be blocked, and others may be served."""

    def puts_off(self, client: Client, command: AnyCommand, args: list[bytes]) -> bool:
        """While ``holding``: whether ``args``, a ``command`` of ``client``, is put off."""
        return False

    def make_room(self, command: AnyCommand) -> bool:
        """Above 95% of the memory: evict what may be evicted. Return False if ``command`` must be
        refused."""
        return not command.denyoom or self.memory.used <= self.memory.evict_above

    def is_independent(self, request: list[bytes]) -> bool:
        """Whether ``request`` may be served while the records of earlier ones are being written to
        the append-only file: it neither changes nor tells what a failure would take back."""
        command = self.find_command(request[0])
        return command is None or command.is_independent(request)

    def may_overlap(self, request: list[bytes]) -> bool:
        """Whether ``request`` may begin while earlier ones of its client wait for their replies."""
        return False

    def forget_client(self, client: Client) -> None:
        """End all waits of ``client``, which has disconnected."""
        client.gone = True
        client.leave()
        if client.waits_for:
            self._stop_waiting(client)
        if client.monitor:
            self.monitors.remove(client)

    def heard(self, client: Client) -> None:
        """Called when ``client``, which was ``silent``, says something."""

    def stop_pushing(self, client: Client) -> None:
        """Stop push messages to ``client``, which no longer speaks RESP3."""

    def go_on_pushing(self, client: Client) -> None:
        """Resume push messages to ``client``, which is no longer ``slow``."""

    def end_wait(self, client: Client) -> None:
        """End the wait of ``client``, which must be blocked, with nothing found."""
        raise NotImplementedError

    def stop_waiting(self, client: Client) -> None:
        """Remove ``client``, which was blocked, from the lists of waiting clients."""

    def noted(self) -> int:
        """The number of entries for an event log."""
        return 0

    def held(self) -> int:
        """The number of jobs, or events, held."""
        return 0

    def counts(self) -> "dict[str, dict[str, str | int | float]]":
        """The sections of INFO, and fields of other sections, that only this machine has."""
        return {}

    def flush(self) -> None:
        """Forget all jobs, or events."""
        raise NotImplementedError

    # ---- clients that wait ------------------------------------------------------------------

    def begin_wait(self, client: Client, names: list[bytes], timeout: int) -> None:
        """Make ``client`` wait for something in ``names``, for ``timeout`` ms (0: forever)."""
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
    """Whether it is HTTP: a web page that makes a browser send it must not run commands."""
    return name.lower() in (b"post", b"host:")


def serve(  # noqa: C901
    machine: Machine, client: Client, args: list[bytes], now: int, started: int = 0
) -> None:
    """Do what ``machine.command`` does. A function, as a call to a method of a machine that is
    compiled elsewhere takes 2,000 instructions.

    Args:
        started: ns of ``clock``, if it has just been read; otherwise 0.
    """
    machine.now = now
    machine.total_commands += 1
    if client.silent:
        client.silent = False
        machine.heard(client)
    name = args[0]
    if name == machine._last_name:
        command = machine._last_command
    else:
        command = machine.find_command(name)
        if command is not None:
            machine._last_name = name
            machine._last_command = command
    if machine.holding and command is not None and machine.puts_off(client, command, args):
        return
    replies = len(client.out)
    waiting = client.in_flight
    lined = len(client.reply_queue) if waiting else 0
    journaled = False
    if command is None:
        machine._lets(client, None, args)
    elif (
        not client.unrestricted
        or not command.min_args <= len(args) <= command.max_args
        or machine.memory.used > machine.memory.evict_above
        or machine.troubled
        or client.group is not None
    ) and not machine._lets(client, command, args):
        pass
    else:
        client.last_command = command.name
        machine.client = client
        start = replies
        if machine.monitors and not command.skip_monitor:
            machine.show_monitors(client, command, args)
            start = len(client.out)
        noted = len(machine.journal)
        if not started:
            started = machine.clock()
        try:
            command.handler(machine, client, args)
        except CommandError as failure:
            client.out.append(error(str(failure)))
        machine.client = None
        if machine.follows_up or machine.blocked_clients:
            machine.after_command()
        machine.ended = machine.clock()
        took = machine.ended - started
        command.calls += 1
        command.nanoseconds += took
        if took > LONG:
            machine.long += took
        if took >= machine.durations.least:
            machine.durations.note(command, args, took, machine.now)
        if (
            machine.journaling
            and (len(machine.journal) != noted or machine.flushed)
            and not (command.stands and machine.may_lag)
        ):
            if waiting:
                journaled = True
            else:
                machine.uncommitted.append((client, start, len(client.out)))
    if client.in_flight:
        if len(client.reply_queue) == lined:
            machine._line_up(client, replies, journaled)
        if len(client.reply_queue) != lined:
            client.reply_queue[-1].silent = client.reply_mode != REPLY_ON
    if client.reply_mode != REPLY_ON:
        machine._silence(client, replies)
