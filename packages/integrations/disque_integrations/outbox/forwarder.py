"""Forwards rows of an outbox to Disque, each once, in the order in which they were added.

A row is sent with UNIQUE and its key, and then deleted. If the forwarder is killed in between, the
row is sent again: the node returns the id of the existing job, as long as it keeps the key.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from disque_integrations.outbox.rows import Row
from disque_integrations.outbox.stop import Stop
from disque_integrations.outbox.store import DueRows, Listener, Refusal, Store, first_line
from disque_trio.client.batch import NewJob
from disque_trio.process.logs import Log
from disque_trio.respclient.errors import (
    AuthError,
    ConnectionLost,
    DisqueError,
    LeavingError,
    LoadingError,
    MisconfError,
    NoExtError,
    NoReplError,
    NoUniqueError,
    OOMError,
    ProtocolError,
)

UNREACHED = (ConnectionLost, ProtocolError, AuthError)
# Errors that say nothing about the job.
OF_THE_NODE = (*UNREACHED, LeavingError, LoadingError, MisconfError, NoExtError, OOMError)
# Too few nodes: for all jobs; or only for a job that wants more copies than there are nodes, or
# whose node was killed while adding it, so that it ends where its copy is.
TOO_FEW = (NoReplError, NoUniqueError)
PAUSES = (0.1, 5.0)  # s between attempts while nodes or database are away: first, longest
ROW_PAUSES = (1.0, 300.0)  # s until a refused row is tried again
# The same for rows refused because of too few nodes: the refusal takes seconds, while others wait.
TOO_FEW_PAUSES = (5.0, 300.0)
FORGETS_EVERY = 60.0  # s
PATIENCE = 2  # attempts before an error that all rows of a batch get counts as theirs


class Sender(Protocol):
    """Adds jobs."""

    def send(self, jobs: Sequence[NewJob]) -> list[str | DisqueError]:
        """Add jobs in order, with UNIQUE. Return for each its id, or the error."""

    def reaches_a_node(self) -> bool:
        """Return whether a node answers now."""


class NodesAway(Exception):
    """No row could be added, for reasons that concern the nodes."""


class _TryFewer(Exception):
    """The nodes close the connection because of something in the batch."""


@dataclass(slots=True)
class Counts:
    """What was done so far: rows forwarded, and refusals."""

    sent: int = 0
    refused: int = 0


class Forwarder:
    """Forwards the rows in ``store`` through ``sender``.

    Args:
        batch: the most rows at a time.
        poll: seconds between two looks at a table that had nothing new.
        keep: seconds for which forwarded rows are kept and marked; None: they are deleted.

    Attributes:
        counts: what was done so far.
    """

    def __init__(
        self,
        store: Store,
        sender: Sender,
        log: Log,
        *,
        batch: int = 100,
        poll: float = 1.0,
        keep: float | None = None,
    ) -> None:
        self.counts = Counts()
        self._store = store
        self._sender = sender
        self._log = log
        self._most = batch
        self._limit = batch
        self._poll = poll
        self._keep = keep
        self._listener: Listener | None = None
        self._forgets_at = 0.0
        self._failures = 0
        self._impatience = 0

    def run(self, stop: Stop) -> None:
        """Forward rows until ``stop`` is requested. A batch in progress is finished."""
        try:
            while not stop.requested:
                self._turn(stop)
        finally:
            self._disconnect()

    def once(self, stop: Stop) -> bool:
        """Forward all rows that are due. Returns whether nothing is left.

        Raises:
            NodesAway: no node accepts the jobs.
            Exception: one of ``Store.errors``.
        """
        try:
            while not stop.requested and self.step():
                pass
            return self._store.waiting().rows == 0
        finally:
            self._disconnect()

    def step(self) -> int:
        """Forward one batch. Returns how many rows it had.

        Raises:
            NodesAway: no row could be added; all are unchanged.
            Exception: one of ``Store.errors``; rows that were sent may still be in the table.
        """
        now = time.time()
        try:
            with self._store.batch(self._limit, now) as batch:
                found = len(batch.rows)
                if found:
                    self._forward(batch)
        except _TryFewer:
            self._limit = max(1, found // 2)
            return found
        if found == self._limit:
            self._limit = min(self._most, 2 * self._limit)
        if self._keep is not None and now >= self._forgets_at:
            self._forgets_at = now + FORGETS_EVERY
            self._store.forget(now - self._keep)
        return found

    def _turn(self, stop: Stop) -> None:
        try:
            # Before looking at the table, so that later rows are heard of.
            if self._listener is None:
                self._listener = self._store.listen()
            found = self.step()
            if self._failures:
                self._failures = 0
                self._log.notice("forwarding again")
            if not found:
                stop.wait(self._poll, self._listener)
                if self._listener is not None:
                    self._listener.drain()
        except NodesAway as error:
            self._pause(stop, "no job can be added", error)
        except self._store.errors as error:
            self._disconnect()
            self._pause(stop, "the database cannot be used", error)

    def _pause(self, stop: Stop, event: str, error: Exception) -> None:
        self._failures += 1
        # Log the first failure, and then about one a minute.
        if self._failures % 12 == 1:
            self._log.warning(event, error=first_line(error), attempts=self._failures)
        stop.wait(_pause(self._failures, PAUSES))

    def _forward(self, batch: DueRows) -> None:
        jobs: dict[Row, NewJob] = {}
        results: dict[Row, str | Exception] = {}
        for row in batch.rows:
            try:
                jobs[row] = row.job()
            except ValueError as error:
                results[row] = error
        if jobs:
            answers = self._sender.send(list(jobs.values()))
            fresh = any(row.attempts == 0 for row in jobs)
            theirs = self._theirs(answers, fresh)
            results |= {row: answers[n] for n, row in enumerate(jobs) if theirs(answers[n])}
        sent = [(row, id) for row, id in results.items() if isinstance(id, str)]
        # The answers may have taken longer than the pause, which is meant to let other rows pass.
        now = time.time()
        refused = [
            Refusal(row, _readable(error), now + _row_pause(row, error))
            for row, error in results.items()
            if isinstance(error, Exception)
        ]
        batch.settle(sent, refused, self._keep is not None)
        self.counts.sent += len(sent)
        self.counts.refused += len(refused)
        if refused:
            first = refused[0]
            fields = {"key": str(first.row.key), "queue": first.row.queue, "error": first.error}
            self._log.warning("refused", rows=len(refused), **fields)
        self._log.debug("forwarded", rows=len(sent))

    def _theirs(
        self, answers: Sequence[str | DisqueError], fresh: bool
    ) -> Callable[[object], bool]:
        """Return a function that tells which answers settle their rows; the other rows are the
        first of the next batch.

        Args:
            fresh: whether some rows were not refused before.

        Raises:
            NodesAway: no answer does.
        """
        if not all(isinstance(answer, OF_THE_NODE + TOO_FEW) for answer in answers):
            self._impatience = 0
            return lambda answer: not isinstance(answer, OF_THE_NODE)
        if isinstance(answers[0], UNREACHED) and self._sender.reaches_a_node():
            if len(answers) > 1:
                raise _TryFewer
            return lambda answer: True
        if any(isinstance(answer, TOO_FEW) for answer in answers):
            self._impatience += 1
            if self._impatience > PATIENCE or not fresh:
                # Rows after these may be accepted.
                self._impatience = 0
                return lambda answer: isinstance(answer, TOO_FEW)
        raise NodesAway(str(answers[0]))

    def _disconnect(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._store.disconnect()


def _readable(error: Exception) -> str:
    """Return the error's text in a form that any database can store."""
    text = str(error).replace("\0", r"\0")
    return text.encode(errors="backslashreplace").decode()[:1000]


def _row_pause(row: Row, error: Exception) -> float:
    limits = TOO_FEW_PAUSES if isinstance(error, TOO_FEW) else ROW_PAUSES
    return _pause(row.attempts + 1, limits)


def _pause(attempt: int, limits: tuple[float, float]) -> float:
    """Return the seconds to wait after this many attempts: doubling each time, within limits."""
    first, longest = limits
    return min(longest, first * 2.0 ** min(attempt - 1, 30))
