"""Which of the holders queues a job again."""

import random
from collections import Counter
from itertools import combinations

import pytest

from disque_trio.node.core.jobs.job import Job, JobIds
from disque_trio.node.core.lifecycle.requeue import even_place, place_on_c
from disque_trio.protocol import bus
from tests.support.mesh import Mesh


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def queued_on(mesh: Mesh, id: bytes) -> list[int]:
    return [i for i, state in enumerate(mesh.states(id)) if state == "queued"]


def test_a_job_that_is_not_acknowledged_is_queued_again_by_one_node() -> None:
    for seed in range(20):
        mesh = Mesh(3, seed, jitter=None)
        id = mesh.add(0, "RETRY", 3)
        assert mesh[0].get() == id
        mesh.advance(4)
        assert len(queued_on(mesh, id)) == 1
        assert all(bench.number(id, b"additional-deliveries") for bench in mesh.nodes)


def test_the_others_are_asked_half_a_second_before(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 5)
    mesh[0].get()
    mesh.advance(0.2)  # the others hear that it was delivered
    mesh.told()
    mesh.advance(4.2)
    assert mesh.told() == []
    mesh.advance(0.15)
    assert {entry[1] for entry in mesh.told()} == {"willqueue"}
    assert queued_on(mesh, id) == []


def test_while_it_stays_queued_nobody_else_queues_it(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 2, "TTL", 1000)
    for _ in range(30):
        mesh.advance(1)
        assert queued_on(mesh, id) == [0]
    assert mesh.told("willqueue") == []


def test_a_holder_that_cannot_hear_the_others_queues_it(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 5)
    mesh.cut(1, 0)
    mesh.cut(1, 2)
    mesh.advance(6)
    assert queued_on(mesh, id) == [0, 1]
    mesh.join(1, 0)
    mesh.join(1, 2)
    mesh.advance(6)
    assert len(queued_on(mesh, id)) == 1


def test_of_two_that_queued_it_the_id_decides(mesh: Mesh) -> None:
    kept = []
    for _ in range(20):
        id = mesh.add(0, "REPLICATE", 3, "RETRY", 60)
        for bench in mesh.nodes:
            bench("ENQUEUE", id)
        mesh.settle()
        mesh[0]("DEQUEUE", id)
        mesh[1]("ENQUEUE", id)
        mesh[2]("ENQUEUE", id)
        mesh.settle()
        winner = queued_on(mesh, id)
        assert len(winner) == 1
        kept.append(winner[0])
        mesh[winner[0]]("DEQUEUE", id)
    assert set(kept) == {1, 2}


# ---- which of two nodes keeps it ------------------------------------------------------------

RNG = random.Random(1)
NODES = [b"%040x" % RNG.getrandbits(160) for _ in range(30)]
NODES += [NODES[0][:39] + b"%x" % digit for digit in range(16) if NODES[0][39:] != b"%x" % digit]


def some_jobs(count: int) -> list[bytes]:
    ids = JobIds(NODES[0], RNG.randbytes)
    return [ids.make(1000, 10) for _ in range(count)]


def test_the_order_of_c_is_that_of_the_names_with_the_jobs_bytes_over_them() -> None:
    for job in some_jobs(200):
        a, b = RNG.sample(NODES, 2)
        as_bytes = [bytes(node[i] ^ job[11 + i % 24] for i in range(40)) for node in (a, b)]
        assert (place_on_c(a, job) > place_on_c(b, job)) == (as_bytes[0] > as_bytes[1])


@pytest.mark.parametrize("count", [2, 3, 7])
def test_nodes_that_understand_each_other_share_evenly(count: int) -> None:
    jobs = some_jobs(3000)
    for _ in range(10):
        nodes = RNG.sample(NODES, count)
        wins = Counter(max(nodes, key=lambda node: even_place(node, job)) for job in jobs)
        assert min(wins[node] for node in nodes) > 0.85 * 3000 / count


def keepers(mesh: Mesh, job: Job, a: int, b: int) -> list[int]:
    """Return which of the nodes ``a`` and ``b`` say that they keep ``job``."""
    return [
        me for me, other in ((a, b), (b, a)) if mesh[me].node.requeue._keeps(job, mesh.ids[other])
    ]


@pytest.mark.parametrize("as_c", [(), (0,), (1, 2), (0, 1, 2, 3, 4)])
def test_two_nodes_always_agree_and_of_several_there_is_always_one(as_c: tuple[int, ...]) -> None:
    for seed in range(5):
        mesh = Mesh(5, seed)
        mesh.c_nodes.update(as_c)
        for id in some_jobs(100):
            job = Job(id, b"q", b"", 5, 0, 0, 0, 10, 0)
            for pair in combinations(range(5), 2):
                assert len(keepers(mesh, job, *pair)) == 1
                c_node = next((node for node in pair if node in as_c), None)
                if c_node is not None:
                    wins = max(pair, key=lambda node: place_on_c(mesh.ids[node], id))
                    assert keepers(mesh, job, *pair) == [wins]
            for some in combinations(range(5), 3):
                # They never all leave it to the next one.
                pairs = [keepers(mesh, job, *pair) for pair in combinations(some, 2)]
                left = [node for node in some if pairs.count([node]) == 2]
                assert len(left) == 1


def test_no_node_wins_nearly_all_of_another_one() -> None:
    shares = []
    jobs = some_jobs(300)
    for seed in range(10):
        mesh = Mesh(2, seed)
        won = [keepers(mesh, Job(id, b"q", b"", 2, 0, 0, 0, 10, 0), 0, 1) for id in jobs]
        shares.append(won.count([0]) / len(jobs))
    assert min(shares) > 0.35
    assert max(shares) < 0.65


def test_of_all_that_queued_it_one_keeps_it_and_who_is_told_once(mesh: Mesh) -> None:
    kept = Counter[int]()
    for _ in range(60):
        id = mesh.add(0, "REPLICATE", 3, "RETRY", 60)
        mesh[0]("DEQUEUE", id)
        mesh.told()
        for bench in mesh.nodes:
            bench("ENQUEUE", id)
        mesh.settle()
        (winner,) = queued_on(mesh, id)
        kept[winner] += 1
        assert len(mesh.told("queued")) <= 6 + 6
        mesh[winner]("DEQUEUE", id)
    assert min(kept[node] for node in range(3)) > 5


def test_two_that_do_not_agree_do_not_go_on_arguing() -> None:
    both = 0
    for seed in range(30):
        mesh = Mesh(3, seed)
        # Node 2 is new to node 1, which takes it for a C node that may rank in between.
        mesh.peers[1].as_c = {mesh.ids[2]}
        id = mesh.add(0, "REPLICATE", 3, "RETRY", 60)
        mesh[0]("DEQUEUE", id)
        mesh.told()
        mesh[0]("ENQUEUE", id)
        mesh[1]("ENQUEUE", id)
        mesh.settle()
        both += queued_on(mesh, id) == [0, 1]
        assert len(mesh.told("queued")) <= 6
    assert both


def test_nacks_are_counted_by_all_holders(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 60)
    for count in (1, 2, 3):
        assert mesh[0].get() == id
        assert mesh[0]("NACK", id) == 1
        mesh.settle()
        assert [bench.number(id, b"nacks") for bench in mesh.nodes] == [count] * 3
        assert queued_on(mesh, id) == [0]


def test_a_nack_at_another_holder_queues_it_there(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 60)
    mesh[0].get()
    assert mesh[2]("NACK", id) == 1
    mesh.settle()
    assert queued_on(mesh, id) == [2]
    assert [bench.number(id, b"nacks") for bench in mesh.nodes] == [1] * 3


def test_working_postpones_on_all_holders_and_takes_it_out_of_queues(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 10, "TTL", 1000)
    mesh[0].get()
    for _ in range(5):
        mesh.advance(8)
        assert mesh[0]("WORKING", id) == 10
        mesh.settle()
        assert queued_on(mesh, id) == []
    mesh[1]("ENQUEUE", id)
    mesh[2]("WORKING", id)
    mesh.settle()
    assert queued_on(mesh, id) == []


def test_a_clock_that_jumps_over_the_question_still_asks(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 10)
    mesh[0].get()
    mesh[1].now += 60_000
    mesh[1].node.tick(mesh[1].now)
    assert queued_on(mesh, id) == []
    assert {entry[1] for entry in mesh.told()} >= {"willqueue"}


def test_a_clock_that_jumps_over_the_question_leaves_the_others_time_to_answer(mesh: Mesh) -> None:
    id = mesh.add(0, "RETRY", 10)
    jumped = mesh[1]
    jumped.now += 60_000
    jumped.advance(0.4)
    assert queued_on(mesh, id) == [0]
    mesh.settle()  # node 0 answers that it has the job in its queue
    jumped.advance(5)
    assert queued_on(mesh, id) == [0]


@pytest.mark.parametrize("type", [bus.ENQUEUE, bus.QUEUED, bus.WILLQUEUE, bus.WORKING])
def test_an_at_most_once_job_never_comes_back(mesh: Mesh, type: int) -> None:
    id = mesh.add(0, "REPLICATE", 1, "RETRY", 0, "TTL", 100)
    assert mesh[0].get() == id
    packets = mesh[1].node.packets
    mesh[0].node.receive(mesh.ids[1], packets.about_job(type, id), mesh[0].now)
    assert queued_on(mesh, id) == []
    mesh.advance(50)
    assert all(bench.get() is None for bench in mesh.nodes)


def test_a_job_that_waited_for_most_of_its_retry_time_is_not_queued_again_right_away() -> None:
    for seed in range(20):
        mesh = Mesh(3, seed, jitter=None)
        id = mesh.add(0, "REPLICATE", 3, "RETRY", 10)
        mesh.advance(8)
        assert mesh[0].get() == id
        mesh.settle()
        mesh.advance(9)
        assert queued_on(mesh, id) == []
        mesh.advance(2)
        assert len(queued_on(mesh, id)) == 1


def test_a_backlog_that_is_taken_late_is_not_queued_again_by_the_copies(mesh: Mesh) -> None:
    ids = [mesh.add(0, "REPLICATE", 3, "RETRY", 60, "TTL", 10_000) for _ in range(20)]
    # A job that stays queued is announced every 59 s, and its copies count from then on.
    mesh.advance(41 * 59 + 49)
    for _ in ids:
        mesh[0].get()
    mesh.settle()
    mesh.advance(29)
    assert [queued_on(mesh, id) for id in ids] == [[]] * 20


def test_a_job_that_is_taken_early_costs_no_packet(mesh: Mesh) -> None:
    mesh.add(0, "REPLICATE", 3, "RETRY", 10)
    mesh.advance(4)
    mesh.told()
    mesh[0].get()
    assert mesh.told() == []


def test_the_giver_of_a_job_leaves_its_whole_retry_time_to_the_taker() -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 1, "RETRY", 10, "TTL", 1000)
    mesh.advance(4.9)
    packet = mesh[1].node.packets.about_queue(bus.NEEDJOBS, b"q", 5)
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    mesh.settle()
    mesh.advance(4.5)
    assert mesh[1].get() == id
    mesh.settle()
    mesh.advance(5)
    assert queued_on(mesh, id) == []


# ---- jobs that lie in a queue for long -----------------------------------------------------------


def backlog(mesh: Mesh, count: int, retry: int) -> list[bytes]:
    """The ids of jobs with three copies that were added one by one, and lie at node 0."""
    ids = []
    for _ in range(count):
        ids.append(mesh.add(0, "RETRY", retry))
        mesh.advance(retry / count)
    mesh.advance(retry)
    mesh.told()
    return ids


@pytest.mark.parametrize("retry", [5, 30, 300])
def test_a_backlog_costs_a_few_packets_for_each_holder_and_retry_time(retry: int) -> None:
    mesh = Mesh(3, jitter=None)
    ids = backlog(mesh, 200, retry)
    mesh.advance(4 * retry)
    told = mesh.told()
    assert {type for _, type, _ in told} <= {"queued", "willqueue", "question"}
    assert len(told) < 4 * 2 * 22
    assert [bench.number_queued() for bench in mesh.nodes] == [len(ids), 0, 0]


def test_c_nodes_get_a_packet_for_each_job() -> None:
    mesh = Mesh(3)
    mesh.c_nodes = {2}
    backlog(mesh, 50, 30)
    mesh.advance(32)
    told = Counter(mesh.told("queued"))
    assert told[0, "queued", 2] >= 50
    assert told[0, "queued", 1] < 25


def test_jobs_that_are_given_away_while_they_are_announced_stay_where_they_went(
    mesh: Mesh,
) -> None:
    ids = [mesh.add(0, "RETRY", 30) for _ in range(20)]
    bench = mesh[0]
    jobs = [bench.node.store.jobs.get(id) for id in ids]
    due = max(job.awake for job in jobs if job is not None) + 100
    mesh[1].block("q")
    needjobs = mesh.moving.popleft()[2]
    mesh.moving.clear()
    for other in mesh.nodes:
        other.now = due
    bench.node.tick(due)
    for _ in range(10):
        bench.node.receive(mesh.ids[1], needjobs, due)
    mesh.settle()
    assert mesh[1].number_queued() == 9
    assert mesh[0].number_queued() == 10


@pytest.mark.parametrize("winner", [0, 2])
def test_a_job_that_a_node_left_to_one_that_does_not_have_it_any_more_is_queued_soon(
    mesh: Mesh, winner: int
) -> None:
    """The QUEUED of a node that gave the job away arrives after the job itself."""
    loser = 1
    id = b""
    while not id or even_place(mesh.ids[winner], id) < even_place(mesh.ids[loser], id):
        id = mesh.add(loser, "REPLICATE", 3, "RETRY", 300)
    packet = mesh[winner].node.packets.about_job(bus.QUEUED, id)
    mesh[loser].node.receive(mesh.ids[winner], packet, mesh[loser].now)
    mesh.settle()
    assert queued_on(mesh, id) == []
    mesh.advance(1.1)
    assert queued_on(mesh, id) == [loser]
    assert mesh[loser].number(id, b"additional-deliveries") == 0


def test_a_job_that_a_node_left_to_one_that_has_it_stays_there() -> None:
    for seed in range(10):
        mesh = Mesh(3, seed, jitter=None)
        id = mesh.add(0, "REPLICATE", 3, "RETRY", 30)
        mesh[1]("ENQUEUE", id)
        mesh.settle()
        (keeper,) = queued_on(mesh, id)
        mesh.advance(3)
        assert queued_on(mesh, id) == [keeper]
        assert mesh[keeper].get("q") == id
        mesh.advance(5)
        assert queued_on(mesh, id) == []
        before = mesh[keeper].number(id, b"additional-deliveries")
        mesh.advance(33)
        (other,) = queued_on(mesh, id)
        assert mesh[other].number(id, b"additional-deliveries") == before + 1
