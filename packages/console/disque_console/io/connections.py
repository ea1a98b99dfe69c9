"""Serves browsers with Hypercorn, so that a failing connection does not affect the others."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import hypercorn.trio.run as worker
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from hypercorn.trio.tcp_server import TCPServer

from disque_trio.process.logs import Log
from disque_trio.respclient.errors import first_of

QUIET: Final = 660  # s of silence after which a browser is considered gone


async def serve_browsers(
    app: Any,
    config: Config,
    until: Callable[[], Awaitable[None]],
    log: Log,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    """Serve ``app`` until ``until`` returns. Reports the addresses to ``task_status``.

    Raises:
        OSError: an address cannot be used.
    """
    config.read_timeout = QUIET
    # In Hypercorn 0.18 an exception in one connection stops the whole server, and HTTP/2 raises one
    # if a form is still arriving after its response (pull requests 312, 334 and 365 of Hypercorn).
    worker.TCPServer = partial(_one, log)  # type: ignore[assignment, attr-defined]
    await serve(app, config, shutdown_trigger=until, task_status=task_status, mode="asgi")


class _Connection(TCPServer):
    """A connection that ends with its browser."""

    async def _read_data(self) -> None:
        await super()._read_data()
        # In Hypercorn 0.18, answers by HTTP/2 that are not sent yet would wait forever, and the
        # descriptor would stay open.
        buffers: dict[int, Any] = getattr(self.protocol.protocol, "stream_buffers", {})
        for buffer in list(buffers.values()):
            await buffer.close()


async def _one(log: Log, *arguments: Any) -> None:
    """Serve one connection."""
    try:
        await _Connection(*arguments)
    except* Exception as failed:
        log.verbose("a connection failed", why=repr(first_of(failed)))
