"""Exceptions that tasks raise to decide about their jobs, and that waiting for results raises."""

from collections.abc import Mapping


class Retry(Exception):
    """Raised by a task to be tried again later. This counts as an attempt.

    Args:
        reason: kept with the job.
        delay: seconds until the next attempt; None: according to the task's ``backoff``.
    """

    def __init__(self, reason: str = "", *, delay: float | None = None) -> None:
        super().__init__(reason)
        self.delay = delay


class Reject(Exception):
    """Raised by a task that must not be tried again: its job becomes a dead letter, with the text
    as its reason."""


class TaskFailed(Exception):
    """The job whose result was requested failed for good.

    Attributes:
        id: the id of the job.
        type_name: the type of the task's exception, such as ``ValueError``; empty if unknown.
        text: the text of that exception.
    """

    def __init__(self, id: str, type_name: str, text: str) -> None:
        super().__init__(f"{type_name}: {text}".strip(": "))
        self.id = id
        self.type_name = type_name
        self.text = text


class ResultGone(Exception):
    """The job has ended or is unknown, and its result is no longer kept."""


class BucketFailed(Exception):
    """The store of a ``Stored`` serializer failed. What needs it can be tried again."""


class BadJob(ValueError):
    """A job that no task of this program can process, or a result that it cannot read. The text
    says why."""


class MembersFailed(BadJob):
    """Members of a group failed. ``failed``: why, by their numbers, from 0."""

    def __init__(self, failed: Mapping[int, str], total: int) -> None:
        first = min(failed)
        super().__init__(f"{len(failed)} of {total} failed, number {first + 1}: {failed[first]}")
        self.failed = failed
        self.total = total
