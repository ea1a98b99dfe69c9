"""Parses the requests of clients into lists of arguments.

Rule 1: a request is an array of bulk strings, or one line of text ("inline").
Rule 2: what is malformed is an error with Disque's text, after which the connection is closed;
        requests that came complete before it are still served.
Rule 3: a client can make the parser hold at most ``max_query`` bytes.

Three parsers stand behind ``feed``. The careful one is incremental and knows every rule. A short
chunk, as a client sends that waits for each reply, is cut at the line ends: where every length is
that of the piece behind it, the pieces are the arguments, and this costs a third of what the next
one does. The quick one hands a whole chunk to hiredis, which is three times as fast but parses
replies, not
requests: it knows no inline lines and no limits, gives other types as if they were lists and
bulk strings, reserves room for an array before it has seen one element, and cannot say where a
half request began. So it gets a chunk only when nothing is left over from the last one, no line
in it begins like such a type or like an array of seven digits or more, and it is no longer than
one argument may be. A marker is put behind the chunk, and unless exactly lists of bulk strings
and then the marker come out, the careful parser starts over with the same chunk. No request is
ever served from a chunk that hiredis did not take whole.
"""

import re
from io import BytesIO
from typing import Final

import hiredis

from disque_trio.resp.inline import split_inline
from disque_trio.resp.ints import parse_int

MAX_ARGS: Final = 1024 * 1024
MAX_BULK: Final = 512 * 1024 * 1024
MAX_INLINE: Final = 64 * 1024
MAX_QUERY: Final = 1024 * 1024 * 1024

# What a client may send before it has given the password, so that strangers cannot make the
# node hold much (the numbers are Redis's).
UNAUTHENTICATED_MAX_ARGS: Final = 10
UNAUTHENTICATED_MAX_BULK: Final = 16 * 1024

# An argument that comes in pieces and is as long is collected by itself: it is not copied again.
_LARGE: Final = 1024 * 1024

ARGUMENT: Final = 56  # bytes that an argument takes beside its own: the object, and its place
REQUEST: Final = 64  # bytes that a request takes beside its arguments

_STAR: Final = ord("*")
_DOLLAR: Final = ord("$")
_MARKER: Final = b":0\r\n"
# The start of a line that hiredis must not see. Inside of an argument it does no harm, the chunk
# then only goes the careful way. (Neither parser looks at the two bytes that end an argument, so
# behind a wrong end such a line is not seen as one; it is then served as hiredis reads it.)
_NOT_FOR_HIREDIS: Final = re.compile(rb"\n(?:[+=(~>|%]|\*[+0-9]{7})")
_MAX_FIRST_LINE: Final = 7

# What is cut at its line ends: beyond a few requests hiredis is quicker.
_SHORT: Final = 512  # bytes
_COUNT_LINES: Final[dict[bytes, int]] = {b"*%d" % count: count for count in range(1, 33)}
_LENGTH_LINES: Final[list[bytes]] = [b"$%d" % length for length in range(_SHORT)]


def request_size(request: list[bytes]) -> int:
    """Bytes of memory that ``request`` takes, roughly."""
    return REQUEST + ARGUMENT * len(request) + sum(map(len, request))


class RequestParser:
    """Parses the requests of one connection.

    ``error`` is None until the client breaks the protocol, then the text of the error reply
    (without "ERR " and line end); everything fed after that is dropped. ``held_back`` means that
    a stranger sent more than strangers may behind the requests that ``feed`` gave, which may
    have the password: serve these, set ``trusted`` and call ``go_on``. ``resized`` is set when
    ``size`` may have changed; whoever follows that takes it back.

    Args:
        max_bulk: longest argument, bytes.
        max_inline: longest inline request and longest count line, bytes.
        max_query: most bytes held for one unfinished request.
        trusted: the client has authenticated or need not; until it has, Redis's limits for
            strangers hold.
    """

    __slots__ = (
        "_args",
        "_buffer",
        "_bulk",
        "_held",
        "_large",
        "_left",
        "error",
        "held_back",
        "max_bulk",
        "max_inline",
        "max_query",
        "resized",
        "trusted",
    )

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
        self.resized = False
        self._buffer = bytearray()
        self._args: list[bytes] = []
        self._left = 0  # arguments still to come of the request in ``_args``
        self._bulk = -1  # length of the argument that comes next, -1: not known yet
        self._large: BytesIO | None = None  # the argument that comes next, if it is large
        self._held = 0  # bytes in ``_args``, and in ``_large``

    @property
    def pending(self) -> int:
        """Bytes held for a request that is not complete."""
        return len(self._buffer) + self._held

    @property
    def size(self) -> int:
        """Bytes of memory that this takes, roughly: far more where there are many short
        arguments."""
        return len(self._buffer) + self._held + ARGUMENT * len(self._args)

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Take ``data`` (not empty) and return the requests that are now complete."""
        if self.error is not None:
            return []
        if (
            not self._left
            and not self._buffer
            and self.trusted
            and data[0] == _STAR
            and len(data) <= self.max_bulk
        ):
            requests = _cut_short(data) if len(data) <= _SHORT else None
            if requests is None:
                requests = _parse_whole(data)
            if requests is not None:
                return requests
        return self._parse(data)

    def go_on(self) -> list[list[bytes]]:
        """Return the requests behind those that ``held_back`` was about."""
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
        self.resized = True
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
        """Put what is there of a large argument into ``large``; returns what follows it."""
        room = self._bulk - large.tell()
        taken = large.write(data if len(data) <= room else data[:room])
        self._held += taken
        return data[taken:]

    def _line(self, position: int, too_long: str) -> int:
        """Where the count line at ``position`` ends, or -1 while its end is not there."""
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
        elif args := [arg for arg in args if arg]:  # as the C server: empty ones are dropped
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
        """Take what is there of the request's arguments; returns the position behind them."""
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
            with memoryview(buffer) as view:  # one copy, not two, of what may be 512 MB
                self._args.append(view[position : position + self._bulk].tobytes())
            self._held += self._bulk
            self._left -= 1
            position += self._bulk + 2
            self._bulk = -1
        return position


def _cut_short(data: bytes) -> list[list[bytes]] | None:
    """The requests in ``data``, of at most ``_SHORT`` bytes, if it holds whole, well-formed ones
    without a line end in any argument, and nothing else."""
    lines = data.split(b"\r\n")
    end = len(lines) - 1
    if lines[end]:
        return None
    requests: list[list[bytes]] = []
    at = 0
    while at < end:
        after = at + 1 + 2 * _COUNT_LINES.get(lines[at], MAX_ARGS)
        if after > end:
            return None
        request: list[bytes] = []
        for i in range(at + 2, after, 2):
            argument = lines[i]
            if lines[i - 1] != _LENGTH_LINES[len(argument)]:
                return None
            request.append(argument)
        requests.append(request)
        at = after
    return requests


_reader = hiredis.Reader()


def _parse_whole(data: bytes) -> list[list[bytes]] | None:
    """The requests in ``data`` if it holds whole, well-formed ones and nothing else."""
    global _reader
    if (
        not data.endswith(b"\r\n")
        or data.find(b"\r", 0, _MAX_FIRST_LINE + 1) < 0
        or _NOT_FOR_HIREDIS.search(data) is not None
    ):
        return None
    requests: list[list[bytes]] = []
    gets = _reader.gets
    try:
        _reader.feed(data + _MARKER)
        while True:
            request = gets()
            if type(request) is not list:
                break
            for argument in request:
                if type(argument) is not bytes:
                    _reader = hiredis.Reader()
                    return None
            if request:
                requests.append(request)
        if request == 0 and request is not False and not _reader.has_data():
            return requests
    except Exception:
        pass  # not only protocol errors: hiredis-py also raises TypeError and MemoryError
    # What hiredis holds now is half a request, or none at all.
    _reader = hiredis.Reader()
    return None
