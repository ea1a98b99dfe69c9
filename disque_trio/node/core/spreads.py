"""The changes of jobs that not all holders have confirmed, and when to look at which again.

There may be one for each of a million jobs (see QMOVE) while a holder is away, so no turn looks at
all of them.
"""

from heapq import heappop, heappush
from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.agenda import Agenda
from disque_trio.node.core.contents import Contents
from disque_trio.node.core.job import ACTIVE, QUEUED, Job
from disque_trio.node.core.registry import SHARDS
from disque_trio.node.core.store import JobStore
from disque_trio.respserver.client import Pending
from disque_trio.respserver.command import misconf
from disque_trio.respserver.machine import Machine

FIRST_GAP: Final = 500  # ms between attempts to tell a holder, doubled each time
PATIENCE: Final = 2_000  # ms that a client waits for the holders
AT_ONCE: Final = 50  # changes that a turn looks at
LOOKED_AT: Final = 2_000  # jobs that a turn looks at to find those that were changed
SPREAD_OVERHEAD: Final = 500  # bytes that one takes, beside the body that it has replaced


class Spread:
    """A change that not all holders of its job have confirmed.

    Attributes:
        version: of the change. told: the nodes that hold the job, as far as is known. missing:
            those of them that have not confirmed it.
        before: what the job had before it.
        replies: of the clients that wait. deadline: until when, ms.
        due: when the missing ones are told again, ms. gap: ms until the time after that.
        wake: when it is looked at next, ms; 0: not planned.
    """

    def __init__(self, version: int, missing: list[bytes], before: Contents, now: int) -> None:
        self.version = version
        self.told = list(missing)
        self.missing = missing
        self.before = before
        self.replies: list[Pending] = []
        self.deadline = now + PATIENCE
        self.due = now + FIRST_GAP
        self.gap = FIRST_GAP
        self.wake = 0


class Spreads:
    """The changes of one node's jobs that are not known to all holders yet.

    Args:
        machine: whose time and memory account it is; hands replies out.
        peers: the rest of the cluster.
        agenda: is told when to look at them.

    Attributes:
        by_id: the changes, by the ids of the jobs.
    """

    def __init__(self, machine: Machine, peers: Peers, agenda: Agenda) -> None:
        self.by_id: dict[bytes, Spread] = {}
        self._machine = machine
        self._peers = peers
        self._agenda = agenda
        self._dues: list[tuple[int, bytes]] = []  # heap: when to look at which, ms
        self._waiting = 0  # clients

    def put(self, id: bytes, spread: Spread) -> None:
        """Note ``spread`` of the job ``id``, in the place of any earlier one."""
        if id not in self.by_id:
            self._machine.memory.used += SPREAD_OVERHEAD
        self.by_id[id] = spread
        self.look_at(id, spread, spread.due)

    def drop(self, id: bytes) -> Spread | None:
        """Forget the change of the job ``id``, if there is one, and return it."""
        spread = self.by_id.pop(id, None)
        if spread is not None:
            self._machine.memory.used -= SPREAD_OVERHEAD
        return spread

    def look_at(self, id: bytes, spread: Spread, due: int) -> None:
        """Look at ``spread`` of the job ``id`` at ``due`` (ms), or before."""
        if spread.wake == 0 or due < spread.wake:
            spread.wake = due
            heappush(self._dues, (due, id))
            self._agenda.call(due)

    @property
    def due(self) -> int:
        """When to look at the next one, ms; 0: there is none."""
        return self._dues[0][0] if self._dues else 0

    def take_due(self, now: int) -> list[tuple[bytes, Spread]]:
        """Some of those to look at by ``now`` (ms), with the ids of their jobs."""
        found: list[tuple[bytes, Spread]] = []
        for _ in range(AT_ONCE):
            if not self._dues or self._dues[0][0] > now:
                break
            due, id = heappop(self._dues)
            spread = self.by_id.get(id)
            if spread is not None and spread.wake == due:
                spread.wake = 0
                found.append((id, spread))
        return found

    # ---- the clients that wait --------------------------------------------------------------

    def wait(self, spread: Spread, reply: Pending) -> None:
        """``reply`` is known when ``spread`` is."""
        self._waiting += 1
        spread.replies.append(reply)

    def awaited(self, spread: Spread) -> bool:
        """Whether a node that can be reached, or is thought to be, has not confirmed the change."""
        peers = self._peers
        return any(peers.linked(id) or id in peers.reachable for id in spread.missing)

    def answer(self, spread: Spread, reply: bytes) -> None:
        """Answer the clients that wait for ``spread``."""
        problem = self._machine.write_problem
        self._give(spread, misconf(problem) if problem else reply)

    def _give(self, spread: Spread, reply: bytes) -> None:
        self._waiting -= len(spread.replies)
        for pending in spread.replies:
            pending.reply = reply
            self._machine.answered.append(pending)
        spread.replies = []

    def refuse(self, refusal: bytes) -> None:
        """Answer ``refusal`` to all clients that wait: what was noted is not on disk."""
        if self._waiting:
            for spread in self.by_id.values():
                self._give(spread, refusal)

    def flush(self) -> list[Spread]:
        """Forget all, and return them. The memory account is cleared by whoever calls this."""
        spreads = list(self.by_id.values())
        self.by_id = {}
        self._dues = []
        return spreads


class ChangedJobs:
    """Finds the jobs in ``store`` that were changed, a few at a time.

    Attributes:
        searching: there may be more.
    """

    def __init__(self, store: JobStore) -> None:
        self.searching = False
        self._store = store
        self._shard = 0  # which comes next
        self._found: list[Job] = []  # in earlier ones

    def begin(self) -> None:
        """Look at all jobs."""
        self.searching = True
        self._shard = 0

    def some(self) -> list[Job]:
        """Some more of them."""
        if not self.searching:
            return []
        trailers = self._store.trailers
        left = LOOKED_AT
        while len(self._found) < AT_ONCE and self._shard < SHARDS and left > 0:
            shard = self._store.jobs.shards[self._shard]
            self._shard += 1
            left -= len(shard)
            for job in shard.values():
                trailer = trailers.of(job)
                if trailer is not None and trailer.updated:
                    self._found.append(job)
        jobs = self._found[-AT_ONCE:]
        del self._found[-AT_ONCE:]
        self.searching = self._shard < SHARDS or len(self._found) > 0
        return [job for job in jobs if job.state in (ACTIVE, QUEUED)]

    def flush(self) -> None:
        """There are no jobs any more."""
        self.searching = False
        self._found.clear()
