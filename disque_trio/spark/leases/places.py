"""Which leases the options of a read ask for."""

from collections.abc import Mapping

from disque_trio.spark.defaults import LEASE_QUEUES
from disque_trio.spark.leases.directory import DirectoryPlace
from disque_trio.spark.leases.queue import QueuePlace
from disque_trio.spark.leases.store import LeasePlace
from disque_trio.spark.options import (
    MOST_TIME,
    OptionError,
    choice,
    directory,
    login_of,
    nodes_of,
    number,
)

_KINDS = ("directory", "disque")
_MOST_NAME = 256  # bytes


def place_of(options: Mapping[str, str]) -> LeasePlace:
    """The place that ``leases``, ``leaseDirectory`` and ``leaseQueue`` name.

    Raises:
        OptionError: they name none, or two.
    """
    path, queue = options.get("leaseDirectory"), options.get("leaseQueue")
    kind = choice(options, "leases", *(_KINDS[::-1] if queue else _KINDS))
    if kind == "disque":
        if path:
            raise OptionError("leaseDirectory: expected none beside leases=disque or leaseQueue")
        if not queue or len(queue.encode()) > _MOST_NAME:
            raise OptionError(
                "leaseQueue: expected a name for the leases of this query alone, the same each time"
                " it is started with its checkpoint, for example orders-archive; Spark tells a"
                " source neither the query's name nor its checkpoint"
            )
        if queue.startswith(LEASE_QUEUES):
            raise OptionError(f"leaseQueue: expected a name without {LEASE_QUEUES}")
        return QueuePlace(
            queue,
            tuple(nodes_of(options)),
            login_of(options),
            number(options, "timeout", 60, most=MOST_TIME),
        )
    if queue:
        raise OptionError("leaseQueue: expected none beside leases=directory")
    if not path:
        raise OptionError(
            "leaseDirectory: expected a directory that the driver and all executors share, for"
            " this query alone; on one machine for example one beside the checkpoint. Or"
            " leases=disque and leaseQueue, where nothing is shared"
        )
    return DirectoryPlace(directory(path))
