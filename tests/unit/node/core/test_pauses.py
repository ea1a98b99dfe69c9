"""Pauses before a job is queued again, by request of a worker or by policy."""

import pytest

from tests.support.mesh import Mesh
from tests.support.node_bench import GRAIN, Bench
from tests.support.policies import set_policy


def wait_until_queued(bench: Bench, id: bytes, most: float = 1000) -> float:
    """Return the seconds until the job is in the queue."""
    start = bench.now
    while bench.show(id)[b"state"] != b"queued":
        bench.advance(0.05)
        assert bench.now < start + most * 1000
    return (bench.now - start) / 1000


def taken(bench: Bench, *options: str | int) -> bytes:
    """Return a job that a worker has."""
    id = bench.add("q", "body", *options)
    assert bench.get() == id
    return id


@pytest.mark.parametrize("delay", ["5", "0.5", "700"])
def test_a_job_that_was_handed_back_with_a_delay_comes_when_that_is_over(
    bench: Bench, delay: str
) -> None:
    id = taken(bench, "RETRY", 60)
    assert bench("NACK", id, "DELAY", delay) == 1
    assert bench.get() is None
    assert bench.number(id, b"nacks") == 1
    bench.advance(float(delay) - 0.1)
    assert bench.get() is None
    bench.advance(0.1 + 2 * GRAIN / 1000)
    assert bench.get() == id
    assert bench.number(id, b"nacks") == 1
    assert bench.number(id, b"additional-deliveries") == 0


def test_a_delay_of_zero_is_none(bench: Bench) -> None:
    set_policy(bench, backoff=(5000, 5000))
    id = taken(bench)
    assert bench("NACK", id, "DELAY", "0") == 1
    assert bench.get() == id


def test_a_paused_job_can_be_queued_by_hand_and_acknowledged(bench: Bench) -> None:
    id = taken(bench)
    bench("NACK", id, "DELAY", "100")
    assert bench("ENQUEUE", id) == 1
    assert bench.get() == id
    bench("NACK", id, "DELAY", "100")
    assert bench("ACKJOB", id) == 1
    bench.advance(200)
    assert bench.get() is None


def test_pauses_double_from_the_least_to_the_most(bench: Bench) -> None:
    set_policy(bench, backoff=(1000, 10_000))
    id = taken(bench, "RETRY", 60)
    pauses: list[float] = []
    for _ in range(6):
        assert bench("NACK", id) == 1
        pauses.append(wait_until_queued(bench, id))
        assert bench.get() == id
    slack = 0.15
    for pause, middle in zip(pauses, [1, 2, 4, 8, 10, 10], strict=True):
        assert max(1, middle * 0.75) <= pause <= min(10, middle * 1.25) + slack
    assert bench.number(id, b"nacks") == 6


def test_the_longest_pause_can_be_had(bench: Bench) -> None:
    assert bench("QSET", "q", "BACKOFF", 4294967295, 4294967295) == b"OK"
    id = taken(bench, "RETRY", 60, "TTL", 4294967295)
    assert bench("NACK", id) == 1
    assert bench.requeue_within(id) > 1_000_000


def test_pauses_are_not_the_same_for_all_jobs() -> None:
    bench = Bench(5)
    set_policy(bench, backoff=(10_000, 100_000))
    ids = [taken(bench) for _ in range(30)]
    for id in ids:
        bench("NACK", id)
        bench("NACK", id)
    assert len({bench.requeue_within(id) for id in ids}) > 20


def test_a_job_that_nobody_acknowledged_pauses_as_well(bench: Bench) -> None:
    set_policy(bench, backoff=(20_000, 20_000))
    id = taken(bench, "RETRY", 10)
    waited = wait_until_queued(bench, id)
    assert 29 < waited < 31
    assert bench.number(id, b"additional-deliveries") == 1
    assert bench.get() == id
    assert bench.number(id, b"additional-deliveries") == 1


def test_what_a_worker_said_last_is_shown_and_no_byte_stays(bench: Bench) -> None:
    id = taken(bench)
    bench("NACK", id, "REASON", "first")
    bench.get()
    bench("NACK", id, "REASON", "second")
    trailer = bench.node.store.trailers.of(bench.node.store.jobs.get(id))
    assert trailer is not None
    assert trailer.reason == b"second"
    assert bench.node.memory.used == bench.counted_memory()
    bench("ACKJOB", id)
    assert bench.node.memory.used == bench.counted_memory()


def test_a_job_that_waits_for_its_first_time_cannot_be_handed_back(bench: Bench) -> None:
    id = bench.add("q", "body", "RETRY", 0)
    bench.get()
    assert bench("NACK", id, "DELAY", 5) == 0


# ---- several nodes ------------------------------------------------------------------------------


def queued_on(mesh: Mesh) -> list[int]:
    return [i for i, bench in enumerate(mesh.nodes) if bench.number_queued()]


@pytest.mark.parametrize("jitter", [-250, 0, 249, None])
def test_no_holder_queues_a_job_before_its_pause_is_over(jitter: int | None) -> None:
    mesh = Mesh(3, jitter=jitter)
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 2)
    assert mesh[0].get() == id
    mesh[0]("NACK", id, "DELAY", 60, "REASON", "later")
    mesh.advance(59)
    assert queued_on(mesh) == []
    mesh.advance(1.2)
    assert queued_on(mesh) == [0]
    assert [bench.number(id, b"nacks") for bench in mesh.nodes] == [1, 1, 1]
    for bench in mesh.nodes:
        trailer = bench.node.store.trailers.of(bench.node.store.jobs.get(id))
        assert trailer is not None
        assert trailer.reason == b"later"


def test_another_holder_queues_the_job_if_the_one_that_was_told_is_gone() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 2)
    mesh[0].get()
    mesh[0]("NACK", id, "DELAY", 60)
    mesh.settle()
    mesh.isolate(0)
    mesh.advance(59)
    assert queued_on(mesh) == []
    mesh.advance(4)
    assert len([i for i in queued_on(mesh) if i]) == 1


def test_c_nodes_are_kept_waiting_beyond_their_retry_time() -> None:
    mesh = Mesh(2)
    mesh.c_nodes.add(1)
    mesh.peers[0].judge_extensions()
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 4)
    mesh[0].get()
    mesh[0]("NACK", id, "DELAY", 60)
    mesh.advance(59)
    assert queued_on(mesh) == []
    assert mesh[1].number(id, b"nacks") == 1
    mesh.advance(1.2)
    assert queued_on(mesh) == [0]


def test_a_node_that_does_not_know_of_the_pause_is_told_when_it_asks() -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 4)
    mesh[0].get()
    mesh.cut(0, 1)
    mesh[0]("NACK", id, "DELAY", 60)
    mesh.settle()
    mesh.join(0, 1)
    mesh.advance(59)
    assert queued_on(mesh) == []


def test_who_did_not_hear_that_its_client_handed_a_job_back_elsewhere_is_told_so() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 600)
    mesh[0].get()
    mesh.isolate(0)
    mesh[1]("NACK", id, "DELAY", 2)
    mesh.settle()
    mesh.rejoin(0)
    mesh.advance(2.5)
    assert [bench.number_queued() for bench in mesh.nodes] == [0, 1, 0]
    assert mesh[0].number(id, b"nacks") == 1
    assert mesh[1].get() == id
    mesh.advance(590)
    assert queued_on(mesh) == []


def test_a_job_in_two_queues_pauses_in_both() -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 4)
    mesh[0].get()
    mesh.cut(0, 1)
    mesh[1]("ENQUEUE", id)
    mesh.join(0, 1)
    assert queued_on(mesh) == [1]
    mesh[0]("NACK", id, "DELAY", 60)
    mesh.advance(50)
    assert queued_on(mesh) == []
