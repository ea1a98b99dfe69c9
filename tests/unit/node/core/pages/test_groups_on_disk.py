"""Jobs of queues with groups lie on disk: they come in the turns and the order of their groups."""

import random

import pytest

from disque_trio.node.core.pages.pages import READ, REBUILD, Order
from disque_trio.node.core.queues.group_lanes import LANES_A_LOOK
from disque_trio.node.core.queues.grouping import JobGroups
from tests.support.node_bench import Bench
from tests.support.paged import PagedBench
from tests.support.paged_mesh import PagedMesh
from tests.support.policies import set_policy


def add(bench: Bench, group: str, *options: str | int) -> bytes:
    return bench.add("q", f"of {group}", *(("GROUP", group) if group else ()), *options)


def filled(
    groups: str, count: int = 120, names: str = "aaab", above: int = 1, **more: int
) -> tuple[PagedBench, list[bytes], dict[bytes, str]]:
    """A node with ``count`` jobs in groups; their ids, and the group of each."""
    bench = PagedBench(above=above, jitter=0, **more)
    bench.node.journaling = True
    set_policy(bench, groups=groups)
    of: dict[bytes, str] = {}
    for number in range(count):
        name = names[number % len(names)]
        of[add(bench, name)] = name
    bench.settle()
    bench.settle()
    return bench, list(of), of


def lanes(bench: Bench) -> JobGroups:
    return bench.node.limits.grouping.groups[b"q"]


def by_group(ids: list[bytes], of: dict[bytes, str]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = {}
    for id in ids:
        found.setdefault(of[id], []).append(id)
    return found


def fair_order(ids: list[bytes], of: dict[bytes, str]) -> list[bytes]:
    """The order in which groups take turns."""
    waiting = by_group(ids, of)
    found = []
    while waiting:
        for name in list(waiting):
            found.append(waiting[name].pop(0))
            if not waiting[name]:
                del waiting[name]
    return found


def check_accounts(bench: PagedBench) -> None:
    queue = bench.node.queues.by_name.get(b"q")
    if queue is None:
        return
    assert bench.node.memory.used == bench.counted_memory() + bench.pages.taken
    assert queue.length == len(queue_jobs(bench)) + queue.on_disk()
    assert queue.on_disk() == bench.pages.jobs
    if queue.groups is not None:
        groups = lanes(bench)
        assert groups.length == sum(lane.length for lane in groups.queues())
        assert groups.filled == sum(lane.length > 0 for lane in groups.queues())


def queue_jobs(bench: Bench) -> list[bytes]:
    lines = bench.node.queues.by_name[b"q"].lines()
    return [job.id for line in lines for job in line]


def test_the_middle_of_each_group_goes_to_disk_and_comes_back_in_turn() -> None:
    bench, ids, of = filled("fair")
    assert bench.pages.jobs > 60
    assert {segment.group for segment in bench.pages.segments.values()} == {b"a", b"b"}
    check_accounts(bench)
    found = []
    while (id := bench.get()) is not None:
        found.append(id)
        check_accounts(bench)
    assert found == fair_order(ids, of)
    bench.settle()
    assert (bench.pages.jobs, bench.files, bench.pages.taken) == (0, {}, 0)


def test_one_getjob_waits_for_all_that_it_wants() -> None:
    bench, ids, of = filled("fair")
    assert bench.get_all(count=100) == fair_order(ids, of)[:100]


def test_a_waiting_client_gets_what_comes_from_disk() -> None:
    bench, ids, of = filled("fair", late=1)
    client = bench.client()
    found: list[bytes] = []
    while len(found) < len(ids):
        bench.send(client, "GETJOB", "FROM", "q")
        bench.settle()
        for reply in bench.replies(client):
            found += bench.ids(reply)
    assert found == fair_order(ids, of)


def test_fifo_groups_have_one_job_out_and_keep_their_order() -> None:
    bench, ids, of = filled("fifo")
    waiting = by_group(ids, of)
    while waiting:
        out = bench.get_all()
        assert sorted(of[id] for id in out) == sorted(waiting)
        for id in out:
            assert waiting[of[id]].pop(0) == id
            waiting = {name: left for name, left in waiting.items() if left}
            assert bench("ACKJOB", id) == 1
    bench.settle()
    check_accounts(bench)


def test_a_group_that_waits_for_a_job_holds_no_other_up_when_its_next_one_is_on_disk() -> None:
    bench, ids, of = filled("fifo", late=1)
    waiting = by_group(ids, of)
    first = bench.get()
    assert first == waiting["a"][0]
    # All that the group has in memory ends, so its next job is on disk, and nobody may have it.
    in_memory = set(queue_jobs(bench))
    assert bench("CANCEL", *[id for id in waiting["a"][1:] if id in in_memory])
    for id in waiting["b"]:
        assert bench.get() == id
        assert bench("ACKJOB", id) == 1
    assert bench.get() is None
    bench("ACKJOB", first)
    assert of[bench.get() or b""] == "a"


def test_a_damaged_file_holds_up_its_own_group_alone() -> None:
    bench, ids, of = filled("fair")
    waiting = by_group(ids, of)
    numbers = [one.number for one in bench.pages.segments.values() if one.group == b"a"]
    for number in numbers:
        bench.files[number] = b"x" * len(bench.files[number])
    perform, kept = bench.pages.perform, []

    def put_off(orders: list[Order]) -> None:
        for order in orders:
            (kept.append if order.kind == REBUILD else bench.orders.append)(order)

    bench.pages.perform = put_off
    found = bench.get_all(count=60)
    for order in kept:
        perform([order])
    bench.settle()
    assert set(waiting["b"]) <= set(found)
    bench.pages.perform = perform
    while (id := bench.get()) is not None:
        found.append(id)
    assert by_group(found, of) == waiting
    assert bench.pages.lost == 0
    assert bench.damaged


@pytest.mark.parametrize("groups", ["fair", "fifo"])
def test_jobs_that_are_nowhere_are_lost_and_the_others_of_their_group_come(groups: str) -> None:
    bench, ids, of = filled(groups)
    [segment] = [one for one in bench.pages.segments.values() if one.group == b"a"][:1]
    on_disk = bench.files[segment.number]
    bench.lost = {id for id in ids if id in on_disk}
    del bench.files[segment.number]
    found: list[bytes] = []
    while (id := bench.get()) is not None:
        found.append(id)
        bench("ACKJOB", id)
    assert by_group(found, of) == by_group([id for id in ids if id not in bench.lost], of)
    bench.settle()
    check_accounts(bench)


def test_jobs_that_end_on_disk_leave_their_group() -> None:
    bench, ids, of = filled("fair")
    reads = bench.pages.reads
    assert bench("ACKJOB", *ids[20:100]) == 80
    bench.settle()
    check_accounts(bench)
    assert bench.pages.reads == reads
    rest = ids[:20] + ids[100:]
    assert by_group(bench.get_all(), of) == by_group(rest, of)
    check_accounts(bench)


def test_a_group_is_forgotten_when_its_last_job_ends_on_disk() -> None:
    bench, _, of = filled("fair", names="a")
    ids = [add(bench, "b") for _ in range(60)]
    bench.settle()
    bench.settle()
    in_memory = set(queue_jobs(bench))
    assert bench("CANCEL", *[id for id in ids if id in in_memory])
    assert bench("CANCEL", *[id for id in ids if id not in in_memory])
    assert set(lanes(bench).by_name) == {b"a"}
    check_accounts(bench)
    assert bench.get_all() == list(of)


def test_commands_about_single_jobs_find_them() -> None:
    bench, ids, of = filled("fair")
    on_disk = [id for id in ids if id not in set(queue_jobs(bench))]
    shown, changed, returned = on_disk[10:40:10]
    assert bench.show(shown)[b"group"] == of[shown].encode()
    assert bench("UPDATEJOB", changed, "BODY", "other")
    assert bench("DEQUEUE", returned) == 1
    assert bench("ENQUEUE", returned) == 1
    bench.settle()
    found = bench.get_all()
    assert bench.show(changed)[b"body"] == b"other"
    assert by_group(found, of) == by_group(ids, of)
    check_accounts(bench)


def test_jobs_that_come_back_stand_in_the_order_of_their_group() -> None:
    bench, ids, of = filled("fair")
    taken = bench.get_all(count=50)
    bench.settle()
    assert bench("NACK", *taken) == 50
    bench.settle()
    bench.settle()
    assert by_group(bench.get_all(), of) == by_group(ids, of)


def test_priorities_have_their_own_segments_in_a_group() -> None:
    bench = PagedBench(above=1, jitter=0)
    set_policy(bench, groups="fair")
    ids = [add(bench, "a", "PRIORITY", number % 3) for number in range(150)]
    bench.settle()
    bench.settle()
    assert bench.pages.jobs > 60
    in_order = [ids[at] for priority in (2, 1, 0) for at in range(150) if at % 3 == priority]
    assert bench.get_all() == in_order


def test_qpeek_shows_the_jobs_in_turn() -> None:
    bench, ids, of = filled("fair")
    before = bench.pages.jobs
    assert bench.ids(bench("QPEEK", "q", 1000)) == fair_order(ids, of)
    backwards = [*by_group(ids, of)["a"][::-1], *by_group(ids, of)["b"][::-1]]
    assert bench.ids(bench("QPEEK", "q", -1000)) == fair_order(backwards, of)
    assert bench.pages.jobs == before
    assert bench.ids(bench("QPEEK", "q", 5)) == fair_order(ids, of)[:5]
    assert len(bench("JSCAN", "BUSYLOOP", "GROUP", "b")[1]) == 30
    assert bench.fields("QSTAT", "q", "FULL")[b"jobs-paged"] == before


def test_whole_queues_are_moved_and_emptied() -> None:
    bench, ids, of = filled("fair")
    assert bench("QMOVE", "q", "r", "COUNT", 90) == 90
    bench.settle()
    check_accounts_of_rest = bench.number_queued("r") + bench.number_queued("q")
    assert check_accounts_of_rest == len(ids)
    assert by_group(bench.ids(bench("QPEEK", "q", 1000)), of).keys() <= {"a", "b"}
    assert bench("QPURGE", "q") == 30
    bench.settle()
    assert (bench.number_queued(), lanes(bench).filled) == (0, 0)
    bench.get_all("r")
    bench.settle()
    assert (bench.pages.jobs, bench.files, bench.pages.taken) == (0, {}, 0)


def test_dead_letters_in_groups_are_sent_back() -> None:
    bench = PagedBench(above=1 << 30, jitter=0)
    set_policy(bench, name=b"q", attempts=1, dead=b"d")
    set_policy(bench, name=b"d", groups="fair")
    ids = [add(bench, "ab"[number % 2]) for number in range(100)]
    assert bench.get_all(count=100) == ids
    bench("NACK", *ids)
    bench.node.paging.set_above(1)
    bench.settle()
    bench.settle()
    assert bench.pages.jobs > 50
    bench.node.paging.set_above(None)
    assert bench("REDRIVE", "d") == 100
    assert (bench.number_queued("d"), bench.number_queued("q")) == (0, 100)


def test_flush_forgets_them() -> None:
    bench, _, _ = filled("fifo")
    bench("DEBUG", "FLUSHALL")
    bench.settle()
    assert (bench.pages.jobs, bench.files, bench.number_queued()) == (0, {}, 0)
    assert bench.node.memory.used == bench.counted_memory()
    assert bench.get_all() == []
    id = add(bench, "a")
    assert bench.get_all() == [id]


# ---- while the policy changes -----------------------------------------------------------------


def settle_all(bench: PagedBench) -> None:
    bench.settle()
    bench.advance(1)
    bench.settle()


def test_groups_that_are_switched_off_leave_one_line() -> None:
    bench, ids, _ = filled("fair")
    set_policy(bench)
    settle_all(bench)
    assert bench.node.queues.by_name[b"q"].groups is None
    check_accounts(bench)
    assert {segment.group for segment in bench.pages.segments.values()} <= {None}
    assert bench.get_all() == ids
    bench.settle()
    assert (bench.pages.jobs, bench.files, bench.pages.taken) == (0, {}, 0)


@pytest.mark.parametrize("groups", ["fair", "fifo"])
def test_jobs_on_disk_move_into_groups_that_are_switched_on(groups: str) -> None:
    bench, ids, of = filled("")
    assert bench.pages.jobs > 70
    set_policy(bench, groups=groups)
    settle_all(bench)
    settle_all(bench)
    check_accounts(bench)
    found: list[bytes] = []
    while (id := bench.get()) is not None:
        found.append(id)
        assert bench("ACKJOB", id) == 1
    assert by_group(found, of) == by_group(ids, of)
    assert found[:4] == fair_order(ids, of)[:4]


def test_jobs_that_wait_for_a_group_hold_up_no_others_of_a_line_on_disk() -> None:
    bench, ids, of = filled("", names="a", count=100)
    last = add(bench, "b")
    of[last] = "b"
    bench.settle()
    set_policy(bench, groups="fifo")
    assert bench.get() == ids[0]
    assert bench.get() == last


def test_nothing_moves_into_groups_before_what_is_ahead_of_it_on_disk() -> None:
    bench, ids, of = filled("")
    set_policy(bench, groups="fair")
    perform, reads = bench.pages.perform, []

    def put_off(orders: list[Order]) -> None:
        for order in orders:
            (reads if order.kind == READ else bench.orders).append(order)

    bench.pages.perform = put_off
    clients = [bench.client() for _ in range(30)]
    for client in clients:
        bench.send(client, "GETJOB", "FROM", "q")
        bench.settle()
    bench.pages.perform = perform
    perform(reads)
    bench.settle()
    taken = [id for one in clients for reply in bench.replies(one) for id in bench.ids(reply)]
    assert len(taken) == 30
    taken += bench.get_all()
    assert sorted(taken) == sorted(ids)
    assert by_group(taken, of) == by_group(ids, of)


def test_fifo_becomes_fair_and_fair_fifo() -> None:
    bench, ids, of = filled("fifo")
    first = bench.get_all()
    assert len(first) == 2
    set_policy(bench, groups="fair")
    assert bench.get_all(count=40) == fair_order(ids, of)[2:42]
    set_policy(bench, groups="fifo")
    assert len(bench.get_all()) == 2
    check_accounts(bench)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_or_dark_while_policies_change(seed: int) -> None:
    rng = random.Random(seed)
    bench = PagedBench(
        above=1, jitter=0, late=seed if seed % 2 else None, most=rng.choice((2, 4, 8))
    )
    bench.node.journaling = True
    left: set[bytes] = set()
    for _ in range(150):
        what = rng.randrange(10)
        if what < 5:
            for _ in range(rng.choice((1, 20))):
                options = ("PRIORITY", 5) if rng.random() < 0.1 else ()
                left.add(add(bench, rng.choice(("", "a", "a", "a", "b", "c")), *options))
        elif what < 7:
            for id in bench.get_all(count=rng.choice((1, 5, 40))):
                if rng.random() < 0.7:
                    assert bench("ACKJOB", id) == 1
                    left.remove(id)
                else:
                    assert bench("NACK", id) == 1
        elif what < 8 and left:
            some = rng.sample(sorted(left), min(len(left), 5))
            if rng.random() < 0.5:
                assert bench("CANCEL", *some) == len(some)
                left.difference_update(some)
            else:
                assert bench.show(some[0])[b"id"] == some[0]
        else:
            set_policy(bench, groups=rng.choice(("", "fair", "fifo")))
        bench.settle()
        bench.advance(0.05)
        check_accounts(bench)
    found: set[bytes] = set()
    for _ in range(1000):
        some_more = bench.get_all()
        found.update(some_more)
        if some_more:
            bench("ACKJOB", *some_more)
        elif not bench.number_queued():
            break
        bench.advance(0.1)
    assert found == left
    bench.settle()
    assert (bench.pages.jobs, bench.files, bench.pages.taken) == (0, {}, 0)


# ---- many groups ------------------------------------------------------------------------------


def test_thousands_of_groups_take_few_bytes_a_job() -> None:
    bench = PagedBench(above=1, jitter=0, most=512)
    set_policy(bench, groups="fair")
    pages = bench.pages
    pages.index.bits = 8
    for number in range(8_000):
        add(bench, str(number % 32))
    for _ in range(4):
        bench.settle()
    assert pages.jobs > 3_000
    assert pages.taken / pages.jobs < 40


def test_queues_with_very_many_groups_do_not_keep_others_from_the_disk() -> None:
    bench = PagedBench(above=1 << 30, jitter=0)
    set_policy(bench, groups="fair")
    for number in range(2 * LANES_A_LOOK + 10):
        add(bench, str(number))
    for _ in range(100):
        bench.add("r", "body")
    bench.node.paging.set_above(1)
    for _ in range(5):
        bench.advance(2)
        bench.settle()
    assert bench.node.queues.by_name[b"q"].on_disk() == 0
    assert bench.node.queues.by_name[b"r"].on_disk() > 60


# ---- other nodes ------------------------------------------------------------------------------


def test_other_nodes_get_them_in_the_order_of_their_groups() -> None:
    mesh = PagedMesh(2)
    for bench in mesh.nodes:
        set_policy(bench, groups="fifo")
    of: dict[bytes, str] = {}
    for number in range(100):
        name = "ab"[number % 2]
        of[add(mesh[0], name, "REPLICATE", 1)] = name
    mesh.send_to_disk(0)
    assert mesh[0].pages.jobs > 40
    found: list[bytes] = []
    client = mesh[1].client()
    while len(found) < 100:
        mesh[1].send(client, "GETJOB", "FROM", "q")
        for _ in range(20):
            mesh.advance(0.1)
            replies = mesh[1].replies(client)
            if replies:
                break
        got = [id for reply in replies for id in mesh[1].ids(reply)]
        assert got
        found += got
        assert mesh[1]("ACKJOB", *got) == len(got)
        mesh.settle()
    assert by_group(found, of) == by_group(list(of), of)


def test_a_group_at_its_limit_holds_no_other_up_whose_next_job_is_on_disk() -> None:
    bench, ids, of = filled("fair", late=1)
    set_policy(bench, groups="fair", group_active=2)
    waiting = by_group(ids, of)
    left = len(ids)
    while left:
        out = bench.get_all()
        counts = {name: sum(of[id] == name for id in out) for name in waiting}
        assert counts == {name: min(2, len(ones)) for name, ones in waiting.items()}
        for id in out:
            assert waiting[of[id]].pop(0) == id
        assert bench("ACKJOB", *out) == len(out)
        left -= len(out)
        check_accounts(bench)
    bench.settle()
    assert (bench.pages.jobs, bench.files, bench.pages.taken) == (0, {}, 0)
