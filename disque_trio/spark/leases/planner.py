"""Plans the batches of a read in the driver: when to start one, and which task fetches how many
jobs from which node.

``Offset`` is what Spark keeps in the checkpoint. Only its batch is in it: which jobs that batch has
is in the lease directory.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Self

import pyarrow as pa

from disque_trio.spark.client import Arg, Reply, WireError, accepted
from disque_trio.spark.leases.fetch import (
    FIRST_FETCH,
    ReadOptions,
    get_jobs,
    job_rows,
    keep,
    times,
)
from disque_trio.spark.leases.keeper import LeaseKeeper
from disque_trio.spark.leases.store import LeaseError, PartitionPlan
from disque_trio.spark.nodes import Nodes

_GO_ON = "To go on begin a new one, and a new table for a file sink"


class Offset(NamedTuple):
    """A batch: its number, and the identity of its lease directory.

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


class Planner:
    """The driver's side of a read.

    Args:
        options: with a place for leases.
        schema: of the jobs.
        hold: whether to say WORKING for the jobs of open batches, in a thread.

    Raises:
        LeaseError: the leases cannot be used.
    """

    def __init__(self, options: ReadOptions, schema: pa.Schema, hold: bool) -> None:
        assert options.leases is not None
        self._options = options
        self._schema = schema
        self._log = options.leases.open()
        self._nodes = Nodes(options.nodes, options.login, options.discover, options.timeout)
        self._keeper = LeaseKeeper(self._log, options.nodes, options.login, options.timeout)
        self._turn = 0  # whose turn it is to be waited for
        self._target: int | None = None  # how many jobs to take until the end; None: no end
        self._before = 0  # batches up to this one do not count for the target
        self._taken = 0  # of the target
        self._nothing = False  # whether the last batch had no job
        if hold:
            try:
                self._log.take_over()
            except BaseException:
                self.close()
                raise
            self._keeper.start(options.heartbeat)

    @property
    def owner(self) -> str:
        """This planner, as tasks name it; see ``LeasePlace.batch``."""
        return self._log.owner

    def initial(self) -> Offset:
        """Where a query without a checkpoint begins: before what another one left. It has to read
        that itself, for it to be acknowledged."""
        self._log.forget_reads()
        left = self._log.open_batches()
        seq = left[0] - 1 if left else self._log.highest()
        return Offset(seq, self._log.identity, initial=True)

    def latest(self, start: Offset) -> Offset:
        """The next batch, or ``start`` if there is none, or no node can be reached that keeps its
        leases. What is up to ``start`` is over.

        Raises:
            LeaseError: batches after ``start`` are acknowledged already.
            RefusedError: a node refuses to tell how long queues are.
        """
        if start.log == self._log.identity and self._log.highest_done() > start.seq:
            raise LeaseError(
                f"{self._log.name}: batch {self._log.highest_done()} is acknowledged, and the"
                f" checkpoint is an old one that knows batches up to {start.seq}. {_GO_ON}"
            )
        self.finish(start)
        try:
            return self._next(start)
        except WireError:
            return start

    def _next(self, start: Offset) -> Offset:
        left = self._log.open_batches()
        if left:  # planned before a crash, or left by a query with another checkpoint
            return Offset(left[0], self._log.identity)
        limit = self._options.max_jobs
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
        return self._begin(self._divide(lengths, limit), start, address, first)

    def batch(self) -> Offset:
        """The batch that a batch read gives: that which is not acknowledged yet, or a new one.

        Raises:
            WireError: a new one, and no node can be reached.
        """
        # One that was acknowledged, but not to its end.
        self._keeper.finish(0)
        left = self._log.open_batches()
        if left:
            return Offset(left[0], self._log.identity)
        lengths = self.lengths()
        if not lengths:
            raise WireError("no node can be reached: " + ", ".join(self._options.nodes))
        limit = self._options.max_jobs
        parts = self._options.partitions_per_node
        plans = (
            self._divide(lengths, limit)
            if limit
            else [PartitionPlan(address, 0) for address in lengths for _ in range(parts)]
        )
        start = Offset(self._log.highest(), self._log.identity)
        return self._begin(plans, start, "", None)

    def finish(self, end: Offset) -> None:
        """Acknowledge all batches up to ``end``. If no node can be reached the next call does."""
        try:
            own = end.log == self._log.identity
            counts = self._keeper.finish(end.seq if own else 0)
        except WireError:
            return
        if counts:
            self._nothing = not sum(counts.values())
        self._taken += sum(count for seq, count in counts.items() if seq > self._before)

    def plans(self, end: Offset) -> list[tuple[int, int, PartitionPlan]]:
        """Number of the batch, number of the partition, its plan. None of a batch of another
        directory: nobody acknowledges its jobs, so they are delivered again. None if ``end`` is
        where the query began: Spark's first batch is an empty one when there is nothing to read.

        Raises:
            LeaseError: the batch was here and is acknowledged. Without its jobs it must not be
                repeated: sinks would replace it by nothing.
        """
        if end.log != self._log.identity or end.initial:
            return []
        planned = self._log.plans(end.seq)
        if planned is None:
            raise LeaseError(
                f"{self._log.name} has no batch {end.seq} any more: its jobs are acknowledged."
                f" The checkpoint is an old one. {_GO_ON}"
            )
        return [(end.seq, number, plan) for number, plan in enumerate(planned)]

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
        queues = self._options.queues
        requests: list[Sequence[Arg]] = [("QSTAT", queue) for queue in queues]
        requests.append(("CLUSTER", "LEAVING"))
        found: dict[str, tuple[int, bool]] = {}
        for address, replies in self._nodes.ask(requests).items():
            *stats, leaving = [accepted(reply) for reply in replies]
            found[address] = (sum(_length(stat) for stat in stats), leaving == b"yes")
        return found

    def close(self) -> None:
        """End the thread, close connections, let others use the directory."""
        self._keeper.close()
        self._nodes.close()
        self._log.close()

    def _divide(self, lengths: Mapping[str, int], limit: int) -> list[PartitionPlan]:
        """Divide ``limit`` jobs between the nodes that have some, as they have them."""
        parts = self._options.partitions_per_node
        return [
            PartitionPlan(address, part)
            for address, own in shares(lengths, limit, self._log.highest()).items()
            for part in divided(own, min(parts, max(own, 1)))
            if part
        ]

    def _wait(self, addresses: Sequence[str], limit: int) -> tuple[str, pa.RecordBatch | None]:
        """Wait at one of the nodes for a job. That makes it ask the other nodes of the cluster,
        also those that cannot be reached from here."""
        wait = self._options.idle_wait
        if not addresses or not wait:
            return "", None
        options = self._options
        self._turn += 1
        address = addresses[self._turn % len(addresses)]
        try:
            client = self._nodes.client(address)
            count = min(limit or options.fetch, options.fetch, FIRST_FETCH)
            jobs = get_jobs(client, options.queues, count, wait)
            if not jobs:
                return address, None
            node, _ = client.hello()
            ctimes = times(client, jobs) if options.with_ctime else None
            return address, job_rows(jobs, node, ctimes, self._schema)
        except WireError:
            self._nodes.lost(address)
            return address, None

    def _begin(
        self, plans: list[PartitionPlan], start: Offset, address: str, first: pa.RecordBatch | None
    ) -> Offset:
        if first is not None:
            plans = [PartitionPlan(address, first.num_rows), *plans]
        own = start.seq if start.log == self._log.identity else 0
        seq = max(self._log.highest(), own) + 1
        self._log.begin(seq, plans, first)
        if first is not None:
            with suppress(WireError):  # as in keep: the next heartbeat does it
                keep(self._nodes.client(address), first.column(0).to_pylist())
        return Offset(seq, self._log.identity)


def shares(lengths: Mapping[str, int], limit: int, turn: int) -> dict[str, int]:
    """``limit`` jobs divided between the nodes that have some.

    Args:
        lengths: how many jobs each has.
        limit: 1 at least.
        turn: of the batch. What does not divide goes to nodes in turn, first to those that would
            get nothing: so all are visited by and by, however long the queue of one of them is.
    """
    have = {address: length for address, length in lengths.items() if length}
    total = sum(have.values())
    if limit >= total:
        # There could be more by now.
        return {address: n + (limit - total) // len(have) for address, n in have.items()}
    found = {address: limit * length // total for address, length in have.items()}
    addresses = list(have)
    at = turn % len(addresses)
    in_turn = sorted(addresses[at:] + addresses[:at], key=lambda address: found[address] > 0)
    for address in in_turn[: limit - sum(found.values())]:
        found[address] += 1
    return found


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
