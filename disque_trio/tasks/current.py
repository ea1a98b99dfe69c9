"""The job that is running."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from disque_trio.tasks.traces import traceparent


class Losable(Protocol):
    """What may be lost while it is worked on: a ``HeldJob``."""

    @property
    def lost(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class CurrentJob:
    """The job that a task is running for.

    Attributes:
        id: of the job. queue: that it came from. task: name of the task.
        attempt: 1 for the first one.
        retries: how often it may be tried again in all.
        headers: by name; those that are not UTF-8 are left out.
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
        """Somebody else may have it: it was cancelled, or half of its time to live is over."""
        return self._job.lost

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context that it was added in."""
        return self.headers.get("traceparent")


_current: ContextVar[CurrentJob | None] = ContextVar("disque_current_job", default=None)


def current_job() -> CurrentJob | None:
    """The job that this task or thread is running for; None: there is none."""
    return _current.get()


@contextmanager
def running(job: CurrentJob) -> Iterator[None]:
    """Within the block ``job`` is running, and what is added belongs to its trace."""
    token = _current.set(job)
    trace = traceparent.set(job.traceparent)
    try:
        yield
    finally:
        traceparent.reset(trace)
        _current.reset(token)
