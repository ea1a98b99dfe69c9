"""What serves clients: the dispatch of their commands, and their replies in the right order.

Owns what all programs with a state machine behind a Redis protocol share: the node of Disque and
bananaq derive from it. Nothing here waits, reads a clock or draws a random number by itself: the
driver passes the time (ms since the epoch) in. What the outside has to do comes out as effects. At
the end of a turn, after any number of calls, the driver

1. writes ``journal`` to the append-only file, or calls ``revoke`` where that fails;
2. calls ``settle``; replies are in ``client.out`` then, and clients other than the caller that got
   one in ``woken``;
3. lets leave what went to others, then the replies;
4. calls ``tick`` when ``next_wake()`` says.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from disque_trio.core.client import REPLY_ON, REPLY_SKIP, REPLY_SKIP_NEXT, Client, Pending
from disque_trio.core.command import Command, CommandError
from disque_trio.core.host import Host
from disque_trio.core.latency import LatencyMonitor
from disque_trio.core.memory import UNLIMITED, Memory
from disque_trio.core.slowlog import SlowLog
from disque_trio.protocol.inline import quote
from disque_trio.protocol.reply import error

if TYPE_CHECKING:
    from disque_trio.core.events import Event

_NOAUTH: Final = b"-NOAUTH Authentication required.\r\n"
_OOM: Final = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"


class Machine:
    """A state machine that clients drive. ``furnish`` has to be called before anything else.

    Attributes:
        product: what it calls itself to clients. holds: what it calls what it holds.
        now: time of the current turn, ms since the epoch.
        client: on whose behalf it acts, None: on its own or on another node's.
        host: what is around it (see ``host``).
        commands: the command table, names in lower case.
        memory: the account of what it holds.
        events: what happened, for an event log; the driver empties it.
        journaling: note in ``journal`` what has to be in an append-only file.
        journal: records for the append-only file; the driver takes them once a turn, before the
            replies leave.
        flushed: everything was forgotten: what the file has is void. The driver resets it.
        compactable: a process of its own can compact the append-only file.
        loading: the append-only file is being read.
        write_problem: why it cannot be written, or empty.
        settled: replies that became known this turn; ``settle`` hands them out.
        woken: clients other than the caller that were replied to; the driver empties it.
        monitors: clients that see every command.
        unsafe: replies, by client and place in ``client.out``, that are not to be sent unless the
            journal of the turn is in the append-only file; ``settle`` empties it.
        blocked_clients: how many wait.
    """

    def __init__(self) -> None:
        self.product = "disque"
        self.holds = "jobs"
        self.now = 0
        self.client: Client | None = None
        self.host = Host()
        self.commands: dict[bytes, Command] = {}
        self.memory = Memory(0)
        self.events: list[Event] = []
        self.journaling = False
        self.journal: list[bytes] = []
        self.flushed = False
        self.compactable = True
        self.loading = False
        self.write_problem = ""
        self.troubled = False  # one of the two
        self.settled: list[Pending] = []
        self.woken: list[Client] = []
        self.monitors: list[Client] = []
        self.unsafe: list[tuple[Client, int, int]] = []
        self.slowlog = SlowLog()
        self.latency = LatencyMonitor()
        self.total_commands = 0
        self.blocked_clients = 0
        self._lookup: dict[bytes, Command] = {}
        self._clock: Callable[[], int] = _no_clock
        self._slow = UNLIMITED  # ns from which a command's duration interests anyone
        self._wait_ends: list[tuple[int, int, Client]] = []  # heap: deadline, number, client
        self._waits = 0

    def furnish(self, commands: dict[bytes, Command], host: Host, clock: Callable[[], int]) -> None:
        """Say what commands there are, what is around, and how to measure durations: ``clock``
        gives monotonic ns, for SLOWLOG and commandstats."""
        self.commands = commands
        self.host = host
        self._clock = clock
        self._lookup = dict(commands)
        for name, command in commands.items():
            self._lookup[name.upper()] = command

    # ---- what the driver calls ------------------------------------------------------------

    def command(self, client: Client, args: list[bytes], now: int) -> None:
        """Serve one request of ``client``, which must not be blocked.

        The replies are in ``client.out`` afterwards, unless the client is blocked now.
        """
        self.now = now
        self.total_commands += 1
        command = self._lookup.get(args[0])
        if command is None:
            command = self._lookup.get(args[0].lower())
        replies = len(client.out)
        waiting = client.adding
        lined = len(client.line)
        journaled = False
        if command is None:
            client.out.append(error(b"ERR unknown command '%b'" % args[0][:128]))
            # A web page that makes a browser send HTTP here must not get its commands served.
            client.close = args[0].lower() in (b"post", b"host:")
        elif not command.min_args <= len(args) <= command.max_args:
            client.out.append(error(f"ERR wrong number of arguments for '{command.name}' command"))
        elif not client.authenticated and not command.unauthenticated:
            client.out.append(_NOAUTH)
        elif self.memory.used > self.memory.evict_above and not self.make_room(command):
            client.out.append(_OOM)
        elif self.troubled and self._refuses(client, command):
            pass
        else:
            client.last_command = command.name
            self.client = client
            if self.monitors and not command.skip_monitor:
                self._show_monitors(client, command, args)
            start = len(client.out)
            noted = len(self.journal)
            started = self._clock()
            try:
                command.handler(self, client, args)
            except CommandError as failure:
                client.out.append(error(str(failure)))
            self.client = None
            self.after_command()
            took = self._clock() - started
            command.calls += 1
            command.nanoseconds += took
            if took >= self._slow:
                self._note_slow(command, args, took)
            if self.journaling and (len(self.journal) != noted or self.flushed):
                if waiting:
                    journaled = True
                else:
                    self.unsafe.append((client, start, len(client.out)))
        if client.adding:
            if len(client.line) == lined:
                self._line_up(client, replies, journaled)
            if len(client.line) != lined:
                client.line[-1].silent = client.reply_mode != REPLY_ON
        if client.reply_mode != REPLY_ON:
            self._silence(client, replies)

    def _line_up(self, client: Client, replies: int, journaled: bool) -> None:
        """A request was served while others of ``client`` wait for their replies: its own, which
        are behind the first ``replies``, have to wait for theirs."""
        if len(client.out) > replies:
            entry = Pending(client, b"".join(client.out[replies:]))
            del client.out[replies:]
            entry.journaled = journaled
            client.line.append(entry)
            client.adding += 1
            self.settled.append(entry)

    def revoke(self, refusal: bytes) -> None:
        """The journal of this turn is not in the append-only file: answer ``refusal`` instead of
        confirming what it is about."""
        # From the last to the first, so that the places stay right.
        for client, start, end in reversed(self.unsafe):
            if start < min(end, len(client.out)):
                client.out[start:end] = [refusal]
        for entry in self.settled:
            if entry.journaled:
                entry.reply = refusal

    def settle(self) -> None:
        """Hand out the replies that became known this turn, each client's in order."""
        self.unsafe.clear()
        if not self.settled:
            return
        settled = self.settled
        self.settled = []
        for entry in settled:
            client = entry.client
            line = client.line
            released = False
            while line and line[0].reply is not None:
                first = line.popleft()
                client.adding -= 1
                released = True
                if not first.silent:
                    client.out.append(first.reply or b"")
            if released:
                self.woken.append(client)

    def _refuses(self, client: Client, command: Command) -> bool:
        """Whether the state of the append-only file forbids ``command``; answers it then."""
        if self.write_problem and command.writes:
            client.out.append(misconf(self.write_problem))
            return True
        if self.loading and not command.while_loading:
            client.out.append(self._loading_error())
            return True
        return False

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

    def watch_durations(self, slower_than: int, threshold: int) -> None:
        """Keep commands of ``slower_than`` µs and more (negative: none) in the slow log and
        events of ``threshold`` ms and more (0: none) in the latency monitor."""
        self.slowlog.slower_than = slower_than
        self.latency.threshold = threshold
        self._slow = slower_than * 1000 if slower_than >= 0 else UNLIMITED
        if threshold:
            self._slow = min(self._slow, threshold * 1_000_000)

    def _note_slow(self, command: Command, args: list[bytes], took: int) -> None:
        self.slowlog.add(self.now, took // 1000, _without_password(command, args))
        event = b"fast-command" if "fast" in command.flags else b"command"
        self.latency.add(event, self.now, took // 1_000_000)

    def _show_monitors(self, client: Client, command: Command, args: list[bytes]) -> None:
        time = b"+%d.%06d " % (self.now // 1000, self.now % 1000 * 1000)
        line = b"%b] %b\r\n" % (
            self.host.address(client).encode(),
            b" ".join([quote(arg) for arg in _without_password(command, args)]),
        )
        for monitor in self.monitors:
            # Redis has the database in front of the address, Disque has none. Clients that speak
            # RESP3 are Redis's and look for it.
            monitor.out.append(time + (b"[0 " if monitor.resp == 3 else b"[") + line)
            self.woken.append(monitor)

    def tick(self, now: int) -> None:
        """Do what is due at ``now``. When there is more to do than fits into a call, ``next_wake``
        is in the past afterwards."""
        self.now = now

    def next_wake(self) -> int:
        """When ``tick`` has to be called, ms since the epoch; 0: not before something happens."""
        return self.next_wait_end()

    def cron(self, now: int) -> None:
        """What is done ``hz`` times a second."""
        self.now = now

    # ---- what differs -----------------------------------------------------------------------

    def after_command(self) -> None:
        """A command was served; its client may be blocked now, others may have what they want."""

    def make_room(self, command: Command) -> bool:
        """Above 95% of the memory: let go what may; False when ``command`` must be refused."""
        return not command.denyoom or self.memory.used <= self.memory.evict_above

    def may_overlap(self, request: list[bytes]) -> bool:
        """Whether ``request`` may begin while earlier ones of its client wait for their replies."""
        return False

    def forget_client(self, client: Client) -> None:
        """``client`` is gone: it waits for nothing any more."""
        if client.waits_for:
            self._stop_waiting(client)
        if client.monitor:
            self.monitors.remove(client)

    def end_wait(self, client: Client) -> None:
        """End the wait of ``client``, which must be blocked, without what it waits for."""
        raise NotImplementedError

    def stop_waiting(self, client: Client) -> None:
        """``client``, which was blocked, waits no more: take it off the lists."""

    def held(self) -> int:
        """How many jobs, or events, there are."""
        return 0

    def counts(self) -> "dict[str, dict[str, str | int | float]]":
        """Sections of INFO that only this machine has, and its own fields of others."""
        return {}

    def flush(self) -> None:
        """Forget all jobs, or events."""
        raise NotImplementedError

    def load_record(self, record: list[bytes], queue_jobs: bool) -> int:
        """Take in one record of an append-only file. ``queue_jobs``: it was written when nothing
        happened any more, so that what was queued is. Returns how many jobs, or events, it held.

        Raises:
            ValueError: it is not a record.
        """
        raise NotImplementedError

    def start_dump(self) -> None:
        """Begin to write everything into a new append-only file; one dump at a time."""
        raise NotImplementedError

    def dump_step(self, count: int, room: int) -> tuple[list[bytes], bool]:
        """The next records of the dump, about ``count`` and ``room`` bytes at most, and whether
        these were the last."""
        raise NotImplementedError

    # ---- clients that wait ------------------------------------------------------------------

    def begin_wait(self, client: Client, names: list[bytes], timeout: int) -> None:
        """``client`` waits for something of ``names``, for ``timeout`` ms (0: for ever)."""
        self._waits += 1
        client.wait_number = self._waits
        client.waits_for = names
        self.blocked_clients += 1
        if timeout:
            ends = self._wait_ends
            # Waits that ended early leave their entry behind; they must not pile up.
            if len(ends) > 1000 and len(ends) > 4 * self.blocked_clients:
                ends[:] = sorted(e for e in ends if e[2].wait_number == e[1] and e[2].waits_for)
            heappush(ends, (self.now + timeout, self._waits, client))

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
        ends = self._wait_ends
        while ends and ends[0][0] <= now:
            _, number, client = heappop(ends)
            if client.wait_number == number and client.waits_for:
                self.time_out(client)

    def time_out(self, client: Client) -> None:
        """The time of ``client``, which is blocked, is over."""
        self.end_wait(client)

    def next_wait_end(self) -> int:
        """When the next wait ends, ms; 0: none does."""
        ends = self._wait_ends
        while ends and not (ends[0][2].wait_number == ends[0][1] and ends[0][2].waits_for):
            heappop(ends)
        return ends[0][0] if ends else 0

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

    def _loading_error(self) -> bytes:
        return error(f"LOADING {self.product.capitalize()} is loading the dataset in memory")


def _no_clock() -> int:
    return 0


def misconf(problem: str) -> bytes:
    """The error for what cannot be done while the append-only file cannot be written."""
    return error(f"MISCONF Errors writing to the AOF file: {problem}")


def _without_password(command: Command, args: list[bytes]) -> list[bytes]:
    """``args`` as others may see them."""
    if command.name in ("auth", "hello"):
        return [args[0], *[b"(redacted)"] * (len(args) - 1)]
    if command.name == "config":
        shown = list(args)
        for i in range(2, len(args) - 1):
            if args[i].lower() == b"requirepass":
                shown[i + 1] = b"(redacted)"
        return shown
    return args
