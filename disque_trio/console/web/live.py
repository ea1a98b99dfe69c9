"""Server-sent events: the part of a page that changes, again and again."""

import json
import time
from collections.abc import Awaitable, Callable
from typing import Final

import trio
from starlette.types import Receive, Scope, Send

from disque_trio.console.web.console import Console

EACH: Final = 2.0  # s
SILENCE: Final = 20.0  # s after which a line without meaning shows proxies that we are there
LONGEST: Final = 600.0  # s: a stream that ends here is opened again, with the session checked


class Live:
    """An answer that lasts until the browser goes away, or the console stops.

    Args:
        render: the markup as it is now; None: the page is not there any more.
    """

    def __init__(self, console: Console, render: Callable[[], Awaitable[str | None]]) -> None:
        self._console = console
        self._render = render

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with trio.move_on_after(LONGEST):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_until_gone, receive, nursery.cancel_scope)
                nursery.start_soon(self._until_stopped, nursery.cancel_scope)
                await self._tell(send)
                nursery.cancel_scope.cancel()
        with trio.move_on_after(1.0):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, send: Send) -> None:
        await _send(send, b"retry: 2000\n\n")
        last, quiet_since = "", time.monotonic()
        while True:
            markup = await self._render()
            if markup is None:
                await _send(send, b"event: gone\ndata: {}\n\n")
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
