"""The status of a queue of the embedded store: what each group has done with its events."""

from disque_trio.bananaq.core.events import Queue
from disque_trio.bananaq.core.ops import GroupStatus, QueueStatus


def queue_status(
    name: bytes, queue: Queue | None, groups: list[bytes], consumers: dict[bytes, int]
) -> QueueStatus:
    """The status of the queue ``name``, from which all was taken that is due.

    Args:
        queue: None: it has no events.
        groups: those asked for; none: all that ever were given something, or have consumers.
        consumers: how many each group has.
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
    """The groups that were given an event that is still there."""
    first = queue.log.first()
    if first is None:
        return []
    return [
        group.name for group in queue.groups.values() if group.entries or group.pointer >= first.t
    ]
