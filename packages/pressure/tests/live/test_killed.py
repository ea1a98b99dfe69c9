"""SIGKILL at every step of every operation: before each command, after it was sent, and after its
reply. The next client works once the lease has expired, and finds each element at most once."""

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from subprocess import PIPE

import pytest
import trio

from disque_pressure import PressureQueue, QueueClosedError
from packages.pressure.tests.support.pressure_helpers import Spot
from packages.pressure.tests.support.pressure_killed import LEASE, OPERATIONS
from tests.support.commands import start_command
from tests.support.harness import HANG_SECONDS
from tests.support.redis_server import RedisServer, plain_client

POINTS = ("before", "sent", "after")
AT_ONCE = 4
PATIENCE = LEASE + HANG_SECONDS


@dataclass(frozen=True)
class Case:
    """The state before an operation, and its effect.

    Attributes:
        elements: in the queue before; None if there is no queue. bound: of the queue.
        puts: the elements it puts, in order. gets: the number of elements it takes.
        held: the role that another client holds throughout.
        least: the minimum number of commands.
    """

    elements: tuple[bytes, ...] | None = (b"0",)
    bound: int = 3
    puts: tuple[bytes, ...] = ()
    gets: int = 0
    held: str | None = None
    least: int = 1


CASES = {
    "create": Case(None),
    "put": Case(puts=(b"a",)),
    "put_with_timeout in use": Case(held="producer", least=2),
    "put_with_timeout full": Case((b"0", b"1"), 2, least=3),
    "put_when_there_is_room": Case((b"0",), 1, (b"a",), 1, least=3),
    "put_many": Case((b"0",), 3, (b"a", b"b"), least=3),
    "get": Case((b"0", b"1"), gets=1),
    "get_with_timeout in use": Case(held="consumer", least=2),
    "get_with_timeout empty": Case((), least=3),
    "get_when_it_comes": Case((), 3, (b"a",), 1, least=3),
    "get_many": Case((b"0", b"1", b"2"), gets=2),
    "produce": Case((b"0",), 3, (b"a", b"b"), least=5),
    "produce_and_close": Case((b"0",), 3, (b"a",), least=4),
    "consume": Case((b"0", b"1", b"2"), 3, gets=3, least=4),
    "close": Case(),
    "delete": Case(),
    "delete_with_timeout producer": Case(held="producer", least=3),
    "delete_with_timeout consumer": Case(held="consumer", least=3),
}


def test_every_operation_is_a_case() -> None:
    assert {name.split()[0] for name in CASES} == set(OPERATIONS)


class Forker:
    """The program that forks the processes to be killed, with pipes to and from it."""

    def __init__(self, orders: trio.abc.SendStream, reports: trio.abc.ReceiveStream) -> None:
        self._orders = orders
        self._reports = reports
        self._writing = trio.Lock()
        self._ended: dict[str, tuple[trio.Event, list[int]]] = {}

    async def run(self, operation: str, point: str, n: int, prefix: str) -> int:
        """Run a process; return its exit status, -9 if it was killed."""
        event, status = self._ended[prefix] = trio.Event(), []
        async with self._writing:
            await self._orders.send_all(f"{operation} {point} {n} {prefix}\n".encode())
        await event.wait()
        return status[0]

    async def listen(self) -> None:
        """Read the output of the program until it ends."""
        text = b""
        async for data in self._reports:
            *lines, text = (text + data).split(b"\n")
            for line in lines:
                prefix, status = line.decode().split()
                event, found = self._ended.pop(prefix)
                found.append(int(status))
                event.set()


@asynccontextmanager
async def forker(port: int) -> AsyncIterator[Forker]:
    program = "packages.pressure.tests.support.pressure_killed"
    with start_command(program, str(port), stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        orders, reports = (
            trio.lowlevel.FdStream(os.dup(pipe.fileno()))
            for pipe in (process.stdin, process.stdout)
        )
        process.stdin.close()
        async with orders, reports, trio.open_nursery() as nursery:
            made = Forker(orders, reports)
            nursery.start_soon(made.listen)
            yield made
            await orders.aclose()


@pytest.mark.parametrize("name", CASES)
async def test_killed_at_any_command_an_operation_leaves_a_working_queue(
    redis_server: RedisServer, spot: Spot, name: str
) -> None:
    case = CASES[name]
    ended: set[str] = set()
    killed: set[int] = set()
    with plain_client(redis_server.port) as raw:
        async with forker(redis_server.port) as program:

            async def at(point: str, n: int, again: str = "") -> None:
                here = Spot(spot.port, f"{spot.prefix}:{point}{n}{again}", "q", raw)
                if await one(program, here, name, point, n):
                    ended.add(point)
                else:
                    killed.add(n)

            async def all_of(point: str) -> None:
                for start in range(0, 50, AT_ONCE):
                    async with trio.open_nursery() as wave:
                        for n in range(start, start + AT_ONCE):
                            wave.start_soon(at, point, n)
                    if point in ended:
                        return
                raise AssertionError("it does not end")

            async with trio.open_nursery() as nursery:
                for point in POINTS:
                    nursery.start_soon(all_of, point)
            # How many commands there are depends on the speed of the machine, but these must be
            # among them, at the latest when nothing else runs.
            for n in range(case.least):
                for attempt in range(10):
                    if n not in killed:
                        await at("before", n, f"again{attempt}")
    assert killed.issuperset(range(case.least))


async def one(program: Forker, spot: Spot, name: str, point: str, n: int) -> bool:
    """Kill a process, then use the queue. Return True if it ended before it was killed."""
    case = CASES[name]
    # A waiting client checks four times per lease.
    async with spot.queue(lease=1.0) as q, AsyncExitStack() as held:
        if case.elements is not None:
            await q.create(case.bound)
            await q.put_many(case.elements)
        if case.held is not None:
            await held.enter_async_context(getattr(q, case.held)())
        status = await program.run(name.split()[0], point, n, spot.prefix)
        assert status in (0, -9)
        ended = status == 0
        with trio.fail_after(PATIENCE):
            await held.aclose()
            await check(q, spot, case, untouched=not ended and (point, n) == ("before", 0))
            if ended:
                await check_end(spot, name)
            # Whatever the state, it can be deleted and created again.
            if await q.exists():
                await q.delete()
            await q.create(2)
            await q.put_many([b"x", b"y"])
            assert await q.get_many(5) == [b"x", b"y"]
        assert spot.tokens() == (1, 1, 1, 0)
        assert spot.keys() == {
            "bound",
            "producer",
            "consumer",
            "producer_free",
            "consumer_free",
            "not_full",
            *(f"stats:{k}_{u}" for k in ("produced", "consumed") for u in ("messages", "bytes")),
        }
        return ended


async def check(q: PressureQueue, spot: Spot, case: Case, untouched: bool) -> None:
    """Put and get, and compare the result with the possible states."""
    if not await q.exists():
        # It was not created, or is deleted or half deleted; the next ``create`` completes that.
        await q.create(case.bound, patience=PATIENCE)
        elements: tuple[bytes, ...] = ()
        assert await q.length() == 0
        assert case.puts == ()
    else:
        elements = case.elements or ()
    stats = await q.stats()
    assert stats.produced_messages - stats.consumed_messages == stats.length
    assert stats.bound is not None
    assert stats.length <= stats.bound
    found = await q.get_many(100) if stats.length else []
    possible = [
        [*elements, *case.puts[:put]][got:]
        for put in range(len(case.puts) + 1)
        for got in range(case.gets + 1)
    ]
    assert found in possible
    if untouched:
        assert found == list(elements)
        assert not stats.closed
    if not stats.closed:
        await q.put(b"probe")
        # A new consumer must get the role, too.
        async with q.producer(), q.consumer() as consumer:
            assert await consumer.get() == b"probe"
        assert spot.tokens() == (1, 1, 1, 0)
    else:
        # A dead producer's role is not taken over here, but the queue is closed and not in use.
        with pytest.raises(QueueClosedError):
            await q.put(b"probe")
        assert spot.tokens()[1:] == (1, 1, 2)
    stats = await q.stats()
    assert stats.produced_messages == stats.consumed_messages


async def check_end(spot: Spot, name: str) -> None:
    """Check that the effect of the whole operation is there."""
    stats = {"produced": 0, "consumed": 0}
    for kind in stats:
        stats[kind] = int(spot.raw.get(spot.key(f"stats:{kind}_messages")) or 0)
    case = CASES[name]
    closed = name in ("close", "produce_and_close")
    if name in ("create", "delete"):
        assert stats["produced"] == 1  # only the probe
    else:
        expected = len(case.elements or ()) + len(case.puts) + (not closed)
        assert stats == {"produced": expected, "consumed": expected}
    assert (spot.tokens()[3] == 2) == closed
