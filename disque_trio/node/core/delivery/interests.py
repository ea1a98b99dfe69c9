"""Jobs by patterns of queue names (GETJOB PATTERN): who wants them, and which queues have some.

There is no bookkeeping as long as nobody uses patterns. A new pattern is compared with all queues
that have jobs, and from then on with each queue that gets some. So it knows where there may be jobs
(``Interest.found``), and serves these queues in turn. A pattern that nobody has used for a minute
is forgotten. Long work is done in slices; clients wait meanwhile, even with NOHANG.

If the jobs of a queue cannot be delivered now (it is paused, or at its limit), the stand-in of a
pattern joins the clients that wait for it, so everything works as for them. What ``Deliveries``
would give to a stand-in goes to the first client of the pattern. Code that wants jobs by patterns
may ``take`` some, and ``enter`` and ``forget`` a client.

A node tells the others by which patterns its clients wait (WISH), as often as it would ask for the
jobs of one queue (see ``need_jobs``). A node with matching jobs gives some, or the next ones that
arrive, as long as its own clients do not want them. Queues whose RATE allows it no job yet, or of
which it has more than ACTIVE allows, are excepted, and asked for when that has changed. C nodes
know no patterns: they are asked for the queues that this node knows to match.
"""

from collections import deque
from heapq import heappop, heappush
from itertools import islice
from typing import Final

from disque_trio.glob import pattern_problem
from disque_trio.node.core.delivery.patterns import (
    Interest,
    ReadyQueues,
    but_dead,
    knows_only_extended,
)
from disque_trio.node.core.federation.exports import ASKED_ALL, ASKED_SOURCES, Wanted
from disque_trio.node.core.federation.federation import Federation
from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.jobs.timers import sooner
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.entries import PUSHED, TAKEN_AT_ONCE, size_of
from disque_trio.node.core.queues.need_jobs import COUNT_MAX, FIRST_MIN, POLL_MIN, Imports
from disque_trio.node.core.queues.queue import PAUSED_OUT, Queue
from disque_trio.node.core.queues.queues import QueueInterests
from disque_trio.node.core.rpc.calls import WISH
from disque_trio.protocol.fields import Field, FieldsError, pack_number, unpack_number
from disque_trio.respserver.client import Client

AT_ONCE: Final = 500  # patterns in a packet, or per turn
MOST_NAMES: Final = 100  # for all patterns together

# Types of fields. Those of a pattern follow it; what applies to all comes first.
_PATTERN: Final = 2
_JOBS: Final = 3
_TIME: Final = 4  # ms for which they are valid
_WAITS: Final = 5  # empty: a client waits
_NOT_YET: Final = 6  # a queue of whose jobs none are wanted now
_BUT_DEAD: Final = 7  # empty: queues of dead letters do not match


class RemoteInterests:
    """The patterns that a node's clients want from other nodes, and other nodes from it.

    Args:
        federation: knows whether other nodes can be asked.
    """

    def __init__(self, core: Core, federation: Federation) -> None:
        self._machine = core.machine
        self._federation = federation
        self._exports = federation.exports
        self._queues = core.store.queues
        self._limits = core.store.limits
        self._rpc = core.rpc
        self._peers = core.peers
        self._dues: list[tuple[int, int, Interest]] = []  # heap: when to ask again for which

    # ---- asking -----------------------------------------------------------------------------

    def ask(self, interests: list[Interest], soon: int) -> None:
        """Tell other nodes that clients want jobs by ``interests``, as often as the pacing allows,
        and repeat it while they wait. ``soon``: see ``Imports.ask_all``."""
        if not self._federation.may_ask():
            return  # ``ask_again`` is called when it may
        now = self._machine.now
        all: list[tuple[Interest, int]] = []
        some: dict[bytes, list[tuple[Interest, int]]] = {}
        for interest in interests:
            imports = interest.imports
            if imports is None:
                imports = interest.imports = Imports()
            if soon:
                imports.want(now)
            if imports.ask_all(now, soon):
                all.append((interest, 1))
            count = min(imports.ask_sources(now, soon == FIRST_MIN), COUNT_MAX)
            if count:
                for id in imports.sources:
                    some.setdefault(id, []).append((interest, count))
            self._plan(interest, max(imports.next_question(), now + 1))
        if all:
            self._tell(self._peers.everyone(), all, ASKED_ALL)
            if not knows_only_extended(self._peers):
                self._ask_by_names(all)
        for id, wanted in some.items():
            self._tell([id], wanted, ASKED_SOURCES)

    def greet(self, nodes: list[bytes], interests: list[Interest]) -> None:
        """Tell ``nodes``, to which connections are new, that clients want jobs by ``interests``,
        whenever the others were last asked."""
        wanted = [(interest, 1) for interest in interests]
        self._tell(nodes, wanted, ASKED_ALL)
        if not knows_only_extended(self._peers):
            self._ask_by_names(wanted)

    def _plan(self, interest: Interest, due: int) -> None:
        if interest.asks_at == 0 or due < interest.asks_at:
            interest.asks_at = due
            heappush(self._dues, (due, interest.number, interest))

    def _tell(self, nodes: list[bytes], wanted: list[tuple[Interest, int]], time: int) -> None:
        """Tell ``nodes`` how many jobs of which patterns are ``wanted`` during ``time`` ms."""
        nodes = [id for id in nodes if self._peers.understands(id)]
        not_yet = self._limits.without_room(MOST_NAMES) if nodes else []
        for at in range(0, len(wanted) if nodes else 0, AT_ONCE):
            fields: list[Field] = [(_TIME, pack_number(time))]
            fields += [(_NOT_YET, name) for name in not_yet]
            for interest, count in wanted[at : at + AT_ONCE]:
                fields.append((_PATTERN, interest.pattern))
                if interest.but_dead:
                    fields.append((_BUT_DEAD, b""))
                fields.append((_JOBS, pack_number(count)))
                if interest.clients:
                    fields.append((_WAITS, b""))
            packet = self._rpc.notification(WISH, fields)
            for id in nodes:
                self._peers.send(id, packet)

    def _ask_by_names(self, wanted: list[tuple[Interest, int]]) -> None:
        """Ask for jobs of the queues that are known to match."""
        left = MOST_NAMES
        for interest, _ in wanted:
            for name in interest.emptied:
                queue = self._queues.by_name.get(name)
                if left and queue is not None and not queue.deliverable():
                    left -= 1
                    self._federation.need_jobs(queue)

    @property
    def due(self) -> int:
        """Return when ``go_on`` next has something to do, in ms; 0: never."""
        return self._dues[0][0] if self._dues else 0

    def go_on(self, now: int) -> None:
        """Repeat the requests that are due."""
        interests: list[Interest] = []
        while self._dues and self._dues[0][0] <= now and len(interests) < AT_ONCE:
            due, _, interest = heappop(self._dues)
            if interest.asks_at == due:
                interest.asks_at = 0
                if interest.clients:
                    interests.append(interest)
        if interests:
            self.ask(interests, 0)

    # ---- giving -----------------------------------------------------------------------------

    def grant(self, queue: Queue, interests: list[Interest]) -> None:
        """Give jobs of ``queue``, for which no client waits, to nodes that want some by
        ``interests``."""
        now = self._machine.now
        wanting = [(one, id, wish) for one in interests for id, wish in one.remote.items()]
        # Nodes whose clients wait come first, as in ``Exports.offer``.
        wanting.sort(key=_polls)
        for interest, id, wish in wanting:
            if wish.until <= now:
                del interest.remote[id]
                continue
            if id not in self._peers.reachable or not self._peers.linked(id):
                continue  # it may come back
            if queue.name in wish.not_yet and self._exports.has_limit(queue):
                continue  # it says so when they may have one
            asked, limited = wish.time, wish.limited
            if queue.name in limited:
                if queue.imports is not None and queue.imports.rate(now):
                    continue  # what other nodes gave would go back and forth
                wish = wish._replace(time=0)
            # The same number from each queue.
            share = max(wish.jobs // max(len(interest.found), 1), 1)
            given = self._exports.give(id, queue, share, wish)
            if given:
                interest.had_turn(queue)
                del interest.remote[id]
                if wish.jobs > given:  # after the other nodes; who waits for more says so again
                    if self._exports.has_limit(queue):
                        limited |= {queue.name}
                    interest.remote[id] = Wanted(
                        wish.jobs - given, asked, wish.until, False, limited, wish.not_yet
                    )
            elif not queue.deliverable():
                return

    def flush(self) -> None:
        """Forget all planned requests."""
        self._dues.clear()


def _polls(wanting: tuple[Interest, bytes, Wanted]) -> bool:
    """Whether no client of the node waits."""
    return not wanting[2].waits


def read_remote(fields: list[Field]) -> tuple[int, dict[bytes, int], set[bytes]]:
    """For how many ms which patterns are wanted (see ``Interest.wanted``), and how many jobs of
    each; and by which of them clients wait. Raises ``FieldsError``."""
    time = 0
    wanted: dict[bytes, int] = {}
    waiting: set[bytes] = set()
    pattern = b""
    for type, value in fields:
        if type == _TIME:
            time = min(unpack_number(value), ASKED_ALL)
        elif type == _PATTERN:
            if pattern_problem(value):
                raise FieldsError("not a pattern")
            pattern = value
        elif type == _BUT_DEAD and pattern:
            pattern = but_dead(pattern)
        elif type == _JOBS and pattern:
            wanted[pattern] = min(unpack_number(value), COUNT_MAX)
        elif type == _WAITS and pattern:
            waiting.add(pattern)
    return time, wanted, waiting


MAX_INTERESTS: Final = 10_000  # patterns in use
KEPT: Final = 60_000  # ms that an unused pattern is kept
SWEEP: Final = 30_000  # ms between sweeps for these
SWEPT: Final = 500  # patterns to look at per turn
CLEARING: Final = 1_000  # ms between attempts to make room for new patterns
HASTE: Final = 10_000  # ms within which a client must hear whether there are jobs
SLICE: Final = 1_000  # queues with jobs to look at per turn, roughly: about 1 ms
LOOKS: Final = 500  # queues without deliverable jobs that a GETJOB looks at
_ASKING: Final = 100  # queues of a pattern to check for pending questions about their limits


class Interests(QueueInterests):
    """The patterns in use on one node.

    Args:
        federation: gets jobs from other nodes.

    Attributes:
        by_pattern: all interests, by what is ``wanted``.
        by_client: the waiting clients, with their interests.
        due: when there is something to do, in ms; 0: never.
        cut_short: the last ``take`` did not look at all queues that have jobs.
    """

    def __init__(self, core: Core, federation: Federation) -> None:
        store = core.store
        self.by_pattern: dict[bytes, Interest] = {}
        self.by_client: dict[Client, list[Interest]] = {}
        self.due = 0
        self.cut_short = False
        self._machine = core.machine
        self._store = store
        self._queues = store.queues
        self._limits = store.limits
        self._federation = federation
        self._timer = core.rpc.timer
        self._remote = RemoteInterests(core, federation)
        self._ready = ReadyQueues(store.queues, core.peers)
        self._by_number: dict[int, Interest] = {}
        self._number = 0
        self._hasty: dict[Client, None] = {}  # only want to know whether there are jobs
        self._sweep_at = 0
        self._swept: deque[Interest] = deque()  # still to be looked at
        self._cleared = 0  # when there was last no room, in ms
        core.rpc.handlers[WISH] = self._on_wish

    # ---- patterns ---------------------------------------------------------------------------

    def make_room(self, patterns: list[bytes]) -> bool:
        """Whether ``patterns`` can be used in addition to those in use."""
        known = self.by_pattern
        if len(known) + len(patterns) <= MAX_INTERESTS:
            return True
        wanted = set(patterns)
        new = len(wanted.difference(known))
        now = self._machine.now
        if len(known) + new > MAX_INTERESTS and now - self._cleared >= CLEARING:
            self._cleared = now
            for interest in list(known.values()):
                if interest.is_unused(now) and interest.wanted not in wanted:
                    self._drop(interest)
                    if len(known) + new <= MAX_INTERESTS:
                        break
        return len(known) + new <= MAX_INTERESTS

    def _use(self, pattern: bytes) -> Interest:
        """The interest for ``pattern``; there must be room for it."""
        interest = self.by_pattern.get(pattern)
        if interest is None:
            self._number += 1
            interest = Interest(pattern, self._number)
            self.by_pattern[pattern] = self._by_number[self._number] = interest
            self._ready.add(interest)
            if self._queues.interests is None:
                self._queues.interests = self
                self._sweep_at = self._machine.now + SWEEP
            self._call()
        interest.used = self._machine.now
        return interest

    def _drop(self, interest: Interest) -> None:
        """Forget ``interest``, which nobody uses."""
        del self.by_pattern[interest.wanted]
        del self._by_number[interest.number]
        self._ready.remove(interest)
        if not self.by_pattern:
            self._queues.interests = None

    def _sweep(self, now: int) -> None:
        """Forget patterns that nobody has used for long, and queues that have no jobs any more."""
        if self._sweep_at <= now:
            self._sweep_at = now + SWEEP
            self._swept = deque(self.by_pattern.values())
        for _ in range(min(SWEPT, len(self._swept))):
            interest = self._swept.popleft()
            if interest.clients:
                self._ready.look_again(interest)
            elif not interest.dropped and now - interest.used >= KEPT and interest.is_unused(now):
                self._drop(interest)

    # ---- clients ----------------------------------------------------------------------------

    def keep(self, patterns: list[bytes], consumers: int) -> None:
        """Note that ``consumers`` more clients have jobs by ``patterns`` pushed, or fewer. There
        must be room for ``patterns``."""
        for pattern in patterns:
            self._use(pattern).consumers += consumers

    def take(self, patterns: list[bytes], count: int) -> list[Job]:
        """Deliver up to ``count`` jobs: one per pattern, left to right, repeatedly until enough.
        There must be room for ``patterns``."""
        interests = [self._use(pattern) for pattern in patterns]
        if any(map(self._ready.is_searching, interests)):
            self._ready.work(SLICE)
        found: list[Job] = []
        looks = LOOKS
        size = 0
        self.cut_short = False
        while True:
            before = len(found)
            for interest in interests:
                if interest.clients and not self._ready.is_searching(interest):
                    continue  # other clients wait in vain
                had = len(found)
                looks = self._take_one(interest, found, looks)
                size += size_of(found[had:])
                if len(found) == count or size >= TAKEN_AT_ONCE:
                    return found
                if looks <= 0:
                    self.cut_short = True
                    return found
            if len(found) == before:
                return found

    def _take_one(self, interest: Interest, found: list[Job], looks: int) -> int:
        """Deliver a job from the queue of ``interest`` whose turn it is, if there is one. Looks at
        up to ``looks`` queues; return how many looks are left."""
        queues = interest.found
        for _ in range(len(queues)):
            if looks <= 0:
                break
            queue = queues.popleft()
            if not queue.length:
                self._ready.emptied(interest, queue)
                looks -= 1
                continue
            queues.append(queue)
            if queue.paused & PAUSED_OUT or (
                self._limits.needed and self._limits.holds_back(queue, False)
            ):
                looks -= 1
                continue
            found.append(self._store.take_job(queue))
            imports = queue.imports
            if imports is not None and queue.length <= imports.low:
                self._federation.runs_low(queue, imports)
            break
        return looks

    def is_undecided(self, patterns: list[bytes]) -> bool:
        """Whether there may be jobs although ``take`` found none."""
        return self.cut_short or any(map(self._ready.is_searching, map(self._use, patterns)))

    def in_work(self) -> bool:
        """Whether queues remain to be looked at for waiting clients."""
        return self._ready.has_work()

    def is_asking(self, patterns: list[bytes]) -> bool:
        """Whether other nodes are being asked about limits of queues that have jobs."""
        if self._limits.needed:
            for pattern in patterns:
                queues = islice(self._use(pattern).found, _ASKING)
                if self._limits.is_asking([queue.name for queue in queues]):
                    return True
        return False

    def wait(
        self, client: Client, patterns: list[bytes], timeout: int, details: int, hasty: bool
    ) -> None:
        """Block ``client`` until a queue that matches one of ``patterns`` has a job, for at most
        ``timeout`` ms (0: forever). ``details``: as in ``job_entry_with``. ``hasty``: only until it
        is known that there is none."""
        self._machine.begin_wait(client, patterns, HASTE if hasty else timeout)
        client.details = details
        if hasty:
            self._hasty[client] = None
        self.enter(client, patterns)

    def enter(self, client: Client, patterns: list[bytes]) -> None:
        """Make ``client`` one of those that get jobs of queues that match ``patterns``."""
        interests = [self._use(pattern) for pattern in dict.fromkeys(patterns)]
        self.by_client[client] = interests
        for interest in interests:
            interest.clients[client] = None
            if len(interest.clients) == 1:
                self._ready.look_again(interest)
        self._remote.ask(interests, FIRST_MIN)
        self._call()

    def tell(self, patterns: list[bytes]) -> None:
        """Tell other nodes that a client wanted a job in vain and does not wait: they may have
        one."""
        self._remote.ask([self._use(pattern) for pattern in dict.fromkeys(patterns)], POLL_MIN)
        self._call()

    def forget(self, client: Client) -> None:
        """Forget that ``client`` waits."""
        self._hasty.pop(client, None)
        for interest in self.by_client.pop(client):
            del interest.clients[client]
            interest.used = self._machine.now
            if not interest.clients:
                self._ready.look_again(interest)
        self._call()

    # ---- queues -----------------------------------------------------------------------------

    def note(self, queue: Queue) -> None:
        self._ready.note(queue)

    def first(self, stand_in: Client, queue: Queue) -> Client | None:
        """The client for which ``stand_in`` waits in ``queue``; the stand-in goes to the end of the
        line there, and a client that is pushed a job to that of the pattern. None: no client is
        left."""
        del queue.waiters[stand_in]
        interest = self._by_number.get(stand_in.id)
        if interest is not None:
            for client in interest.clients:
                queue.waiters[stand_in] = None
                if client.details & PUSHED:  # it waits on
                    del interest.clients[client]
                    interest.clients[client] = None
                    self._machine.wait_ends.begin(client, 0, 0)
                return client
        return None

    def served(self, queue: Queue) -> None:
        """Note that everything deliverable from ``queue`` went to waiting clients."""
        if not queue.length:
            for number in queue.found_by:
                interest = self._by_number.get(number)
                if interest is not None:
                    queue.waiters.pop(interest.stand_in, None)
            if self._limits.needed and self._limits.has_room_again(queue):
                # Other nodes may have given jobs that could not be delivered, and went on.
                found = self._ready.matching(queue.name)
                self._remote.ask([interest for interest in found if interest.clients], FIRST_MIN)
                self._call()
        elif not queue.waiters:
            wanted = [interest for interest in self._ready.matching(queue.name) if interest.remote]
            if wanted:
                self._remote.grant(queue, wanted)

    def wants_more(self, queue: Queue) -> None:
        """Ask other nodes for more: a client waits on after it was pushed a job of ``queue``, which
        has no more now. They think that one job was enough."""
        found = [interest for interest in self._ready.matching(queue.name) if interest.clients]
        self._remote.ask(found, FIRST_MIN)
        self._call()

    # ---- time -------------------------------------------------------------------------------

    def _call(self) -> None:
        """Schedule the next ``go_on``."""
        if self._hasty or self._swept or self._ready.has_work():
            self.due = self._machine.now
        elif self.by_pattern:
            self.due = sooner(self._sweep_at, self._remote.due)
        else:
            self.due = 0
        self._timer.wake_by(self.due)

    def go_on(self, now: int) -> None:
        """Do some of what is due at ``now``."""
        if not self.due or self.due > now:
            return
        # What the last slice found has been delivered meanwhile.
        for client in list(self._hasty):
            if not any(map(self._ready.is_searching, self.by_client[client])):
                self._machine.time_out(client)
        self._ready.work(SLICE)
        self._remote.go_on(now)
        if self.by_pattern or self._swept:
            self._sweep(now)
        self._call()

    # ---- other nodes ------------------------------------------------------------------------

    def received(self, sender: bytes, queue: Queue, count: int) -> None:
        for interest in self._ready.matching(queue.name):
            if interest.imports is not None:
                interest.imports.received(sender, self._machine.now, 0, count)
                if queue.imports is not None:
                    queue.imports.want_as(interest.imports)
                # What may not be delivered yet leaves the sender to think that no client waits.
                if len(interest.clients) > (0 if self._is_held_back(queue) else count):
                    self._remote.ask([interest], FIRST_MIN)

    def _is_held_back(self, queue: Queue) -> bool:
        """Whether clients here may have no job of ``queue`` now."""
        if queue.paused & PAUSED_OUT:
            return True
        return self._limits.needed and self._limits.holds_back(queue, True)

    def ask_again(self) -> None:
        self._remote.ask(self._waited_for(), FIRST_MIN)
        self._call()

    def linked_to(self, nodes: list[bytes]) -> None:
        self._remote.greet(nodes, self._waited_for())

    def _waited_for(self) -> list[Interest]:
        return [interest for interest in self.by_pattern.values() if interest.clients]

    def _on_wish(self, sender: bytes, fields: list[Field]) -> list[Field] | None:
        """Handle that clients of another node want jobs by pattern. Raises ``FieldsError``."""
        time, wanted, waiting = read_remote(fields)
        if not self.make_room(list(wanted)):
            return None
        until = self._machine.now + time
        not_yet = frozenset([name for type, name in fields if type == _NOT_YET])
        for pattern, jobs in wanted.items():
            interest = self._use(pattern)
            before = interest.remote.get(sender)
            latest = until
            if before is not None:
                jobs, latest = max(jobs, before.jobs), max(until, before.until)
            interest.remote[sender] = Wanted(
                jobs, self._machine.now, latest, pattern in waiting, not_yet=not_yet
            )
            self._ready.look_again(interest)
        self._call()
        return None

    # ---- the rest ---------------------------------------------------------------------------

    def flush(self) -> None:
        """Start over: all jobs and queues have been forgotten, and no client waits."""
        self._ready.flush(list(self.by_pattern.values()))
