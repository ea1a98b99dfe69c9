"""Celery programs and workers on real nodes."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import kombu
import pytest
from celery import Celery, chain, chord, group
from celery.contrib.testing.worker import start_worker
from celery.exceptions import BackendStoreError, ChordError, TaskRevokedError
from celery.exceptions import TimeoutError as CeleryTimeoutError
from celery.result import AsyncResult
from kombu.exceptions import OperationalError

from packages.integrations.tests.support.celery_app import program, ran
from tests.support.harness import (
    HANG_SECONDS,
    ClusterFactory,
    LiveNode,
    NodeFactory,
    start_process,
    wait_for_ping,
    wait_until,
)

LIMIT = {"timeout": HANG_SECONDS}


@contextmanager
def opened(*nodes: LiveNode, **settings: Any) -> Iterator[Celery]:
    """Open a program on these nodes."""
    app = program(";".join(f"disque://{node.host}:{node.port}" for node in nodes), **settings)
    try:
        yield app
    finally:
        app.close()


@contextmanager
def working(app: Celery, **options: Any) -> Iterator[Any]:
    """Run a worker for it in threads."""
    with start_worker(app, perform_ping_check=False, pool="threads", **options) as worker:
        yield worker


@pytest.fixture
def app(shared_node: LiveNode) -> Iterator[Celery]:
    with opened(shared_node) as app:
        yield app


def test_tasks_run_and_have_results(app: Celery) -> None:
    add, fail, third_time = (app.tasks[name] for name in ("add", "fail", "third_time"))
    with working(app):
        result = add.delay(1, 2)
        assert result.get(**LIMIT) == 3
        assert AsyncResult(result.id, app=app).state == "SUCCESS"
        with pytest.raises(ValueError, match="no"):
            fail.delay().get(**LIMIT)
        assert third_time.delay().get(**LIMIT) == 2
        assert chain(add.s(1, 2), add.s(3), add.s(4))().get(**LIMIT) == 10
        many = group(add.s(n, n) for n in range(10))()
        assert many.get(**LIMIT) == [2 * n for n in range(10)]
        result.forget()
        assert AsyncResult(result.id, app=app).state == "PENDING"


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_the_body_of_a_chord_runs_when_all_parts_have_returned(app: Celery, parts: int) -> None:
    add, total = app.tasks["add"], app.tasks["total"]
    with working(app):
        result = chord([add.s(n, 1) for n in range(parts)])(total.s())
        assert result.get(**LIMIT) == sum(range(parts)) + parts
        # Or the error of the part: get() looks at the parents, too.
        with pytest.raises((ChordError, ValueError)):
            chord([add.s(1, 1), app.tasks["fail"].s()])(total.s()).get(**LIMIT)


def test_a_task_with_an_eta_waits_in_the_node(app: Celery, shared_node: LiveNode) -> None:
    with working(app) as worker:
        add = app.tasks["add"]
        at = datetime.now(UTC) + timedelta(seconds=0.4)
        soon, later = add.apply_async((1, 2), eta=at), add.apply_async((1, 2), countdown=3600)
        assert soon.get(**LIMIT) == 3
        assert datetime.now(UTC) >= at
        stat = shared_node.ask("QSTAT", "celery", "FULL")
        assert isinstance(stat, list)
        assert stat[stat.index(b"jobs-delayed") + 1] == 1
        assert worker.consumer.qos.value == worker.consumer.initial_prefetch_count
        assert later.state == "PENDING"


def test_get_waits_for_a_result(app: Celery) -> None:
    add = app.tasks["add"]
    result = add.delay(1, 2)
    with pytest.raises(CeleryTimeoutError):
        result.get(timeout=0.05)
    with working(app):
        assert result.get(**LIMIT) == 3
        # Another client gets it again.
        assert AsyncResult(result.id, app=app).get(**LIMIT) == 3
        app.backend.store_result("own", {"at": 7}, "PROGRESS")
        assert AsyncResult("own", app=app).info == {"at": 7}
        app.backend.store_result("own", "x" * 2_000_000, "SUCCESS")
        assert len(AsyncResult("own", app=app).get(**LIMIT)) == 2_000_000


def test_urgent_tasks_come_first(app: Celery, tmp_path: Path) -> None:
    told, file = app.tasks["told"], tmp_path / "ran"
    for name, priority in (("low", 0), ("high", 9), ("middle", 5), ("none", None)):
        told.apply_async((name, 0, str(file)), priority=priority)
    with working(app, concurrency=1):
        wait_until(lambda: len(ran(file)) == 4)
    assert [name for name, _ in ran(file)] == ["high", "middle", "low", "none"]


def test_a_revoked_task_does_not_run(app: Celery, shared_node: LiveNode) -> None:
    with working(app):
        shared_node.ask("PAUSE", "celery", "out")
        result = app.tasks["add"].delay(1, 2)
        wait_until(lambda: app.control.revoke(result.id, reply=True, timeout=1, limit=1))
        shared_node.ask("PAUSE", "celery", "none")
        with pytest.raises(TaskRevokedError):
            result.get(**LIMIT)


def test_workers_can_be_inspected_and_controlled(app: Celery) -> None:
    with working(app) as worker:
        [(name, answer)] = app.control.inspect(timeout=HANG_SECONDS, limit=1).ping().items()
        assert (name, answer) == (worker.hostname, {"ok": "pong"})
        to = [worker.hostname]
        inspect = app.control.inspect(to, timeout=HANG_SECONDS)
        [stats] = inspect.stats().values()
        assert stats["broker"]["transport"] == "disque"
        app.control.add_consumer("more", destination=to, reply=True, timeout=HANG_SECONDS)
        assert app.tasks["add"].apply_async((1, 2), queue="more").get(**LIMIT) == 3
        app.control.cancel_consumer("more", destination=to, reply=True, timeout=HANG_SECONDS)
        assert app.tasks["add"].delay(1, 2).get(**LIMIT) == 3


def test_tasks_that_wait_in_nodes_are_scheduled(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    at = [datetime.now(UTC) + timedelta(hours=hours) for hours in (2, 1)]
    with opened(*nodes) as app, working(app) as worker:
        add = app.tasks["add"]
        later, sooner = (add.apply_async((1,), {"b": 2}, eta=eta) for eta in at)
        add.apply_async((1, 2), countdown=3600, queue="other")
        assert add.delay(1, 2).get(**LIMIT) == 3
        inspect = app.control.inspect([worker.hostname], timeout=HANG_SECONDS)
        wait_until(lambda: len(inspect.scheduled()[worker.hostname]) == 2)
        first, second = inspect.scheduled()[worker.hostname]
        assert [first["eta"], second["eta"]] == [eta.isoformat() for eta in reversed(at)]
        assert first["request"]["id"] == sooner.id
        assert first["request"]["name"] == "add"
        assert (first["request"]["args"], first["request"]["kwargs"]) == ([1], {"b": 2})
        assert first["request"]["delivery_info"]["routing_key"] == "celery"
        sooner.revoke()
        wait_until(lambda: len(inspect.scheduled()[worker.hostname]) == 1)
        assert inspect.scheduled()[worker.hostname][0]["request"]["id"] == later.id


def test_temporary_queues_leave_no_bindings(app: Celery, shared_node: LiveNode) -> None:
    with working(app):
        assert app.control.inspect(timeout=HANG_SECONDS, limit=1).ping()
    bindings = shared_node.ask("BINDINGS")
    assert isinstance(bindings, list)
    assert [queue for _, queue in bindings if b"pidbox" in queue] == []


def test_events_report_what_workers_do(app: Celery) -> None:
    seen: list[str] = []
    with app.connection_for_read() as connection:
        receiver = app.events.Receiver(
            connection, handlers={"*": lambda event: seen.append(event["type"])}
        )
        with (
            receiver.consumer_context(wakeup=False) as (connected, _, _),
            working(app, task_events=True),
        ):
            app.tasks["add"].delay(1, 2).get(**LIMIT)

            def finished() -> bool:
                try:
                    connected.drain_events(timeout=0.1)
                except TimeoutError:
                    pass
                return "task-succeeded" in seen

            wait_until(finished)
    assert {"task-received", "task-started"} <= {*seen}


def test_a_long_task_stays_with_its_worker(app: Celery, tmp_path: Path) -> None:
    file = tmp_path / "ran"
    app.conf.broker_transport_options = {"retry": 3}
    with working(app, concurrency=2):
        app.tasks["told"].delay("long", 4, str(file)).get(**LIMIT)
    assert len(ran(file)) == 1


@pytest.mark.parametrize("late", [True, False])
def test_early_and_late_acknowledgements_leave_nothing(
    app: Celery, shared_node: LiveNode, late: bool
) -> None:
    task = app.tasks["add"]
    task.acks_late = late
    with working(app):
        assert group(task.s(n, n) for n in range(20))().get(**LIMIT)
        wait_until(
            lambda: shared_node.info("jobs")["registered_jobs"] == _results(app, shared_node)
        )


def _results(app: Celery, node: LiveNode) -> str:
    stat = node.ask("QSTAT", "celery-results", "FULL")
    assert isinstance(stat, list)
    return str(stat[stat.index(b"jobs-delayed") + 1])


def test_tasks_that_were_not_started_go_to_another_worker(
    app: Celery, shared_node: LiveNode
) -> None:
    connection = app.connection_for_read()
    channel = connection.channel()
    channel.basic_qos(0, 5, False)
    queue = app.amqp.queues["celery"](channel)
    seen: list[Any] = []
    consumer = kombu.Consumer(channel, [queue], callbacks=[lambda _, message: seen.append(message)])
    consumer.consume()
    results = [app.tasks["add"].delay(n, 1) for n in range(7)]
    while len(seen) < 5:
        connection.drain_events(timeout=HANG_SECONDS)
    assert shared_node.ask("QLEN", "celery") == 2
    seen[0].requeue()
    while len(seen) < 6:
        connection.drain_events(timeout=HANG_SECONDS)
    connection.release()
    assert shared_node.ask("QLEN", "celery") == 7
    with working(app):
        assert [result.get(**LIMIT) for result in results] == [1, 2, 3, 4, 5, 6, 7]


def test_a_worker_and_a_program_continue_at_another_node(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    two = {"replicate": 2}
    settings = {"broker_transport_options": two, "result_backend_transport_options": two}
    with opened(*nodes, **settings) as app, working(app) as worker:
        add = app.tasks["add"]
        assert add.delay(1, 2).get(**LIMIT) == 3
        used = worker.consumer.connection.transport.disque.address
        [gone] = [node for node in nodes if str(node.port) in used]
        gone.kill()
        assert group(add.s(n, n) for n in range(10))().get(**LIMIT) == [2 * n for n in range(10)]


def test_a_worker_reconnects_when_its_node_is_back(disque_server: NodeFactory) -> None:
    node = disque_server("--appendonly", "yes")
    options = {
        "broker_transport_options": {"retry_for": 0, "retry": 5},
        "worker_cancel_long_running_tasks_on_connection_loss": True,  # otherwise, Celery warns
    }
    with ExitStack() as last, opened(node, **options) as app, working(app) as worker:
        add = app.tasks["add"]
        assert add.delay(1, 2).get(**LIMIT) == 3
        before = worker.consumer.connection
        node.kill()
        wait_until(lambda: worker.consumer.connection is not before)
        arguments = ("--port", str(node.port), "--bind", node.host, "--appendonly", "yes")
        again = start_process(node.directory, node.port, *arguments)
        # A worker that cannot tell what it has stored would try again and again.
        last.callback(again.close)
        assert wait_for_ping(again)
        assert add.delay(1, 2).get(**LIMIT) == 3


def test_errors_are_clear(disque_server: NodeFactory, tmp_path: Path) -> None:
    node = disque_server("--requirepass", "secret")
    once = {"retry_policy": {"max_retries": 0}}
    options = {"broker_transport_options": {"retry_for": 0}}
    with opened(node, **options) as app, pytest.raises(OperationalError, match="NOAUTH"):
        app.tasks["add"].apply_async((1, 2), ignore_result=True, **once)
    with program(f"disque://:secret@{node.host}:{node.port}", **options) as app:
        app.tasks["add"].apply_async((1, 2), ignore_result=True, **once)
        node.ask("AUTH", "secret")
        wire = node.wire()
        wire("AUTH", "secret")
        wire("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(OperationalError, match="OOM"):
            app.tasks["add"].apply_async((1, 2), ignore_result=True, **once)
        app.backend.max_retries = 0  # no retries
        with pytest.raises(BackendStoreError):
            app.backend.store_result("own", 7, "SUCCESS")
        wire("CONFIG", "SET", "maxmemory", "0")
        app.tasks["add"].apply_async((1, 2), ignore_result=True, **once)
    node.kill()
    with opened(node, **options) as app, pytest.raises(OperationalError, match="no Disque node"):
        app.tasks["add"].apply_async((1, 2), ignore_result=True, **once)


def test_errors_of_exchanges_are_those_of_queues(disque_server: NodeFactory) -> None:
    node = disque_server()
    with kombu.Connection(f"disque://{node.host}:{node.port}") as connection:
        exchange = kombu.Exchange("news", "topic")
        kombu.Queue("all", exchange, "#").bind(connection.default_channel).declare()
        producer = connection.Producer(exchange=exchange)
        producer.publish({}, routing_key="a")
        node.ask("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(OperationalError, match="OOM"):
            producer.publish({}, routing_key="a", retry=True, retry_policy={"max_retries": 0})


def test_a_program_that_did_not_declare_an_exchange_reaches_its_queues(
    shared_node: LiveNode,
) -> None:
    url = f"disque://{shared_node.host}:{shared_node.port}"
    with kombu.Connection(url) as connection:
        for name, kind, key in (
            ("fan", "fanout", ""),
            ("hot", "topic", "a.*"),
            ("one", "direct", "k"),
        ):
            queue = kombu.Queue(f"q-{name}", kombu.Exchange(name, kind), key)
            queue.bind(connection.default_channel).declare()
            connection.default_channel.state.clear()
    sent = {"fan": "any.key", "hot": "a.b", "one": "k"}
    with kombu.Connection(url) as connection:
        for exchange, key in sent.items():
            connection.Producer().publish({}, exchange=exchange, routing_key=key)
    assert [shared_node.ask("QLEN", f"q-{name}") for name in sent] == [1, 1, 1]


def test_names_may_have_a_prefix(shared_node: LiveNode) -> None:
    options = {"broker_transport_options": {"queue_prefix": "shop."}}
    with opened(shared_node, **options) as app:
        result = app.tasks["add"].delay(1, 2)
        assert shared_node.ask("QLEN", "shop.celery") == 1
        with working(app):
            assert result.get(**LIMIT) == 3


def test_a_message_that_arrived_but_was_not_read_is_queued_again_when_its_consumer_is_cancelled(
    shared_node: LiveNode,
) -> None:
    with kombu.Connection(f"disque://{shared_node.host}:{shared_node.port}") as connection:
        queue = connection.SimpleQueue("unread")
        with pytest.raises(queue.Empty):
            queue.get(timeout=0.05)
        queue.put("hello")
        sent = ("JSCAN", "BUSYLOOP", "QUEUE", "unread", "STATE", "active")
        wait_until(lambda: shared_node.ask(*sent)[1])
        queue.close()
        wait_until(lambda: shared_node.ask("QLEN", "unread") == 1)
        assert queue.queue.get().payload == "hello"


def test_kombu_can_be_used_alone(shared_node: LiveNode) -> None:
    with kombu.Connection(f"disque://{shared_node.host}:{shared_node.port}") as connection:
        queue = connection.SimpleQueue("simple")
        queue.put({"hello": "world"})
        message = queue.get(timeout=HANG_SECONDS)
        assert message.payload == {"hello": "world"}
        message.ack()
        with pytest.raises(queue.Empty):
            queue.get(timeout=0.05)
        queue.close()
        queue.queue.maybe_bind(connection.default_channel)
        connection.Producer().publish(
            b"\x00\xff", routing_key="simple", serializer="raw", retry=True
        )
        wait_until(lambda: shared_node.ask("QLEN", "simple") == 1)
        message = queue.queue.get()
        assert message.body == b"\x00\xff"
        message.reject()
        wait_until(lambda: shared_node.info("jobs")["registered_jobs"] == "0")
        assert queue.queue.get() is None


def test_a_message_that_was_handed_back_is_the_next_one(shared_node: LiveNode) -> None:
    url = f"disque://{shared_node.host}:{shared_node.port}"
    with kombu.Connection(url) as connection, connection.SimpleQueue("back") as queue:
        queue.put("x")
        for _ in range(50):
            message = queue.queue.get()
            assert message is not None
            message.requeue()
        queue.get_nowait().ack()
