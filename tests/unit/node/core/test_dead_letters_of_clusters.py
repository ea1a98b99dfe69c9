"""Dead letters in a cluster: all holders make them, and none returns once it is done with."""

from collections import Counter
from random import Random

import pytest

from disque_trio.node.core.jobs.job import DEFAULT_RETRY
from disque_trio.node.core.lifecycle.successors import predecessor_ids
from disque_trio.protocol import bus
from disque_trio.protocol.bus import packet_type
from disque_trio.protocol.successor import successor_id
from disque_trio.protocol.trailer import DEAD, REDRIVEN
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench, letter_of
from tests.support.policies import set_policy


@pytest.fixture
def mesh() -> Mesh:
    mesh = Mesh(3)
    set_policy(*mesh.nodes, attempts=2, dead=b"dead")
    return mesh


def test_the_other_holders_make_the_letter_as_well(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 10)
    for _ in range(2):
        assert mesh[0].get() == id
        mesh[0]("NACK", id, "REASON", "why")
        mesh.settle()
    (dead,) = mesh[0].ids(mesh[0]("QPEEK", "dead", 9))
    assert mesh.holders(dead) == [0, 1, 2]
    assert mesh.states(dead) == ["queued", "active", "active"]
    assert mesh.holders(id) == []
    assert letter_of(mesh[1], dead).attempts == 2
    assert letter_of(mesh[1], dead).reason == b"why"
    assert mesh[0].get("dead") == dead
    mesh[0]("ACKJOB", dead)
    mesh.settle()
    assert mesh.holders(dead) == []


def test_deliveries_on_other_nodes_count(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 10)
    assert mesh[0].get() == id
    mesh[0]("NACK", id)
    mesh.settle()
    mesh[0]("DEQUEUE", id)
    mesh[1]("ENQUEUE", id)
    mesh.settle()
    assert mesh[1].get() == id
    mesh[1]("NACK", id)
    mesh.settle()
    assert mesh[1].number_queued("dead") == 1


@pytest.mark.parametrize("away", [0, 1, 2])
@pytest.mark.parametrize("attempts", [2, 3])
def test_a_job_is_delivered_exactly_as_often_as_allowed_wherever_it_is_handed_back(
    away: int, attempts: int
) -> None:
    mesh = Mesh(3)
    set_policy(*mesh.nodes, attempts=attempts, dead=b"dead")
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 60)
    deliveries = 0
    for _ in range(10):
        for index, bench in enumerate(mesh.nodes):
            if bench.number_queued() and bench.get() == id:
                deliveries += 1
                assert mesh[(index + away) % 3]("NACK", id) == 1
                mesh.settle()
        mesh.advance(1)
    assert deliveries == attempts
    assert sum(bench.number_queued("dead") for bench in mesh.nodes) == 1


@pytest.mark.parametrize("seed", range(4))
def test_so_it_is_if_it_travels_and_is_handed_back_to_any_node_that_holds_it(seed: int) -> None:
    rng = Random(seed)
    mesh = Mesh(3, seed, jitter=None)
    set_policy(*mesh.nodes, attempts=3, dead=b"dead")
    ids = [mesh.add(rng.randrange(3), "REPLICATE", 2, "RETRY", 60) for _ in range(20)]
    deliveries: Counter[bytes] = Counter()
    for _ in range(1_000):
        for id in rng.choice(mesh.nodes).get_all(count=2):
            deliveries[id] += 1
            mesh.settle()
            assert mesh[rng.choice(mesh.holders(id))]("NACK", id) == 1
        mesh.advance(0.01)
        if sum(bench.number_queued("dead") for bench in mesh.nodes) == len(ids):
            break
    assert deliveries == dict.fromkeys(ids, 3)


def test_whoever_is_about_to_queue_a_job_hears_how_often_it_was_delivered(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 10)
    for _ in range(2):
        (bench,) = [bench for bench in mesh.nodes if bench.number_queued()]
        assert bench.get() == id
        mesh.advance(15)
    assert mesh.holders(id) == []
    assert sum(bench.number_queued("dead") for bench in mesh.nodes) == 1


def test_two_sides_of_a_partition_make_one_letter(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 10)
    mesh.isolate(0)
    for bench in (mesh[0], mesh[1]):
        if bench is mesh[1]:
            mesh[1]("ENQUEUE", id)
        for _ in range(2):
            assert bench.get() == id
            bench("NACK", id)
    assert [bench.number_queued("dead") for bench in mesh.nodes] == [1, 1, 0]
    mesh.rejoin(0)
    mesh.advance(400)
    assert sum(bench.number_queued("dead") for bench in mesh.nodes) == 1
    assert mesh.holders(id) == []


def test_a_letter_that_the_copy_has_to_queue_counts_as_delivered_again(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 10)
    (_, other) = mesh.holders(id)
    mesh.lose = lambda source, target, packet: packet_type(packet) == bus.QUEUED
    for _ in range(2):
        assert mesh[0].get() == id
        mesh[0]("NACK", id)
        mesh.settle()
    mesh.isolate(0)
    mesh.advance(DEFAULT_RETRY + 1)
    letter = mesh[other].get("dead")
    assert letter is not None
    assert mesh[other].number(letter, b"additional-deliveries") == 1


def test_an_expired_job_leaves_one_letter_that_all_holders_have(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3, "TTL", 5, "RETRY", 2)
    mesh.advance(9)
    assert mesh.holders(id) == []
    queued = [bench.ids(bench("QPEEK", "dead", 9)) for bench in mesh.nodes]
    ((dead,),) = [ids for ids in queued if ids]
    assert mesh.holders(dead) == [0, 1, 2]
    mesh.advance(700)
    assert sum(bench.number_queued("dead") for bench in mesh.nodes) == 1


def test_a_job_that_expires_after_its_acknowledge_leaves_no_letter(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3, "TTL", 5, "RETRY", 2)
    mesh.cut(0, 1)  # so it stays until both have confirmed
    mesh[0]("ACKJOB", id)
    mesh.advance(1)
    assert mesh.states(id)[0] == "acked"
    mesh.isolate(1)
    mesh.advance(8)
    assert not mesh[0].held(id)
    assert mesh[0].node.dead_letters.total_dead == 0
    assert mesh[2].node.dead_letters.total_dead == 0


def test_a_node_that_was_away_hears_that_a_job_died(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 10)
    mesh.cut(0, 2)
    mesh.cut(1, 2)
    for _ in range(2):
        mesh[0].get()
        mesh[0]("NACK", id)
    mesh.settle()
    assert mesh.holders(id) == [0, 1, 2]
    mesh.rejoin(2)
    mesh.advance(30)
    assert mesh.holders(id) == []
    (dead,) = mesh[0].ids(mesh[0]("QPEEK", "dead", 9))
    assert 2 in mesh.holders(dead)


def die_unseen_by_one(mesh: Mesh) -> tuple[bytes, bytes]:
    """A job dies while one of its holders is away, which is back now and does not hear of it until
    ``hear`` is called. Returns the ids of the job and its letter, both on the first node."""
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 300)
    mesh.isolate(2)
    for _ in range(2):
        mesh[0].get()
        mesh[0]("NACK", id)
    mesh.advance(10)
    mesh.lose = lambda source, target, packet: (
        target == 2 and bus.packet_type(packet) in (bus.ENDJOB, bus.REPLJOB)
    )
    mesh.rejoin(2)
    mesh.advance(0)
    (dead,) = mesh[0].ids(mesh[0]("QPEEK", "dead", 9))
    assert mesh.holders(dead) == [0, 1]
    return id, dead


def hear(mesh: Mesh) -> None:
    """Let packets arrive again."""
    mesh.lose = lambda source, target, packet: False


def redrive(mesh: Mesh) -> None:
    """Have the first node send back the only letter."""
    me = mesh[0].me
    mesh[0].send(me, "REDRIVE", "dead")
    mesh.advance(0.5)
    assert mesh[0].replies(me) == [1]


def test_a_letter_that_was_sent_back_does_not_return_on_a_node_that_was_away(mesh: Mesh) -> None:
    id, dead = die_unseen_by_one(mesh)
    redrive(mesh)
    assert mesh.holders(id) == [0, 1, 2]  # the end of the job is told again later
    hear(mesh)
    mesh.advance(60)
    assert mesh.holders(id) == mesh.holders(dead) == []
    (again,) = mesh[0].ids(mesh[0]("QPEEK", "q", 9))
    assert mesh.holders(again) == [0, 1, 2]
    assert mesh.states(again) == ["queued", "active", "active"]


def test_who_has_not_heard_that_a_job_died_does_not_confirm_the_end_of_its_letter(
    mesh: Mesh,
) -> None:
    _, dead = die_unseen_by_one(mesh)
    mesh.lose = lambda source, target, packet: (
        target == 2 and bus.packet_type(packet) in (bus.ENDJOB, bus.REPLJOB) and dead not in packet
    )
    redrive(mesh)
    mesh.advance(5)
    assert mesh.holders(dead) == [0, 1]  # until all have what became of it
    hear(mesh)
    mesh.advance(60)
    assert mesh.holders(dead) == []
    (again,) = mesh[0].ids(mesh[0]("QPEEK", "q", 9))
    assert mesh.holders(again) == [0, 1, 2]


def test_a_job_that_dies_again_leaves_a_letter_on_a_node_that_was_away(mesh: Mesh) -> None:
    id, dead = die_unseen_by_one(mesh)
    redrive(mesh)
    hear(mesh)
    mesh.isolate(2)
    for _ in range(2):
        again = mesh[0].get()
        mesh[0]("NACK", again)
    mesh.advance(10)
    mesh.rejoin(2)
    mesh.advance(400)
    (letter,) = mesh[0].ids(mesh[0]("QPEEK", "dead", 9))
    assert mesh.holders(letter) == [0, 1, 2]
    assert mesh.holders(id) == mesh.holders(dead) == mesh.holders(again) == []
    assert sum(bench.number_queued("dead") for bench in mesh.nodes) == 1


@pytest.mark.parametrize("command", ["ACKJOB", "CANCEL"])
def test_a_letter_that_is_done_does_not_return_on_a_node_that_was_away(
    mesh: Mesh, command: str
) -> None:
    id, dead = die_unseen_by_one(mesh)
    mesh[0](command, dead)
    mesh.settle()
    hear(mesh)
    mesh.advance(400)
    assert mesh.holders(id) == mesh.holders(dead) == []


def test_a_letter_that_was_sent_back_is_not_made_where_the_job_expires_later(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2, "TTL", 5, "RETRY", 300)
    (copy,) = set(mesh.holders(id)) - {0}
    (taker,) = {0, 1, 2} - set(mesh.holders(id))
    mesh.lose = lambda source, target, packet: {source, target} == {copy, taker}
    client = mesh[taker].block()
    mesh.advance(0.2)
    assert mesh[taker].got(client) == id
    hear(mesh)
    dead = successor_id(id, DEAD)

    def expire(index: int) -> None:
        node = mesh[index].node
        job = node.store.jobs.get(id)
        assert job is not None
        node.dead_letters.expire(job)

    expire(copy)  # it does not know of the taker
    mesh[copy]("ENQUEUE", dead)
    mesh[copy].send(mesh[copy].me, "REDRIVE", "dead")
    worker = mesh[0].block()
    mesh.advance(0.2)
    assert mesh[0].got(worker) == successor_id(dead, REDRIVEN)
    expire(taker)
    mesh.settle()
    assert mesh.holders(dead) == []
    expire(0)
    assert not mesh[0].held(dead)


def test_the_predecessors_of_a_job_follow_from_the_first_one(bench: Bench) -> None:
    first = bench.add()
    letter = successor_id(first, DEAD)
    again = successor_id(letter, REDRIVEN)
    assert predecessor_ids(first, first) == []
    assert predecessor_ids(first, again) == [first, letter]
    letter_of_letter = successor_id(letter, DEAD)
    assert predecessor_ids(first, letter_of_letter) == [first]


def test_c_nodes_get_copies_of_letters_and_hear_that_the_job_is_done() -> None:
    mesh = Mesh(2)
    mesh.c_nodes.add(1)
    mesh.peers[0].judge_extensions()
    set_policy(mesh[0], attempts=1, dead=b"dead")
    id = mesh.add(0, "REPLICATE", 2)
    mesh[0].get()
    mesh.log.clear()
    mesh[0]("NACK", id)
    mesh.settle()
    told = {type for source, type, _ in mesh.log if source == 0}
    assert not told & {"endjob", "requeued", "question"}
    (dead,) = mesh[0].ids(mesh[0]("QPEEK", "dead", 9))
    assert mesh.holders(dead) == [0, 1]
    assert mesh.holders(id) == []
    assert mesh[1].show(dead)[b"body"] == b"body"


def test_redrive_reaches_letters_on_other_nodes(mesh: Mesh) -> None:
    for node in range(3):
        for _ in range(130):
            id = mesh.add(node, "REPLICATE", 1)
            for _ in range(2):
                assert mesh[node].get() == id
                mesh[node]("NACK", id)
    me = mesh[0].me
    mesh[0].send(me, "REDRIVE", "dead", "COUNT", 300)
    mesh.advance(1)
    assert mesh[0].replies(me) == [300]
    mesh[0].send(me, "REDRIVE", "dead")
    mesh.advance(1)
    assert mesh[0].replies(me) == [90]
    assert [bench.number_queued("q") for bench in mesh.nodes] == [130, 130, 130]


def test_redrive_does_not_wait_for_a_node_that_is_away(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 1)
    for _ in range(2):
        mesh[0].get()
        mesh[0]("NACK", id)
    mesh.lose = lambda source, target, packet: (
        target == 1 and bus.packet_type(packet) == bus.QUESTION
    )
    me = mesh[0].me
    mesh[0].send(me, "REDRIVE", "dead")
    mesh.advance(1)
    assert mesh[0].replies(me) == []
    mesh.advance(10)
    assert mesh[0].replies(me) == [1]


PAIRS = [(source, asking) for source in range(3) for asking in range(3) if source != asking]
"""Of two nodes that queue the same job, the ids decide which one keeps it."""


def die(mesh: Mesh, index: int) -> None:
    """Have a job that all nodes hold die at one of them; nothing of the last turn is sent yet."""
    id = mesh.add(index, "REPLICATE", 3, "RETRY", 10)
    assert mesh[index].get() == id
    mesh[index]("NACK", id)
    mesh.settle()
    assert mesh[index].get() == id
    mesh[index].send(mesh[index].me, "NACK", id)


@pytest.mark.parametrize(("source", "asking"), PAIRS)
def test_a_letter_is_in_one_queue_though_a_node_has_asked_for_it(
    mesh: Mesh, source: int, asking: int
) -> None:
    assert mesh[asking].get("dead") is None
    mesh.settle()
    die(mesh, source)
    mesh.advance(0.1)
    assert [bench.number_queued("dead") for bench in mesh.nodes].count(1) == 1
    assert mesh[asking].number_queued("dead") == 1


@pytest.mark.parametrize(("source", "asking"), PAIRS)
def test_a_letter_is_in_one_queue_though_a_node_asks_before_it_hears_of_it(
    mesh: Mesh, source: int, asking: int
) -> None:
    die(mesh, source)
    asks = mesh[asking].node.packets.about_queue(bus.NEEDJOBS, b"dead", 1)
    mesh[source].node.receive(mesh.ids[asking], asks, mesh[source].now)
    mesh.advance(0.1)
    assert mesh[asking].number_queued("dead") == 1
    assert mesh[source].number_queued("dead") == 0


@pytest.mark.parametrize(("source", "asking"), PAIRS)
def test_redriven_jobs_are_in_one_queue_each_though_nodes_have_asked_for_them(
    mesh: Mesh, source: int, asking: int
) -> None:
    for _ in range(3):
        die(mesh, source)
        mesh.settle()
        assert mesh[source].replies(mesh[source].me) == [1]
    assert mesh[source].number_queued("dead") == 3
    for bench in mesh.nodes:
        assert bench.get() is None
    mesh.settle()
    mesh[asking].send(mesh[asking].me, "REDRIVE", "dead")
    mesh.advance(0.5)
    assert mesh[asking].replies(mesh[asking].me) == [3]
    assert [bench.number_queued("q") for bench in mesh.nodes] == [1, 1, 1]


def test_the_attempts_of_a_job_that_moves_count_where_there_was_a_copy(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 3, "RETRY", 60)
    mesh.cut(0, 1)
    assert mesh[0].get() == id
    mesh[0]("NACK", id)  # of which the second node does not hear
    mesh.settle()
    mesh.join(0, 1)
    waiting = mesh[1].block("q")
    mesh.advance(1)
    assert waiting.out
    mesh[1]("NACK", id)
    mesh.advance(1)
    assert mesh.states(id).count("queued") == 0
    assert mesh.states(successor_id(id, DEAD)).count("queued") == 1
