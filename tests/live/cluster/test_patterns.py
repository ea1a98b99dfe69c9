"""GETJOB PATTERN on real nodes: jobs of any matching queue, wherever they are."""

import pytest
import trio

from disque_trio.client import connect
from tests.support.harness import HANG_SECONDS, ClusterFactory, LiveNode, NodeFactory, wait_until

WAIT = ("GETJOB", "PATTERN", "FROM")


def add(node: LiveNode, queue: str, *options: str) -> bytes:
    id = node.ask("ADDJOB", queue, "body", "0", *options)
    assert isinstance(id, bytes), id
    return id


def patterns(node: LiveNode) -> int:
    return int(node.info("clients")["patterns"])


def test_clients_waiting_by_pattern_get_jobs_of_all_nodes(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    ids = {add(nodes[i % 3], f"mail.{i}", "REPLICATE", "1") for i in range(6)}
    other = add(nodes[1], "sms.1", "REPLICATE", "1")
    wire = nodes[0].wire()
    found = set()
    while len(found) < len(ids):
        ((queue, id, _),) = wire(*WAIT, "mail.*")  # type: ignore[misc]
        assert queue.startswith(b"mail.")
        found.add(id)
        assert wire("ACKJOB", id) == 1
    assert found == ids
    assert nodes[1].ask("QLEN", "sms.1") == 1
    assert other not in found


def test_a_queue_created_later_on_another_node_wakes_waiting_clients(
    cluster: ClusterFactory,
) -> None:
    nodes = cluster(3)
    wire = nodes[0].wire()
    wire.send(*WAIT, "mail.*", "chat.*")
    wait_until(lambda: patterns(nodes[1]) == patterns(nodes[2]) == 2)
    for node, queue in ((nodes[1], "mail.new"), (nodes[2], "chat.new")):
        id = add(node, queue, "REPLICATE", "1")
        assert wire.read() == [[queue.encode(), id, b"body"]]
        wire.send(*WAIT, "mail.*", "chat.*")
    nodes[2].kill()
    id = add(nodes[1], "mail.last", "REPLICATE", "2")
    assert wire.read() == [[b"mail.last", id, b"body"]]


def test_a_large_node_answers_others_while_it_looks_for_queues(disque_server: NodeFactory) -> None:
    node = disque_server()
    wire = node.wire()
    for first in range(0, 20_000, 1_000):
        names = range(first, first + 1_000)
        for i in names:
            wire.send("ADDJOB", f"sms.{i}", "b", 0)
        for _ in names:
            assert isinstance(wire.read(), bytes)
    id = add(node, "mail.1")
    asker = node.wire()
    asker.send("GETJOB", "NOHANG", "PATTERN", "FROM", "mail.*")
    assert wire("PING") == b"PONG"
    assert asker.read() == [[b"mail.1", id, b"body"]]
    assert asker("GETJOB", "NOHANG", "PATTERN", "FROM", "mail.*") is None


@pytest.mark.trio
async def test_the_worker_loop_takes_jobs_of_new_queues(disque_server: NodeFactory) -> None:
    node = disque_server()
    done: list[str] = []
    with trio.fail_after(HANG_SECONDS):
        async with connect([f"{node.host}:{node.port}"]) as client, trio.open_nursery() as nursery:

            async def work() -> None:
                async for job in client.jobs("mail.*", pattern=True):
                    done.append(job.queue)
                    if len(done) == 5:
                        await job.ack()
                        break

            nursery.start_soon(work)
            for i in range(5):
                await client.add(f"mail.{i}", "body")
                await client.add(f"sms.{i}", "body")
    assert sorted(done) == [f"mail.{i}" for i in range(5)]
