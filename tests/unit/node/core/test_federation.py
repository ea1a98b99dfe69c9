"""Jobs move to the nodes where their consumers are."""

from itertools import pairwise, product

import pytest

from disque_trio.node.core.federation.federation import MAX_POLLED_SIZE
from disque_trio.node.core.queues.need_jobs import Imports
from tests.support.mesh import Mesh


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def test_a_blocked_client_is_served_with_a_job_of_another_node(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 1)
    waiting = mesh[1].block("q")
    mesh.settle()
    assert mesh[1].got(waiting) == id


def test_a_client_that_waits_takes_one_job_from_another_node(mesh: Mesh) -> None:
    for _ in range(8):
        mesh.add(0, "REPLICATE", 1)
    waiting = mesh[1].block("q")
    mesh.settle()
    mesh[1].got(waiting)
    assert [bench.number_queued() for bench in mesh.nodes] == [7, 0, 0]


@pytest.mark.parametrize("copies", [1, 3])
def test_a_job_that_comes_later_is_given_at_once(mesh: Mesh, copies: int) -> None:
    waiting = mesh[1].block("q")
    mesh.advance(29)
    id = mesh.add(0, "REPLICATE", copies)
    assert mesh[1].got(waiting) == id
    mesh.advance(3)
    mesh.add(0, "REPLICATE", copies)
    assert mesh[0]("QLEN", "q") == 1  # nobody waits any more


def test_clients_here_come_before_other_nodes_that_asked(mesh: Mesh) -> None:
    mesh[1].block("q")
    mesh.settle()
    waiting = mesh[0].block("q")
    mesh.settle()
    id = mesh.add(0, "REPLICATE", 1)
    assert mesh[0].got(waiting) == id


def test_a_question_that_is_long_over_gets_nothing(mesh: Mesh) -> None:
    waiting = mesh[1].block("q")
    mesh.settle()
    mesh[1].disconnect(waiting)
    mesh.advance(32)
    mesh.add(0, "REPLICATE", 1)
    assert mesh[0]("QLEN", "q") == 1


def test_a_job_does_not_go_to_and_fro_between_nodes_that_poll(mesh: Mesh) -> None:
    for index in (0, 1, 2):
        assert mesh[index].get() is None
        mesh.settle()
    mesh.add(0, "REPLICATE", 1)
    assert len(mesh.told("given")) == 1


def test_when_the_question_was_lost_the_next_one_brings_the_job(mesh: Mesh) -> None:
    mesh.lose = lambda source, target, packet: True
    waiting = mesh[1].block("q")
    mesh.advance(0.1)
    mesh.lose = lambda source, target, packet: False
    id = mesh.add(0, "REPLICATE", 1)
    mesh.advance(5)
    assert mesh[1].got(waiting) == id


def test_polling_clients_are_served_as_well(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 1)
    assert mesh[1].get() is None
    mesh.settle()
    assert mesh[1].get() == id


def test_the_job_is_held_here_then_and_its_end_is_known_everywhere(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2)
    other = next(i for i in mesh.holders(id) if i)
    third = 3 - other
    mesh[third].node.journaling = True
    waiting = mesh[third].block("q")
    mesh.settle()
    assert mesh[third].got(waiting) == id
    assert id in mesh[third].node.journal[0]
    for i in (0, third):
        holders = mesh[i].show(id)[b"nodes-delivered"]
        assert isinstance(holders, list)
        assert set(holders) == set(mesh.ids)
    assert mesh[third]("ACKJOB", id) == 1
    mesh.settle()
    assert mesh.holders(id) == []


def test_an_at_most_once_job_moves_and_leaves_nothing_behind(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 1, "RETRY", 0)
    mesh[0].node.journaling = True
    waiting = mesh[1].block("q")
    mesh.settle()
    assert mesh[1].got(waiting) == id
    assert mesh.holders(id) == [1]
    assert mesh[0].node.journal[0].startswith(b"*2\r\n$6\r\nDELJOB")
    mesh.advance(1000)
    assert all(bench.get() is None for bench in mesh.nodes)


def test_half_of_a_short_queue_is_given_and_no_more_than_asked_of_a_long_one(mesh: Mesh) -> None:
    for count, asked, given in ((1, 5, 1), (8, 5, 4), (30, 5, 5), (900, 1_000_000, 400)):
        for _ in range(count):
            mesh.add(0, "REPLICATE", 1)
        packet = mesh[1].node.packets.about_queue(12, b"q", asked)
        mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
        mesh.settle()
        assert mesh[1]("QLEN", "q") == given
        assert mesh[0]("QLEN", "q") == count - given
        for bench in mesh.nodes:
            bench("DEBUG", "FLUSHALL")


@pytest.mark.parametrize("why", ["paused", "importing", "no connection"])
def test_nothing_is_given_when_it_is_needed_here_or_may_not_go(mesh: Mesh, why: str) -> None:
    for _ in range(10):
        mesh.add(0, "REPLICATE", 1)
    queue = mesh[0].node.queues.by_name[b"q"]
    if why == "paused":
        mesh[0]("PAUSE", "q", "out")
    elif why == "importing":
        queue.imports = Imports()
        queue.imports.want(mesh[0].now)
        for _ in range(10):
            queue.imports.received(mesh.ids[2], mesh[0].now, queue.jobs_out)
    else:
        mesh.peers[0].away.add(mesh.ids[1])
    packet = mesh[1].node.packets.about_queue(12, b"q", 5)
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    mesh.settle()
    assert mesh[0]("QLEN", "q") == 10


def test_a_node_that_imports_still_gives_of_its_own(mesh: Mesh) -> None:
    for _ in range(10):
        mesh.add(0, "REPLICATE", 1)
    queue = mesh[0].node.queues.by_name[b"q"]
    imports = queue.imports = Imports()
    imports.want(mesh[0].now)
    for _ in range(4):
        imports.received(mesh.ids[2], mesh[0].now, queue.jobs_out)
    packet = mesh[1].node.packets.about_queue(12, b"q", 5)
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    mesh.settle()
    assert mesh[1]("QLEN", "q") == 3


def test_a_leaving_node_asks_for_nothing_and_gives(mesh: Mesh) -> None:
    mesh.add(0, "REPLICATE", 1)
    mesh[1].node.set_leaving(True)
    assert mesh[1].error("GETJOB", "FROM", "q").startswith("LEAVING ")
    assert mesh[1].get() is None
    assert mesh.told("needjobs") == []
    mesh[0].node.set_leaving(True)
    waiting = mesh[2].block("q")
    mesh.settle()
    mesh[2].got(waiting)


def test_an_acknowledged_job_is_never_revived(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 2)
    other = next(i for i in mesh.holders(id) if i)
    packet = mesh[other].node.packets.about_queue(12, b"q", 5)
    mesh[0].node.receive(mesh.ids[other], packet, mesh[0].now)
    assert mesh[other]("ACKJOB", id) == 1
    mesh.settle()
    assert mesh[other].get() is None
    mesh.advance(5)
    assert mesh.holders(id) == []


def test_while_jobs_stream_in_the_next_are_asked_for_before_a_client_waits(mesh: Mesh) -> None:
    for _ in range(2000):
        mesh.add(0, "REPLICATE", 1)
    got = 0
    for _ in range(200):
        found = mesh[1].get_all(count=1)
        got += len(found)
        mesh.settle()
    assert got > 150
    stat = mesh[1].queue()
    assert stat[b"import-from"] == [mesh.ids[0]]
    rate = stat[b"import-rate"]
    assert isinstance(rate, int)
    assert rate > 0
    assert mesh[1]("QSCAN", "IMPORTRATE", rate, "BUSYLOOP") == [b"0", [b"q"]]
    assert mesh[1]("QSCAN", "IMPORTRATE", rate + 1, "BUSYLOOP") == [b"0", []]
    mesh.advance(6)
    assert mesh[1].queue()[b"import-rate"] == 0


def test_questions_to_all_slow_down_to_one_in_30_s(mesh: Mesh) -> None:
    mesh[1].block("q")
    mesh.told()
    times: list[int] = []
    for _ in range(1500):
        mesh.advance(0.1)
        if mesh.told("needjobs"):
            times.append(mesh[1].now)
    gaps = [round((b - a) / 1000) for a, b in pairwise(times)]
    assert gaps[:3] == [8, 16, 30]
    assert set(gaps[3:]) <= {30}


def test_a_job_that_was_moved_is_not_queued_by_its_other_holders_meanwhile() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 10, "TTL", 1000)
    other = next(i for i in mesh.holders(id) if i)
    third = 3 - other
    mesh.advance(5)
    packet = mesh[third].node.packets.about_queue(12, b"q", 5)
    mesh[0].node.receive(mesh.ids[third], packet, mesh[0].now)
    mesh.settle()
    for _ in range(60):
        mesh.advance(1)
        assert [i for i, state in enumerate(mesh.states(id)) if state == "queued"] == [third]


def test_who_gives_a_job_waits_nearly_as_long_as_who_gets_it() -> None:
    """Although the retry time is short: a client may get the job in a moment."""
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 2)
    mesh.advance(0.4)
    waiting = mesh[1].block("q")
    mesh.settle()
    assert mesh[1].got(waiting) == id
    job = mesh[0].node.store.jobs.get(id)
    assert job is not None
    assert job.qtime - mesh[0].now >= 1_800


def test_only_the_node_whose_client_has_the_job_says_so() -> None:
    # The news of a node that gave it away could overtake it, and take it out of a queue again.
    mesh = Mesh(3)
    id = mesh.add(0, "RETRY", 10)
    mesh.advance(6)  # the others would soon queue it
    mesh.told()
    waiting = mesh[1].block("q")
    mesh.settle()
    assert mesh[1].got(waiting) == id
    assert all(source == 1 for source, _, _ in mesh.told("working"))


def test_all_nodes_hear_that_a_client_waits_not_only_those_that_gave_jobs_lately(
    mesh: Mesh,
) -> None:
    mesh[1].block("q")
    mesh.advance(1)
    queue = mesh[1].node.queues.by_name[b"q"]
    imports = queue.imports
    assert imports is not None
    imports.received(mesh.ids[0], mesh[1].now, 0)
    imports.told_waits = False  # as while its clients had all that they may have in hand
    mesh.told()
    mesh[1].node.federation.runs_low(queue, imports)
    assert {target for _, _, target in mesh.told("needjobs")} == {0, 2}


def test_questions_stop_when_nobody_waits(mesh: Mesh) -> None:
    waiting = mesh[1].block("q")
    mesh.advance(1)
    mesh[1].disconnect(waiting)
    mesh.told()
    mesh.advance(100)
    assert mesh.told("needjobs") == []


def test_the_import_rate_is_of_the_last_seconds() -> None:
    imports = Imports()
    assert imports.rate(1_000_000) == 0
    for i in range(100):
        imports.received(b"a", 1_000_000 + 10 * i, 0)
    assert 90 <= imports.rate(1_001_000) <= 110
    for i in range(200):
        imports.received(b"a", 1_001_000 + 10 * i, 0)
    assert 90 <= imports.rate(1_003_000) <= 130
    assert imports.rate(1_010_000) == 0


def test_imported_jobs_count_until_they_are_taken(mesh: Mesh) -> None:
    imports = Imports()
    for _ in range(3):
        imports.received(b"a", 1_000_000, 10)
    assert imports.left(1_000_000, 10) == 3
    assert imports.left(1_000_000, 12) == 1
    imports.received(b"a", 1_000_500, 12)
    assert imports.left(1_000_500, 12) == 2
    assert imports.left(1_000_500, 20) == 0
    assert imports.left(1_006_000, 12) == 0


def test_a_node_only_passes_jobs_on_until_its_clients_want_or_take_some() -> None:
    imports = Imports()
    imports.want(1_000_000)
    assert not imports.passes_on
    imports.gave(1)
    assert imports.passes_on
    imports.want(1_000_010)
    assert not imports.passes_on
    imports.gave(2)
    assert imports.is_wanted(1_000_020, 2)
    assert imports.passes_on
    assert imports.is_wanted(1_000_020, 3)
    assert not imports.passes_on


def test_imported_jobs_are_kept_for_twice_the_time_from_poll_to_poll() -> None:
    imports = Imports()
    assert not imports.is_wanted(1_000_000, 0)
    imports.want(1_000_000)
    assert imports.is_wanted(1_000_150, 0)  # it may be a poller
    assert not imports.is_wanted(1_000_151, 0)
    for poll in range(2):  # two clients poll together
        imports.want(1_001_000 + poll)
    assert imports.is_wanted(1_002_990, 0)
    assert not imports.is_wanted(1_003_002, 0)
    assert imports.is_wanted(1_003_002, 1)  # but they take some
    imports.gave(2)
    assert not imports.is_wanted(1_006_000, 2)
    imports.want(1_000_000)  # the clock was set back
    assert not imports.is_wanted(1_000_151, 2)


def test_each_of_three_waiting_nodes_gets_one_of_three_jobs() -> None:
    for seed in range(10):
        mesh = Mesh(3, seed, jitter=None)
        for _ in range(3):
            mesh.add(0, "REPLICATE", 1)
        waiting = [mesh[i].block("q") for i in (1, 2)]
        mesh.settle()
        waiting.append(mesh[0].block("q")) if mesh[0]("QLEN", "q") == 0 else mesh[0].get()
        mesh.advance(0.1)
        assert not any(client.blocked for client in waiting)


@pytest.mark.parametrize("c_node", [False, True])
def test_what_nobody_took_here_is_given_to_who_asked(mesh: Mesh, c_node: bool) -> None:
    for _ in range(8):
        mesh.add(0, "REPLICATE", 1)
    packet = mesh[1].node.packets.about_queue(12, b"q", 8)
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    mesh.settle()
    assert mesh[1]("QLEN", "q") == 4
    mesh.cut(0, 2)
    if c_node:
        mesh.peers[2].as_c = set(mesh.ids)  # it does not say that a client waits
    waiting = mesh[2].block("q")
    mesh.advance(0.2)
    mesh[2].got(waiting)


def test_the_end_of_a_pause_offers_the_jobs(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 1)
    mesh[0]("PAUSE", "q", "out")
    waiting = mesh[1].block("q")
    mesh.settle()
    mesh[0]("PAUSE", "q", "none")
    mesh.settle()
    assert mesh[1].got(waiting) == id


def test_clients_that_wait_are_served_though_the_jobs_of_their_node_are_held_back(
    mesh: Mesh,
) -> None:
    mesh[1]("QSET", "q", "GROUPS", "fifo")
    mesh.settle()
    for group in ("a", "a"):
        mesh.add(1, "REPLICATE", 1, "GROUP", group)
    mesh[1].get()
    waiting = [mesh[1].block("q") for _ in range(2)]
    mesh.settle()
    ids = []
    for group in ("b", "c"):
        mesh.advance(0.2)
        ids.append(mesh.add(0, "REPLICATE", 1, "GROUP", group))
        mesh.settle()
    assert [mesh[1].got(client) for client in waiting] == ids


def test_a_node_that_cannot_write_gives_no_jobs_and_asks_for_none(mesh: Mesh) -> None:
    for _ in range(10):
        mesh.add(0, "REPLICATE", 1, "RETRY", 0)
    mesh[0].node.set_trouble(False, "disk full")
    waiting = mesh[1].block("q")
    mesh.settle()
    assert mesh[0]("QLEN", "q") == 10
    mesh[2].node.set_trouble(False, "disk full")
    mesh.told()
    mesh[2].node.federation.need_jobs(mesh[2].node.queues.create(b"q"))
    assert mesh.told("needjobs") == []
    mesh[0].node.set_trouble(False, "")
    mesh.advance(6)
    assert not waiting.blocked


def test_names_that_no_packet_can_hold_are_not_sent(mesh: Mesh) -> None:
    name = "n" * (1 << 20)
    assert mesh[1].get(name) is None
    mesh[1]("PAUSE", name, "in", "bcast")
    assert mesh.told() == []


def test_questions_that_are_over_take_no_memory(mesh: Mesh) -> None:
    for n in range(20):
        mesh[1].get(f"q{n}")
    mesh[1].get("x" * 2000)
    mesh.settle()
    assert len(mesh[0].node.exports.asked_for) == 20
    mesh.advance(40)
    mesh[0].node.cron(mesh[0].now)
    mesh.advance(40)
    mesh[0].node.cron(mesh[0].now)
    assert not mesh[0].node.exports.asked_for


def test_a_node_that_leaves_gets_nothing_that_it_asked_for_before(mesh: Mesh) -> None:
    mesh[1].block("q")
    mesh.settle()
    mesh.peers[0].reachable.remove(mesh.ids[1])
    mesh.add(0, "REPLICATE", 1)
    assert mesh[0]("QLEN", "q") == 1


def test_fast_consumers_are_never_without_jobs_while_packets_are_under_way(mesh: Mesh) -> None:
    for _ in range(2000):
        mesh.add(0, "REPLICATE", 1)
    missed = 0
    for tick in range(300):
        missed += sum(mesh[1].get() is None for _ in range(3))
        for bench in mesh.nodes:
            bench.now += 1
        if tick % 5 == 0:
            mesh.settle()
        if tick == 100:
            missed = 0  # the rate is known by now
    assert missed == 0


def test_no_more_is_asked_for_ahead_than_goes_in_a_moment() -> None:
    cases = ((10, 10, 0), (100, 100, 2), (1000, 100, 25), (4000, 200, 100), (100_000, 400, 200))
    for rate, count, low in cases:
        imports = Imports()
        for i in range(rate):
            imports.received(b"a", 1_000_000 + i * 1000 // rate, 0)
        assert imports.ask_sources(1_001_000, True) == count
        assert imports.low == 0  # it is on its way
        assert not imports.asks_ahead(1_001_000)
        imports.received(b"a", 1_001_001, 0)
        assert imports.low == low
        assert imports.asks_ahead(1_001_001)


def ask_in_vain(mesh: Mesh, index: int, how: str) -> None:
    """Let a client of a node ask for jobs of q, and give up."""
    client = mesh[index].client()
    if how.startswith("polls"):
        mesh[index].send(client, "GETJOB", "NOHANG", "FROM", "q")
    else:
        mesh[index].send(client, "GETJOB", "TIMEOUT", 100, "FROM", "q")
        if how == "leaves":
            mesh[index].disconnect(client)
    mesh.settle()


@pytest.mark.parametrize("size", [3, 5, 7])
@pytest.mark.parametrize("later", [0.15, 10])
@pytest.mark.parametrize("how", ["waits", "polls", "leaves"])
def test_a_waiting_worker_has_a_job_at_once_whoever_asked_before(
    size: int, later: float, how: str
) -> None:
    for added in range(size):
        mesh = Mesh(size)
        for index in range(size):
            if index != 1:
                ask_in_vain(mesh, index, how)
        mesh.advance(later)
        id = mesh.add(added, "REPLICATE", 1, "RETRY", 600)
        worker = mesh[1].client()
        mesh[1].send(worker, "GETJOB", "TIMEOUT", 30_000, "FROM", "q")
        mesh.advance(0.1)
        assert mesh[1].replies(worker) == [[[b"q", id, b"body"]]]


@pytest.mark.parametrize("size", [3, 5, 7])
@pytest.mark.parametrize("how", ["waits", "polls", "leaves"])
def test_a_caller_has_its_result_at_once_wherever_the_worker_is(size: int, how: str) -> None:
    mesh = Mesh(size)
    for caller in range(size):
        server = (caller + 1 + caller % (size - 1)) % size
        for index in range(size):
            if index != server:
                ask_in_vain(mesh, index, how)
        mesh.advance(10)
        worker, client = mesh[server].client(), mesh[caller].client()
        mesh[server].send(worker, "GETJOB", "TIMEOUT", 30_000, "FROM", "q")
        mesh.settle()
        id = mesh.add(caller, "REPLICATE", 1 + caller % 2, "RETRY", 600)
        mesh[caller].send(client, "WAITJOB", 30_000, id)
        mesh.advance(0.05)
        assert mesh[server].replies(worker) == [[[b"q", id, b"body"]]]
        assert mesh[server]("ACKJOB", id, "RESULT", "42") == 1
        mesh.advance(0.05)
        assert mesh[caller].replies(client) == [[[id, b"acked", b"42"]]]


def test_a_waiting_worker_has_the_next_job_at_once_too(mesh: Mesh) -> None:
    worker = mesh[1].client()
    for number in range(20):
        for index in (0, 2):
            ask_in_vain(mesh, index, "polls" if number % 2 else "waits")
        mesh.advance(0.15)
        mesh[1].send(worker, "GETJOB", "TIMEOUT", 30_000, "FROM", "q")
        mesh.settle()
        id = mesh.add(number % 3, "REPLICATE", 1, "RETRY", 600)
        mesh.advance(0.1)
        assert mesh[1].replies(worker) == [[[b"q", id, b"body"]]]


@pytest.mark.parametrize("every", [0.01, 0.5, 1])
def test_whoever_polls_has_a_job_within_two_polls(mesh: Mesh, every: float) -> None:
    id = mesh.add(2, "REPLICATE", 1, "RETRY", 600)
    polls = 0
    while True:
        mesh.settle()
        polls += 1
        if any(mesh[index].get() == id for index in (0, 1)):
            break
        mesh.advance(every)
    assert polls <= 2 or every == 0.01
    assert polls <= 12


@pytest.mark.parametrize("size", [3, pytest.param(7, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("how", "later"),
    [
        *product(["waits", "polls", "polls often", "leaves"], [0.15, 10]),
        ("polls", 0),
        ("polls often", 0),
        ("leaves", 0),
    ],
)
@pytest.mark.parametrize("where", [("FROM", "q"), ("PATTERN", "FROM", "q*")])
def test_a_worker_that_polls_has_a_job_soon_whoever_asked_before(
    size: int, how: str, later: float, where: tuple[str, ...]
) -> None:
    for added in range(size):
        mesh = Mesh(size)
        for _ in range(10 if how == "polls often" else 1):
            for index in range(size):
                if index != 1:
                    ask_in_vain(mesh, index, how)
            mesh.advance(0.01)
        mesh.advance(later)
        id = mesh.add(added, "REPLICATE", 1, "RETRY", 600)
        for _ in range(25):
            jobs = mesh[1]("GETJOB", "NOHANG", *where)
            if jobs is not None:
                break
            mesh.advance(0.01)
        assert jobs == [[b"q", id, b"body"]]
        # Each node asked each other one. What they asked for goes there once, not on and on.
        assert len(mesh.told("given")) <= size * size


@pytest.mark.parametrize("every", [0.3, 1, 2])
def test_of_two_that_poll_in_turn_one_has_a_job_soon(mesh: Mesh, every: float) -> None:
    id = mesh.add(2, "REPLICATE", 1, "RETRY", 600)
    for polls in range(10):
        if mesh[polls % 2].get() == id:
            break
        mesh.advance(every / 2)
    assert 0 < polls <= 4


def test_a_job_stays_where_it_came_if_nobody_asks_any_more() -> None:
    mesh = Mesh(5)
    for index in range(5):
        assert mesh[index].get() is None
        mesh.settle()
    mesh.advance(0.3)
    mesh.add(0, "REPLICATE", 1)
    mesh.advance(4)
    assert len(mesh.told("given")) == 1


@pytest.mark.parametrize("how", ["GETJOB", "CONSUME"])
def test_a_worker_that_goes_on_waiting_has_what_comes_long_after_the_last_job(
    mesh: Mesh, how: str
) -> None:
    worker = mesh[1].client()
    if how == "CONSUME":
        mesh[1].send(worker, "HELLO", 3)
        mesh[1].send(worker, "CONSUME", "q", "CREDIT", 1000)
    else:
        for _ in range(30):
            mesh[1].block("q")
    for _ in range(24):  # until all nodes are rarely asked
        mesh.add(0, "REPLICATE", 1, "RETRY", 600)
        mesh.advance(3)
    mesh.advance(8)
    mesh.add(0, "REPLICATE", 1, "RETRY", 600)
    mesh.advance(0.1)
    assert mesh[0]("QLEN", "q") == 0


def test_whose_client_waits_comes_before_nodes_that_poll(mesh: Mesh) -> None:
    assert mesh[2].get() is None
    mesh.settle()
    waiting = mesh[1].block("q")
    mesh.settle()
    id = mesh.add(0, "REPLICATE", 1)
    assert mesh[1].got(waiting) == id
    assert mesh.told("given") == [(0, "given", 1)]


@pytest.mark.parametrize("size", [3, 7])
def test_workers_that_wait_again_soon_have_a_job_within_100_ms_beside_pollers(size: int) -> None:
    mesh = Mesh(size)
    for number in range(3 * size):
        added, at, poller = number % size, number * 2 % size, (number + 1) % size
        early = mesh[at].client()
        mesh[at].send(early, "GETJOB", "TIMEOUT", 10, "FROM", "q")
        mesh.advance(0.03)
        assert mesh[poller].get() is None
        mesh.settle()
        id = mesh.add(added, "REPLICATE", 1, "RETRY", 600)
        worker = mesh[at].client()
        mesh[at].send(worker, "GETJOB", "TIMEOUT", 30_000, "FROM", "q")
        mesh.advance(0.09)
        assert mesh[at].replies(worker) == [[[b"q", id, b"body"]]]
        mesh[at]("ACKJOB", id)


# ---- clients that poll, without a queue ---------------------------------------------------------


def test_a_poll_finds_jobs_elsewhere_without_making_a_queue(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 1)
    assert mesh[1].get() is None
    assert mesh[1]("QSTAT", "q") is None
    assert mesh[1].node.memory.used == 0
    mesh.settle()
    assert mesh[1].get() == id
    assert mesh[1].node.memory.used == mesh[1].counted_memory()


def test_polls_of_what_does_not_exist_are_paced(mesh: Mesh) -> None:
    for _ in range(50):
        assert mesh[1].get("a", "b") is None
    assert len(mesh.told("needjobs")) == 2 * (len(mesh.nodes) - 1)
    mesh.advance(1)
    mesh.told()
    assert mesh[1].get("a") is None
    assert len(mesh.told("needjobs")) == len(mesh.nodes) - 1


def test_what_was_polled_is_forgotten_when_there_is_much_of_it(mesh: Mesh) -> None:
    for start in range(0, 3_000, 1_000):
        assert mesh[1].get(*[f"q{number}" for number in range(start, start + 1_000)]) is None
    mesh.told()
    assert mesh[1].get("q2999") is None
    assert mesh.told("needjobs") == []  # it was asked a moment ago
    assert mesh[1].get("q0") is None
    assert len(mesh.told("needjobs")) == len(mesh.nodes) - 1
    assert mesh[1].node.memory.used == 0
    long = ["x" * 60_000 + str(number) for number in range(100)]
    assert mesh[1].get(*long) is None
    assert mesh[1].node.federation._polled_size <= MAX_POLLED_SIZE
