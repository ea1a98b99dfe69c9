"""The job that is running."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from disque_trio.tasks.traces import traceparent


class Losable(Protocol):
    """A ``HeldJob``, which may be lost while it is processed."""

    @property
    def lost(self) -> bool: ...


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

    @property
    def lost(self) -> bool:
        """Whether somebody else may have the job: it was cancelled, or half of its TTL is over."""
        return self._job.lost

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
