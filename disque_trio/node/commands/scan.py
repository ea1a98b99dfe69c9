"""QSCAN and JSCAN: iterate over all queues and all jobs of the node, one step per call.

The cursor may be anywhere among the options. A scan begins and ends with cursor 0,
and returns everything that exists throughout exactly once.
"""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Final, TypeVar

from disque_trio.glob import MAX_PATTERN, Glob
from disque_trio.node.commands.arguments import at_least, parse_count
from disque_trio.node.commands.first_jobs import FirstJobs, first_count
from disque_trio.node.commands.job_filter import JobFilter
from disque_trio.node.commands.jobs import describe, wanted_fields
from disque_trio.node.core.changes.state_counts import STAGES, JobStateCounts
from disque_trio.node.core.jobs.job import ACTIVE, FLAG_PAUSED, STATE_NAMES, Job
from disque_trio.node.core.jobs.registry import Registry
from disque_trio.node.core.node import Node
from disque_trio.node.core.queues.disk_views import dead_letter_of
from disque_trio.node.core.queues.queue import Queue
from disque_trio.resp.ints import parse_int
from disque_trio.resp.reply import bulk, encode
from disque_trio.respserver.batches import Reading
from disque_trio.respserver.client import Client
from disque_trio.respserver.command import CommandError
from disque_trio.respserver.commands.arguments import parse_size
from disque_trio.respserver.words import Found, Value

DEFAULT_COUNT: Final = 100
# COUNT is a hint: a step must not stop the node for long; compiled, these take about 4 ms.
MAX_IDS: Final = 1_500
MAX_WHOLE_JOBS: Final = 500

_DESCRIBED: Final = 14  # units of work to tell all about a job, besides those to tell its id

T = TypeVar("T")

BAD_OPTION: Final = "ERR invalid cursor or option name"


def number(problem: str) -> Value:
    """Parses a number of at least 0; ``problem``: the error for anything else."""
    return partial(_number, problem)


def _number(problem: str, word: bytes) -> int:
    return at_least(0, parse_int(word), problem)


def _pattern(word: bytes) -> int:
    if len(word) > MAX_PATTERN:
        raise CommandError(f"ERR MATCH pattern may have at most {MAX_PATTERN} bytes")
    return 0


def _state(word: bytes) -> int:
    name = word.lower()
    if name not in STATE_NAMES and name not in STAGES:
        raise CommandError("ERR Invalid job state name")
    return 0


def _group(word: bytes) -> int:
    if not word:
        raise CommandError("ERR the name of a GROUP is empty")
    return 0


def _text(word: bytes) -> int:
    if not word:
        raise CommandError("ERR the text to look for in a BODY is empty")
    return 0


def _reply(word: bytes) -> int:
    if word.lower() not in (b"all", b"id", b"counts"):
        raise CommandError("ERR Invalid REPLY type, try ID or ALL")
    return 0


_NOT_A_NUMBER: Final = "ERR value is not an integer or out of range"
QSCAN: Final[dict[str, Value]] = {
    "COUNT": parse_count,
    **dict.fromkeys(("MINLEN", "MAXLEN", "IMPORTRATE", "MAXIDLE", "DIED"), number(_NOT_A_NUMBER)),
    "MATCH": _pattern,
}
JSCAN: Final[dict[str, Value]] = {
    "COUNT": parse_count,
    "STATE": _state,
    "MINAGE": number("ERR MINAGE must be a number of seconds"),
    "MAXAGE": number("ERR MAXAGE must be a number of seconds"),
    "MINRETURNS": number("ERR MINRETURNS must be a non negative number"),
    "GROUP": _group,
    "BODY": _text,
    "FIRST": first_count,
    "REPLY": _reply,
    "MAXBODY": parse_size,
}


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
        words: Found,
        most: int,
    ) -> None:
        if words.has("BUSYLOOP"):
            cursor, source = 0, self._all(node, things)
        else:
            # More digits than a cursor can have stand for a place beyond the end.
            text = words.text("cursor") or b"0"
            cursor = int(text) if len(text) < 20 else 1 << 64
            count = min(words.number("COUNT", DEFAULT_COUNT), most)
            cursor, source = self._some(node, things, cursor, count)
        super().__init__(client, node.command_of(args), source)
        self.node = node
        self.cursor = cursor

    def _all(self, node: Node, things: Registry[T]) -> Iterator[T | None]:
        """All of ``things``."""
        return things.in_turn()

    def _some(
        self, node: Node, things: Registry[T], cursor: int, count: int
    ) -> tuple[int, Iterator[T | None]]:
        """The next cursor, and about ``count`` of ``things`` from ``cursor`` on."""
        cursor, found = things.scan(cursor, count)
        return cursor, iter(found)

    def head(self, count: int) -> bytes:
        return b"*2\r\n" + bulk(b"%d" % self.cursor) + b"*%d\r\n" % count


class _QueueReading(_Scan[Queue]):
    """The reply of QSCAN."""

    __slots__ = ("_died", "_glob", "_import_rate", "_maxidle", "_maxlen", "_minlen")

    def __init__(self, node: Node, client: Client, args: list[bytes]) -> None:
        words = node.read(args)
        super().__init__(node, client, args, node.queues.index, words, MAX_IDS)
        self._minlen = words.number("MINLEN", 0)
        self._maxlen = words.number("MAXLEN", -1)
        self._import_rate = words.number("IMPORTRATE", 0)
        self._maxidle = words.number("MAXIDLE", -1)  # s
        self._died = words.number("DIED", -1)  # s
        self._glob = Glob(words.text("MATCH")) if words.has("MATCH") else None

    def takes(self, item: Queue) -> bool:
        node, glob, rate = self.node, self._glob, self._import_rate
        if not (
            item.length >= self._minlen
            and (self._maxlen < 0 or item.length <= self._maxlen)
            and (rate <= 0 or node.federation.import_rate(item) >= rate)
            and (self._maxidle < 0 or node.now - item.atime <= self._maxidle * 1000)
            and (self._died < 0 or _died_within(item, node.now - self._died * 1000))
        ):
            return False
        if glob is None:
            return True
        self.spent += glob.cost(item.name)
        return glob.matches(item.name)

    def entry(self, item: Queue) -> bytes:
        return bulk(item.name)


def _died_within(queue: Queue, since: int) -> bool:
    """Whether a job of ``queue`` became a dead letter at ``since`` (ms) or later."""
    return queue.deaths is not None and queue.deaths.last >= since


def qscan(node: Node, client: Client, args: list[bytes]) -> None:
    """QSCAN."""
    node.batches.read(_QueueReading(node, client, args))


def jscan(node: Node, client: Client, args: list[bytes]) -> None:
    """JSCAN."""
    words = node.read(args)
    if words.has("FIRST"):
        node.batches.read(FirstJobs(node, client, args, words))
        return
    counts = words.text("REPLY").lower() == b"counts"
    reading: type[_JobReading] = _JobCounts if counts else _JobReading
    if words.has("FEWCOPIES"):
        node.few_copies.look()
        if reading is _JobCounts:
            reading = _FewCopiesCounts
    node.batches.read(reading(node, client, args, words))


class _JobReading(_Scan[Job]):
    """The reply of JSCAN."""

    __slots__ = ("_fields", "_wanted", "_whole")

    def __init__(self, node: Node, client: Client, args: list[bytes], words: Found) -> None:
        self._whole = words.text("REPLY").lower() == b"all"
        self._fields = wanted_fields(words)
        self._wanted = JobFilter(words)
        most = MAX_WHOLE_JOBS if self._whole else MAX_IDS
        super().__init__(node, client, args, node.store.jobs, words, most)

    def _reads(self, node: Node) -> bool:
        """Whether it has to look at jobs on disk; no client has these."""
        return node.holding and not self._wanted.taken

    def _all(self, node: Node, things: Registry[Job]) -> Iterator[Job | None]:
        return node.paging.views.scan_all(MAX_IDS) if self._reads(node) else things.in_turn()

    def _some(
        self, node: Node, things: Registry[Job], cursor: int, count: int
    ) -> tuple[int, Iterator[Job | None]]:
        if not self._reads(node):
            return super()._some(node, things, cursor, count)
        return node.paging.views.scan(cursor, count)

    def takes(self, item: Job) -> bool:
        self.spent += self._wanted.work(item)
        return self._wanted.takes(self.node, item)

    def entry(self, item: Job) -> bytes:
        if self._whole:
            self.spent += _DESCRIBED
            return encode(describe(self.node, item, *self._fields), self.client.resp)
        return b"+%b\r\n" % item.id


class _JobCounts(_JobReading):
    """The reply of JSCAN REPLY counts: for each queue its name and how many jobs are delayed, in
    hand and dead; without queues that have none of these."""

    __slots__ = ("_tallies",)

    def __init__(self, node: Node, client: Client, args: list[bytes], words: Found) -> None:
        self._tallies: dict[bytes, JobStateCounts] = {}
        super().__init__(node, client, args, words)

    def _reads(self, node: Node) -> bool:
        # Of those on disk, what counts is known without reading any.
        return super()._reads(node) and not self._wanted.only_queues()

    def _all(self, node: Node, things: Registry[Job]) -> Iterator[Job | None]:
        found = super()._all(node, things)
        return found if self._reads(node) else chain(found, self._later(node))

    def _some(
        self, node: Node, things: Registry[Job], cursor: int, count: int
    ) -> tuple[int, Iterator[Job | None]]:
        following, found = super()._some(node, things, cursor, count)
        if cursor == 0 and not self._reads(node):
            found = chain(found, self._later(node))
        return following, found

    def _later(self, node: Node) -> Iterator[Job]:
        """For each queue with jobs that lie on disk until their delay is over, or dead letters, one
        that stands for all of these."""
        for queue, number in node.paging.aside.later().items():
            job = Job(b"", queue, b"", 1, 0, 0, 0, 0)
            job.state = ACTIVE
            job.flags = FLAG_PAUSED
            yield job
            tally = self._tallies.get(queue)
            if tally is not None:
                tally.delayed += number - 1
        for queue, number in node.paging.views.dead().items():
            yield dead_letter_of(queue)
            tally = self._tallies.get(queue)
            if tally is not None:
                tally.dead += number - 1

    def takes(self, item: Job) -> bool:
        """Count ``item``; tell about its queue if it is the first job there that counts."""
        if not super().takes(item):
            return False
        tallies = self._tallies
        tally = tallies.get(item.queue)
        if tally is None:
            tally = tallies[item.queue] = JobStateCounts()
        known = tally.delayed or tally.in_hand or tally.dead
        self.node.scatter_gather.state_counter.count(tally, item)
        return not known and bool(tally.delayed or tally.in_hand or tally.dead)

    def entry(self, item: Job) -> bytes:
        tally = self._tallies[item.queue]
        return encode([item.queue, tally.delayed, tally.in_hand, tally.dead])


class _FewCopiesCounts(_JobReading):
    """The reply of JSCAN FEWCOPIES REPLY counts: each queue, and how many of its jobs have too few
    copies."""

    __slots__ = ("_numbers",)

    def __init__(self, node: Node, client: Client, args: list[bytes], words: Found) -> None:
        self._numbers: dict[bytes, int] = {}
        super().__init__(node, client, args, words)

    def takes(self, item: Job) -> bool:
        """Count ``item``; tell about its queue if it is the first job there that counts."""
        if not super().takes(item):
            return False
        number = self._numbers.get(item.queue, 0)
        self._numbers[item.queue] = number + 1
        return number == 0

    def entry(self, item: Job) -> bytes:
        return encode([item.queue, self._numbers[item.queue]])
