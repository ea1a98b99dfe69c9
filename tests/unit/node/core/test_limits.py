"""Limits of queues: RATE, BURST and ACTIVE, on one node and shared among several."""

import random
from bisect import bisect_left
from collections import deque

import pytest

from disque_trio.node.core.queues.limits import ASKING_TIME
from disque_trio.node.core.queues.shares import SPARED, TOGETHER, VALID, Limit, User
from disque_trio.respserver.client import Client
from tests.support.come_and_go import come_and_go
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench
from tests.support.policies import set_policy


@pytest.fixture
def bench() -> Bench:
    return Bench(jitter=0)


def add_many(bench: Bench, count: int, *options: str | int) -> list[bytes]:
    return [bench.add("q", "b", *options) for _ in range(count)]


def in_hand(bench: Bench) -> int:
    limit = bench.node.limits.by_name.get(b"q")
    return 0 if limit is None else len(limit.in_hand)


# ---- ACTIVE -----------------------------------------------------------------------------------


def test_active_holds_back_what_is_too_much_at_once(bench: Bench) -> None:
    set_policy(bench, active=3)
    ids = add_many(bench, 10)
    assert bench.get_all() == ids[:3]
    assert bench.get_all() == []
    assert bench.number_queued() == 7


@pytest.mark.parametrize("ending", ["ACKJOB", "FASTACK", "DELJOB", "NACK", "CANCEL", "ENQUEUE"])
def test_what_ends_a_delivery_lets_the_next_one_go(bench: Bench, ending: str) -> None:
    set_policy(bench, active=1)
    first, second = add_many(bench, 2)
    assert bench.get() == first
    waiting = bench.block()
    assert bench(ending, first) == 1
    assert bench.got(waiting) == (second if ending not in ("NACK", "ENQUEUE") else first)
    assert bench.get_all() == []
    assert in_hand(bench) == 1


def test_a_pause_and_a_retry_let_the_next_one_go(bench: Bench) -> None:
    set_policy(bench, active=1)
    first, second, _ = add_many(bench, 3, "RETRY", 10)
    assert bench.get() == first
    waiting = bench.block()
    bench("NACK", first, "DELAY", 100)
    assert bench.got(waiting) == second
    waiting = bench.block()
    bench.advance(11)  # the worker that had it died
    assert bench.got(waiting) == second


def test_jobs_that_nobody_acknowledges_are_not_counted(bench: Bench) -> None:
    set_policy(bench, active=1)
    ids = add_many(bench, 3, "RETRY", 0, "REPLICATE", 1)
    assert bench.get_all() == ids


def test_a_job_of_a_queue_that_was_forgotten_meanwhile_can_be_acknowledged(bench: Bench) -> None:
    set_policy(bench, active=1)
    id = bench.add("q", "b", "RETRY", 3600)
    assert bench.get() == id
    bench.advance(1000)
    bench.evict_idle_queues()
    assert bench.node.queues.by_name == {}
    assert bench("ACKJOB", id) == 1
    assert in_hand(bench) == 0


def test_an_expired_job_is_not_in_hand(bench: Bench) -> None:
    set_policy(bench, active=1)
    bench.add("q", "b", "TTL", 5, "RETRY", 60)
    assert bench.get() is not None
    last = bench.add()
    waiting = bench.block()
    bench.advance(7)
    assert bench.got(waiting) == last


def test_those_that_wait_come_first(bench: Bench) -> None:
    set_policy(bench, active=1)
    first, second, third = add_many(bench, 3)
    assert bench.get() == first
    waiting = [bench.block(), bench.block()]
    assert bench.get() is None
    bench("ACKJOB", first)
    assert bench.got(waiting[0]) == second
    assert waiting[1].blocked
    bench("ACKJOB", second)
    assert bench.got(waiting[1]) == third


def test_a_client_of_several_queues_gets_what_is_not_limited(bench: Bench) -> None:
    set_policy(bench, active=1)
    add_many(bench, 2)
    assert bench.get() is not None
    waiting = bench.block("q", "r")
    other = bench.add("r")
    assert bench.got(waiting) == other
    assert bench.node.queues.by_name[b"q"].waiters == {}


@pytest.mark.parametrize("active", [0, 3])
def test_a_limit_that_is_lifted_or_raised_lets_those_go_who_wait(bench: Bench, active: int) -> None:
    set_policy(bench, active=1)
    add_many(bench, 3)
    assert bench.get() is not None
    waiting = [bench.block(), bench.block()]
    bench.advance(0.5)
    set_policy(bench, active=active)
    bench.advance(0.001)
    for client in waiting:
        bench.got(client)


def test_flushed_jobs_are_not_in_hand(bench: Bench) -> None:
    set_policy(bench, active=1)
    add_many(bench, 2)
    assert bench.get() is not None
    bench("DEBUG", "FLUSHALL")
    assert bench.add("q") == bench.get()


# ---- RATE -------------------------------------------------------------------------------------


def delivered(bench: Bench, seconds: float, client: Client | None = None) -> list[int]:
    """Return when a client that takes everything it can get received jobs, in ms from now."""
    start = bench.now
    times: list[int] = []
    client = client or bench.client()
    bench.send(client, "GETJOB", "FROM", "q")
    while bench.now < start + seconds * 1000:
        bench.advance(0.001)
        while not client.blocked:
            bench.replies(client)
            times.append(bench.now - start)
            bench.send(client, "GETJOB", "FROM", "q")
    return times


def most_within(times: list[int], window: int) -> int:
    """Return the largest number of ``times``, in order, within a ``window``; all in ms."""
    return max(bisect_left(times, start + window) - n for n, start in enumerate(times))


@pytest.mark.parametrize(("rate", "period"), [(50, 1), (600, 60), (2000, 1), (7, 1)])
def test_a_rate_is_kept_and_reached(bench: Bench, rate: int, period: int) -> None:
    set_policy(bench, rate=(rate, period))
    add_many(bench, 3 * rate // period + 50)
    assert bench.get() is not None
    times = delivered(bench, 3)
    a_second = rate / period
    assert 3 * a_second - 2 <= len(times) <= 3 * a_second + TOGETHER * a_second / 1000 + 1
    assert most_within(times, 1000) <= a_second + TOGETHER * a_second / 1000 + 1


def test_a_burst_after_a_pause(bench: Bench) -> None:
    set_policy(bench, rate=(10, 1), burst=5)
    ids = add_many(bench, 30)
    assert bench.get_all() == ids[:5]
    bench.advance(0.2)
    assert len(bench.get_all()) == 2
    bench.advance(100)
    assert len(bench.get_all()) == 5


def test_one_in_a_minute_is_remembered_without_clients(bench: Bench) -> None:
    set_policy(bench, rate=(1, 60))
    add_many(bench, 3)
    assert bench.get() is not None
    bench.advance(50)
    assert bench.get() is None
    bench.advance(11)
    assert bench.get() is not None
    bench.advance(100)
    assert bench.node.limits.by_name == {}  # nobody uses it


def test_a_rate_and_active_together(bench: Bench) -> None:
    set_policy(bench, rate=(10, 1), active=2)
    ids = add_many(bench, 5)
    assert bench.get_all() == ids[:1]
    bench.advance(0.1)
    assert bench.get_all() == ids[1:2]
    bench.advance(1)
    assert bench.get_all() == []
    bench("ACKJOB", ids[0])
    assert bench.get_all() == ids[2:3]


def test_what_is_held_back_is_shown(bench: Bench) -> None:
    set_policy(bench, rate=(1, 60), active=5)
    bench("PAUSE", "other", "in")
    assert b"held-back-by" not in bench.queue("other")
    add_many(bench, 3)
    assert bench.queue()[b"held-back-by"] == b""
    assert bench.get() is not None
    bench.block()
    assert bench.queue()[b"held-back-by"] == b"rate"
    assert bench.queue()[b"in-hand"] == 1
    info = bench.info("queues")
    assert info["queues_held_by_rate"] == "1"
    assert info["queues_held_by_active"] == "0"
    assert info["jobs_held_by_limits"] == "2"


@pytest.mark.parametrize(("burst", "at_once"), [(0, 1), (100, 100)])
def test_a_faster_rate_does_not_wait_for_what_a_slower_one_owes(
    bench: Bench, burst: int, at_once: int
) -> None:
    set_policy(bench, rate=(100, 3600), burst=burst)
    add_many(bench, 300)
    assert len(bench.get_all()) == at_once
    waiting = bench.block()
    bench.advance(3)
    assert waiting.blocked
    set_policy(bench, rate=(10, 1), burst=burst)
    bench.advance(0.2)
    bench.got(waiting)


def test_a_smaller_burst_gives_no_more_at_once(bench: Bench) -> None:
    set_policy(bench, rate=(1, 1), burst=10)
    add_many(bench, 30)
    assert len(bench.get_all()) == 10
    for burst in (10, 5, 1):
        set_policy(bench, rate=(1, 1), burst=burst)
        bench.advance(0.001)
        assert bench.get_all() == []
    bench.advance(1)
    assert len(bench.get_all()) == 1


def set_back(*benches: Bench) -> None:
    """Set the clocks of these nodes back by an hour."""
    for bench in benches:
        bench.node.cron(bench.now)
        bench.now -= 3_600_000
        bench.node.cron(bench.now)


def test_a_clock_that_goes_back_does_not_stop_a_queue(bench: Bench) -> None:
    set_policy(bench, rate=(10, 1))
    add_many(bench, 50)
    assert bench.get() is not None
    waiting = bench.block()
    set_back(bench)
    bench.advance(2)
    assert not waiting.blocked
    bench.advance(10)
    assert bench.node.limits.by_name == {}


def test_a_clock_that_goes_back_makes_no_wait_longer(bench: Bench) -> None:
    set_policy(bench, rate=(1, 60))
    add_many(bench, 2)
    assert bench.get() is not None
    bench.advance(50)
    set_back(bench)
    waiting = bench.block()
    bench.advance(9)
    assert waiting.blocked
    bench.advance(2)
    bench.got(waiting)


def test_after_a_clock_went_back_a_queue_that_nobody_uses_is_forgotten(bench: Bench) -> None:
    set_policy(bench, rate=(10, 1))
    bench.add()
    assert bench.get() is not None
    set_back(bench)
    bench.advance(10)
    assert bench.node.limits.by_name == {}


# ---- several nodes ----------------------------------------------------------------------------


def mesh_with(jobs: int, **policy: int) -> Mesh:
    """Return three nodes, each with ``jobs`` in its queue."""
    mesh = Mesh(3)
    set_policy(*mesh.nodes, **policy)  # type: ignore[arg-type]
    for index in range(3):
        for _ in range(jobs):
            mesh.add(index, "REPLICATE", 1)
    return mesh


def test_nodes_ask_each_other_before_they_deliver() -> None:
    mesh = mesh_with(3, active=2)
    client = mesh[0].block()
    assert mesh[0].queue()[b"held-back-by"] == b"asking"
    mesh.settle()
    mesh[0].got(client)


def test_a_get_that_does_not_wait_waits_for_the_answers() -> None:
    mesh = mesh_with(3, active=2)
    client = mesh[0].client()
    mesh[0].send(client, "GETJOB", "NOHANG", "FROM", "q")
    assert client.blocked
    mesh.settle()
    mesh[0].got(client)
    mesh.lose = lambda source, target, packet: True
    mesh[1].send(client, "GETJOB", "NOHANG", "FROM", "q")
    mesh.advance(ASKING_TIME / 1000)
    assert mesh[1].replies(client) == [None]


def waiting_on_all(mesh: Mesh, each: int) -> list[tuple[int, Client]]:
    found = [(index, mesh[index].client()) for index in range(3) for _ in range(each)]
    for index, client in found:
        mesh[index].send(client, "GETJOB", "FROM", "q")
    return found


@pytest.mark.parametrize("active", [1, 2, 3, 4, 7])
def test_active_is_shared_and_used_up(active: int) -> None:
    mesh = mesh_with(5, active=active)
    waiting_on_all(mesh, 4)
    mesh.settle()
    assert sum(in_hand(bench) for bench in mesh.nodes) == active
    mesh.advance(10)
    assert sum(in_hand(bench) for bench in mesh.nodes) == active


def test_who_comes_late_gets_its_share_when_the_others_are_done() -> None:
    mesh = mesh_with(9, active=6)
    mesh[0].block()
    mesh.settle()
    mesh[0].get_all()
    ids = list(mesh[0].node.limits.by_name[b"q"].in_hand)
    assert len(ids) == 6
    waiting_on_all(mesh, 3)
    mesh.advance(2)
    assert sum(in_hand(bench) for bench in mesh.nodes) == 6
    for id in ids:
        mesh[0]("ACKJOB", id)
        mesh.settle()
        assert sum(in_hand(bench) for bench in mesh.nodes) <= 6
    mesh.advance(2)
    assert [in_hand(bench) for bench in mesh.nodes] == [2, 2, 2]


def test_what_one_node_no_longer_has_in_hand_another_one_gives_at_once() -> None:
    mesh = mesh_with(2, active=2)
    mesh[0].block()
    mesh.settle()
    assert len(mesh[0].get_all()) == 1
    waiting = mesh[1].block()
    mesh.settle()
    assert waiting.blocked
    mesh[0]("ACKJOB", next(iter(mesh[0].node.limits.by_name[b"q"].in_hand)))
    mesh.settle()
    mesh[1].got(waiting)


def test_an_answer_does_not_undo_what_its_sender_said_after_it() -> None:
    mesh = mesh_with(5, active=2)
    mesh[0].block()
    mesh[0].block()
    late = [move for move in mesh.moving if move[1] == 2]
    mesh.moving = deque(move for move in mesh.moving if move[1] != 2)
    mesh.settle()  # 1 wants none
    mesh[1].block()
    mesh.settle()  # 1 wants some
    mesh.moving.extend(late)
    mesh.settle()  # 2 finally answers
    assert [in_hand(bench) for bench in mesh.nodes] == [1, 1, 0]


def test_a_rate_waits_once_for_what_another_node_delivered() -> None:
    mesh = mesh_with(3, rate=(1, 10))  # type: ignore[arg-type]
    mesh[1].block()
    mesh.settle()
    mesh.advance(5)
    client = mesh[0].block()
    mesh.lose = lambda source, target, packet: source == 2  # so the question takes its time
    mesh.advance(4.9)
    assert client.blocked
    mesh.advance(0.2)
    mesh[0].got(client)


def test_a_node_is_believed_to_owe_no_more_than_the_rate_allows() -> None:
    mesh = mesh_with(3, rate=(1, 10))  # type: ignore[arg-type]
    mesh[1].block()
    mesh.settle()
    mesh[1].node.limits.by_name[b"q"].full = 2.0**70
    mesh[0].block()
    mesh.settle()
    # Both want jobs, so each may have one every 20 s. A time beyond 64 bits ends the compiled node.
    assert mesh[0].node.limits.by_name[b"q"].wake <= mesh[0].now + 20_001
    mesh.advance(21)
    assert mesh[0].number_queued() == 2


def test_a_share_that_is_not_used_any_more_goes_to_the_others() -> None:
    mesh = mesh_with(5, active=3)
    waiting_on_all(mesh, 1)
    mesh.settle()
    mesh.advance(1)
    (mine,) = mesh[1].node.limits.by_name[b"q"].in_hand
    mesh[1]("ACKJOB", mine)
    mesh.settle()
    waiting = [mesh[0].block() for _ in range(2)]
    mesh.advance(10)
    assert sum(not client.blocked for client in waiting) == 1


@pytest.mark.parametrize("later", [0, 5])
def test_a_share_is_kept_a_moment_for_a_client_that_had_a_job(later: int) -> None:
    mesh = mesh_with(9, active=2)
    busy, other = mesh[0], mesh[1]
    client = busy.block()
    mesh.settle()
    first = busy.got(client)
    waiting = [other.block() for _ in range(2)]
    mesh.settle()
    assert [client.blocked for client in waiting] == [False, True]
    busy("ACKJOB", first)
    mesh.advance(later / 1000)
    busy("ACKJOB", *busy.get_all(count=1))
    mesh.settle()
    mesh.advance((SPARED - 1) / 1000)
    assert waiting[1].blocked
    mesh.advance(0.04)
    other.got(waiting[1])


def test_a_node_that_wants_jobs_no_more_says_so_to_those_that_wait() -> None:
    mesh = mesh_with(5, active=1)
    taking, leaving, waiting = sorted(mesh.nodes, key=lambda bench: bench.node.replicas.own)
    first = taking.block()
    mesh.settle()
    mine = taking.got(first)
    leaving.send(leaving.client(), "GETJOB", "TIMEOUT", 10, "FROM", "q")
    mesh.advance(0.7)
    client = waiting.block()
    while b"q" in leaving.node.limits.by_name:
        mesh.advance(0.01)
    taking("ACKJOB", mine)
    mesh.advance(0.05)
    waiting.got(client)


def test_after_clocks_went_back_a_share_that_is_not_used_goes_to_the_others_as_soon() -> None:
    mesh = mesh_with(5, active=3)
    waiting_on_all(mesh, 1)
    mesh.settle()
    mesh.advance(1)
    (mine,) = mesh[1].node.limits.by_name[b"q"].in_hand
    mesh[1]("ACKJOB", mine)
    set_back(*mesh.nodes)
    mesh.settle()
    waiting = mesh[0].block()
    mesh.advance(0.5)
    mesh[0].got(waiting)


def test_a_node_whose_clock_went_back_asks_again_before_it_delivers() -> None:
    mesh = mesh_with(5, active=2)
    mesh[0].block()
    mesh.settle()
    set_back(*mesh.nodes)
    waiting = mesh[0].block()
    assert mesh[0].queue()[b"held-back-by"] == b"asking"
    mesh.settle()
    mesh[0].got(waiting)


def test_a_node_that_failed_when_the_clock_went_back_is_not_counted_for_an_hour() -> None:
    mesh = mesh_with(5, active=2)
    for index in (0, 1):
        mesh[index].block()
        mesh.settle()
    set_back(*mesh.nodes)
    mesh.isolate(1)
    waiting = mesh[0].block()
    mesh.advance(10)
    mesh[0].got(waiting)


def test_each_part_of_a_partition_has_the_limit() -> None:
    mesh = mesh_with(5, active=2)
    mesh.cut(0, 1)
    mesh.cut(0, 2)
    waiting_on_all(mesh, 4)
    mesh.advance(3)
    assert in_hand(mesh[0]) == 2
    assert in_hand(mesh[1]) + in_hand(mesh[2]) == 2


def test_a_node_that_starts_takes_nothing_before_it_could_ask_the_others() -> None:
    mesh = mesh_with(5, active=2)
    mesh.isolate(0)
    waiting_on_all(mesh, 4)
    mesh.advance(0.5)
    assert in_hand(mesh[1]) + in_hand(mesh[2]) == 0
    mesh.rejoin(0)
    mesh.advance(0.5)
    assert sum(in_hand(bench) for bench in mesh.nodes) == 2


def test_nobody_waits_for_a_node_that_failed_or_knows_no_limits() -> None:
    mesh = mesh_with(5, active=2)
    mesh.isolate(0)
    mesh.isolate(1)
    mesh.peers[0].reachable = []
    mesh.peers[1].as_c = {mesh.ids[0], mesh.ids[2]}
    waiting_on_all(mesh, 4)
    mesh.settle()
    assert [in_hand(bench) for bench in mesh.nodes] == [2, 2, 0]


def test_a_rate_is_shared() -> None:
    mesh = mesh_with(60, rate=(30, 1))  # type: ignore[arg-type]
    clients = waiting_on_all(mesh, 1)
    mesh.settle()
    start = mesh[0].now
    times = []
    while mesh[0].now < start + 3_000:
        mesh.advance(0.001)
        for index, client in clients:
            while not client.blocked:
                mesh[index].replies(client)
                times.append(mesh[0].now)
                mesh[index].send(client, "GETJOB", "FROM", "q")
    assert 80 <= len(times) <= 30 * 3 + 3
    assert most_within(times, 1_000) <= 33


def test_going_from_node_to_node_gives_no_more() -> None:
    mesh = mesh_with(3, rate=(1, 60))  # type: ignore[arg-type]
    got = 0
    for _ in range(4):
        for bench in mesh.nodes:
            client = bench.client()
            bench.send(client, "GETJOB", "TIMEOUT", 10, "FROM", "q")
            mesh.advance(4)
            got += bench.replies(client) != [None]
    assert got == 1


@pytest.mark.parametrize("seed", range(8))
def test_what_is_in_hand_never_exceeds_the_limit(seed: int) -> None:
    """Clients come and go on three nodes, and packets are slow, for a minute."""
    rng = random.Random(seed)
    active = rng.randrange(1, 8)
    mesh = mesh_with(40, active=active)
    most = 0
    for _ in come_and_go(mesh, rng, 5):
        now = sum(in_hand(bench) for bench in mesh.nodes)
        assert now <= active
        most = max(most, now)
    assert most == active


def test_who_was_stopped_for_long_asks_again() -> None:
    mesh = mesh_with(5, active=2)
    mesh[0].block()
    mesh.settle()
    for bench in mesh.nodes:
        bench.now += VALID
    late = mesh[0].block()
    assert mesh[0].queue()[b"held-back-by"] == b"asking"
    mesh.settle()
    mesh[0].got(late)


def test_jobs_that_are_held_back_do_not_move_to_and_fro() -> None:
    mesh = mesh_with(5, active=1)
    waiting_on_all(mesh, 1)
    mesh.settle()
    mesh.told()
    for _ in range(20):
        waiting_on_all(mesh, 1)
        mesh.advance(1)
    assert mesh.told("needjobs", "given", "yourjobs") == []


def test_shares_are_those_of_the_nodes_that_want_jobs() -> None:
    limit = Limit(b"q")
    limit.users = {b"b": User(1, False, 1)}
    assert limit.lacking(b"a", 2) == set()
    limit.users[b"c"] = User(1, True, 1)
    assert limit.lacking(b"a", 3) == set()  # two are left, for c alone
    limit.joined = 1
    assert limit.lacking(b"a", 3) == {b"c"}


def test_a_malformed_question_changes_nothing() -> None:
    mesh = mesh_with(2, active=2)
    for fields in ([], [(2, b"q")], [(2, b"q"), (4, b"short")], [(9, b"")]):
        packet = mesh[1].node.rpc.notification(9, fields)
        mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    client = mesh[0].block()
    mesh.settle()
    mesh[0].got(client)
