"""The queue for programs without Trio."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import coredis
import pytest
import trio

from disque_pressure import (
    PressureConnectionError,
    PressureError,
    QueueAlreadyExistsError,
    QueueClosedError,
    QueueDoesNotExistError,
    QueueEmptyError,
    QueueFullError,
    QueueInUseError,
)
from disque_pressure.sync import PressureQueueSync
from disque_trio.respclient.thread_loop import Loop
from packages.pressure.tests.support.pressure_helpers import Spot
from tests.support import ROOT
from tests.support.harness import HANG_SECONDS, wait_until


def handle(spot: Spot, **options: float) -> PressureQueueSync:
    return PressureQueueSync(spot.name, port=spot.port, prefix=spot.prefix, **options)


@pytest.fixture
def queue(spot: Spot) -> Iterator[PressureQueueSync]:
    with handle(spot) as queue:
        queue.create(3)
        yield queue


def free(spot: Spot, role: str) -> bool:
    return bool(spot.raw.llen(spot.key(f"{role}_free")))


def test_elements_are_received_as_they_were_sent(queue: PressureQueueSync, spot: Spot) -> None:
    assert queue.exists()
    queue.put(b"1")
    queue.put_nowait(b"2")
    assert queue.put_many(iter([b"3"])) == 1
    assert queue.length() == queue.qsize() == 3
    assert queue.get() == b"1"
    assert queue.get_nowait() == b"2"
    assert queue.get_many(5) == [b"3"]
    assert queue.stats().consumed_messages == 3
    assert not queue.closed()
    queue.close()
    assert queue.closed()
    queue.delete()
    assert not queue.exists()
    assert spot.keys() == set()


def test_each_handle_is_one_client(queue: PressureQueueSync, spot: Spot) -> None:
    queue.put(b"1")
    first = queue.stats().producer
    queue.put(b"2")
    assert queue.stats().producer == first
    with handle(spot) as other:
        other.put(b"3")
        assert other.stats().producer != first
    with PressureQueueSync("q", port=spot.port, prefix=spot.prefix, uid="me") as named:
        named.get()
        assert named.stats().consumer == "me"
    assert spot.key("bound") in queue.inspect()


def test_a_redis_client_tells_a_handle_how_to_connect(spot: Spot) -> None:
    client = coredis.Redis(host="127.0.0.1", port=spot.port)
    with PressureQueueSync(spot.name, port=1, prefix=spot.prefix, client=client) as queue:
        queue.create(3)
    assert spot.tokens() == (1, 1, 1, 0)


def test_errors_are_those_of_the_queue(queue: PressureQueueSync) -> None:
    with pytest.raises(QueueAlreadyExistsError):
        queue.create()
    with pytest.raises(QueueEmptyError):
        queue.get(timeout=0.01)
    queue.put_many([b"1", b"2", b"3"])
    with pytest.raises(QueueFullError):
        queue.put_nowait(b"4")
    queue.close()
    with pytest.raises(QueueClosedError) as closed:
        queue.put(b"4")
    assert closed.value.queue == "q"
    queue.delete()
    with pytest.raises(QueueDoesNotExistError):
        queue.length()


def test_an_unreachable_redis_is_an_error() -> None:
    with (
        PressureQueueSync("q", port=1) as queue,
        pytest.raises(PressureConnectionError),
    ):
        queue.length()


def test_a_wrong_setting_is_an_error_at_once() -> None:
    with pytest.raises(ValueError, match="lease"):
        PressureQueueSync("q", lease=-1)
    with pytest.raises(PressureError):
        PressureQueueSync("q:bound")


def test_iteration_ends_when_the_queue_is_closed_and_empty(queue: PressureQueueSync) -> None:
    queue.put_many([b"1", b"2"])
    queue.close()
    assert list(queue) == [b"1", b"2"]


def test_one_handle_serves_several_threads(queue: PressureQueueSync) -> None:
    sent = [b"%d" % n for n in range(300)]
    found: list[bytes] = []

    def produce(part: list[bytes]) -> None:
        for data in part:
            queue.put(data)

    def consume() -> None:
        found.extend(queue)

    producers = [threading.Thread(target=produce, args=(sent[n::3],)) for n in range(3)]
    consumer = threading.Thread(target=consume)
    for thread in [*producers, consumer]:
        thread.start()
    for thread in producers:
        thread.join(HANG_SECONDS)
    queue.close()
    consumer.join(HANG_SECONDS)
    assert sorted(found) == sorted(sent)
    for n in range(3):
        mine = set(sent[n::3])
        assert [data for data in found if data in mine] == sent[n::3]


def test_a_role_can_be_held_for_many_operations(queue: PressureQueueSync, spot: Spot) -> None:
    with handle(spot) as other:
        with queue.producer() as producer:
            producer.put(b"1")
            with pytest.raises(QueueInUseError):
                other.put_nowait(b"x")
            assert producer.put_many([b"2", b"3"]) == 2
        with queue.consumer() as consumer:
            with pytest.raises(QueueInUseError):
                other.get_nowait()
            assert consumer.get() == b"1"
            assert consumer.get_many(1) == [b"2"]
            with queue.producer() as producer:
                producer.close()
            assert list(consumer) == [b"3"]
        assert free(spot, "producer")
        assert free(spot, "consumer")


def test_an_error_in_the_block_releases_the_role(queue: PressureQueueSync, spot: Spot) -> None:
    def fail() -> None:
        with queue.producer():
            raise KeyError("mine")

    with pytest.raises(KeyError):
        fail()
    assert free(spot, "producer")


def test_a_used_role_is_an_error(queue: PressureQueueSync, spot: Spot) -> None:
    def hold() -> None:
        with queue.producer(timeout=0.01):
            pass

    spot.raw.rpop(spot.key("producer_free"))
    with pytest.raises(QueueInUseError):
        hold()
    assert queue.repair("producer") == ""
    hold()


def test_ctrl_c_ends_a_wait_and_releases_the_role(queue: PressureQueueSync, spot: Spot) -> None:
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        wait_until(lambda: not free(spot, "consumer"))
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        queue.get()
    thread.join()
    assert free(spot, "consumer")
    queue.put(b"1")
    assert queue.get() == b"1"


def test_a_result_that_arrives_with_ctrl_c_is_kept() -> None:
    main = threading.main_thread().ident
    assert main is not None
    kept: list[bytes] = []

    async def arrive() -> bytes:
        signal.pthread_kill(main, signal.SIGINT)
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            pass  # as if it had arrived just before
        return b"1"

    loop: Loop[None] = Loop(contextlib.nullcontext, "test")
    with contextlib.closing(loop):
        with pytest.raises(KeyboardInterrupt):
            loop.run(arrive, kept.append)
        assert kept == [b"1"]
        with pytest.raises(KeyError):
            loop.run(fail_with_key_error, kept.append)


@pytest.mark.parametrize("handed_over", [False, True])
def test_ctrl_c_during_the_start_of_a_call_ends_it(
    handed_over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    async def call() -> bytes:
        begun.append("call")
        await trio.sleep_forever()
        return b""

    loop: Loop[None] = Loop(contextlib.nullcontext, "test")
    with contextlib.closing(loop):
        soon = loop.soon

        def broken(function: Callable[[], object]) -> None:
            monkeypatch.undo()
            if handed_over:
                soon(function)
            raise KeyboardInterrupt

        monkeypatch.setattr(loop, "soon", broken)
        with pytest.raises(KeyboardInterrupt):
            loop.run(call, lambda _: None)
        assert len(begun) <= handed_over


async def fail_with_key_error() -> bytes:
    raise KeyError


def test_closing_the_handle_ends_waits_in_other_threads(spot: Spot) -> None:
    queue = handle(spot)
    queue.create()
    ended: list[str] = []

    def wait() -> None:
        try:
            queue.get()
        except PressureError as error:
            ended.append(error.queue)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: not free(spot, "consumer"))
    queue.disconnect()
    queue.disconnect()
    thread.join(HANG_SECONDS)
    assert ended == ["q"]
    assert free(spot, "consumer")
    with pytest.raises(PressureError, match="closed"):
        queue.length()


def test_an_abandoned_handle_ends_its_thread(spot: Spot) -> None:
    before = set(threading.enumerate())
    queue = handle(spot)
    mine = [thread for thread in set(threading.enumerate()) - before if thread.name == "pressure"]
    assert len(mine) == 1
    del queue
    wait_until(lambda: not mine[0].is_alive())


def test_the_end_of_the_program_releases_roles(spot: Spot) -> None:
    with handle(spot) as queue:
        queue.create()
    program = f"""
import threading
from disque_pressure import PressureError
from disque_pressure.sync import PressureQueueSync
def wait():
    try:
        queue.get()
    except PressureError:
        pass
queue = PressureQueueSync("q", port={spot.port}, prefix={spot.prefix!r})
role = queue.producer()
role.__enter__()
threading.Thread(target=wait, daemon=True).start()
while queue.stats().consumer_free:
    pass
print("held", flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        timeout=HANG_SECONDS,
        cwd=ROOT,
        check=True,
    )
    assert (done.stdout, done.stderr) == (b"held\n", b"")
    assert free(spot, "producer")
    assert free(spot, "consumer")


def test_a_forked_child_is_told_to_open_its_own_handle(queue: PressureQueueSync) -> None:
    child = os.fork()
    if not child:
        try:
            queue.length()
        except PressureError as error:
            os._exit(0 if "another process" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert queue.length() == 0


def test_put_many_reports_its_progress(queue: PressureQueueSync, spot: Spot) -> None:
    seen: list[int] = []
    with pytest.raises(QueueFullError) as caught:
        queue.put_many([b"1", b"2", b"3", b"4"], 0.05, progress=seen.append)
    assert (seen, caught.value.done) == ([3], 3)
    assert queue.get_many(2) == [b"1", b"2"]
    with queue.producer() as producer:
        assert producer.put_many([b"5", b"6"], progress=seen.append) == 2
    assert seen == [3, 2]


def test_after_ctrl_c_the_progress_of_a_put_many_is_exact(
    queue: PressureQueueSync, spot: Spot
) -> None:
    main = threading.main_thread().ident
    assert main is not None
    seen: list[int] = []

    def interrupt() -> None:
        wait_until(lambda: spot.raw.llen(spot.data) == 3)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        queue.put_many([b"%d" % n for n in range(9)], progress=seen.append)
    thread.join()
    assert seen == [3]
    assert queue.get_many(9) == [b"0", b"1", b"2"]
    assert free(spot, "producer")
