"""The stand-in for Trio under asyncio, with the names in ``concurrency.Library``.

Everything comes from asyncio, or from anyio where asyncio has no equivalent: cancel scopes,
shielding and groups of tasks.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Final

import trio
from sniffio import current_async_library_cvar

from disque_trio.extras import how_to_install
from disque_trio.respclient.forks import keep_from_children

try:
    import anyio
except ImportError as error:
    raise ImportError(
        f"under asyncio the client needs anyio: {how_to_install('asyncio')}"
    ) from error

Event = asyncio.Event
Lock = asyncio.Lock
CancelScope = anyio.CancelScope
move_on_after = anyio.move_on_after
open_nursery = anyio.create_task_group
open_signal_receiver = anyio.open_signal_receiver
sleep = asyncio.sleep
sleep_forever = anyio.sleep_forever
aclose_forcefully = anyio.aclose_forcefully

_RECEIVE_BYTES: Final = 65536
_system_tasks: Final[set[asyncio.Task[object]]] = set()


def current_time() -> float:
    """Return the time of the loop's clock, in seconds."""
    return asyncio.get_running_loop().time()


class _Token:
    """The running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # In a function that runs outside of tasks, nothing else tells anyio that this is asyncio.
        self._context = copy_context()
        self._context.run(current_async_library_cvar.set, "asyncio")

    def run_sync_soon(self, function: Callable[[], object]) -> None:
        """See ``concurrency.Token``."""
        try:
            self._loop.call_soon_threadsafe(function, context=self._context)
        except RuntimeError as error:
            raise trio.RunFinishedError from error


def _spawn_system_task(function: Callable[[], Coroutine[Any, Any, object]]) -> None:
    task = asyncio.create_task(function())
    _system_tasks.add(task)
    task.add_done_callback(_system_tasks.discard)


class lowlevel:
    """The stand-in for ``trio.lowlevel``."""

    current_trio_token = _Token
    spawn_system_task = staticmethod(_spawn_system_task)

    @staticmethod
    async def checkpoint() -> None:
        """Let other tasks run."""
        await asyncio.sleep(0)


async def open_tcp_stream(host: str, port: int) -> trio.abc.HalfCloseableStream:
    """Connect to the first of the host's addresses that answers. Raises OSError."""
    # Try them in turn: if asyncio tries several at a time, cancellation leaves sockets open.
    return _Stream(*await asyncio.open_connection(host, port))


async def open_tls_stream(
    host: str, port: int, context: ssl.SSLContext, name: str
) -> trio.abc.HalfCloseableStream:
    """Connect with TLS; the certificate must be valid for ``name``. Raises OSError."""
    opened = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
    return _Stream(*opened)


async def open_unix_socket(path: str) -> trio.abc.HalfCloseableStream:
    """Connect to a Unix socket. Raises OSError."""
    return _Stream(*await asyncio.open_unix_connection(path))


class _Stream(trio.abc.HalfCloseableStream):
    """An asyncio stream with the interface of a Trio stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        own = writer.get_extra_info("socket")
        keep_from_children(self, lambda: -1 if writer.is_closing() else own.fileno())
        with suppress(AttributeError):  # uvloop does this differently
            # Small enough to be allocated without mmap, which the default size needs every time.
            writer.transport.max_size = _RECEIVE_BYTES  # type: ignore[attr-defined]

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        try:
            return await self._reader.read(max_bytes or _RECEIVE_BYTES)
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise trio.BrokenResourceError from error

    async def wait_send_all_might_not_block(self) -> None:
        await self._writer.drain()

    async def send_eof(self) -> None:
        if self._writer.can_write_eof():
            self._writer.write_eof()
            return
        # TLS has no half-close that all servers support. All support the end of the TCP stream.
        number: int = self._writer.get_extra_info("socket").fileno()
        if number >= 0:
            with socket.socket(fileno=os.dup(number)) as plain:
                plain.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        self._writer.transport.abort()
        await asyncio.sleep(0)
