"""A reference parser of requests, to compare the package's parser with.

It implements every rule, is incremental, and has no fast path for simple requests.
"""

import re
from io import BytesIO

from disque_trio.resp.inline import split_inline
from disque_trio.resp.limits import (
    MAX_ARGS,
    MAX_BULK,
    MAX_INLINE,
    MAX_QUERY,
    UNAUTHENTICATED_MAX_ARGS,
    UNAUTHENTICATED_MAX_BULK,
)

_LARGE = 1024 * 1024
_STAR = ord("*")
_DOLLAR = ord("$")


def parse_int(text: bytes) -> int | None:
    """Parse a signed 64-bit integer by the package's rules."""
    if re.fullmatch(rb"[+-]?[0-9]+|", text) is None or len(text) > 4000:
        return None
    value = int(text or b"0")
    return value if -(2**63) <= value < 2**63 else None


class CarefulParser:
    """Parses the requests of one connection, a line and an argument at a time.

    Attributes and arguments are as in ``resp.request``.
    """

    def __init__(
        self,
        max_bulk: int = MAX_BULK,
        max_inline: int = MAX_INLINE,
        max_query: int = MAX_QUERY,
        trusted: bool = True,
    ) -> None:
        self.max_bulk = max_bulk
        self.max_inline = max_inline
        self.max_query = max_query
        self.error: str | None = None
        self.trusted = trusted
        self.held_back = False
        self._buffer = bytearray()
        self._args: list[bytes] = []
        self._left = 0  # remaining arguments of the request in ``_args``
        self._bulk = -1  # length of the next argument; -1 if unknown
        self._large: BytesIO | None = None  # the next argument, if it is large
        self._held = 0  # bytes in ``_args``, and in ``_large``

    @property
    def pending(self) -> int:
        """Bytes held for an incomplete request."""
        return len(self._buffer) + self._held

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Take ``data`` (not empty) and return the requests completed by it."""
        if self.error is not None:
            return []
        return self._parse(data)

    def go_on(self) -> list[list[bytes]]:
        """Return the requests after those of ``held_back``."""
        self.held_back = False
        return self._parse(b"")

    def _fail(self, text: str) -> None:
        self.error = "Protocol error: " + text
        self._buffer.clear()
        self._args = []
        self._large = None
        self._left = 0
        self._held = 0

    def _parse(self, data: bytes) -> list[list[bytes]]:
        buffer = self._buffer
        buffer += data if self._large is None else self._collect(self._large, data)
        requests: list[list[bytes]] = []
        position = 0
        while position < len(buffer):
            if self._left:
                after = self._take_arguments(position)
                if self._left == 0 and self.error is None:
                    requests.append(self._args)
                    self._args = []
                    self._held = 0
            elif buffer[position] == _STAR:
                if requests and not self.trusted:
                    self.held_back = True
                    break
                after = self._take_count(position)
            else:
                after = self._take_inline(position, requests)
            if self.error is not None:
                return requests
            if after == position:
                break
            position = after
        del buffer[:position]
        if len(buffer) + self._held > self.max_query:
            self._fail("too big query buffer")
        return requests

    def _collect(self, large: BytesIO, data: bytes) -> bytes:
        """Put the available part of a large argument into ``large``; returns the data after it."""
        room = self._bulk - large.tell()
        taken = large.write(data if len(data) <= room else data[:room])
        self._held += taken
        return data[taken:]

    def _line(self, position: int, too_long: str) -> int:
        """The end of the count line at ``position``, or -1 if it is incomplete."""
        end = self._buffer.find(b"\r\n", position)
        if (end if end >= 0 else len(self._buffer)) - position > self.max_inline:
            self._fail(too_long)
            return -1
        return end

    def _take_inline(self, position: int, requests: list[list[bytes]]) -> int:
        end = self._buffer.find(b"\n", position)
        if (end if end >= 0 else len(self._buffer)) - position > self.max_inline:
            self._fail("too big inline request")
        if end < 0 or self.error is not None:
            return position
        args = split_inline(bytes(self._buffer[position:end]))
        if args is None:
            self._fail("unbalanced quotes in request")
        elif args := [arg for arg in args if arg]:  # like the C server, drop empty ones
            requests.append(args)
        return end + 1

    def _take_count(self, position: int) -> int:
        end = self._line(position, "too big mbulk count string")
        if end < 0:
            return position
        count = parse_int(bytes(self._buffer[position + 1 : end]))
        if count is None or count > MAX_ARGS:
            self._fail("invalid multibulk length")
        elif count > UNAUTHENTICATED_MAX_ARGS and not self.trusted:
            self._fail("unauthenticated multibulk length")
        elif count > 0:
            self._left = count
            self._bulk = -1
        return end + 2

    def _take_arguments(self, position: int) -> int:
        """Take the available arguments of the request; returns the position after them."""
        buffer = self._buffer
        while self._left:
            if self._bulk < 0:
                end = self._line(position, "too big bulk count string")
                if end < 0:
                    break
                if buffer[position] != _DOLLAR:
                    got = chr(buffer[position])
                    self._fail(f"expected '$', got '{got if got.isprintable() else ' '}'")
                    break
                length = parse_int(bytes(buffer[position + 1 : end]))
                if length is None or not 0 <= length <= self.max_bulk:
                    self._fail("invalid bulk length")
                    break
                if length > UNAUTHENTICATED_MAX_BULK and not self.trusted:
                    self._fail("unauthenticated bulk length")
                    break
                self._bulk = length
                position = end + 2
            large = self._large
            if large is not None:
                if large.tell() < self._bulk or len(buffer) - position < 2:
                    break
                self._args.append(large.getvalue())
                self._large = None
                self._left -= 1
                position += 2
                self._bulk = -1
                continue
            if len(buffer) - position < self._bulk + 2:
                if self._bulk >= _LARGE:
                    self._large = BytesIO()
                    position = len(buffer) - len(
                        self._collect(self._large, bytes(buffer[position:]))
                    )
                break
            with memoryview(buffer) as view:  # copy once, not twice: it may be 512 MB
                self._args.append(view[position : position + self._bulk].tobytes())
            self._held += self._bulk
            self._left -= 1
            position += self._bulk + 2
            self._bulk = -1
        return position
