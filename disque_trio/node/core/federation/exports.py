"""Gives jobs to other nodes whose consumers wait for them.

Another node asks (NEEDJOBS) and gets a part of the queue (YOURJOBS) or, if there is nothing to
spare, the next job that arrives. A node that takes jobs fast gets those that arrive within a
millisecond in one packet, or sooner if there are enough.

A node that knows SETTLED grants credit in it: it gets (GIVEN) as many jobs as it says, as they
come, without asking again. It renews that while its clients take them; what it does not renew ends
after a tenth of a second.
"""

from collections import deque
from functools import partial
from typing import Final, NamedTuple

from disque_trio.eventlog import schema
from disque_trio.node.core.jobs.job import (
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_HOLDS_GROUP,
    FLAG_PAUSED,
    Job,
    Place,
)
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.given_codec import GivenWriter
from disque_trio.node.core.queues.need_jobs import (
    ALL_MAX,
    COUNT_MAX,
    FRESH,
    RECENT,
    SOURCES_MAX,
    WINDOW,
)
from disque_trio.node.core.queues.queue import PAUSED_OUT, Queue
from disque_trio.node.core.queues.store import TIME_ERROR
from disque_trio.protocol import bus, given
from disque_trio.protocol.bus import QueueMessage

# How long a request is remembered, in ms: until it is repeated, if jobs are still wanted.
ASKED_ALL: Final = ALL_MAX + 1_000
ASKED_SOURCES: Final = SOURCES_MAX + 100
WORTH: Final = 50  # jobs that are worth a packet to a node that takes them fast
RESERVED: Final = 40  # ms until jobs that clients here may take are offered to others again
MANY_QUEUES: Final = 10_000  # for which requests are remembered
MAX_NAME: Final = 1_000  # length limit for their names, in bytes
UNSURE: Final = 5_000  # ms after which a node has read the jobs that were sent to it
MANY_GIVEN: Final = 500  # ms in which one node got jobs that it may not have read
LOOKED_AT: Final = 1_000  # queued jobs, to find some for a C node
MAX_GIVEN_BYTES: Final = 4 << 20  # bytes of jobs in one YOURJOBS, unless the first is longer


class Wanted(NamedTuple):
    """A request of another node for jobs, of a queue or by a pattern, of which some are missing.

    Attributes:
        jobs: how many more.
        time: when it asked.
        until: when to forget it, in ms.
        waits: a client of it waited.
        limited: queues with ``RATE`` or ``ACTIVE`` of which it has got jobs since.
        not_yet: queues whose rate allows clients of it no job yet.
        credit: it gets as many as it asked for, as they come, while that is fresh.
        given: when it last got some, in ms.
    """

    jobs: int
    time: int
    until: int
    waits: bool
    limited: frozenset[bytes] = frozenset()
    not_yet: frozenset[bytes] = frozenset()
    credit: bool = False
    given: int = 0


class Exports:
    """Serves the requests of other nodes for the jobs of this node.

    Attributes:
        asked_for: by queue, the ids of nodes that want jobs and got none, with their requests.
        soon: queues to offer at ``soon_at``, ms, and how many jobs each can spare by then.
        later: when to offer which queue, in ms, the next one first.
        stopping: this node is about to stop, and gives nothing any more.
    """

    def __init__(self, core: Core) -> None:
        store = core.store
        self._paging = core.paging
        self.asked_for: dict[bytes, dict[bytes, Wanted]] = {}
        self.soon: dict[bytes, int] = {}
        self.soon_at = 0
        self.later: deque[tuple[int, bytes]] = deque()
        self.stopping = False
        self._store = store
        self._machine = store.machine
        self._notes = store.notes
        self._queues = store.queues
        self._replicas = store.replicas
        self._codec = core.bus_codec
        self._notices = core.notices
        self._settlements = core.settlements
        self._peers = core.peers
        self._packets = core.packets
        self._in_later: set[bytes] = set()
        # The ids of what nodes were given lately, and when: a node that stops or dies may not have
        # read it. No jobs, whose bodies would stay in memory when they have ended.
        self._given: dict[bytes, deque[tuple[int, list[bytes]]]] = {}
        self._stopped: set[bytes] = set()  # nodes that said so, and to which no connection is new

    def on_needjobs(self, sender: bytes, message: QueueMessage) -> None:
        """Handle NEEDJOBS: give ``sender`` jobs, unless they are needed here."""
        name = message.queue
        count = message.aux
        waits = message.flags & bus.CLIENT_WAITS != 0
        credit = message.flags & bus.CREDIT != 0
        queue = self._queues.by_name.get(name)
        spare = 0 if queue is None else self._spare(queue, waits, self._machine.now)
        if queue is None or spare <= 0 or not self._reads(sender):
            self.remember(sender, message)
            there = queue is not None and queue.length and not queue.paused & PAUSED_OUT
            if there and name in self.asked_for:  # the name may be too long
                self._offer_later(name)
        elif count > COUNT_MAX and spare < WORTH:
            self.remember(sender, message)
            self._offer_soon(name, spare)
        else:
            number = self._give(sender, queue, self._portion(queue, count, spare, credit))
            if not number:
                self.remember(sender, message)
            elif credit and number < count:
                self.remember(sender, QueueMessage(name, count - number, message.flags))
                if queue.length and name in self.asked_for:
                    self._offer_soon(name, spare - number)

    def linked_to(self, nodes: list[bytes]) -> None:
        """Offer ``nodes``, to which connections are new, what they asked for before."""
        self._stopped.difference_update(nodes)
        for name, wanting in list(self.asked_for.items()):
            if not wanting.keys().isdisjoint(nodes):
                self.offer(name)

    def ask_about_given(self, id: bytes) -> None:
        """Queue what the node ``id`` was given just before the last connection to it ended, unless
        it, or who had it from there, has it."""
        for one in [one for _, ids in self._given.pop(id, ()) for one in ids]:
            job = self._store.jobs.get(one)
            if job is None and self._paging.bring(one, partial(self._ask_about, one)):
                continue
            self._ask_about(one)

    def _ask_about(self, id: bytes) -> None:
        """Queue the job ``id``, which was given away, unless another node has it."""
        job = self._store.jobs.get(id)
        if job is None or job.state != ACTIVE:
            return
        if not job.flags & (FLAG_DELIVERED | FLAG_PAUSED):
            self._store.queue_soon_unless_held(job)
            self._replicas.announce(job, bus.WILLQUEUE)

    def stops(self, id: bytes) -> None:
        """Give nothing more to the node ``id``, which is about to stop, until there is a new
        connection to it; and forget what it asked for."""
        self._stopped.add(id)
        for name, nodes in list(self.asked_for.items()):
            if nodes.pop(id, None) is not None and not nodes:
                del self.asked_for[name]

    def _reads(self, id: bytes) -> bool:
        """Whether the node ``id`` is going to read what is sent to it now, and can use it: a node
        that cannot write its file could not deliver an at-most-once job, and asks again when it
        can."""
        peers = self._peers
        return peers.linked(id) and id not in self._stopped and not peers.cannot_write(id)

    def _portion(self, queue: Queue, count: int, spare: int, credit: bool) -> int:
        """Return how many of the ``spare`` jobs of ``queue`` a node gets that asked for ``count``.

        At most half of them, so that jobs do not go back and forth, unless it takes them fast and
        nobody here does.
        """
        count = min(max(count, 1), bus.MAX_YOURJOBS)
        if spare >= 2 * count:
            return count
        if (credit or count > COUNT_MAX) and self._machine.now - queue.wanted > WINDOW:
            return min(count, spare)
        return max(spare // 2, 1)

    def _spare(self, queue: Queue, waits: bool, asked: int) -> int:
        """The number of jobs of ``queue`` that another node may have. Imported jobs are for the
        clients here at first, or they would go back and forth between nodes that poll; but not if a
        client of the other node ``waits``, and none here does, or if it has just ``asked`` (ms),
        and the clients here have stopped asking. None while the append-only file cannot be written:
        it has to record that a job was given away. If it lags, this applies only to at-most-once
        jobs: they would exist twice."""
        if self.stopping or queue.paused & PAUSED_OUT or self._machine.write_problem:
            return 0
        if self._store.limits.needed:
            self._store.limits.grouping.follow(queue)
            if self._machine.lagging and queue.first_with_retry() is None:
                return 0
        imports = queue.imports
        if imports is None:
            return queue.deliverable()
        now = self._machine.now
        recent = now - asked <= RECENT
        if waits and not self._serves(queue):
            return queue.deliverable()
        if recent and not queue.waiters and not imports.is_wanted(now, queue.jobs_out):
            return queue.deliverable()
        return queue.deliverable() - imports.left(now, queue.jobs_out)

    def _serves(self, queue: Queue) -> bool:
        """Whether clients here wait for jobs of ``queue``, and may have some."""
        return len(queue.waiters) > 0 and not (
            self._store.limits.needed and self._store.limits.is_used_up(queue)
        )

    def _is_used_up_at(self, id: bytes, queue: Queue, wanted: Wanted) -> bool:
        """Whether clients of the node ``id`` may have no jobs of ``queue`` now, although they could
        when they ``wanted`` some."""
        limits = self._store.limits
        return limits.needed and limits.is_used_up_at(id, queue, wanted.time)

    def has_limit(self, queue: Queue) -> bool:
        """Whether ``queue`` has a limit of jobs in hand, or of deliveries."""
        return self._store.policies.of(queue.name).is_limited()

    def give(self, id: bytes, queue: Queue, count: int, wanted: Wanted) -> int:
        """Send up to ``count`` jobs of ``queue`` to the node ``id``, which ``wanted`` some, unless
        they are needed here; returns how many."""
        spare = self._spare(queue, wanted.waits, wanted.time)
        if spare <= 0 or not self._reads(id) or self._is_used_up_at(id, queue, wanted):
            return 0
        policy = self._store.policies.of(queue.name)
        if policy.rate:  # what can be delivered until it asks again
            count = min(count, max(policy.rate // (policy.period * 10), policy.burst, 1))
        return self._give(id, queue, self._portion(queue, count, spare, False))

    def hand_over(self, id: bytes, queue: Queue, count: int) -> int:
        """Send up to ``count`` jobs of ``queue`` to the node ``id``, which has not asked: this one
        leaves the cluster. Returns how many."""
        if not self._reads(id):
            return 0
        return self._give(id, queue, min(count, queue.deliverable()))

    def remember(self, sender: bytes, message: QueueMessage) -> None:
        """Reserve the next job that ``sender`` asks for with ``message``, NEEDJOBS, unless a client
        of this node wants it. Otherwise ``sender`` would have to wait until it asks again."""
        name = message.queue
        if len(name) > MAX_NAME:
            return
        count = message.aux
        waits = message.flags & bus.CLIENT_WAITS != 0
        nodes = self.asked_for.get(name)
        if nodes is None:
            if len(self.asked_for) >= MANY_QUEUES:
                del self.asked_for[next(iter(self.asked_for))]
            nodes = self.asked_for[name] = {}
        now = self._machine.now
        # Sources are asked more often than all nodes, and sometimes in advance. But if a client
        # waits, all nodes are asked again within that time, and it may be long until then.
        until = now + (ASKED_ALL if count == 1 or waits else ASKED_SOURCES)
        before = nodes.get(sender)
        if before is not None:
            until = max(until, before.until)
        credit = message.flags & bus.CREDIT != 0
        last = 0 if before is None else before.given
        nodes[sender] = Wanted(count, now, until, waits, credit=credit, given=last)

    def offer(self, name: bytes, late: bool = False) -> None:
        """Give a new job of the queue ``name`` to a node that waits for one. ``late``: do not wait
        for more jobs."""
        if self.soon:  # compiled, the rest takes ten times as long, for each job
            spare = self.soon.get(name, WORTH)
            if spare < WORTH - 1:
                self.soon[name] = spare + 1
                return
            self.soon.pop(name, None)
        nodes = self.asked_for.get(name)
        queue = self._queues.by_name.get(name)
        if nodes is None or queue is None or self._serves(queue):
            return
        now = self._machine.now
        passed: dict[bytes, Wanted] = {}  # C nodes that get no such job, and nodes out of reach
        while nodes:
            # Nodes whose clients wait come first: what a client that polls does not take at once
            # would have to travel again.
            waiting = [id for id, wanted in nodes.items() if wanted.waits]
            id = waiting[0] if waiting else next(iter(nodes))
            wanted = nodes[id]
            if wanted.credit and queue.wanted > wanted.time:
                # Since then, a client here wanted a job in vain: it would have to come back.
                if not wanted.waits:
                    del nodes[id]
                    continue
                wanted = wanted._replace(jobs=1, credit=False)
            spare = self._spare(queue, wanted.waits, wanted.time)
            if spare <= 0:
                break
            fresh = now - wanted.time <= FRESH
            fast = fresh and (wanted.jobs > COUNT_MAX or wanted.credit)
            if fast and not late and spare < WORTH and not self._is_urgent(wanted):
                self._offer_soon(name, spare)
                break
            del nodes[id]
            if wanted.until > now:
                # It may have begun to leave since it asked; then it is not reachable either.
                there = id in self._peers.reachable and self._reads(id)
                there = there and not self._is_used_up_at(id, queue, wanted)
                portion = 1
                if fast:
                    portion = self._portion(queue, wanted.jobs, spare, wanted.credit)
                number = self._give(id, queue, portion) if there else 0
                if not number:
                    passed[id] = wanted
                elif wanted.credit and fresh and number < wanted.jobs:
                    nodes[id] = wanted._replace(jobs=wanted.jobs - number, given=now)
        nodes.update(passed)
        if not nodes:
            del self.asked_for[name]

    def _is_urgent(self, wanted: Wanted) -> bool:
        """Whether a client may wait for the next job: the node that ``wanted`` some takes no more
        than a few, and has got none in this millisecond."""
        return wanted.jobs <= COUNT_MAX and wanted.given != self._machine.now

    def _offer_soon(self, name: bytes, spare: int) -> None:
        """Offer the queue ``name``, which has ``spare`` jobs, in a moment: more may have arrived by
        then."""
        if not self.soon:
            self.soon_at = self._machine.now + 1
        self.soon[name] = spare

    def pass_on(self, queue: Queue) -> None:
        """Offer the jobs of ``queue`` that were imported, if no client here is waiting for them any
        more."""
        if queue.length and not self._serves(queue):
            self.offer(queue.name)
            if queue.name in self.asked_for and queue.length:
                self._offer_later(queue.name)

    def _offer_later(self, name: bytes) -> None:
        """Schedule an offer of jobs that clients of this node may still take."""
        if name not in self._in_later and any(map(self._reads, self.asked_for[name])):
            self._in_later.add(name)
            self.later.append((self._machine.now + RESERVED + 1, name))

    def next_due(self) -> int:
        """Return when ``offer_due`` next has something to do, in ms; 0: never."""
        due = self.later[0][0] if self.later else 0
        return min(due or self.soon_at, self.soon_at) if self.soon else due

    def offer_due(self, now: int) -> None:
        """Offer the jobs that other nodes wait for, and those that local clients have had time to
        take."""
        if self.soon and self.soon_at <= now:
            soon, self.soon = self.soon, {}
            for name in soon:
                self.offer(name, True)
        while self.later and self.later[0][0] <= now:
            _, name = self.later.popleft()
            self._in_later.discard(name)
            self.offer(name)
            queue = self._queues.by_name.get(name)
            if name in self.asked_for and queue is not None and queue.length:
                self._offer_later(name)

    def _give(self, id: bytes, queue: Queue, count: int) -> int:
        """Send up to ``count`` jobs of ``queue``, which has at least that many, to the node ``id``;
        returns how many."""
        chosen: list[Job] | None = None
        if not (self._peers.extended or self._peers.understands(id)):
            chosen = self._plain_jobs(queue, count)
            count = len(chosen)
            if not count:
                return 0
        notes = self._notes
        before = notes.peer
        notes.peer = id
        writer: GivenWriter | None = None
        most = MAX_GIVEN_BYTES
        if self._peers.settles(id):
            writer = GivenWriter(self._store, self._codec)
            most = given.MOST
        replicas = self._replicas
        pair = replicas.sets.add(replicas.alone, id)
        place = replicas.places.queued(id)
        lately: list[bytes] = []
        jobs: list[bytes] = []
        number = 0
        size = 0
        lagging = self._machine.lagging
        while number < count and size < most and queue.deliverable():
            if lagging and chosen is None and queue.first_with_retry() is None:
                break
            job = self._store.hand_out(queue, None if chosen is None else chosen[number])
            number += 1
            self._lend(job, id, pair, place)
            data = self._codec.encode(job) if writer is None else writer.add(job)
            if data:
                jobs.append(data)
                size += len(data)
            if writer is not None:
                size = writer.size
            if job.retry == 0:
                self._store.let_go(job)  # it must never exist twice
            else:
                lately.append(job.id)
        notes.peer = before
        self._note_given(id, lately)
        queue.traffic.exported += number
        if queue.imports is not None:
            queue.imports.gave(queue.jobs_out)
        if writer is not None and writer.parts:
            heard = self._settlements.confirmation(id)
            packet = given.given_packet(self._packets, heard, writer.parts)
            self._notices.send_in_order(id, packet)
        if jobs:
            self._notices.send_in_order(id, self._packets.jobs(bus.YOURJOBS, jobs))
        return number

    def _lend(self, job: Job, id: bytes, pair: tuple[bytes, ...], place: Place) -> None:
        """Note that ``job`` goes to the node ``id``. ``pair``: this node and that one. ``place``:
        its queues."""
        if self._notes.noting:
            self._notes.note(schema.EXPORTED, job)
        replicas = self._replicas
        if job.retry == 0:
            job.delivered = replicas.sets.of((id,))
            return
        store = self._store
        now = self._machine.now
        job.flags &= ~FLAG_DELIVERED  # not to a client
        # Whoever collects the job here has to know that it may be there too.
        if job.delivered is None:
            job.delivered = pair
        else:
            replicas.add(job, id)
        job.place = place
        replicas.places.leaves(job, now)
        if job.flags & FLAG_HOLDS_GROUP:
            store.limits.grouping.left(job)
        left = job.qtime - now
        if left < job.retry * 1000 - TIME_ERROR or left < job.retry * 900:
            # The receiver counts its retry time from now, too.
            store.postpone(job)
        store.progress.note(job)

    def _note_given(self, id: bytes, ids: list[bytes]) -> None:
        """Note that the node ``id`` was given the jobs ``ids``, which it may not have read."""
        lately = self._given.get(id)
        if lately is None:
            lately = self._given[id] = deque(maxlen=MANY_GIVEN)
        while lately and lately[0][0] < self._machine.now - UNSURE:
            lately.popleft()
        if lately and lately[-1][0] == self._machine.now:
            lately[-1][1].extend(ids)
        else:
            lately.append((self._machine.now, ids))

    def _plain_jobs(self, queue: Queue, count: int) -> list[Job]:
        """Return up to ``count`` of the first jobs of ``queue``, without those that have a trailer
        after their body: the clients of a C node would see it."""
        found: list[Job] = []
        for at, job in enumerate(queue.ready_jobs()):
            if at == LOOKED_AT or len(found) == count:
                break
            if self._store.trailers.is_plain(job) and (job.retry or not self._machine.lagging):
                found.append(job)
        return found

    def forget_old(self, now: int) -> None:
        """Forget outdated requests of other nodes, and what they must have read."""
        self._stopped = {id for id in self._stopped if self._peers.knows(id)}
        for id, lately in list(self._given.items()):
            if not self._peers.knows(id) or (
                self._peers.linked(id) and lately and lately[-1][0] < now - UNSURE
            ):
                del self._given[id]
        for name, nodes in list(self.asked_for.items()):
            if max([wanted.until for wanted in nodes.values()]) < now:
                del self.asked_for[name]

    def flush(self) -> None:
        """Start over: all jobs and queues have been forgotten."""
        self.asked_for.clear()
        self._given.clear()
        self.soon.clear()
        self.later.clear()
        self._in_later.clear()
