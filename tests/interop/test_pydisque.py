"""pydisque, the Python client from Disque's time, talks to a node (through today's redis-py)."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydisque.client import Client  # type: ignore[import-untyped]
from redis import ConnectionError, ResponseError

from tests.support.harness import LiveNode
from tests.support.live_helpers import ANY_ID


@pytest.fixture
def client(shared_node: LiveNode) -> Iterator[Any]:
    client = Client([f"{shared_node.host}:{shared_node.port}"])
    client.connect()
    yield client
    client.get_connection().close()


def test_hello_names_the_node(client: Any) -> None:
    version, me, *nodes = client.hello()
    assert version == 1
    assert nodes[0][0] == me == client.connected_node.node_id


def test_a_job_is_added_taken_and_acknowledged(client: Any) -> None:
    id = client.add_job("q", "body", timeout=100)
    assert client.qlen("q") == 1
    # It names the parts (id, queue, job), but returns them in the node's order: queue, id, body.
    assert client.get_job(["q"]) == [(b"q", id, b"body")]
    client.ack_job(id)
    assert client.show(id) is None


def test_all_options_of_a_job(client: Any) -> None:
    id = client.add_job(
        "q", "b", replicate=1, delay=100, retry=5, ttl=1000, maxlen=10, asynchronous=True
    )
    shown = client.show(id, return_dict=True)
    assert shown[b"delay"] == 100
    assert shown[b"retry"] == 5
    assert shown[b"repl"] == 1
    assert shown[b"state"] == b"active"


def test_getting_several_with_counters_and_none(client: Any) -> None:
    ids = [client.add_job("q", str(number)) for number in range(3)]
    jobs = client.get_job(["q", "r"], timeout=100, count=10, withcounters=True)
    assert jobs == [(b"q", id, b"%d" % number, 0, 0) for number, id in enumerate(ids)]
    assert client.get_job(["q"], nohang=True) == []
    assert client.get_job(["q"], timeout=1) == []


def test_negative_acknowledges_and_working(client: Any) -> None:
    id = client.add_job("q", "b", retry=9)
    client.get_job(["q"])
    assert client.working(id) == 9
    client.nack_job(id)
    assert client.get_job(["q"], withcounters=True) == [(b"q", id, b"b", 1, 0)]
    client.fast_ack(id)
    assert client.del_job(id) == 0


def test_jobs_move_out_of_and_into_queues(client: Any) -> None:
    id = client.add_job("q", "b")
    assert client.dequeue(id) == 1
    assert client.enqueue(id) == 1
    assert client.qpeek("q", 1) == [[b"q", id, b"b"]]


def test_the_state_of_a_queue(client: Any) -> None:
    client.add_job("q", "b")
    assert client.qstat("q", return_dict=True)[b"len"] == 1
    assert client.qstat("nowhere") is None


def test_pausing(client: Any) -> None:
    assert client.pause("q", kw_in=True) == b"in"
    with pytest.raises(ResponseError, match="PAUSED"):
        client.add_job("q", "b")
    assert client.pause("q", kw_state=True) == b"in"
    assert client.pause("q", kw_none=True, kw_bcast=True) == b"none"


def test_walks(client: Any) -> None:
    id = client.add_job("q", "b")
    assert client.qscan(count=10, minlen=1, maxlen=5) == [b"0", [b"q"]]
    assert client.qscan(busyloop=True, importrate=1) == [b"0", []]
    assert client.jscan(queue="q", state=["queued", "active"], reply="id") == [b"0", [id]]
    assert client.jscan(reply="all")[1][0][:2] == [b"id", id]


def test_info_is_parsed(client: Any) -> None:
    assert client.info()["registered_queues"] == 0


def test_an_error_of_the_node_is_raised(client: Any) -> None:
    with pytest.raises(ResponseError, match="NOJOB"):
        client.working(ANY_ID)


def test_it_finds_the_node_that_is_there(
    shared_node: LiveNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The underlying redis-py tries for seconds before it gives up on a node.
    monkeypatch.setattr("redis.retry.sleep", lambda seconds: None)
    client = Client(["127.0.0.1:1", f"{shared_node.host}:{shared_node.port}"])
    client.connect()
    assert client.qlen("q") == 0
    client.get_connection().close()
    with pytest.raises(ConnectionError):
        Client(["127.0.0.1:1"]).connect()
