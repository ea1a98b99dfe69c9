"""PROMOTE: jobs that wait for their time are queued now."""

import pytest

from tests.support.mesh import Mesh
from tests.support.node_bench import Bench
from tests.support.policies import set_policy


def test_a_delayed_job_is_queued_at_once_and_not_a_second_time(bench: Bench) -> None:
    id = bench.add("q", "body", "DELAY", 100, "RETRY", 1000)
    assert bench("PROMOTE", id) == 1
    assert bench.get() == id
    bench.advance(200)
    assert bench.get() is None


def test_a_job_that_pauses_is_queued_at_once(bench: Bench) -> None:
    id = bench.add("q", "body", "RETRY", 1000)
    bench.get()
    bench("NACK", id, "DELAY", 100)
    assert bench("PROMOTE", id) == 1
    assert bench.get() == id
    assert bench.number(id, b"nacks") == 1


def test_what_is_queued_delivered_or_done_stays_as_it_is(bench: Bench) -> None:
    delivered = bench.add("a", "body", "RETRY", 1000)
    assert bench.get("a") == delivered
    queued = bench.add("q")
    unknown = queued[:20] + b"x" * 15 + queued[35:]
    assert bench("PROMOTE", delivered, queued, unknown) == 0
    assert bench.get("a") is None
    assert bench.number_queued() == 1


def test_a_promoted_job_that_a_worker_has_is_not_delivered_again(bench: Bench) -> None:
    id = bench.add("q", "body", "DELAY", 100, "RETRY", 1000)
    assert bench("PROMOTE", id) == 1
    assert bench.get() == id
    assert bench("PROMOTE", id) == 0


def test_a_bad_id_is_refused(bench: Bench) -> None:
    assert bench.error("PROMOTE", "x").startswith("BADID")


@pytest.mark.parametrize("index", [0, 1])
def test_any_holder_can_do_it_and_the_others_do_not_queue_it_too(index: int) -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 2, "DELAY", 100, "RETRY", 1000)
    assert mesh[index]("PROMOTE", id) == 1
    mesh.settle()
    assert mesh[index].get() == id
    mesh.advance(300)
    assert [bench.number_queued() for bench in mesh.nodes] == [0, 0]
    mesh[index]("ACKJOB", id)
    mesh.advance(5)
    assert mesh.holders(id) == []


def test_a_pause_of_a_policy_ends(bench: Bench) -> None:
    set_policy(bench, backoff=(60_000, 60_000))
    id = bench.add("q", "body", "RETRY", 1000)
    bench.get()
    bench("NACK", id)
    assert bench("PROMOTE", id) == 1
    assert bench.number_queued() == 1
