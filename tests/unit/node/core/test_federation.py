"""Jobs move to the nodes where their consumers are."""

from itertools import pairwise

import pytest

from disque_trio.node.core.need_jobs import Imports
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
    assert len(mesh.told("yourjobs")) == 1


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


def test_a_job_that_comes_back_is_no_longer_in_the_hands_of_its_first_worker() -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 10)
    assert mesh[0].get() == id  # that worker dies
    mesh.cut(0, 1)
    mesh.advance(11)
    assert mesh.states(id) == ["queued", "queued"]
    assert mesh[0].get() == id
    mesh.join(0, 1)
    packet = mesh[0].node.packets.about_queue(12, b"q", 5)
    mesh[1].node.receive(mesh.ids[0], packet, mesh[1].now)
    mesh.settle()
    assert mesh[0]("DEQUEUE", id) == 1
    assert b"client" not in mesh[0].fields("SHOW", id, "CLIENT")


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


def test_what_nobody_took_here_is_given_to_who_asked(mesh: Mesh) -> None:
    for _ in range(8):
        mesh.add(0, "REPLICATE", 1)
    packet = mesh[1].node.packets.about_queue(12, b"q", 8)
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    mesh.settle()
    assert mesh[1]("QLEN", "q") == 4
    mesh.cut(0, 2)
    waiting = mesh[2].block("q")
    mesh.advance(4.9)
    assert waiting.blocked
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


def test_clients_that_wait_are_served_once_their_node_joins(mesh: Mesh) -> None:
    mesh.peers[1].size = 1
    waiting = mesh[1].block("q")
    mesh[1].node.cron(mesh[1].now)
    id = mesh.add(0, "REPLICATE", 1)
    mesh.advance(60)
    mesh.peers[1].size = 3
    mesh[1].node.cron(mesh[1].now)
    mesh.settle()
    assert mesh[1].got(waiting) == id


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
