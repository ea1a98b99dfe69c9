"""Jobs: their fields, their states and their ids.

Defines the fields of a job and the format of its id; ``store`` changes jobs.
"""

from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from disque_trio.native import mypyc_attr
from disque_trio.protocol.serialjob import SerialJob

if TYPE_CHECKING:
    from mypy_extensions import i16, i32, i64, u8


WAIT_REPL: Final = 0  # its copies are not confirmed yet, and its producer waits for that
ACTIVE: Final = 1  # held, but not in a queue: delayed, delivered, or a copy
QUEUED: Final = 2  # held, and in the queue of this node
ACKED: Final = 3  # acknowledged; kept until all holders are known to have heard of it
GONE: Final = 4  # no longer in the memory of this node; never sent on the wire

STATE_NAMES: Final = [b"wait-repl", b"active", b"queued", b"acked"]

FLAG_QUEUED_BEFORE: Final = 1  # the next time in the queue is a further delivery
FLAG_WILLQUEUE: Final = 2  # tell the other holders 500 ms before it is queued again
FLAG_DELIVERED: Final = 4  # a client (or another node) got it from here
FLAGS_PRIORITY: Final = 112  # three bits: how urgent it is (see ``priority_of``)
FLAG_TRAILER: Final = 128  # has fields that C Disque does not have (see ``trailers``)
FLAG_RESERVED: Final = 256  # at-most-once, made elsewhere: only its creator may have it queued
FLAG_PAUSED: Final = 512  # must not be queued before its time, which the other holders know
FLAG_NACKED: Final = 1024  # paused because a worker handed it back
FLAG_WATCHED: Final = 2048  # somebody waits for its end (see ``job_waits``)
FLAG_END_UNKNOWN: Final = 4096  # it has ended, but this node does not know how
FLAG_IN_HAND: Final = 8192  # counted as held by a client (see ``limits``, ``consumers``)
FLAG_HOLDS_GROUP: Final = 16384  # the rest of its group waits for it (see ``job_groups``)
FLAGS_HOLDING: Final = 24576  # FLAG_IN_HAND, FLAG_HOLDS_GROUP
# There is more to do when such a job ends: FLAG_TRAILER, FLAG_WATCHED, FLAG_END_UNKNOWN,
# FLAGS_HOLDING.
FLAGS_OF_ENDS: Final = 30848

# In files and on the bus, flags have 8 bits; higher bits never leave this node.
FLAGS_CARRIED: Final = 0b0111_1000  # go wherever the job goes, whether C Disque has them or not
FLAGS_ON_BUS: Final = FLAG_QUEUED_BEFORE | FLAGS_CARRIED
FLAGS_FROM_FILES: Final = FLAG_QUEUED_BEFORE | FLAG_DELIVERED | FLAGS_CARRIED
FLAGS_IN_FILES: Final = 0b0111_1111  # and FLAG_TRAILER if the trailer goes along

MAX_PRIORITY: Final = 7

UINT32_MAX: Final = 2**32 - 1
UINT16_MAX: Final = 2**16 - 1
MAX_ID_MINUTES: Final = 0xFFFF

DEFAULT_REPLICATE: Final = 2  # copies, in a cluster that is large enough; C Disque has 3
DEFAULT_TTL: Final = 86_400  # s
DEFAULT_RETRY: Final = 300  # s

# What a job costs in addition to its body, in bytes: the record with its numbers, its id, its
# places in the registry, the timers and a queue. Measured on CPython 3.11 (resident memory of a
# node with a million jobs): 460 to 490 uncompiled, 310 to 330 compiled. Both builds use the same
# number, so that neither holds more than it should.
JOB_OVERHEAD: Final = 480


# Takings and jobs are never part of a reference cycle, so the garbage collector need not track
# them, which saves its 16-byte header. Only the compiled build can say so.
@mypyc_attr(acyclic=True)
class Taking:
    """To whom and when this node delivered jobs; never changed, as jobs share it.

    Attributes:
        client: id of the client.
        last_seen: when they were delivered, or WORKING was last sent, in ms since the epoch.
        progress: how far the client is with its one job, as it said: a number from 0 to 1, a space,
            and a text; empty: it has not said.
        since: when they were delivered, in ms since the epoch.
    """

    __slots__ = ("client", "last_seen", "progress", "since")

    def __init__(self, client: int, last_seen: int, progress: bytes = b"", since: int = 0) -> None:
        self.client: i64 = client
        self.last_seen: i64 = last_seen
        self.since: i64 = since or last_seen
        self.progress = progress


@mypyc_attr(acyclic=True)
class Place:
    """Where jobs are; never changed, as jobs share it.

    Attributes:
        node: id of a node.
        in_hand: a client of that node has them; otherwise they are in its queues.
    """

    __slots__ = ("in_hand", "node")

    def __init__(self, node: bytes, in_hand: bool) -> None:
        self.node = node
        self.in_hand = in_hand


@mypyc_attr(acyclic=True)
class Adder:
    """A client, or all of one user with the same name or address, that added jobs to a queue.

    Attributes:
        user: the name of its user. origin: the name of the connection, or else its address.
        token: both, the very object that such clients have as ``origin``.
        added: how many jobs it added.
    """

    __slots__ = ("added", "origin", "token", "user")

    def __init__(self, user: bytes, origin: bytes, token: bytes) -> None:
        self.user = user
        self.origin = origin
        self.token = token
        self.added = 0


@mypyc_attr(acyclic=True)
class Job:
    """One job as this node holds it.

    Attributes:
        id: 40 bytes, see ``JobIds``.
        queue: name of its queue.
        body: what the producer sent; None only for an acknowledged job that was never seen here.
        state: WAIT_REPL, ACTIVE, QUEUED, ACKED or GONE.
        flags: FLAG_* bits.
        repl: copies that the producer asked for.
        ctime: creation, in ms since the epoch times a million; strictly increasing per node.
        etime: when it expires, in s since the epoch.
        delay: s before it is first queued.
        retry: s after which it is queued again unless acknowledged; 0: never (at most once).
        nacks, deliveries: negative acknowledgements; further deliveries for other reasons.
        qtime: when it is queued (again), in ms since the epoch; 0: never.
        awake: when the timers look at it next, in ms since the epoch; 0: not in the timers.
        dump: number of the last dump that it is in.
        slot: its index in the timers' bucket.
        taking: its last delivery to a client of this node; None: none since the node started.
        adder: who added it, in as far as this node knows.
        place: where another node has it, as that one said; None: that is not known.
        delivered: nodes that may hold a copy, usually including this one; None: only this one.
            Empty for an acknowledgement of a job that was never seen here.
        confirmed: nodes that have confirmed what is being asked: that they hold a copy
            (WAIT_REPL), or that they know of the acknowledgement (ACKED). None: none.
        gc_retry: attempts so far to tell all holders of the acknowledgement.
    """

    __slots__ = (
        "adder",
        "awake",
        "body",
        "confirmed",
        "ctime",
        "delay",
        "delivered",
        "deliveries",
        "dump",
        "etime",
        "flags",
        "gc_retry",
        "id",
        "nacks",
        "place",
        "qtime",
        "queue",
        "repl",
        "retry",
        "slot",
        "state",
        "taking",
    )

    def __init__(
        self,
        id: bytes,
        queue: bytes,
        body: bytes | None,
        repl: int,
        ctime: int,
        etime: int,
        delay: int,
        retry: int,
        dump: int = 0,
    ) -> None:
        # Compiled, numbers of a known width are stored in the record itself, in this order:
        # pointers first and the narrowest last leaves no gaps.
        self.id = id
        self.queue = queue
        self.body = body
        self.delivered: tuple[bytes, ...] | None = None
        self.confirmed: list[bytes] | None = None
        self.taking: Taking | None = None
        self.place: Place | None = None
        self.adder: Adder | None = None
        self.ctime = ctime  # not i64: a damaged file may contain one of 64 bits
        self.etime: i64 = etime
        self.delay: i64 = delay
        self.retry: i64 = retry
        self.qtime: i64 = 0
        self.awake: i64 = 0
        self.slot: i32 = 0
        self.dump: i32 = dump
        self.repl: i32 = repl
        self.nacks: i32 = 0
        self.deliveries: i32 = 0
        self.flags: i16 = 0  # signed, because ~FLAG is
        self.state: u8 = ACTIVE
        self.gc_retry: u8 = 0


def read_job(found: SerialJob, queue: bytes, etime: int, ctime: int, dump: int) -> Job:
    """The job ``found``, ACTIVE, as read from a file or packet; the other arguments, as in ``Job``,
    override what it says."""
    delay = found.delay
    retry = found.retry
    job = Job(found.id, queue, found.body, found.repl, ctime, etime, delay, retry, dump)
    job.nacks = found.nacks
    job.deliveries = found.deliveries
    return job


def first_due(job: Job) -> int:
    """Return when ``job`` is first queued, in ms since the epoch."""
    return job.ctime // 1_000_000 + int(job.delay) * 1000


def priority_of(job: Job) -> int:
    """Return the priority of ``job``: 7 is delivered first; jobs of C Disque have 0."""
    return (job.flags & FLAGS_PRIORITY) >> 4


def priority_flags(priority: int) -> int:
    """The flags of a job with ``priority``."""
    return priority << 4


class JobIds:
    """Makes the ids of one node: ``D-`` node ``-`` random ``-`` ttl.

    node is the first 8 characters of the node's id; random is 144 bits in base64; ttl is the
    time to live in whole minutes, as 4 hex digits. Its lowest bit is set for jobs that are
    delivered at least once, and clear for those delivered at most once (retry 0). So a node can
    tell when it may forget an id that it never saw, and whether an acknowledgement for it matters.

    Args:
        node_id: 40 bytes.
        entropy: takes a number, returns that many random bytes.
    """

    _POOLED = 256

    def __init__(self, node_id: bytes, entropy: Callable[[int], bytes]) -> None:
        self._prefix = b"D-" + node_id[:8] + b"-"
        self._entropy = entropy
        self._pool = b""
        self._used = 0
        self._last_ttl = -1
        self._last_once = False
        self._ending = b""  # of the last id

    def make(self, ttl: int, retry: int) -> bytes:
        """Return a new id for a job that lives ``ttl`` s and is retried every ``retry`` s."""
        if ttl != self._last_ttl or (retry == 0) != self._last_once:
            self._last_ttl = ttl
            self._last_once = retry == 0
            self._ending = _id_ending(ttl, retry)
        start = self._used
        if start == len(self._pool):
            # One call for many ids: 18 bytes make 24 characters without padding.
            self._pool = b64encode(self._entropy(18 * self._POOLED))
            start = 0
        self._used = start + 24
        return b"%b%b%b" % (self._prefix, self._pool[start : start + 24], self._ending)


def is_delivered(job: Job) -> bool:
    """Whether a client of this node has ``job``. A client that handed it back does not, even if
    the job pauses before it is queued."""
    return job.state == ACTIVE and job.flags & (FLAG_DELIVERED | FLAG_PAUSED) == FLAG_DELIVERED


def is_maker(node: bytes, job: bytes) -> bool:
    """Whether ``node`` made the job with the id ``job``."""
    return job[2:10] == node[:8]


def id_minutes(id: bytes) -> int:
    """A job's time to live, rounded down to minutes, from its id; -1: the id does not tell."""
    try:
        return int(id[36:40], 16)
    except ValueError:
        return -1


def _id_ending(ttl: int, retry: int) -> bytes:
    """The end of an id, which encodes how long its job lives and whether it is retried."""
    minutes = min(ttl // 60, MAX_ID_MINUTES)
    return b"-%04x" % (minutes | 1 if retry else minutes & ~1)
