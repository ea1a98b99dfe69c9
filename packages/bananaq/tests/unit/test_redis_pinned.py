"""Which node is blamed when an operation fails, and whether it may have been executed."""

import pytest
import trio

from disque_bananaq.core.requests import Last
from disque_bananaq.core.results import Result
from disque_bananaq.redis_store import wire
from disque_bananaq.redis_store.health import Health
from disque_bananaq.redis_store.keys import KeyNames
from disque_bananaq.redis_store.nodes import Nodes
from disque_bananaq.redis_store.pinned import PinnedConnection
from disque_trio.notation.addresses import Address
from disque_trio.redis.errors import RedisError, RedisUnavailable
from disque_trio.redis.servers import Options

FIRST, SECOND, THIRD = (Address(host, 6379) for host in ("first", "second", "third"))
DOWN = RedisUnavailable("refused", False)
Said = RedisUnavailable | RedisError | list[object]


class AnsweringNodes(Nodes):
    """A cluster whose nodes give set answers; a node without one is unreachable."""

    def __init__(self, answers: dict[Address, Said]) -> None:
        super().__init__(FIRST, Options(), cluster=True, others=(SECOND, THIRD))
        self.answers = answers

    def link(  # type: ignore[override]
        self, nursery: trio.Nursery, node: Address, on_push: object = None
    ) -> "ToNode":
        return ToNode(self.answers.get(node))


class ToNode:
    usable = True

    def __init__(self, answer: Said | None) -> None:
        self.answer = answer

    async def connected(self) -> None:
        await trio.lowlevel.checkpoint()
        if self.answer is None:
            raise DOWN

    def post(self, connection: None, *words: object) -> None:
        pass

    async def reply(self, call: None) -> object:
        await trio.lowlevel.checkpoint()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def run(nodes: AnsweringNodes) -> tuple[Result, list[Address]]:
    """Run an operation on a queue of the second node; return the nodes reported as failed."""
    names = KeyNames()
    nodes.slots[names.slot(b"q")] = SECOND
    failed: list[Address] = []
    results: list[Result] = []
    async with trio.open_nursery() as nursery:

        def answered(answers: list[wire.Answer]) -> None:
            results.extend(result for _, result in answers)
            nursery.cancel_scope.cancel()

        connection = PinnedConnection(
            nursery, nodes, names, answered, lambda where, _: failed.append(where), Health()
        )
        connection.submit(Last(b"q"))
        await connection.serve()
    [result] = results
    return result, failed


async def test_an_unreachable_node_is_blamed() -> None:
    result, failed = await run(AnsweringNodes({FIRST: [[None]], THIRD: [[None]]}))
    assert result.error
    assert failed == [SECOND]


@pytest.mark.parametrize("kind", ["MOVED", "ASK"])
async def test_the_node_of_a_redirection_is_blamed(kind: str) -> None:
    for answers in ({}, {THIRD: RedisError("OOM")}, {THIRD: RedisUnavailable("broke", True)}):
        result, failed = await run(
            AnsweringNodes({FIRST: [[None]], SECOND: RedisError(f"{kind} 1 third:6379"), **answers})
        )
        assert result.error
        assert failed == [THIRD]


async def test_an_error_inside_the_reply_is_one_failure_of_the_node_that_sent_it() -> None:
    result, failed = await run(
        AnsweringNodes({FIRST: [[None]], SECOND: [b"OOM command not allowed"]})
    )
    assert "OOM" in result.error
    assert failed == [SECOND]
    _, failed = await run(AnsweringNodes({FIRST: [[None]], SECOND: [[None]]}))
    assert failed == []


@pytest.mark.parametrize("text", ["OOM", "DENIED protected mode", "MISCONF", "TRYAGAIN", "BUSY"])
async def test_a_command_that_redis_refused_was_not_executed(text: str) -> None:
    result, _ = await run(AnsweringNodes({SECOND: RedisError(f"{text} because")}))
    assert result.error
    assert not result.unsure
