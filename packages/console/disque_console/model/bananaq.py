"""The queues of a bananaq and their groups (QSTATUS)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import elements, integer, pairs, text

COUNTS: Final = ("total", "inprogress", "redo", "done", "available", "consumers")


@dataclass(frozen=True, slots=True)
class Group:
    """A group of a queue. All fields but ``consumers`` count events."""

    queue: str
    name: str
    total: int
    inprogress: int
    redo: int
    done: int
    available: int
    consumers: int

    @property
    def lag(self) -> int:
        """Events not yet delivered to the group, or to be redelivered."""
        return self.available + self.redo


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue."""

    name: str
    groups: Sequence[Group]


def read(reply: Reply) -> list[Queue]:
    """Read a reply to QSTATUS.

    Raises:
        ProtocolError: it is not a reply to QSTATUS.
    """
    found = []
    for entry in elements(reply):
        name, groups = elements(entry, 2)
        read_groups = []
        for group, counts in pairs(groups):
            numbers = {field: integer(value) for field, value in pairs(counts)}
            read_groups.append(
                Group(text(name), group, *(numbers.get(count, 0) for count in COUNTS))
            )
        found.append(Queue(text(name), read_groups))
    return found


def find(queues: Sequence[Queue], search: str) -> list[Queue]:
    """The queues with ``search`` in their name or a group's name, most lag first."""
    wanted = search.lower()
    rows = [
        queue
        for queue in queues
        if wanted in queue.name.lower()
        or any(wanted in group.name.lower() for group in queue.groups)
    ]
    return sorted(
        rows, key=lambda queue: (-max((group.lag for group in queue.groups), default=0), queue.name)
    )
