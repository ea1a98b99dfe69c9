"""Which filters of a query JSCAN and QSCAN get."""

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from disque_spark.datasources.pushdown import JobFilters, QueueFilters

QUEUE = ("queue",)
STATE = ("state",)
LEN = ("len",)
ALL_JOBS = ["JSCAN", "COUNT", 9, "REPLY", "all"]


@pytest.mark.parametrize(
    ("filters", "walks"),
    [
        ([], [ALL_JOBS]),
        ([EqualTo(QUEUE, "a")], [[*ALL_JOBS, "QUEUE", "a"]]),
        ([IsNotNull(QUEUE), EqualNullSafe(QUEUE, "a")], [[*ALL_JOBS, "QUEUE", "a"]]),
        ([In(QUEUE, ("b", "a"))], [[*ALL_JOBS, "QUEUE", "a"], [*ALL_JOBS, "QUEUE", "b"]]),
        ([EqualTo(QUEUE, "a"), EqualTo(QUEUE, "b")], []),
        ([EqualTo(STATE, "acked")], [[*ALL_JOBS, "STATE", "acked"]]),
        ([In(STATE, ("queued", "gone"))], [[*ALL_JOBS, "STATE", "queued"]]),
        ([EqualTo(STATE, "gone")], []),
        ([EqualTo(STATE, "acked"), EqualTo(STATE, "queued")], []),
        (
            [EqualTo(STATE, "active"), EqualTo(QUEUE, "a")],
            [[*ALL_JOBS, "STATE", "active", "QUEUE", "a"]],
        ),
    ],
)
def test_filters_of_jobs_become_options_of_jscan(
    filters: list[Filter], walks: list[list[object]]
) -> None:
    jobs = JobFilters()
    assert jobs.take(filters) == []
    assert jobs.walks(9) == walks


@pytest.mark.parametrize(
    "filter",
    [
        EqualTo(("nacks",), 3),
        Not(EqualTo(QUEUE, "a")),
        EqualTo(QUEUE, "a\\xff"),  # may be a byte that is not text
        In(QUEUE, ("a", "b\\")),
        IsNotNull(("next_awake_within",)),
        EqualTo(("queue", "of something"), "a"),
    ],
)
def test_what_jscan_has_no_option_for_is_left_to_spark(filter: Filter) -> None:
    jobs = JobFilters()
    assert jobs.take([filter]) == [filter]
    assert jobs.walks(9) == [ALL_JOBS]


def test_filters_narrow_what_the_options_say() -> None:
    jobs = JobFilters("a", ["queued", "active"])
    assert jobs.take([In(STATE, ("active", "acked"))]) == []
    assert jobs.walks(9) == [[*ALL_JOBS, "STATE", "active", "QUEUE", "a"]]
    assert jobs.take([EqualTo(QUEUE, "b")]) == []
    assert jobs.walks(9) == []


@pytest.mark.parametrize(
    ("filters", "options"),
    [
        ([], []),
        ([GreaterThanOrEqual(LEN, 5)], ["MINLEN", 5]),
        ([GreaterThan(LEN, 5)], ["MINLEN", 6]),
        ([LessThanOrEqual(LEN, 5)], ["MAXLEN", 5]),
        ([LessThan(LEN, 5)], ["MAXLEN", 4]),
        ([EqualTo(LEN, 5)], ["MINLEN", 5, "MAXLEN", 5]),
        ([GreaterThan(LEN, 2), GreaterThan(LEN, 3), LessThan(LEN, 9)], ["MINLEN", 4, "MAXLEN", 8]),
        ([GreaterThan(LEN, -5)], []),
        ([GreaterThan(("import_rate",), 0)], ["IMPORTRATE", 1]),
        ([LessThan(("idle",), 60)], ["MAXIDLE", 59]),
        ([GreaterThan(("idle",), 60), EqualTo(QUEUE, "a"), In(LEN, (1, 2))], []),
    ],
)
def test_filters_of_queues_become_options_of_qscan(
    filters: list[Filter], options: list[object]
) -> None:
    queues = QueueFilters()
    assert queues.take(filters) == filters, "a queue changes between QSCAN and QSTAT"
    assert queues.walks(9) == [["QSCAN", "COUNT", 9, *options]]


def test_a_length_that_no_queue_has_needs_no_walk() -> None:
    queues = QueueFilters()
    queues.take([LessThan(LEN, 0)])
    assert queues.walks(9) == []


def test_filters_of_queues_narrow_what_the_options_say() -> None:
    queues = QueueFilters(minlen=3, maxlen=10)
    queues.take([GreaterThan(LEN, 1), LessThan(LEN, 8)])
    assert queues.walks(9) == [["QSCAN", "COUNT", 9, "MINLEN", 3, "MAXLEN", 7]]
