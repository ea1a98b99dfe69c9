"""The keys of ADDJOB UNIQUE that this node knows of: which job has which key of which queue.

There is an entry for a job that this node holds, and for one that it voted for (see ``claims``),
wherever that is. It goes when the job ends or, if the key was given a time, when that is over. If a
job ended elsewhere and this node was not told, its entry stays until the job's time to live is
over: a node that wants the key then asks the others whether the job still exists.

When memory is short, keys that were given a time, and whose jobs this node does not hold, go before
jobs are refused; those that end first go first. To find
them, keys are kept in spans of about a minute; within a span, the one that came last is found
first. So a node with a million keys pays little for this order.
"""

import hashlib
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from disque_trio.node.core.jobs.job import ACKED, WAIT_REPL, Job, is_maker
from disque_trio.node.core.jobs.key_messages import FREE, KeyMessage
from disque_trio.node.core.jobs.recent_ids import RecentIds
from disque_trio.node.core.jobs.registry import SHARDS, Registry
from disque_trio.node.core.jobs.replicas import Replicas
from disque_trio.node.core.jobs.trailers import Trailers
from disque_trio.node.core.rpc.services import Services
from disque_trio.protocol import bus
from disque_trio.protocol.keyrecord import ADDED, MAX_UNTIL, KeyRecord, fits
from disque_trio.protocol.trailer import STARTED, UNTIL_START, Trailer
from disque_trio.respserver.memory import KEYS, MEMORY

_SPAN: Final = 16  # bits of a time in ms: a span has about 65 s


class KeyEnds:
    """The places of keys (see ``uniques.place``), by the time at which they end."""

    def __init__(self) -> None:
        self._spans: dict[int, dict[bytes, None]] = {}
        self._numbers: list[int] = []  # of the spans, as a heap

    def add(self, place: bytes, until: int) -> None:
        """Add a key that ends at ``until`` (ms since the epoch), unless it is there."""
        number = until >> _SPAN
        span = self._spans.get(number)
        if span is None:
            span = self._spans[number] = {}
            heappush(self._numbers, number)
        span[place] = None

    def remove(self, place: bytes, until: int) -> None:
        """Remove a key that ends at ``until``, if it is there."""
        span = self._spans.get(until >> _SPAN)
        if span is not None:
            span.pop(place, None)

    def pop(self) -> bytes:
        """Remove one of those that end first, and return it; empty: there is none."""
        numbers = self._numbers
        while numbers:
            span = self._spans[numbers[0]]
            if span:
                # The first would be found behind the gaps of all that were removed before it.
                return span.popitem()[0]
            del self._spans[heappop(numbers)]
        return b""

    def forget(self, now: int) -> None:
        """Forget the spans before that of ``now`` (ms since the epoch)."""
        numbers = self._numbers
        while numbers and numbers[0] < now >> _SPAN:
            del self._spans[heappop(numbers)]

    def clear(self) -> None:
        """Forget everything."""
        self._spans.clear()
        self._numbers.clear()


VOTERS: Final = 3  # nodes to ask for a key
ENTRY_OVERHEAD: Final = 400  # bytes, in addition to key and queue
MAX_REFUSED: Final = 10_000  # jobs whose copies are refused; up to twice as many are remembered
MAX_EVICTIONS: Final = 5_000  # keys at a time; about ten milliseconds
TELL_EVERY: Final = 60_000  # ms
_SLACK: Final = 60_000  # ms by which the clocks of nodes may differ


class Entry:
    """A key that a job has.

    Attributes:
        queue, key, id: the job ``id`` of ``queue`` has the key.
        state: PENDING, CONFIRMED or ADDED (see ``keyrecord``).
        lasts: it stays until ``until``, whatever becomes of the job.
        until: when it goes in any case, in ms since the epoch.
        written: whether the append-only file has a record of it.
        shared: whether it is counted for the users who may add to the queue.
    """

    __slots__ = ("id", "key", "lasts", "queue", "shared", "state", "until", "written")

    def __init__(
        self, queue: bytes, key: bytes, id: bytes, state: int, lasts: bool, until: int
    ) -> None:
        self.queue = queue
        self.key = key
        self.id = id
        self.state = state
        self.lasts = lasts
        self.until = until
        self.written = False
        self.shared = False


class Uniques:
    """The keys that one node knows of.

    Args:
        replicas: knows which nodes may hold a job.
        trailers: have the keys of the jobs held.

    Attributes:
        entries: by queue and key (see ``place``).
        by_queue: how many there are of each queue that has any.
        lives: whether this node knows that the job with this id has not ended.
        total_evicted: number of keys that went because memory was short.
        warn: called at most once a minute with what happened, for the log.
        adding: ids of the jobs that this node is about to add, or gave up: nobody can say yet what
            becomes of them.
    """

    def __init__(self, services: Services, replicas: Replicas, trailers: Trailers) -> None:
        self.entries: Registry[Entry] = Registry()
        self.adding: dict[bytes, None] = {}
        self._machine = services.machine
        self._peers = services.peers
        self._replicas = replicas
        self._trailers = trailers
        self._notices = services.notices
        self._packets = services.packets
        self._refused = RecentIds(MAX_REFUSED)
        self._swept = 0
        self.by_queue: dict[bytes, int] = {}
        self.lives: Callable[[bytes], bool] = _nobody_knows
        self.total_evicted = 0
        self.warn: Callable[[str], None] = _silent
        self._told = 0
        self._ends = KeyEnds()  # of those that may go when memory is short

    @property
    def own(self) -> bytes:
        """The id of this node."""
        return self._replicas.own

    # ---- entries ----------------------------------------------------------------------------

    def find(self, queue: bytes, key: bytes) -> Entry | None:
        """The entry of the key, unless the key is free."""
        entry = self.entries.get(place(queue, key))
        if entry is not None and entry.until <= self._machine.now:
            self._remove(entry)
            return None
        return entry

    def of(self, job: Job) -> Entry | None:
        """The entry of the key of ``job``, if it has one."""
        trailer = self._trailers.of(job)
        if trailer is None or not trailer.has_key:
            return None
        entry = self.find(_queue_of(job, trailer), trailer.key)
        return entry if entry is not None and entry.id == job.id else None

    def add(
        self, queue: bytes, key: bytes, id: bytes, state: int, lasts: bool, until: int
    ) -> Entry:
        """Give a key, which must be free, to the job ``id``."""
        entry = Entry(queue, key, id, state, lasts, until)
        where = place(queue, key)
        self.entries.put(where, entry)
        self.by_queue[queue] = self.by_queue.get(queue, 0) + 1
        if lasts:
            self._ends.add(where, until)
        memory = self._machine.memory
        memory.used += counted(entry)
        if memory.shares is not None:
            entry.shared = True
            memory.shares.add(queue, KEYS, 1)
            memory.shares.add(queue, MEMORY, counted(entry))
        return entry

    def raise_to(self, entry: Entry, state: int) -> None:
        """Raise the state of ``entry`` to ``state``, unless it is higher."""
        if entry.state < state:
            entry.state = state
            if entry.lasts:
                self.note(entry)

    def drop(self, entry: Entry) -> None:
        """Free the key of ``entry``."""
        self._remove(entry)
        if entry.written and self._machine.journaling:
            self._machine.journal.append(_record(entry, 0))

    def _remove(self, entry: Entry) -> None:
        where = place(entry.queue, entry.key)
        self.entries.drop(where)
        left = self.by_queue[entry.queue] - 1
        if left:
            self.by_queue[entry.queue] = left
        else:
            del self.by_queue[entry.queue]
        if entry.lasts:
            self._ends.remove(where, entry.until)
        memory = self._machine.memory
        memory.used -= counted(entry)
        if entry.shared and memory.shares is not None:
            memory.shares.add(entry.queue, KEYS, -1)
            memory.shares.add(entry.queue, MEMORY, -counted(entry))

    def note(self, entry: Entry) -> None:
        """Add ``entry`` to the journal, unless C nodes have to be able to load that."""
        if self._machine.journaling and not self._peers.plain:
            self._machine.journal.append(_record(entry, entry.until))
            entry.written = True

    def may_go(self, entry: Entry) -> None:
        """Note that the job of ``entry`` is no longer here: if the key lasts, it may go when memory
        is short."""
        if entry.lasts:
            self._ends.add(place(entry.queue, entry.key), entry.until)

    def make_room(self, wanted: int) -> None:
        """Drop keys that may go until at most ``wanted`` bytes are used, or many have gone."""
        memory = self._machine.memory
        before = self.total_evicted
        for _ in range(MAX_EVICTIONS):
            where = self._ends.pop() if memory.used > wanted else b""
            if not where:
                break
            entry = self.entries.get(where)
            if entry is not None and entry.lasts and not self.lives(entry.id):
                self.total_evicted += 1
                self.drop(entry)
        now = self._machine.now
        if self.total_evicted > before and not self._told <= now < self._told + TELL_EVERY:
            self._told = now
            self.warn("memory is short: keys of ADDJOB UNIQUE FOR end early, the next ones first")

    # ---- jobs that have keys ----------------------------------------------------------------

    def hold(self, job: Job, state: int) -> None:
        """Note that this node holds ``job`` now, so it grants the job's key, if any, to no
        other."""
        trailer = self._trailers.of(job)
        if trailer is None or not trailer.has_key or job.state == ACKED:
            return
        queue = _queue_of(job, trailer)
        entry = self.find(queue, trailer.key)
        if entry is None:
            until = min(trailer.key_until or _end_of(job), MAX_UNTIL)
            # What a client of this node adds has been checked.
            fine = state == ADDED or fits(trailer.key, job.id, until, state)
            if fine and until > self._machine.now:
                lasts = trailer.key_until > 0
                self.add(queue, trailer.key, job.id, state, lasts, until)
        elif entry.id == job.id:
            self.raise_to(entry, state)

    def start(self, job: Job) -> None:
        """Free the key of ``job``, which a client gets, if the job has it only until then."""
        trailer = self._trailers.of(job)
        if trailer is None or trailer.key_state != UNTIL_START:
            return
        self.note_start(job)
        queue = _queue_of(job, trailer)
        nodes = dict.fromkeys([*self.voters(queue, trailer.key), *self._replicas.of(job)])
        self.tell(KeyMessage(FREE, queue, trailer.key, job.id), list(nodes))

    def note_start(self, job: Job) -> None:
        """Note that a client has, or had, ``job``: if it had its key only until then, this is
        free."""
        trailer = self._trailers.of(job)
        if trailer is not None and trailer.key_state == UNTIL_START:
            entry = self.of(job)
            trailer.key_state = STARTED
            if entry is not None:
                # The file has the job with its key.
                entry.written = not self._peers.plain
                self.drop(entry)

    def extend(self, job: Job) -> None:
        """Keep the key of ``job``, whose time to live may have changed, for as long as that."""
        entry = self.of(job)
        if entry is not None and not entry.lasts:
            entry.until = max(entry.until, _end_of(job))
            if entry.written:
                self.note(entry)

    def outlives(self, job: Job) -> None:
        """Keep the key of ``job``, if it was given a time, in the file, which is about to drop the
        job."""
        entry = self.of(job)
        if entry is not None:
            self._outlive(entry)

    def _outlive(self, entry: Entry) -> None:
        if entry.lasts and not entry.written:
            self.note(entry)

    def left(self, job: Job) -> None:
        """Update the key of ``job``, which leaves the memory of this node."""
        if job.state == WAIT_REPL:
            self.adding.pop(job.id, None)  # it was not added yet
        else:
            self.ended(job)

    def ended(self, job: Job) -> None:
        """Update the key of ``job``, which ends in whatever way."""
        self.adding.pop(job.id, None)
        entry = self.of(job)
        if entry is not None:
            self.end(entry, self._replicas.of(job))

    def end(self, entry: Entry, holders: tuple[bytes, ...]) -> None:
        """Update ``entry``, whose job ends; ``holders`` of the job."""
        if entry.lasts:
            self.raise_to(entry, ADDED)
            self._outlive(entry)
            self.may_go(entry)
            return
        self.drop(entry)
        own = self._replicas.own
        # One holder tells the voters that hold no copy.
        makers = [id for id in holders if is_maker(id, entry.id)] or [min(holders, default=own)]
        if makers[0] == own and not self._machine.loading:
            others = [id for id in self.voters(entry.queue, entry.key) if id not in holders]
            self.tell(KeyMessage(FREE, entry.queue, entry.key, entry.id), others)

    # ---- other nodes ------------------------------------------------------------------------

    def voters(self, queue: bytes, key: bytes) -> list[bytes]:
        """The nodes that decide which job has a key: those that rank first by rendezvous hashing of
        all known nodes, including this one."""
        nodes = [self._replicas.own, *self._peers.everyone()]
        if len(nodes) > VOTERS:
            what = place(queue, key)
            ranked = sorted(
                [(hashlib.blake2b(id + what, digest_size=8).digest(), id) for id in nodes]
            )
            nodes = [id for _, id in ranked[:VOTERS]]
        return nodes

    def tell(self, message: KeyMessage, nodes: list[bytes]) -> None:
        """Tell ``nodes`` except this one, at the end of the turn, after copies of jobs."""
        if nodes:
            packet = self._packets.fields(bus.QUESTION, message.untracked())
            for id in nodes:
                if id != self._replicas.own and self._peers.understands(id):
                    self._notices.fields.append((id, packet))

    def refuse(self, id: bytes) -> None:
        """Take no more copies of the job ``id``: it was given up."""
        self._refused.add(id)

    def refuses(self, id: bytes) -> bool:
        """Whether copies of the job ``id``, which was given up, are refused."""
        return self._refused.has(id)

    # ---- files, and time --------------------------------------------------------------------

    def load(self, record: KeyRecord) -> None:
        """Load a record of the append-only file; it replaces any older one of the same key."""
        entry = self.entries.get(place(record.queue, record.key))
        if entry is not None:
            self._remove(entry)
        if record.until > self._machine.now:
            queue, key, id, until, state, lasts = record
            self.add(queue, key, id, state, lasts, until).written = True

    def load_end(self, job: Job) -> None:
        """Free the key of ``job``, which the file takes back, if it is to last and no record has
        said that the job was added: it was given up here, or left to another node. If it has the
        key all the same, a record of that follows."""
        entry = self.of(job)
        if entry is not None:
            self.load_end_of(entry)

    def load_end_of(self, entry: Entry) -> None:
        """Do ``load_end`` for the job that has the key of ``entry``."""
        plain = self._peers.plain  # then there are no such records
        if entry.lasts and entry.state < ADDED and not plain:
            self._remove(entry)

    def dump_shard(self, number: int) -> list[bytes]:
        """The records of the keys in shard ``number`` that are not free; none if C nodes have to be
        able to load the file."""
        records: list[bytes] = []
        plain = self._peers.plain
        for entry in self.entries.shards[number].values():
            if entry.until > self._machine.now:
                entry.written = not plain
                if not plain:
                    records.append(_record(entry, entry.until))
        return records

    def ending_with(self, job: Job) -> list[bytes]:
        """The record that frees the key of ``job``, if that does not outlast it."""
        entry = self.of(job)
        return [] if entry is None or entry.lasts else [_record(entry, 0)]

    def sweep(self, count: int) -> None:
        """Forget the expired keys in the next ``count`` shards."""
        now = self._machine.now
        self._ends.forget(now)
        if self.entries.count == 0:
            return
        for _ in range(count):
            self._swept = (self._swept + 1) % SHARDS
            for entry in list(self.entries.shards[self._swept].values()):
                if entry.until <= now:
                    self._remove(entry)
        self.entries.tidy(count)

    def flush(self) -> None:
        """Forget everything; the caller clears the memory account."""
        self.entries.hand_over()
        self.by_queue.clear()
        self._ends.clear()
        self.adding.clear()


def _queue_of(job: Job, trailer: Trailer) -> bytes:
    """The queue of the key of ``job``: the one that the job was added to."""
    return trailer.added_to or job.queue


def place(queue: bytes, key: bytes) -> bytes:
    """Queue and key in one text."""
    return b"%d:%b%b" % (len(queue), queue, key)


def counted(entry: Entry) -> int:
    """The size of ``entry`` in the memory account, in bytes."""
    return ENTRY_OVERHEAD + len(entry.queue) + 2 * len(entry.key)


def _end_of(job: Job) -> int:
    """When the key of ``job`` is free at a node that holds it, in ms since the epoch."""
    return min(job.etime * 1000 + 1000, MAX_UNTIL)


def life_of(job: Job) -> int:
    """Return the time after which no node holds ``job`` any more, in ms since the epoch."""
    return job.etime * 1000 + _SLACK


def _nobody_knows(id: bytes) -> bool:
    return False


def _silent(what: str) -> None:
    pass


def _record(entry: Entry, until: int) -> bytes:
    return KeyRecord(entry.queue, entry.key, entry.id, until, entry.state, entry.lasts).pack()
