"""What is found out about jobs that the node in use does not hold."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import trio

from disque_trio.client import ConnectionLost, ReplyError
from disque_trio.client.nodes import Hello, Node, parse_address
from disque_trio.client.replies import Outcome, Record
from disque_trio.tasks.looking import AT_ONCE, NEARBY, last, shown
from disque_trio.tasks.messages import Result

Connect: TypeAlias = Callable[[str], AbstractAsyncContextManager[Any]]


class Nodes:
    """Clients of nodes of a cluster: ``a``, which is in use, ``b`` and so on.

    Args:
        shows: what nodes answer to SHOW, by their names; None: they do not answer. Others know
            nothing of the job.

    Attributes:
        waited: the limits of the WAITJOBs of ``a``.
        outcome: what it answers.
        asked: the nodes that were asked to SHOW.
        open: how many connections are.
    """

    def __init__(self, shows: dict[str, Record | Exception | None], outcome: Outcome) -> None:
        self.shows = shows
        self.outcome = outcome
        self.waited: list[float] = []
        self.asked: list[str] = []
        self.open = 0

    def at(self, address: str) -> "Client":
        return Client(self, address.partition(":")[0])


class Client:
    """A client of one node."""

    def __init__(self, nodes: Nodes, name: str) -> None:
        self.nodes = nodes
        self.name = name

    async def __aenter__(self) -> "Client":
        self.nodes.open += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.nodes.open -= 1

    async def hello(self) -> Hello:
        nodes = [Node(name, parse_address(f"{name}:1"), 1) for name in "abcd"]
        return Hello(1, self.name, tuple(nodes))

    async def show(self, _: str) -> Record | None:
        self.nodes.asked.append(self.name)
        answer = self.nodes.shows.get(self.name, {})
        if answer is None:
            await trio.sleep_forever()
        if isinstance(answer, Exception):
            raise answer
        return answer or None

    async def wait(self, id: str, seconds: float) -> list[Outcome]:
        self.nodes.waited.append(seconds)
        outcome = self.nodes.outcome
        return [Outcome(id, outcome.state, outcome.result)]


PENDING = Outcome("D-1", "pending", None)


async def ask(nodes: Nodes) -> Outcome:
    connect: Connect = nodes.at
    client: Any = nodes.at("a:1")
    found: Awaitable[Outcome] = last(client, connect, "D-1")
    with trio.fail_after(5):
        return await found


async def test_the_first_node_that_has_the_job_says_that_it_has_not_ended() -> None:
    for shows in (
        {"a": Record(state="queued")},
        {"b": None, "c": Record(state="active"), "d": ConnectionLost("away")},
    ):
        nodes = Nodes(shows, PENDING)
        assert await ask(nodes) == PENDING
        assert nodes.waited == [AT_ONCE]
        assert nodes.open == 0
    assert nodes.asked[0] == "a"
    assert nodes.asked.count("c") == 1


async def test_a_job_that_no_node_has_is_waited_for_a_moment() -> None:
    for shows in (
        {"d": ConnectionLost("away")},
        {"c": Record(state="acked")},
        {"a": ReplyError("NOPERM", "no SHOW for you")},
    ):
        nodes = Nodes(shows, PENDING)
        assert await ask(nodes) == PENDING
        assert nodes.waited == [AT_ONCE, NEARBY]


async def test_what_follows_a_job_that_has_ended_is_asked_for() -> None:
    nodes = Nodes({}, Outcome("D-1", "acked", Result(next="D-2").encode()))

    class Ended(Client):
        async def wait(self, id: str, seconds: float) -> list[Outcome]:
            if id == "D-2":
                self.nodes.waited.append(seconds)
                return [Outcome(id, "cancelled", None)]
            return await super().wait(id, seconds)

    client: Any = Ended(nodes, "a")
    connect: Connect = nodes.at
    assert (await last(client, connect, "D-1")).id == "D-2"
    assert nodes.waited == [AT_ONCE, AT_ONCE]
    assert nodes.asked == []


async def test_a_node_that_shows_the_job_without_the_field_is_the_last_resort() -> None:
    connect: Connect
    for progress, expected in (("0.4", "0.4"), (None, "")):
        shows: dict[str, Record | Exception | None] = {
            "a": {"state": "active", "queue": "q"},
            "c": {"state": "active", "queue": "q", "progress": progress},
        }
        nodes = Nodes(shows, PENDING)
        connect = nodes.at
        client: Any = nodes.at("a:1")
        job = await shown(client, connect, "D-1", but="progress")
        assert job is not None
        assert (job.queue, job.progress) == ("q", expected)
        assert nodes.asked[0] == "a"
        assert nodes.open == 0
