"""Calls the user's function with jobs, and returns the outcome of each."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeGuard

import pandas as pd

from disque_spark.processing.job import Failed, Job, Outcome, body_of

COLUMNS = ("id", "queue", "body", "nacks", "additional_deliveries", "headers")


class Calls(Protocol):
    """A way of passing jobs to a function."""

    def __call__(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Yield the outcomes of ``jobs``, in order, each as soon as it is known."""


class Singly:
    """Calls a function with one job at a time.

    Args:
        function: returns the result, or raises if the job failed.
        gone: whether somebody else has dealt with a job meanwhile, so that it can be skipped.
        wanted: whether there is a queue for results; if not, results may be anything.
    """

    def __init__(
        self,
        function: Callable[[Job], object],
        gone: Callable[[Job], bool] = lambda job: False,
        wanted: bool = True,
    ) -> None:
        self._function = function
        self._gone = gone
        self._wanted = wanted

    def __call__(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            if not self._gone(job):
                yield self._call(job)

    def _call(self, job: Job) -> Outcome:
        try:
            return _outcome(job, self._function(job), self._wanted)
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # even SystemExit fails the job, not the task
            return Outcome(job, failed=Failed.of(problem))


class InFrames:
    """Calls a function with pandas DataFrames of jobs.

    If the function raises, or does not return a result for each job, both halves are tried on their
    own, down to single jobs. So the jobs that it cannot do are found, and the others are done.

    Args:
        function: takes a DataFrame with ``COLUMNS``; returns a list, array, Series or DataFrame
            with the results, in the order of the jobs or with the index of the DataFrame, or None
            for no results. Of a DataFrame, the result is its column ``result``, or else all columns
            except ``COLUMNS``. An exception in place of a result, or a string in the column
            ``error``, means that the job failed.
        wanted: as for ``Singly``.
    """

    def __init__(self, function: Callable[[pd.DataFrame], object], wanted: bool = True) -> None:
        self._function = function
        self._wanted = wanted

    def __call__(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        if not jobs:
            return
        try:
            given = self._function(pd.DataFrame(list(jobs), columns=COLUMNS))
            values: list[object] = [None] * len(jobs)
            if self._wanted or _is_list(given):
                values = _values(given, len(jobs))
        except KeyboardInterrupt:
            raise
        except BaseException as problem:
            if len(jobs) == 1:
                yield Outcome(jobs[0], failed=Failed.of(problem))
                return
            half = len(jobs) // 2
            yield from self(jobs[:half])
            yield from self(jobs[half:])
            return
        for job, value in zip(jobs, values, strict=True):
            yield _outcome(job, value, self._wanted)


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
    values: list[object]
    if isinstance(given, pd.DataFrame | pd.Series):
        as_given = len(given) != count or sorted(given.index) != list(range(count))
        pandas = given if as_given else given.sort_index()
        values = _rows(pandas) if isinstance(pandas, pd.DataFrame) else list(pandas)
    elif not _is_list(given):
        kind = type(given).__name__
        raise ValueError(f"the function returned a {kind}, not a result for each job")
    else:
        values = list(given)
    if len(values) != count:
        raise ValueError(f"the function returned {len(values)} results for {count} jobs")
    return [None if _missing(value) else value for value in values]


def _is_list(given: object) -> TypeGuard[Iterable[object]]:
    """Whether ``given`` is a collection that may have an element for each job."""
    return isinstance(given, Iterable) and not isinstance(given, str | bytes | dict)


def _rows(frame: pd.DataFrame) -> list[object]:
    """The results in a DataFrame."""
    rest = frame.drop(columns=[*COLUMNS, "error"], errors="ignore")
    values: list[object] = [None] * len(frame)
    if "result" in rest:
        values = list(rest["result"])
    elif rest.columns.size:
        values = [
            {name: None if _missing(value) else value for name, value in record.items()}
            for record in rest.to_dict("records")
        ]
    if "error" not in frame:
        return values
    return [
        value if _missing(error) else Failed(str(error))
        for value, error in zip(values, frame["error"], strict=True)
    ]


def _missing(value: object) -> bool:
    """Whether ``value`` is None or one of pandas' missing values."""
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))
