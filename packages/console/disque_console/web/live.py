"""Server-sent events: the live part of a page, repeatedly."""

import json
import time
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from starlette.types import Receive, Scope, Send

from disque_console.web.console import Console
from disque_console.web.visit import Visitor

EACH: Final = 2.0  # s
SILENCE: Final = 20.0  # s after which an empty line keeps the connection open in proxies
LONGEST: Final = 600.0  # s; the browser then opens a new stream


class Live:
    """A response that lasts until the browser leaves, the console stops, or the visitor's role
    changes; the browser then reconnects with the new role. If there are too many, it only says so.

    Args:
        visitor: the sender of the request.
        render: returns the current markup; None if the page no longer exists.
        still: returns whether the visitor's role is unchanged.
    """

    def __init__(
        self,
        console: Console,
        visitor: Visitor,
        render: Callable[[], Awaitable[str | None]],
        still: Callable[[], bool],
    ) -> None:
        self._console = console
        self._stream = visitor.user, visitor.form_id
        self._render = render
        self._still = still

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if self._console.streams.begin(*self._stream):
            try:
                await self._stay(receive, send)
            finally:
                self._console.streams.end(*self._stream)
        else:
            await _send(send, b"event: full\ndata: {}\n\n")
        with trio.move_on_after(1.0):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stay(self, receive: Receive, send: Send) -> None:
        with trio.move_on_after(LONGEST):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
                nursery.start_soon(self._until_stopped, nursery.cancel_scope)
                await self._tell(send)
                nursery.cancel_scope.cancel()

    async def _tell(self, send: Send) -> None:
        await _send(send, b"retry: 2000\n\n")
        last, quiet_since = "", time.monotonic()
        while self._still():
            markup = await self._render()
            if markup is None:
                await _send(send, b"event: gone\ndata: {}\n\n")
                return
            if not self._still():
                return
            if markup != last:
                last, quiet_since = markup, time.monotonic()
                await _send(send, b"data: %b\n\n" % json.dumps({"html": markup}).encode())
            elif time.monotonic() - quiet_since > SILENCE:
                quiet_since = time.monotonic()
                await _send(send, b": still here\n\n")
            await trio.sleep(EACH)

    async def _until_stopped(self, scope: trio.CancelScope) -> None:
        await self._console.stopping.wait()
        scope.cancel()


async def _until_gone(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def _send(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})
