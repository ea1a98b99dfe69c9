"""Several bananaq processes on one Redis, and bananaq on a Redis Cluster."""

import threading

import pytest

from packages.bananaq.tests.support.banana_daemons import (
    STATS,
    Daemon,
    Given,
    RedisCluster,
    RedisServer,
    drain,
    now_us,
    pipeline,
    plain_client,
    redis_options,
)
from packages.bananaq.tests.support.banana_fixtures import DaemonFactory
from tests.support.harness import HANG_SECONDS, wait_until

pytestmark = pytest.mark.live


def pair(run_bananaq: DaemonFactory) -> tuple[Daemon, Daemon]:
    """Two daemons that share their events."""
    first = run_bananaq("redis")
    return first, run_bananaq("redis", *first.options)


@pytest.mark.load  # that it does not wait for its timeout is the question
def test_an_event_added_at_one_daemon_wakes_a_client_of_another(run_bananaq: DaemonFactory) -> None:
    first, second = pair(run_bananaq)
    told, taker = second.wire(), second.wire()
    told.send("QNOTIFY", "g", 20, "p", "q")
    taker.send("QGET", "q", "h", "BLOCK", 20)
    wait_until(lambda: first.status("q", "h")["consumers"] == 1)
    wait_until(lambda: first.status("p", "g")["consumers"] == 1)
    started = now_us()
    id = first.ask("QADD", "q", 60, "body")
    assert told.read() == b"q"
    event = Given(taker.read())
    assert now_us() - started < 10_000_000
    assert event.id == id
    assert first.ask("QACK", "q", "h", event.id) == 1  # at either daemon
    assert second.ask("QACK", "q", "h", event.id) == 0
    # Missed deadlines and requeued events at one daemon are noticed at the other.
    for end in ("REDO", "deadline"):
        held = Given(first.ask("QGET", "q", "g", "EX", 60 if end == "REDO" else 3))
        taker.send("QGET", "q", "g", "BLOCK", 20)
        wait_until(lambda: first.status("q", "g")["consumers"] == 1)
        if end == "REDO":
            assert first.ask("QACK", "q", "g", held.id, "REDO") == 1
        again = Given(taker.read())
        assert (again.base, again.delivery) == (held.base, held.delivery + 1)
        assert taker("QACK", "q", "g", again.id, "REDO") == 1
    # With several waiting clients at both, each gets one more event.
    wires = [daemon.wire() for daemon in (first, second) * 3]
    for wire in wires:
        wire.send("QGET", "r", "g", "BLOCK", 20)
    wait_until(lambda: second.status("r", "g")["consumers"] == 6)
    ids = [second.ask("QADD", "r", 60, n) for n in range(6)]
    assert sorted(Given(wire.read()).id for wire in wires) == ids


def test_consumers_are_counted_across_daemons_and_those_of_a_stopped_one_are_forgotten(
    run_bananaq: DaemonFactory,
) -> None:
    first, second = pair(run_bananaq)
    for daemon in (first, second, second):
        daemon.wire().send("QNOTIFY", "g", 60, "q")
    register = first.wire()
    register("QREGISTER", "q")
    for daemon in (first, second):
        wait_until(lambda daemon=daemon: daemon.status("q", "g")["consumers"] == 3)
        assert daemon.status("q", "okq")["consumers"] == 1
    assert second.stop() == 0
    assert first.status("q", "g")["consumers"] == 1
    assert first.stop() == 0


def test_a_killed_daemon_loses_no_event(run_bananaq: DaemonFactory) -> None:
    first, second = pair(run_bananaq)
    count = 1_000
    producer = first.wire()
    got: dict[bytes, int] = {}
    lock = threading.Lock()
    enough = threading.Event()

    def consume(daemon: Daemon) -> None:
        wire = daemon.wire()
        try:
            while not enough.is_set():
                event = wire("QGET", "q", "g", "EX", "1", "BLOCK", "0.2")
                if event is None:
                    continue
                given = Given(event)
                if wire("QACK", "q", "g", given.id) == 1:
                    with lock:
                        got[given.base] = got.get(given.base, 0) + 1
        except (EOFError, OSError):
            assert daemon is second

    threads = [
        threading.Thread(target=consume, args=(daemon,)) for daemon in (first, second, second)
    ]
    for thread in threads:
        thread.start()
    ids: list[object] = []
    try:
        for _ in range(count // 20):
            ids += pipeline(producer, [("QADD", "q", 60, "body")] * 20)
            if len(ids) == count // 2:
                wait_until(lambda: len(got) > 50)
                second.kill()
        wait_until(lambda: first.status("q", "g")["done"] == count)
    finally:
        enough.set()
        for thread in threads:
            thread.join(HANG_SECONDS)
    # Unconfirmed operations of the dead daemon may have been executed.
    assert set(got) <= set(ids)
    assert set(got.values()) == {1}
    counts = first.status("q", "g")
    assert counts["total"] == counts["done"] == count
    assert len(got) >= count - 2


def test_daemons_with_other_prefixes_or_databases_share_nothing(
    run_bananaq: DaemonFactory, banana_redis: RedisServer, shared_redis: Daemon, queue: str
) -> None:
    first = run_bananaq("redis")
    third = run_bananaq("redis", *first.options, "--redis-db", "3")
    first.ask("QADD", queue, 60, "body")
    for daemon in (shared_redis, third):
        assert daemon.ask("QGET", queue, "g") is None
        assert daemon.status(queue, "g")["total"] == 0
    with plain_client(banana_redis.port) as client:
        client.select(3)
        before = client.dbsize()
        third.ask("QADD", queue, 60, "body")
        assert client.dbsize() > before
        third.ask("QFLUSH", queue)


def test_the_password_is_sent_to_redis(run_bananaq: DaemonFactory, own_redis: RedisServer) -> None:
    with plain_client(own_redis.port) as client:
        client.config_set("requirepass", "secret")
    daemon = run_bananaq("redis", "--redis-password", "secret", redis=own_redis)
    assert isinstance(daemon.ask("QADD", "q", 60, "body"), bytes)
    assert Given(daemon.ask("QGET", "q", "g", "BLOCK", 1)).body == b"body"
    without = run_bananaq("redis", redis=own_redis)
    assert "authenticat" in without.wire().error("QADD", "q", 60, "body")


def test_with_a_full_redis_events_are_refused_but_delivered(
    run_bananaq: DaemonFactory, own_redis: RedisServer
) -> None:
    daemon = run_bananaq("redis", redis=own_redis)
    wire = daemon.wire()
    pipeline(wire, [("QADD", "q", 60, "x" * 1000)] * 50)
    with plain_client(own_redis.port) as client:
        client.config_set("maxmemory", "1mb")
        assert "OOM" in wire.error("QADD", "q", 60, "body")
        event = Given(wire("QGET", "q", "g"))
        assert wire("QACK", "q", "g", event.id) == 1
        assert daemon.status("q", "g")["available"] == 49
        assert wire("QFLUSH", "q") == b"OK"
        client.config_set("maxmemory", "0")
    assert isinstance(wire("QADD", "q", 60, "body"), bytes)


@pytest.fixture
def in_cluster(run_bananaq: DaemonFactory, cluster_of_redis: RedisCluster) -> Daemon:
    """A daemon with three nodes."""
    options = redis_options(cluster_of_redis.servers[0], "in-cluster")
    return run_bananaq("embedded", *options, "--redis-cluster")


def test_queues_are_distributed_over_a_cluster(
    in_cluster: Daemon, cluster_of_redis: RedisCluster
) -> None:
    wire = in_cluster.wire()
    queues = [f"queue-{n}" for n in range(30)] + ["", "{}", "a}b", "q{x}"]
    ids = pipeline(wire, [("QADD", queue, 120, f"{queue} {n}") for queue in queues for n in (0, 1)])
    assert all(isinstance(id, bytes) for id in ids)
    assert min(cluster_of_redis.keys()) > 5
    status = wire("QSTATUS")
    assert isinstance(status, list)
    assert [row[0].decode() for row in status] == sorted(queues)
    status = wire("QSTATUS", *queues, "GROUPS", "g")
    assert isinstance(status, list)
    assert [row[1][1][1] for row in status] == [2] * len(queues)
    told = wire("QNOTIFY", "g", 20, *queues)
    assert isinstance(told, bytes)
    assert told.decode() in queues
    for queue in queues:
        first, second = (
            Given(wire("QGET", queue, "g")),
            Given(wire("QGET", queue, "g", "EX", "0.3")),
        )
        assert first.body == f"{queue} 0".encode()
        assert wire("QACK", queue, "g", first.id) == 1
        again = Given(wire("QGET", queue, "g", "BLOCK", 20)) if queue in queues[:3] else second
        assert again.base == second.base
    assert wire("QNOTIFY", "g", 5, queues[-1]) == queues[-1].encode()
    wire("QLPUSH", "okq", "own", "body")
    assert wire("QRPOP", "okq") == [b"own", b"body"]
    assert wire("QACK", "okq", "own") == 1
    waiters = [in_cluster.wire() for _ in queues]
    for waiter, queue in zip(waiters, queues, strict=True):
        waiter.send("QGET", queue + "-later", "g", "BLOCK", 20)
    wait_until(
        lambda: all(in_cluster.status(queue + "-later", "g")["consumers"] for queue in queues)
    )
    for queue in queues:
        wire("QADD", queue + "-later", 60, queue)
    assert [Given(waiter.read()).body.decode() for waiter in waiters] == queues
    replies = pipeline(
        wire, [("QFLUSH", queue + end) for queue in (*queues, "okq") for end in ("", "-later")]
    )
    assert set(replies) == {b"OK"}
    assert wire("QSTATUS") == []
    # What remains, so that ids keep increasing, expires.
    for server in cluster_of_redis.servers:
        with plain_client(server.port) as client:
            for key in client.scan_iter(count=1000):
                assert b"-later" in key or 0 < client.pttl(key) < 300_000


def test_a_queue_that_moves_to_another_node_stays_complete(
    in_cluster: Daemon, cluster_of_redis: RedisCluster
) -> None:
    """Its slot moves to another node, key by key, while it is used."""
    wire = in_cluster.wire()
    ids = pipeline(wire, [("QADD", "moving", 120, n) for n in range(100)])
    held = [Given(wire("QGET", "moving", "g", "EX", 60)) for _ in range(10)]
    clients = [plain_client(server.port) for server in cluster_of_redis.servers]
    try:
        source = next(
            client
            for client in clients
            if any(b"moving" in key for key in client.scan_iter(count=1000))
        )
        target = next(client for client in clients if client is not source)
        key = next(key for key in source.scan_iter(count=1000) if b"moving" in key)
        slot = source.execute_command("CLUSTER KEYSLOT", key)
        names = [client.execute_command("CLUSTER MYID") for client in (source, target)]
        port = target.connection_pool.connection_kwargs["port"]
        target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[0])
        source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[1])
        done = threading.Event()
        more: list[object] = []

        def use() -> None:
            user = in_cluster.wire()
            while not done.is_set():
                more.append(user("QADD", "moving", 120, "more"))
            user.close()

        thread = threading.Thread(target=use)
        thread.start()
        try:
            keys = source.execute_command("CLUSTER GETKEYSINSLOT", slot, 1000)
            source.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 60_000, "KEYS", *keys)
            for client in clients:
                client.execute_command("CLUSTER SETSLOT", slot, "NODE", names[1])
            count = len(more)
            wait_until(lambda: len(more) > count + 5)
        finally:
            done.set()
            thread.join(HANG_SECONDS)
    finally:
        for client in clients:
            client.close()
    added = [*ids, *(id for id in more if isinstance(id, bytes))]
    assert [wire("QACK", "moving", "g", event.id) for event in held] == [1] * 10
    had = [event.base for event in held] + [event.base for event in drain(wire, "moving", "g")]
    assert had == sorted(had)
    assert set(added) <= set(had)
    assert len(had) == len(set(had))
    assert isinstance(more[-1], bytes)
    counts = in_cluster.status("moving", "g")
    assert counts == dict(zip(STATS, (len(had), 0, 0, len(had), 0, 0), strict=True))
    wire("QFLUSH", "moving")
