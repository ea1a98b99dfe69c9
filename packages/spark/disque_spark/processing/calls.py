"""Calls the user's function with jobs, and returns the outcome of each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeGuard

import pandas as pd

from disque_spark.processing.job import Failed, Job, Outcome, body_of

COLUMNS = ("id", "queue", "body", "nacks", "additional_deliveries", "headers")


def singly(
    function: Callable[[Job], object],
    jobs: Sequence[Job],
    wanted: bool = True,
    gone: Callable[[Job], bool] = lambda job: False,
) -> Iterator[Outcome]:
    """Call a function with each job. Yield the outcomes, each as soon as it is known.

    Args:
        function: returns the result, or raises if the job failed.
        wanted: whether there is a queue for results; if not, results may be anything.
        gone: whether somebody else has dealt with a job meanwhile, so that it can be skipped.
    """
    for job in jobs:
        if not gone(job):
            try:
                outcome = _outcome(job, function(job), wanted)
            except KeyboardInterrupt:
                raise
            except BaseException as problem:  # even SystemExit fails the job, not the task
                outcome = Outcome(job, failed=Failed.of(problem))
            yield outcome


def in_frames(
    function: Callable[[pd.DataFrame], object], jobs: Sequence[Job], wanted: bool = True
) -> Iterator[Outcome]:
    """Call a function with a pandas DataFrame of jobs. Yield the outcomes in order.

    If the function raises, or does not return a result for each job, both halves are tried on their
    own, down to single jobs. So the jobs that it cannot do are found, and the others are done.

    Args:
        function: takes a DataFrame with ``COLUMNS``; returns a list, array or Series with the
            results in the order of the jobs, or a DataFrame, whose columns except ``COLUMNS`` are
            the result as a JSON object, or None for no results. An exception in place of a result
            means that the job failed.
        wanted: as for ``singly``.
    """
    try:
        given = function(pd.DataFrame(list(jobs), columns=COLUMNS))
        values = _values(given if wanted or _is_list(given) else None, len(jobs))
    except KeyboardInterrupt:
        raise
    except BaseException as problem:
        if len(jobs) == 1:
            yield Outcome(jobs[0], failed=Failed.of(problem))
        else:
            half = len(jobs) // 2
            yield from in_frames(function, jobs[:half], wanted)
            yield from in_frames(function, jobs[half:], wanted)
        return
    for job, value in zip(jobs, values, strict=True):
        yield _outcome(job, value, wanted)


def _outcome(job: Job, value: object, wanted: bool) -> Outcome:
    if isinstance(value, BaseException):
        return Outcome(job, failed=Failed.of(value))
    if not wanted:
        return Outcome(job)
    try:
        return Outcome(job, body_of(value))
    except (TypeError, ValueError) as problem:
        return Outcome(job, failed=Failed(f"result: {problem}"))


def _values(given: object, count: int) -> list[object]:
    """The value for each job. Raises ValueError if there are more or fewer values than jobs, or
    ``given`` is not a collection."""
    if given is None:
        return [None] * count
    if isinstance(given, pd.DataFrame):
        rest = given.drop(columns=list(COLUMNS), errors="ignore")
        records = rest.to_dict("records") if rest.columns.size else [None] * len(rest)
        given = [row and {name: _present(value) for name, value in row.items()} for row in records]
    if not _is_list(given):
        kind = type(given).__name__
        raise ValueError(f"the function returned a {kind}, not a result for each job")
    values = [_present(value) for value in given]
    if len(values) != count:
        raise ValueError(f"the function returned {len(values)} results for {count} jobs")
    return values


def _is_list(given: object) -> TypeGuard[Iterable[object]]:
    return isinstance(given, Iterable) and not isinstance(given, str | bytes | dict)


def _present(value: object) -> object:
    """``value``; None if it is one of pandas' missing values."""
    return None if pd.api.types.is_scalar(value) and pd.isna(value) else value
