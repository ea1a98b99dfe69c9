"""Visitors' commands, over fake connections."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from disque_console.io import calls
from disque_console.model.action import Order
from disque_trio.notation.addresses import Address
from disque_trio.overview.nodes import Nodes
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.errors import ConnectionLost, ReplyError, reply_error
from disque_trio.respclient.login import Login

NODE = "127.0.0.1:7711"


class Connection:
    """A connection that answers."""

    closed = False

    async def execute_many(self, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        return [b"PONG" for _ in commands]

    def close(self) -> None:
        self.closed = True


class Connector:
    """Opens connections once it is allowed to.

    Attributes:
        made: all its connections. let: whether it is allowed to.
    """

    def __init__(self) -> None:
        self.made: list[Connection] = []
        self.let = trio.Event()

    async def open(self, address: Address) -> Connection:
        await self.let.wait()
        self.made.append(Connection())
        return self.made[-1]


@asynccontextmanager
async def asking(
    monkeypatch: pytest.MonkeyPatch, connector: Connector, times: int
) -> AsyncIterator[tuple[calls.Calls, list[Reply]]]:
    """Ask a node this many times at once. The answers are there after the block."""
    monkeypatch.setattr(calls, "Connector", lambda *more: connector)
    answers: list[Reply] = []
    async with trio.open_nursery() as nursery:
        mine = calls.Calls(nursery, Nodes(), Login())

        async def ask() -> None:
            answers.append(await mine.to(NODE, "PING"))

        for _ in range(times):
            nursery.start_soon(ask)
        yield mine, answers


async def test_after_a_logout_no_connection_is_made_or_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connector = Connector()
    async with asking(monkeypatch, connector, 1) as (mine, answers):
        await wait_all_tasks_blocked()
        mine.close()
        connector.let.set()
    assert isinstance(await mine.to(NODE, "PING"), ConnectionLost)
    assert [type(answer) for answer in answers] == [ConnectionLost]
    assert [connection.closed for connection in connector.made] == [True]


class Slow(Connection):
    """A connection whose replies come in order; QPURGE takes 30 s. ``calls.LIMIT`` is less."""

    def __init__(self) -> None:
        self.turn = trio.Lock()
        self.ended = trio.Event()

    async def execute_many(self, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        async with self.turn:
            if commands[0][0] == "QPURGE":
                with trio.move_on_after(30.0):
                    await self.ended.wait()
        return [ConnectionLost("closed") if self.closed else 1 for _ in commands]

    def close(self, why: str = "") -> None:
        super().close()
        self.ended.set()


class SlowConnector(Connector):
    async def open(self, address: Address) -> Connection:
        self.made.append(Slow())
        return self.made[-1]


async def test_commands_that_take_long_and_others_do_not_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    connector = SlowConnector()
    async with asking(monkeypatch, connector, 0) as (mine, _):
        purged: list[Reply] = []

        async def purge() -> None:
            purged.append(await mine.to(NODE, "QPURGE", "q"))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(purge)
            await wait_all_tasks_blocked()
            assert await mine.to(NODE, "PING") == 1
            assert trio.current_time() == 0
        assert (purged, trio.current_time()) == ([1, 1, 1], 30)
    assert [connection.closed for connection in connector.made] == [True, True, True, False]


async def test_a_logout_ends_commands_that_take_long(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with asking(monkeypatch, SlowConnector(), 0) as (mine, _), trio.open_nursery() as nursery:

        async def purge() -> None:
            assert isinstance(await mine.to(NODE, "QPURGE", "q"), ConnectionLost)

        nursery.start_soon(purge)
        await wait_all_tasks_blocked()
        mine.close()
    assert trio.current_time() == 0


async def test_many_who_wait_for_a_node_that_does_not_answer_wait_for_one_attempt(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    class Frozen(Connector):
        async def open(self, address: Address) -> Connection:
            with trio.move_on_after(calls.LIMIT):
                return await super().open(address)
            raise ConnectionLost("no answer")

    connector = Frozen()
    async with asking(monkeypatch, connector, 10) as (mine, answers):
        pass
    assert trio.current_time() <= calls.LIMIT
    assert [str(answer) for answer in answers] == [f"{NODE}: no answer"] * 10
    connector.let.set()
    assert str(await mine.to(NODE, "PING")) == f"{NODE}: no answer"
    await trio.sleep(calls.LIMIT)
    assert await mine.to(NODE, "PING") == b"PONG"


async def test_a_page_waits_once_for_a_node_that_hangs(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    class Hung(Connection):
        async def execute_many(self, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
            await trio.sleep_forever()
            raise AssertionError

        def close(self, why: str = "") -> None:
            super().close()

    class Hanging(Connector):
        async def open(self, address: Address) -> Connection:
            self.made.append(Hung())
            return self.made[-1]

    async with asking(monkeypatch, Hanging(), 1) as (mine, answers):
        pass
    again = await mine.to(NODE, "PING")
    assert trio.current_time() == calls.LIMIT
    first = answers[0]
    assert isinstance(first, ConnectionLost)
    assert first.maybe_executed
    assert isinstance(again, ConnectionLost)
    assert not again.maybe_executed
    assert str(again) == str(first) == f"{NODE}: no answer within 5 s"


async def test_a_node_that_refuses_connections_is_tried_each_time(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    class Refusing(Connector):
        async def open(self, address: Address) -> Connection:
            if not self.let.is_set():
                raise ConnectionLost("refused")
            return await super().open(address)

    connector = Refusing()
    async with asking(monkeypatch, connector, 1) as (mine, answers):
        pass
    connector.let.set()
    assert str(answers[0]) == f"{NODE}: refused"
    assert await mine.to(NODE, "PING") == b"PONG"


async def test_any_node_is_one_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    connector = Connector()
    connector.let.set()
    monkeypatch.setattr(calls, "Connector", lambda *more: connector)
    nodes = Nodes()
    for number, address in enumerate(("a:1", "b:1", "c:1")):
        nodes.responded(address, f"{number}" * 40, 1.0)
    nodes.apart = {"a:1"}
    async with trio.open_nursery() as nursery:
        mine = calls.Calls(nursery, nodes, Login())
        assert await mine.any("PING") == ("b:1", b"PONG")
        assert [address for address, _ in await mine.every("PING")] == ["a:1", "b:1", "c:1"]


LATE = reply_error("NOREPL Timeout reached")
NO_PERMISSION = reply_error("NOPERM User has no permissions")


class Waiting(Connection):
    """A connection to a node whose UPDATEJOBs wait for another node, which hangs, for 2 s: one
    after the other, but those of a group together.

    Attributes:
        refused: the first words of commands, or ids of jobs, that the user has no permission for.
        lasts: s until a group has been run.
    """

    def __init__(self, refused: frozenset[str], lasts: float) -> None:
        self.refused = refused
        self.lasts = lasts
        self.group: list[Reply] | None = None

    async def execute_many(self, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        return [await self._execute(str(command[0]), str(command[-1])) for command in commands]

    async def _execute(self, name: str, last: str) -> Reply:
        if self.closed:
            return ConnectionLost("closed")
        reply: Reply = NO_PERMISSION if self.refused & {name, last} else LATE
        if name == "EXEC" and self.group is not None:
            if any(isinstance(each, ReplyError) and each != LATE for each in self.group):
                return reply_error("EXECABORT Transaction discarded")
            await trio.sleep(self.lasts)
            return self.group
        if name in ("MULTI", "EXEC"):
            self.group = None if reply is NO_PERMISSION else []
            return b"OK" if self.group is not None else NO_PERMISSION
        if self.group is not None:
            self.group.append(reply)
            return NO_PERMISSION if reply is NO_PERMISSION else b"QUEUED"
        if reply is LATE:
            await trio.sleep(2.0)
        return reply

    def close(self, why: str = "") -> None:
        super().close()


class WaitingConnector(Connector):
    def __init__(self, *refused: str, lasts: float = 2.0) -> None:
        super().__init__()
        self._refused = frozenset(refused)
        self._lasts = lasts

    async def open(self, address: Address) -> Connection:
        self.made.append(Waiting(self._refused, self._lasts))
        return self.made[-1]


CHANGES = [("UPDATEJOB", "QUEUE", "q", str(number)) for number in range(100)]


async def test_changes_of_many_jobs_wait_together_for_a_holder_that_hangs(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    connector = WaitingConnector()
    async with asking(monkeypatch, connector, 0) as (mine, _):
        assert await mine.many(NODE, CHANGES) == [LATE] * 100
        assert trio.current_time() == 2.0
        # The node is not avoided afterwards.
        assert await mine.many(NODE, CHANGES[:1]) == [LATE]
    assert all(connection.closed for connection in connector.made)


async def test_changes_that_the_user_may_not_make_do_not_keep_the_others_from_being_made(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with asking(monkeypatch, WaitingConnector("1", "98"), 0) as (mine, _):
        replies = await mine.many(NODE, CHANGES)
    refused = [at for at, reply in enumerate(replies) if reply is NO_PERMISSION]
    assert (refused, replies.count(LATE)) == ([1, 98], 98)
    assert trio.current_time() == 2.0


async def test_without_permission_for_groups_changes_are_made_one_by_one(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with asking(monkeypatch, WaitingConnector("MULTI"), 0) as (mine, _):
        assert await mine.many(NODE, CHANGES[:10]) == [LATE] * 10
    assert trio.current_time() == 20.0


async def test_changes_of_which_nothing_is_heard_may_have_been_made(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    async with asking(monkeypatch, WaitingConnector(lasts=60.0), 0) as (mine, _):
        replies = await mine.many(NODE, CHANGES)
    assert len(replies) == 100
    assert all(isinstance(reply, ConnectionLost) and reply.maybe_executed for reply in replies)
    assert trio.current_time() == calls.LIMIT


async def test_jobs_of_a_node_are_changed_together_if_it_is_known(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    orders = [Order(command, NODE) for command in CHANGES]
    nodes = Nodes()
    monkeypatch.setattr(calls, "Connector", lambda *more: WaitingConnector())
    async with trio.open_nursery() as nursery:
        mine = calls.Calls(nursery, nodes, Login())
        answers = await mine.run(orders)
        assert all("is not a node" in str(reply) for _, _, reply in answers)
        nodes.responded(NODE, "a" * 40, 0.0)
        assert await mine.run(orders) == [(order, NODE, LATE) for order in orders]
    assert trio.current_time() == 2.0
