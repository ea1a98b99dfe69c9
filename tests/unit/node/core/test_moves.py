"""The commands that move single jobs: acknowledgements, NACK, ENQUEUE, DEQUEUE, WORKING; and
MAXLEN."""

import pytest

from tests.support.mesh import Mesh
from tests.support.node_bench import JITTER_HIGH, JITTER_LOW, Bench


def test_ackjob_ends_a_job_in_every_state(bench: Bench) -> None:
    queued, delayed = bench.add("a"), bench.add("a", "b", "DELAY", 10)
    delivered = bench.add("b")
    assert bench.get("b") == delivered
    assert bench("ACKJOB", queued, delayed, delivered) == 3
    assert bench("QLEN", "a") == 0
    bench.advance(600)
    assert bench.get("a", "b") is None
    assert bench.info("jobs")["registered_jobs"] == "0"


def test_ackjob_counts_each_job_once(bench: Bench) -> None:
    id = bench.add()
    assert bench("ACKJOB", id, id) == 1
    assert bench("ACKJOB", id) == 0


@pytest.mark.parametrize("command", ["FASTACK", "DELJOB"])
def test_fastack_and_deljob_delete_and_count(bench: Bench, command: str) -> None:
    queued, delayed = bench.add(), bench.add("q", "b", "DELAY", 10)
    assert bench(command, queued, delayed, queued) == 2
    assert bench(command, queued) == 0
    assert not bench.held(queued)
    assert bench("QLEN", "q") == 0


@pytest.mark.parametrize("options", [("BCAST",), ("FORCE",), ("bcast", "force"), ()])
def test_deljob_takes_the_options_of_the_first_release(
    bench: Bench, options: tuple[str, ...]
) -> None:
    id = bench.add()
    assert bench("DELJOB", *options, id) == 1
    assert bench("DELJOB", *options) == 0
    assert bench.error("DELJOB", id, "BCAST") == "BADID Invalid Job ID format."


def test_nack_queues_now_and_counts_for_itself(bench: Bench) -> None:
    id = bench.add()
    for nacks in range(1, 4):
        assert bench.get() == id
        assert bench("NACK", id) == 1
        assert bench.number(id, b"nacks") == nacks
    assert bench.number(id, b"additional-deliveries") == 0
    assert bench("NACK", id) == 0  # it is queued


def test_enqueue_counts_as_a_further_delivery_unless_it_is_the_first(bench: Bench) -> None:
    id = bench.add("q", "b", "DELAY", 100)
    assert bench("ENQUEUE", id) == 1
    assert bench.number(id, b"additional-deliveries") == 0
    assert bench.get() == id
    assert bench("ENQUEUE", id, id) == 1
    assert bench.number(id, b"additional-deliveries") == 1
    assert bench.number(id, b"nacks") == 0


def test_the_counters_stop_at_their_16_bits(bench: Bench) -> None:
    id = bench.add()
    job = bench.node.store.jobs.get(id)
    assert job is not None
    job.nacks = job.deliveries = 2**16 - 2
    for _ in range(3):
        assert bench.get() == id
        assert bench("NACK", id) == 1
        assert bench.get() == id
        assert bench("ENQUEUE", id) == 1
    assert bench.number(id, b"nacks") == 2**16 - 1
    assert bench.number(id, b"additional-deliveries") == 2**16 - 1


def test_withcounters_shows_both_counters(bench: Bench) -> None:
    id = bench.add("q", "body")
    bench.get()
    bench("NACK", id)
    bench.get()
    bench("ENQUEUE", id)
    assert bench("GETJOB", "WITHCOUNTERS", "FROM", "q") == [
        [b"q", id, b"body", b"nacks", 1, b"additional-deliveries", 1]
    ]


def test_a_dequeued_job_comes_back_after_its_retry_time(bench: Bench) -> None:
    id = bench.add("q", "b", "RETRY", 10)
    assert bench("DEQUEUE", id, id) == 1
    assert bench("DEQUEUE", id) == 0
    assert bench.get() is None
    bench.advance(10.5)
    assert bench.get() == id


@pytest.mark.parametrize("command", ["ACKJOB", "FASTACK", "DELJOB", "ENQUEUE", "NACK", "DEQUEUE"])
def test_unknown_jobs_count_as_none_and_no_ids_are_none(bench: Bench, command: str) -> None:
    unknown = bench.add()
    bench("DELJOB", unknown)
    assert bench(command) == 0
    assert bench(command, unknown, unknown) == 0


@pytest.mark.parametrize("command", ["ACKJOB", "FASTACK", "DELJOB", "ENQUEUE", "NACK", "DEQUEUE"])
def test_all_ids_are_checked_before_any_is_acted_on(bench: Bench, command: str) -> None:
    id = bench.add()
    if command in ("ENQUEUE", "NACK"):
        bench("DEQUEUE", id)
    before = bench.show(id)
    assert bench.error(command, id, "D-wrong") == "BADID Invalid Job ID format."
    assert bench.show(id) == before


# ---- WORKING ----------------------------------------------------------------------------------


def test_working_postpones_the_next_delivery_by_the_retry_time(bench: Bench) -> None:
    id = bench.add("q", "b", "RETRY", 10)
    assert bench.get() == id
    for _ in range(20):
        bench.advance(8)
        assert bench("WORKING", id) == 10
        within = bench.requeue_within(id)
        assert within is not None
        assert 10_000 + JITTER_LOW <= within <= 10_000 + JITTER_HIGH
    assert bench.get() is None
    bench.advance(10.3)
    assert bench.get() == id


def test_working_takes_a_queued_job_out_of_its_queue(bench: Bench) -> None:
    id = bench.add("q", "b", "RETRY", 10)
    assert bench("WORKING", id) == 10
    assert bench("QLEN", "q") == 0
    bench.advance(10.3)
    assert bench.get() == id


def test_working_is_allowed_until_half_of_the_time_to_live(bench: Bench) -> None:
    id = bench.add("q", "b", "TTL", 100, "RETRY", 60)
    bench.get()
    bench.advance(50)
    assert bench("WORKING", id) == 60
    bench.advance(0.001)
    assert bench.error("WORKING", id) == (
        "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the "
        "next delivery."
    )


def test_working_for_an_unknown_job_is_nojob(bench: Bench) -> None:
    id = bench.add()
    bench("ACKJOB", id)
    assert bench.error("WORKING", id) == "NOJOB Job not known in the context of this node."


def test_working_for_an_acknowledged_job_that_is_still_held_is_acked() -> None:
    mesh = Mesh(2)
    bench = mesh[0]
    id = mesh.add(0)
    mesh.cut(0, 1)  # the other holder cannot hear about it
    assert bench("ACKJOB", id) == 1
    assert bench.show(id)[b"state"] == b"acked"
    assert bench.error("WORKING", id).startswith("ACKED ")
    assert bench("ACKJOB", id) == 0
    assert bench("ENQUEUE", id) == bench("NACK", id) == bench("DEQUEUE", id) == 0
    assert bench.get() is None


def test_working_with_retry_0_answers_0_and_changes_nothing(bench: Bench) -> None:
    id = bench.add("q", "b", "RETRY", 0)
    assert bench.get() == id
    assert bench("WORKING", id) == 0
    bench.advance(100)
    assert bench.get() is None


def test_working_needs_an_id(bench: Bench) -> None:
    assert bench.error("WORKING", "x") == "BADID Invalid Job ID format."


# ---- MAXLEN -----------------------------------------------------------------------------------


def test_maxlen_refuses_at_that_length(bench: Bench) -> None:
    full = "MAXLEN Queue is already longer than the specified MAXLEN count"
    for _ in range(3):
        bench.add("q", "b", "MAXLEN", 3)
    assert bench.error("ADDJOB", "q", "b", 0, "MAXLEN", 3) == full
    assert bench.error("ADDJOB", "q", "b", 0, "MAXLEN", 1) == full
    bench.add("q", "b", "MAXLEN", 4)
    bench.add("q")
    assert bench("QLEN", "q") == 5


def test_maxlen_counts_queued_jobs_only(bench: Bench) -> None:
    bench.add("q", "b", "DELAY", 10, "MAXLEN", 1)
    bench.add("q", "b", "MAXLEN", 1)
    bench.get()
    bench.add("q", "b", "MAXLEN", 1)
    assert bench("QLEN", "q") == 1
