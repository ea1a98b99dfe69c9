"""Results: where they are kept, and what is said about those that cannot be."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from disque_trio.client import Job
from disque_trio.client.nodes import Hello, Node, parse_address
from disque_trio.tasks import Disque, ResultGone, TaskFailed, WorkflowStatus, chain, group
from disque_trio.tasks.looking import stored
from disque_trio.tasks.messages import MOST_RESULT, MOST_STORED, Result


def test_a_result_that_cannot_be_kept_is_an_error_that_says_what_to_do() -> None:
    app = Disque("disque://nowhere.invalid")

    @app.task(name="shop.export")
    def export(size: int) -> str:
        return "x" * (size - 2)

    @app.task(name="shop.odd")
    def odd() -> object:
        return {1, 2}

    stores = export  # the same, with a store
    with app.testing() as jobs:
        limit = MOST_RESULT - 200
        assert len(export.add(limit).get()) == limit - 2
        with pytest.raises(TaskFailed) as caught:
            stores.add(limit + 1).get()
        assert caught.value.text == (
            "the result of shop.export has 999,801 bytes, and the limit is 999,800; return less, "
            'or keep up to 16,000,000 with results="store"'
        )
        with pytest.raises(TaskFailed) as caught:
            odd.add().get()
        assert caught.value.text == (
            "the result of shop.odd cannot be serialized: TypeError: Object of type set is not "
            "JSON serializable; return what application/json can express, or give the task another "
            "serializer"
        )
        with pytest.raises(TaskFailed, match="the result of a group has"):
            group([export.bind(600_000), export.bind(600_000)]).add().get()
    assert [job.attempts for job in jobs.of("export")[:2]] == [1, 1]


def test_results_may_be_stored() -> None:
    app = Disque("disque://nowhere.invalid", results="store")

    @app.task
    def export(size: int) -> str:
        if size < 0:
            raise ValueError("negative")
        return "x" * (size - 2)

    @app.task
    def size(text: str) -> int:
        return len(text)

    @app.task(results="memory")
    def brief() -> int:
        return 1

    with app.testing():
        assert len(export.add(MOST_STORED - 200).get()) == MOST_STORED - 202
        with pytest.raises(TaskFailed, match=r"limit is 15,999,800; return less$"):
            export.add(MOST_STORED).get()
        assert export.add(5).get_state() == "done"
        assert (export.bind(5) | size.bind()).add().get() == 3
        assert chain([group([export.bind(5), brief.bind()])]).add().get() == ["xxx", 1]
        assert brief.add().get() == 1
        failed = export.options(retries=0).add(-1)
        with pytest.raises(TaskFailed, match="negative"):
            failed.get()
        assert failed.get_state() == "failed"
    for refused in ({"results": "archive"}, {"resultss": "store"}):
        with pytest.raises((TypeError, ValueError), match="results"):
            Disque(**refused)  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError), match="results"):
            app.task(**refused)(lambda: None)  # type: ignore[call-overload]


def test_what_nodes_have_forgotten_is_in_the_store() -> None:
    """Results are forgotten in a minute; a store has them, and the way to the job that follows."""
    app = Disque("disque://nowhere.invalid", results="store")

    @app.task
    def one(n: int) -> int:
        return n + 1

    @app.task
    def total(values: list[int]) -> int:
        return sum(values)

    with app.testing() as jobs:
        handle = (one.bind(1) | one.bind() | one.bind()).add()
        nodes: Any = app.core.link._client  # type: ignore[attr-defined]
        for job in jobs.added:
            nodes._records[job.id].result = None
            nodes._records[job.id].shown.state = "gone"
        assert handle.get() == 4
        assert handle.get_state() == "done"
        several = (group([one.bind(1), one.bind(2)]) | total.bind()).add()
        for record in nodes._records.values():
            if record.shown.task:
                record.result, record.shown.state = None, "gone"
        assert several.get_status() == WorkflowStatus(2, 2)
        with pytest.raises(ResultGone, match="for a day"):
            app.handle("D-00000000-" + "9" * 24 + "-05a1").get()


class Nodes:
    """Clients of two nodes, of which the second has the result."""

    def __init__(self, address: str = "a:1") -> None:
        self.address = address

    async def __aenter__(self) -> "Nodes":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def hello(self) -> Hello:
        nodes = [Node(name, parse_address(f"{name}:1"), 1) for name in ("a", "b")]
        return Hello(1, "a", tuple(nodes))

    async def qpeek(self, queue: str, count: int) -> list[Job]:
        if self.address == "a:1":
            return []
        return [Job("D-2", queue, Result("a/b", b"found").encode())]


async def test_a_result_is_found_on_another_node() -> None:
    connect: Callable[[str], AbstractAsyncContextManager[Any]] = Nodes
    client: Any = Nodes()
    found: Awaitable[Result | None] = stored(client, connect, "D-1", 0)
    assert await found == Result("a/b", b"found")
