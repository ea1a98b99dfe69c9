"""The interface between the forwarder and a database."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from disque_integrations.outbox.rows import Row


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that was refused: why, and when to try it again (s since the epoch)."""

    row: Row
    error: str
    again: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is not forwarded yet: how many rows, how many of them were refused, and when the oldest
    was added (s since the epoch; None: there are none)."""

    rows: int
    refused: int
    oldest: float | None


class DueRows(Protocol):
    """Rows that are due, the oldest first. If the database can do that, they are locked until the
    end of the block, so that other forwarders do not get them."""

    @property
    def rows(self) -> Sequence[Row]: ...

    def settle(
        self, sent: Sequence[tuple[Row, str]], refused: Sequence[Refusal], keep: bool
    ) -> None:
        """Remove the rows that were sent (each with the id of its job) from the table, or mark them
        if they are to be kept, and record what was refused."""


class Listener(Protocol):
    """Reports when something was added: ``fileno()`` then becomes readable."""

    def fileno(self) -> int: ...

    def drain(self) -> None:
        """Read all notifications. Raises one of ``Store.errors`` if the connection is broken."""

    def close(self) -> None: ...


class Store(Protocol):
    """The table of an outbox in some database.

    Attributes:
        errors: exceptions that its methods raise if the database cannot be used at the moment.
    """

    @property
    def errors(self) -> tuple[type[Exception], ...]: ...

    def batch(self, limit: int, now: float) -> AbstractContextManager[DueRows]:
        """Yield up to ``limit`` rows that are due at ``now`` (s since the epoch)."""

    def waiting(self) -> Waiting: ...

    def forget(self, before: float) -> int:
        """Delete the rows that were sent before that time; return how many."""

    def listen(self) -> Listener | None:
        """Start to listen for new rows; None if the database or its driver does not support it."""

    def disconnect(self) -> None:
        """Close all connections; new ones are opened when needed."""


def first_line(error: Exception) -> str:
    """What is wrong, in one line. SQLAlchemy adds lines with the statement and its parameters to
    what the driver says."""
    text = str(getattr(error, "orig", None) or error)
    return text.strip().partition("\n")[0]
