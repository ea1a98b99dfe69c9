"""Where the jobs of a cluster are after a node was killed, or stopped, and started."""

import pytest

from disque_trio.protocol.successor import successor_id
from disque_trio.protocol.trailer import DEAD
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench
from tests.support.recovered import End, Files, ends, restart_in, waits


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def look(mesh: Mesh, index: int) -> None:
    """Let a node do its periodic work."""
    bench = mesh[index]
    bench.node.cron(bench.now)


@ends
def test_a_job_with_copies_is_queued_once_the_other_holders_were_asked(
    mesh: Mesh, end: End
) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 300)
    end(files)
    mesh.isolate(0)
    again = restart_in(mesh, 0, files)
    look(mesh, 0)
    mesh.advance(20)
    assert mesh.states(id) == ["active", "active", "active"]
    assert list(again.node.progress.waiting) == [id]
    mesh.rejoin(0)
    look(mesh, 0)
    mesh.advance(1.5)
    assert mesh.states(id) == ["queued", "active", "active"]
    assert again.show(id)[b"additional-deliveries"] == 0
    assert not again.node.progress.waiting
    mesh.advance(1000)
    assert mesh.states(id).count("queued") == 1


@ends
def test_a_pause_that_another_node_has_ended_is_over_after_a_start(mesh: Mesh, end: End) -> None:
    files = Files(mesh[1])
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 300)
    for _ in range(2):
        assert mesh[0].get() == id
        mesh[0]("NACK", id, "DELAY", 1)
        mesh.advance(2)
    assert mesh[0].get() == id
    mesh.advance(1)
    mesh.isolate(1)
    end(files)
    restart_in(mesh, 1, files)
    look(mesh, 1)
    mesh.advance(20)
    assert mesh.states(id)[1] == "active"


@ends
def test_a_job_that_was_lent_and_is_queued_here_again_is_queued_after_a_start(
    mesh: Mesh, end: End
) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 300)
    borrower = next(index for index in (1, 2) if not mesh[index].held(id))
    want = mesh[borrower].node.packets.about_queue(12, b"q", 1, 1)
    mesh[0].node.receive(mesh.ids[borrower], want, mesh[0].now)
    mesh.advance(1)
    assert mesh.states(id)[borrower] == "queued"
    mesh.isolate(borrower)
    mesh.peers[0].died(mesh.ids[borrower])
    mesh.advance(2)
    assert mesh.states(id)[0] == "queued"
    end(files)
    restart_in(mesh, 0, files)
    mesh.rejoin(borrower)
    mesh[borrower].node.flush()
    look(mesh, 0)
    mesh.advance(2)
    assert mesh.states(id)[0] == "queued"


@ends
def test_which_jobs_were_loaded_is_forgotten_once_all_are_queued(mesh: Mesh, end: End) -> None:
    files = Files(mesh[0])
    mesh.add(0, "REPLICATE", 2, "RETRY", 10)
    end(files)
    again = restart_in(mesh, 0, files)
    assert again.node.progress.to_queue
    look(mesh, 0)
    mesh.advance(3)
    look(mesh, 0)
    assert again.number_queued() == 1
    assert not again.node.progress.to_queue


@ends
def test_a_job_is_also_queued_if_the_node_ends_again_before_it_could_ask(
    mesh: Mesh, end: End
) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 300)
    end(files)
    mesh.isolate(0)
    restart_in(mesh, 0, files)
    end(files)
    restart_in(mesh, 0, files)
    mesh.rejoin(0)
    look(mesh, 0)
    mesh.advance(1.5)
    assert mesh.states(id) == ["queued", "active", "active"]


def test_a_job_that_was_taken_over_is_queued_again_at_once_after_a_kill() -> None:
    mesh = Mesh(2)
    maker, taker = Files(mesh[0]), Files(mesh[1])
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 300)
    maker.stop()
    mesh.isolate(0)
    mesh.peers[1].died(mesh.ids[0])
    mesh.advance(2)
    assert mesh[1].number_queued() == 1
    restart_in(mesh, 0, maker)
    mesh.rejoin(0)
    look(mesh, 0)
    mesh.advance(2)
    assert mesh.states(id) == ["active", "queued"]
    taker.kill()
    restart_in(mesh, 1, taker)
    look(mesh, 1)
    mesh.advance(1.5)
    assert mesh.states(id) == ["active", "queued"]


@ends
def test_what_another_node_said_of_a_job_holds_if_the_node_ends_again(mesh: Mesh, end: End) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 60)
    end(files)
    mesh.isolate(0)
    mesh.advance(61)
    [other] = [bench for bench in mesh.nodes[1:] if bench.number_queued()]
    assert other.get() == id
    restart_in(mesh, 0, files)
    mesh.rejoin(0)
    look(mesh, 0)
    mesh.advance(2)
    files.stop()
    mesh.isolate(0)
    mesh.peers[0].reachable.clear()
    restart_in(mesh, 0, files)
    look(mesh, 0)
    mesh.advance(10)
    assert "queued" not in mesh.states(id)


@ends
def test_a_copy_of_a_delayed_job_is_queued_a_retry_time_later_than_the_job(
    mesh: Mesh, end: End
) -> None:
    files = Files(mesh[1])
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 60, "DELAY", 5)
    end(files)
    copy = restart_in(mesh, 1, files)
    assert waits(copy, id) == pytest.approx(65, abs=1)
    mesh.advance(10)
    assert mesh.states(id) == ["queued", "active", "active"]
    mesh.isolate(0)
    mesh.advance(60)
    assert mesh.states(id)[1:].count("queued") == 1


@ends
def test_a_job_that_another_node_queued_meanwhile_is_left_to_it(mesh: Mesh, end: End) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 10)
    end(files)
    mesh.isolate(0)
    mesh.advance(15)
    restart_in(mesh, 0, files)
    mesh.rejoin(0)
    look(mesh, 0)
    mesh.advance(3)
    assert mesh.states(id).count("queued") == 1
    assert mesh.states(id)[0] == "active"


@ends
def test_a_job_that_another_node_delivered_meanwhile_is_left_to_it(mesh: Mesh, end: End) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 60)
    end(files)
    mesh.isolate(0)
    mesh.advance(61)
    [other] = [bench for bench in mesh.nodes[1:] if bench.number_queued()]
    assert other.get() == id
    restart_in(mesh, 0, files)
    mesh.rejoin(0)
    look(mesh, 0)
    mesh.advance(40)
    assert "queued" not in mesh.states(id)


@ends
def test_a_job_that_was_given_away_is_not_queued_by_its_giver(mesh: Mesh, end: End) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, "REPLICATE", 1, "RETRY", 60)
    waiter = mesh[1].client()
    mesh[1].send(waiter, "GETJOB", "TIMEOUT", 5000, "FROM", "q")
    mesh.settle()
    assert mesh[1].replies(waiter) == [[[b"q", id, b"body"]]]
    mesh.advance(1)
    end(files)
    restart_in(mesh, 0, files)
    look(mesh, 0)
    mesh.advance(10)
    assert mesh.states(id)[0] == "active"


@ends
def test_a_letter_is_queued_only_where_it_was_if_all_nodes_end(mesh: Mesh, end: End) -> None:
    mesh[0]("QSET", "q", "ATTEMPTS", 1, "DEAD", "dead")
    mesh.settle()
    files = [Files(bench) for bench in mesh.nodes]
    id = mesh.add(0, "REPLICATE", 3)
    waiter = mesh[1].client()
    mesh[1].send(waiter, "GETJOB", "TIMEOUT", 5000, "FROM", "q")
    mesh.settle()
    assert mesh[1]("NACK", id) == 1
    mesh.advance(1)
    letter = successor_id(id, DEAD)
    assert mesh.states(letter) == ["active", "queued", "active"]
    for own in files:
        end(own)
    for index, own in enumerate(files):
        restart_in(mesh, index, own)
    for index in range(3):
        look(mesh, index)
    mesh.advance(1.5)
    assert mesh.states(letter) == ["active", "queued", "active"]


@ends
def test_what_was_delivered_when_the_file_was_written_is_not_in_hand_any_more(
    mesh: Mesh, end: End
) -> None:
    mesh.peers[0].reachable.remove(mesh.ids[2])
    all_files = [Files(mesh[0]), Files(mesh[1])]
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 300)
    assert mesh.states(id) == ["queued", "active", ""]
    assert mesh[0].get() == id
    all_files[0].rewrite()
    mesh[0]("NACK", id)
    mesh.advance(0.1)
    want = mesh[1].node.packets.about_queue(12, b"q", 1, 1)
    mesh[0].node.receive(mesh.ids[1], want, mesh[0].now)
    mesh.advance(1)
    assert mesh.states(id) == ["active", "queued", ""]
    for index, files in enumerate(all_files):
        mesh.isolate(index)
        end(files)
        restart_in(mesh, index, files)
    mesh.join(0, 1)
    for index in (0, 1):
        look(mesh, index)
    mesh.advance(2)
    assert mesh.states(id) == ["active", "queued", ""]


@ends
def test_a_job_that_two_nodes_had_queued_is_queued_by_one_of_them(mesh: Mesh, end: End) -> None:
    files = [Files(bench) for bench in mesh.nodes]
    id = mesh.add(0, "REPLICATE", 3)
    mesh.isolate(0)
    assert mesh[1]("ENQUEUE", id) == 1
    for own in files[:2]:
        end(own)
    for index in range(2):
        restart_in(mesh, index, files[index])
    mesh.rejoin(0)
    for index in range(2):
        look(mesh, index)
    mesh.advance(1.5)
    assert mesh.states(id).count("queued") == 1


@ends
def test_an_acknowledgement_that_the_node_has_missed_reaches_it_first(mesh: Mesh, end: End) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 60)
    end(files)
    mesh.isolate(0)
    mesh[1]("ACKJOB", id)
    mesh[2]("ACKJOB", id)
    mesh.settle()
    restart_in(mesh, 0, files)
    mesh.rejoin(0)
    look(mesh, 0)
    mesh.advance(3)
    assert mesh[0].number_queued() == 0


def test_after_a_stop_a_holder_that_is_down_is_not_waited_for(mesh: Mesh) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 300)
    files.stop()
    mesh.isolate(2)
    mesh.peers[0].reachable.remove(mesh.ids[2])
    restart_in(mesh, 0, files)
    look(mesh, 0)
    mesh.advance(1.5)
    assert mesh.states(id)[0] == "queued"


def test_after_a_kill_a_holder_that_is_down_may_have_delivered_the_job(mesh: Mesh) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 300)
    files.kill()
    mesh.isolate(2)
    mesh.peers[0].reachable.remove(mesh.ids[2])
    restart_in(mesh, 0, files)
    look(mesh, 0)
    mesh.advance(20)
    assert mesh.states(id)[0] == "active"


def test_a_node_that_is_told_to_restore_its_queues_asks_nobody(mesh: Mesh) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 300)
    files.stop()
    mesh.isolate(0)
    again = Bench(7, id=mesh.ids[0], peers=mesh.peers[0], jitter=0)
    again.now = mesh[0].now
    files.start(again, at_once=True)
    assert again.get() == id


def test_a_node_that_restores_its_queues_asks_about_what_it_had_yet_to_ask_about(
    mesh: Mesh,
) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, "REPLICATE", 1, "RETRY", 300)
    waiter = mesh[1].client()
    mesh[1].send(waiter, "GETJOB", "TIMEOUT", 5000, "FROM", "q")
    mesh.settle()
    assert mesh[1].replies(waiter) == [[[b"q", id, b"body"]]]
    mesh.lose = lambda source, target, packet: True
    mesh.isolate(0)
    mesh.rejoin(0)
    mesh.advance(0.1)  # it asks whether the other node still has the job
    files.stop()
    again = Bench(7, id=mesh.ids[0], peers=mesh.peers[0], jitter=0)
    again.now = mesh[0].now
    files.start(again, at_once=True)
    assert again.get() is None
    again.advance(2)
    assert again.get() == id  # nobody objects


def test_a_paused_job_is_not_queued_if_another_holder_gave_it_to_a_client_meanwhile(
    mesh: Mesh,
) -> None:
    files = Files(mesh[0])
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 300)
    assert mesh[0].get() == id
    assert mesh[0]("NACK", id, "DELAY", 5) == 1
    mesh.settle()
    files.kill()
    mesh.isolate(0)
    assert mesh[1]("ENQUEUE", id) == 1
    assert mesh[1].get() == id
    mesh.advance(2)
    restart_in(mesh, 0, files)
    mesh.rejoin(0)
    mesh.advance(100)
    assert mesh.states(id) == ["active", "active", "active"]
