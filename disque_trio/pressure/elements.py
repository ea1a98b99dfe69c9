"""Splits standard input into elements, and writes elements to standard output.

Owns the three framings: lines, elements that end in NUL, blocks of a size. No queue is known here.
"""

import os
import select
import stat
from collections.abc import AsyncGenerator
from enum import Enum

import trio

READ_BYTES = 1 << 16


class Framing(Enum):
    """The delimiter of elements in a stream of bytes; blocks have none but their size."""

    LINE = b"\n"
    NUL = b"\0"
    BLOCK = b""


class Splitter:
    """Cuts a stream of bytes into elements.

    What follows the last separator is an element too, if it is not empty, and so is a last block
    that is short.
    """

    def __init__(self, framing: Framing, size: int = 0) -> None:
        """``size``: bytes of a block, for ``Framing.BLOCK``; 1 or more.

        Raises:
            ValueError: the size of a block is missing.
        """
        if framing is Framing.BLOCK and size < 1:
            raise ValueError("a block has at least one byte")
        self._separator = framing.value
        self._size = size
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The elements that are whole with ``data``. Time is linear however long an element is."""
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
        """The last element, if there is one, after the end of the stream."""
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
    """Elements as bytes: with a separator behind each, blocks with none."""
    separator = framing.value
    return separator.join([*elements, b""]) if separator else b"".join(elements)


def whole(elements: list[bytes], framing: Framing, size: int) -> int:
    """How many of ``elements`` are within the first ``size`` bytes of them ``joined``."""
    count = end = 0
    for element in elements:
        end += len(element) + len(framing.value)
        if end > size:
            break
        count += 1
    return count


async def chunks(descriptor: int) -> AsyncGenerator[bytes, None]:
    """What can be read from a file, pipe, socket or terminal, as it comes, until its end.

    The descriptor is left in the mode it has: it may be shared with other processes.

    Raises:
        OSError: it cannot be read.
    """
    waits = not stat.S_ISREG(os.fstat(descriptor).st_mode)
    while True:
        if waits:
            try:
                await trio.lowlevel.wait_readable(descriptor)
            except PermissionError:
                waits = False  # such as /dev/null: it never has to be waited for
        else:
            await trio.lowlevel.checkpoint()
        data = os.read(descriptor, READ_BYTES)
        if not data:
            return
        yield data


async def write_some(descriptor: int, data: bytes, start: int) -> int:
    """Write some of ``data`` from ``start`` on to a file, pipe, socket or terminal; returns how
    much.

    Waits until there is room, without the mode of the descriptor being changed.

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
        pass  # such as /dev/null: it never has to be waited for
    # A pipe that is writable has room for this much: a write of more would block the process, and
    # with it the renewal of leases and the signals.
    return os.write(descriptor, memoryview(data)[start : start + select.PIPE_BUF])


async def write(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, like ``write_some``."""
    done = 0
    while done < len(data):
        done += await write_some(descriptor, data, done)


async def reader_gone(descriptor: int) -> None:
    """Wait until nobody reads the other end of a pipe any more; for ever if it is no pipe."""
    if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
        await trio.sleep_forever()
    # The end that is written to never is readable: all that wakes this is the error.
    await trio.lowlevel.wait_readable(descriptor)
