"""Runs commands about many ids in slices.

A million ids take seconds, in which a node would serve nobody else. So a command with more ids
than fit into a slice is only noted when it comes. First all of its ids are looked at, so that a
malformed one is reported before anything is done; then they are worked through, a slice at a time.
What others ask for is served in between: it is as if the client had sent many commands with few ids
each. Its reply comes at the end and has the sum, and what it sent behind the command waits for
that. If the client disconnects, the rest is still carried out; so what is under way is bounded.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from disque_trio.resp.reply import integer
from disque_trio.respserver.client import Client, Pending
from disque_trio.respserver.command import AnyCommand

SLICE: Final = 100  # ids; a fraction of a millisecond
CHECKED: Final = 1_000  # ids whose form is looked at in the time of a slice
MOST_LEFT: Final = 1 << 20  # ids under way, some 100 MB; then no such command is begun


class Batch(Pending):
    """The pending reply of a command that runs in slices.

    Args:
        command: which it is.
        args: all arguments; the batch empties the list.
        start: where in it the ids begin.
        check: raises CommandError if one of these ids cannot be one.
        work: does it for these ids; returns how many count.
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
        """Do the next slice, of ``size`` ids; there is a reply after the last one.

        Raises:
            CommandError: an id is malformed; nothing was done.
        """
        args = self._args
        if self._checked < len(args):
            end = self._checked + CHECKED
            self._check(args[self._checked : end])
            self._checked = end
            if end >= len(args):
                # From the end, where what is done can be dropped at once.
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
        size: ids that make a slice; a command with no more is done at once.
        waiting: what is not done yet; the first one is next.
        left: arguments of all these that are not done yet.
        most_left: how many may be; beyond that it is ``full``, and no further command with more
            than ``size`` may begin.
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
        """Begin to run the command of ``batch`` in slices."""
        client = batch.client
        client.line_up(batch)
        client.in_slices = batch.left
        client.resized = True
        self._count(batch.left)
        self.waiting.append(batch)

    def put_back(self, batch: Batch, before: int) -> None:
        """``batch``, the first one, has run a slice; it had ``before`` arguments left."""
        if batch.reply is None:
            batch.client.in_slices = batch.left
            self._count(batch.left - before)
            self.waiting.append(batch)
        else:
            batch.client.in_slices = 0
            self._count(-before)
