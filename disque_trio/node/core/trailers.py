"""Holds the trailers of one node's jobs, and counts their memory.

Few jobs have one. So they stand beside the jobs, by id, and a flag of the job says whether to look;
a job without any is not a byte larger.
"""

from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.job import ACKED, FLAG_TRAILER, Job
from disque_trio.protocol.trailer import Ending, Trailer
from disque_trio.respserver.memory import Memory

# What a trailer costs beside its bytes: the record, its lists, its place here.
TRAILER_OVERHEAD: Final = 400
# Where it stands: a dict of a million stops a node for 40 ms when it grows, so there are several. A
# character in the random part of a job's id chooses one, which is cheaper than a checksum of it.
_SHARDS: Final = 64
_PLACE: Final = 11


class Trailers:
    """The trailers of all jobs of one node.

    Args:
        memory: the account that they are counted in.
        peers: the rest of the cluster.
    """

    def __init__(self, memory: Memory, peers: Peers) -> None:
        self._memory = memory
        self._peers = peers
        self._shards: list[dict[bytes, Trailer]] = [{} for _ in range(_SHARDS)]

    def of(self, job: Job) -> Trailer | None:
        """The trailer of ``job``, if it has one."""
        if not job.flags & FLAG_TRAILER:
            return None
        id = job.id
        return self._shards[id[_PLACE] & (_SHARDS - 1)].get(id)

    def group(self, job: Job) -> bytes:
        """The group of ``job``; empty: it has none."""
        trailer = self.of(job)
        return b"" if trailer is None else trailer.group

    def want(self, job: Job) -> Trailer:
        """The trailer of ``job``; it gets one if it has none. After a change to it ``recount``."""
        trailer = self.of(job)
        if trailer is None:
            trailer = Trailer()
            self.put(job, trailer)
        return trailer

    def put(self, job: Job, trailer: Trailer) -> None:
        """Give ``job`` this ``trailer``, in the place of any that it has."""
        self.drop(job)
        job.flags |= FLAG_TRAILER
        id = job.id
        self._shards[id[_PLACE] & (_SHARDS - 1)][id] = trailer
        self.recount(trailer)

    def recount(self, trailer: Trailer) -> None:
        """Bring the memory account up to date: ``trailer``, which is of a job, has changed."""
        counted = TRAILER_OVERHEAD + len(trailer.pack())
        self._memory.used += counted - trailer.counted
        trailer.counted = counted

    def ending(self, job: Job) -> Ending | None:
        """How ``job`` ended, if there is more to say than that it was acknowledged."""
        trailer = self.of(job)
        return None if trailer is None else trailer.ending

    def set_ending(self, job: Job, ending: Ending) -> None:
        """Note how ``job`` ended."""
        trailer = self.want(job)
        trailer.ending = ending
        self.recount(trailer)

    def count_attempt(self, job: Job, node: bytes) -> None:
        """Count that a client of ``node`` (its id) got ``job``."""
        trailer = self.want(job)
        trailer.attempts[node[:8]] = trailer.attempts.get(node[:8], 0) + 1
        self.recount(trailer)

    def drop(self, job: Job) -> None:
        """Forget the trailer of ``job``, if it has one."""
        if job.flags & FLAG_TRAILER:
            job.flags &= ~FLAG_TRAILER
            id = job.id
            trailer = self._shards[id[_PLACE] & (_SHARDS - 1)].pop(id, None)
            if trailer is not None:
                self._memory.used -= trailer.counted

    def carried(self, job: Job) -> bytes:
        """What stands behind the body of ``job`` in files and on its way to other nodes; empty:
        nothing. What clients were allowed to give to the job goes everywhere; what nodes note of it
        does only where no C node can see it."""
        peers = self._peers
        trailer = self.of(job)
        if trailer is None or peers.plain or not (peers.extended or trailer.is_of_clients()):
            return b""
        if job.state == ACKED and trailer.ending is None:
            return b""  # nobody will want it
        return trailer.pack()

    def all(self) -> list[Trailer]:
        """All trailers."""
        return [trailer for shard in self._shards for trailer in shard.values()]

    def hand_over(self) -> list[dict[bytes, Trailer]]:
        """Forget all trailers, and return them by the ids of their jobs."""
        shards = self._shards
        self._shards = [{} for _ in range(_SHARDS)]
        return shards
