"""The memory account, its thresholds, eviction, and idle queues."""

from collections.abc import Callable

import pytest

from disque_trio.node.core.jobs.job import JOB_OVERHEAD
from disque_trio.node.core.queues.queue import QUEUE_OVERHEAD
from tests.support.node_bench import Bench

BenchMaker = Callable[..., Bench]

FEW = "NOREPL Not enough reachable nodes: "
OOM = "OOM command not allowed when used memory > 'maxmemory'."


def used(bench: Bench) -> int:
    return bench.node.memory.used


def fill(bench: Bench, share: float, *options: str | int) -> list[bytes]:
    """Add jobs until more than ``share`` of the memory is used, as if there were no thresholds."""
    limit = bench.node.memory.limit
    bench.node.memory.set_limit(0)
    added = []
    while used(bench) <= limit * share:
        added.append(bench.add("q", "x" * 100, *options))
    bench.node.memory.set_limit(limit)
    return added


# ---- the account --------------------------------------------------------------------------------


def test_a_job_and_its_queue_are_counted(bench: Bench) -> None:
    assert bench.info("memory")["used_memory"] == "0"
    bench.add("name", "x" * 1000)
    assert used(bench) == JOB_OVERHEAD + 1000 + QUEUE_OVERHEAD + 4
    bench.add("name", "")
    assert used(bench) == 2 * JOB_OVERHEAD + 1000 + QUEUE_OVERHEAD + 4


@pytest.mark.parametrize("how", ["ACKJOB", "FASTACK", "DELJOB", "expiry"])
def test_the_account_is_back_at_zero_when_jobs_and_queues_are_gone(bench: Bench, how: str) -> None:
    ids = []
    for number in range(20):
        options: tuple[str | int, ...] = ("DELAY", 5) if number % 3 == 0 else ()
        ids.append(bench.add(f"q{number % 4}", "x" * number, "TTL", 60, *options))
        if number % 5 == 0:
            bench.get(f"q{number % 4}")
        assert used(bench) == bench.counted_memory()
    if how == "expiry":
        bench.advance(70)
    else:
        assert bench(how, *ids) == 20
    assert used(bench) == 4 * (QUEUE_OVERHEAD + 2)
    bench.now += 300_000
    gone = [bench.evict_idle_queues(steps=1) for _ in range(10)]
    assert sum(gone) == 4
    assert used(bench) == 0


def test_flushing_sets_the_account_to_zero_and_keeps_the_peak(bench: Bench) -> None:
    bench.add("q", "x" * 5000)
    peak = used(bench)
    bench("DEBUG", "FLUSHALL")
    assert used(bench) == 0
    assert int(bench.info("memory")["used_memory_peak"]) == peak
    bench("CONFIG", "RESETSTAT")
    assert int(bench.info("memory")["used_memory_peak"]) == 0


def test_an_empty_node_is_below_all_steps_with_one_byte_of_memory(
    make_bench: BenchMaker,
) -> None:
    assert make_bench(maxmemory=1).info("memory")["memory_level"] == "0"


def test_three_megabytes_reach_75_percent_by_tiny_jobs_without_passing_95(
    make_bench: BenchMaker,
) -> None:
    bench = make_bench(maxmemory=3_000_000)
    for _ in range(100_000):
        bench.send(bench.me, "ADDJOB", "q", "tiny", 0)
        if b"NOREPL" in bench.raw(bench.me):
            break
    assert bench.info("memory")["memory_level"] == "1"


# ---- 75% ----------------------------------------------------------------------------------------


def test_above_75_percent_addjob_says_that_memory_is_short(
    make_bench: BenchMaker,
) -> None:
    bench = make_bench(maxmemory=100_000)
    jobs = fill(bench, 0.75)
    for options in ((), ("ASYNC",)):
        text = bench.error("ADDJOB", "q", "b", 0, *options)
        assert text.startswith("NOREPL Memory is short: 73.")
        assert "of 97.66K (maxmemory)" in text
    assert bench.error("ADDJOB", "q", "b", 0, "REPLICATE", 2).startswith(FEW)
    assert bench.get() == jobs[0]
    assert bench("NACK", jobs[0]) == 1
    assert bench("ACKJOB", jobs[0]) == 1
    bench.add("q")


def test_replicas_beyond_this_node_are_refused_at_any_level(bench: Bench) -> None:
    assert bench.error("ADDJOB", "q", "b", 0, "REPLICATE", 2).startswith(FEW)
    assert bench.error("ADDJOB", "q", "b", 0, "REPLICATE", 65535, "ASYNC").startswith(FEW)
    bench.add("q", "b", "REPLICATE", 1)


def test_queues_that_were_forgotten_for_being_idle_are_not_forgotten_again(
    make_bench: BenchMaker,
) -> None:
    bench = make_bench(maxmemory=100_000)
    bench.add("q")
    client = bench.client()
    bench.send(client, "GETJOB", "TIMEOUT", 100, "FROM", "never used")
    bench.advance(1000)
    assert bench.evict_idle_queues() == 1
    bench.node.queues.make_room(0)
    assert [*bench.node.queues.by_name] == [b"q"]


# ---- 95% ----------------------------------------------------------------------------------------


def test_above_95_percent_what_needs_memory_is_refused_and_all_else_served(
    make_bench: BenchMaker,
) -> None:
    bench = make_bench(maxmemory=100_000)
    jobs = fill(bench, 0.95)
    assert bench.get() == jobs[0]
    for command in ("ENQUEUE", "NACK", "QUEUE"):
        assert bench.error(command, jobs[0]).startswith(OOM)
    assert bench.error("ADDJOB", "q", "b", 0).startswith(OOM)
    assert bench.error("ADDJOB", "q") == "ERR wrong number of arguments for 'addjob' command"
    assert bench("PING") == b"PONG"
    assert bench("WORKING", jobs[0]) == 300
    assert bench("DEQUEUE", jobs[1]) == 1
    assert bench("QLEN", "q") == len(jobs) - 2
    assert bench.held(jobs[-1])
    assert bench.info("stats")["total_jobs_evicted"] == "0"
    assert bench("ACKJOB", *jobs[:10]) == 10
    assert bench("NACK", jobs[10]) == 0


def test_above_95_percent_delivered_retry_0_jobs_go_longest_delivered_first(
    make_bench: BenchMaker,
) -> None:
    bench = make_bench(maxmemory=100_000)
    once = fill(bench, 0.5, "RETRY", 0)
    assert bench.get_all(count=20) == once[:20]
    more = fill(bench, 0.97)
    assert bench("PING") == b"PONG"
    gone = [id for id in once if bench.node.store.jobs.get(id) is None]
    assert gone == once[: len(gone)]
    assert 0 < len(gone) < 20
    assert all(bench.node.store.jobs.get(id) is not None for id in more)
    assert bench.info("memory")["memory_level"] == "1"
    assert bench.info("stats")["total_jobs_evicted"] == str(len(gone))
    assert used(bench) == bench.counted_memory()


def test_eviction_makes_room_so_that_nack_is_served(make_bench: BenchMaker) -> None:
    bench = make_bench(maxmemory=100_000)
    safe = bench.add("safe")
    assert bench.get("safe") == safe
    once = fill(bench, 0.97, "RETRY", 0)
    assert bench.error("NACK", safe).startswith(OOM)  # nothing has been delivered yet
    assert bench.get() == once[0]
    assert len(bench.get_all(count=20)) == 20
    assert bench("NACK", safe) == 1
    assert all(bench.held(id) for id in once[21:])


def test_only_delivered_retry_0_jobs_are_evicted(make_bench: BenchMaker) -> None:
    bench = make_bench(maxmemory=100_000)
    once = fill(bench, 0.5, "RETRY", 0)
    delivered = set(bench.get_all(count=len(once) // 2))
    safe = fill(bench, 1.5)
    assert bench.error("ADDJOB", "q", "b", 0).startswith(OOM)
    gone = {id for id in once if not bench.held(id)}
    assert gone == delivered
    assert all(bench.held(id) for id in safe)


def test_with_the_policy_noeviction_nothing_is_evicted(make_bench: BenchMaker) -> None:
    bench = make_bench(maxmemory=100_000)
    bench.node.store.evicts = False
    once = fill(bench, 0.97, "RETRY", 0)
    bench.get_all(count=50)
    assert bench.error("ADDJOB", "q", "b", 0).startswith(OOM)
    assert all(bench.held(id) for id in once)
    assert bench.info("memory")["maxmemory_policy"] == "noeviction"


def test_maxmemory_0_is_no_limit(bench: Bench) -> None:
    for _ in range(100):
        bench.add("q", "x" * 100_000)
    assert bench.info("memory")["memory_level"] == "0"
    assert bench("NACK", bench.get() or b"") == 1


def test_lowering_and_lifting_the_limit_holds_at_once(bench: Bench) -> None:
    bench.add("q", "x" * 10_000)
    bench.node.memory.set_limit(5_000)
    assert bench.error("ADDJOB", "q", "b", 0).startswith(OOM)
    bench.node.memory.set_limit(0)
    bench.add("q")


# ---- idle queues --------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "seconds"), [(0.1, 300), (0.8, 10), (0.97, 2)])
def test_an_idle_queue_goes_after_300_seconds_and_sooner_when_memory_is_short(
    make_bench: BenchMaker, share: float, seconds: int
) -> None:
    bench = make_bench(maxmemory=1_000_000)
    bench.make_queue("idle")
    bench.node.memory.set_limit(int(used(bench) / share))
    bench.now += seconds * 1000 - 1
    assert bench.evict_idle_queues() == 0
    bench.now += 1
    assert bench.evict_idle_queues() == 1
    assert bench("QSTAT", "idle") is None
    assert used(bench) == 0


@pytest.mark.parametrize(
    ("most", "share", "seconds"),
    [
        (1, 0.1, 1),
        (1, 0.97, 1),
        (5, 0.8, 5),
        (5, 0.97, 2),
        (10**12, 0.1, 10**12),
        (10**12, 0.8, 10),
    ],
)
def test_how_long_an_idle_queue_stays_can_be_set(
    make_bench: BenchMaker, most: int, share: float, seconds: int
) -> None:
    bench = make_bench(maxmemory=1_000_000)
    bench.node.queues.max_idle = most * 1000
    bench.make_queue("idle")
    bench.node.memory.set_limit(int(used(bench) / share))
    bench.now += seconds * 1000 - 1
    assert bench.evict_idle_queues() == 0
    bench.now += 1
    assert bench.evict_idle_queues() == 1


def test_what_uses_a_queue_keeps_it(bench: Bench) -> None:
    bench.add("full")
    bench("PAUSE", "paused", "in")
    bench.block("watched")
    job = bench.add("left")
    bench.get("left")
    bench.now += 200_000
    bench("NACK", job)
    bench.get("left")
    bench.now += 200_000
    assert bench.evict_idle_queues() == 0
    assert bench.info("queues")["registered_queues"] == "4"
    bench.now += 100_000
    assert bench.evict_idle_queues() == 1
    assert bench("QSTAT", "left") is None


def test_a_queue_comes_back_with_the_retry_of_its_job(bench: Bench) -> None:
    job = bench.add("q", "b", "RETRY", 1000)
    bench.get()
    bench.now += 400_000
    assert bench.evict_idle_queues() == 1
    bench.advance(601)
    assert bench.get() == job


def test_a_queue_that_is_unpaused_or_unwatched_goes_when_idle(bench: Bench) -> None:
    bench("PAUSE", "paused", "all")
    client = bench.block("watched")
    bench.now += 1_000_000
    bench("PAUSE", "paused", "none")
    bench.disconnect(client)
    bench.evict_idle_queues()
    assert bench("QSTAT", "watched") is None
    bench.now += 300_000
    assert bench.evict_idle_queues() == 1


def test_one_visit_takes_a_thousand_idle_queues_when_memory_is_short(
    make_bench: BenchMaker,
) -> None:
    bench = make_bench()
    for number in range(1000):
        bench.make_queue(f"q{number}")
    bench.node.memory.set_limit(1)
    bench.now += 2000
    assert bench.evict_idle_queues() == 1000
    assert used(bench) == 0


def test_visits_reach_every_idle_queue_among_many_busy_ones(bench: Bench) -> None:
    for number in range(3000):
        bench.add(f"busy{number}")
    bench.make_queue("idle")
    bench.now += 300_000
    for _ in range(3000 // 200 + 2):
        bench.evict_idle_queues()
    assert bench("QSTAT", "idle") is None
    assert bench.info("queues")["registered_queues"] == "3000"


def test_a_command_without_memory_and_without_jobs_evicts_idle_queues(
    make_bench: BenchMaker,
) -> None:
    bench = make_bench()
    for number in range(50):
        bench.make_queue(f"q{number}")
    bench.node.memory.set_limit(20_000)
    bench.now += 2000
    bench.add("q0")
    assert bench.info("memory")["memory_level"] == "0"


def test_the_attributes_of_the_store_are_found_fast(bench: Bench) -> None:
    # With more than 30, CPython 3.11 uses a slower path, which cost 3 % of an ADDJOB.
    assert len(getattr(bench.node.store, "__dict__", ())) <= 30


@pytest.mark.parametrize("names", [100, 1_000])
def test_queues_that_clients_only_waited_for_keep_nobody_from_adding_jobs(
    make_bench: BenchMaker, names: int
) -> None:
    limit = 5_000_000
    bench = make_bench(maxmemory=limit)
    for turn in range(20_000 // names):
        asking = bench.client()
        bench.send(asking, "GETJOB", "FROM", *[f"{turn}.{name}" for name in range(names)])
        bench.disconnect(asking)
    assert used(bench) > limit * 0.75
    for _ in range(10):
        bench.add("q", "x" * 1_000)
    assert bench.number_queued() == 10
    assert used(bench) < limit * 0.76


def test_queues_stay_that_clients_wait_for_or_that_had_a_job_or_are_paused(
    make_bench: BenchMaker,
) -> None:
    bench = make_bench(maxmemory=5_000_000)
    assert bench("ACKJOB", bench.add("had")) == 1
    names = ["had", "waited", "paused", "gone"]
    leaving, staying = bench.client(), bench.client()
    bench.send(leaving, "GETJOB", "FROM", *names)
    bench.send(staying, "GETJOB", "FROM", "waited")
    bench.disconnect(leaving)
    bench("PAUSE", "paused", "in")
    fill(bench, 0.8)
    bench.node.cron(bench.now)
    assert [name for name in names if name.encode() in bench.node.queues.by_name] == names[:3]
