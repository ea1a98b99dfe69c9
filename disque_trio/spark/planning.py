"""What the driver of a read decides: when there is a batch, and who takes how much from where.

``Offset`` is what Spark keeps in the checkpoint. Only its batch is in it: which jobs that batch has
is in the lease directory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import pyarrow as pa

from disque_trio.spark.holder import Holder
from disque_trio.spark.leases import LeaseError, LeaseLog, Share, batch_path, read_plan
from disque_trio.spark.nodes import Nodes
from disque_trio.spark.taking import FIRST_FETCH, Taking, get_jobs, job_rows, times
from disque_trio.spark.wire import Arg, Reply, WireError, accepted

_GO_ON = "To go on begin a new one, and a new table for a file sink"


class Offset(NamedTuple):
    """A batch: its number in the lease directory that has this identity.

    Where a query begins is no batch of it (``initial``), though the number may be that of a batch
    of an earlier query.
    """

    seq: int
    log: str
    initial: bool = False

    @classmethod
    def of(cls, offset: Mapping[str, object]) -> Self:
        """From what Spark gives back."""
        seq, log = offset.get("seq"), offset.get("log")
        return cls(seq if isinstance(seq, int) else 0, str(log), "initial" in offset)

    def json(self) -> dict[str, object]:
        """What Spark keeps."""
        initial = {"initial": True} if self.initial else {}
        return {"seq": self.seq, "log": self.log, **initial}


@dataclass(frozen=True)
class Reading:
    """What the options of a read say.

    Attributes:
        nodes: addresses to begin with. discover: whether to ask them for the others.
        partitions_per_node: tasks a node has.
        max_jobs: in a batch; 0: as many as there are.
        directory: for leases; None with ``ackOnRead``.
        idle_wait: ms that the driver waits in GETJOB when there is nothing to do.
        taking: how tasks take jobs.
    """

    nodes: tuple[str, ...]
    discover: bool
    partitions_per_node: int
    max_jobs: int
    directory: Path | None
    idle_wait: int
    taking: Taking


class Planner:
    """The driver's side of a read.

    Args:
        reading: the options; with a directory.
        schema: of the jobs.
        hold: whether to say WORKING for the jobs of open batches, in a thread.

    Raises:
        LeaseError: the lease directory cannot be used.
    """

    def __init__(self, reading: Reading, schema: pa.Schema, hold: bool) -> None:
        assert reading.directory is not None
        taking = reading.taking
        self._reading = reading
        self._schema = schema
        self._log = LeaseLog(reading.directory)
        self._nodes = Nodes(reading.nodes, taking.password, reading.discover, taking.timeout)
        self._holder = Holder(self._log, reading.nodes, taking.password, taking.timeout)
        self._turn = 0  # whose turn it is to be waited for
        self._target: int | None = None  # how many jobs to take until the end; None: no end
        self._before = 0  # batches up to this one do not count for the target
        self._taken = 0  # of the target
        self._nothing = False  # whether the last batch had no job
        if hold:
            self._holder.start(taking.heartbeat)

    def initial(self) -> Offset:
        """Where a query without a checkpoint begins: before what another one left. It has to read
        that itself, for it to be acknowledged."""
        self._log.forget_reads()
        left = self._log.open_batches()
        seq = left[0] - 1 if left else self._log.highest()
        return Offset(seq, self._log.identity, initial=True)

    def latest(self, start: Offset) -> Offset:
        """The next batch, or ``start`` if there is none. What is up to ``start`` is over.

        Raises:
            LeaseError: batches after ``start`` are acknowledged already.
            RefusedError: a node refuses to tell how long queues are.
        """
        if start.log == self._log.identity and self._log.highest_done() > start.seq:
            raise LeaseError(
                f"{self._log.directory}: batch {self._log.highest_done()} is acknowledged, and the"
                f" checkpoint is an old one that knows batches up to {start.seq}. {_GO_ON}"
            )
        self.finish(start)
        left = self._log.open_batches()
        if left:  # planned before a crash, or left by a query with another checkpoint
            return Offset(left[0], self._log.identity)
        limit = self._reading.max_jobs
        if self._target is not None:
            if self._taken >= self._target:
                return start
            limit = min(limit or self._target, self._target - self._taken)
        lengths = self.lengths()
        first = None
        address = ""
        # Jobs that are queued but were not given are no reason for another batch.
        if self._nothing or not sum(lengths.values()):
            address, first = self._wait(list(lengths), limit)
            if first is None:
                return start
        return self._begin(self._shares(lengths, limit), start, address, first)

    def batch(self) -> Offset:
        """The batch that a batch read gives: that which is not acknowledged yet, or a new one.

        Raises:
            WireError: a new one, and no node can be reached.
        """
        # One that was acknowledged, but not to its end.
        self._holder.finish(0)
        left = self._log.open_batches()
        if left:
            return Offset(left[0], self._log.identity)
        lengths = self.lengths()
        if not lengths:
            raise WireError("no node can be reached: " + ", ".join(self._reading.nodes))
        limit = self._reading.max_jobs
        parts = self._reading.partitions_per_node
        shares = (
            self._shares(lengths, limit)
            if limit
            else [Share(address, 0) for address in lengths for _ in range(parts)]
        )
        start = Offset(self._log.highest(), self._log.identity)
        return self._begin(shares, start, "", None)

    def finish(self, end: Offset) -> None:
        """Acknowledge all batches up to ``end``. If no node can be reached the next call does."""
        try:
            own = end.log == self._log.identity
            counts = self._holder.finish(end.seq if own else 0)
        except WireError:
            return
        if counts:
            self._nothing = not sum(counts.values())
        self._taken += sum(count for seq, count in counts.items() if seq > self._before)

    def shares(self, end: Offset) -> list[tuple[int, int, Share]]:
        """Number of the batch, number of the share, share. None of a batch of another directory:
        nobody acknowledges its jobs, so they are delivered again. None if ``end`` is where the
        query began: Spark's first batch is an empty one when there is nothing to read.

        Raises:
            LeaseError: the batch was here and is acknowledged. Without its jobs it must not be
                repeated: sinks would replace it by nothing.
        """
        if end.log != self._log.identity or end.initial:
            return []
        plan = read_plan(batch_path(self._log.directory, end.seq))
        if plan is None:
            raise LeaseError(
                f"{self._log.directory} has no batch {end.seq} any more: its jobs are acknowledged."
                f" The checkpoint is an old one. {_GO_ON}"
            )
        return [(end.seq, number, share) for number, share in enumerate(plan)]

    def only_what_is_there(self) -> None:
        """From now on give no more jobs than are in the queues now."""
        self._target = sum(length for length, _ in self._queued().values())
        self._before = self._log.highest()
        self._taken = 0

    def lengths(self) -> dict[str, int]:
        """How many jobs each node that can be reached would give. A paused queue gives none, and
        neither does a node that is leaving: its jobs come through the others.

        Raises:
            RefusedError: it does not tell.
        """
        return {address: 0 if leaving else n for address, (n, leaving) in self._queued().items()}

    def _queued(self) -> dict[str, tuple[int, bool]]:
        """For each node how many jobs are in queues that are not paused, and if it is leaving."""
        queues = self._reading.taking.queues
        requests: list[Sequence[Arg]] = [("QSTAT", queue) for queue in queues]
        requests.append(("CLUSTER", "LEAVING"))
        found: dict[str, tuple[int, bool]] = {}
        for address, replies in self._nodes.ask(requests).items():
            *stats, leaving = [accepted(reply) for reply in replies]
            found[address] = (sum(_length(stat) for stat in stats), leaving == b"yes")
        return found

    def close(self) -> None:
        """End the thread, close connections, let others use the directory."""
        self._holder.close()
        self._nodes.close()
        self._log.close()

    def _shares(self, lengths: Mapping[str, int], limit: int) -> list[Share]:
        """Divide ``limit`` jobs between the nodes that have some, as they have them."""
        have = {address: length for address, length in lengths.items() if length}
        total = sum(have.values())
        spare = max(limit - total, 0)
        parts = self._reading.partitions_per_node
        shares: list[Share] = []
        for place, (address, length) in enumerate(have.items()):
            own = length if limit >= total else limit * length // total
            # What divides to nothing, and what could be more by now, the first ones get.
            own += spare // len(have) if limit >= total else 0
            if limit < total and place == 0:
                own += limit - sum(limit * other // total for other in have.values())
            shares += [
                Share(address, part) for part in divided(own, min(parts, max(own, 1))) if part
            ]
        return shares

    def _wait(self, addresses: Sequence[str], limit: int) -> tuple[str, pa.RecordBatch | None]:
        """Wait at one of the nodes for a job. That makes it ask the other nodes of the cluster,
        also those that cannot be reached from here."""
        wait = self._reading.idle_wait
        if not addresses or not wait:
            return "", None
        taking = self._reading.taking
        self._turn += 1
        address = addresses[self._turn % len(addresses)]
        try:
            wire = self._nodes.wire(address)
            count = min(limit or taking.fetch, taking.fetch, FIRST_FETCH)
            jobs = get_jobs(wire, taking.queues, count, wait)
            if not jobs:
                return address, None
            node, _ = wire.hello()
            ctimes = times(wire, jobs) if taking.with_ctime else None
            return address, job_rows(jobs, node, ctimes, self._schema)
        except WireError:
            self._nodes.lost(address)
            return address, None

    def _begin(
        self, shares: list[Share], start: Offset, address: str, first: pa.RecordBatch | None
    ) -> Offset:
        if first is not None:
            shares = [Share(address, first.num_rows), *shares]
        own = start.seq if start.log == self._log.identity else 0
        seq = max(self._log.highest(), own) + 1
        self._log.begin(seq, shares, first)
        return Offset(seq, self._log.identity)


def divided(total: int, parts: int) -> list[int]:
    """``total`` as a sum of ``parts`` numbers that differ by at most 1."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def _length(stat: Reply) -> int:
    """The jobs that a queue would give, of QSTAT's reply."""
    if not isinstance(stat, list):
        return 0  # there is no such queue
    fields = dict(zip(stat[::2], stat[1::2], strict=True))
    length = fields[b"len"]
    paused = fields[b"pause"] in (b"out", b"all")
    return length if isinstance(length, int) and not paused else 0
