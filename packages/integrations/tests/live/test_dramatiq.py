"""The broker and the results of Dramatiq on a real node."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import dramatiq
import dramatiq.worker
import pytest
from dramatiq import Message, Worker
from dramatiq.errors import (
    BrokerError,
    ConnectionClosed,
    ConnectionFailed,
    QueueJoinTimeout,
    QueueNotFound,
)
from dramatiq.results import ResultMissing, Results, ResultTimeout

from disque_integrations.dramatiq import DisqueBackend, DisqueBroker
from tests.support.harness import (
    HANG_SECONDS,
    ClusterFactory,
    LiveNode,
    NodeFactory,
    free_port,
    wait_until,
)

HANG_MS = round(HANG_SECONDS * 1_000)
Brokers = Callable[..., DisqueBroker]


def url(node: LiveNode) -> str:
    return f"disque://127.0.0.1:{node.port}"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restart consumers at once."""
    monkeypatch.setattr(dramatiq.worker, "CONSUMER_RESTART_DELAY_SECS", 0.05)


@pytest.fixture
def brokers(shared_node: LiveNode) -> Iterator[Brokers]:
    """Make brokers with their own queues."""
    made: list[DisqueBroker] = []

    def make(**options: Any) -> DisqueBroker:
        options = {"url": url(shared_node), "namespace": uuid4().hex, **options}
        made.append(DisqueBroker(**options))
        return made[-1]

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def broker(brokers: Brokers) -> DisqueBroker:
    return brokers()


@contextmanager
def working(broker: DisqueBroker, threads: int = 2) -> Iterator[Worker]:
    worker = Worker(broker, worker_threads=threads, worker_timeout=50)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()


def left(broker: DisqueBroker, queue: str = "default") -> list[Message[Any]]:
    """Return the messages of a queue that have not ended on the node."""
    found = broker.client.jscan_full(queue=broker.name(queue), states=["active", "queued"])
    return [Message.decode(job["body"]) for job in found if isinstance(job["body"], bytes)]


def test_messages_are_processed(broker: DisqueBroker) -> None:
    got: list[int] = []
    actor = dramatiq.actor(got.append, actor_name="take", broker=broker)
    for number in range(50):
        actor.send(number)
    with working(broker) as worker:
        broker.join("default", timeout=HANG_MS)
        worker.join()
    assert sorted(got) == list(range(50))
    assert left(broker) == []


def test_a_delayed_message_waits_in_the_node_and_not_in_a_worker(broker: DisqueBroker) -> None:
    ran: list[float] = []
    actor = dramatiq.actor(lambda: ran.append(time.time()), actor_name="note", broker=broker)
    sent = time.time()
    actor.send_with_options(delay=400)
    assert broker.client.qlen(broker.name("default")) == 0
    with working(broker) as worker:
        wait_until(lambda: ran)
        assert worker.consumers.keys() == {"default"}
    assert ran[0] - sent >= 0.4
    assert broker.get_declared_delay_queues() == set()


def test_a_failure_is_retried_and_then_a_dead_letter(broker: DisqueBroker) -> None:
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise LookupError("there is none")

    dramatiq.actor(fail, broker=broker, max_retries=2, min_backoff=10, max_backoff=20).send()
    with working(broker):
        wait_until(lambda: broker.client.qlen(broker.name("default.XQ")) == 1)
    assert len(tries) == 3
    [letter] = broker.client.get(broker.name("default.XQ"))
    assert letter.letter is not None
    assert letter.letter.queue == broker.name("default")
    assert "there is none" in letter.letter.reason
    assert Message.decode(letter.body).actor_name == "fail"


@pytest.fixture
def no_log() -> Iterator[None]:
    """For tests whose log cannot be sent to another process."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("no_log")
def test_an_error_that_is_not_valid_unicode_makes_a_dead_letter(broker: DisqueBroker) -> None:
    tries: list[int] = []

    def fail() -> None:
        tries.append(1)
        raise FileNotFoundError("caf\udce9.txt")

    dramatiq.actor(fail, broker=broker, max_retries=0).send()
    with working(broker):
        wait_until(lambda: broker.client.qlen(broker.name("default.XQ")) == 1)
    assert len(tries) == 1
    [letter] = broker.client.get(broker.name("default.XQ"))
    assert letter.letter is not None
    assert letter.letter.reason == r"caf\udce9.txt"


def test_an_unreadable_message_is_a_dead_letter(broker: DisqueBroker) -> None:
    broker.declare_queue("default")
    broker.client.add(broker.name("default"), "nonsense")
    with working(broker):
        wait_until(lambda: broker.client.qlen(broker.name("default.XQ")) == 1)


def test_dead_letters_go_to_xq_even_if_the_policy_has_none(broker: DisqueBroker) -> None:
    broker.declare_queue("default")
    broker.client.set_policy(broker.name("default"), ttl=3600)
    broker.client.add(broker.name("default"), "nonsense")
    with working(broker):
        wait_until(lambda: broker.client.qlen(broker.name("default.XQ")) == 1)
    assert left(broker) == []


def test_a_policy_of_the_operator_is_left_alone(broker: DisqueBroker) -> None:
    name = broker.name("default")
    broker.client.set_policy(name, attempts=3, dead="cemetery")
    broker.declare_queue("default")
    broker.consume("default").close()
    policy = broker.client.policy(name)
    assert policy is not None
    assert (policy.attempts, policy.dead) == (3, "cemetery")


def test_urgent_messages_come_first(broker: DisqueBroker) -> None:
    got: list[int] = []
    actor = dramatiq.actor(got.append, actor_name="take", broker=broker)
    for number in range(8):
        actor.send_with_options(args=(number,), broker_priority=number)
    worker = Worker(broker, worker_threads=1, worker_timeout=50)
    worker.queue_prefetch = 1
    worker.start()
    try:
        wait_until(lambda: len(got) == 8)
    finally:
        worker.stop()
    assert got == list(range(7, -1, -1))


def test_an_invalid_priority_is_refused(broker: DisqueBroker) -> None:
    actor = dramatiq.actor(lambda: None, actor_name="idle", broker=broker)
    with pytest.raises(ValueError, match="0 to 7"):
        actor.send_with_options(broker_priority=8)


@pytest.mark.load  # a starved process does not renew it in time
def test_a_long_message_runs_once(brokers: Brokers) -> None:
    broker = brokers(retry=3)
    ran: list[int] = []
    done = threading.Event()

    def work() -> None:
        ran.append(1)
        time.sleep(4)  # longer than RETRY, which is what is tested
        done.set()

    dramatiq.actor(work, broker=broker).send()
    with working(broker), working(broker):
        assert done.wait(HANG_SECONDS)
        broker.join("default", timeout=HANG_MS)
    assert len(ran) == 1


def test_a_worker_that_stops_requeues_messages_that_it_has_not_started(
    broker: DisqueBroker,
) -> None:
    go_on, begun = threading.Event(), threading.Event()

    def work(_: int) -> None:
        begun.set()
        assert go_on.wait(HANG_SECONDS)

    actor = dramatiq.actor(work, broker=broker)
    for number in range(5):
        actor.send(number)

    def go_on_when_it_stops(worker: Worker) -> None:
        wait_until(lambda: not worker.workers[0].running)
        go_on.set()

    with ThreadPoolExecutor() as pool, working(broker, threads=1) as worker:
        assert begun.wait(HANG_SECONDS)
        pool.submit(go_on_when_it_stops, worker)
    # Two were prefetched; one of them was being processed.
    wait_until(lambda: broker.client.qlen(broker.name("default")) == 4)


def test_a_broker_that_closes_requeues_held_messages(brokers: Brokers) -> None:
    broker = brokers()
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(HANG_SECONDS)

    dramatiq.actor(work, broker=broker).send()
    with working(broker):
        assert begun.wait(HANG_SECONDS)
        broker.close()
        wait_until(lambda: broker.client.qlen(broker.name("default")) == 1)
        go_on.set()


def test_a_worker_can_pause_with_held_messages(broker: DisqueBroker) -> None:
    got: list[int] = []

    def work(number: int) -> None:
        time.sleep(0.02)
        got.append(number)

    actor = dramatiq.actor(work, broker=broker)
    for number in range(10):
        actor.send(number)
    with working(broker, threads=1) as worker:
        wait_until(lambda: got)
        worker.pause()
        actor.send(10)
        worker.resume()
        wait_until(lambda: len(got) == 11)
        broker.join("default", timeout=HANG_MS)
    assert sorted(got) == list(range(11))


def test_flush_drops_queued_delayed_and_held_messages(broker: DisqueBroker) -> None:
    actor = dramatiq.actor(lambda: None, actor_name="idle", broker=broker)
    actor.send()
    actor.send()
    actor.send_with_options(delay=60_000)
    broker.client.get(broker.name("default"))
    broker.flush_all()
    assert left(broker) == []
    broker.join("default", timeout=1000)


def test_join_has_a_timeout(broker: DisqueBroker) -> None:
    dramatiq.actor(lambda: None, actor_name="idle", broker=broker).send()
    with pytest.raises(QueueJoinTimeout):
        broker.join("default", timeout=50, interval=10)


def test_a_queue_must_be_declared(broker: DisqueBroker) -> None:
    with pytest.raises(QueueNotFound):
        broker.consume("nowhere")


def test_without_a_node_the_connection_fails(brokers: Brokers) -> None:
    broker = brokers(url=f"disque://127.0.0.1:{free_port()}", retry_for=0)
    actor = dramatiq.actor(lambda: None, actor_name="idle", broker=broker)
    with pytest.raises(ConnectionFailed):
        actor.send()
    with pytest.raises(ConnectionFailed):
        broker.consume("default")


def test_a_lost_node_closes_the_connection(disque_server: NodeFactory, brokers: Brokers) -> None:
    node = disque_server()
    broker = brokers(url=url(node), retry_for=0)
    actor = dramatiq.actor(lambda: None, actor_name="idle", broker=broker)
    actor.send()
    node.kill()
    with pytest.raises(ConnectionClosed):
        actor.send()


def test_a_wrong_password_is_reported_at_once(disque_server: NodeFactory, brokers: Brokers) -> None:
    node = disque_server("--requirepass", "right")
    where = f"127.0.0.1:{node.port}"
    wrong = brokers(url=f"disque://:wrong@{where}")
    with pytest.raises(ConnectionFailed, match=r"WRONGPASS|AUTH|password"):
        dramatiq.actor(lambda: None, actor_name="idle", broker=wrong).send()
    right = brokers(url=f"disque://:right@{where}")
    dramatiq.actor(lambda: None, actor_name="idle", broker=right).send()
    assert len(left(right)) == 1


def test_a_retry_that_a_full_node_refuses_is_not_lost(
    disque_server: NodeFactory, brokers: Brokers
) -> None:
    node = disque_server()
    broker = brokers(url=url(node))
    tries: list[int] = []
    full = threading.Event()

    def fail() -> None:
        tries.append(1)
        if not full.is_set():
            broker.client.execute("CONFIG", "SET", "maxmemory", "1")
            full.set()
        if len(tries) < 3:
            raise LookupError

    actor = dramatiq.actor(fail, broker=broker, min_backoff=10, max_backoff=10)
    actor.send()
    with working(broker):
        wait_until(lambda: len(tries) > 1)
        with pytest.raises(BrokerError, match="OOM"):
            actor.send()
        broker.client.execute("CONFIG", "SET", "maxmemory", "0")
        broker.join("default", timeout=HANG_MS)
    assert len(tries) >= 3


def test_results_are_kept_and_can_be_waited_for(
    broker: DisqueBroker, shared_node: LiveNode
) -> None:
    backend = DisqueBackend(url=url(shared_node), namespace=uuid4().hex)
    broker.add_middleware(Results(backend=backend))
    go_on = threading.Event()

    def add(a: int, b: int) -> int:
        assert go_on.wait(HANG_SECONDS)
        return a + b

    message = dramatiq.actor(add, broker=broker, store_results=True).send(1, 2)
    with pytest.raises(ResultMissing):
        message.get_result(backend=backend)
    with pytest.raises(ResultTimeout):
        message.get_result(backend=backend, block=True, timeout=10)
    answers: list[int] = []
    waiting = [
        threading.Thread(
            target=lambda: answers.append(
                message.get_result(backend=backend, block=True, timeout=HANG_MS)
            )
        )
        for _ in range(2)
    ]
    for thread in waiting:
        thread.start()
    with working(broker):
        go_on.set()
        for thread in waiting:
            thread.join(HANG_SECONDS)
    assert answers == [3, 3]
    assert message.get_result(backend=backend) == 3
    assert message.get_result(backend=backend) == 3
    backend.close()


def test_a_result_expires(shared_node: LiveNode) -> None:
    backend = DisqueBackend(url=url(shared_node), namespace=uuid4().hex)
    message: Message[Any] = Message(
        queue_name="default", actor_name="add", args=(), kwargs={}, options={}
    )
    backend.store_result(message, 3, ttl=1000)
    assert backend.get_result(message) == 3

    def gone() -> bool:
        try:
            return backend.get_result(message) is None
        except ResultMissing:
            return True

    wait_until(gone)
    backend.close()


def test_a_result_is_read_at_another_node(cluster: ClusterFactory) -> None:
    here, there = (DisqueBackend(url=url(node)) for node in cluster(2))
    message: Message[Any] = Message(
        queue_name="default", actor_name="add", args=(), kwargs={}, options={}
    )
    here.store_result(message, 3, ttl=60_000)
    assert there.get_result(message, block=True, timeout=HANG_MS) == 3
    here.close()
    there.close()
