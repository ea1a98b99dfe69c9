"""The interface that lease directories and lease queues have in common.

The driver and the executors get a ``LeasePlace``, which is a value. The one process that plans and
finishes batches opens it as a ``LeaseStore``; a task sees one batch of it as a ``TaskBatch``. A
batch is open from ``begin`` to ``finish``, then has to be acknowledged, and is deleted by
``clear``.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

LOCK_SECONDS = 30.0  # s to wait for the lock


class LeaseError(Exception):
    """Leases cannot be used; the text says which, and why."""


class PartitionPlan(NamedTuple):
    """The plan of one task of a batch.

    Attributes:
        address: address of the node that it fetches jobs from.
        limit: the most jobs; 0: no limit.
        size: the most bytes of bodies, approximately; 0: no limit.
        elsewhere: whoever gets the rows acknowledges the jobs or hands them back.
    """

    address: str
    limit: int
    size: int = 0
    elsewhere: bool = False


class Lease(NamedTuple):
    """The jobs of a partition of a batch.

    Attributes:
        number: number of the partition.
        address: address of the node that the jobs came from.
        ids: ids of the jobs.
        read: whether any task has passed them to Spark.
        elsewhere: as in the plan.
    """

    number: int
    address: str
    ids: list[str]
    read: bool
    elsewhere: bool = False

    @property
    def given(self) -> bool:
        """Whether the recipient of the rows is responsible for the jobs now."""
        return self.read and self.elsewhere


class LeaseDraft(Protocol):
    """A lease under construction, invisible to others before ``publish``."""

    def append(self, jobs: pa.RecordBatch) -> None:
        """Add jobs at the end."""

    def publish(self, number: int) -> bool:
        """Make it the lease of partition ``number``: durable, complete and immutable. Leaves out
        jobs that are in another lease of the batch, because two nodes delivered them. Returns False
        if another attempt was first, or the batch is finished."""
        ...

    def close(self) -> None:
        """Discard it, unless it is published."""


class TaskBatch(Protocol):
    """A batch, as seen by the tasks that fetch and read its jobs."""

    def jobs(self, number: int) -> Iterable[pa.RecordBatch] | None:
        """The jobs of a partition's lease, to be iterated once; None if there is no lease yet."""
        ...

    def draft(self, schema: pa.Schema) -> LeaseDraft:
        """Begin a lease with jobs of ``schema``, whose first column has their ids.

        Raises:
            LeaseError: there is no such batch here, or it is finished.
        """
        ...

    def mark_read(self, number: int) -> None:
        """Record that a task passes a partition's jobs to Spark. Does nothing if the batch is
        finished."""

    def leased(self) -> set[str]:
        """The ids in all existing leases of the batch."""
        ...

    def close(self) -> None:
        """Close connections and files."""


class LeaseStore(Protocol):
    """A lease place, as seen by the one process that plans and finishes batches. It is locked while
    it is open: two queries with the same leases would acknowledge each other's jobs.

    Attributes:
        name: name of the place, for errors.
        identity: id of the leases; differs from those of earlier or later leases in the same place.
        owner: id of this process, for tasks; see ``LeasePlace.batch``.
    """

    @property
    def name(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def owner(self) -> str: ...

    def take_over(self) -> None:
        """Keep the previous owner from finishing open batches."""

    def open_batches(self) -> list[int]:
        """The numbers of the open batches, lowest first."""
        ...

    def highest(self) -> int:
        """The highest number of any batch; 0 if there has been none."""
        ...

    def highest_done(self) -> int:
        """The highest number of a finished batch; 0 if there has been none."""
        ...

    def begin(
        self, number: int, plans: Sequence[PartitionPlan], first: pa.RecordBatch | None
    ) -> None:
        """Create a batch. ``first``: jobs that are already fetched, for partition 0."""

    def plans(self, number: int) -> list[PartitionPlan] | None:
        """The partitions of an open batch; None if there is no such batch."""
        ...

    def nodes(self, number: int) -> list[str]:
        """The addresses in the plan of a batch that is open or to be acknowledged."""
        ...

    def leases(self, number: int) -> list[Lease]:
        """The non-empty leases of a batch that is open or to be acknowledged."""
        ...

    def finish(self, number: int) -> None:
        """Finish a batch: no lease can be added to it any more."""

    def forget_reads(self) -> None:
        """Forget which leases of open batches were read: another query has read them."""

    def to_acknowledge(self) -> list[int]:
        """The batches that are finished but not yet cleared, lowest first."""
        ...

    def clear(self, number: int) -> None:
        """Delete a finished batch, whose jobs are all acknowledged."""

    def close(self) -> None:
        """Unlock the place. May be called again."""


class LeasePlace(Protocol):
    """A place for leases; a value that can be pickled."""

    def open(self, seconds: float = LOCK_SECONDS) -> LeaseStore:
        """Lock it; wait up to ``seconds`` for the lock, as the process of a killed query needs a
        moment to end.

        Raises:
            LeaseError: it is in use, or cannot be created.
            WireError: the nodes that store it cannot be reached.
        """
        ...

    def watch(self) -> LeaseStore:
        """Look at it without the lock, to keep the jobs of batches from being delivered again while
        other processes plan them. Raises as ``open``."""
        ...

    def batch(self, number: int, owner: str, address: str) -> TaskBatch:
        """A batch, for a task sent by the process ``owner``, which fetches from the node at
        ``address``."""
        ...
