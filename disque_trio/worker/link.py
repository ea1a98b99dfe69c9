"""How the parent and a worker process talk: lines of JSON over a pair of sockets, and a page of
memory that both see.

A process that does nothing but one long call in C cannot send anything. So the time by which the
first of its tasks has to have ended stands in the page: it is written without a system call, before
each task.
"""

import json
import math
import mmap
import os
import socket
import struct
from typing import Any

import trio

_DEADLINE = struct.Struct("d")
_MOST = 8 << 20  # bytes of a line; longer ones are no message of ours

Message = dict[str, Any]


class Page:
    """The memory that a worker process shares with its parent.

    Args:
        descriptor: of it; it is kept open.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)

    @classmethod
    def make(cls) -> "Page":
        """A new one. Raises OSError."""
        descriptor = os.memfd_create("disque-worker", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, mmap.PAGESIZE)
        page = cls(descriptor)
        page.deadline = math.inf
        return page

    @property
    def deadline(self) -> float:
        """By when a task has to have ended (time.monotonic); infinite: there is no limit."""
        return float(_DEADLINE.unpack_from(self._memory)[0])

    @deadline.setter
    def deadline(self, time: float) -> None:
        _DEADLINE.pack_into(self._memory, 0, time)

    def close(self) -> None:
        """Let it go."""
        self._memory.close()
        os.close(self.descriptor)


def line(kind: str, **fields: Any) -> bytes:
    """A message on the wire."""
    return json.dumps({"kind": kind, **fields}).encode() + b"\n"


class Link:
    """One end of the pair.

    Args:
        sock: a stream socket, which it owns.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        self._sending = trio.Lock()
        self._buffer = bytearray()

    async def send(self, kind: str, **fields: Any) -> None:
        """Send a message; it is dropped when the other end is gone."""
        try:
            async with self._sending:
                await self._stream.send_all(line(kind, **fields))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def receive(self) -> Message | None:
        """The next message; None when the other end is gone."""
        while (end := self._buffer.find(b"\n")) < 0:
            try:
                data = await self._stream.receive_some()
            except trio.BrokenResourceError:
                return None
            if not data or len(self._buffer) > _MOST:
                return None
            self._buffer += data
        message: Message = json.loads(self._buffer[:end])
        del self._buffer[: end + 1]
        return message

    async def aclose(self) -> None:
        """Close it."""
        await self._stream.aclose()
