"""Splits standard input into elements, and writes elements to standard output.

Owns the three framings: lines, elements that end in NUL, and blocks. Knows nothing of queues.
"""

import os
import select
import stat
from collections.abc import AsyncGenerator
from enum import Enum

import trio

READ_BYTES = 1 << 16


class Framing(Enum):
    """The delimiter of elements in a stream of bytes; blocks have none."""

    LINE = b"\n"
    NUL = b"\0"
    BLOCK = b""


class Splitter:
    """Cuts a stream of bytes into elements.

    What follows the last separator is also an element, unless it is empty. The last block may be
    short.
    """

    def __init__(self, framing: Framing, size: int = 0) -> None:
        """Create a splitter.

        Args:
            size: the size of a block in bytes, at least 1; only for ``Framing.BLOCK``.

        Raises:
            ValueError: the size of a block is missing.
        """
        if framing is Framing.BLOCK and size < 1:
            raise ValueError("a block must have at least one byte")
        self._separator = framing.value
        self._size = size
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the elements that ``data`` completes. Takes linear time even for long elements."""
        if not self._separator:
            return self._blocks(data)
        first, *others = data.split(self._separator)
        self._rest += first
        if not others:
            return []
        elements = [bytes(self._rest), *others[:-1]]
        self._rest = bytearray(others[-1])
        return elements

    def end(self) -> list[bytes]:
        """Return the last element, if any, after the end of the stream."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest else []

    def _blocks(self, data: bytes) -> list[bytes]:
        self._rest += data
        whole = len(self._rest) - len(self._rest) % self._size
        if not whole:
            return []
        elements = [bytes(self._rest[at : at + self._size]) for at in range(0, whole, self._size)]
        del self._rest[:whole]
        return elements


def joined(elements: list[bytes], framing: Framing) -> bytes:
    """Join elements, each followed by its separator; blocks have none."""
    separator = framing.value
    return separator.join([*elements, b""]) if separator else b"".join(elements)


def whole(elements: list[bytes], framing: Framing, size: int) -> int:
    """Count the ``elements`` that are complete in the first ``size`` bytes of them ``joined``."""
    count = end = 0
    for element in elements:
        end += len(element) + len(framing.value)
        if end > size:
            break
        count += 1
    return count


async def chunks(descriptor: int) -> AsyncGenerator[bytes, None]:
    """Yield what can be read from a file, pipe, socket or terminal, as it arrives, until its end.

    Does not change the descriptor's mode, since other processes may share it.

    Raises:
        OSError: it cannot be read.
    """
    waits = not stat.S_ISREG(os.fstat(descriptor).st_mode)
    while True:
        if waits:
            try:
                await trio.lowlevel.wait_readable(descriptor)
            except PermissionError:
                waits = False  # such as /dev/null: there is never anything to wait for
        else:
            await trio.lowlevel.checkpoint()
        data = os.read(descriptor, READ_BYTES)
        if not data:
            return
        yield data


async def write_some(descriptor: int, data: bytes, start: int) -> int:
    """Write some of ``data`` from ``start`` on to a file, pipe, socket or terminal, and return how
    many bytes were written.

    Waits until there is room, without changing the descriptor's mode.

    Raises:
        BrokenPipeError: nobody reads the other end.
        OSError: it cannot be written.
    """
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        await trio.lowlevel.checkpoint()
        return os.write(descriptor, memoryview(data)[start:])
    try:
        await trio.lowlevel.wait_writable(descriptor)
    except PermissionError:
        pass  # such as /dev/null: there is never anything to wait for
    # A writable pipe has room for PIPE_BUF bytes. Writing more would block the process, and so the
    # renewal of leases and the handling of signals.
    return os.write(descriptor, memoryview(data)[start : start + select.PIPE_BUF])


async def write(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, like ``write_some``."""
    done = 0
    while done < len(data):
        done += await write_some(descriptor, data, done)


async def reader_gone(descriptor: int) -> None:
    """Wait until nobody reads the other end of a pipe any more; forever if this is not a pipe."""
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        await trio.sleep_forever()
    # The writing end is never readable: only the error wakes this.
    await trio.lowlevel.wait_readable(descriptor)
