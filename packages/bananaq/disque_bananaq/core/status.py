"""Computes the status of a queue in the embedded store, for each group."""

from disque_bananaq.core.events import Queue
from disque_bananaq.core.results import GroupStatus, QueueStatus


class ConsumerCounts:
    """The number of consumers of each group of each queue."""

    def __init__(self) -> None:
        self._counts: dict[bytes, dict[bytes, int]] = {}

    def add(self, queue: bytes, group: bytes, more: int) -> None:
        """Add ``more`` consumers, 1 or -1."""
        groups = self._counts.setdefault(queue, {})
        groups[group] = groups.get(group, 0) + more
        if groups[group] == 0:
            del groups[group]
            if not groups:
                del self._counts[queue]

    def queues(self) -> list[bytes]:
        """Return the queues whose groups have consumers."""
        return list(self._counts)

    def of(self, queue: bytes) -> dict[bytes, int]:
        """Return the counts for ``queue``, by group."""
        return self._counts.get(queue, {})


def queue_status(
    name: bytes, queue: Queue | None, groups: list[bytes], consumers: dict[bytes, int]
) -> QueueStatus:
    """Return the status of the queue ``name``, in which everything due has been handled.

    Args:
        queue: the queue; None: it has no events.
        groups: the groups asked for; empty: all with deliveries or consumers.
        consumers: the number of consumers of each group.
    """
    found: list[GroupStatus] = []
    if queue is None:
        found = [
            GroupStatus(group_name, 0, 0, 0, 0, consumers.get(group_name, 0))
            for group_name in groups or sorted(consumers)
        ]
        return QueueStatus(name, 0, found)
    log = queue.log
    total = log.count
    counts = log.counts_from()
    for group_name in groups or sorted({*_known(queue), *consumers}):
        group = queue.groups.get(group_name)
        count = consumers.get(group_name, 0)
        if group is None:
            found.append(GroupStatus(group_name, total, 0, 0, total, count))
        else:
            available = log.count_after(group.pointer, counts) - group.ahead
            found.append(
                GroupStatus(group_name, total, group.inprogress, group.redo, available, count)
            )
    return QueueStatus(name, total, found)


def _known(queue: Queue) -> list[bytes]:
    """Return the groups that were given an event that still exists."""
    first = queue.log.first()
    if first is None:
        return []
    return [
        group.name for group in queue.groups.values() if group.entries or group.pointer >= first.t
    ]
