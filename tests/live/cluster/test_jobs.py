"""Jobs on three healthy real nodes: copies, federation, counters, pauses."""

import itertools
import time
from collections.abc import Iterator

import hiredis
import pytest

from tests.support.harness import wait_until
from tests.support.live_cluster import LiveCluster, Member, live_cluster
from tests.support.live_helpers import add_job, pairs

_numbers = itertools.count()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path_factory.mktemp("jobs"), 3) as found:
        yield found


@pytest.fixture
def cluster(running: LiveCluster) -> Iterator[LiveCluster]:
    """Three connected nodes without jobs."""
    running.wait_joined()
    yield running
    for node in running:
        node.resume()
    running.clean()


@pytest.fixture
def q() -> str:
    """A queue unknown to all nodes, which also means that none remembers who had its jobs."""
    return f"q-{next(_numbers)}"


def taken(reply: object) -> list[bytes]:
    """Return the IDs in a reply to GETJOB."""
    return [job[1] for job in reply] if isinstance(reply, list) else []


def queued(cluster: LiveCluster, queue: str) -> int:
    """Return the total length of a queue on all nodes."""
    return sum(length for node in cluster if isinstance(length := node.ask("QLEN", queue), int))


def blocked(node: Member, queue: str) -> bool:
    """Return whether a client waits at ``node`` for jobs of the queue."""
    reply = node.ask("QSTAT", queue)
    return reply is not None and pairs(reply)["blocked"] == 1


def shown(node: Member, id: str, field: str) -> object:
    reply = node.ask("SHOW", id)
    return None if reply is None else pairs(reply)[field]


@pytest.mark.pure
def test_a_job_lives_through_three_nodes_and_leaves_no_trace(cluster: LiveCluster, q: str) -> None:
    id = add_job(cluster[0].wire(), q, "body", "REPLICATE", 3)
    assert len(cluster.holders(id.encode())) == 3
    assert cluster[1].ask("GETJOB", "FROM", q) == [[q.encode(), id.encode(), b"body"]]
    assert cluster[2].ask("ACKJOB", id) == 1
    cluster.wait_empty()


def test_all_holders_of_a_job_are_named(cluster: LiveCluster, q: str) -> None:
    id = add_job(cluster[0].wire(), q, "body", "REPLICATE", 3)
    named = shown(cluster[0], id, "nodes-delivered")
    assert isinstance(named, list)
    assert sorted(named) == sorted(cluster.ids)
    two = add_job(cluster[1].wire(), q, "body", "REPLICATE", 2)
    assert len(cluster.wait_copies(two.encode(), 2)) >= 2


@pytest.mark.parametrize(("first", "copies"), [("consumer", 1), ("job", 1), ("job", 3)])
def test_a_client_waiting_at_one_node_gets_a_job_added_at_another(
    cluster: LiveCluster, first: str, copies: int, q: str
) -> None:
    consumer = cluster[1].wire()
    id = b""
    if first == "job":
        id = add_job(cluster[0].wire(), q, "body", "REPLICATE", copies).encode()
    consumer.send("GETJOB", "FROM", q)
    if first == "consumer":
        wait_until(lambda: blocked(cluster[1], q))
        id = add_job(cluster[0].wire(), q, "body", "REPLICATE", copies).encode()
    assert consumer.read() == [[q.encode(), id, b"body"]]
    assert cluster[2].ask("ACKJOB", id) in (0, 1)
    cluster.wait_empty()


def test_jobs_of_one_node_reach_consumers_of_all_nodes(cluster: LiveCluster, q: str) -> None:
    producer = cluster[0].wire()
    ids = {add_job(producer, q, "body", "REPLICATE", 3).encode() for _ in cluster}
    consumers = [node.wire() for node in cluster]
    for consumer in consumers:
        consumer.send("GETJOB", "FROM", q)
    assert {id for consumer in consumers for id in taken(consumer.read())} == ids
    assert cluster[1].ask("ACKJOB", *ids) == len(ids)
    cluster.wait_empty()


def test_an_acknowledgement_finds_a_job_that_its_node_does_not_have(
    cluster: LiveCluster, q: str
) -> None:
    wire = cluster[0].wire()
    id = add_job(wire, q, "body", "REPLICATE", 1)
    assert taken(wire("GETJOB", "FROM", q)) == [id.encode()]
    cluster[2].ask("ACKJOB", id)
    cluster.wait_empty()


@pytest.mark.parametrize("command", ["ACKJOB", "FASTACK"])
def test_a_job_that_is_done_is_gone_everywhere(cluster: LiveCluster, command: str, q: str) -> None:
    ids = [add_job(cluster[n % 3].wire(), q, str(n), "REPLICATE", 3) for n in range(30)]
    assert cluster[1].ask(command, *ids) == 30
    cluster.wait_empty()
    assert queued(cluster, q) == 0


def test_an_acknowledgement_of_an_unknown_job_is_forgotten(cluster: LiveCluster) -> None:
    cluster[0].ask("ACKJOB", "D-00000000-" + "0" * 24 + "-05a1")
    cluster.wait_empty()


def test_a_worker_has_a_job_soon_although_others_asked_for_it_before(
    cluster: LiveCluster, q: str
) -> None:
    for index in (0, 2):
        assert cluster[index].ask("GETJOB", "TIMEOUT", 100, "FROM", q) is None
        assert cluster[index].ask("GETJOB", "NOHANG", "FROM", q) is None
    id = add_job(cluster[1].wire(), q, "body", "REPLICATE", 1)
    # They have got it, and nobody is there any more; waiting for their request to end takes 12 s.
    found = cluster[1].ask("GETJOB", "TIMEOUT", 5_000, "FROM", q)
    assert found == [[q.encode(), id.encode(), b"body"]]
    cluster[1].ask("ACKJOB", id)
    cluster.wait_empty()


def test_more_copies_than_nodes_are_refused(cluster: LiveCluster, q: str) -> None:
    text = cluster[0].wire().error("ADDJOB", q, "body", 0, "REPLICATE", 4)
    assert text.startswith("NOREPL Not enough reachable nodes")
    cluster.wait_empty()


def test_at_most_once_delivery_is_refused_with_several_copies(cluster: LiveCluster, q: str) -> None:
    wire = cluster[0].wire()
    for options in ([], ["REPLICATE", 2]):
        text = wire.error("ADDJOB", q, "body", 0, "RETRY", 0, *options)
        assert text.startswith("ERR With RETRY set to 0")


@pytest.mark.load  # when it ends is the question
def test_a_job_without_its_copies_in_time_is_discarded(cluster: LiveCluster, q: str) -> None:
    wire = cluster[0].wire()
    cluster[1].pause()
    cluster[2].pause()
    started = time.monotonic()
    text = wire.error("ADDJOB", q, "body", 300, "REPLICATE", 3)
    assert text.startswith("NOREPL Timeout reached")
    assert 0.2 < time.monotonic() - started < 10
    assert cluster[0].registered() == 0
    assert wire("QLEN", q) == 0
    cluster[1].resume()
    cluster[2].resume()
    cluster.wait_joined()
    # A later job takes the same links, so it arrives after the end of the first one.
    add_job(wire, "later", "body", "REPLICATE", 3)
    assert [node.registered() for node in cluster] == [1, 1, 1]
    assert queued(cluster, q) == 0


def test_the_reply_to_async_does_not_wait_for_copies(cluster: LiveCluster, q: str) -> None:
    wire = cluster[0].wire()
    cluster[1].pause()
    cluster[2].pause()
    id = add_job(wire, q, "body", "REPLICATE", 3, "ASYNC")
    assert wire("QLEN", q) == 1
    cluster[1].resume()
    cluster[2].resume()
    assert len(cluster.wait_copies(id.encode(), 3)) == 3
    assert cluster[1].ask("ACKJOB", id) == 1
    cluster.wait_empty()


def test_at_most_once_jobs_are_taken_once_wherever_they_go(cluster: LiveCluster, q: str) -> None:
    producers = [node.wire() for node in cluster]
    consumers = [node.wire() for node in cluster]
    ids = {
        add_job(producers[0], q, str(n), "RETRY", 0, "REPLICATE", 1).encode() for n in range(200)
    }
    found: list[bytes] = []
    at: set[int] = set()

    def all_found() -> bool:
        for n, consumer in enumerate(consumers):
            jobs = taken(consumer("GETJOB", "TIMEOUT", 20, "COUNT", 7, "FROM", q))
            found.extend(jobs)
            if jobs:
                at.add(n)
                # Only here: other nodes do not take the acknowledgement of an at-most-once job.
                assert consumer("ACKJOB", *jobs) == len(jobs)
        return len(found) >= len(ids)

    wait_until(all_found)
    assert sorted(found) == sorted(ids)
    assert at == {0, 1, 2}
    cluster.wait_empty()


@pytest.mark.pure
def test_pipelined_replies_come_in_order_and_so_do_the_jobs(cluster: LiveCluster, q: str) -> None:
    wire = cluster[0].wire()
    count = 500
    for n in range(count):
        wire.send("ADDJOB", q, n, 0, "REPLICATE", 3)
    wire.send("PING", "end")
    ids = [wire.read() for _ in range(count)]
    assert wire.read() == b"end"
    assert len(set(ids)) == count
    assert all(isinstance(id, bytes) for id in ids), ids
    jobs = wire("QPEEK", q, count)
    assert isinstance(jobs, list)
    assert [(job[1], job[2]) for job in jobs] == [(id, b"%d" % n) for n, id in enumerate(ids)]
    for node in cluster:
        assert node.registered() == count


def test_what_follows_a_pipelined_job_sees_it(cluster: LiveCluster, q: str) -> None:
    wire = cluster[0].wire()
    for n in range(20):
        wire.send("ADDJOB", q, n, 0, "REPLICATE", 3)
        wire.send("QLEN", q)
    replies = [wire.read() for _ in range(40)]
    assert replies[1::2] == list(range(1, 21))


def test_a_refused_job_among_pipelined_ones_has_its_own_place(cluster: LiveCluster, q: str) -> None:
    wire = cluster[0].wire()
    for n in range(30):
        wire.send("ADDJOB", q, n, 0, "REPLICATE", 9 if n % 3 == 1 else 3)
    replies = [wire.read() for _ in range(30)]
    refused = [n for n, reply in enumerate(replies) if isinstance(reply, hiredis.ReplyError)]
    assert refused == list(range(1, 30, 3))
    assert wire("QLEN", q) == 20


def test_a_queue_is_paused_on_all_nodes_at_once(cluster: LiveCluster, q: str) -> None:
    assert cluster[0].ask("PAUSE", q, "all", "bcast") == b"all"
    for node in cluster:
        wait_until(lambda node=node: node.ask("PAUSE", q, "state") == b"all")
        refusal = node.wire().error("ADDJOB", q, "body", 0)
        assert refusal.startswith("PAUSED")
    assert cluster[1].ask("PAUSE", q, "out", "bcast") == b"out"
    for node in cluster:
        wait_until(lambda node=node: node.ask("PAUSE", q, "state") == b"out")
    assert cluster[2].ask("PAUSE", q, "none", "bcast") == b"none"
    for node in cluster:
        wait_until(lambda node=node: node.ask("PAUSE", q, "state") == b"none")
    id = add_job(cluster[0].wire(), q, "body", "REPLICATE", 3)
    assert taken(cluster[1].ask("GETJOB", "FROM", q)) == [id.encode()]


def test_a_queue_paused_for_consumers_gives_nothing_to_other_nodes(
    cluster: LiveCluster, q: str
) -> None:
    add_job(cluster[0].wire(), q, "body", "REPLICATE", 1)
    cluster[0].ask("PAUSE", q, "out")
    consumer = cluster[1].wire()
    assert consumer("GETJOB", "TIMEOUT", 500, "FROM", q) is None
    consumer.send("GETJOB", "FROM", q)
    cluster[0].ask("PAUSE", q, "none")
    assert len(taken(consumer.read())) == 1


def test_a_job_that_nobody_acknowledges_is_queued_again_by_one_node(
    cluster: LiveCluster, q: str
) -> None:
    wire = cluster[0].wire()
    id = add_job(wire, q, "body", "REPLICATE", 3, "RETRY", 1).encode()
    assert taken(wire("GETJOB", "FROM", q)) == [id]
    seen: list[int] = []
    wait_until(lambda: seen.append(queued(cluster, q)) or seen[-1])
    assert seen[-1] == 1
    jobs = cluster[2].ask("GETJOB", "WITHCOUNTERS", "FROM", q)
    assert isinstance(jobs, list)
    counters = pairs(jobs[0][3:])
    assert counters["nacks"] == 0
    assert isinstance(counters["additional-deliveries"], int)
    assert counters["additional-deliveries"] >= 1
    assert cluster[2].ask("ACKJOB", id) == 1
    cluster.wait_empty()


@pytest.mark.load  # a starved process does not renew it in time
def test_working_at_one_node_postpones_the_next_delivery_at_all_nodes(
    cluster: LiveCluster, q: str
) -> None:
    wire = cluster[0].wire()
    id = add_job(wire, q, "body", "REPLICATE", 3, "RETRY", 4, "TTL", 600)
    assert taken(wire("GETJOB", "FROM", q)) == [id.encode()]
    worker = cluster[2].wire()
    end = time.monotonic() + 5  # longer than the retry time
    while time.monotonic() < end:
        assert worker("WORKING", id) == 4
        assert queued(cluster, q) == 0
        time.sleep(0.1)
    wait_until(lambda: queued(cluster, q) == 1)


def test_each_node_counts_negative_acknowledgements(cluster: LiveCluster, q: str) -> None:
    id = add_job(cluster[0].wire(), q, "body", "REPLICATE", 3, "RETRY", 200)
    for count, node in enumerate(cluster, 1):
        jobs = node.ask("GETJOB", "WITHCOUNTERS", "FROM", q)
        assert isinstance(jobs, list)
        assert pairs(jobs[0][3:])["nacks"] == count - 1
        # Any node with a copy can requeue it.
        assert cluster[count % 3].ask("NACK", id) == 1
        for other in cluster:
            wait_until(lambda other=other, count=count: shown(other, id, "nacks") == count)
        assert queued(cluster, q) == 1
