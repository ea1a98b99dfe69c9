"""Parses the requests of clients into lists of arguments.

Rule 1: a request is an array of bulk strings, or one line of text ("inline").
Rule 2: malformed input is an error with Disque's text, after which the connection is closed;
        complete requests before it are still served.
Rule 3: a client can make the parser hold at most ``max_query`` bytes.

Nearly all requests arrive whole and are plain: arrays of bulk strings. One pass over the bytes cuts
these, usually as soon as they are read. Where it stops, the parser in this module takes over; it is
incremental and knows every rule.
"""

from io import BytesIO
from typing import Final

from disque_trio.resp.inline import split_inline
from disque_trio.resp.ints import parse_int
from disque_trio.resp.limits import (
    MAX_ARGS,
    MAX_BULK,
    MAX_INLINE,
    MAX_QUERY,
    PLAIN_LINE,
    UNAUTHENTICATED_MAX_ARGS,
    UNAUTHENTICATED_MAX_BULK,
)

try:
    from disque_trio.resp._cut import cut_plain
except ImportError:
    from disque_trio.resp.plain import cut_plain

# An argument of this size that arrives in pieces is collected separately, which saves a copy.
_LARGE: Final = 1024 * 1024

ARGUMENT: Final = 56  # bytes that an argument takes in addition: the object, and its place
REQUEST: Final = 64  # bytes that a request takes in addition to its arguments

_STAR: Final = ord("*")
_DOLLAR: Final = ord("$")
_CR: Final = ord("\r")
TLS_HANDSHAKE: Final = 0x16  # the first byte of a client that speaks TLS; no command has it
NO_TLS: Final = "this port is for clients without TLS"


def request_size(request: list[bytes]) -> int:
    """The approximate memory that ``request`` takes, in bytes."""
    return REQUEST + ARGUMENT * len(request) + sum(map(len, request))


class RequestParser:
    """Parses the requests of one connection.

    ``error`` is None until the client breaks the protocol, then the text of the error reply
    (without "ERR " and line end); everything fed after that is dropped. ``held_back`` means that a
    stranger sent more than strangers may after the requests that ``feed`` returned, which may
    contain the
    password: serve these, set ``trusted`` and call ``go_on``. ``resized`` is set when ``size`` may
    have changed; the code that watches it resets it.

    Args:
        max_bulk: longest argument, in bytes.
        max_inline: longest inline request and longest count line, in bytes.
        max_query: maximum of bytes held for one incomplete request.
        trusted: the client has authenticated or need not; until then, Redis's limits for
            strangers apply.
    """

    __slots__ = (
        "_args",
        "_buffer",
        "_bulk",
        "_held",
        "_holds",
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
        self._left = 0  # number of arguments missing in ``_args``
        self._bulk = -1  # length of the next argument; -1: not known yet
        self._large: BytesIO | None = None  # the next argument, if it is large
        self._held = 0  # bytes in ``_args`` and in ``_large``
        self._holds = False  # more data continues what is held, or is dropped

    @property
    def pending(self) -> int:
        """Bytes held for an incomplete request."""
        return len(self._buffer) + self._held

    @property
    def size(self) -> int:
        """The approximate memory that this takes, in bytes: far more if there are many short
        arguments."""
        return len(self._buffer) + self._held + ARGUMENT * len(self._args)

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Take ``data`` (not empty) and return the requests that are now complete."""
        requests: list[list[bytes]] = []
        after = cut_plain(data, 0, self.max_bulk, requests) if self.takes_plain else 0
        if after < len(data):
            self.take(data[after:], requests)
        return requests

    def go_on(self) -> list[list[bytes]]:
        """Return the requests after those that set ``held_back``."""
        self.held_back = False
        requests: list[list[bytes]] = []
        self.take(b"", requests)
        return requests

    @property
    def takes_plain(self) -> bool:
        """Whether plain requests may be cut from the next data before it is fed."""
        return not self._holds and self._may_cut()

    def _may_cut(self) -> bool:
        """Whether plain requests can exceed no limit except the one for arguments."""
        return self.trusted and self.max_inline >= PLAIN_LINE

    def _fail(self, text: str) -> None:
        self.error = "Protocol error: " + text
        self._buffer.clear()
        self._args = []
        self._large = None
        self._left = 0
        self._held = 0
        self._holds = True

    def take(self, data: bytes, requests: list[list[bytes]]) -> None:
        """Take ``data``, and add the requests that are now complete to ``requests``."""
        error = self.error  # a local: mypyc assumes below that the attribute stays None
        if error is not None:
            return
        self.resized = True
        buffer = self._buffer
        buffer += data if self._large is None else self._collect(self._large, data)
        whole: bytes | None = None
        position = 0
        while position < len(buffer):
            after = position
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
                if position and self._may_cut():
                    if whole is None:
                        whole = bytes(buffer)
                    after = cut_plain(whole, position, self.max_bulk, requests)
                if after == position:
                    after = self._take_count(position)
            else:
                after = self._take_inline(position, requests)
            if self.error is not None:
                return
            if after == position:
                break
            position = after
        del buffer[:position]
        self._holds = self._left > 0 or len(buffer) > 0
        if len(buffer) + self._held > self.max_query:
            self._fail("too big query buffer")

    def _collect(self, large: BytesIO, data: bytes) -> bytes:
        """Move the available part of a large argument into ``large``; return what follows it."""
        room = self._bulk - large.tell()
        taken = large.write(data if len(data) <= room else data[:room])
        self._held += taken
        return data[taken:]

    def _line(self, position: int, too_long: str) -> int:
        """Return where the count line at ``position`` ends; -1 while its end is missing."""
        buffer = self._buffer
        end = buffer.find(b"\r\n", position)
        length = (end if end >= 0 else len(buffer)) - position
        if end < 0 and length and buffer[-1] == _CR:
            length -= 1  # half of the line end
        if length > self.max_inline:
            self._fail(too_long)
            return -1
        return end

    def _take_inline(self, position: int, requests: list[list[bytes]]) -> int:
        if self._buffer[position] == TLS_HANDSHAKE:
            self._fail(NO_TLS)  # an inline command would leave it waiting
            return position
        end = self._buffer.find(b"\n", position)
        if (end if end >= 0 else len(self._buffer)) - position > self.max_inline:
            self._fail("too big inline request")
        if end < 0 or self.error is not None:
            return position
        args = split_inline(bytes(self._buffer[position:end]))
        if args is None:
            self._fail("unbalanced quotes in request")
        elif args := [arg for arg in args if arg]:  # like the C server: drop empty ones
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
        """Take the available arguments of the request; return the position after them."""
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
            with memoryview(buffer) as view:  # one copy instead of two, of up to 512 MB
                self._args.append(view[position : position + self._bulk].tobytes())
            self._held += self._bulk
            self._left -= 1
            position += self._bulk + 2
            self._bulk = -1
        return position
