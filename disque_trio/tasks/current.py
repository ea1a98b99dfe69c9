"""The job that is running."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from typing import Final, Protocol

from disque_trio.client.job import Letter
from disque_trio.tasks.definition import Backoff
from disque_trio.tasks.messages import DAY, Step
from disque_trio.tasks.traces import traceparent

_RUNS: Final = 3600.0
"""Seconds that the attempts of a job take all together, without the pauses between them, as far as
keys of jobs that it adds are concerned."""


class Losable(Protocol):
    """A ``HeldJob``, which may be lost while it is processed."""

    @property
    def lost(self) -> bool: ...
    @property
    def letter(self) -> Letter | None: ...

    def progress(self, fraction: float, text: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class CurrentJob:
    """The job that a task is processing.

    Attributes:
        id: the id of the job.
        queue: the queue that it came from.
        task: the name of the task.
        attempt: the number of this attempt, beginning with 1.
        retries: how many retries the task allows.
        headers: the headers by name, without values that are not UTF-8.
    """

    id: str
    queue: str
    task: str
    attempt: int
    retries: int
    headers: Mapping[str, str]
    _job: Losable
    _backoff: Backoff
    _added: dict[str, "count[int]"] = field(default_factory=dict)

    @property
    def lost(self) -> bool:
        """Whether somebody else may have the job: it was cancelled, or half of its TTL is over."""
        return self._job.lost

    @property
    def letter(self) -> Letter | None:
        """If the job is a dead letter, where it came from."""
        return self._job.letter

    def progress(self, fraction: float, text: str = "") -> None:
        """Say how far the task is: ``current_job().progress(0.4, "page 4 of 10")``, for
        ``Handle.progress`` and the console.

        This only notes it, also in an ``async`` task: the last one is sent soon, ten times a second
        at most.

        Args:
            fraction: from 0 to 1.
            text: at most 200 bytes of it are sent.

        Raises:
            ValueError: ``fraction`` is not from 0 to 1.
        """
        self._job.progress(fraction, text)

    def key_for(self, step: Step) -> str:
        """Return the key of a job that the task adds, which it has again when the task is retried
        and adds it again. It follows from the id of the task's job, the new job with those that
        follow it, and how many such jobs the task has added before. Not from their order: a retried
        task may have other things to do, and none of these must be lost."""
        id = self.id if self.letter is None else self.letter.first_id
        added = sha256()
        for one in step.chain:
            for part in (one.task.encode(), one.queue.encode(), one.body):
                added.update(b"%d " % len(part) + part)
        digest = added.hexdigest()[:32]
        number = next(self._added.setdefault(digest, count(1)))
        return f"by {id} {digest} {number}"

    @property
    def kept(self) -> float:
        """Seconds to keep such keys: as long as the task may be retried, but a day at most."""
        if callable(self._backoff):
            return DAY
        shortest, longest = self._backoff
        pauses = sum(min(longest, shortest * 2.0 ** min(n, 60)) for n in range(self.retries))
        return min(DAY, _RUNS + 1.25 * pauses)

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context in which the job was added."""
        return self.headers.get("traceparent")


_current: ContextVar[CurrentJob | None] = ContextVar("disque_current_job", default=None)


def current_job() -> CurrentJob | None:
    """Return the job that this task or thread is processing; None if there is none."""
    return _current.get()


@contextmanager
def running(job: CurrentJob) -> Iterator[None]:
    """Make ``job`` the current job within the block; jobs added there belong to its trace."""
    token = _current.set(job)
    trace = traceparent.set(job.traceparent)
    try:
        yield
    finally:
        traceparent.reset(trace)
        _current.reset(token)
