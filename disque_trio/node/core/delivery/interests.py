"""Jobs by patterns of queue names (GETJOB PATTERN): who wants them, and which queues have some.

There is no bookkeeping as long as nobody uses patterns. A new pattern is compared with all queues
that have jobs, and from then on with each queue that gets some. So it knows where there may be jobs
(``Interest.found``), and serves these queues in turn. A pattern that nobody has used for a minute
is forgotten. Long work is done in slices; clients wait meanwhile, even with NOHANG.

If the jobs of a queue cannot be delivered now (it is paused, or at its limit), the stand-in of a
pattern joins the clients that wait for it, so everything works as for them. What ``Deliveries``
would give to a stand-in goes to the first client of the pattern. Code that wants jobs by patterns
may ``take`` some, and ``enter`` and ``forget`` a client.
"""

from collections import deque
from itertools import islice
from typing import Final

from disque_trio.node.core.delivery.interest import Interest
from disque_trio.node.core.delivery.lookout import Lookout
from disque_trio.node.core.delivery.wishes import Wishes, read_wishes
from disque_trio.node.core.federation.exports import Wanted
from disque_trio.node.core.federation.federation import Federation
from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.jobs.timers import sooner
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.entries import TAKEN_AT_ONCE, size_of
from disque_trio.node.core.queues.need_jobs import FIRST_MIN, POLL_MIN
from disque_trio.node.core.queues.queue import PAUSED_OUT, Queue
from disque_trio.node.core.queues.queues import QueueInterests
from disque_trio.node.core.rpc.questions import WISH
from disque_trio.protocol.fields import Field
from disque_trio.respserver.client import Client

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
        by_pattern: all interests.
        by_client: the waiting clients, with their interests.
        due: when there is something to do, in ms; 0: never.
        cut_short: the last ``take`` did not look at all queues that have jobs.
    """

    def __init__(self, core: Core, federation: Federation) -> None:
        store = core.store
        questions = core.questions
        self.by_pattern: dict[bytes, Interest] = {}
        self.by_client: dict[Client, list[Interest]] = {}
        self.due = 0
        self.cut_short = False
        self._machine = core.machine
        self._store = store
        self._queues = store.queues
        self._limits = store.limits
        self._federation = federation
        self._agenda = questions.agenda
        self._wishes = Wishes(core, federation)
        self._lookout = Lookout(store.queues, core.peers)
        self._by_number: dict[int, Interest] = {}
        self._number = 0
        self._hasty: dict[Client, None] = {}  # only want to know whether there are jobs
        self._sweep_at = 0
        self._swept: deque[Interest] = deque()  # still to be looked at
        self._cleared = 0  # when there was last no room, in ms
        questions.answerers[WISH] = self._on_wish

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
                if interest.is_unused(now) and interest.pattern not in wanted:
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
            self._lookout.add(interest)
            if self._queues.interests is None:
                self._queues.interests = self
                self._sweep_at = self._machine.now + SWEEP
            self._call()
        interest.used = self._machine.now
        return interest

    def _drop(self, interest: Interest) -> None:
        """Forget ``interest``, which nobody uses."""
        del self.by_pattern[interest.pattern]
        del self._by_number[interest.number]
        self._lookout.remove(interest)
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
                self._lookout.look_again(interest)
            elif not interest.dropped and now - interest.used >= KEPT and interest.is_unused(now):
                self._drop(interest)

    # ---- clients ----------------------------------------------------------------------------

    def take(self, patterns: list[bytes], count: int) -> list[Job]:
        """Deliver up to ``count`` jobs: one per pattern, left to right, repeatedly until enough.
        There must be room for ``patterns``."""
        interests = [self._use(pattern) for pattern in patterns]
        if any(map(self._lookout.is_searching, interests)):
            self._lookout.work(SLICE)
        found: list[Job] = []
        looks = LOOKS
        size = 0
        self.cut_short = False
        while True:
            before = len(found)
            for interest in interests:
                if interest.clients and not self._lookout.is_searching(interest):
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
                self._lookout.emptied(interest, queue)
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
        return self.cut_short or any(map(self._lookout.is_searching, map(self._use, patterns)))

    def in_work(self) -> bool:
        """Whether queues remain to be looked at for waiting clients."""
        return self._lookout.has_work()

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
                self._lookout.look_again(interest)
        self._wishes.ask(interests, FIRST_MIN)
        self._call()

    def tell(self, patterns: list[bytes]) -> None:
        """Tell other nodes that a client wanted a job in vain and does not wait: they may have
        one."""
        self._wishes.ask([self._use(pattern) for pattern in dict.fromkeys(patterns)], POLL_MIN)
        self._call()

    def forget(self, client: Client) -> None:
        """Forget that ``client`` waits."""
        self._hasty.pop(client, None)
        for interest in self.by_client.pop(client):
            del interest.clients[client]
            interest.used = self._machine.now
            if not interest.clients:
                self._lookout.look_again(interest)
        self._call()

    # ---- queues -----------------------------------------------------------------------------

    def note(self, queue: Queue) -> None:
        self._lookout.note(queue)

    def first(self, stand_in: Client, queue: Queue) -> Client | None:
        """The client for which ``stand_in`` waits in ``queue``; the stand-in goes to the end of the
        line there. None: no client is left."""
        del queue.waiters[stand_in]
        interest = self._by_number.get(stand_in.id)
        if interest is not None:
            for client in interest.clients:
                queue.waiters[stand_in] = None
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
                found = self._lookout.matching(queue.name)
                self._wishes.ask([interest for interest in found if interest.clients], FIRST_MIN)
                self._call()
        elif not queue.waiters:
            wanted = [
                interest for interest in self._lookout.matching(queue.name) if interest.wishes
            ]
            if wanted:
                self._wishes.grant(queue, wanted)

    # ---- time -------------------------------------------------------------------------------

    def _call(self) -> None:
        """Schedule the next ``go_on``."""
        if self._hasty or self._swept or self._lookout.has_work():
            self.due = self._machine.now
        elif self.by_pattern:
            self.due = sooner(self._sweep_at, self._wishes.due)
        else:
            self.due = 0
        self._agenda.call(self.due)

    def go_on(self, now: int) -> None:
        """Do some of what is due at ``now``."""
        if not self.due or self.due > now:
            return
        # What the last slice found has been delivered meanwhile.
        for client in list(self._hasty):
            if not any(map(self._lookout.is_searching, self.by_client[client])):
                self._machine.time_out(client)
        self._lookout.work(SLICE)
        self._wishes.go_on(now)
        if self.by_pattern or self._swept:
            self._sweep(now)
        self._call()

    # ---- other nodes ------------------------------------------------------------------------

    def received(self, sender: bytes, queue: Queue, count: int) -> None:
        for interest in self._lookout.matching(queue.name):
            if interest.imports is not None:
                interest.imports.received(sender, self._machine.now, 0, count)
                if queue.imports is not None:
                    queue.imports.want_as(interest.imports)
                if len(interest.clients) > count and not self._limits.is_used_up(queue):
                    self._wishes.ask([interest], FIRST_MIN)

    def ask_again(self) -> None:
        waiting = [interest for interest in self.by_pattern.values() if interest.clients]
        self._wishes.ask(waiting, FIRST_MIN)
        self._call()

    def _on_wish(self, sender: bytes, fields: list[Field]) -> list[Field] | None:
        """Handle that clients of another node want jobs by pattern. Raises ``FieldsError``."""
        time, wanted, waiting = read_wishes(fields)
        if not self.make_room(list(wanted)):
            return None
        until = self._machine.now + time
        for pattern, jobs in wanted.items():
            interest = self._use(pattern)
            before = interest.wishes.get(sender)
            latest = until
            if before is not None:
                jobs, latest = max(jobs, before.jobs), max(until, before.until)
            interest.wishes[sender] = Wanted(jobs, self._machine.now, latest, pattern in waiting)
            self._lookout.look_again(interest)
        self._call()
        return None

    # ---- the rest ---------------------------------------------------------------------------

    def flush(self) -> None:
        """Start over: all jobs and queues have been forgotten, and no client waits."""
        self._lookout.flush(list(self.by_pattern.values()))
