"""GETJOB PATTERN in a cluster: jobs come from matching queues of other nodes."""

import pytest

from disque_trio.glob import MAX_WANTED
from disque_trio.node.core.delivery.interests import read_remote
from disque_trio.node.core.delivery.patterns import NAMES
from disque_trio.node.core.rpc.calls import WISH
from disque_trio.protocol.fields import Field, FieldsError, pack_number
from disque_trio.respserver.client import Client
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench
from tests.support.policies import set_policy


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def wait(bench: Bench, *patterns: str, timeout: int = 0) -> Client:
    client = bench.client()
    bench.send(client, "GETJOB", "TIMEOUT", timeout, "PATTERN", "FROM", *(patterns or ("mail.*",)))
    return client


def add(mesh: Mesh, index: int, queue: str, *options: str | int) -> bytes:
    bench = mesh[index]
    bench.send(bench.me, "ADDJOB", queue, "body", 0, *options)
    mesh.settle()
    (reply,) = bench.replies(bench.me)
    assert isinstance(reply, bytes)
    return reply


@pytest.mark.parametrize("copies", [1, 3])
def test_a_job_that_another_node_has_is_fetched(mesh: Mesh, copies: int) -> None:
    id = add(mesh, 0, "mail.1", "REPLICATE", copies)
    other = add(mesh, 0, "sms.1", "REPLICATE", 1)
    waiting = wait(mesh[1])
    mesh.advance(0.01)
    assert mesh[1].got(waiting) == id
    assert mesh[0].number_queued("mail.1") == 0
    assert mesh.holders(other) == [0]


@pytest.mark.parametrize("copies", [1, 3])
def test_a_job_that_comes_later_into_a_new_queue_is_given_at_once(mesh: Mesh, copies: int) -> None:
    waiting = wait(mesh[1])
    mesh.advance(29)
    id = add(mesh, 0, "mail.new", "REPLICATE", copies)
    mesh.settle()
    assert mesh[1].got(waiting) == id
    mesh.advance(40)
    add(mesh, 0, "mail.new", "REPLICATE", copies)
    mesh.advance(1)
    assert mesh[0].number_queued("mail.new") == 1  # nobody waits any more


def test_jobs_do_not_travel_on_because_of_clients_that_no_longer_wait() -> None:
    mesh = Mesh(4)
    for n in range(60):  # so that each node asks for many at a time
        for bench in mesh.nodes[1:]:
            wait(bench)
        mesh.settle()
        for _ in mesh.nodes[1:]:
            add(mesh, 0, f"mail.{n % 3}", "REPLICATE", 1)
        mesh.advance(0.01)
    mesh.told()
    for n in range(30):
        add(mesh, 0, f"mail.{n % 3}", "REPLICATE", 1)
    assert len(mesh.told("given")) < 2 * 30


def test_who_polls_is_served_as_well(mesh: Mesh) -> None:
    id = add(mesh, 0, "mail.1", "REPLICATE", 1)
    asking = ("GETJOB", "NOHANG", "PATTERN", "FROM", "mail.*")
    assert mesh[1](*asking) is None
    mesh.advance(0.01)
    assert mesh[1].ids(mesh[1](*asking)) == [id]


def test_clients_of_a_node_come_before_other_nodes(mesh: Mesh) -> None:
    far = wait(mesh[1])
    mesh.advance(0.1)
    by_pattern, by_name = wait(mesh[0]), mesh[0].block("mail.1")
    mesh.advance(0.1)
    first, second = (add(mesh, 0, "mail.1", "REPLICATE", 1) for _ in range(2))
    assert [mesh[0].got(by_name), mesh[0].got(by_pattern)] == [first, second]
    assert far.blocked


def test_a_stream_of_jobs_goes_where_its_workers_are(mesh: Mesh) -> None:
    got = []
    waiting = wait(mesh[1])
    mesh.advance(0.1)
    for i in range(50):
        add(mesh, 0, f"mail.{i % 7}", "REPLICATE", 1)
        mesh.advance(0.02)
        if not waiting.blocked:
            got.append(mesh[1].got(waiting))
            waiting = wait(mesh[1])
            mesh.settle()
    mesh.advance(2)
    assert len(set(got)) >= 45


def test_several_workers_get_what_several_queues_have(mesh: Mesh) -> None:
    ids = {add(mesh, i % 2, f"mail.{i}", "REPLICATE", 1) for i in range(10)}
    waiting = [wait(mesh[2]) for _ in range(10)]
    mesh.advance(35)
    assert {mesh[2].got(client) for client in waiting} == ids


def test_a_paused_queue_of_another_node_gives_nothing(mesh: Mesh) -> None:
    mesh[0]("PAUSE", "mail.1", "out")
    first = add(mesh, 0, "mail.1", "REPLICATE", 1)
    waiting = wait(mesh[1])
    mesh.advance(5)
    assert waiting.blocked
    second = add(mesh, 0, "mail.2", "REPLICATE", 1)
    assert mesh[1].got(waiting) == second
    waiting = wait(mesh[1])
    mesh.advance(0.1)
    mesh[0]("PAUSE", "mail.1", "none")
    mesh.advance(0.1)
    assert mesh[1].got(waiting) == first


def test_a_limit_holds_for_jobs_by_pattern_on_all_nodes(mesh: Mesh) -> None:
    set_policy(*mesh.nodes, name=b"mail.*", active=2)
    for i in range(6):
        add(mesh, i % 3, "mail.1", "REPLICATE", 1)
    clients = [(bench, wait(bench)) for bench in mesh.nodes for _ in range(2)]
    mesh.advance(10)
    got = [(bench, bench.got(c)) for bench, c in clients if not c.blocked]
    assert len(got) == 2
    bench, id = got[0]
    bench("ACKJOB", id)
    mesh.advance(10)
    assert sum(not client.blocked for _, client in clients) == 3


def test_jobs_of_one_limited_queue_do_not_keep_back_those_of_another(mesh: Mesh) -> None:
    set_policy(*mesh.nodes, name=b"mail.*", active=50)
    for _ in range(5):
        taking = mesh[0].client()
        mesh[0].send(taking, "GETJOB", "FROM", "mail.2")
        add(mesh, 2, "mail.2", "REPLICATE", 1)
        mesh.advance(0.1)
        assert mesh[0].got(taking)
        waiting = wait(mesh[1])
        add(mesh, 0, "mail.1", "REPLICATE", 1)
        mesh.advance(0.1)
        assert mesh[1].got(waiting)
    mesh[1]("PAUSE", "mail.3", "out")
    waiting = wait(mesh[1])
    mesh.advance(0.1)
    add(mesh, 0, "mail.3", "REPLICATE", 1)
    assert waiting.blocked
    id = add(mesh, 0, "mail.2", "REPLICATE", 1)
    assert mesh[1].got(waiting) == id


def ask_in_vain(bench: Bench, how: str) -> None:
    """Ask for a job by pattern, or by name, and do not wait any more."""
    client = bench.client()
    where = ("FROM", "mail.1") if "name" in how else ("PATTERN", "FROM", "mail.*")
    if "polls" in how:
        bench.send(client, "GETJOB", "NOHANG", *where)
    else:
        bench.send(client, "GETJOB", "TIMEOUT", 100, *where)
        if "leaves" in how:
            bench.disconnect(client)


@pytest.mark.parametrize("size", [3, 5, pytest.param(7, marks=pytest.mark.slow)])
@pytest.mark.parametrize("later", [0.15, 10])
@pytest.mark.parametrize("how", ["waits", "polls", "leaves", "waits by name", "polls by name"])
def test_who_waits_by_pattern_has_a_job_at_once_whoever_asked_before(
    size: int, later: float, how: str
) -> None:
    for added in range(size):
        mesh = Mesh(size)
        for index in range(size):
            if index != 1:
                ask_in_vain(mesh[index], how)
                mesh.settle()
        mesh.advance(later)
        id = add(mesh, added, "mail.1", "REPLICATE", 1, "RETRY", 600)
        waiting = wait(mesh[1], timeout=30_000)
        mesh.advance(0.1)
        assert mesh[1].got(waiting) == id


def test_whose_client_waits_comes_before_nodes_that_poll(mesh: Mesh) -> None:
    ask_in_vain(mesh[2], "polls")
    mesh.advance(0.05)
    waiting = wait(mesh[1])
    mesh.advance(0.05)
    id = add(mesh, 0, "mail.1", "REPLICATE", 1)
    assert mesh[1].got(waiting) == id
    assert mesh.told("given") == [(0, "given", 1)]


def test_lost_wishes_are_sent_again(mesh: Mesh) -> None:
    mesh.lose = lambda source, target, packet: True
    waiting = wait(mesh[1])
    mesh.advance(0.1)
    mesh.lose = lambda source, target, packet: False
    id = add(mesh, 0, "mail.1", "REPLICATE", 1)
    mesh.advance(5)
    assert mesh[1].got(waiting) == id


def test_a_node_that_meets_others_asks_them(mesh: Mesh) -> None:
    for bench in mesh.nodes:
        bench.node.peers.size = 1
    waiting = wait(mesh[1])
    mesh.advance(1)
    mesh[1].node.cron(mesh[1].now)
    id = add(mesh, 0, "mail.1", "REPLICATE", 1)
    mesh.advance(1)
    assert waiting.blocked
    mesh[1].node.peers.size = 3
    mesh[1].node.cron(mesh[1].now)
    mesh.advance(0.1)
    assert mesh[1].got(waiting) == id


def test_a_node_with_a_new_connection_is_told_at_once_whoever_was_asked_before(mesh: Mesh) -> None:
    mesh.isolate(1)
    mesh.advance(1)
    waiting = wait(mesh[1])
    mesh.settle()
    id = add(mesh, 0, "mail.1", "REPLICATE", 1)
    mesh.rejoin(1)
    mesh.advance(0.01)
    assert mesh[1].got(waiting) == id


@pytest.mark.parametrize("why", ["group", "limit of the group", "pause"])
def test_what_cannot_be_delivered_yet_does_not_stand_in_for_what_can(mesh: Mesh, why: str) -> None:
    groups, limit = ("fair", 1) if "limit" in why else ("fifo", 0)
    set_policy(*mesh.nodes, name=b"mail.*", groups=groups, group_active=limit)
    taking = mesh[1].client()
    mesh[1].send(taking, "GETJOB", "FROM", "mail.1")
    add(mesh, 1, "mail.1", "REPLICATE", 1, "GROUP", "x")
    mesh.advance(0.1)
    assert mesh[1].got(taking)
    if why == "pause":
        mesh[1]("PAUSE", "mail.1", "out")
    for _ in range(5):
        add(mesh, 0, "mail.1", "REPLICATE", 1, "GROUP", "x")
    id = add(mesh, 0, "mail.2", "REPLICATE", 1)
    waiting = wait(mesh[1])
    mesh.advance(0.1)
    assert mesh[1].got(waiting) == id


def test_c_nodes_are_asked_for_queues_that_are_known(mesh: Mesh) -> None:
    mesh.c_nodes.add(0)
    mesh[1].block("mail.1", timeout=10)
    mesh[1].block("sms", timeout=10)
    mesh.advance(0.1)
    mesh.told()
    waiting = wait(mesh[1])
    mesh.advance(40)
    told = mesh.told()
    assert (1, "question", 0) not in told
    assert (1, "question", 2) in told
    mesh.told()
    id = add(mesh, 0, "mail.1", "REPLICATE", 1)
    mesh.advance(1)
    assert mesh[1].got(waiting) == id


@pytest.mark.parametrize(("patterns", "asked"), [(1, 20), (5, 100), (6, 100)])
def test_c_nodes_are_asked_for_so_many_queues(mesh: Mesh, patterns: int, asked: int) -> None:
    mesh.c_nodes.add(0)
    for pattern in range(patterns):
        for number in range(NAMES):
            mesh[1].make_queue(f"{pattern}.{number}")
    mesh.advance(0.1)
    mesh.told()
    wait(mesh[1], *[f"{pattern}.*" for pattern in range(patterns)])
    mesh.advance(0.1)
    assert len([move for move in mesh.told("needjobs") if move[2] == 0]) == asked


def test_wishes_are_forgotten(mesh: Mesh) -> None:
    waiting = wait(mesh[1], timeout=100)
    mesh.advance(0.2)
    assert mesh[1].replies(waiting) == [None]
    assert mesh[0].node.deliveries.interests.by_pattern
    mesh.advance(200)
    for bench in mesh.nodes:
        assert bench.node.deliveries.interests.by_pattern == {}
        assert bench.node.queues.interests is None


def test_a_thousand_patterns_are_told_in_few_packets(mesh: Mesh) -> None:
    waiting = wait(mesh[1], *[f"{i}.*" for i in range(1_000)])
    mesh.advance(0.5)
    assert len(mesh.told("question")) == 4
    id = add(mesh, 0, "777.1", "REPLICATE", 1)
    assert mesh[1].got(waiting) == id


@pytest.mark.parametrize(
    "fields",
    [
        [(2, b"")],
        [(2, b"x" * (MAX_WANTED + 1))],
        [(2, b"a*"), (3, b"1")],
        [(4, b"")],
    ],
)
def test_invalid_wishes_are_refused(fields: list[Field]) -> None:
    with pytest.raises(FieldsError):
        read_remote(fields)


def test_wishes_of_a_newer_release_are_read() -> None:
    fields = [(4, pack_number(5)), (9, b"?"), (2, b"a*"), (3, pack_number(1 << 40)), (8, b"")]
    assert read_remote(fields) == (5, {b"a*": 100}, set())
    assert WISH == 11
