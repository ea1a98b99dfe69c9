"""Jobs for topics on several nodes: copies, errors, and what a client leaves behind."""

import pytest

from disque_trio.node.core.topics import SLICE
from tests.support.mesh import Mesh


@pytest.fixture
def three() -> Mesh:
    mesh = Mesh(3)
    for queue in ("a", "b", "c"):
        assert mesh[0]("BIND", "t", queue) == b"OK"
    mesh.settle()
    return mesh


def publish(mesh: Mesh, *words: str | int, topic: str = "t") -> None:
    """Send ADDJOB @topic to the first node."""
    mesh[0].send(mesh[0].me, "ADDJOB", f"@{topic}", "body", *words)


def replies(mesh: Mesh) -> list[list[object]]:
    """Return the arrays that the client of the first node got."""
    found = mesh[0].replies(mesh[0].me)
    assert all(isinstance(reply, list) for reply in found), found
    return found  # type: ignore[return-value]


def test_the_array_is_whole_when_the_last_job_has_its_copies(three: Mesh) -> None:
    bench = three[0]
    publish(three, 0)
    assert replies(three) == []
    assert bench.me.in_flight == 1
    assert bench.node.may_overlap([b"ADDJOB", b"@t", b"b", b"0"])
    bench.send(bench.me, "ADDJOB", "a", "d", 0)
    three.settle()
    ids, behind = bench.replies(bench.me)
    assert isinstance(ids, list)
    assert [three.holders(id) for id in ids] == [[0, 1, 2]] * 3
    assert [bench.show(id)[b"queue"] for id in ids] == [b"a", b"b", b"c"]
    assert bench.get_all("a") == [ids[0], behind]
    assert bench.node.topics.waiting == {}


def test_any_node_knows_the_bindings(three: Mesh) -> None:
    bench = three[2]
    bench.send(bench.me, "ADDJOB", "@t", "body", 0)
    three.settle()
    ((a, b, c),) = bench.replies(bench.me)  # type: ignore[misc]
    assert (bench.get("a"), bench.get("b"), bench.get("c")) == (a, b, c)


def test_each_may_have_as_many_copies_as_its_policy_says(three: Mesh) -> None:
    three[0]("QSET", "b", "REPLICATE", 1)
    three.settle()
    publish(three, 0)
    three.settle()
    ((a, b, c),) = replies(three)
    assert isinstance(b, bytes)
    assert three.holders(b) == [0]
    assert [three.holders(id) for id in (a, c)] == [[0, 1, 2]] * 2  # type: ignore[arg-type]


def test_those_that_get_no_copies_in_time_have_an_error(three: Mesh) -> None:
    three[0]("QSET", "b", "REPLICATE", 1)
    three.isolate(0)
    publish(three, 100)
    three.advance(0.05)
    assert replies(three) == []
    three.advance(0.2)
    ((a, b, c),) = replies(three)
    assert str(a) == str(c)
    assert str(a).startswith("NOREPL Timeout")
    assert three[0].get_all("a", "b", "c") == [b]
    assert three[0].node.held() == 1


def test_where_all_time_out_there_is_one_error(three: Mesh) -> None:
    three.isolate(0)
    publish(three, 100)
    three.advance(0.3)
    (reply,) = three[0].replies(three[0].me)
    assert str(reply).startswith("NOREPL Timeout")


def test_a_client_that_disconnects_takes_back_what_has_no_copies(three: Mesh) -> None:
    bench = three[0]
    bench("QSET", "b", "REPLICATE", 1)
    three.isolate(0)
    client = bench.client()
    bench.send(client, "ADDJOB", "@t", "body", 0)
    bench.disconnect(client)
    three.rejoin(0)
    three.advance(5)
    assert [bench.node.held() for bench in three.nodes] == [1, 0, 0]
    assert bench.node.topics.waiting == {}
    assert bench.node.waits.by_job == {}


def test_a_client_that_disconnects_has_no_further_jobs_added(three: Mesh) -> None:
    bench = three[0]
    for number in range(2 * SLICE):
        bench("BIND", "many", f"q{number}")
    three.isolate(0)
    client = bench.client()
    bench.send(client, "ADDJOB", "@many", "body", 0, "UNIQUE", "key")
    assert len(bench.node.topics.waiting) == 1
    bench.disconnect(client)
    three.advance(1)
    assert bench.node.held() == 0
    assert bench.node.admissions.held == {}
    assert bench.node.claims.claiming == {}


def test_many_with_copies_in_slices(three: Mesh) -> None:
    for number in range(3 * SLICE):
        three[0]("BIND", "many", f"q{number}")
    publish(three, 0, topic="many")
    three.advance(0.01)
    (ids,) = replies(three)
    assert len(set(ids)) == 3 * SLICE
    assert three[1].node.held() == 3 * SLICE


def test_the_nodes_agree_on_the_keys_and_on_the_lengths(three: Mesh) -> None:
    publish(three, 0, "UNIQUE", "key")
    three.settle()
    three.advance(0.01)
    (first,) = replies(three)
    bench = three[1]
    bench.send(bench.me, "ADDJOB", "@t", "body", 0, "UNIQUE", "key")
    three.settle()
    assert bench.replies(bench.me) == [first]
    bench("UNBIND", "t", "c")
    three.settle()
    bench.send(bench.me, "ADDJOB", "@t", "body", 0, "MAXLEN", 1)
    three.settle()
    (reply,) = bench.replies(bench.me)
    assert str(reply).startswith("MAXLEN ")


def test_in_a_group_the_array_of_a_topic_is_an_element(three: Mesh) -> None:
    bench = three[0]
    for line in ("MULTI", "ADDJOB @t x 0", "PING", "ADDJOB @none x 0", "ADDJOB q x 0"):
        bench(*line.split())
    bench.send(bench.me, "EXEC")
    three.settle()
    ((ids, pong, none, id),) = bench.replies(bench.me)  # type: ignore[misc]
    assert (pong, none) == (b"PONG", [])
    assert len({*ids, id}) == 4


def test_jobs_that_are_forgotten_meanwhile_are_told(three: Mesh) -> None:
    publish(three, 0)
    three[0].node.flush()
    three.settle()
    (reply,) = three[0].replies(three[0].me)
    assert "job removed" in str(reply)


def test_what_may_ask_for_lengths_waits_for_those_before_it(three: Mesh) -> None:
    node = three[0].node
    request = [b"ADDJOB", b"@t", b"x", b"0"]
    assert node.may_overlap(request)
    assert not node.may_overlap([*request, b"MAXLEN", b"5"])
    three[0]("QSET", "b", "MAXLEN", 5)
    assert not node.may_overlap(request)


def test_a_schedule_adds_to_a_topic_once(three: Mesh) -> None:
    three[0]("QSET", "c", "REPLICATE", 2)
    assert three[0]("CRON", "SET", "s", "@every 10s", "@t", "body") == b"OK"
    three.settle()
    for _ in range(25):
        three.advance(1)
    for queue in (b"a", b"b", b"c"):
        ids = {
            job.id
            for bench in three.nodes
            for job in bench.node.store.jobs.values()
            if job.queue == queue
        }
        assert len(ids) == 2


@pytest.mark.parametrize("seed", range(10))
def test_with_lost_packets_each_queue_has_its_job(seed: int) -> None:
    mesh = Mesh(3, seed=seed + 1)
    for queue in ("a", "b", "c"):
        mesh[0]("BIND", "t", queue)
    mesh.settle()
    count = 0

    def lose(source: int, target: int, packet: bytes) -> bool:
        nonlocal count
        count += 1
        return (count * 7 + seed) % 4 == 0

    mesh.lose = lose
    for _ in range(5):
        publish(mesh, 0, "REPLICATE", 3)
    mesh.advance(20)
    found = replies(mesh)
    assert len(found) == 5
    for ids in found:
        assert [mesh.holders(id) for id in ids] == [[0, 1, 2]] * 3  # type: ignore[arg-type]
