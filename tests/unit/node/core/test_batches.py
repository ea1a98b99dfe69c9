"""Commands about many ids: processed in slices, with one reply, and others served in between."""

import hiredis
import pytest

from disque_trio.respserver.batches import CHECKED, SLICE
from disque_trio.respserver.client import Client
from disque_trio.respserver.slices import do_slice
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

UNKNOWN = 3 * CHECKED + SLICE // 2


@pytest.fixture
def bench() -> Bench:
    return Bench()


def unknown_ids(count: int) -> list[bytes]:
    """Return ids of at-least-once jobs that no node has."""
    return [b"D-%08x-%024d-05a1" % (7, number) for number in range(count)]


def many_jobs(bench: Bench, count: int = 3 * SLICE + 1) -> list[bytes]:
    return [bench.add() for _ in range(count)]


def finish(bench: Bench, client: Client) -> int:
    """Take turns until ``client`` has its reply; return how many."""
    turns = 0
    while client.in_slices:
        do_slice(bench.node, bench.now)
        bench.node.commit()
        turns += 1
    return turns


@pytest.mark.parametrize("command", ["ACKJOB", "FASTACK", "DELJOB", "DEQUEUE"])
def test_a_turn_does_no_more_than_a_slice(bench: Bench, command: str) -> None:
    ids = many_jobs(bench)
    bench.send(bench.me, command, *ids)
    left = bench.number_queued()
    assert left == len(ids)
    while bench.me.in_slices:
        do_slice(bench.node, bench.now)
        before, left = left, bench.number_queued()
        assert before - left <= SLICE
    assert bench.replies(bench.me) == [len(ids)]
    assert left == 0


@pytest.mark.parametrize("command", ["ENQUEUE", "NACK"])
def test_jobs_that_go_back_to_their_queue_go_in_slices(bench: Bench, command: str) -> None:
    ids = many_jobs(bench)
    assert bench.get_all() == ids
    bench.send(bench.me, command, *ids)
    queued = 0
    while bench.me.in_slices:
        do_slice(bench.node, bench.now)
        before, queued = queued, bench.number_queued()
        assert queued - before <= SLICE
    assert bench.replies(bench.me) == [len(ids)]
    assert queued == len(ids)


def test_as_many_ids_as_make_a_slice_are_done_at_once(bench: Bench) -> None:
    ids = many_jobs(bench, SLICE)
    bench.send(bench.me, "ACKJOB", *ids)
    assert not bench.me.in_slices
    assert bench.replies(bench.me) == [SLICE]


def test_others_are_served_in_between(bench: Bench) -> None:
    ids = many_jobs(bench)
    other = bench.client()
    bench.send(bench.me, "ACKJOB", *ids)
    served = 0
    while bench.me.in_slices:
        do_slice(bench.node, bench.now)
        assert bench.ask(other, "PING") == b"PONG"
        served += 1
    assert served >= len(ids) // SLICE
    assert bench.replies(bench.me) == [len(ids)]


def test_a_malformed_id_is_reported_before_anything_is_done(bench: Bench) -> None:
    ids = many_jobs(bench, 2 * CHECKED)
    for command in ("ACKJOB", "FASTACK", "DELJOB", "DEQUEUE", "ENQUEUE", "NACK"):
        assert bench.error(command, *ids, "D-short") == "BADID Invalid Job ID format."
        assert bench.number_queued() == len(ids)


def test_options_in_front_of_the_ids_are_no_ids() -> None:
    mesh = Mesh(2)
    ids = unknown_ids(2 * SLICE)
    assert mesh[0]("DELJOB", "BCAST", "FORCE", *ids) == 0
    assert mesh.told("deljob") == [(0, "deljob", 1)] * len(ids)
    bench = Bench()
    known = many_jobs(bench)
    assert bench("DELJOB", "FORCE", *known) == len(known)


def test_ids_are_worked_through_in_their_order(bench: Bench) -> None:
    ids = many_jobs(bench)
    bench.get_all()
    bench.node.journaling = bench.node.notes.eventing = True
    bench("ENQUEUE", *ids)
    assert [e for e in bench.node.notes.events if isinstance(e, bytes)] == ids


def test_what_the_client_sent_behind_it_waits(bench: Bench) -> None:
    """The reply comes between the ones before and after it."""
    ids = many_jobs(bench)
    bench.send(bench.me, "ECHO", "before")
    bench.send(bench.me, "ACKJOB", *ids)
    assert bench.me.blocked
    finish(bench, bench.me)
    assert bench.me in bench.node.woken
    assert not bench.me.blocked
    bench.send(bench.me, "ECHO", "behind")
    assert bench.replies(bench.me) == [b"before", len(ids), b"behind"]


def test_several_clients_take_their_slices_in_turn(bench: Bench) -> None:
    one, two = many_jobs(bench, 10 * SLICE), many_jobs(bench, 2 * SLICE)
    small = bench.client()
    bench.send(bench.me, "ACKJOB", *one)
    bench.send(small, "ACKJOB", *two)
    assert finish(bench, small) <= 6
    assert bench.replies(small) == [len(two)]
    assert bench.replies(bench.me) == []
    finish(bench, bench.me)
    assert bench.replies(bench.me) == [len(one)]


def test_the_rest_is_done_when_the_client_is_gone(bench: Bench) -> None:
    ids = many_jobs(bench)
    bench.send(bench.me, "ACKJOB", *ids)
    do_slice(bench.node, bench.now)
    bench.disconnect(bench.me)
    finish(bench, bench.me)
    assert bench.node.store.jobs.count == 0
    assert not bench.node.batches.waiting


def test_reply_modes_hold(bench: Bench) -> None:
    ids = many_jobs(bench)
    bench.send(bench.me, "CLIENT", "REPLY", "SKIP")
    bench.send(bench.me, "ACKJOB", *ids)
    finish(bench, bench.me)
    assert bench("PING") == b"PONG"


def test_jobs_of_a_slice_wake_who_waits_for_them(bench: Bench) -> None:
    ids = many_jobs(bench)
    bench.get_all()
    waiting = bench.block("q")
    bench.send(bench.me, "NACK", *ids)
    while waiting.blocked:
        do_slice(bench.node, bench.now)
    assert bench.me.in_slices
    assert bench.got(waiting) == ids[0]


def test_the_statistics_have_the_time_of_all_slices(bench: Bench) -> None:
    bench.command_takes = 1_000_000
    bench("ACKJOB", *many_jobs(bench))
    stats = bench.info("commandstats")["cmdstat_ackjob"]
    assert stats.startswith("calls=1,usec=6")


# ---- the append-only file -----------------------------------------------------------------------


def test_a_write_that_fails_in_between_ends_it_with_an_error(bench: Bench) -> None:
    ids = many_jobs(bench)
    node = bench.node
    node.journaling = True
    bench.send(bench.me, "ACKJOB", *ids)
    while not node.journal:
        do_slice(node, bench.now)
    # This is what the driver does when the disk is full.
    node.set_trouble(False, "No space left on device")
    node.roll_back(b"-MISCONF now\r\n")
    finish(bench, bench.me)
    (reply,) = bench.replies(bench.me)
    assert isinstance(reply, hiredis.ReplyError)
    assert str(reply).startswith("MISCONF Errors writing to the AOF file: No space left on device")
    assert bench.number_queued() == len(ids) - SLICE


def test_the_last_slice_is_not_confirmed_when_its_write_fails(bench: Bench) -> None:
    node = bench.node
    node.journaling = True
    bench.send(bench.me, "DELJOB", *many_jobs(bench))
    while bench.me.in_slices:
        node.journal.clear()
        do_slice(node, bench.now)
    assert node.journal
    node.roll_back(b"-MISCONF now\r\n")
    assert bench.raw(bench.me) == b"-MISCONF now\r\n"


def test_a_failed_write_of_another_client_does_not_matter(bench: Bench) -> None:
    node = bench.node
    node.journaling = True
    bench.send(bench.me, "ACKJOB", *unknown_ids(UNKNOWN))
    while bench.me.in_slices:
        do_slice(node, bench.now)
    bench.send(bench.client(), "ADDJOB", "q", "b", 0)
    node.roll_back(b"-MISCONF now\r\n")
    assert bench.replies(bench.me) == [0]


# ---- unknown ids --------------------------------------------------------------------------------


def test_acknowledges_of_unknown_jobs_do_not_take_more_memory_than_there_is() -> None:
    mesh = Mesh(2, maxmemory=200_000)
    node = mesh[0].node
    mesh[0].send(mesh[0].me, "ACKJOB", *unknown_ids(UNKNOWN))
    most = 0
    while mesh[0].me.in_slices:
        do_slice(node, mesh[0].now)
        most = max(most, node.memory.used)
    assert most < 200_000
    assert mesh[0].replies(mesh[0].me) == [0]
    mesh.settle()
    assert {entry[2] for entry in mesh.told("setack")} == {1}


def test_processed_ids_are_dropped(bench: Bench) -> None:
    request = [b"ACKJOB", *unknown_ids(UNKNOWN)]
    bench.node.command(bench.me, request, bench.now)
    before = len(request)
    while bench.me.in_slices:
        do_slice(bench.node, bench.now)
        assert len(request) <= before
        before = len(request)
    assert request == []
