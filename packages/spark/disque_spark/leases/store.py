"""What a batch consists of: the plans of its partitions, and the leases that tasks make of them."""

from typing import NamedTuple

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
