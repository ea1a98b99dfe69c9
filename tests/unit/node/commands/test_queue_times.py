"""What QSTAT tells of when a queue had jobs, gave some out and lost some, and QSCAN DIED."""

from tests.support.mesh import Mesh
from tests.support.node_bench import Bench


def times(bench: Bench, queue: str = "q") -> list[object]:
    fields = bench.queue(queue)
    return [fields[name] for name in (b"filled-ago", b"wanted-ago", b"died-ago", b"jobs-died")]


def test_a_queue_is_filled_when_a_job_comes_while_it_has_none(bench: Bench) -> None:
    bench.add()
    bench.advance(2)
    bench.add()
    bench.advance(3)
    assert times(bench) == [5_000, -1, -1, 0]
    bench.get()
    bench.advance(4)
    assert times(bench) == [9_000, 4_000, -1, 0]
    bench.get()
    assert times(bench) == [0, 0, -1, 0]
    bench.advance(1)
    bench.add()
    bench.advance(1)
    assert times(bench) == [1_000, 2_000, -1, 0]


def test_a_job_that_was_delayed_waits_since_it_was_queued(bench: Bench) -> None:
    bench.add("q", "body", "DELAY", 3600)
    bench.advance(3_600)
    bench.advance(10)
    assert bench.queue()[b"oldest-job-age"] == 3_610_000
    filled = bench.queue()[b"filled-ago"]
    assert isinstance(filled, int)
    assert 9_000 <= filled <= 10_000


def test_a_job_that_moves_to_an_empty_queue_fills_it(bench: Bench) -> None:
    bench.make_queue("to")
    bench.advance(60)
    bench.add("q", "body")
    bench.advance(60)
    bench.send(bench.me, "QMOVE", "q", "to")
    bench.advance(1)
    assert bench.replies(bench.me) == [1]
    assert bench.queue("to")[b"filled-ago"] <= 1_000  # type: ignore[operator]


def bury(bench: Bench, queue: str = "q") -> None:
    bench("QSET", queue, "DEAD", "letters")
    bench.add(queue)
    bench("NACK", bench.get(queue), "DEAD")


def test_jobs_that_died_are_told_for_ten_minutes_also_of_a_queue_that_is_empty(
    bench: Bench,
) -> None:
    bury(bench)
    bench.advance(400)
    bury(bench)
    bench.advance(590)
    bench.evict_idle_queues()
    assert times(bench)[2:] == [590_000, 2]
    assert bench("QSCAN", 0, "DIED", 600, "BUSYLOOP") == [b"0", [b"q"]]
    assert bench("QSCAN", 0, "DIED", 589, "BUSYLOOP") == [b"0", []]
    bench.advance(11)
    assert times(bench)[2:] == [601_000, 0]
    bench.evict_idle_queues()
    assert bench("QSTAT", "q") is None


def test_jobs_that_die_by_attempts_or_by_age_count_too(bench: Bench) -> None:
    bench("QSET", "q", "DEAD", "letters", "ATTEMPTS", 1)
    bench.add("q", "body", "RETRY", 1)
    bench.get()
    bench.advance(5)
    assert bench.queue()[b"jobs-died"] == 1
    bench.add("q", "body", "TTL", 5, "RETRY", 1)
    bench.advance(10)
    assert bench.queue()[b"jobs-died"] == 2


def test_a_queue_that_is_gone_when_its_job_dies_is_known_again(bench: Bench) -> None:
    bench("QSET", "q", "DEAD", "letters")
    bench.add("q", "body", "RETRY", 3600)
    id = bench.get()
    bench.advance(400)
    bench.evict_idle_queues()
    assert bench("QSTAT", "q") is None
    bench("NACK", id, "DEAD")
    assert times(bench) == [0, -1, 0, 1]


def test_a_job_that_dies_of_age_counts_on_one_of_its_nodes() -> None:
    mesh = Mesh(3)
    mesh[0]("QSET", "q", "DEAD", "letters")
    mesh.settle()
    mesh.add(0, "REPLICATE", 3, "TTL", 5, "RETRY", 1)
    mesh.settle()
    mesh.advance(20)
    told = [mesh[index]("QSTAT", "q") for index in range(3)]
    assert sum(fields[fields.index(b"jobs-died") + 1] for fields in told if fields) == 1  # type: ignore[attr-defined]
