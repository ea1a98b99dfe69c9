"""Host names are looked up in threads while clients are served."""

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from disque_trio.cluster import names
from disque_trio.cluster.names import AT_ONCE, MOST_ADDRESSES, NameLookups
from tests.support.node_bench import BenchHost
from tools.bench.inprocess import Desk, make_node, request


class System:
    """A resolver that answers with ``answer`` once ``let`` is set."""

    def __init__(self) -> None:
        self.answer: Callable[[str], list[str]] = lambda name: ["10.0.0.2"]
        self.let = threading.Event()
        self.let.set()
        self.asked: list[str] = []

    def getaddrinfo(self, name: str, port: None, **how: object) -> list[tuple[Any, ...]]:
        self.asked.append(name)
        self.let.wait()
        return [(0, 0, 0, "", (ip, 0)) for ip in self.answer(name)]


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    system = System()
    monkeypatch.setattr(names.socket, "getaddrinfo", system.getaddrinfo)
    yield system
    system.let.set()


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk(make_node(), clients=2)
    yield desk
    desk.close()


class NamesHost(BenchHost):
    """Looks up names as the process does."""

    def __init__(self) -> None:
        super().__init__()
        self.names = NameLookups()

    def look_up(self, name: str, found: Callable[[list[str]], None]) -> None:
        self.names.look_up(name, found)


async def found(system: System, name: str = "node") -> list[str]:
    """Return the addresses found for ``name``."""
    desk = Desk(make_node())
    lookups = NameLookups()
    answers: list[list[str]] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lookups.run, desk.engine)
        lookups.look_up(name, answers.append)
        while not answers:
            await trio.sleep(0)
        nursery.cancel_scope.cancel()
    desk.close()
    return answers[0]


async def test_all_addresses_that_lead_somewhere_are_found_once(system: System) -> None:
    many = [
        "10.0.0.2",
        "10.0.0.2",
        "::ffff:10.0.0.2",
        "fd00::1",
        "fe80::1%lo",
        "0.0.0.0",
        "ff02::1",
    ]
    system.answer = lambda name: many
    assert await found(system) == ["10.0.0.2", "fd00::1"]
    system.answer = lambda name: [f"10.0.0.{number}" for number in range(1, 100)]
    assert len(await found(system)) == MOST_ADDRESSES


@pytest.mark.parametrize("error", [socket.gaierror(-2, "no"), OSError(), UnicodeError()])
async def test_a_name_that_has_none_finds_nothing(system: System, error: Exception) -> None:
    def fail(name: str) -> list[str]:
        raise error

    system.answer = fail
    assert await found(system) == []


async def test_others_are_served_while_a_name_is_looked_up(system: System, desk: Desk) -> None:
    host = NamesHost()
    desk.machine.host = host
    system.let.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.names.run, desk.engine)
        desk.socks[0].send(request(b"CLUSTER", b"MEET", b"node", b"7711") + request(b"PING"))
        desk.turn()
        while not system.asked:
            await trio.sleep(0)
        desk.socks[1].send(request(b"ECHO", b"x"))
        desk.turn()
        assert desk.replies() == [b"x"]
        system.let.set()
        while desk.connections[0].client.blocked:
            await trio.sleep(0)
        desk.turn()
        assert desk.replies() == [b"OK", b"PONG"]
        nursery.cancel_scope.cancel()


async def test_whoever_does_not_answer_is_given_up(
    system: System, desk: Desk, autojump_clock: MockClock
) -> None:
    lookups = NameLookups()
    system.let.clear()
    answers: list[list[str]] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lookups.run, desk.engine)
        before = trio.current_time()
        for number in range(AT_ONCE + 3):
            lookups.look_up(f"node-{number}", answers.append)
        while len(answers) < AT_ONCE + 3:
            await trio.sleep(1)
        assert trio.current_time() - before < 2 * names.LONGEST
        nursery.cancel_scope.cancel()
    assert answers == [[]] * (AT_ONCE + 3)
    assert len(system.asked) <= AT_ONCE


async def test_a_node_that_ends_waits_for_no_answer(system: System, desk: Desk) -> None:
    lookups = NameLookups()
    system.let.clear()
    answers: list[list[str]] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lookups.run, desk.engine)
        lookups.look_up("node", answers.append)
        while not system.asked:
            await trio.sleep(0)
        nursery.cancel_scope.cancel()
    assert answers == []


async def test_a_node_that_is_halted_meets_nobody(system: System, desk: Desk) -> None:
    lookups = NameLookups()
    answers: list[list[str]] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lookups.run, desk.engine)
        desk.engine.halt()
        lookups.look_up("node", answers.append)
        while not system.asked:
            await trio.sleep(0)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert answers == []


async def test_a_client_that_is_gone_gets_no_answer(system: System, desk: Desk) -> None:
    host = NamesHost()
    desk.machine.host = host
    system.let.clear()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.names.run, desk.engine)
        desk.socks[0].send(request(b"CLUSTER", b"MEET", b"node", b"7711"))
        desk.turn()
        client = desk.connections[0].client
        desk.engine.clients.close(desk.connections[0])
        system.let.set()
        while client.in_flight:
            await trio.sleep(0)
        assert client.out == [b"+OK\r\n"]
        nursery.cancel_scope.cancel()
