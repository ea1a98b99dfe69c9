"""Runs groups of commands: what a client sends between MULTI and EXEC.

Each command is checked and kept when it arrives. EXEC runs them all in order, in one turn, so that
no other client's command comes between them. Its reply is an array of their replies. The head of
the array is sent at once, and the replies follow it, like all replies of a client, in the order of
the requests. So a command whose reply is not known yet, such as an ADDJOB that waits for copies,
does not keep the next one from running.

No command in a group waits for anything, and commands about many ids run in one go; the limit for
the number of words bounds the length of the turn.
"""

from typing import Final, Protocol

from disque_trio.resp.reply import error
from disque_trio.resp.request import request_size
from disque_trio.respserver.client import REPLY_ON, Client, Group
from disque_trio.respserver.command import AnyCommand
from disque_trio.respserver.host import NO_DEBUG, Host

MOST_WORDS: Final = 100_000  # names and arguments: at least 10,000 ADDJOBs, some 0.1 s
MOST_BYTES: Final = 1 << 30  # the same as for incomplete requests

_QUEUED: Final = b"+QUEUED\r\n"
_TOO_LARGE: Final = error(
    f"ERR the group is too large: more than {MOST_WORDS} words, or {MOST_BYTES >> 20} MB, between "
    "MULTI and EXEC"
)
_NOT_HERE: Final = error("ERR Command not allowed inside a transaction")
_ABORTED: Final = error("EXECABORT Transaction discarded because of previous errors.")

# Commands that run when they arrive, since they are about the group, or end it.
_AT_ONCE: Final = frozenset(("discard", "multi", "quit", "reset", "watch"))
# Commands that would write between the replies, or keep them from being sent.
_NEVER: Final = frozenset(("monitor", "restart", "shutdown"))


class Runner(Protocol):
    """Interface of the machine that runs the commands."""

    host: Host
    in_group: bool
    monitors: list[Client]

    def find_command(self, name: bytes) -> "AnyCommand | None":
        """The command that a client calls ``name``."""

    def refusal(self, client: Client, command: "AnyCommand | None", args: list[bytes]) -> bytes:
        """The error that keeps ``args`` of ``client`` from running now; empty: none."""

    def command(self, client: Client, args: list[bytes], now: int, started: int = 0) -> None:
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
        if not group.bad:
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
        else:
            _run(runner, client, group.requests, now)
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
    runner: Runner, client: Client, group: Group, command: AnyCommand, args: list[bytes]
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


def _refusal_of_any(runner: Runner, client: Client, requests: list[list[bytes]]) -> bytes:
    """Return why one of ``requests`` must not run now; empty: all may."""
    for request in requests:
        refusal = runner.refusal(client, runner.find_command(request[0]), request)
        if refusal:
            return refusal
    return b""


def _aborted_because(refusal: bytes) -> bytes:
    return b"-EXECABORT Transaction discarded because of: " + refusal[1:].removeprefix(b"ERR ")


def _run(runner: Runner, client: Client, requests: list[list[bytes]], now: int) -> None:
    """Run ``requests``; their replies form an array."""
    mode = client.reply_mode
    client.reply_mode = REPLY_ON  # CLIENT REPLY SKIP is about EXEC as a whole
    whole = False
    runner.in_group = True
    try:
        client.out.append(b"*%d\r\n" % len(requests))
        for request in requests:
            runner.command(client, request, now)
        whole = True
    finally:
        runner.in_group = False
        client.reply_mode = mode
        # Nobody would know where the array ends.
        client.close = client.close or not whole
    if mode != REPLY_ON:
        for entry in client.reply_queue:
            entry.silent = True
    runner.after_command()
