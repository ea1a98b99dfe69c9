"""How the parent and a worker process communicate: lines of JSON over a socket pair, and a page of
shared memory. A worker process and those that run single tasks do so, too, without the page; data
that is not JSON follows its line there.

A process in one long call to C code cannot send anything. So the time by which the first of its
tasks must have ended is in the page, where it is written before each task without a system call,
and behind it the ledger of its jobs.
"""

import json
import math
import mmap
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Generator
from typing import Any

import trio

from disque_trio.worker import ledger
from disque_trio.worker.ledger import Ledger

_DEADLINE = struct.Struct("d")
_SIZE = mmap.PAGESIZE + ledger.SIZE  # what is not used takes no memory
_MOST = 8 << 20  # bytes of a line; longer lines are not our messages

Message = dict[str, Any]


class MappedPage:
    """The memory that a worker process shares with its parent.

    Args:
        descriptor: the descriptor of the memory, which is kept open.

    Attributes:
        ledger: the jobs of the process.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, _SIZE)
        self.ledger = Ledger(self._memory, mmap.PAGESIZE)

    @classmethod
    def make(cls) -> "MappedPage":
        """Make a new page. Raises OSError."""
        descriptor = os.memfd_create("disque-worker", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, _SIZE)
        page = cls(descriptor)
        page.deadline = math.inf
        return page

    @property
    def deadline(self) -> float:
        """The time by which a task must have ended (time.monotonic); infinite for no limit."""
        return float(_DEADLINE.unpack_from(self._memory)[0])

    @deadline.setter
    def deadline(self, time: float) -> None:
        _DEADLINE.pack_into(self._memory, 0, time)

    def close(self) -> None:
        """Release the memory."""
        self._memory.close()
        os.close(self.descriptor)


def start_program(module: str, *descriptors: int) -> "subprocess.Popen[bytes]":
    """Start a module as a program, which inherits these descriptors and takes them with
    ``inherited``. Raises OSError."""
    command = [sys.executable, "-m", module, *map(str, descriptors)]
    # In a session of its own, so that Ctrl-C only reaches it through the process that starts it.
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=descriptors, start_new_session=True
    )


def inherited() -> list[int]:
    """Take the descriptors that this program has inherited from its command line."""
    descriptors = [int(word) for word in sys.argv[1:]]
    del sys.argv[1:]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # programs that tasks start must not keep them open
    return descriptors


def line(kind: str, *, data: bytes = b"", **fields: Any) -> bytes:
    """Encode a message. ``data`` follows its line."""
    if data:
        fields["size"] = len(data)
    return json.dumps({"kind": kind, **fields}).encode() + b"\n" + data


def read_line(sock: socket.socket) -> Message:
    """Wait for the first message on a socket that blocks."""
    message: Message = json.loads(sock.makefile("rb", buffering=0).readline())
    return message


def messages(sock: socket.socket) -> Generator[Message, None, None]:
    """Wait for each message on a socket that blocks, until the other end is gone."""
    with sock.makefile("rb") as file:
        while said := file.readline():
            message: Message = json.loads(said)
            if size := message.get("size", 0):
                message["data"] = file.read(size)
            yield message


class SocketEnd:
    """One end of the socket pair.

    Args:
        sock: a stream socket, owned by this object.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        self._sending = trio.Lock()
        self._buffer = bytearray()

    async def send(self, kind: str, *, data: bytes = b"", **fields: Any) -> None:
        """Send a message. It is dropped if the other end is gone."""
        try:
            async with self._sending:
                await self._stream.send_all(line(kind, data=data, **fields))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def receive(self) -> Message | None:
        """Return the next message; None if the other end is gone. Loses nothing if cancelled."""
        while (end := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > _MOST or not await self._more():
                return None
        message: Message = json.loads(self._buffer[:end])
        start = end + 1
        size = message.get("size", 0)
        while len(self._buffer) < start + size:
            if not await self._more():
                return None
        if size:
            message["data"] = bytes(self._buffer[start : start + size])
        del self._buffer[: start + size]
        return message

    async def _more(self) -> bool:
        """Wait for more bytes. Returns False if the other end is gone."""
        try:
            data = await self._stream.receive_some()
        except trio.BrokenResourceError:
            return False
        self._buffer += data
        return bool(data)

    async def aclose(self) -> None:
        """Close the link."""
        await self._stream.aclose()
