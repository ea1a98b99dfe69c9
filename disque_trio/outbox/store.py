"""What the forwarder asks of a database."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from disque_trio.outbox.rows import Row


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that was not taken: why, and when (s since the epoch) it is to be tried again."""

    row: Row
    error: str
    again: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is not forwarded: how many rows, how many of them were refused, and when the oldest was
    added (s since the epoch; None: there is none)."""

    rows: int
    refused: int
    oldest: float | None


class Batch(Protocol):
    """Rows that are due, the oldest first. Where the database can, they are locked until the end of
    the block, and other forwarders do not get them."""

    @property
    def rows(self) -> Sequence[Row]: ...

    def settle(
        self, sent: Sequence[tuple[Row, str]], refused: Sequence[Refusal], keep: bool
    ) -> None:
        """Take the rows that were sent (each with the id of its job) out of the table, or mark them
        if they are to be kept, and write down what was refused."""


class Listener(Protocol):
    """Tells when something was added: ``fileno()`` can be read then."""

    def fileno(self) -> int: ...

    def drain(self) -> None:
        """Read what there is. Raises one of ``Store.errors`` if the connection is broken."""

    def close(self) -> None: ...


class Store(Protocol):
    """The table of an outbox in some database.

    Attributes:
        errors: what its methods raise when the database cannot be used now.
    """

    @property
    def errors(self) -> tuple[type[Exception], ...]: ...

    def batch(self, limit: int, now: float) -> AbstractContextManager[Batch]:
        """Up to ``limit`` rows that are due at ``now`` (s since the epoch)."""

    def waiting(self) -> Waiting: ...

    def forget(self, before: float) -> int:
        """Delete the rows that were sent before that time; returns how many."""

    def listen(self) -> Listener | None:
        """Begin to hear of new rows; None where the database or its driver cannot tell."""

    def disconnect(self) -> None:
        """Close all connections; others are opened when they are needed."""
