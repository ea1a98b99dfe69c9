"""Elements that Redis hands out too late are not lost, and no extra connections are opened."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import hiredis
import pytest
import trio
import trio.testing

from disque_pressure import (
    PressureConnectionError,
    PressureQueue,
    QueueEmptyError,
    ServerRefusedError,
    scripts,
)
from disque_pressure.pipe import SLICE, _put_some
from disque_trio.notation.addresses import Address
from disque_trio.redis.connection import GRACE_SECONDS, REPLY_SECONDS, RedisConnection
from disque_trio.redis.errors import RedisError, RedisUnavailable
from disque_trio.resp.command import encode_command
from disque_trio.respclient.connection import Connection


class StalledRedis:
    """Accepts connections, and executes commands once it wakes up. Its tasks run in the nursery of
    the client.

    Attributes:
        wakes: when it starts to reply, in Trio's time. elements: the content of the queue.
            error: the reply to every command, unless None. executed: the names of the scripts that
            ran. connections: all that were opened.
    """

    def __init__(self, *elements: bytes) -> None:
        self._wakes = math.inf
        self.planned = trio.Event()
        self.elements = list(elements)
        self.error: str | None = None
        self.executed: list[bytes] = []
        self.connections: list[Connection] = []

    @property
    def wakes(self) -> float:
        return self._wakes

    @wakes.setter
    def wakes(self, time: float) -> None:
        self._wakes = time
        self.planned.set()
        self.planned = trio.Event()

    async def wake(self) -> None:
        """Execute all commands received so far."""
        self.wakes = trio.current_time()
        await trio.testing.wait_all_tasks_blocked()

    async def connect(self, nursery: trio.Nursery, _: Address | None, __: float) -> Connection:
        ours, theirs = trio.testing.memory_stream_pair()
        connection = Connection(theirs, Address("stalled"), RedisError)
        self.connections.append(connection)
        nursery.start_soon(connection.run)
        nursery.start_soon(self._serve, ours)
        return connection

    async def _serve(self, stream: trio.testing.MemoryReceiveStream) -> None:
        reader = hiredis.Reader()
        async for data in stream:
            reader.feed(bytes(data))
            while command := reader.gets():
                reply = await self._reply(command)
                try:
                    await stream.send_all(reply)
                except trio.BrokenResourceError:
                    pass  # it still executes what it received

    async def _reply(self, command: list[bytes]) -> bytes:
        if command[0] == b"BLMOVE":  # no element arrives
            await trio.sleep(1)
            return b"_\r\n"
        while self.wakes > trio.current_time():
            with trio.move_on_at(self.wakes):
                await self.planned.wait()
        name = command[1] if len(command) > 1 else command[0]
        self.executed.append(name)
        if self.error is not None:
            return b"-%s\r\n" % self.error.encode()
        if name == scripts.get.function:
            count = int(command[-1])
            found, self.elements = self.elements[:count], self.elements[count:]
            return encode_command(found) if found else b"*0\r\n"
        return b":1\r\n"

    @property
    def open_connections(self) -> int:
        return sum(not connection.closed for connection in self.connections)


@asynccontextmanager
async def stalled(
    monkeypatch: pytest.MonkeyPatch, *elements: bytes
) -> AsyncIterator[tuple[StalledRedis, PressureQueue]]:
    server = StalledRedis(*elements)
    monkeypatch.setattr("disque_pressure.queue.servers", lambda *_: server)
    async with PressureQueue("q", server="nowhere") as queue:
        yield server, queue


async def elapsed(call: Callable[[], Awaitable[object]]) -> float:
    """Return how long the call takes to report that Redis does not reply."""
    start = trio.current_time()
    with pytest.raises(PressureConnectionError):
        await call()
    return trio.current_time() - start


async def test_an_element_that_arrives_after_the_timeout_goes_to_the_next_get(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stalled(monkeypatch, b"1", b"2") as (server, queue):
        assert await elapsed(queue.get_nowait) == pytest.approx(GRACE_SECONDS)
        server.wakes = trio.current_time() + 3
        assert await queue.get() == b"1"
        assert server.executed.count(scripts.get.function) == 1
        assert await queue.get_nowait() == b"2"


async def test_an_element_that_arrives_after_a_cancellation_goes_to_the_next_get(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stalled(monkeypatch, b"1", b"2", b"3") as (server, queue):
        start = trio.current_time()
        with trio.move_on_after(2) as scope:
            await queue.get_many(2)
        assert scope.cancelled_caught
        assert trio.current_time() - start == pytest.approx(2 + GRACE_SECONDS)
        server.wakes = trio.current_time() + 5
        await trio.sleep(6)
        assert await queue.get_nowait() == b"1"
        assert await queue.get_many(10) == [b"2"]
        assert await queue.get_many(10) == [b"3"]


async def test_the_bridge_waits_for_a_redis_that_stalls_for_longer_than_one_attempt(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stalled(monkeypatch) as (server, queue):
        server.wakes = trio.current_time() + SLICE + GRACE_SECONDS + 1
        assert await _put_some(queue, [b"1"], math.inf) == (1, None)
        server.wakes = math.inf
        assert await elapsed(lambda: _put_some(queue, [b"2"], 2)) < 2 * GRACE_SECONDS + SLICE


async def test_polls_ask_a_stalled_redis_once_and_end_in_time(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stalled(monkeypatch, b"1", b"2") as (server, queue):
        for _ in range(5):
            assert await elapsed(queue.get_nowait) <= GRACE_SECONDS + 0.001
        server.wakes = trio.current_time() + 0.5
        assert await queue.get_nowait() == b"1"
        assert server.executed.count(scripts.get.function) == 1


async def test_a_get_without_a_timeout_ends_ten_seconds_after_the_pending_command(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stalled(monkeypatch, b"1") as (_, queue):
        await elapsed(queue.get_nowait)
        assert await elapsed(queue.get) <= REPLY_SECONDS


async def test_an_abandoned_get_releases_its_role_after_its_reply(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stalled(monkeypatch) as (server, queue):
        await elapsed(lambda: queue.get(1))
        server.wakes = trio.current_time() + 3
        await trio.sleep(4)
        assert server.executed == [scripts.get.function, scripts.release.function]


async def test_a_get_that_waited_for_an_earlier_one_asks_after_the_role_was_released(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stalled(monkeypatch) as (server, queue):
        await elapsed(lambda: queue.get(1))
        server.wakes = trio.current_time() + 3
        with pytest.raises(QueueEmptyError):
            await queue.get(5)
        get, release = scripts.get.function, scripts.release.function
        assert server.executed[:3] == [get, release, get]


async def test_a_get_that_waits_for_an_earlier_one_ends_with_the_handle(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stalled(monkeypatch) as (_, queue), trio.open_nursery() as nursery:
        await elapsed(lambda: queue.get(1))
        nursery.start_soon(elapsed, queue.get)
        await trio.testing.wait_all_tasks_blocked()
        start = trio.current_time()
        await queue.aclose()
    assert trio.current_time() == start


async def test_a_late_error_shows_that_redis_replies_again(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stalled(monkeypatch, b"1") as (server, queue):
        await elapsed(queue.get_nowait)
        server.error = "OOM"
        server.wakes = trio.current_time() + 0.5
        with pytest.raises(ServerRefusedError):
            await queue.get_nowait()
        server.error = None
        assert await queue.get_nowait() == b"1"


async def test_an_element_that_is_removed_after_it_was_read_is_never_handed_out_again(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stalled(monkeypatch, b"read", b"next") as (server, queue):
        server.wakes = trio.current_time()
        async with queue.consumer() as consumer:
            server.wakes = math.inf
            with trio.move_on_after(1):
                await consumer._remove(1)
            await server.wake()
            assert await consumer.get(1) == b"next"


async def test_elements_that_nobody_received_are_reported_when_the_handle_closes(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stalled(monkeypatch, b"1") as (server, queue):
        await elapsed(queue.get_nowait)
        server.wakes = trio.current_time() + 3
        await trio.sleep(4)
        with pytest.warns(RuntimeWarning, match="'q'"):
            await queue.aclose()


async def test_a_redis_that_stalls_gets_no_more_connections_for_each_command(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = StalledRedis()
    async with trio.open_nursery() as nursery:
        redis = RedisConnection(nursery, server.connect)
        for _ in range(8):
            start = trio.current_time()
            with pytest.raises(RedisUnavailable) as lost:
                await redis.command(b"PING", until=start + 1)
            assert lost.value.kind == "hung"
            assert trio.current_time() - start == pytest.approx(1)
            assert server.open_connections <= 2
        server.wakes = trio.current_time()
        assert await redis.command(b"PING") == 1
        nursery.cancel_scope.cancel()


async def test_a_task_that_waits_on_an_overdue_connection_has_the_full_time_limit(
    autojump_clock: trio.testing.MockClock,
) -> None:
    server = StalledRedis()
    server.wakes = trio.current_time() + 3 * REPLY_SECONDS
    async with trio.open_nursery() as nursery:
        redis = RedisConnection(nursery, server.connect, 6 * REPLY_SECONDS)
        with pytest.raises(RedisUnavailable):
            await redis.command(b"PING", until=trio.current_time() + 1)
        await trio.sleep(4 * REPLY_SECONDS)
        assert not server.connections[0].closed
        nursery.cancel_scope.cancel()
