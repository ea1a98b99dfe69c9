"""Runs commands about many ids, or with long replies, in slices.

A million ids take seconds, in which a node would serve nobody else. So a command with more ids than
fit into a slice is only queued when it arrives. First all its ids are checked, so that a malformed
one is reported before anything is done; then they are processed, slice by slice. Other clients are
served in between: it is as if the client had sent many commands with few ids each. The reply comes
at the end and has the sum; later commands of the client wait for that. If the client disconnects,
the rest is still carried out; so the amount of pending work is bounded.

A command that looks at many things, such as JSCAN BUSYLOOP, does its first slice when it arrives.
Nearly always that is all. Otherwise it first finds what to tell, which takes 8 bytes each, and then
sends the reply piece by piece as it is made. So a long reply is never in memory as a whole, unless
the client does not read it; then the limits for unread replies disconnect the client.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

from disque_trio.native import mypyc_attr
from disque_trio.resp.reply import Value, encode, integer
from disque_trio.respserver.client import Client, Pending
from disque_trio.respserver.command import AnyCommand

SLICE: Final = 100  # ids; a fraction of a millisecond
CHECKED: Final = 1_000  # ids whose form can be checked in the time of a slice
MOST_LEFT: Final = 1 << 20  # pending ids, some 100 MB; beyond it no such command is accepted

READ_TOO_MUCH: Final = (
    "ERR the commands of the group look at too much: nothing else can be done meanwhile"
)

T = TypeVar("T")

# How much a slice of a reading does, in units of about a microsecond.
UNITS_OF_ID: Final = 20  # as much as is done for an id of a command about many
FIRST: Final = 4  # the first slice is so much shorter, since many clients may ask at once
LOOK: Final = 1  # at a thing
TELL: Final = 2  # about a thing that was found
_BYTES_SHIFT: Final = 8  # as long as it takes to make, and send, 256 bytes
# Units of work for all that only reads in a group: some seconds, in which nothing else happens.
MOST_READ: Final = 5_000_000
_FOUND_SHIFT: Final = 3  # eight of what was found count as an id


@mypyc_attr(allow_interpreted_subclasses=True)
class Sliced(Pending):
    """The pending reply of a command that runs in slices.

    Attributes:
        command: the command.
        ready: the next pieces of the reply, before ``reply``.
        alone: while it runs, nothing else may happen to jobs and queues.
        spent: units of work that its last step did, if it is a ``Reading``.
        rests: its last step could do nothing yet: what it needs is being read.
    """

    __slots__ = ("alone", "command", "ready", "rests", "spent")

    def __init__(self, client: Client, command: AnyCommand) -> None:
        super().__init__(client, None)
        self.command = command
        self.ready: list[bytes] = []
        self.alone = False
        self.spent = 0
        self.rests = False

    @property
    def left(self) -> int:
        """The number of arguments that are not done yet, or as many as take the same memory."""
        raise NotImplementedError

    def step(self, size: int) -> None:
        """Do the next slice, as much work as for ``size`` ids; sets ``reply`` to what comes after
        ``ready`` in the last one.

        Raises:
            CommandError: nothing was done.
        """
        raise NotImplementedError

    def refuse(self, problem: bytes) -> None:
        """End with ``problem``, such as that the file cannot take what a slice does."""
        self.ready.clear()
        self.reply = problem


def _always(ids: list[bytes]) -> bool:
    return True


class Batch(Sliced):
    """The pending reply of a command about many ids.

    Args:
        command: the command.
        args: all arguments; the batch empties the list.
        start: index in it of the first id.
        check: takes ids; raises ``CommandError`` if one is malformed.
        work: does the command for ids; returns how many count.

    Attributes:
        are_here: whether ``work`` can be done for ids; if not, this is soon the case.
    """

    __slots__ = ("_args", "_check", "_checked", "_start", "_total", "_work", "are_here")

    def __init__(
        self,
        client: Client,
        command: AnyCommand,
        args: list[bytes],
        start: int,
        check: Callable[[list[bytes]], None],
        work: Callable[[list[bytes]], int],
    ) -> None:
        super().__init__(client, command)
        self.are_here: Callable[[list[bytes]], bool] = _always
        self._args = args
        self._start = start
        self._check = check
        self._work = work
        self._checked = start
        self._total = 0

    @property
    def left(self) -> int:
        return len(self._args)

    def step(self, size: int) -> None:
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
        if not self.are_here(part):
            self.rests = True
            return
        del args[-size:]
        self._checked = len(args)
        part.reverse()
        self._total += self._work(part)
        if not args:
            self.reply = integer(self._total)


@mypyc_attr(allow_interpreted_subclasses=True)
class Reading(Sliced, Generic[T]):
    """The reply of a command that may look at many things, and tell about many.

    Args:
        source: the things; between two steps, they may change.
    """

    __slots__ = ("_found", "_looked", "_source")

    def __init__(self, client: Client, command: AnyCommand, source: Iterator[T | None]) -> None:
        super().__init__(client, command)
        self._source: Iterator[T | None] = source
        self._found: list[T] = []
        self._looked = False

    def takes(self, item: T) -> bool:
        """Whether the reply is to tell about ``item``; may add to ``spent``."""
        return True

    def head(self, count: int) -> bytes:
        """The start of the reply, which tells about ``count`` things."""
        return b"*%d\r\n" % count

    def entry(self, item: T) -> bytes:
        """What the reply tells about ``item``."""
        raise NotImplementedError

    @property
    def left(self) -> int:
        return 1 + (len(self._found) >> _FOUND_SHIFT)

    def step(self, size: int) -> None:
        most = size * UNITS_OF_ID
        self.spent = 0
        found = self._found
        if not self._looked:
            for item in self._source:
                if item is None:
                    self.rests = True
                    return
                self.spent += LOOK
                if self.takes(item):
                    found.append(item)
                if self.spent >= most:
                    return
            self._looked = True
            self.ready.append(self.head(len(found)))
            found.reverse()  # taken from the end, where they can be dropped at once
        while found and self.spent < most:
            entry = self.entry(found.pop())
            self.ready.append(entry)
            self.spent += TELL + (len(entry) >> _BYTES_SHIFT)
        if not found:
            self.reply = b""


class Listing(Reading[T]):
    """The reply of a command that tells about each of ``items``, as ``describe`` does."""

    __slots__ = ("_describe",)

    def __init__(
        self,
        client: Client,
        command: AnyCommand,
        items: list[T],
        describe: Callable[[T], Value],
    ) -> None:
        super().__init__(client, command, iter(items))
        self._describe = describe

    def entry(self, item: T) -> bytes:
        self.spent += TELL
        return encode(self._describe(item), self.client.resp)


class Batches:
    """The commands of a machine that run in slices (see ``slices``).

    Attributes:
        size: ids in a slice; a command with at most as many runs at once.
        waiting: the unfinished batches, the next one first.
        resting: those that can do nothing before something has been read.
        left: number of their arguments that are not done yet.
        most_left: limit for ``left``; beyond it the machine is ``full``, and accepts no further
            command with more than ``size`` ids.
        exclusive: a group has begun to run: nothing else may happen to jobs and queues.
        read_in_group: units of work that what only reads has done in the group.
        most_read: limit for that; beyond it, it fails.
        inside: collects what is begun in the group's current slice; None: no slice of one runs.
    """

    def __init__(self) -> None:
        self.size = SLICE
        self.waiting: deque[Sliced] = deque()
        self.resting: list[Sliced] = []
        self.left = 0
        self.most_left = MOST_LEFT
        self.full = False
        self.exclusive = False
        self.read_in_group = 0
        self.most_read = MOST_READ
        self.inside: list[Sliced] | None = None

    def _count(self, more: int) -> None:
        """Add ``more`` (may be negative) to the arguments that are left."""
        self.left += more
        self.full = self.left > self.most_left

    def begin(self, batch: Sliced) -> None:
        """Start to run the command of ``batch`` in slices."""
        client = batch.client
        client.line_up(batch)
        if self.inside is not None:
            self.inside.append(batch)
            return
        client.in_slices = batch.left
        client.resized = True
        self._count(batch.left)
        self.waiting.append(batch)

    def read(self, reading: Sliced) -> None:
        """Do the first slice of ``reading``, and the others in later turns."""
        client = reading.client
        reading.step(max(self.size // FIRST, 1))
        self.read_in_group += reading.spent
        if reading.reply is not None or not client.in_flight:
            client.out += reading.ready
            reading.ready.clear()
        if reading.reply is None:
            self.begin(reading)

    def end(self, batch: Sliced) -> None:
        """Forget ``batch``, which was first and ran ``alone``."""
        self.waiting.popleft()
        batch.client.in_slices -= batch.left
        self._count(-batch.left)

    def put_back(self, batch: Sliced, before: int) -> None:
        """Queue ``batch``, which was first and has run a slice, again; it had ``before`` arguments
        left."""
        if batch.reply is None:
            batch.client.in_slices = batch.left
            self._count(batch.left - before)
            (self.resting if batch.rests else self.waiting).append(batch)
        else:
            batch.client.in_slices = 0
            self._count(-before)

    def wake(self) -> None:
        """Let those that rest go on: what they need may have been read."""
        self.waiting += self.resting
        self.resting.clear()
