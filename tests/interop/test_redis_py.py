"""redis-py talks to a node, with RESP3 (its default) and RESP2."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory, wait_until
from tests.support.live_cluster import live_cluster
from tests.support.live_helpers import info_value

NO_RETRY = Retry(NoBackoff(), 0)  # so that expected failures come at once
Client = Any  # redis-py's annotations mix its synchronous and asynchronous clients


@pytest.fixture(params=[None, 2, 3], ids=["default", "resp2", "resp3"])
def client(shared_node: LiveNode, request: pytest.FixtureRequest) -> Iterator[Client]:
    options = {} if request.param is None else {"protocol": request.param}
    with redis.Redis(shared_node.host, shared_node.port, socket_timeout=20, **options) as client:
        yield client


def call(client: Client, line: str, *more: str | bytes | int) -> Any:
    return client.execute_command(*line.split(), *more)


def test_the_life_of_a_job(client: Client) -> None:
    id = call(client, "ADDJOB q", b"\xffbody", 0, "RETRY", 10)
    assert call(client, "GETJOB FROM q") == [[b"q", id, b"\xffbody"]]
    assert call(client, "WORKING", id) == 10
    assert call(client, "NACK", id) == 1
    jobs = call(client, "GETJOB WITHCOUNTERS FROM q")
    assert jobs == [[b"q", id, b"\xffbody", b"nacks", 1, b"additional-deliveries", 0]]
    assert call(client, "ENQUEUE", id) == 1
    assert call(client, "DEQUEUE", id) == 1
    shown = call(client, "SHOW", id)
    assert dict(zip(shown[::2], shown[1::2], strict=True))[b"state"] == b"active"
    assert call(client, "ACKJOB", id) == 1
    assert call(client, "SHOW", id) is None
    assert call(client, "FASTACK", id) == 0
    assert call(client, "DELJOB", id) == 0
    assert call(client, "GETJOB NOHANG FROM q") is None


def test_queues_and_walks(client: Client) -> None:
    id = call(client, "ADDJOB q body 0")
    assert call(client, "QLEN q") == 1
    assert call(client, "QPEEK q 1") == [[b"q", id, b"body"]]
    assert call(client, "QSTAT q")[:2] == [b"name", b"q"]
    assert call(client, "QSTAT nowhere") is None
    assert call(client, "QSCAN") == [b"0", [b"q"]]
    assert call(client, "JSCAN") == [b"0", [id]]
    assert call(client, "PAUSE q all") == b"all"
    assert call(client, "PAUSE q none") == b"none"


def test_a_pipeline_is_a_group(client: Client) -> None:
    with client.pipeline() as pipeline:
        for body in ("a", "b"):
            pipeline.execute_command("ADDJOB", "q", body, 0)
        pipeline.execute_command("GETJOB", "COUNT", 5, "FROM", "q")
        pipeline.execute_command("GETJOB", "FROM", "q")
        a, b, taken, nothing = pipeline.execute()
    assert taken == [[b"q", a, b"a"], [b"q", b, b"b"]]
    assert nothing is None
    with client.pipeline() as pipeline:
        pipeline.execute_command("ACKJOB", a, b)
        pipeline.ping()
        assert pipeline.execute() == [2, True]


def test_a_pipeline_with_an_error(client: Client) -> None:
    with client.pipeline() as pipeline:
        pipeline.execute_command("ADDJOB", "q", "body", 0)
        pipeline.execute_command("ADDJOB", "q")
        with pytest.raises(redis.ResponseError, match="wrong number of arguments"):
            pipeline.execute()
    assert call(client, "QLEN q") == 0
    with client.pipeline() as pipeline:
        pipeline.execute_command("ADDJOB", "q", "body", 0)
        pipeline.execute_command("ADDJOB", "q", "body", 0, "RETRY", "never")
        with pytest.raises(redis.ResponseError, match="RETRY time must be"):
            pipeline.execute()
    assert call(client, "QLEN q") == 1
    with (
        client.pipeline() as pipeline,
        pytest.raises(redis.ResponseError, match="nothing to WATCH"),
    ):
        pipeline.watch("q")
    assert client.ping()


def test_errors_are_raised_with_their_text(client: Client) -> None:
    with pytest.raises(redis.ResponseError, match="BADID Invalid Job ID format"):
        call(client, "ACKJOB nonsense")
    with pytest.raises(redis.ResponseError, match="unknown command"):
        call(client, "NONSENSE")
    assert client.ping()


def test_hello_gives_disques_list_of_nodes(client: Client) -> None:
    version, me, first = call(client, "HELLO")
    assert version == 1
    assert first[0] == me == call(client, "CLUSTER MYID")


def test_the_plain_commands_of_redis(client: Client) -> None:
    assert client.ping() is True
    assert client.echo("x") == b"x"
    seconds, micros = client.time()
    assert abs(time.time() - seconds - micros / 1e6) < 5
    assert client.command_count() > 30
    assert "addjob" in client.command()
    assert client.command_list()


def test_info_is_parsed(client: Client) -> None:
    info = client.info()
    assert info["connected_clients"] >= 1
    assert info["registered_jobs"] == 0
    assert client.info("memory")["used_memory"] >= 0
    assert client.info("commandstats")["cmdstat_info"]["calls"] > 0


def test_the_connection_is_known_by_name_and_library(client: Client) -> None:
    client.client_setname("worker")
    assert client.client_getname() in ("worker", b"worker")
    own = [line for line in client.client_list() if line["name"] == "worker"]
    assert "redis-py" in own[0]["lib-name"]
    assert client.client_info()["id"] == client.client_id()
    assert client.client_list(client_id=[client.client_id()])
    assert client.client_kill_filter(_id=str(10**9)) == 0
    assert client.client_unblock(client.client_id()) == 0
    assert client.client_no_evict("on")


def test_settings_are_read_and_set(node: LiveNode) -> None:
    for protocol in (2, 3):
        with redis.Redis(node.host, node.port, protocol=protocol) as client:
            assert client.config_get("h*") in ({b"hz": b"10"}, {"hz": "10"})
            assert client.config_set("timeout", 100)
            assert client.config_resetstat()
            with pytest.raises(redis.ResponseError, match="Invalid argument"):
                client.config_set("hz", "x")


def test_the_slow_log_is_parsed(node: LiveNode) -> None:
    for protocol in (2, 3):
        with redis.Redis(node.host, node.port, protocol=protocol) as client:
            client.slowlog_reset()
            call(client, "DEBUG SLEEP 0.02")
            assert client.slowlog_len() == 1
            entry = client.slowlog_get()[0]
            assert entry["command"] == b"DEBUG SLEEP 0.02"
            assert entry["duration"] >= 20_000


def test_a_pipeline_is_answered_in_order(client: Client) -> None:
    with client.pipeline(transaction=False) as pipeline:
        for number in range(1000):
            pipeline.execute_command("ADDJOB", "q", number, 0)
        pipeline.execute_command("NONSENSE")
        pipeline.execute_command("QLEN", "q")
        replies = pipeline.execute(raise_on_error=False)
    assert len(set(replies[:1000])) == 1000
    assert isinstance(replies[1000], redis.ResponseError)
    assert replies[1001] == 1000


def test_a_pool_serves_many_threads(shared_node: LiveNode) -> None:
    pool = redis.ConnectionPool(host=shared_node.host, port=shared_node.port, max_connections=10)
    client: Client = redis.Redis(connection_pool=pool)
    taken: list[bytes] = []

    def work() -> None:
        for _ in range(50):
            call(client, "ADDJOB q body 0")
            ((_, id, _),) = call(client, "GETJOB FROM q")
            assert call(client, "ACKJOB", id) == 1
            taken.append(id)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == 400
    pool.disconnect()


def test_a_blocking_getjob_waits_for_another_client(client: Client, shared_node: LiveNode) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call(client, "GETJOB FROM q")))
    thread.start()
    wait_until(lambda: info_value(shared_node, "clients", "blocked_clients"))
    with redis.Redis(shared_node.host, shared_node.port) as other:
        id = call(other, "ADDJOB q body 0")
    thread.join()
    assert found == [[[b"q", id, b"body"]]]


def test_monitor_shows_parsed_lines(shared_node: LiveNode) -> None:
    # With RESP2, the lines are Disque's, without a database; redis-py cannot parse these.
    client: Client = redis.Redis(shared_node.host, shared_node.port)
    with client.monitor() as monitor, redis.Redis(shared_node.host, shared_node.port) as other:
        call(other, "QLEN", "a b")
        for line in monitor.listen():
            if "QLEN" in line["command"]:
                break
    assert line["command"] == "QLEN a b"
    assert line["client_address"] == shared_node.host
    client.close()


def test_replies_may_be_decoded(shared_node: LiveNode) -> None:
    for protocol in (2, 3):
        with redis.Redis(
            shared_node.host, shared_node.port, decode_responses=True, protocol=protocol
        ) as client:
            id = call(client, "ADDJOB q körper 0")
            assert isinstance(id, str)
            assert call(client, "GETJOB FROM q") == [["q", id, "körper"]]
            call(client, "ACKJOB", id)


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("credentials", [{}, {"username": "default"}])
def test_a_password_is_given_on_connecting(
    disque_server: NodeFactory, protocol: int, credentials: dict[str, str]
) -> None:
    node = disque_server("--requirepass", "secret")
    options: dict[str, Any] = {"protocol": protocol, "retry": NO_RETRY, **credentials}
    with redis.Redis(node.host, node.port, password="secret", **options) as client:
        assert client.ping()
    with (
        redis.Redis(node.host, node.port, password="wrong", **options) as client,
        pytest.raises((redis.AuthenticationError, redis.ResponseError)),
    ):
        client.ping()
    with (
        redis.Redis(node.host, node.port, protocol=protocol, retry=NO_RETRY) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()


def test_a_unix_socket_is_reached(disque_server: NodeFactory, tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    disque_server("--unixsocket", str(path))
    with redis.Redis(unix_socket_path=str(path)) as client:
        assert client.ping()
    with redis.from_url(f"unix://{path}?db=0") as client:
        assert client.ping()


def test_another_database_is_refused_on_connecting(shared_node: LiveNode) -> None:
    with (
        redis.Redis(shared_node.host, shared_node.port, db=3) as client,
        pytest.raises(redis.ResponseError, match="DB index is out of range"),
    ):
        client.ping()


def test_health_checks_and_client_names_work(shared_node: LiveNode) -> None:
    with redis.Redis(
        shared_node.host, shared_node.port, health_check_interval=1, client_name="named"
    ) as client:
        assert client.client_getname() in ("named", b"named")
        assert client.ping()


def test_shutdown_and_a_restart_are_survived(node: LiveNode) -> None:
    client = redis.Redis(node.host, node.port, retry=NO_RETRY)
    assert client.ping()
    client.shutdown()
    assert node.process.wait(HANG_SECONDS) == 0
    with pytest.raises(redis.ConnectionError):
        client.ping()
    client.close()


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_pipeline_in_a_cluster_is_answered_when_all_have_their_copies(
    tmp_path: Path, protocol: int
) -> None:
    with live_cluster(tmp_path, 3) as cluster:
        cluster.wait_joined()
        first = cluster[0]
        with redis.Redis(first.host, first.port, protocol=protocol, socket_timeout=20) as client:
            with client.pipeline() as pipeline:
                for number in range(500):
                    pipeline.execute_command("ADDJOB", "q", b"%d" % number, 0)
                    pipeline.ping()
                pipeline.execute_command("ADDJOB", "q", "one", 0, "REPLICATE", 9)
                pipeline.execute_command("GETJOB", "FROM", "elsewhere")
                *replies, refused, nothing = pipeline.execute(raise_on_error=False)
            assert replies[1::2] == [True] * 500
            assert isinstance(refused, redis.ResponseError)
            assert nothing is None
            ids = replies[::2]
            assert len(set(ids)) == 500
            assert call(client, "QLEN q") == 500
            shown = call(client, "SHOW", ids[-1])
            assert dict(zip(shown[::2], shown[1::2], strict=True))[b"repl"] == 2
            with client.pipeline() as pipeline:
                pipeline.execute_command("ACKJOB", *ids)
                pipeline.execute_command("QLEN", "q")
                assert pipeline.execute() == [500, 0]
        wait_until(lambda: all(node.ask("SHOW", id) is None for node in cluster for id in ids[:3]))
