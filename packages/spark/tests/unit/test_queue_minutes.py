"""The most jobs of a queue that were delivered within a second, for each minute."""

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from disque_spark.audit.jobs import FACTS, NAMES, fold, jobs_of
from disque_spark.audit.minute_files import NEW, with_depth, with_role
from disque_spark.audit.queue_minutes import MINUTE, minutes_of, sums_of, times_of
from disque_spark.audit.trace import CODE_BITS, CODES, TIME_SHIFT

NODES = ["a" * 40, "b" * 40]

Delivery = tuple[str, int]  # queue, ms


def most(*batches: pa.RecordBatch) -> dict[Delivery, int]:
    """Return the figure of each queue and minute (ms)."""
    sums = pa.concat_tables([sums_of(batch) for batch in batches])
    times = pa.concat_tables([times_of(batch) for batch in batches])
    rows = minutes_of(sums, times).to_pylist()
    return {(row["queue"], row["minute"]): row["most_in_a_second"] for row in rows}


def jobs(moments: Sequence[Delivery], what: str = "delivered:") -> pa.RecordBatch:
    """Return jobs with one event each, at two nodes in turn."""
    count = len(moments)
    columns: dict[str, object] = {
        "id": [f"{number}" for number in range(count)],
        **{name: pa.nulls(count, pa.string()) for name in NAMES},
        **{name: pa.nulls(count, pa.int64()) for name in FACTS},
        "queue": [queue for queue, _ in moments],
        "event": [
            at << TIME_SHIFT | number % 2 << CODE_BITS | CODES[what]
            for number, (_, at) in enumerate(moments)
        ],
    }
    (batch,) = jobs_of(fold(pa.table(columns)), NODES).combine_chunks().to_batches()
    return batch


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        ([5], {0: 1}),
        ([0, 999], {0: 2}),
        ([0, 1000], {0: 1}),
        ([0, 0, 500, 1000, 1001], {0: 3}),
        ([59_900, 60_100, 60_899, 60_900], {0: 1, 1: 3}),
        ([59_100, 59_100, 60_099, 60_100], {0: 2, 1: 3}),
        ([59_999], {0: 1}),
        ([59_000, 120_000], {0: 1, 2: 1}),
    ],
)
def test_seconds_begin_with_any_delivery_and_count_for_the_minute_in_which_they_end(
    moments: list[int], expected: dict[int, int]
) -> None:
    found = most(jobs([("q", at) for at in moments]))
    assert found == {("q", minute * MINUTE): count for minute, count in expected.items()}


def test_it_is_what_counting_says_however_jobs_come_together() -> None:
    rng = random.Random(4)
    deliveries = [(rng.choice("qr"), int(rng.gauss(90_000, 20_000))) for _ in range(600)]
    expected: dict[Delivery, int] = {}
    for queue, end in deliveries:
        count = sum(one == queue and end - 1000 < at <= end for one, at in deliveries)
        key = (queue, end // MINUTE * MINUTE)
        expected[key] = max(expected.get(key, 0), count)
    for batches in (1, 2, 7):
        parts = [jobs(deliveries[start::batches]) for start in range(batches)]
        assert most(*parts) == expected


def test_a_minute_without_a_delivery_has_none() -> None:
    found = most(jobs([("q", 59_900)]), jobs([("q", 60_100)], "acked:client"))
    assert found == {("q", 0): 1, ("q", MINUTE): 0}


def depths(*stays: tuple[int, int]) -> dict[int, tuple[int, int]]:
    """Return, for jobs that were in a queue from one time (ms) to another, the greatest depth in
    each minute, and that at its end."""
    times = [time for stay in stays for time in stay]
    columns: dict[str, object] = {
        "id": [f"{number // 2}" for number in range(len(times))],
        **{name: pa.nulls(len(times), pa.string()) for name in NAMES},
        **{name: pa.nulls(len(times), pa.int64()) for name in FACTS},
        "queue": ["q"] * len(times),
        "event": [
            at << TIME_SHIFT | CODES["delivered:" if number % 2 else "queued:add"]
            for number, at in enumerate(times)
        ],
    }
    (batch,) = jobs_of(fold(pa.table(columns)), NODES).combine_chunks().to_batches()
    minutes = minutes_of(sums_of(batch), times_of(batch))
    rows = with_depth(with_role(minutes, NEW)).to_pylist()
    return {row["minute"] // MINUTE: (row["most_depth"], row["depth"]) for row in rows}


def test_a_burst_within_a_minute_is_as_deep_as_it_was() -> None:
    burst = [(1000 + n, 30_000 + n) for n in range(50)]
    assert depths(*burst) == {0: (50, 0)}
    stays = (10, 150_000)
    assert depths(stays, *[(came + MINUTE, left + MINUTE) for came, left in burst]) == {
        0: (1, 1),
        1: (51, 1),
        2: (1, 0),
    }
    # One after the other.
    assert depths(*[(1000 * n, 1000 * n + 900) for n in range(50)]) == {0: (1, 0)}
    assert depths((5, 5)) == {0: (1, 0)}


def test_the_most_depth_is_what_counting_says() -> None:
    rng = random.Random(7)
    stays = [(at, at + rng.randrange(1, 90_000)) for at in rng.choices(range(300_000), k=200)]
    for minute, (most_depth, _) in depths(*stays).items():
        start, end = minute * MINUTE, (minute + 1) * MINUTE
        moments = [came for came, _ in stays if start <= came < end]
        counts = [sum(came <= at <= left for came, left in stays) for at in moments]
        before = sum(came < start <= left for came, left in stays)
        assert most_depth == max(before, *counts, 0), minute
