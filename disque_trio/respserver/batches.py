"""Runs commands about many ids in slices.

A million ids take seconds, in which a node would serve nobody else. So a command with more ids than
fit into a slice is only queued when it arrives. First all its ids are checked, so that a malformed
one is reported before anything is done; then they are processed, slice by slice. Other clients are
served in between: it is as if the client had sent many commands with few ids each. The reply comes
at the end and has the sum; later commands of the client wait for that. If the client disconnects,
the rest is still carried out; so the amount of pending work is bounded.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from disque_trio.resp.reply import integer
from disque_trio.respserver.client import Client, Pending
from disque_trio.respserver.command import AnyCommand

SLICE: Final = 100  # ids; a fraction of a millisecond
CHECKED: Final = 1_000  # ids whose form can be checked in the time of a slice
MOST_LEFT: Final = 1 << 20  # pending ids, some 100 MB; beyond it no such command is accepted


class Batch(Pending):
    """The pending reply of a command that runs in slices.

    Args:
        command: the command.
        args: all arguments; the batch empties the list.
        start: index in it of the first id.
        check: takes ids; raises ``CommandError`` if one is malformed.
        work: does the command for ids; returns how many count.
    """

    __slots__ = ("_args", "_check", "_checked", "_start", "_total", "_work", "command")

    def __init__(
        self,
        client: Client,
        command: AnyCommand,
        args: list[bytes],
        start: int,
        check: Callable[[list[bytes]], None],
        work: Callable[[list[bytes]], int],
    ) -> None:
        super().__init__(client, None)
        self.command = command
        self._args = args
        self._start = start
        self._check = check
        self._work = work
        self._checked = start
        self._total = 0

    @property
    def left(self) -> int:
        """The number of arguments that are not done yet."""
        return len(self._args)

    def step(self, size: int) -> None:
        """Do the next slice, of ``size`` ids; sets ``reply`` after the last one.

        Raises:
            CommandError: an id is malformed; nothing was done.
        """
        args = self._args
        if self._checked < len(args):
            end = self._checked + CHECKED
            self._check(args[self._checked : end])
            self._checked = end
            if end >= len(args):
                # Work from the end, where finished ids can be dropped at once.
                args.reverse()
                del args[len(args) - self._start :]
                self._checked = len(args)
            return
        part = args[-size:]
        del args[-size:]
        self._checked = len(args)
        part.reverse()
        self._total += self._work(part)
        if not args:
            self.reply = integer(self._total)


class Batches:
    """The commands of a machine that run in slices (see ``slices``).

    Attributes:
        size: IDs in a slice; a command with at most as many runs at once.
        waiting: the unfinished batches, the next one first.
        left: number of their arguments that are not done yet.
        most_left: limit for ``left``; beyond it the machine is ``full``, and accepts no further
            command with more than ``size`` ids.
    """

    def __init__(self) -> None:
        self.size = SLICE
        self.waiting: deque[Batch] = deque()
        self.left = 0
        self.most_left = MOST_LEFT
        self.full = False

    def _count(self, more: int) -> None:
        """Add ``more`` (may be negative) to the arguments that are left."""
        self.left += more
        self.full = self.left > self.most_left

    def begin(self, batch: Batch) -> None:
        """Start to run the command of ``batch`` in slices."""
        client = batch.client
        client.line_up(batch)
        client.in_slices = batch.left
        client.resized = True
        self._count(batch.left)
        self.waiting.append(batch)

    def put_back(self, batch: Batch, before: int) -> None:
        """Queue ``batch``, which was first and has run a slice, again; it had ``before`` arguments
        left."""
        if batch.reply is None:
            batch.client.in_slices = batch.left
            self._count(batch.left - before)
            self.waiting.append(batch)
        else:
            batch.client.in_slices = 0
            self._count(-before)
