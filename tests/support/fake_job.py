"""A held job without a node."""

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

import trio

from disque_trio.client import ConnectionLost
from disque_trio.client.job import Letter
from disque_trio.respclient.delivery import Source
from disque_trio.tasks.messages import Result

_served: WeakSet[Source] = WeakSet()


class FakeNode:
    """Where jobs are settled; ``away``: it cannot be reached."""

    def __init__(self) -> None:
        self.away = False

    async def answer(self) -> None:
        """Answer a command. Raises ConnectionLost."""
        await trio.lowlevel.checkpoint()
        if self.away:
            raise ConnectionLost("no node")


class FakeJob:
    """A held job that records how it is settled, at ``node``."""

    id = "D-95dfd41b-uzXCAkdG6tQf3Y0wJWTJjYPB-05a1"
    queue = "q"
    letter: Letter | None = None
    lost = False
    terminate = False

    def __init__(
        self,
        task: str | None,
        body: bytes = b'{"args":[]}',
        *,
        content_type: str = "application/json",
        nacks: int = 0,
        additional_deliveries: int = 0,
        failure: Exception | None = None,
        headers: Mapping[str, str] = {},
        node: FakeNode | None = None,
        last_reason: str = "",
    ) -> None:
        self.node = node or FakeNode()
        self.goes_on = True
        self.ended = False
        self.body = body
        pairs = [("content-type", content_type.encode())]
        if task is not None:
            pairs.append(("task", task.encode()))
        pairs += [(name, value.encode()) for name, value in headers.items()]
        self.header_pairs = tuple(pairs)
        self.nacks = nacks
        self.additional_deliveries = additional_deliveries
        self.settled: tuple[Any, ...] = ()
        self._failure = failure
        self._last_reason = last_reason

    async def last_reason(self) -> str:
        return self._last_reason

    async def ack(self, result: str | bytes | None = None) -> None:
        await self.node.answer()
        assert isinstance(result, bytes)
        self.settled = ("ack", Result.decode(result))

    async def nack(self, *, delay: float | None = None, reason: str | bytes | None = None) -> None:
        await self.node.answer()
        self.settled = ("nack", delay, reason)

    async def dead(self, *, reason: str | bytes | None = None) -> None:
        await self.node.answer()
        if self._failure is not None:
            raise self._failure
        self.settled = ("dead", reason)

    async def update(self, *, body: str | bytes) -> None:
        await self.node.answer()
        assert isinstance(body, bytes)
        self.body = body

    def progress(self, fraction: float, text: str = "") -> None:
        self.said = (fraction, text)

    def detach(self, source: Source) -> None:
        if source not in _served:
            _served.add(source)
            trio.lowlevel.spawn_system_task(source.run)

    def when_cancelled(self, call: Callable[[], object]) -> None:
        self.cancel = call

    def drop(self) -> None:
        self.settled = ("drop",)

    def release(self) -> None:
        self.settled = ("release",)

    def end(self) -> None:
        self.ended = True
