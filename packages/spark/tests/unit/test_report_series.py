"""Percentiles and depths of the report, beside a count of single jobs."""

import numpy as np
import pyarrow as pa
import pytest

from disque_spark.report.series import (
    EVER,
    RATES,
    Durations,
    Minutes,
    ShortSteps,
    of_queues,
    step_of,
)
from disque_spark.report.tables import Sums
from packages.spark.tests.support.judged_jobs import A, Step, job_table

TIME = pa.timestamp("us", tz="UTC")
START = 1_780_000_000_000


def waited(rows: int, seed: int) -> tuple[pa.RecordBatch, list[tuple[str, int, int]]]:
    """Jobs that waited, as rows of the table, and their queues, times and waits."""
    rng = np.random.default_rng(seed)
    queues = [f"q{n}" for n in rng.integers(0, 40, rows)]
    at = START + rng.integers(0, 3_600_000, rows)
    took = np.floor(rng.lognormal(6, 2, rows)).astype(np.int64)
    batch = pa.RecordBatch.from_pydict(
        {
            "queue": queues,
            "wait_ms": pa.array(took),
            "first_delivered": pa.array(at * 1000).cast(TIME),
        }
    )
    return batch, list(zip(queues, at.tolist(), took.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(5))
def test_percentiles_are_right_for_each_queue_and_step(seed: int) -> None:
    durations = Durations("wait", 60_000)
    known: dict[tuple[str, int], list[int]] = {}
    for part in range(2):
        batch, jobs = waited(5_000, 10 * seed + part)
        durations.add(batch)
        for queue, at, took in jobs:
            known.setdefault((queue, at // 60_000 * 60_000), []).append(took)
    found = durations.percentiles(["queue", "at"]).to_pylist()
    assert {(row["queue"], row["at"]) for row in found} == set(known)
    for row in found:
        took = known[row["queue"], row["at"]]
        for percent in (50, 95, 99):
            exact = int(np.percentile(took, percent, method="inverted_cdf"))
            assert exact * 0.998 <= row[f"wait_p{percent}"] <= exact
    (whole,) = durations.percentiles(["at"], EVER).to_pylist()
    every = [took for took_here in known.values() for took in took_here]
    assert whole["wait_p99"] == pytest.approx(
        np.percentile(every, 99, method="inverted_cdf"), rel=0.002
    )


def test_nothing_has_no_percentiles() -> None:
    assert Durations("wait", 1000).percentiles(["queue", "at"]).to_pylist() == []
    assert Minutes(60_000).peaks(0, 1) == []


def lives(queue: str, moves: list[Step]) -> pa.RecordBatch:
    (batch,) = job_table(moves, queue).combine_chunks().to_batches()
    return batch


def test_depths_add_up_for_each_queue_on_its_own() -> None:
    events = ShortSteps(1000, [(0, 1_000_000)])
    for queue, left in (("a", 5_000), ("b", 9_000), ("a", 7_000)):
        steps = [(1_000, A, "added:"), (1_000, A, "queued:add"), (left, A, "delivered:")]
        events.add(lives(queue, steps))
    table = events.table()
    rows = {(row["queue"], row["at"]): row["depth"] for row in table.to_pylist()}
    assert rows == {("a", 1000): 2, ("a", 5000): 1, ("a", 7000): 0, ("b", 1000): 1, ("b", 9000): 0}
    series = of_queues(
        table, [Durations(name, 1000) for name in ("wait", "processing")], ["a"], 5000
    )
    assert [row[:3] for row in series["queues"]["a"]] == [[0, 2, 0], [5000, 0, 2]]
    assert [len(row) for row in series["queues"]["a"]] == [1 + len(series["columns"])] * 2
    assert series["columns"][: len(RATES)] == list(RATES)


def test_events_outside_of_the_windows_do_not_count() -> None:
    events = ShortSteps(1000, [(4_000, 6_000)])
    events.add(
        lives("a", [(1_000, A, "added:"), (1_000, A, "queued:add"), (5_000, A, "delivered:")])
    )
    events.add(lives("b", [(1_000, A, "added:")]))
    assert [(row["queue"], row["at"]) for row in events.table().to_pylist()] == [("a", 5000)]


def test_sums_of_parts_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disque_spark.report.tables._MANY", 3)
    sums = Sums(("queue",), {"jobs": "sum", "most": "max"})
    for number in range(20):
        sums.add({"queue": pa.array([f"q{number % 7}", "x"]), "jobs": [1, 2], "most": [number, 1]})
    rows = {row["queue"]: (row["jobs"], row["most"]) for row in sums.table().to_pylist()}
    assert rows["x"] == (40, 1)
    assert rows["q6"] == (2, 13)
    assert len(rows) == 8


@pytest.mark.parametrize(
    ("span", "most", "expected"),
    [
        (0, 1500, 1000),
        (1_500_000, 1500, 1000),
        (86_400_000, 1500, 60_000),
        (1 << 50, 9, 86_400_000),
    ],
)
def test_a_step_is_as_short_as_there_is_room_for(span: int, most: int, expected: int) -> None:
    assert step_of(span, most) == expected
