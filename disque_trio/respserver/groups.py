"""Runs groups of commands: what a client sends between MULTI and EXEC.

Each command is checked and kept when it arrives. EXEC runs them all in order, so that nothing else
happens to jobs and queues between them. Its reply is an array of their replies. The head of the
array comes first, and the replies follow it, like all replies of a client, in the order of the
requests. So a command whose reply is not known yet, such as an ADDJOB that waits for copies, does
not keep the next one from running.

A group of a few commands that are always short runs at once. Any other is an ``ExecRun``: it runs
in slices, to which its commands about many ids belong. Meanwhile the driver serves other clients
only with what neither changes jobs nor tells about them, such as PING, and handles no packets and
nothing that is due: it is as while a large write holds everything back.

No command in a group waits for anything. If the client disconnects before a long group is over, the
rest of what changes something is carried out, and what is only for the client is not. The limits
for what a client may have unread bound the replies: past them all commands still run, as they would
if the connection broke, but their replies are dropped and the client is disconnected. Commands that
look at very many things fail once those of the group have looked at too many.
"""

from collections.abc import Callable
from typing import Final, Protocol

from disque_trio.resp.reply import error
from disque_trio.resp.request import request_size
from disque_trio.respserver.batches import READ_TOO_MUCH, UNITS_OF_ID, Batches, Sliced
from disque_trio.respserver.client import REPLY_ON, Client, CommandGroup, Pending
from disque_trio.respserver.command import INTERNAL_ERROR, AnyCommand, CommandError
from disque_trio.respserver.host import NO_DEBUG, Host

MOST_WORDS: Final = 100_000  # names and arguments: at least 10,000 ADDJOBs, some 0.1 s
MOST_BYTES: Final = 1 << 30  # the same as for incomplete requests

SHORT: Final = 200  # words of a group of short commands that runs at once
CHECKED: Final = 500  # commands of a group to check in a slice
RUN: Final = 1_000  # words of the commands to run in a slice, besides those about many ids
REPLIED: Final = 1 << 20  # and bytes of their replies
LASTS: Final = 2_000_000  # and ns that they take
_READ_SHIFT: Final = 4  # what only reads takes a unit of work (see ``batches``) for 16 bytes
_MAYBE_LONG: Final = frozenset(("consume", "cron", "getjob", "getjobs"))
_ALSO_SHORT: Final = frozenset(("echo", "ping", "qlen", "qstat"))

_QUEUED: Final = b"+QUEUED\r\n"
_TOO_LARGE: Final = error(
    f"ERR the group is too large: more than {MOST_WORDS} words, or {MOST_BYTES >> 20} MB, between "
    "MULTI and EXEC"
)
_NOT_HERE: Final = error("ERR Command not allowed inside a transaction")
_TOO_LONG: Final = error(
    "ERR the replies of the group are too long for client-output-buffer-limit, maxmemory-clients "
    "or %maxoutput"
)
_ABORTED: Final = error("EXECABORT Transaction discarded because of previous errors.")

# Commands that run when they arrive, since they are about the group, or end it.
_AT_ONCE: Final = frozenset(("discard", "multi", "quit", "reset", "watch"))
# Commands that would write between the replies, or keep them from being sent.
_NEVER: Final = frozenset(("monitor", "restart", "shutdown"))
# Commands that do something for their client alone, or to it.
_FOR_CLIENT: Final = frozenset(
    (
        "auth",
        "client",
        "consume",
        "credit",
        "getjob",
        "getjobs",
        "hello",
        "qget",
        "qrpop",
        "select",
    )
)


class Runner(Protocol):
    """Interface of the machine that runs the commands."""

    host: Host
    batches: Batches
    in_group: bool
    monitors: list[Client]
    answered: list[Pending]
    now: int
    clock: Callable[[], int]
    ended: int
    long: int
    journaling: bool

    def find_command(self, name: bytes) -> "AnyCommand | None":
        """The command that a client calls ``name``."""

    def refusal(self, client: Client, command: "AnyCommand | None", args: list[bytes]) -> bytes:
        """The error that keeps ``args`` of ``client`` from running now; empty: none."""

    def command(self, client: Client, args: list[bytes], now: int) -> None:
        """Serve one request of ``client`` at ``now`` (ms)."""

    def after_command(self) -> None:
        """Serve other clients with what commands have changed."""

    def show_monitors(self, client: Client, command: AnyCommand, args: list[bytes]) -> None:
        """Send ``args``, which is ``command``, to the clients that monitor."""


def take(
    runner: Runner,
    client: Client,
    command: "AnyCommand | None",
    args: list[bytes],
    refusal: bytes,
    now: int,
) -> bool:
    """Handle ``args``, which is ``command`` and came after MULTI; return False if it has to run
    now like any other command. ``refusal``: why it must not run, or empty."""
    group = client.group
    assert group is not None
    if command is not None and command.name == "exec":
        short = group.words <= SHORT and _are_short(runner, group.requests)
        if short and not group.bad:
            # Much may have changed since they arrived.
            refusal = refusal or _refusal_of_any(runner, client, group.requests)
        client.leave_group()
        client.last_command = command.name
        command.calls += 1
        if runner.monitors:
            runner.show_monitors(client, command, args)
        if group.bad:
            client.out.append(_ABORTED)
        elif refusal:
            client.out.append(_aborted_because(refusal))
        elif short:
            _run(runner, client, group.requests, now)
        else:
            runner.batches.begin(ExecRun(runner, client, command, group.requests))
        return True
    if not refusal and command is not None:
        if command.name in _AT_ONCE:
            return False
        refusal = _kept(runner, client, group, command, args)
    if refusal:
        group.bad = True
        group.clear()
        client.resized = True
    client.out.append(refusal or _QUEUED)
    return True


def _kept(
    runner: Runner, client: Client, group: CommandGroup, command: AnyCommand, args: list[bytes]
) -> bytes:
    """Keep ``args`` for EXEC; return the error if that is not possible, otherwise nothing."""
    name = command.name
    if name in _NEVER or (name == "client" and args[1].lower() == b"reply"):
        return _NOT_HERE
    if name == "debug" and not runner.host.may_debug(client):
        return error(NO_DEBUG)
    if group.bad:
        return b""
    group.words += len(args)
    group.size += request_size(args)
    if group.words > MOST_WORDS or group.size > MOST_BYTES:
        return _TOO_LARGE
    group.requests.append(args)
    client.resized = True
    return b""


def _are_short(runner: Runner, requests: list[list[bytes]]) -> bool:
    """Whether none of ``requests`` can take long."""
    for request in requests:
        command = runner.find_command(request[0])
        if (
            command is None
            or len(request) > runner.batches.size
            or command.name in _MAYBE_LONG
            or not (command.name in _ALSO_SHORT or {"write", "fast"} <= {*command.flags})
        ):
            return False
    return True


def _refusal_of_any(runner: Runner, client: Client, requests: list[list[bytes]]) -> bytes:
    """Return why one of ``requests`` must not run now; empty: all may."""
    for request in requests:
        refusal = runner.refusal(client, runner.find_command(request[0]), request)
        if refusal:
            return refusal
    return b""


def _is_for_client(command: "AnyCommand | None") -> bool:
    """Whether running ``command`` matters to nobody but its client."""
    return (
        command is None
        or command.name in _FOR_CLIENT
        or not (
            command.writes
            or "admin" in command.flags
            or "@write" in command.flags
            or command.name == "acl"
        )
    )


def _aborted_because(refusal: bytes) -> bytes:
    return b"-EXECABORT Transaction discarded because of: " + refusal[1:].removeprefix(b"ERR ")


def _drop_replies(client: Client, start: int) -> None:
    """Reply with an error instead of the group whose replies begin at index ``start``."""
    client.out[start:] = [_TOO_LONG]
    for entry in client.reply_queue:
        entry.silent = True
        if entry.reply is not None:
            entry.refuse(b"")


class ExecRun(Sliced):
    """The pending reply of an EXEC that runs in slices: the head of the array.

    The replies to its commands follow it in the queue of its client.

    Attributes:
        current: the command about many ids, or with a long reply, that is being run.
    """

    __slots__ = (
        "_begun",
        "_checked",
        "_dropped",
        "_left",
        "_mode",
        "_most",
        "_requests",
        "_runner",
        "_size",
        "current",
    )

    def __init__(
        self, runner: Runner, client: Client, command: AnyCommand, requests: list[list[bytes]]
    ) -> None:
        super().__init__(client, command)
        self.alone = True
        self.current: Sliced | None = None
        self._left = 1 + len(requests)
        self._runner = runner
        self._requests = requests
        self._begun = False  # a part of the reply to ``current`` is in the queue
        self._checked = 0
        self._dropped = False
        self._mode = client.reply_mode
        self._most = runner.host.most_replies(client)
        self._size = 0

    @property
    def left(self) -> int:
        return self._left

    def step(self, size: int) -> None:
        client = self.client
        runner = self._runner
        requests = self._requests
        if self._checked < len(requests):
            end = self._checked + CHECKED
            # Much may have changed since they arrived.
            refusal = _refusal_of_any(runner, client, requests[self._checked : end])
            if refusal:
                self.reply = _aborted_because(refusal)
                return
            self._checked = end
            if end >= len(requests):
                self.ready.append(b"*%d\r\n" % len(requests))
                runner.batches.read_in_group = 0
                requests.reverse()  # taken from the end, where they can be dropped at once
                self._checked = len(requests)
            return
        if self.current is not None:
            self._go_on(self.current, size)
        else:
            self._run_some()
        self._checked = len(requests)
        if not requests and self.current is None:
            self.reply = b""
            client.close = client.close or self._dropped  # not before, or nobody is told

    def give_up(self) -> None:
        """End without the rest: a command has crashed, so nobody knows where the array ends."""
        self._requests.clear()
        self.current = None
        self.ready.append(INTERNAL_ERROR)
        self.reply = b""
        self.client.close = True

    def _go_on(self, current: Sliced, size: int) -> None:
        """Do the next slice of the command that is being run."""
        if self.client.gone and _is_for_client(current.command):
            self.current = None
            return
        batches = self._runner.batches
        try:
            if current.spent and not self._begun and batches.read_in_group >= batches.most_read:
                current.ready.clear()
                raise CommandError(READ_TOO_MUCH)
            current.step(size)
            batches.read_in_group += current.spent
        except CommandError as failure:
            current.reply = error(str(failure))
        except Exception:
            current.reply = INTERNAL_ERROR
            raise
        finally:
            if current.ready and not current.command.writes:
                self._begun = True
                self._line_up(b"".join(current.ready))
                current.ready.clear()
            if current.reply is not None:
                self._size += sum(map(len, current.ready)) + len(current.reply)
                current.journaled = self._runner.journaling and current.command.writes
                self._runner.answered.append(current)
                self.current = None
            if self._most and self._size > self._most:
                self._drop_replies()

    def _line_up(self, piece: bytes) -> None:
        """Queue the next ``piece`` of the reply to the command that is being run."""
        entry = Pending(self.client, piece)
        entry.silent = self._mode != REPLY_ON
        self.client.line_up(entry)
        self.client.long = True
        self._runner.answered.append(entry)
        self._size += len(piece)

    def _run_some(self) -> None:
        """Run the next commands."""
        client = self.client
        runner = self._runner
        batches = runner.batches
        words = made = 0
        until = runner.clock() + LASTS
        while (
            self._requests
            and self.current is None
            and words < RUN
            and made < REPLIED
            and runner.ended < until
        ):
            request = self._requests.pop()
            words += len(request)
            command = runner.find_command(request[0])
            if client.gone and _is_for_client(command):
                continue
            reads = command is not None and not (command.writes or command.name in _ALSO_SHORT)
            if reads and batches.read_in_group >= batches.most_read:
                self._line_up(error(READ_TOO_MUCH))
                continue
            lined, read = len(client.reply_queue), batches.read_in_group
            runner.command(client, request, runner.now)
            if len(client.reply_queue) > lined:
                last = client.reply_queue[-1]
                last.silent = self._mode != REPLY_ON
                size = len(last.reply or b"")
                made += size
                self._size += size
                if reads and batches.read_in_group == read:
                    batches.read_in_group += UNITS_OF_ID + (size >> _READ_SHIFT)
                if self._most and self._size > self._most:
                    self._drop_replies()
            if batches.inside:
                self.current = batches.inside.pop()
                self._begun = False
            if runner.long:
                runner.long = 0
                break

    def _drop_replies(self) -> None:
        """Reply with an error instead of the replies so far, and disconnect the client."""
        self.ready[:] = [_TOO_LONG]
        line = self.client.reply_queue
        for entry in [line[-1]] if self._dropped else line:
            if entry is not self:
                entry.silent = True
                if entry.reply is not None:
                    entry.refuse(b"")
        if self.current is not None:
            self.current.ready.clear()
        self._dropped = True


def _run(runner: Runner, client: Client, requests: list[list[bytes]], now: int) -> None:
    """Run ``requests``; their replies form an array."""
    mode = client.reply_mode
    client.reply_mode = REPLY_ON  # CLIENT REPLY SKIP is about EXEC as a whole
    whole = False
    runner.in_group = True
    most = runner.host.most_replies(client)
    start = len(client.out)
    size = 0
    try:
        client.out.append(b"*%d\r\n" % len(requests))
        for request in requests:
            before, lined = len(client.out), len(client.reply_queue)
            runner.command(client, request, now)
            if most:
                size += sum(map(len, client.out[before:]))
                if len(client.reply_queue) > lined:
                    size += len(client.reply_queue[-1].reply or b"")
                if size > most:
                    _drop_replies(client, start)
        whole = size <= most
    finally:
        runner.in_group = False
        client.reply_mode = mode
        # Nobody would know where the array ends.
        client.close = client.close or not whole
    if mode != REPLY_ON:
        for entry in client.reply_queue:
            entry.silent = True
    runner.after_command()
