"""What a place for leases has to do: the words that the directory and the queue have in common.

A ``LeasePlace`` is a value that driver and executors are given. The one process that plans and
ends batches opens it as a ``LeaseStore``; a task sees one batch of it as a ``TaskBatch``. A batch
is open from ``begin`` to ``finish``, then to be acknowledged, and forgotten by ``clear``.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import pyarrow as pa

LOCK_SECONDS = 30.0


class LeaseError(Exception):
    """The leases cannot be used; the text says which ones and why."""


class PartitionPlan(NamedTuple):
    """The plan of one task of a batch.

    Attributes:
        address: of the node that it fetches jobs from.
        limit: so many at most; 0: all.
        size: about so many bytes of bodies at most; 0: no limit.
        elsewhere: who gets the rows says what becomes of the jobs.
    """

    address: str
    limit: int
    size: int = 0
    elsewhere: bool = False


class Lease(NamedTuple):
    """The jobs that a partition of a batch has.

    Attributes:
        number: of the partition.
        address: of the node that they came from.
        ids: of the jobs.
        read: whether any task gave them to Spark.
        elsewhere: as in the plan.
    """

    number: int
    address: str
    ids: list[str]
    read: bool
    elsewhere: bool = False

    @property
    def given(self) -> bool:
        """Whether others deal with the jobs now."""
        return self.read and self.elsewhere


class LeaseDraft(Protocol):
    """A lease under construction, which nobody sees before ``publish``."""

    def append(self, jobs: pa.RecordBatch) -> None:
        """Add jobs behind those that are there."""

    def publish(self, number: int) -> bool:
        """Make it the lease of partition ``number``: safe, whole, and never to change. Jobs that
        another lease of the batch has, since two nodes delivered them, are left out. False if
        another attempt was first, or the batch is over."""
        ...

    def close(self) -> None:
        """Remove what is not published."""


class TaskBatch(Protocol):
    """A batch as the tasks see it that fetch and read its jobs."""

    def jobs(self, number: int) -> Iterable[pa.RecordBatch] | None:
        """The jobs of a partition's lease, to be read once; None if it has none yet."""
        ...

    def draft(self, schema: pa.Schema) -> LeaseDraft:
        """Begin a lease of jobs of ``schema``, whose first column holds their ids.

        Raises:
            LeaseError: there is no such batch here, or it is over.
        """
        ...

    def mark_read(self, number: int) -> None:
        """A task is about to give a partition's jobs to Spark. Nothing if the batch is over."""

    def leased(self) -> set[str]:
        """The ids in all leases of the batch that there are."""
        ...

    def close(self) -> None:
        """Close what was opened to see it."""


class LeaseStore(Protocol):
    """A lease place as seen by the one process that plans and ends batches, which locks it while it
    is open: two queries with the same leases would acknowledge each other's jobs.

    Attributes:
        name: of the place, for errors.
        identity: of the leases; not that of others that were or will be in the same place.
        owner: of this process; tasks say it, see ``LeasePlace.batch``.
    """

    @property
    def name(self) -> str: ...
    @property
    def identity(self) -> str: ...
    @property
    def owner(self) -> str: ...

    def take_over(self) -> None:
        """Keep who had the place before from ending batches that are open."""

    def open_batches(self) -> list[int]:
        """The numbers of the batches that are not over, lowest first."""
        ...

    def highest(self) -> int:
        """The highest number that any batch had; 0 if there was none."""
        ...

    def highest_done(self) -> int:
        """The highest number of a batch that is over; 0 if there was none."""
        ...

    def begin(
        self, number: int, plans: Sequence[PartitionPlan], first: pa.RecordBatch | None
    ) -> None:
        """Make a batch. ``first`` are jobs that were fetched already, for partition 0."""

    def plans(self, number: int) -> list[PartitionPlan] | None:
        """The partitions of a batch that is not over; None if it is not here."""
        ...

    def nodes(self, number: int) -> list[str]:
        """The addresses that the plan of a batch names, which is open or to be acknowledged."""
        ...

    def leases(self, number: int) -> list[Lease]:
        """The leases that have jobs, of a batch that is open or to be acknowledged."""
        ...

    def finish(self, number: int) -> None:
        """The batch is over: no lease can be added to it any more."""

    def forget_reads(self) -> None:
        """What was read of open batches, another query has read."""

    def to_acknowledge(self) -> list[int]:
        """The batches that are over and not yet cleared, lowest first."""
        ...

    def clear(self, number: int) -> None:
        """All jobs of the batch that is over are acknowledged: forget them."""

    def close(self) -> None:
        """Let others use the place. Again: nothing."""


class LeasePlace(Protocol):
    """Where leases are; a value that can be pickled."""

    def open(self, seconds: float = LOCK_SECONDS) -> LeaseStore:
        """Lock it, and wait for that up to ``seconds``: the process of a killed query needs a
        moment to end.

        Raises:
            LeaseError: it is in use, or cannot be made.
            WireError: the nodes that keep it cannot be reached.
        """
        ...

    def watch(self) -> LeaseStore:
        """See it without the lock, to keep the jobs of batches from being delivered again while
        other processes plan them. Raises as ``open``."""
        ...

    def batch(self, number: int, owner: str, address: str) -> TaskBatch:
        """A batch, for a task of the process ``owner`` that fetches from the node at
        ``address``."""
        ...
