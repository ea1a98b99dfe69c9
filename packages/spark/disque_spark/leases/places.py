"""Finds the place for leases in the options of a read."""

from collections.abc import Mapping

from disque_spark.defaults import LEASE_QUEUES, NO_DIRECTORY
from disque_spark.leases.queue import QueuePlace
from disque_spark.options import OptionError, choice, login_of, nodes_of, seconds

_MOST_NAME = 256  # bytes


def refuse_directory(options: Mapping[str, str]) -> None:
    """Refuse the lease directory of earlier releases, so that nobody believes it is in use.

    Raises:
        OptionError: there is one.
    """
    if any(name.lower() == "leasedirectory" for name in options):
        raise OptionError(
            f"leaseDirectory: {NO_DIRECTORY}. Give leaseQueue a name for this query alone"
        )


def place_of(options: Mapping[str, str]) -> QueuePlace:
    """The place named by ``leaseQueue``.

    Raises:
        OptionError: there is no such name, or it cannot be used.
    """
    choice(options, "leases", "disque")
    queue = options.get("leaseQueue")
    if not queue or len(queue.encode()) > _MOST_NAME:
        raise OptionError(
            "leaseQueue: expected a name such as orders-archive for the leases of this query"
            " alone, always the same for its checkpoint; Spark tells a source neither the"
            " query's name nor its checkpoint"
        )
    if queue.startswith(LEASE_QUEUES):
        raise OptionError(f"leaseQueue: expected a name without {LEASE_QUEUES}")
    return QueuePlace(
        queue, tuple(nodes_of(options)), login_of(options), seconds(options, "timeout", 60)
    )
