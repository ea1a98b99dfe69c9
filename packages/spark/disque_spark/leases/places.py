"""Finds the place for leases in the options of a read."""

from collections.abc import Mapping

from disque_spark.defaults import LEASE_QUEUES
from disque_spark.leases.directory import DirectoryPlace
from disque_spark.leases.queue import QueuePlace
from disque_spark.leases.store import LeasePlace
from disque_spark.options import (
    OptionError,
    choice,
    directory,
    login_of,
    nodes_of,
    seconds,
)

_KINDS = ("directory", "disque")
_MOST_NAME = 256  # bytes


def place_of(options: Mapping[str, str]) -> LeasePlace:
    """The place named by ``leases``, ``leaseDirectory`` and ``leaseQueue``.

    Raises:
        OptionError: they name none, or two.
    """
    path, queue = options.get("leaseDirectory"), options.get("leaseQueue")
    kind = choice(options, "leases", *(_KINDS[::-1] if queue else _KINDS))
    if kind == "disque":
        if path:
            raise OptionError("leaseDirectory: cannot be combined with leases=disque or leaseQueue")
        if not queue or len(queue.encode()) > _MOST_NAME:
            raise OptionError(
                "leaseQueue: expected a name such as orders-archive for the leases of this query"
                " alone, always the same for its checkpoint; Spark tells a source neither the"
                " query's name nor its checkpoint"
            )
        if queue.startswith(LEASE_QUEUES):
            raise OptionError(f"leaseQueue: expected a name without {LEASE_QUEUES}")
        return QueuePlace(
            queue,
            tuple(nodes_of(options)),
            login_of(options),
            seconds(options, "timeout", 60),
        )
    if queue:
        raise OptionError("leaseQueue: cannot be combined with leases=directory")
    if not path:
        raise OptionError(
            "leaseDirectory: expected a directory for this query alone that the driver and all"
            " executors share; on one machine, for example, one beside the checkpoint. Without a"
            " shared directory, use leases=disque and leaseQueue"
        )
    return DirectoryPlace(directory(path))
