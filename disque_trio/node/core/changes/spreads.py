"""The changes to jobs that not all holders have confirmed, and when to look at each again.

There may be one for each of a million jobs (see QMOVE) while a holder is away, so no turn looks at
all of them.
"""

from heapq import heappop, heappush
from typing import Final

from disque_trio.node.core.changes.contents import Contents
from disque_trio.node.core.jobs.job import ACTIVE, QUEUED, Job
from disque_trio.node.core.jobs.registry import SHARDS
from disque_trio.node.core.queues.core import Core
from disque_trio.node.core.queues.store import JobStore
from disque_trio.respserver.client import Pending
from disque_trio.respserver.command import misconf

FIRST_GAP: Final = 500  # ms between attempts to tell a holder, doubled each time
PATIENCE: Final = 2_000  # ms that a client waits for the holders
AT_ONCE: Final = 50  # changes to look at per turn
LOOKED_AT: Final = 2_000  # jobs to look at per turn in search of changed ones
SPREAD_OVERHEAD: Final = 500  # bytes that a change takes, besides the body that it replaced


class Spread:
    """A change that not all holders of its job have confirmed.

    Attributes:
        version: of the change.
        told: the nodes that hold the job, as far as is known.
        missing: those of them that have not confirmed it.
        before: the previous contents of the job.
        replies: for the clients that wait.
        deadline: when they stop waiting, in ms.
        due: when to tell the missing nodes again, in ms.
        gap: ms until the time after that.
        wake: when to look at it next, in ms; 0: not planned.
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
    """The changes to one node's jobs that not all holders know of yet.

    Attributes:
        by_id: the changes, by job id.
    """

    def __init__(self, core: Core) -> None:
        self.by_id: dict[bytes, Spread] = {}
        self._machine = core.machine
        self._peers = core.peers
        self._agenda = core.agenda
        self._dues: list[tuple[int, bytes]] = []  # heap: when to look at which, ms
        self._waiting = 0  # number of waiting clients

    def put(self, id: bytes, spread: Spread) -> None:
        """Keep ``spread`` for the job ``id``, instead of any earlier one."""
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
        """Look at ``spread`` of the job ``id`` at ``due`` (ms) at the latest."""
        if spread.wake == 0 or due < spread.wake:
            spread.wake = due
            heappush(self._dues, (due, id))
            self._agenda.call(due)

    @property
    def due(self) -> int:
        """Return when to look at the next change, in ms; 0: there is none."""
        return self._dues[0][0] if self._dues else 0

    def take_due(self, now: int) -> list[tuple[bytes, Spread]]:
        """Some of the changes to look at by ``now`` (ms), with the ids of their jobs."""
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
        """Release ``reply`` when ``spread`` is known to all holders."""
        self._waiting += 1
        spread.replies.append(reply)

    def awaited(self, spread: Spread) -> bool:
        """Whether a reachable node, or one that is thought to be, has not confirmed the change."""
        peers = self._peers
        return any(peers.linked(id) or id in peers.reachable for id in spread.missing)

    def answer(self, spread: Spread, reply: bytes) -> None:
        """Send ``reply`` to the clients that wait for ``spread``."""
        problem = self._machine.write_problem
        self._give(spread, misconf(problem) if problem else reply)

    def _give(self, spread: Spread, reply: bytes) -> None:
        self._waiting -= len(spread.replies)
        for pending in spread.replies:
            pending.reply = reply
            self._machine.answered.append(pending)
        spread.replies = []

    def refuse(self, refusal: bytes) -> None:
        """Send ``refusal`` to all waiting clients: the records could not be written."""
        if self._waiting:
            for spread in self.by_id.values():
                self._give(spread, refusal)

    def flush(self) -> list[Spread]:
        """Forget all changes, and return them. The caller clears the memory account."""
        spreads = list(self.by_id.values())
        self.by_id = {}
        self._dues = []
        return spreads


class ChangedJobs:
    """Finds the changed jobs in ``store``, a few at a time.

    Attributes:
        searching: there may be more.
    """

    def __init__(self, store: JobStore) -> None:
        self.searching = False
        self._store = store
        self._shard = 0  # the next one to search
        self._found: list[Job] = []  # in earlier shards

    def begin(self) -> None:
        """Start to search all jobs."""
        self.searching = True
        self._shard = 0

    def some(self) -> list[Job]:
        """Return some more of the changed jobs."""
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
        """Start over: there are no jobs any more."""
        self.searching = False
        self._found.clear()
