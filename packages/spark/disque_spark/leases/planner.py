"""Plans the batches of a read, in the driver: when to start one, and which task fetches how many
jobs from which node.

Spark stores an ``Offset`` in the checkpoint. It only names a batch; the leases say which jobs that
batch has.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Self

import pyarrow as pa

from disque_spark.client import WireError
from disque_spark.leases.backlog import NodeNow, Queued, behind, reported
from disque_spark.leases.division import divide, divide_all
from disque_spark.leases.fetch import (
    ReadOptions,
    first_fetch,
    get_jobs,
    job_rows,
    keep,
    times,
)
from disque_spark.leases.keeper import LeaseKeeper
from disque_spark.leases.store import LeaseError, PartitionPlan
from disque_spark.nodes import Nodes

_GO_ON = "Start with a new checkpoint, and for a file sink with a new table"


class Offset(NamedTuple):
    """A batch: its number, and the identity of its leases.

    The offset that a query begins with (``initial``) is not one of its batches, although an earlier
    query may have had a batch of this number.
    """

    seq: int
    log: str
    initial: bool = False

    @classmethod
    def of(cls, offset: Mapping[str, object]) -> Self:
        """Parse an offset from Spark."""
        seq, log = offset.get("seq"), offset.get("log")
        return cls(seq if isinstance(seq, int) else 0, str(log), "initial" in offset)

    def json(self) -> dict[str, object]:
        """The offset for Spark."""
        initial = {"initial": True} if self.initial else {}
        return {"seq": self.seq, "log": self.log, **initial}


class Planner:
    """The driver's side of a read.

    Args:
        options: options of the read, with a place for leases.
        schema: schema of the jobs.
        hold: whether to send WORKING for the jobs of open batches, in a thread.

    Raises:
        LeaseError: the leases cannot be used.
    """

    def __init__(self, options: ReadOptions, schema: pa.Schema, hold: bool) -> None:
        assert options.leases is not None
        self._options = options
        self._schema = schema
        self._log = options.leases.open()
        self._nodes = Nodes(options.nodes, options.login, options.discover, options.timeout)
        self._queued = Queued(self._nodes, options.queues, options.pattern)
        self._keeper = LeaseKeeper(self._log, options.nodes, options.login, options.timeout)
        self._turn = 0  # selects the node to wait at
        self._target: int | None = None  # jobs to take before the stream ends; None: it does not
        self._before = 0  # batches up to this one do not count for the target
        self._taken = 0  # jobs taken of the target
        self._nothing = False  # whether the last batch had no jobs
        self._found: dict[str, NodeNow] | None = None  # the queues when the last batch was planned
        self._planned: list[PartitionPlan] = []
        if hold:
            try:
                self._log.take_over()
            except BaseException:
                self.close()
                raise
            self._keeper.start(options.heartbeat)

    @property
    def owner(self) -> str:
        """Id of this planner, for tasks; see ``QueuePlace.batch``."""
        return self._log.owner

    def initial(self) -> Offset:
        """Where a query without a checkpoint begins: before the batches that an earlier one left.
        It has to read them itself before they may be acknowledged."""
        self._log.forget_reads()
        left = self._log.open_batches()
        seq = left[0] - 1 if left else self._log.highest()
        return Offset(seq, self._log.identity, initial=True)

    def latest(self, start: Offset) -> Offset:
        """Finish the batches up to ``start``, and return the next one; or ``start`` if there is no
        other, or if no node that stores the leases can be reached.

        Raises:
            LeaseError: batches after ``start`` are already acknowledged.
            RefusedError: a node refuses to say how long queues are.
        """
        if start.log == self._log.identity and self._log.highest_done() > start.seq:
            raise LeaseError(
                f"{self._log.name}: batch {self._log.highest_done()} is acknowledged, but the"
                f" checkpoint is out of date: it knows batches up to {start.seq}. {_GO_ON}"
            )
        self._found, self._planned = None, []
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
        # If the last batch was empty, queued jobs alone are no reason for another one.
        if self._nothing or not sum(lengths.values()):
            address, first = self._wait(list(lengths), limit)
            if first is None:
                return start
        size = self._options.max_bytes
        if first is not None:
            limit -= first.num_rows
            size -= sum(len(body) for body in first.column("body").to_pylist()) if size else 0
        room = limit > 0 and (size > 0 or not self._options.max_bytes)
        return self._begin(
            self._divide(lengths, limit, size) if room else [], start, address, first
        )

    def batch(self) -> Offset:
        """The batch of a batch read: one that is not acknowledged yet, or else a new one.

        Raises:
            WireError: it is a new one, and no node can be reached.
        """
        # Complete an acknowledgement that was interrupted.
        self._keeper.finish(0)
        left = self._log.open_batches()
        if left:
            return Offset(left[0], self._log.identity)
        lengths = self.lengths()
        if not lengths:
            raise WireError("no node can be reached: " + ", ".join(self._options.nodes))
        options = self._options
        parts = (options.partitions_per_node, options.min_partitions, options.max_bytes)
        plans = (
            self._divide(lengths, options.max_jobs, options.max_bytes)
            if options.max_jobs
            else divide_all(list(lengths), *parts)
        )
        start = Offset(self._log.highest(), self._log.identity)
        return self._begin(plans, start, "", None)

    def finish(self, end: Offset) -> None:
        """Acknowledge all batches up to ``end``. If no node can be reached, the next call does."""
        try:
            own = end.log == self._log.identity
            counts = self._keeper.finish(end.seq if own else 0)
        except WireError:
            return
        if counts:
            self._nothing = not sum(counts.values())
        self._taken += sum(count for seq, count in counts.items() if seq > self._before)

    def plans(self, end: Offset) -> list[tuple[int, int, PartitionPlan]]:
        """The partitions of the batch ``end``: number of the batch, number of the partition, plan.

        Empty for a batch of other leases, whose jobs nobody acknowledges, so that they are
        delivered again. Also empty if ``end`` is where the query began: Spark's first batch is
        empty when there is nothing to read.

        Raises:
            LeaseError: the batch is already acknowledged. It must not be repeated without its jobs:
                sinks would replace it with an empty one.
        """
        if end.log != self._log.identity or end.initial:
            return []
        planned = self._log.plans(end.seq)
        if planned is None:
            raise LeaseError(
                f"{self._log.name}: batch {end.seq} is already acknowledged; the checkpoint is out"
                f" of date. {_GO_ON}"
            )
        return [(end.seq, number, plan) for number, plan in enumerate(planned)]

    def only_what_is_there(self) -> None:
        """Take no more jobs than there are in the queues now."""
        self._target = sum(node.jobs() for node in self._queued.ask().values())
        self._before = self._log.highest()
        self._taken = 0

    def lengths(self) -> dict[str, int]:
        """How many jobs each reachable node would deliver. Paused queues count as empty, and so do
        nodes that are leaving: other nodes deliver their jobs.

        Raises:
            RefusedError: a node refuses to say.
        """
        self._found = self._queued.ask()
        return {
            address: 0 if node.leaving else node.jobs() for address, node in self._found.items()
        }

    def report(self, latest: Offset) -> dict[str, object]:
        """For the progress of the query: the last batch of ``latest``, what the query reads, and
        how many jobs are not in the batch.

        Raises:
            RefusedError: a node refuses to say.
        """
        options = self._options
        if self._found is None:  # the batch existed already
            self._found = self._queued.ask()
        what = options.queues if options.pattern is None else (f"pattern {options.pattern}",)
        description = f"disque: {', '.join(what)} at {', '.join(options.nodes)}"
        return latest.json() | reported(description, behind(self._found, self._planned))

    def close(self) -> None:
        """End the thread, close connections, and unlock the leases."""
        self._keeper.close()
        self._nodes.close()
        self._log.close()

    def _divide(self, lengths: Mapping[str, int], limit: int, size: int) -> list[PartitionPlan]:
        options = self._options
        turn = self._log.highest()
        return divide(
            lengths, limit, options.partitions_per_node, options.min_partitions, size, turn
        )

    def _wait(self, addresses: Sequence[str], limit: int) -> tuple[str, pa.RecordBatch | None]:
        """Wait at one of the nodes for a job. The node then asks the others of its cluster, even
        those that cannot be reached from here."""
        wait = self._options.idle_wait
        if not addresses or not wait:
            return "", None
        options = self._options
        self._turn += 1
        address = addresses[self._turn % len(addresses)]
        try:
            client = self._nodes.client(address)
            count = min(limit or options.fetch, first_fetch(options, options.max_bytes))
            jobs = get_jobs(client, options, count, wait)
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
        if self._options.elsewhere:
            plans = [plan._replace(elsewhere=True) for plan in plans]
        own = start.seq if start.log == self._log.identity else 0
        seq = max(self._log.highest(), own) + 1
        self._log.begin(seq, plans, first)
        # The nodes' counts do not include jobs that are already fetched.
        self._planned = plans if first is None else plans[1:]
        if first is not None:
            with suppress(WireError):  # the next heartbeat does it
                keep(self._nodes.client(address), first.column(0).to_pylist())
        return Offset(seq, self._log.identity)
