"""Whose jobs are in a queue: by group, task, user or client."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import elements, integer, pairs, text

WORDS: Final = {
    "group": "Group",
    "task": "Task",
    "user": "User",
    "client": "Client",
}
"""What jobs can be told apart by, and the title of the column."""
MOST: Final = 1_000  # names that each node tells
SHOWN: Final = 20
UNNAMED: Final = {
    "group": "without a group",
    "task": "without a task",
    "user": "unknown: added through another node, or before a restart",
    "client": "unknown: added through another node, or before a restart",
}
"""What the empty name means."""


@dataclass(slots=True)
class Tenant:
    """The jobs of one name.

    Attributes:
        added: how many were added since the nodes know the queue; -1: they do not count that.
    """

    name: str
    added: int = -1
    queued: int = 0
    in_hand: int = 0
    delayed: int = 0

    @property
    def jobs(self) -> int:
        """How many there are now."""
        return self.queued + self.in_hand + self.delayed

    def add(self, added: int, queued: int, in_hand: int, delayed: int) -> None:
        """Add what another node tells."""
        if added >= 0:
            self.added = max(self.added, 0) + added
        self.queued += queued
        self.in_hand += in_hand
        self.delayed += delayed


@dataclass(slots=True)
class Breakdown:
    """The jobs of a queue by name, the largest first.

    Attributes:
        rows: the first ``SHOWN``. others: the sum of the rest. names: how many are in it, at least.
        unread: how many jobs on disk were not looked at.
        older: nodes of releases that cannot tell. problems: other errors, by node.
    """

    rows: Sequence[Tenant]
    others: Tenant
    names: int
    unread: int
    older: Sequence[str]
    problems: Sequence[tuple[str, str]] = field(default_factory=list)

    @property
    def jobs(self) -> int:
        """How many jobs there are, under all names."""
        return self.others.jobs + sum(row.jobs for row in self.rows)

    @property
    def added(self) -> int:
        """How many were added, under all names; -1: unknown."""
        known = [row.added for row in (*self.rows, self.others) if row.added >= 0]
        return sum(known) if known else -1


def added_up(
    answers: Iterable[tuple[str, Reply]],
    older: Sequence[str],
    problems: Sequence[tuple[str, str]],
) -> Breakdown:
    """Add up the nodes' replies to QTOP. Raises ProtocolError: one is none."""
    rows: dict[str, Tenant] = {}
    others = Tenant("")
    names = unread = 0
    for _, reply in answers:
        if reply is None:
            continue
        fields = dict(pairs(reply))
        for entry in elements(fields.get("rows")):
            name, *counts = elements(entry, 5)
            found = rows.setdefault(text(name), Tenant(text(name)))
            found.add(*map(integer, counts))
        more, *rest = map(integer, elements(fields.get("others"), 5))
        names += more
        others.add(*rest)
        unread += integer(fields.get("unread"))
    ordered = sorted(rows.values(), key=lambda row: (-row.jobs, -row.added, row.name))
    for row in ordered[SHOWN:]:
        others.add(row.added, row.queued, row.in_hand, row.delayed)
    names += len(ordered[SHOWN:])
    return Breakdown(ordered[:SHOWN], others, names, unread, older, problems)
