"""Cuts plain requests into their arguments.

Plain requests are what nearly all clients send: arrays of bulk strings whose lengths have up to ten
digits. The two bytes that end an argument are not checked.

Compiled, ``_cut.h`` does it in one pass over the bytes. Interpreted, that would take three times as
long as whole operations of ``bytes`` and hiredis, so the pure build uses these. A short chunk is
split at its line ends: if every length is that of the piece that follows, the pieces are the
arguments. A longer one goes to hiredis, which parses replies, not requests: it treats other types
like lists and bulk strings, reserves room for an array before it has seen an element, and cannot
say where an incomplete request began. So it gets a chunk only if no line in it begins like such a
type, or like an array of seven digits or more. A marker is appended to the chunk, and unless
exactly lists of bulk strings and then the marker come out, nothing is cut.
"""

import re
from typing import Final

import hiredis

from disque_trio.resp.limits import MAX_ARGS

_MARKER: Final = b":0\r\n"
# The start of a line that hiredis must not see. If it is inside an argument, the chunk just takes
# the slow path.
_NOT_FOR_HIREDIS: Final = re.compile(rb"\n(?:[+=(~>|%]|\*[+0-9]{7})")
_MAX_FIRST_LINE: Final = 7
# Size up to which to split at line ends: beyond a few requests hiredis is faster.
_SHORT: Final = 512  # bytes
_COUNT_LINES: Final[dict[bytes, int]] = {b"*%d" % count: count for count in range(1, 33)}
_LENGTH_LINES: Final[list[bytes]] = [b"$%d" % length for length in range(_SHORT)]


def cut_plain(data: bytes, start: int, max_bulk: int, requests: list[list[bytes]]) -> int:
    """Cut complete plain requests, starting at ``start``, and append them to ``requests``.

    Returns:
        where the first request begins that was not cut, because it is not plain or incomplete; or
        the end of ``data``.
    """
    if start or len(data) > max_bulk:
        return start
    found = _split(data) if len(data) <= _SHORT else _read_replies(data)
    if found is None:
        return start
    requests += found
    return len(data)


def _split(data: bytes) -> list[list[bytes]] | None:
    """The requests in ``data``, which has at most ``_SHORT`` bytes, if it consists of complete,
    well-formed ones without a line end in any argument."""
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


def _read_replies(data: bytes) -> list[list[bytes]] | None:
    """The requests in ``data`` if it consists of complete, well-formed ones."""
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
        # hiredis now holds half a request, or nothing.
    _reader = hiredis.Reader()
    return None
