"""QMOVE, and UPDATEJOB QUEUE: jobs change queues, on all nodes that hold them."""

from io import BytesIO
from pathlib import Path

import pytest

from disque_trio.aof.format import RecordReader
from disque_trio.node.core.changes.scatter_gather import BEHIND, MOVED, MOVED_BYTES, PATIENCE
from disque_trio.node.core.changes.updates import AT_ONCE
from disque_trio.node.core.jobs.job import FLAG_IN_HAND
from disque_trio.node.core.rpc.calls import MOVE
from disque_trio.protocol.bus import MAX_JOB, MAX_NAME_IN_FIELDS
from disque_trio.respserver.client import Client
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench, loaded_again


@pytest.fixture
def bench() -> Bench:
    return Bench(jitter=0)


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def move(bench: Bench, *words: str | int) -> object:
    """Return the reply to QMOVE on a node that is alone."""
    bench.send(bench.me, "QMOVE", *words)
    for _ in range(20):
        bench.node.tick(bench.now)
        bench.node.commit()
    (reply,) = bench.replies(bench.me)
    return reply


def move_on(mesh: Mesh, index: int, *words: str | int) -> object:
    """Return the reply to QMOVE on one of several nodes."""
    client = mesh[index].client()
    mesh[index].send(client, "QMOVE", *words)
    mesh.advance(0.5)
    (reply,) = mesh[index].replies(client)
    return reply


def queues_of(mesh: Mesh, id: bytes) -> list[object]:
    """Return the queue of the job, according to its holders."""
    return [mesh[index].show(id)[b"queue"] for index in mesh.holders(id)]


def isolate(mesh: Mesh, index: int) -> None:
    """Let no packets pass between a node and any other, and let all notice."""
    mesh.isolate(index)
    for peers in mesh.peers:
        peers.reachable = [id for id in peers.everyone() if id not in peers.away]


def balanced(bench: Bench) -> bool:
    """Return whether the accounts of a node are right: memory, and the bytes of the queues."""
    for queue in bench.node.queues.by_name.values():
        size = sum(len(job.body or b"") for job in queue.first_to_last())
        if queue.bytes_queued() != size:
            return False
    return bench.node.memory.used == bench.counted_memory()


# ---- one node -----------------------------------------------------------------------------------


def test_what_is_queued_goes_with_all_that_it_has_and_the_rest_stays(bench: Bench) -> None:
    id = bench.add("q", "body", "RETRY", 77, "TTL", 5000, "PRIORITY", 3, "HEADERS", 1, "a", "b")
    assert bench.get() == id
    bench("NACK", id, "REASON", "busy")
    in_hand = bench.add("q", "body", "PRIORITY", 7)
    assert bench.get() == in_hand
    delayed = bench.add("q", "body", "DELAY", 50)
    other = bench.add("other")
    before = bench.show(id)
    assert move(bench, "q", "to") == 1
    after = bench.show(id)
    assert after.pop(b"added-to") == b"q"
    assert after == before | {b"queue": b"to"}
    assert bench.number_queued() == 0
    assert [bench.show(one)[b"queue"] for one in (in_hand, delayed, other)] == [
        b"q", b"q", b"other",
    ]  # fmt: skip
    assert balanced(bench)
    assert bench.get("to") == id
    assert bench("ACKJOB", id) == 1
    assert balanced(bench)


def test_the_first_ones_go_and_each_has_its_place_by_age(bench: Bench) -> None:
    old, middle = bench.add(), bench.add("to")
    young, youngest = bench.add(), bench.add()
    assert move(bench, "q", "to", "COUNT", 2) == 2
    assert bench.get_all("to") == [old, middle, young]
    assert bench.get() == youngest
    assert move(bench, "q", "to", "count", 2) == 0
    assert move(bench, "nowhere", "to") == 0


def test_it_is_queued_again_and_expires_when_it_would_have(bench: Bench) -> None:
    id = bench.add("q", "body", "RETRY", 10, "TTL", 60)
    bench.advance(3)
    assert move(bench, "q", "to") == 1
    assert bench.requeue_within(id) == 7_000
    assert bench.get("to") == id
    bench.advance(11)
    assert bench.get("to") == id
    bench.advance(60)
    assert not bench.held(id)


def test_jobs_go_in_slices_and_what_comes_meanwhile_stays(bench: Bench) -> None:
    for _ in range(2 * MOVED + 10):
        bench.add()
    mover = bench.client()
    bench.send(mover, "QMOVE", "q", "to")
    bench.node.tick(bench.now)
    assert bench.number_queued("to") == MOVED
    late = bench.add()
    for _ in range(3):
        bench.node.tick(bench.now)
    bench.node.commit()
    assert bench.replies(mover) == [2 * MOVED + 10]
    assert bench.get() == late
    assert balanced(bench)


def test_the_groups_of_a_queue_are_taken_in_turn_over_all_slices(bench: Bench) -> None:
    bench("QSET", "q", "GROUPS", "fair")
    bench.add("q")
    assert bench.get() is not None
    groups = range(2 * MOVED)
    first, _ = [[bench.add("q", "b", "GROUP", f"g{g}") for g in groups] for _ in range(2)]
    assert move(bench, "q", "to", "COUNT", len(groups)) == len(groups)
    assert sorted(bench.get_all("to")) == sorted(first)


def test_large_jobs_go_in_short_slices(bench: Bench) -> None:
    for _ in range(3):
        bench.add("q", "x" * (MOVED_BYTES // 2 + 1))
    mover = bench.client()
    bench.send(mover, "QMOVE", "q", "to")
    bench.node.tick(bench.now)
    assert bench.number_queued() == 1
    bench.node.tick(bench.now)
    bench.node.commit()
    assert bench.replies(mover) == [3]


def test_a_job_that_would_be_too_large_with_the_new_name_stays(bench: Bench) -> None:
    job = bench.node.store.jobs.get(bench.add("q", ""))
    assert job is not None
    job.body = bytes(MAX_JOB - 2)  # zeros that nobody reads take no memory
    assert move(bench, "q", "new") == 0
    assert move(bench, "q", "to") == 1


def test_concurrent_moves_in_both_directions_end(bench: Bench) -> None:
    for number in range(4 * MOVED):
        bench.add("q" if number % 2 else "to")
    one, two = bench.client(), bench.client()
    bench.send(one, "QMOVE", "q", "to")
    bench.send(two, "QMOVE", "to", "q")
    for _ in range(20):
        bench.node.tick(bench.now)
        bench.node.commit()
    assert len(bench.replies(one)) == len(bench.replies(two)) == 1
    assert bench.number_queued("q") + bench.number_queued("to") == 4 * MOVED


def test_clients_waiting_for_the_target_get_the_jobs(bench: Bench) -> None:
    id = bench.add()
    worker = bench.block("to")
    assert move(bench, "q", "to") == 1
    assert bench.got(worker) == id


def test_an_at_most_once_job_is_moved_and_delivered_once(bench: Bench) -> None:
    id = bench.add("q", "body", "RETRY", 0)
    assert move(bench, "q", "to") == 1
    assert bench.get("to") == id
    assert move(bench, "to", "q") == 0
    bench.advance(1000)
    assert bench.get("to") is None


def test_paused_queues(bench: Bench) -> None:
    id = bench.add()
    bench("PAUSE", "to", "in")
    assert bench.error("QMOVE", "q", "to") == "PAUSED Queue paused in input, try later"
    assert bench.error("UPDATEJOB", id, "QUEUE", "to").startswith("PAUSED")
    assert bench.number_queued() == 1
    bench("PAUSE", "to", "out")
    bench("PAUSE", "q", "all")
    assert move(bench, "q", "to") == 1
    assert bench.get("to") is None
    bench("PAUSE", "to", "none")
    assert bench.get("to") == id


def test_limits_of_the_target_are_for_addjob(bench: Bench) -> None:
    bench("QSET", "to", "MAXLEN", 1, "MAXBYTES", 4)
    for _ in range(3):
        bench.add()
    assert move(bench, "q", "to") == 3
    assert bench.error("ADDJOB", "to", "body", 0).startswith("MAXLEN")
    assert bench.add()


def test_what_is_in_hand_of_a_limited_queue_is_free_when_its_job_is_moved() -> None:
    mesh = Mesh(2)
    mesh[0]("QSET", "q", "ACTIVE", 1)
    mesh.settle()
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 100)
    worker = mesh[0].client()
    mesh[0].send(worker, "GETJOB", "FROM", "q")
    mesh.advance(0.2)
    assert mesh[0].got(worker) == id
    assert mesh[0].queue()[b"in-hand"] == 1
    mesh.cut(0, 1)
    assert mesh[1]("ENQUEUE", id) == 1
    client = mesh[1].client()
    mesh[1].send(client, "QMOVE", "q", "to")
    mesh.advance(0.1)
    mesh.join(0, 1)
    mesh.advance(2)
    assert queues_of(mesh, id) == [b"to", b"to"]
    job = mesh[0].node.store.jobs.get(id)
    assert job is not None
    assert not job.flags & FLAG_IN_HAND
    assert mesh[0].queue()[b"in-hand"] == 0


def test_a_key_stays_with_the_queue_that_the_job_was_added_to(bench: Bench) -> None:
    id = bench.add("q", "body", "UNIQUE", "key")
    assert move(bench, "q", "to") == 1
    assert bench.add("q", "body", "UNIQUE", "key") == id
    own = bench.add("to", "body", "UNIQUE", "key")
    assert own != id
    assert move(bench, "to", "q") == 2
    assert b"added-to" not in bench.show(id)
    assert bench.add("to", "body", "UNIQUE", "key") == own
    bench("ACKJOB", id)
    assert bench.add("q", "body", "UNIQUE", "key") not in (id, own)
    assert balanced(bench)


def test_dead_letters_know_where_they_come_from_and_the_new_policy_holds(bench: Bench) -> None:
    bench("QSET", "q", "DEAD", "dead", "ATTEMPTS", 5)
    bench("QSET", "to", "DEAD", "grave", "ATTEMPTS", 1)
    died = bench.add()
    assert bench.get() == died
    bench("NACK", died, "DEAD")
    assert move(bench, "dead", "other") == 1
    letter = bench.get("other")
    assert letter is not None
    assert bench.show(letter)[b"dead-from"] == b"q"
    id = bench.add()
    assert move(bench, "q", "to") == 1
    assert bench.get("to") == id
    bench("NACK", id)
    letter = bench.get("grave")
    assert letter is not None
    assert bench.show(letter)[b"dead-from"] == b"to"


@pytest.mark.parametrize("killed", [True, False])
def test_files_have_the_new_queue(bench: Bench, tmp_path: Path, killed: bool) -> None:
    bench.node.journaling = True
    ids = [bench.add("q", "body", "UNIQUE", f"key {number}", "RETRY", 5) for number in range(2)]
    assert move(bench, "q", "to", "COUNT", 1) == 1
    if not killed:
        bench.node.start_dump()
        bench.node.journal[:], over = bench.node.dump_step(1_000_000, 1 << 30)
        assert over
    again = loaded_again(bench, tmp_path)
    assert [again.show(id)[b"queue"] for id in ids] == [b"to", b"q"]
    assert [again.add("q", "b", "UNIQUE", f"key {number}") for number in range(2)] == ids
    again.advance(6)
    assert again.get("to") == ids[0]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["q", "q"], "ERR the jobs are in this queue already"),
        (["q", "to", "COUNT", "0"], "ERR COUNT must be a number greater than zero"),
        (["q", "to", "COUNT", "x"], "ERR COUNT must be a number greater than zero"),
        (["q", "to", "COUNT"], "ERR syntax error"),
        (["q", "to", "FIRST", "1"], "ERR syntax error"),
        (["q", "to", "COUNT", "1", "2"], "ERR syntax error"),
        (["q", "x" * (MAX_NAME_IN_FIELDS + 1)], "ERR the name of the queue has more than"),
        (["q" * MAX_NAME_IN_FIELDS, "to"], "ERR the names of the queues have more than"),
    ],
)
def test_bad_arguments_move_nothing(bench: Bench, words: list[str], problem: str) -> None:
    bench.add()
    assert bench.error("QMOVE", *words).startswith(problem)
    assert bench.number_queued() == 1


def test_it_is_refused_beside_c_nodes(bench: Bench) -> None:
    bench.add()
    bench.node.peers.extended = False
    assert bench.error("QMOVE", "q", "to").startswith("NOEXT")


def test_a_move_that_is_not_on_disk_is_not_confirmed(bench: Bench) -> None:
    bench.node.journaling = True
    bench.add()
    mover = bench.client()
    bench.send(mover, "QMOVE", "q", "to")
    bench.node.tick(bench.now)
    bench.node.write_problem = "no space"
    bench.node.roll_back(b"-MISCONF no space\r\n")
    bench.node.commit()
    assert str(bench.replies(mover)[0]) == "MISCONF no space"
    bench.node.write_problem = ""


def test_a_node_that_is_short_of_memory_stops(bench: Bench) -> None:
    for _ in range(3 * MOVED):
        bench.add()
    bench.node.memory.set_limit((bench.node.memory.used + 5_000) * 100 // 95)
    assert move(bench, "q", "to") == MOVED
    assert bench.number_queued() == 2 * MOVED


def test_a_delayed_job_and_one_that_pauses_are_moved_by_their_ids(bench: Bench) -> None:
    delayed = bench.add("q", "body", "DELAY", 20)
    pausing = bench.add()
    assert bench.get() == pausing
    assert bench.error("UPDATEJOB", pausing, "QUEUE", "to").startswith("DELIVERED")
    bench("NACK", pausing, "DELAY", 10)
    assert bench("UPDATEJOB", delayed, "QUEUE", "to") == b"OK"
    assert bench("UPDATEJOB", pausing, "QUEUE", "to", "BODY", "new", "DELAY", 5) == b"OK"
    bench.advance(6)
    assert bench.get("to") == pausing
    bench.advance(15)
    assert bench.get("to") == delayed
    assert bench.get() is None
    assert balanced(bench)


def test_a_queued_job_that_is_moved_and_delayed_leaves_both_queues(bench: Bench) -> None:
    id = bench.add()
    assert bench("UPDATEJOB", id, "QUEUE", "to", "DELAY", 5, "BODY", "longer than that") == b"OK"
    assert (bench.number_queued(), bench.number_queued("to")) == (0, 0)
    bench.advance(6)
    assert bench.get("to") == id
    assert balanced(bench)


def test_the_event_log_has_the_new_queue(bench: Bench) -> None:
    bench.node.notes.eventing = True
    id, other = bench.add(), bench.add("to")
    assert move(bench, "q", "to") == 1
    bench("DEQUEUE", id)
    bench("DEQUEUE", other)
    found = [event for event in bench.node.notes.events if not isinstance(event, str)]
    updated = next(at for at, event in enumerate(found) if event[1] == "updated")
    assert found[updated][2] == b"to"
    assert found[updated + 1] == id
    assert found[updated + 2][1:3] == ("dequeued", b"to")
    assert found[updated + 3 :] == [id, other]


# ---- several nodes ------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 2])
def test_all_nodes_move_theirs_and_copies_go_too(mesh: Mesh, at: int) -> None:
    ids = [mesh.add(index, "REPLICATE", 2, "RETRY", 20) for index in (0, 1, 2, 1)]
    assert move_on(mesh, at, "q", "to") == 4
    assert [queues_of(mesh, id) for id in ids] == [[b"to", b"to"]] * 4
    mesh.advance(30)  # copies know it, too: nothing returns to the old queue
    assert [bench.number_queued() for bench in mesh.nodes] == [0, 0, 0]
    assert sum(bench.number_queued("to") for bench in mesh.nodes) == 4
    for bench in mesh.nodes:
        for id in bench.get_all("to"):
            bench("ACKJOB", id)
    mesh.advance(10)
    assert [mesh.holders(id) for id in ids] == [[]] * 4
    assert all(balanced(bench) for bench in mesh.nodes)


def test_the_count_holds_for_all_nodes_together(mesh: Mesh) -> None:
    for index in (0, 0, 1, 1, 2):
        mesh.add(index, "REPLICATE", 1)
    assert move_on(mesh, 0, "q", "to", "COUNT", 3) == 3
    assert mesh[0].number_queued("to") == 2, "its own go first"
    assert sum(bench.number_queued("to") for bench in mesh.nodes) == 3
    assert move_on(mesh, 0, "q", "to") == 2


def test_many_jobs_of_another_node_go_in_slices(mesh: Mesh) -> None:
    for _ in range(2 * MOVED + 3):
        mesh.add(1, "REPLICATE", 2)
    assert move_on(mesh, 0, "q", "to") == 2 * MOVED + 3
    assert mesh[1].number_queued("to") == 2 * MOVED + 3


def test_a_node_where_the_target_is_paused_keeps_its_jobs(mesh: Mesh) -> None:
    mesh[1]("PAUSE", "to", "in")
    for index in (0, 1):
        mesh.add(index, "REPLICATE", 1)
    assert move_on(mesh, 0, "q", "to") == 1
    assert mesh[1].number_queued() == 1


def test_a_node_that_does_not_answer_keeps_its_jobs(mesh: Mesh) -> None:
    near = mesh.add(0, "REPLICATE", 1)
    far = mesh.add(1, "REPLICATE", 1)
    mesh.cut(0, 1)
    client = mesh[0].client()
    mesh[0].send(client, "QMOVE", "q", "to")
    mesh.advance(PATIENCE / 1000 + 1)
    assert mesh[0].replies(client) == [1]
    assert (queues_of(mesh, near), queues_of(mesh, far)) == ([b"to"], [b"q"])


def test_a_holder_that_was_away_hears_of_it_when_it_is_back(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 1000)
    isolate(mesh, 2)
    assert move_on(mesh, 0, "q", "to") == 1
    assert queues_of(mesh, id) == [b"to", b"to", b"q"]
    mesh.rejoin(2)
    mesh.advance(10)
    assert queues_of(mesh, id) == [b"to"] * 3
    assert all(balanced(bench) for bench in mesh.nodes)


def test_many_that_a_holder_has_missed_are_told_in_slices(mesh: Mesh) -> None:
    ids = [mesh.add(0, "RETRY", 1000) for _ in range(3 * AT_ONCE)]
    isolate(mesh, 2)
    assert move_on(mesh, 0, "q", "to") == len(ids)
    mesh.advance(2)
    mesh.rejoin(2)
    updates = mesh[0].node.updates
    mesh[0].now = updates.due
    mesh[0].node.tick(mesh[0].now)
    assert updates.due == mesh[0].now, "there is more to tell at once"
    mesh.settle()
    assert sum(mesh[2].show(id)[b"queue"] == b"to" for id in ids) == AT_ONCE
    mesh.advance(10)
    assert all(mesh[2].show(id)[b"queue"] == b"to" for id in ids)


def test_a_restarted_node_tells_in_slices_what_it_has_moved(mesh: Mesh) -> None:
    ids = [mesh.add(0, "RETRY", 1000) for _ in range(2 * AT_ONCE)]
    mesh[0].node.journaling = True
    isolate(mesh, 2)
    assert move_on(mesh, 0, "q", "to") == len(ids)
    isolate(mesh, 0)
    records = b"".join(mesh[0].node.journal)
    mesh[0]("DEBUG", "FLUSHALL")
    for record in RecordReader(BytesIO(records)):
        mesh[0].node.load_record(record, False)
    mesh[0].node.updates.resume()
    mesh[1]("DEBUG", "FLUSHALL")
    mesh.join(0, 2)
    mesh[0].node.tick(mesh[0].now)
    assert len(mesh[0].node.updates.pending.by_id) == AT_ONCE
    mesh.advance(3)
    assert all(mesh[2].show(id)[b"queue"] == b"to" for id in ids)


def test_a_move_waits_while_others_do_not_take_what_was_sent(mesh: Mesh) -> None:
    for _ in range(2 * MOVED):
        mesh.add(0, "REPLICATE", 2)
    mesh.peers[0].slow.add(mesh.ids[2])
    client = mesh[0].client()
    mesh[0].send(client, "QMOVE", "q", "to")
    mesh.advance(0.1)
    assert mesh[0].number_queued("to") == 0
    assert mesh[0].node.next_wake() >= mesh[0].now
    mesh.peers[0].slow.clear()
    mesh.advance(2 * BEHIND / 1000)
    assert mesh[0].replies(client) == [2 * MOVED]


def test_the_newest_wins_when_a_partition_is_over(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 1000)
    isolate(mesh, 2)
    assert move_on(mesh, 0, "q", "near") == 1
    far = mesh[2].client()
    mesh[2].send(far, "UPDATEJOB", id, "QUEUE", "far")
    mesh.settle()
    assert queues_of(mesh, id) == [b"near", b"near", b"far"]
    mesh.rejoin(2)
    mesh.advance(10)
    assert queues_of(mesh, id) == [b"far"] * 3
    assert mesh[0].number_queued("far") == 1
    assert mesh[0].number_queued("near") == 0


def test_a_job_that_another_node_delivered_stays_in_its_queue(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 20)
    assert mesh[0].get() == id
    mesh.settle()
    client = mesh[1].client()
    mesh[1].send(client, "UPDATEJOB", id, "QUEUE", "to")
    mesh.advance(1)
    (reply,) = mesh[1].replies(client)
    assert str(reply).startswith("DELIVERED")
    assert queues_of(mesh, id) == [b"q"] * 3


def test_who_waits_on_another_node_gets_it(mesh: Mesh) -> None:
    once = mesh.add(0, "RETRY", 0, "REPLICATE", 1)
    worker = mesh[1].client()
    mesh[1].send(worker, "GETJOB", "FROM", "to")
    mesh.settle()
    assert move_on(mesh, 0, "q", "to") == 1
    assert mesh[1].got(worker) == once
    assert mesh.holders(once) == [1]


def test_a_key_is_found_from_any_node_and_free_in_the_end(mesh: Mesh) -> None:
    def add(index: int) -> object:
        client: Client = mesh[index].client()
        mesh[index].send(client, "ADDJOB", "q", "body", 0, "UNIQUE", "key", "REPLICATE", 2)
        mesh.advance(1)
        (reply,) = mesh[index].replies(client)
        return reply

    id = add(0)
    assert move_on(mesh, 1, "q", "to") == 1
    assert [add(index) for index in range(3)] == [id] * 3
    assert mesh[0].get("to") == id
    mesh[0]("ACKJOB", id)
    mesh.advance(5)
    assert add(2) != id


def test_a_question_that_makes_no_sense_is_not_answered(mesh: Mesh) -> None:
    mesh.add(1, "REPLICATE", 1)
    for fields in ([], [(2, b"")]):
        mesh[0].node.rpc.call(MOVE, fields, [mesh.ids[1]], 1000, lambda question: None)
    mesh.settle()
    assert mesh[1].number_queued() == 1
    assert mesh[1].node.bad_packets == 2
