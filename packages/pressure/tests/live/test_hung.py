"""A Redis that does not reply: operations end at their timeout, or soon after a cancellation."""

import math
import os
import signal
import subprocess
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio
import trio.testing

from disque_pressure import PressureConnectionError, PressureQueue
from disque_pressure.roles import Producer
from disque_pressure.sync import PressureQueueSync
from disque_pressure.tasks import reprieve
from disque_trio.notation.addresses import Address
from disque_trio.redis.connection import REPLY_SECONDS, RedisConnection
from disque_trio.redis.errors import RedisError, RedisUnavailable
from disque_trio.respclient.connection import Connection
from tests.support.commands import run_command, start_command
from tests.support.harness import HANG_SECONDS, wait_until
from tests.support.redis_server import RedisServer, hung, plain_client

Call = Callable[[PressureQueue], Awaitable[object]]
NEVER = 1_000.0  # s; a test that waits for it takes too long
GRACE = 0.2


@pytest.fixture(autouse=True)
def _only_a_timeout_or_a_cancellation_ends_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (
        "disque_trio.redis.connection",
        "disque_pressure.operations",
        "disque_pressure.deadlines",
    ):
        monkeypatch.setattr(f"{module}.GRACE_SECONDS", GRACE)
    for module in ("disque_trio.redis.connection", "disque_pressure.waiting"):
        monkeypatch.setattr(f"{module}.REPLY_SECONDS", NEVER)


def handle(server: RedisServer) -> PressureQueue:
    return PressureQueue("q", port=server.port, prefix="p", lease=NEVER)


TIMED: dict[str, Call] = {
    "put": lambda q: q.put(b"late", timeout=0.1),
    "put_nowait": lambda q: q.put_nowait(b"late"),
    "put_many": lambda q: q.put_many([b"late"], timeout=0.1),
    "get": lambda q: q.get(timeout=0.1),
    "get_nowait": lambda q: q.get_nowait(),
    "close": lambda q: q.close(timeout=0.1),
    "delete": lambda q: q.delete(timeout=0.1),
    "producer": lambda q: q.producer(timeout=0.1).__aenter__(),
}
ENDLESS: dict[str, Call] = {
    "put": lambda q: q.put(b"late"),
    "get": lambda q: q.get(),
    "close": lambda q: q.close(),
    "delete": lambda q: q.delete(),
    "length": lambda q: q.length(),
    "exists": lambda q: q.exists(),
    "create": lambda q: q.create(),
}


@pytest.mark.parametrize("name", TIMED)
async def test_an_operation_ends_at_its_timeout_and_may_have_been_executed(
    own_redis: RedisServer, name: str
) -> None:
    async with handle(own_redis) as q:
        await q.create()
        with hung(own_redis), trio.fail_after(HANG_SECONDS):
            with pytest.raises(PressureConnectionError) as lost:
                await TIMED[name](q)
            assert lost.value.maybe_executed


@pytest.mark.parametrize("name", TIMED)
async def test_without_a_connection_it_ends_at_its_timeout_and_was_not_executed(
    own_redis: RedisServer, name: str
) -> None:
    async with handle(own_redis) as q:
        with hung(own_redis), trio.fail_after(HANG_SECONDS):
            with pytest.raises(PressureConnectionError) as lost:
                await TIMED[name](q)
            assert not lost.value.maybe_executed


@pytest.mark.parametrize("name", ENDLESS)
async def test_a_cancelled_operation_ends_soon(own_redis: RedisServer, name: str) -> None:
    async with handle(own_redis) as q:
        if name != "create":
            await q.create()
        with hung(own_redis), trio.fail_after(HANG_SECONDS):
            for _ in range(2):  # with a connection, and without
                with trio.move_on_after(0.1) as scope:
                    await ENDLESS[name](q)
                assert scope.cancelled_caught


@pytest.mark.parametrize("role", ["producer", "consumer"])
async def test_a_cancelled_block_with_a_role_ends_soon_and_the_role_becomes_free(
    own_redis: RedisServer, role: str
) -> None:
    async with handle(own_redis) as q, handle(own_redis) as other:
        await q.create(1)
        holding = q.producer() if role == "producer" else q.consumer()
        with trio.CancelScope() as scope:
            async with holding as held:
                with hung(own_redis):
                    with trio.fail_after(HANG_SECONDS):
                        scope.cancel()
                        if isinstance(held, Producer):
                            await held.put(b"late")
                        else:
                            await held.get()
        assert scope.cancelled_caught
        with trio.fail_after(HANG_SECONDS):
            async with other.producer(), other.consumer():
                pass


async def test_a_role_that_may_have_been_taken_is_released_when_redis_replies_again(
    own_redis: RedisServer,
) -> None:
    async with handle(own_redis) as q, handle(own_redis) as other:
        await q.create(1)
        await q.put(b"full")
        with hung(own_redis), trio.fail_after(HANG_SECONDS), pytest.raises(PressureConnectionError):
            await q.put(b"no room", timeout=0.1)
        with trio.fail_after(HANG_SECONDS):
            async with other.producer():
                assert await other.get() == b"full"


async def test_a_late_reply_is_given_to_nobody_else(own_redis: RedisServer) -> None:
    async with handle(own_redis) as q:
        await q.create()
        await q.put_many([b"1", b"2"])
        with hung(own_redis):
            with trio.move_on_after(0.1):
                await q.get()
        # Whether or not Redis executed it, each reply still belongs to its own command.
        for _ in range(20):
            assert await q.exists() is True
            assert await q.length() in (1, 2)
            assert not await q.closed()
        await q.put(b"3")
        left = await q.get_many(10)
        assert left in ([b"1", b"2", b"3"], [b"2", b"3"])


async def test_late_elements_go_to_the_next_get(own_redis: RedisServer) -> None:
    async with handle(own_redis) as q, handle(own_redis) as other:
        await q.create()
        await q.put_many([b"1", b"2", b"3"])
        await other.length()
        assert await q.get() == b"1"  # loads the script
        with hung(own_redis), trio.fail_after(HANG_SECONDS), pytest.raises(PressureConnectionError):
            await q.get_nowait()
        with trio.fail_after(HANG_SECONDS):
            assert await q.get() == b"2"
            assert await other.get() == b"3"


async def test_a_short_timeout_does_not_disturb_an_operation_with_a_longer_one(
    own_redis: RedisServer,
) -> None:
    done: list[str] = []

    async def patient(q: PressureQueue) -> None:
        await q.put(b"patient")
        done.append("patient")

    async with handle(own_redis) as q:
        await q.create()
        async with trio.open_nursery() as nursery:
            with hung(own_redis):
                nursery.start_soon(patient, q)
                await trio.testing.wait_all_tasks_blocked()
                with pytest.raises(PressureConnectionError):
                    await q.put(b"hasty", timeout=0.1)
                assert not done
        assert done == ["patient"]
        assert b"patient" in await q.get_many(2)


def test_in_threads_an_operation_ends_at_its_timeout(own_redis: RedisServer) -> None:
    with PressureQueueSync("q", port=own_redis.port, prefix="p") as queue:
        queue.create()
        with hung(own_redis), pytest.raises(PressureConnectionError):
            queue.put(b"late", timeout=0.1)


def test_ctrl_c_ends_an_operation_of_a_thread_soon(own_redis: RedisServer) -> None:
    with PressureQueueSync("q", port=own_redis.port, prefix="p") as queue:
        queue.create()
        with hung(own_redis):
            interrupt = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012
                interrupt.start()
                queue.put(b"late")
            interrupt.join()


@pytest.mark.load  # the command itself gives up after REPLY_SECONDS
def test_ctrl_c_ends_the_command_soon(own_redis: RedisServer) -> None:
    with plain_client(own_redis.port) as raw:
        place = ["--port", str(own_redis.port), "--prefix", "p"]
        run_command("pressure", "create", "q", *place, check=True)
        streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        with start_command("pressure", "get", "q", *place, **streams) as process:
            wait_until(lambda: any("b" in row["flags"] for row in raw.client_list()))
            with hung(own_redis):
                process.send_signal(signal.SIGINT)
                assert process.wait(REPLY_SECONDS / 2) == 128 + signal.SIGINT


async def test_a_reprieve_ends_some_time_after_the_cancellation(
    autojump_clock: trio.testing.MockClock,
) -> None:
    for work, ends in ((1.0, 1.0), (3.0, 3.0), (60.0, 4.0)):
        start = trio.current_time()
        done = False
        with trio.move_on_after(2.0) as scope:
            async with reprieve(2.0):
                await trio.sleep(work)
                done = True
            assert trio.current_time() - start == pytest.approx(ends)
            await trio.lowlevel.checkpoint()
        assert done == (work < 4.0)
        assert scope.cancelled_caught == (work > 2.0)
    with pytest.raises(ValueError, match="as it is"):
        async with reprieve(2.0):
            raise ValueError("as it is")


@pytest.mark.parametrize(
    ("until", "cancelled", "ends"),
    [
        (math.inf, math.inf, REPLY_SECONDS),
        (3.0, math.inf, 3.0),
        (60.0, math.inf, REPLY_SECONDS),
        (math.inf, 2.0, 2.0 + GRACE),
    ],
)
async def test_the_time_limit_of_a_reply(
    autojump_clock: trio.testing.MockClock, until: float, cancelled: float, ends: float
) -> None:
    theirs, _ = trio.testing.memory_stream_pair()  # nobody replies
    connection = Connection(theirs, Address("silent"), RedisError)

    async def connect(nursery: trio.Nursery, _: Address | None, __: float) -> Connection:
        nursery.start_soon(connection.run)
        return connection

    async with trio.open_nursery() as nursery:
        link = RedisConnection(nursery, connect, REPLY_SECONDS)
        start = trio.current_time()
        with trio.move_on_after(cancelled) as scope, suppress(RedisUnavailable):
            await link.command(b"PING", until=start + until)
        assert trio.current_time() - start == pytest.approx(ends)
        assert scope.cancelled_caught == (cancelled < ends)
        assert link.silent
        assert not link.usable
        assert not connection.closed  # others may still get their replies
        await trio.sleep(2 * REPLY_SECONDS)
        assert connection.closed
        nursery.cancel_scope.cancel()
