"""QPURGE: queued jobs are cancelled, on all nodes, a slice at a time."""

from disque_trio.node.core.changes.scatter_gather import PATIENCE, SLICE
from disque_trio.node.core.rpc.calls import PURGE
from disque_trio.protocol.bus import MAX_NAME_IN_FIELDS
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench


def purge(bench: Bench, queue: str = "q") -> list[object]:
    """Return the reply to QPURGE on a node that is alone."""
    bench.send(bench.me, "QPURGE", queue)
    for _ in range(20):
        bench.node.tick(bench.now)
        bench.node.commit()
    return bench.replies(bench.me)


def test_what_is_queued_goes_and_the_rest_stays(bench: Bench) -> None:
    delivered = bench.add("q", "body", "RETRY", 1000)
    assert bench.get() == delivered
    delayed = bench.add("q", "body", "DELAY", 50)
    other = bench.add("other")
    queued = [bench.add("q", "body", "PRIORITY", number) for number in (0, 7, 3)]
    assert purge(bench) == [3]
    assert not any(bench.held(id) for id in queued)
    assert all(bench.held(id) for id in (delivered, delayed, other))
    assert bench.number_queued() == 0
    assert bench("WAITJOB", 0, queued[0]) == [[queued[0], b"cancelled", None]]


def test_a_queue_that_is_empty_or_not_there_has_nothing_to_lose(bench: Bench) -> None:
    assert purge(bench) == [0]
    bench("ACKJOB", bench.add())
    assert purge(bench) == [0]


def test_a_long_queue_goes_in_slices(bench: Bench) -> None:
    for _ in range(2 * SLICE + 10):
        bench.add()
    bench.send(bench.me, "QPURGE", "q")
    bench.node.tick(bench.now)
    bench.node.commit()
    assert bench.number_queued() == SLICE + 10
    assert bench.ask(bench.client(), "PING") == b"PONG"
    bench.node.tick(bench.now)
    bench.node.tick(bench.now)
    bench.node.commit()
    assert bench.replies(bench.me) == [2 * SLICE + 10]


def test_all_nodes_purge_theirs_and_copies_go_too() -> None:
    mesh = Mesh(3)
    ids = [mesh.add(index, "REPLICATE", 2, "RETRY", 10) for index in (0, 1, 2, 1)]
    client = mesh[0].client()
    mesh[0].send(client, "QPURGE", "q")
    mesh.advance(1)
    assert mesh[0].replies(client) == [4]
    mesh.advance(60)
    assert [mesh.holders(id) for id in ids] == [[]] * 4
    assert [bench.number_queued() for bench in mesh.nodes] == [0, 0, 0]


def test_a_node_that_does_not_answer_keeps_its_jobs() -> None:
    mesh = Mesh(2)
    mesh.add(0, "REPLICATE", 1)
    far = mesh.add(1, "REPLICATE", 1)
    mesh.cut(0, 1)
    client = mesh[0].client()
    mesh[0].send(client, "QPURGE", "q")
    mesh.advance(PATIENCE / 1000 + 1)
    assert mesh[0].replies(client) == [1]
    assert mesh[1].held(far)


def test_a_name_that_does_not_fit_into_a_packet_is_refused(bench: Bench) -> None:
    assert "more than" in bench.error("QPURGE", "x" * (MAX_NAME_IN_FIELDS + 1))


def test_a_question_that_makes_no_sense_is_not_answered() -> None:
    mesh = Mesh(2)
    mesh.add(1, "REPLICATE", 1)
    mesh[0].node.rpc.call(PURGE, [], [mesh.ids[1]], 1000, lambda question: None)
    mesh.settle()
    assert mesh[1].number_queued() == 1
    assert mesh[1].node.bad_packets == 1


def test_two_at_once_are_both_answered(bench: Bench) -> None:
    for number in range(3 * SLICE):
        bench.add("other" if number % 3 else "q")
    clients = [bench.client(), bench.client()]
    for client, queue in zip(clients, ("q", "other"), strict=True):
        bench.send(client, "QPURGE", queue)
    bench.advance(1)
    bench.node.commit()
    assert [bench.replies(client) for client in clients] == [[SLICE], [2 * SLICE]]
