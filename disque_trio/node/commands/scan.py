"""QSCAN and JSCAN: iterate over all queues and all jobs of the node, one step per call.

The cursor may be anywhere among the options. A scan begins and ends with cursor 0,
and returns everything that exists throughout exactly once.
"""

from collections.abc import Iterator
from typing import Final, TypeVar

from disque_trio.glob import MAX_PATTERN, Glob
from disque_trio.node.commands.jobs import describe
from disque_trio.node.core.changes.contents import is_delivered
from disque_trio.node.core.changes.tallies import Tally
from disque_trio.node.core.jobs.job import STATE_NAMES, Job
from disque_trio.node.core.jobs.registry import Registry
from disque_trio.node.core.node import Node
from disque_trio.node.core.queues.queue import Queue
from disque_trio.resp.ints import parse_int
from disque_trio.resp.reply import bulk, encode
from disque_trio.respserver.batches import Reading
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import SYNTAX

DEFAULT_COUNT: Final = 100
MAX_COUNT: Final = 1 << 30
# COUNT is a hint: a step must not stop the node for long; compiled, these take about 4 ms.
MAX_IDS: Final = 1_500
MAX_WHOLE_JOBS: Final = 500

_DESCRIBED: Final = 14  # units of work to tell all about a job, besides those to tell its id

T = TypeVar("T")

_BAD_OPTION: Final = "ERR invalid cursor or option name"


class _Options:
    """The common options of QSCAN and JSCAN: the cursor, COUNT and BUSYLOOP.

    Walks over the arguments; the command reads its own options with ``word`` and ``number``.
    """

    def __init__(self, args: list[bytes]) -> None:
        self.cursor = 0
        self.count = DEFAULT_COUNT
        self.busyloop = False
        self._args = args
        self._next = 1
        self._has_cursor = False

    def option(self) -> bytes | None:
        """The next option that is not a shared one, in lower case; None at the end."""
        while self._next < len(self._args):
            text = self._args[self._next]
            self._next += 1
            option = text.lower()
            if option == b"count" and self._more():
                count = self.number("ERR COUNT must be a number greater than zero")
                if count == 0:
                    raise CommandError("ERR COUNT must be a number greater than zero")
                self.count = min(count, MAX_COUNT)
            elif option == b"busyloop":
                self.busyloop = True
            elif text.isdigit():
                if self._has_cursor:
                    raise CommandError(SYNTAX)
                self._has_cursor = True
                # More digits than a cursor can have stand for a place beyond the end.
                self.cursor = int(text) if len(text) < 20 else 1 << 64
            else:
                return option
        return None

    def _more(self) -> bool:
        return self._next < len(self._args)

    def word(self) -> bytes:
        """The value of the option just read."""
        if not self._more():
            raise CommandError(_BAD_OPTION)
        self._next += 1
        return self._args[self._next - 1]

    def number(self, problem: str) -> int:
        """The value of the option just read, a number of at least 0."""
        value = parse_int(self.word())
        if value is None or value < 0:
            raise CommandError(problem)
        return value


class QueueScan:
    """The options of QSCAN.

    Attributes:
        options: those that it shares with JSCAN.
        minlen: minimum length.
        maxlen: maximum; -1: any.
        import_rate: minimum; 0 or below: any.
        maxidle: s; -1: any.
        pattern: for names; None: any name.

    Raises:
        CommandError: they are wrong.
    """

    def __init__(self, args: list[bytes]) -> None:
        options = self.options = _Options(args)
        self.pattern: bytes | None = None
        self.minlen = -1
        self.maxlen = -1
        self.import_rate = -1
        self.maxidle = -1
        not_a_number = "ERR value is not an integer or out of range"
        while (option := options.option()) is not None:
            if option == b"minlen":
                self.minlen = options.number(not_a_number)
            elif option == b"maxlen":
                self.maxlen = options.number(not_a_number)
            elif option == b"importrate":
                self.import_rate = options.number(not_a_number)
            elif option == b"maxidle":
                self.maxidle = options.number(not_a_number)
            elif option == b"match":
                self.pattern = options.word()
                if len(self.pattern) > MAX_PATTERN:
                    raise CommandError(f"ERR MATCH pattern may have at most {MAX_PATTERN} bytes")
            else:
                raise CommandError(_BAD_OPTION)


class _Scan(Reading[T]):
    """The reply of a scan: the next cursor, and what was found.

    Args:
        things: to scan: all with BUSYLOOP, otherwise about ``most`` at a time.

    Attributes:
        cursor: the next one.
        node: is scanned.
    """

    __slots__ = ("cursor", "node")

    def __init__(
        self,
        node: Node,
        client: Client,
        args: list[bytes],
        things: Registry[T],
        options: _Options,
        most: int,
    ) -> None:
        source: Iterator[T]
        if options.busyloop:
            cursor, source = 0, things.in_turn()
        else:
            cursor, found = things.scan(options.cursor, min(options.count, most))
            source = iter(found)
        super().__init__(client, node.command_of(args), source)
        self.node = node
        self.cursor = cursor

    def head(self, count: int) -> bytes:
        return b"*2\r\n" + bulk(b"%d" % self.cursor) + b"*%d\r\n" % count


class _QueueReading(_Scan[Queue]):
    """The reply of QSCAN."""

    __slots__ = ("_glob", "_scan")

    def __init__(self, node: Node, client: Client, args: list[bytes]) -> None:
        self._scan = scan = QueueScan(args)
        super().__init__(node, client, args, node.queues.index, scan.options, MAX_IDS)
        self._glob = None if scan.pattern is None else Glob(scan.pattern)

    def takes(self, item: Queue) -> bool:
        scan, node, glob = self._scan, self.node, self._glob
        if not (
            item.length >= scan.minlen
            and (scan.maxlen < 0 or item.length <= scan.maxlen)
            and (scan.import_rate <= 0 or node.federation.import_rate(item) >= scan.import_rate)
            and (scan.maxidle < 0 or node.now - item.atime <= scan.maxidle * 1000)
        ):
            return False
        if glob is None:
            return True
        self.spent += glob.cost(item.name)
        return glob.matches(item.name)

    def entry(self, item: Queue) -> bytes:
        return bulk(item.name)


def qscan(node: Node, client: Client, args: list[bytes]) -> None:
    """QSCAN [cursor] [COUNT n] [BUSYLOOP] [MINLEN n] [MAXLEN n] [IMPORTRATE n] [MAXIDLE s]
    [MATCH pattern]."""
    node.batches.read(_QueueReading(node, client, args))


class _JobFilter:
    """The jobs that JSCAN returns.

    Attributes:
        queues, states: one of these, if any are given. Repeating one costs nothing.
        min_age, max_age: s since the job was added; -1: not given.
        returns: how often it was queued again, at least.
        group: its group; empty: any.
        headers: names and values, all of which it has.
        taken: a client of this node has it, and has yet to acknowledge it.
    """

    def __init__(self) -> None:
        self.queues: dict[bytes, None] = {}  # in order, for COMMAND GETKEYS
        self.states: set[int] = set()
        self.min_age = -1
        self.max_age = -1
        self.returns = 0
        self.group = b""
        self.headers: dict[tuple[bytes, bytes], None] = {}
        self.taken = False

    def read(self, option: bytes, options: _Options) -> bool:
        """Read the value of ``option`` if it is a filter, otherwise return False. Raises
        ``CommandError``."""
        if option == b"queue":
            self.queues[options.word()] = None
        elif option == b"state":
            state = options.word().lower()
            if state not in STATE_NAMES:
                raise CommandError("ERR Invalid job state name")
            self.states.add(STATE_NAMES.index(state))
        elif option == b"minage":
            self.min_age = options.number("ERR MINAGE must be a number of seconds")
        elif option == b"maxage":
            self.max_age = options.number("ERR MAXAGE must be a number of seconds")
        elif option == b"minreturns":
            self.returns = options.number("ERR MINRETURNS must be a non negative number")
        elif option == b"group":
            self.group = options.word()
            if not self.group:
                raise CommandError("ERR the name of a GROUP is empty")
        elif option == b"header":
            self.headers[options.word(), options.word()] = None
        elif option == b"taken":
            self.taken = True
        else:
            return False
        return True

    def takes(self, node: Node, job: Job) -> bool:
        """Whether ``job`` is one of them."""
        if (
            job.body is None
            or (self.queues and job.queue not in self.queues)
            or (self.states and job.state not in self.states)
            or int(job.nacks + job.deliveries) < self.returns
            or (self.taken and not (job.retry and is_delivered(job)))
        ):
            return False
        age = (node.now - job.ctime // 1_000_000) // 1000
        if age < self.min_age or 0 <= self.max_age < age:
            return False
        return not (self.headers or self.group) or self._carries(node, job)

    def _carries(self, node: Node, job: Job) -> bool:
        """Whether ``job`` has the group and the headers."""
        trailer = node.store.trailers.of(job)
        if trailer is None or (self.group and trailer.group != self.group):
            return False
        there = list(zip(trailer.headers[::2], trailer.headers[1::2], strict=True))
        return all(header in there for header in self.headers)


class JobScan:
    """The options of JSCAN.

    Attributes:
        options: those that it shares with QSCAN.
        wanted: the jobs that it returns.
        whole: return all fields of the jobs, not just their ids.
        counts: return only how many there are, by queue.

    Raises:
        CommandError: they are wrong.
    """

    def __init__(self, args: list[bytes]) -> None:
        options = self.options = _Options(args)
        self.wanted = _JobFilter()
        self.whole = False
        self.counts = False
        while (option := options.option()) is not None:
            if option == b"reply":
                reply = options.word().lower()
                if reply not in (b"all", b"id", b"counts"):
                    raise CommandError("ERR Invalid REPLY type, try ID or ALL")
                self.whole = reply == b"all"
                self.counts = reply == b"counts"
            elif not self.wanted.read(option, options):
                raise CommandError(_BAD_OPTION)


def jscan(node: Node, client: Client, args: list[bytes]) -> None:
    """JSCAN [cursor] [COUNT n] [BUSYLOOP] [QUEUE q] ... [STATE s] ... [MINAGE s] [MAXAGE s]
    [MINRETURNS n] [GROUP name] [HEADER name value] ... [TAKEN] [REPLY all|id|counts]."""
    scan = JobScan(args)
    reading = _JobCounts if scan.counts else _JobReading
    node.batches.read(reading(node, client, args, scan))


class _JobReading(_Scan[Job]):
    """The reply of JSCAN."""

    __slots__ = ("_scan",)

    def __init__(self, node: Node, client: Client, args: list[bytes], scan: JobScan) -> None:
        most = MAX_WHOLE_JOBS if scan.whole else MAX_IDS
        super().__init__(node, client, args, node.store.jobs, scan.options, most)
        self._scan = scan

    def takes(self, item: Job) -> bool:
        return self._scan.wanted.takes(self.node, item)

    def entry(self, item: Job) -> bytes:
        if self._scan.whole:
            self.spent += _DESCRIBED
            return encode(describe(self.node, item), self.client.resp)
        return b"+%b\r\n" % item.id


class _JobCounts(_JobReading):
    """The reply of JSCAN REPLY counts: for each queue its name and how many jobs are delayed, in
    hand and dead; without queues that have none of these."""

    __slots__ = ("_tallies",)

    def __init__(self, node: Node, client: Client, args: list[bytes], scan: JobScan) -> None:
        super().__init__(node, client, args, scan)
        self._tallies: dict[bytes, Tally] = {}

    def takes(self, item: Job) -> bool:
        """Count ``item``; tell about its queue if it is the first job there that counts."""
        if not super().takes(item):
            return False
        tallies = self._tallies
        tally = tallies.get(item.queue)
        if tally is None:
            tally = tallies[item.queue] = Tally()
        known = tally.delayed or tally.in_hand or tally.dead
        self.node.sweeps.tallies.count(tally, item)
        return not known and bool(tally.delayed or tally.in_hand or tally.dead)

    def entry(self, item: Job) -> bytes:
        tally = self._tallies[item.queue]
        return encode([item.queue, tally.delayed, tally.in_hand, tally.dead])
