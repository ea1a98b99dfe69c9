"""PAUSE: what a queue that is paused in, out or both still does."""

import pytest

from tests.support.node_bench import Bench

PAUSED = "PAUSED Queue paused in input, try later"


@pytest.mark.parametrize(
    ("options", "state"),
    [
        (["in"], b"in"),
        (["out"], b"out"),
        (["all"], b"all"),
        (["none"], b"none"),
        (["in", "out"], b"all"),
        (["OUT", "In"], b"all"),
        (["in", "none"], b"none"),
        (["in", "none", "out"], b"out"),
        (["all", "none", "in", "state"], b"in"),
        (["in", "bcast"], b"in"),
        (["bcast", "out"], b"out"),
        (["state"], b"none"),
        (["bcast"], b"none"),
    ],
)
def test_options_add_up_from_left_to_right(bench: Bench, options: list[str], state: bytes) -> None:
    bench.send(bench.me, "PAUSE", "q", *options)
    assert bench.raw(bench.me) == b"+" + state + b"\r\n"
    assert bench("PAUSE", "q", "state") == state


def test_the_result_replaces_the_old_state(bench: Bench) -> None:
    assert bench("PAUSE", "q", "in") == b"in"
    assert bench.queue()[b"pause"] == b"in"
    assert bench("PAUSE", "q", "out") == b"out"
    assert bench("PAUSE", "q", "state", "bcast") == b"out"
    assert bench("PAUSE", "q", "none") == b"none"
    assert bench.queue()[b"pause"] == b"none"


def test_an_unknown_option_is_an_error_before_any_change(bench: Bench) -> None:
    assert bench.error("PAUSE", "q", "in", "sideways") == "ERR syntax error"
    assert bench("PAUSE", "q", "state") == b"none"


@pytest.mark.parametrize("option", ["state", "none", "bcast"])
def test_a_queue_that_is_not_paused_is_not_made_for_that(bench: Bench, option: str) -> None:
    assert bench("PAUSE", "q", option) == b"none"
    assert bench("QSTAT", "q") is None


# ---- in -----------------------------------------------------------------------------------------


def test_paused_in_refuses_addjob(bench: Bench) -> None:
    bench("PAUSE", "q", "in")
    assert bench.error("ADDJOB", "q", "b", 0) == PAUSED
    assert bench.error("ADDJOB", "q", "b", 0, "DELAY", 5) == PAUSED
    bench.add("other")
    bench("PAUSE", "q", "none")
    bench.add("q")


def test_paused_in_still_gives_jobs(bench: Bench) -> None:
    job = bench.add()
    bench("PAUSE", "q", "in")
    assert bench.get() == job


def test_paused_in_postpones_a_retry_by_the_retry_time(bench: Bench) -> None:
    job = bench.add("q", "b", "RETRY", 10)
    bench.get()
    bench("PAUSE", "q", "in")
    bench.advance(10.5)
    assert bench("QLEN", "q") == 0
    within = bench.requeue_within(job)
    assert within is not None
    assert 9_000 < within < 10_500
    bench("PAUSE", "q", "none")
    assert bench("QLEN", "q") == 0
    bench.advance(10.5)
    assert bench.get() == job
    assert bench.number(job, b"additional-deliveries") == 1


def test_paused_in_postpones_a_delayed_job_by_its_retry_time(bench: Bench) -> None:
    job = bench.add("q", "b", "DELAY", 5, "RETRY", 10)
    bench("PAUSE", "q", "in")
    bench.advance(5.1)
    assert bench("QLEN", "q") == 0
    bench("PAUSE", "q", "none")
    bench.advance(10.5)
    assert bench.get() == job


def test_paused_in_queues_a_delayed_job_with_retry_0_all_the_same(bench: Bench) -> None:
    job = bench.add("q", "b", "DELAY", 5, "RETRY", 0)
    bench("PAUSE", "q", "in")
    bench.advance(5.1)
    assert bench.get() == job


@pytest.mark.parametrize("command", ["ENQUEUE", "NACK"])
def test_paused_in_does_not_hold_back_enqueue_and_nack(bench: Bench, command: str) -> None:
    job = bench.add()
    bench.get()
    bench("PAUSE", "q", "in")
    assert bench(command, job) == 1
    assert bench.get() == job


def test_a_job_that_waits_in_a_queue_paused_in_stays_there(bench: Bench) -> None:
    job = bench.add("q", "b", "RETRY", 2)
    bench("PAUSE", "q", "all")
    bench.advance(30)
    assert bench("QLEN", "q") == 1
    bench("PAUSE", "q", "none")
    assert bench.get() == job


# ---- out ----------------------------------------------------------------------------------------


def test_paused_out_gives_no_jobs_but_takes_them(bench: Bench) -> None:
    bench("PAUSE", "q", "out")
    job, other = bench.add("q"), bench.add("other")
    assert bench.get("q") is None
    assert bench.get_all("q", "other") == [other]
    assert bench("QPEEK", "q", 1) == [[b"q", job, b"body"]]
    bench("PAUSE", "q", "none")
    assert bench.get("q") == job


def test_paused_out_blocks_and_is_served_on_unpausing_first_come_first(bench: Bench) -> None:
    bench("PAUSE", "q", "all")
    bench("PAUSE", "q", "out")
    jobs = [bench.add() for _ in range(3)]
    waiting = [bench.block("q") for _ in range(5)]
    assert bench.queue()[b"blocked"] == 5
    bench("PAUSE", "q", "in")
    assert [bench.got(client) for client in waiting[:3]] == jobs
    assert all(client.blocked for client in waiting[3:])


def test_a_client_that_waits_for_a_queue_paused_out_is_served_from_another(
    bench: Bench,
) -> None:
    bench("PAUSE", "a", "out")
    bench.add("a")
    client = bench.block("a", "b")
    job = bench.add("b")
    assert bench.got(client) == job
    bench("PAUSE", "a", "none")
    assert bench("QLEN", "a") == 1


def test_a_wait_for_a_queue_paused_out_ends_at_its_timeout(bench: Bench) -> None:
    bench("PAUSE", "q", "out")
    bench.add()
    client = bench.block("q", timeout=500)
    bench.advance(0.5)
    assert bench.raw(client) == b"*-1\r\n"


def test_flushing_forgets_the_pause(bench: Bench) -> None:
    bench("PAUSE", "q", "all")
    bench("DEBUG", "FLUSHALL")
    assert bench("PAUSE", "q", "state") == b"none"
