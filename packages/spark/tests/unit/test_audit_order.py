"""How far clocks are apart, judged by the possible order of events."""

import random

import pyarrow as pa
import pytest

from disque_spark.audit.clocks import UNKNOWN, clocks_of, least_of
from disque_spark.audit.trace import CODE_BITS, CODES, TIME_SHIFT
from packages.spark.tests.support.clock_rows import least_in

Step = tuple[int, int, str]  # time, node, what


def jobs(*traces: list[Step], ctime: int = 0, id: str = "D-...-05a1") -> pa.RecordBatch:
    numbers = [
        sorted(at << TIME_SHIFT | node << CODE_BITS | CODES[what] for at, node, what in trace)
        for trace in traces
    ]
    return pa.RecordBatch.from_pydict(
        {
            "id": pa.array([id] * len(traces), pa.string()),
            "ctime": pa.array([ctime * 1_000_000 or None] * len(traces), pa.int64()),
            "trace": pa.array(numbers, pa.list_(pa.int64())),
        }
    )


def least(batch: pa.RecordBatch) -> dict[tuple[int, int], int]:
    return least_in(least_of(batch).to_pylist())


def test_a_copy_comes_after_the_job_was_made_not_after_it_was_confirmed() -> None:
    copied = [(107, 1, "copied:"), (250, 0, "added:"), (250, 0, "replicated:")]
    assert least(jobs(copied, ctime=100)) == {(0, 1): 7}


def test_a_dead_letter_is_made_by_each_holder_by_itself() -> None:
    made = [(107, 0, "added:"), (99, 1, "copied:")]
    assert least(jobs(made, ctime=100, id="D-...-ffff")) == {}


def test_the_least_of_all_jobs_counts() -> None:
    moves = [[(100, 0, "exported:"), (100 + ms, 1, "imported:")] for ms in (9, 3, 70)]
    assert least(jobs(*moves)) == {(0, 1): 3}


def test_other_nodes_learn_of_an_acknowledgement_later() -> None:
    trace = [(90, 2, "delivered:"), (100, 2, "acked:client"), (104, 0, "acked:peer")]
    assert least(jobs(trace)) == {(2, 0): 4}


@pytest.mark.parametrize(
    "trace",
    [
        # Another client may have acknowledged it before, in a line that the log lost.
        [(50, 1, "queued:retry"), (90, 2, "delivered:"), (100, 2, "acked:client")],
        [(100, 2, "acked:client")],
        [(90, 1, "delivered:"), (100, 2, "acked:client")],
    ],
)
def test_an_acknowledge_that_may_not_be_the_first_says_nothing(trace: list[Step]) -> None:
    assert least(jobs([*trace, (60, 0, "acked:peer")])) == {}


def test_a_job_that_moved_twice_says_nothing() -> None:
    trace = [(10, 0, "exported:"), (11, 1, "imported:"), (5, 1, "imported:")]
    assert least(jobs(trace)) == {}


def test_what_came_from_a_node_whose_log_is_not_here_says_nothing() -> None:
    """It came from there before another node gave the job to that node."""
    moved = [(100, 1, "imported:"), (500, 0, "exported:")]
    heard = [(90, 2, "delivered:"), (100, 0, "acked:peer"), (900, 2, "acked:client")]
    copied = [(107, 1, "copied:"), (250, 0, "added:")]
    assert least_in(least_of(jobs(moved, heard, copied, ctime=100), False).to_pylist()) == {
        (0, 1): 7
    }


def test_jobs_that_stay_say_nothing() -> None:
    assert least(jobs([(1, 0, "added:")])) == {}
    assert least(jobs()) == {}


def test_clocks_are_within_the_bounds_wherever_packets_took_long() -> None:
    rng = random.Random(5)
    for _ in range(200):
        true = [rng.randrange(-5000, 5000) for _ in range(4)]
        bounds = {
            (a, b): true[b] - true[a] + rng.randrange(300)
            for a in range(4)
            for b in range(4)
            if a != b and rng.random() < 0.8
        }
        clocks = clocks_of(bounds, 4)
        assert not clocks.moved
        for a in range(4):
            for b in range(4):
                doubt = clocks.doubt[a][b]
                said = clocks.ahead[b] - clocks.ahead[a]
                assert doubt == UNKNOWN or abs(said - (true[b] - true[a])) <= doubt + 1
                apart = clocks.apart(a, b)
                assert abs(apart) <= abs(true[b] - true[a]) + 1
                assert apart * (true[b] - true[a]) >= 0


def test_what_two_nodes_know_of_a_third_tells_of_each_other() -> None:
    clocks = clocks_of({(0, 1): 1001, (1, 0): -999, (1, 2): 1, (2, 1): 1}, 3)
    assert clocks.ahead == [-1000, 0, 0]
    assert clocks.doubt[0][2] <= 6


def test_one_direction_alone_is_not_enough() -> None:
    clocks = clocks_of({(0, 1): 5000}, 2)
    assert clocks.doubt[0][1] == UNKNOWN
    assert (clocks.ahead, clocks.apart(0, 1)) == ([0, 0], 0)


def test_a_clock_that_was_set_contradicts_itself() -> None:
    clocks = clocks_of({(0, 1): -3000, (1, 0): 1, (0, 2): 1, (2, 0): 1}, 3)
    assert clocks.moved == [(0, 1)]
    assert clocks.doubt[0][1] >= 1400
    assert clocks.doubt[0][2] <= 3


def test_a_contradiction_over_several_nodes_makes_all_of_them_doubtful() -> None:
    # In one direction, the sum around the circle is -30 ms.
    least = {(0, 1): 10, (1, 2): 10, (2, 0): -50, (1, 0): 60, (2, 1): 60, (0, 2): 60}
    clocks = clocks_of(least, 3)
    assert clocks.moved == []
    assert all(20 <= clocks.doubt[a][b] < 200 for a in range(3) for b in range(3) if a != b)


def test_a_clock_that_runs_a_little_unevenly_is_not_apart() -> None:
    clocks = clocks_of({(0, 1): -4, (1, 0): -4, (0, 2): 1, (2, 0): 1}, 3)
    assert [clocks.apart(a, b) for a in range(3) for b in range(3)] == [0] * 9
    assert max(map(max, clocks.doubt)) < 20
