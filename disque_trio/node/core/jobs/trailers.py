"""Holds the trailers of one node's jobs, and counts their memory.

Few jobs have one. So they are kept apart from the jobs, by id, and a flag of the job says whether
to look; a job without one is not a byte larger.
"""

from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.native import mypyc_attr
from disque_trio.node.core.jobs.job import ACKED, FLAG_TRAILER, Job
from disque_trio.node.core.jobs.marked import MarkedJobs
from disque_trio.node.core.jobs.recent_ids import RecentIds
from disque_trio.protocol.trailer import BY_REDRIVE, Ending, Trailer
from disque_trio.respserver.memory import MEMORY, Memory

MAX_FOLLOWED: Final = 10_000  # jobs; up to twice as many are remembered
# What a trailer costs in addition to its bytes: the record, its lists, its place here.
TRAILER_OVERHEAD: Final = 400
# A dict of a million entries stops a node for 40 ms when it grows, so there are several. A
# character in the random part of a job's id chooses one, which is cheaper than a checksum.
_SHARDS: Final = 64
_PLACE: Final = 11


@mypyc_attr(acyclic=True)
class JobOnDisk(Job):
    """A job that lies on disk, made to look at; it is not held.

    Attributes:
        trailer: its trailer; None: it has none.
        waits: as if it were in ``Progress.waiting``.
    """

    __slots__ = ("trailer", "waits")

    trailer: Trailer | None
    waits: bool


class Trailers:
    """The trailers of all jobs of one node.

    Args:
        memory: the account that includes them.
        peers: the rest of the cluster.
        marked: gets the dead letters.

    Attributes:
        followed: jobs that have become letters, of which there were some here.
    """

    def __init__(self, memory: Memory, peers: Peers, marked: MarkedJobs) -> None:
        self.followed = RecentIds(MAX_FOLLOWED)
        self._marked = marked
        self._memory = memory
        self._peers = peers
        self._shards: list[dict[bytes, Trailer]] = [{} for _ in range(_SHARDS)]

    def of(self, job: Job) -> Trailer | None:
        """The trailer of ``job``, if it has one."""
        if not job.flags & FLAG_TRAILER:
            return None
        id = job.id
        trailer = self._shards[id[_PLACE] & (_SHARDS - 1)].get(id)
        return job.trailer if trailer is None and isinstance(job, JobOnDisk) else trailer

    def group(self, job: Job) -> bytes:
        """The group of ``job``; empty: it has none."""
        trailer = self.of(job)
        return b"" if trailer is None else trailer.group

    def is_dead_letter(self, job: Job) -> bool:
        """Whether ``job`` is a dead letter that was not sent back."""
        trailer = self.of(job)
        letter = None if trailer is None else trailer.letter
        return letter is not None and letter.why != BY_REDRIVE

    def want(self, job: Job) -> Trailer:
        """The trailer of ``job``, which is created if it has none. Call ``recount`` after a
        change."""
        trailer = self.of(job)
        if trailer is None:
            trailer = Trailer()
            self.put(job, trailer)
        return trailer

    def put(self, job: Job, trailer: Trailer) -> None:
        """Give ``job`` this ``trailer``, instead of any that it has."""
        self.drop(job)
        job.flags |= FLAG_TRAILER
        id = job.id
        self._shards[id[_PLACE] & (_SHARDS - 1)][id] = trailer
        self.recount(job, trailer)
        if trailer.letter is not None:
            self.followed.add(trailer.letter.first)

    def learn_attempts(self, job: Job, attempts: dict[bytes, int]) -> None:
        """Note what another node knows of how often clients got ``job``: ``attempts``, by node."""
        trailer = self.want(job)
        for node, count in attempts.items():
            trailer.attempts[node] = max(trailer.attempts.get(node, 0), count)
        self.recount(job, trailer)

    def recount(self, job: Job, trailer: Trailer) -> None:
        """Update the memory account after a change to ``trailer``, which ``job`` has."""
        if trailer.letter is not None:
            self._marked.add(job)
        counted = TRAILER_OVERHEAD + len(trailer.pack())
        self._memory.used += counted - trailer.counted
        shares = self._memory.shares
        if shares is not None:
            if trailer.shared:
                shares.add(job.queue, MEMORY, counted - trailer.counted)
            elif shares.counts(job.id):
                trailer.shared = True
                shares.add(job.queue, MEMORY, counted)
        trailer.counted = counted

    def ending(self, job: Job) -> Ending | None:
        """Return how ``job`` ended, if it was not just acknowledged."""
        trailer = self.of(job)
        return None if trailer is None else trailer.ending

    def set_ending(self, job: Job, ending: Ending) -> None:
        """Record how ``job`` ended."""
        trailer = self.want(job)
        trailer.ending = ending
        self.recount(job, trailer)

    def count_attempt(self, job: Job, node: bytes) -> None:
        """Count that a client of ``node`` (its id) got ``job``."""
        trailer = self.want(job)
        trailer.attempts[node[:8]] = trailer.attempts.get(node[:8], 0) + 1
        self.recount(job, trailer)

    def discount_attempt(self, job: Job, node: bytes) -> None:
        """Undo ``count_attempt``, if it was called."""
        trailer = self.of(job)
        if trailer is not None and trailer.attempts.get(node[:8]):
            trailer.attempts[node[:8]] -= 1
            self.recount(job, trailer)

    def drop(self, job: Job) -> None:
        """Forget the trailer of ``job``, if it has one."""
        if job.flags & FLAG_TRAILER:
            job.flags &= ~FLAG_TRAILER
            id = job.id
            trailer = self._shards[id[_PLACE] & (_SHARDS - 1)].pop(id, None)
            if trailer is not None:
                self._memory.used -= trailer.counted
                if trailer.shared and self._memory.shares is not None:
                    trailer.shared = False
                    self._memory.shares.add(job.queue, MEMORY, -trailer.counted)

    def carried(self, job: Job) -> bytes:
        """The bytes that follow the body of ``job`` in files and on the bus; empty: none. Fields
        that clients may set go everywhere; fields that nodes add go only where no C node can see
        them."""
        trailer = self.of(job)
        if trailer is None or (job.state == ACKED and trailer.ending is None):
            return b""  # nobody will need it
        return trailer.pack() if self.travels(trailer) else b""

    def travels(self, trailer: Trailer) -> bool:
        """Whether ``trailer`` may go into files and to other nodes."""
        peers = self._peers
        return not peers.plain and (peers.extended or trailer.is_of_clients())

    @property
    def all_travel(self) -> bool:
        """Whether all trailers may."""
        return self._peers.extended and not self._peers.plain

    def is_plain(self, job: Job) -> bool:
        """Whether C nodes may get ``job``: no trailer follows its body. With cluster-extensions
        yes, they may have all jobs."""
        if not job.flags & FLAG_TRAILER or self._peers.extended:
            return True
        return not self.carried(job)

    def all(self) -> list[Trailer]:
        """All trailers."""
        return [trailer for shard in self._shards for trailer in shard.values()]

    def hand_over(self) -> list[dict[bytes, Trailer]]:
        """Forget all trailers, and return them by the ids of their jobs."""
        shards = self._shards
        self._shards = [{} for _ in range(_SHARDS)]
        return shards
