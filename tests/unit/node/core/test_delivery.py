"""When a job is queued and delivered: order, delay, retry, expiry, at most once."""

import pytest

from tests.support.mesh import Mesh
from tests.support.node_bench import GRAIN, JITTER_HIGH, JITTER_LOW, START, Bench

DAY = 86_400


# ---- order ------------------------------------------------------------------------------------


def test_jobs_come_in_the_order_in_which_they_were_added(bench: Bench) -> None:
    added = [bench.add() for _ in range(20)]
    assert bench.get_all(count=7) == added[:7]
    assert bench.get_all() == added[7:]
    assert bench.get() is None


def test_a_job_that_is_queued_again_goes_back_to_its_old_place(bench: Bench) -> None:
    first, second, third = (bench.add() for _ in range(3))
    assert bench.get_all(count=2) == [first, second]
    assert bench("NACK", second) == 1
    assert bench("ENQUEUE", first) == 1
    assert bench.get_all() == [first, second, third]


def test_a_delayed_job_goes_to_the_place_of_its_creation(bench: Bench) -> None:
    delayed = bench.add("q", "b", "DELAY", 5)
    bench.advance(1)
    later = bench.add()
    bench.advance(5)
    assert bench.get_all() == [delayed, later]


# ---- delay ------------------------------------------------------------------------------------


def test_a_delayed_job_is_queued_when_its_delay_has_passed(bench: Bench) -> None:
    id = bench.add("q", "b", "DELAY", 3)
    assert bench("QLEN", "q") == 0
    assert bench.show(id)[b"state"] == b"active"
    assert bench.requeue_within(id) == 3000
    bench.advance(2.999)
    assert bench.get() is None
    bench.advance((1 + GRAIN) / 1000)
    assert bench.show(id)[b"state"] == b"queued"
    assert bench.get() == id


def test_a_delayed_job_comes_exactly_once_before_its_retry(bench: Bench) -> None:
    id = bench.add("q", "b", "DELAY", 10, "RETRY", 60)
    bench.advance(10.1)
    assert bench.get() == id
    assert bench.number(id, b"additional-deliveries") == 0
    bench.advance(59)
    assert bench.get() is None
    bench.advance(1.5)
    assert bench.get() == id


@pytest.mark.parametrize("millisecond", range(960, 1000, 3))
@pytest.mark.parametrize("retry", [0, 1])
def test_a_delay_just_below_the_time_to_live_leaves_time_for_one_delivery(
    bench: Bench, millisecond: int, retry: int
) -> None:
    bench.now += millisecond  # the time to live ends at a full second, so it is up to 1 s shorter
    id = bench.add("q", "b", "DELAY", 1, "TTL", 2, "RETRY", retry)
    client = bench.block("q")
    bench.advance(1.05)
    assert bench.got(client) == id
    bench.advance(1.1)
    assert not bench.held(id)


def test_a_delayed_job_is_not_queued_when_its_time_to_live_is_long_over(bench: Bench) -> None:
    id = bench.add("q", "b", "DELAY", 1, "TTL", 2)
    bench.now += 3000  # the driver was suspended
    bench.node.tick(bench.now)
    assert not bench.held(id)
    assert bench.get() is None


def test_a_delay_of_a_month_does_not_wrap(bench: Bench) -> None:
    delay = 5_000_000
    id = bench.add("q", "b", "DELAY", delay, "TTL", 2 * delay)
    assert bench.requeue_within(id) == delay * 1000
    bench.advance(delay - 1)
    assert bench.get() is None
    bench.advance(2)
    assert bench.get() == id


@pytest.mark.parametrize(
    ("delay", "ms"),
    [("0.5", 500), ("0.001", 1), ("1.2345", 1235), ("2.0", 2000), ("00.30000000000000004", 300)],
)
def test_a_delay_may_have_decimals(bench: Bench, delay: str, ms: int) -> None:
    id = bench.add("q", "b", "DELAY", delay)
    assert bench.requeue_within(id) == ms
    assert bench.number(id, b"delay") == -(-ms // 1000)
    bench.advance((ms - 1) / 1000)
    assert bench.number_queued() == 0
    bench.advance((1 + GRAIN) / 1000)
    assert bench.get() == id


def test_a_job_is_queued_at_its_time(bench: Bench) -> None:
    id = bench.add("q", "b", "AT", bench.now + 2345)
    assert bench.requeue_within(id) == 2345
    assert (bench.number(id, b"delay"), bench.number(id, b"ttl")) == (3, 86_403)
    bench.advance(2.344)
    assert bench.number_queued() == 0
    bench.advance((1 + GRAIN) / 1000)
    assert bench.get() == id
    assert bench.number(id, b"additional-deliveries") == 0


@pytest.mark.parametrize("before", [0, 1, 10**9, START])
def test_a_job_whose_time_is_over_is_queued_at_once(bench: Bench, before: int) -> None:
    id = bench.add("q", "b", "AT", bench.now - before)
    assert bench.number(id, b"delay") == 0
    assert bench.get() == id


@pytest.mark.parametrize("days", [2, 30 * 365])
def test_a_time_that_is_far_away_needs_no_time_to_live(bench: Bench, days: int) -> None:
    id = bench.add("q", "b", "AT", bench.now + days * 86_400_000)
    assert bench.number(id, b"ttl") == (days + 1) * 86_400
    bench.advance(days * 86_400 - 1)
    assert bench.number_queued() == 0
    bench.advance(2)
    assert bench.get() == id


def test_a_job_that_waits_for_copies_is_queued_at_its_time_all_the_same() -> None:
    mesh = Mesh(2)
    bench = mesh[0]
    for options in (("AT", bench.now + 900), ("DELAY", "0.9")):
        bench.send(bench.me, "ADDJOB", "q", "b", 0, *options)
        mesh.advance(0.4)
        (id,) = bench.replies(bench.me)
        assert isinstance(id, bytes)
        assert mesh[1].number(id, b"delay") == 1
        mesh.advance(0.49)
        assert bench.number_queued() == 0
        mesh.advance((20 + GRAIN) / 1000)
        assert bench.get() == id
        bench("ACKJOB", id)


def test_a_job_whose_copies_took_longer_than_its_delay_is_queued_when_they_are_there() -> None:
    mesh = Mesh(2)
    bench = mesh[0]
    mesh.isolate(0)
    bench.send(bench.me, "ADDJOB", "q", "b", 0, "AT", bench.now + 200)
    mesh.advance(1)
    assert bench.replies(bench.me) == []
    mesh.rejoin(0)
    mesh.advance(1)
    (id,) = bench.replies(bench.me)
    assert bench.get() == id


# ---- retry ------------------------------------------------------------------------------------


def test_a_delivered_job_comes_again_after_its_retry_time(bench: Bench) -> None:
    id = bench.add("q", "b", "RETRY", 10)
    assert bench.get() == id
    bench.advance((10_000 + JITTER_LOW - 1) / 1000)
    assert bench.get() is None
    bench.advance((JITTER_HIGH - JITTER_LOW + GRAIN + 1) / 1000)
    assert bench.get() == id


def test_the_retry_time_counts_from_the_queueing_while_half_of_it_is_left(bench: Bench) -> None:
    id = bench.add("q", "b", "RETRY", 10)
    bench.advance(4)
    assert bench.get() == id
    bench.advance(6.3)
    assert bench.get() == id


def test_the_retry_time_of_what_waited_for_longer_counts_from_the_delivery(bench: Bench) -> None:
    id = bench.add("q", "b", "RETRY", 10)
    bench.advance(6)
    assert bench.get() == id
    bench.advance(9.7)
    assert bench.get() is None
    bench.advance(0.6)
    assert bench.get() == id


def test_requeue_times_are_spread_by_a_quarter_of_a_second(bench: Bench) -> None:
    found = [bench.requeue_within(bench.add("q", "b", "RETRY", 10)) for _ in range(5000)]
    spread = [ms - 10_000 for ms in found if ms is not None]
    assert len(spread) == 5000
    assert min(spread) == JITTER_LOW
    assert max(spread) == JITTER_HIGH


def test_a_job_that_nobody_takes_stays_queued_over_its_retry_time(bench: Bench) -> None:
    id = bench.add("q", "b", "RETRY", 2)
    bench.advance(60)
    assert bench("QLEN", "q") == 1
    assert bench.number(id, b"additional-deliveries") == 0
    assert bench.get() == id


def test_a_job_comes_again_and_again_until_it_is_acknowledged(bench: Bench) -> None:
    id = bench.add("q", "b", "RETRY", 5)
    for times in range(10):
        assert bench.get() == id
        assert bench.number(id, b"additional-deliveries") == times
        bench.advance(5.3)
    assert bench("ACKJOB", id) == 1
    bench.advance(3600)
    assert bench.get() is None


@pytest.mark.parametrize(
    ("ttl", "retry"), [(DAY, 300), (3000, 300), (2999, 299), (100, 10), (9, 1), (1, 1)]
)
def test_the_retry_time_is_a_tenth_of_the_ttl_between_one_and_300_seconds(
    bench: Bench, ttl: int, retry: int
) -> None:
    assert bench.number(bench.add("q", "b", "TTL", ttl), b"retry") == retry


def test_a_retry_time_over_32_bits_is_cut_to_that(bench: Bench) -> None:
    id = bench.add("q", "b", "RETRY", 2**63 - 1)
    assert bench.number(id, b"retry") == 2**32 - 1
    within = bench.requeue_within(id)
    assert within is not None
    assert abs(within - (2**32 - 1) * 1000) <= 250


# ---- expiry -----------------------------------------------------------------------------------


def test_a_job_is_gone_a_second_after_its_time_to_live(bench: Bench) -> None:
    id = bench.add("q", "b", "TTL", 30, "RETRY", 60)
    bench.advance(30.999)
    assert bench.held(id)
    bench.advance((1 + GRAIN) / 1000)
    assert not bench.held(id)
    assert bench("QLEN", "q") == 0
    assert bench.info("stats")["total_jobs_expired"] == "1"


@pytest.mark.parametrize("options", [(), ("RETRY", 0), ("DELAY", 20)])
def test_a_job_expires_queued_delivered_or_delayed(
    bench: Bench, options: tuple[str | int, ...]
) -> None:
    id = bench.add("q", "b", "TTL", 60, *options)
    if "DELAY" in options:
        bench.advance(21)
    if bench.get() is not None:
        bench("DEQUEUE", id)
    bench.advance(61.1)
    assert not bench.held(id)
    assert bench.node.next_wake() == 0


def test_a_job_is_not_queued_again_after_its_time_to_live() -> None:
    bench = Bench(jitter=100)
    id = bench.add("q", "b", "TTL", 10, "RETRY", 10)  # both ends are within the same second
    assert bench.get() == id
    client = bench.block("q")
    bench.advance(12)
    assert client.blocked
    assert not bench.held(id)


def test_the_ttl_of_show_falls_to_zero_and_not_below(bench: Bench) -> None:
    id = bench.add("q", "b", "TTL", 5, "RETRY", 60)
    assert bench.number(id, b"ttl") == 5
    bench.advance(2)
    assert bench.number(id, b"ttl") == 3
    bench.advance(3.9)
    assert bench.number(id, b"ttl") == 0


def test_a_time_to_live_over_32_bits_ends_at_the_end_of_time(bench: Bench) -> None:
    id = bench.add("q", "b", "TTL", 2**40)
    assert bench.number(id, b"ttl") == 2**32 - 1 - bench.now // 1000


# ---- at most once -----------------------------------------------------------------------------


def test_a_job_with_retry_0_comes_once(bench: Bench) -> None:
    id = bench.add("q", "b", "RETRY", 0)
    assert bench.requeue_within(id) is None
    assert bench.get() == id
    assert bench("NACK", id) == 0
    assert bench("ENQUEUE", id) == 0
    bench.advance(3600)
    assert bench.get() is None
    assert bench.held(id)
    assert bench.number(id, b"nacks") == 0
    assert bench("ACKJOB", id) == 1


def test_a_job_with_retry_0_that_was_not_delivered_can_be_dequeued_and_queued(
    bench: Bench,
) -> None:
    id = bench.add("q", "b", "RETRY", 0)
    assert bench("DEQUEUE", id) == 1
    assert bench.get() is None
    assert bench("ENQUEUE", id) == 1
    assert bench.get() == id
    assert bench("ENQUEUE", id) == 0


def test_a_delayed_job_with_retry_0_comes_once_after_its_delay(bench: Bench) -> None:
    id = bench.add("q", "b", "RETRY", 0, "DELAY", 5)
    bench.advance(5.1)
    assert bench.get() == id
    bench.advance(DAY / 2)
    assert bench.get() is None


def test_a_delayed_job_with_retry_0_that_is_queued_early_comes_once(bench: Bench) -> None:
    id = bench.add("q", "b", "RETRY", 0, "DELAY", 5)
    assert bench("ENQUEUE", id) == 1
    assert bench.get() == id
    bench.advance(10)
    assert bench.get() is None


# ---- many jobs at once --------------------------------------------------------------------------


def test_a_tick_does_a_hundred_jobs_and_asks_to_be_called_again(bench: Bench) -> None:
    for _ in range(120):
        bench.add("q", "", "DELAY", 5)
    bench.now += 6000
    bench.node.tick(bench.now)
    assert bench("QLEN", "q") == 100
    assert 0 < bench.node.next_wake() <= bench.now
    bench.node.tick(bench.now)
    assert bench("QLEN", "q") == 120
    assert bench.node.next_wake() > bench.now


def test_nothing_to_do_means_not_to_be_called(bench: Bench) -> None:
    assert bench.node.next_wake() == 0
    id = bench.add()
    assert bench.node.next_wake() > bench.now
    bench("ACKJOB", id)
    assert bench.node.next_wake() == 0
