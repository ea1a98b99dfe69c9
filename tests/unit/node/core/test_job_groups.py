"""Groups of jobs: GROUP and GROUPS, on one node and on several."""

import random
from itertools import pairwise

import pytest

from disque_trio.node.core.queues.grouping import GROUP_OVERHEAD, JobGroups
from disque_trio.node.core.queues.queue import Queue
from disque_trio.respserver.client import Client
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench
from tests.support.policies import set_policy


@pytest.fixture
def bench() -> Bench:
    return Bench(jitter=0)


def fair(bench: Bench) -> None:
    set_policy(bench, groups="fair")


def fifo(bench: Bench) -> None:
    set_policy(bench, groups="fifo")


def add(bench: Bench, group: str, *options: str | int) -> bytes:
    return bench.add("q", "b", *(("GROUP", group) if group else ()), *options)


def queue_of(bench: Bench) -> Queue:
    return bench.node.queues.by_name[b"q"]


def groups_of(bench: Bench) -> JobGroups:
    return bench.node.limits.grouping.groups[b"q"]


# ---- fair -------------------------------------------------------------------------------------


def test_groups_are_served_in_turn(bench: Bench) -> None:
    fair(bench)
    noisy = [add(bench, "noisy") for _ in range(5)]
    quiet = [add(bench, "quiet") for _ in range(2)]
    none = [add(bench, "")]
    assert bench.get_all() == [
        noisy[0], quiet[0], none[0],
        noisy[1], quiet[1],
        noisy[2], noisy[3], noisy[4],
    ]  # fmt: skip


def test_priority_and_age_are_the_order_within_a_group(bench: Bench) -> None:
    fair(bench)
    late, urgent = add(bench, "a"), add(bench, "a", "PRIORITY", 7)
    other = add(bench, "b")
    assert bench.get_all() == [urgent, other, late]


def test_who_comes_back_stands_in_its_group(bench: Bench) -> None:
    fair(bench)
    first, second, other = add(bench, "a"), add(bench, "a"), add(bench, "b")
    assert bench.get() == first
    bench("NACK", first)
    assert bench.get_all() == [other, first, second]


def test_without_the_policy_groups_mean_nothing(bench: Bench) -> None:
    ids = [add(bench, group) for group in "aaabbc"]
    assert bench.get_all() == ids
    assert queue_of(bench).groups is None


@pytest.mark.parametrize("groups", ["fair", "fifo"])
def test_a_queue_follows_its_policy_from_its_first_job_on(bench: Bench, groups: str) -> None:
    set_policy(bench, groups=groups)
    noisy = [add(bench, "noisy") for _ in range(5_000)]
    quiet = add(bench, "quiet")
    assert bench.get_all(count=2) == [noisy[0], quiet]


def test_no_worker_hears_that_there_is_nothing_while_a_group_of_a_long_queue_is_free(
    bench: Bench,
) -> None:
    first, *_ = [add(bench, "noisy") for _ in range(5_000)]
    quiet = add(bench, "quiet")
    set_policy(bench, groups="fifo")
    assert bench.get() == first
    assert bench.get() == quiet


def test_queues_that_nobody_uses_follow_a_new_policy_soon(bench: Bench) -> None:
    for number in range(500):
        bench.add(f"q{number}", "b", "GROUP", "a")
    set_policy(bench, name=b"q*", groups="fair")
    bench.advance(1)
    queues = bench.node.queues.by_name
    assert all(queue.grouped and not queue.move_some() for queue in queues.values())


@pytest.mark.parametrize("count", [2, 511, 512, 513, 5_000])
def test_jobs_that_are_there_move_into_groups_and_out_again(bench: Bench, count: int) -> None:
    ids = [add(bench, "noisy", "PRIORITY", i % 3) for i in range(count)]
    in_order = [ids[i] for priority in (2, 1, 0) for i in range(count) if i % 3 == priority]
    quiet = add(bench, "quiet")
    set_policy(bench, groups="fair")
    assert bench.get() == in_order[0]
    bench.advance(1)
    queue = queue_of(bench)
    assert queue.groups is not None
    assert queue.groups.length == queue.length == count
    assert quiet in (bench.get(), bench.get())
    set_policy(bench)
    bench.advance(2)
    assert queue.groups is None
    bench.node.cron(bench.now)
    assert not bench.node.limits.needed
    assert bench("ENQUEUE", in_order[0], in_order[1], quiet) >= 2  # type: ignore[operator]
    assert bench.get_all() == [*in_order, quiet]


def test_moving_jobs_into_groups_and_out_again_does_not_count_them_as_new(bench: Bench) -> None:
    for index in range(600):
        add(bench, "ab"[index % 2])
    size = queue_of(bench).bytes_queued() // 600
    set_policy(bench, groups="fair")
    assert bench.get() is not None
    bench.advance(1)
    set_policy(bench)
    bench.advance(1)
    assert queue_of(bench).groups is None
    assert queue_of(bench).bytes_queued() == 599 * size > 0
    fields = bench.queue()
    assert (fields[b"len"], fields[b"jobs-in"], fields[b"jobs-out"]) == (599, 600, 1)


def test_with_fair_groups_none_waits_for_a_job_that_somebody_works_on(bench: Bench) -> None:
    fair(bench)
    first, second = add(bench, "a"), add(bench, "a")
    bench("WORKING", first)
    assert bench.get_all() == [second]


def test_a_new_queue_is_in_groups_from_the_next_turn_on(bench: Bench) -> None:
    fair(bench)
    add(bench, "a")
    bench.advance(0.1)
    assert bench.node.limits.grouping._moving == {}


def test_moving_takes_some_turns(bench: Bench) -> None:
    for _ in range(5_000):
        add(bench, "noisy")
    add(bench, "quiet")
    set_policy(bench, groups="fair")
    bench.get()
    groups = groups_of(bench)
    assert groups.length < 1_500
    bench.advance(1)
    assert groups.length == queue_of(bench).length == 5_000


def test_what_is_deleted_while_it_moves(bench: Bench) -> None:
    ids = [add(bench, "ab"[i % 2]) for i in range(3_000)]
    set_policy(bench, groups="fair")
    assert bench.get() == ids[0]
    assert bench("DELJOB", ids[1], ids[2_999]) == 2
    bench.advance(1)
    assert bench("DELJOB", ids[2], ids[2_998]) == 2
    queue = queue_of(bench)
    assert queue.groups is not None
    assert queue.length == queue.groups.length == 2_995
    assert sorted(bench.get_all()) == sorted({*ids} - {ids[0], ids[1], ids[2], *ids[-2:]})


def test_groups_are_counted_in_the_memory_and_forgotten(bench: Bench) -> None:
    fair(bench)
    for index in range(100):
        add(bench, f"g{index}")
    assert bench.get() is not None
    used = bench.node.memory.used
    for id in bench.get_all():
        bench("DELJOB", id)
    assert used - bench.node.memory.used > 99 * GROUP_OVERHEAD
    groups = groups_of(bench)
    assert groups.by_name == {}


def test_a_group_that_lost_its_jobs_is_not_passed_again_and_again(bench: Bench) -> None:
    fair(bench)
    busy = [add(bench, "busy") for _ in range(2)]
    for id in [add(bench, f"g{number}") for number in range(10)]:
        bench("CANCEL", id)
    assert list(groups_of(bench).by_name) == [b"busy"]
    assert bench.node.memory.used == bench.counted_memory()
    late = add(bench, "g1")
    assert bench.get_all() == [busy[0], late, busy[1]]


def test_qpeek_shows_them_in_turn_and_takes_none(bench: Bench) -> None:
    fair(bench)
    first = add(bench, "")
    assert bench.get() == first
    a1, a2, a3 = (add(bench, "a") for _ in range(3))
    b1 = add(bench, "b")
    assert Bench.ids(bench("QPEEK", "q", 10)) == [a1, b1, a2, a3]
    assert Bench.ids(bench("QPEEK", "q", -2)) == [a3, b1]
    assert bench.queue()[b"len"] == 4


def test_qpurge_and_flush_forget_them(bench: Bench) -> None:
    fair(bench)
    for group in "abc":
        add(bench, group)
    assert bench.get() is not None
    bench.send(bench.me, "QPURGE", "q")
    bench.advance(0.1)
    assert bench.replies(bench.me) == [2]
    add(bench, "a")
    bench("DEBUG", "FLUSHALL")
    assert bench.node.memory.used == 0
    id = add(bench, "a")
    assert bench.get() == id


def test_show_and_jscan_know_the_group(bench: Bench) -> None:
    one, two, plain = add(bench, "a"), add(bench, "b"), add(bench, "")
    assert bench.show(one)[b"group"] == b"a"
    assert b"group" not in bench.show(plain)
    assert bench("JSCAN", "GROUP", "b") == [b"0", [two]]
    assert bench("JSCAN", "GROUP", "b", "HEADER", "x", "y") == [b"0", []]


def test_a_dead_letter_keeps_its_group(bench: Bench) -> None:
    set_policy(bench, attempts=1, dead=b"dead")
    add(bench, "a")
    id = bench.get()
    assert id is not None
    bench("NACK", id)
    dead = bench.get("dead")
    assert dead is not None
    assert bench.show(dead)[b"group"] == b"a"


@pytest.mark.parametrize(
    "options",
    [["GROUP"], ["GROUP", ""], ["GROUP", "a", "GROUP", "b"], ["GROUP", "x" * 1_025]],
)
def test_wrong_groups_are_refused(bench: Bench, options: list[str]) -> None:
    assert "ERR" in bench.error("ADDJOB", "q", "b", 0, *options)
    assert bench.node.store.jobs.count == 0


# ---- fifo -------------------------------------------------------------------------------------


def test_one_job_of_a_group_at_a_time(bench: Bench) -> None:
    fifo(bench)
    a1, a2, b1 = add(bench, "a"), add(bench, "a"), add(bench, "b")
    assert bench.get_all() == [a1, b1]
    waiting = bench.block()
    bench("ACKJOB", b1)
    assert waiting.blocked
    bench("ACKJOB", a1)
    assert bench.got(waiting) == a2


@pytest.mark.parametrize("ending", ["ACKJOB", "FASTACK", "DELJOB", "CANCEL"])
def test_the_next_comes_when_the_first_has_ended(bench: Bench, ending: str) -> None:
    fifo(bench)
    first, second = add(bench, "a"), add(bench, "a")
    assert bench.get_all() == [first]
    assert bench(ending, first) == 1
    assert bench.get_all() == [second]


def test_what_comes_back_is_the_first(bench: Bench) -> None:
    fifo(bench)
    first, second = add(bench, "a", "RETRY", 10), add(bench, "a")
    assert bench.get() == first
    waiting = bench.block()
    bench.advance(11)  # the worker that had it died
    assert bench.got(waiting) == first
    bench("NACK", first)
    assert bench.get() == first
    waiting = bench.block()
    bench("NACK", first, "DELAY", 60)
    assert waiting.blocked
    bench.advance(61)
    assert bench.got(waiting) == first
    bench("ACKJOB", first)
    assert bench.get() == second


def test_a_dead_job_lets_the_next_one_go(bench: Bench) -> None:
    set_policy(bench, attempts=1, dead=b"dead", groups="fifo")
    first, second = add(bench, "a"), add(bench, "a")
    assert bench.get() == first
    bench("NACK", first)
    assert bench.get() == second


def test_an_expired_job_lets_the_next_one_go(bench: Bench) -> None:
    fifo(bench)
    first, second = add(bench, "a", "TTL", 10, "RETRY", 60), add(bench, "a")
    assert bench.get() == first
    waiting = bench.block()
    bench.advance(12)
    assert bench.got(waiting) == second


def test_what_is_delivered_at_most_once_holds_nobody_up(bench: Bench) -> None:
    fifo(bench)
    ids = [add(bench, "a", "RETRY", 0, "REPLICATE", 1) for _ in range(3)]
    assert bench.get_all() == ids


def test_it_is_no_longer_waited_for_when_the_policy_is_gone(bench: Bench) -> None:
    fifo(bench)
    first, second, third = add(bench, "a"), add(bench, "a"), add(bench, "a")
    assert bench.get() == first
    waiting = bench.block()
    set_policy(bench, groups="fair")
    bench.advance(1)
    assert bench.got(waiting) == second
    set_policy(bench)
    bench.advance(1)
    assert bench.get() == third
    bench("NACK", first)
    assert bench.get() == first


def test_a_group_is_remembered_while_one_of_its_jobs_is_out(bench: Bench) -> None:
    fifo(bench)
    first = add(bench, "a", "RETRY", 3_600)
    assert bench.get() == first
    bench.advance(1_000)
    second = add(bench, "a")
    assert bench.get() is None
    bench("ACKJOB", first)
    assert bench.get() == second


def test_limits_and_groups_together(bench: Bench) -> None:
    set_policy(bench, groups="fifo", active=2)
    a1, a2, b1, c1 = (add(bench, group) for group in "aabc")
    assert bench.get_all() == [a1, b1]
    bench("ACKJOB", b1)
    assert bench.get_all() == [c1]
    bench("ACKJOB", a1)
    assert bench.get_all() == [a2]


def test_qstat_and_info_say_what_waits(bench: Bench) -> None:
    fifo(bench)
    for group in "aabbc":
        add(bench, group)
    bench.get_all()
    bench.block()
    stat = bench.queue()
    assert (stat[b"groups"], stat[b"groups-waiting"]) == (2, 3)
    info = bench.info("queues")
    assert (info["queues_held_by_groups"], info["jobs_held_by_limits"]) == ("1", "2")


@pytest.mark.parametrize("seed", range(10))
def test_a_group_is_in_order_whatever_happens(seed: int) -> None:
    """Clients take, acknowledge and hand back jobs at random while the policy is set and
    deleted."""
    rng = random.Random(seed)
    bench = Bench(seed, jitter=0)
    fifo(bench)
    groups: dict[bytes, str] = {}
    out: list[bytes] = []
    done: dict[str, list[bytes]] = {}
    added: dict[str, list[bytes]] = {}
    for _ in range(600):
        step = rng.randrange(5)
        if step == 0:
            name = rng.choice("abcd")
            id = add(bench, name, "RETRY", 100_000, "TTL", 1_000_000)
            groups[id] = name
            added.setdefault(name, []).append(id)
        elif step == 1:
            id_or_none = bench.get()
            if id_or_none is not None:
                assert groups[id_or_none] not in [groups[id] for id in out]
                out.append(id_or_none)
        elif step == 2 and out:
            id = out.pop(rng.randrange(len(out)))
            bench("ACKJOB", id)
            done.setdefault(groups[id], []).append(id)
        elif step == 3 and out:
            bench("NACK", out.pop(rng.randrange(len(out))))
        else:
            bench.advance(rng.random())
    assert done
    for name, ids in done.items():
        assert ids == added[name][: len(ids)]


# ---- several nodes ----------------------------------------------------------------------------


def block_on(mesh: Mesh, index: int, count: int) -> list[Client]:
    clients = [mesh[index].client() for _ in range(count)]
    for client in clients:
        mesh[index].send(client, "GETJOB", "FROM", "q")
    return clients


def test_a_group_moves_to_the_workers_one_by_one() -> None:
    mesh = Mesh(3)
    set_policy(*mesh.nodes, groups="fifo")
    ids = [mesh.add(0, "GROUP", "a") for _ in range(4)]
    other = mesh.add(0, "GROUP", "b")
    workers = block_on(mesh, 1, 5)
    mesh.advance(3)
    got = [id for client in workers if not client.blocked for id in [mesh[1].got(client)]]
    assert sorted(got) == sorted([ids[0], other])
    for before, after in pairwise(ids):
        mesh[1]("ACKJOB", before)
        mesh.advance(0.1)
        (served,) = (client for client in workers if not client.blocked and client.out)
        assert mesh[1].got(served) == after


def test_a_noisy_group_does_not_keep_others_from_other_nodes() -> None:
    mesh = Mesh(2)
    set_policy(*mesh.nodes, groups="fair")
    for _ in range(300):
        mesh.add(0, "GROUP", "noisy")
    quiet = mesh.add(0, "GROUP", "quiet")
    workers = block_on(mesh, 1, 3)
    mesh.advance(3)
    assert quiet in [mesh[1].got(client) for client in workers if not client.blocked]


def test_a_worker_that_goes_on_after_its_time_holds_its_group(bench: Bench) -> None:
    fifo(bench)
    first, second = add(bench, "a", "RETRY", 10), add(bench, "a")
    assert bench.get() == first
    bench.advance(11)
    assert bench("WORKING", first) == 10
    assert bench.get() is None
    bench("ACKJOB", first)
    assert bench.get() == second


def test_nodes_do_not_wait_for_each_other_for_ever() -> None:
    mesh = Mesh(2)
    set_policy(*mesh.nodes, groups="fifo")
    ids = [mesh.add(index, "GROUP", "a", "RETRY", 20) for index in (0, 1, 0, 1)]
    got: list[bytes] = []
    workers = [(index, client) for index in (0, 1) for client in block_on(mesh, index, 6)]
    for _ in range(100):
        mesh.advance(1)
        for index, client in workers:
            if not client.blocked and client.out:
                id = mesh[index].got(client)
                got.append(id)
                mesh[index]("ACKJOB", id)
    assert {*got} == {*ids}


def test_what_lies_elsewhere_for_long_is_not_waited_for() -> None:
    mesh = Mesh(2)
    set_policy(*mesh.nodes, groups="fifo")
    first, second = (mesh.add(0, "GROUP", "a", "RETRY", 20) for _ in range(2))
    (worker,) = block_on(mesh, 1, 1)
    mesh.advance(1)
    assert mesh[1].got(worker) == first
    mesh[1]("NACK", first)
    mesh.settle()
    (here,) = block_on(mesh, 0, 1)
    mesh[0].node.federation.cron(mesh[0].now)
    mesh[1]("PAUSE", "q", "out")
    mesh.advance(5)
    assert here.blocked
    mesh.advance(60)
    assert mesh[0].got(here) == second


def test_a_job_that_was_queued_elsewhere_before_a_worker_got_it_holds_its_group() -> None:
    mesh = Mesh(2)
    set_policy(*mesh.nodes, groups="fifo")
    id = mesh.add(0, "GROUP", "a", "RETRY", 20)
    mesh[1]("ENQUEUE", id)
    assert mesh[0].get() == id
    mesh.settle()  # now node 0 hears of it
    urgent = mesh.add(0, "GROUP", "a", "PRIORITY", 5)
    assert mesh[0].get() is None
    mesh[0]("ACKJOB", id)
    assert mesh[0].get() == urgent


def test_the_oldest_job_and_the_bytes_of_all_groups(bench: Bench) -> None:
    fifo(bench)
    start = bench.now
    for group in "aab":
        add(bench, group, "PRIORITY", 1)
    bench.advance(5)
    add(bench, "b")
    assert bench.queue()[b"oldest-job-age"] == bench.now - start
    assert queue_of(bench).bytes_queued() == 4
    bench.get_all()
    assert bench.queue()[b"oldest-job-age"] == bench.now - start
    assert queue_of(bench).bytes_queued() == 2


def test_a_job_that_moves_to_another_queue_lets_the_next_one_go(bench: Bench) -> None:
    fifo(bench)
    first, second, third = (add(bench, "a") for _ in range(3))
    assert bench.get() == first
    bench("NACK", first, "DELAY", 100)
    assert bench.get() is None
    bench("UPDATEJOB", first, "QUEUE", "other")
    assert bench.get() == second
    assert groups_of(bench).number_held() == 1
    bench("UPDATEJOB", third, "QUEUE", "other")
    assert bench.number_queued() == 0
    assert bench.get("other") == third
