"""A node that is about to stop takes in what others have for it, and gets nothing more."""

import pytest

from disque_trio.node.core.federation.exports import MAX_NAME
from disque_trio.node.core.federation.farewell import MOMENT, PATIENCE
from disque_trio.node.core.queues.need_jobs import Imports
from disque_trio.protocol import bus
from disque_trio.protocol.bus import packet_type
from tests.support.mesh import Mesh

STOPS = 1  # the node that does, in all tests


@pytest.fixture
def mesh() -> Mesh:
    mesh = Mesh(3)
    mesh.advance(0)  # they know the time
    return mesh


def begin(mesh: Mesh) -> None:
    mesh[STOPS].node.farewell.begin(mesh[STOPS].now)


def is_over(mesh: Mesh) -> bool:
    return mesh[STOPS].node.farewell.is_over(mesh[STOPS].now)


def once(mesh: Mesh, index: int) -> bytes:
    """Add a job that is delivered at most once, at one node; packets do not move yet."""
    return mesh[index].add("q", "body", "REPLICATE", 1, "RETRY", 0)


def test_what_is_on_its_way_arrives_before_the_farewell_is_over(mesh: Mesh) -> None:
    mesh[STOPS].block("q")
    mesh.settle()
    id = once(mesh, 0)  # which gives it away, but the packet has not arrived
    assert mesh.holders(id) == []
    begin(mesh)
    assert not is_over(mesh)
    mesh.settle()
    assert is_over(mesh)
    assert mesh.holders(id) == [STOPS]


def test_answers_come_after_what_the_same_turn_gives(mesh: Mesh) -> None:
    node = mesh[0].node
    once(mesh, 0)
    want = mesh[STOPS].node.packets.about_queue(12, b"q", 1)
    begin(mesh)
    stops = next(packet for _, target, packet in mesh.moving if target == 0)
    mesh.moving.clear()
    node._notices.fields.append((mesh.ids[2], want))  # so that others wait behind it
    node.receive(mesh.ids[STOPS], want, mesh[0].now)
    node.receive(mesh.ids[STOPS], stops, mesh[0].now)
    node.commit()
    assert [type for source, type, target in mesh.log if (source, target) == (0, STOPS)] == [
        "given",
        "answer",
    ]


def test_nothing_is_given_to_a_node_that_stops(mesh: Mesh) -> None:
    mesh[STOPS].block("q")
    mesh.settle()
    begin(mesh)
    mesh.settle()
    id = once(mesh, 0)
    mesh.settle()
    assert mesh.holders(id) == [0]
    want = mesh[STOPS].node.packets.about_queue(12, b"q", 1)
    mesh[0].node.receive(mesh.ids[STOPS], want, mesh[0].now)
    mesh.settle()
    assert mesh.holders(id) == [0]


def test_nothing_is_given_by_pattern_to_a_node_that_stops(mesh: Mesh) -> None:
    client = mesh[STOPS].client()
    mesh[STOPS].send(client, "GETJOB", "PATTERN", "FROM", "q*")
    mesh.advance(0.1)
    begin(mesh)
    mesh.settle()
    id = once(mesh, 0)
    mesh.settle()
    assert mesh.holders(id) == [0]


def test_others_that_want_the_same_jobs_as_a_node_that_stops_get_them(mesh: Mesh) -> None:
    mesh[STOPS].block("q")
    mesh[2].block("q")
    mesh.settle()
    begin(mesh)
    mesh.settle()
    id = once(mesh, 0)
    mesh.settle()
    assert mesh.holders(id) == [2]


def test_a_node_that_stops_neither_asks_nor_gives(mesh: Mesh) -> None:
    id = once(mesh, STOPS)
    begin(mesh)
    mesh.settle()
    mesh[0].block("q")
    mesh[STOPS].block("other")
    mesh.advance(5)
    assert mesh.holders(id) == [STOPS]
    assert ("needjobs", STOPS) not in [(type, source) for source, type, _ in mesh.log]


def test_a_node_that_is_back_gets_jobs_again(mesh: Mesh) -> None:
    begin(mesh)
    mesh.settle()
    mesh.isolate(STOPS)
    node = mesh[STOPS].node
    node.exports.stopping = False  # as in a new process
    mesh.rejoin(STOPS)
    waiting = mesh[STOPS].block("q")
    mesh.advance(0.1)
    id = once(mesh, 0)
    mesh.settle()
    assert mesh[STOPS].got(waiting) == id


def test_what_a_node_wanted_before_it_stopped_is_forgotten(mesh: Mesh) -> None:
    waiting = mesh[STOPS].block("q")
    mesh.settle()
    begin(mesh)
    mesh.settle()
    mesh[STOPS].disconnect(waiting)
    mesh.isolate(STOPS)
    mesh.rejoin(STOPS)
    mesh.advance(0.1)
    id = once(mesh, 0)
    mesh.advance(1)
    assert mesh.holders(id) == [0]


def test_nodes_that_stop_together_do_not_wait_for_each_other(mesh: Mesh) -> None:
    for bench in mesh.nodes:
        bench.node.farewell.begin(bench.now)
    mesh.settle()
    assert all(bench.node.farewell.is_over(bench.now) for bench in mesh.nodes)


def test_who_is_gone_is_not_waited_for(mesh: Mesh) -> None:
    begin(mesh)
    mesh.cut(STOPS, 0)
    mesh.settle()
    assert is_over(mesh)


def test_who_does_not_answer_is_waited_for_until_the_time_is_over(mesh: Mesh) -> None:
    mesh[0].node.rpc.handlers.clear()  # as in an older release
    begin(mesh)
    mesh.settle()
    mesh[STOPS].now += PATIENCE - 1
    assert not is_over(mesh)
    mesh[STOPS].now += 1
    assert is_over(mesh)


def test_a_node_that_loads_gets_a_moment(mesh: Mesh) -> None:
    mesh.peers[STOPS].mute = {mesh.ids[0]}
    mesh[0].node.loading = True
    begin(mesh)
    mesh.settle()
    mesh[STOPS].now += MOMENT - 1
    assert not is_over(mesh)
    mesh[STOPS].now += 1
    assert is_over(mesh)


def test_a_node_that_begins_to_serve_in_that_moment_is_waited_for(mesh: Mesh) -> None:
    mesh.peers[STOPS].mute = {mesh.ids[0]}
    mesh.lose = lambda source, target, packet: target == 0
    begin(mesh)
    mesh.settle()
    mesh.peers[STOPS].mute = set()
    mesh[STOPS].now += MOMENT
    assert not is_over(mesh)


def test_a_c_node_gets_a_moment(mesh: Mesh) -> None:
    mesh.c_nodes = {0}
    begin(mesh)
    mesh.settle()
    mesh[STOPS].now += MOMENT - 1
    assert not is_over(mesh)
    mesh[STOPS].now += 1
    assert is_over(mesh)


def test_a_node_alone_does_not_wait() -> None:
    alone = Mesh(1)
    alone[0].node.farewell.begin(alone[0].now)
    assert alone[0].node.farewell.is_over(alone[0].now)


def test_a_request_for_a_queue_with_a_very_long_name_is_not_kept(mesh: Mesh) -> None:
    name = "n" * (MAX_NAME + 1)
    mesh[0]("ADDJOB", name, "body", 0, "REPLICATE", 1)
    queue = mesh[0].node.queues.by_name[name.encode()]
    queue.imports = Imports()
    queue.imports.received(mesh.ids[2], mesh[0].now, queue.jobs_out, 1)  # for clients here
    want = mesh[1].node.packets.about_queue(12, name.encode(), 1)
    mesh[0].node.receive(mesh.ids[1], want, mesh[0].now)
    assert not mesh[0].node.exports.asked_for


@pytest.mark.parametrize("options", [(), ("UNIQUE", "key")])
def test_a_job_without_its_copies_leaves_none_so_that_another_node_adds_it(
    mesh: Mesh, options: tuple[str, ...]
) -> None:
    mesh.lose = lambda source, target, packet: target == STOPS and packet_type(packet) == bus.GOTJOB
    bench = mesh[STOPS]
    bench.send(bench.me, "ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 300, *options)
    mesh.settle()
    [job] = bench.node.store.jobs.values()
    id = job.id
    assert len(mesh.holders(id)) == 2
    begin(mesh)
    mesh.advance(PATIENCE / 1000)
    assert is_over(mesh)
    bench.node.replication.give_up()
    mesh.settle()
    [reply] = bench.replies(bench.me)
    assert str(reply).startswith("LEAVING")
    assert mesh.holders(id) == []
    again = mesh.add(0, "REPLICATE", 2, *options)
    assert again != id
    assert mesh.states(again)[0] == "queued"
