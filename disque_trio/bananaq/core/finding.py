"""Which delivery an ACK, WORKING or REDO means."""

from typing import Final

from disque_trio.bananaq.core.events import DONE, IN_PROGRESS, Delivery, Queue
from disque_trio.bananaq.core.ops import Op

MAX_ID: Final = 64  # bytes; longer than any id there is


def find(queue: Queue | None, op: Op, now: int) -> Delivery | None:
    """The delivery in ``queue`` that ``op`` means at ``now`` (µs); None: there is none any more."""
    if queue is None:
        return None
    group = queue.groups.get(op.group)
    if group is None:
        return None
    if op.by_own_id or op.own_id:
        event = queue.own_ids.get(op.own_id)
        if event is None or event.when <= now:
            return None
        entry = group.entries.get(event.t)
        return entry if entry is not None and entry.state != DONE else None
    id = op.id
    end = id.find(b"_")
    if end <= 0 or len(id) > MAX_ID or not id[:end].isdigit():
        return None
    entry = group.entries.get(int(id[:end]))
    if (
        entry is None
        or entry.state != IN_PROGRESS
        or entry.when <= now
        or entry.event.when <= now
        or entry.event.id(entry.number) != id
    ):
        return None
    return entry
