"""Cuts plain requests into their arguments.

Plain is what nearly all clients send: arrays of bulk strings whose lengths are up to ten digits.
Nobody looks at the two bytes that end an argument.

Compiled, ``_cut.h`` does it in one pass over the bytes. Interpreted, that would take three times as
long as what ``bytes`` and hiredis do at once, so the pure form does that. A short chunk is cut at
its line ends: where every length is that of the piece behind it, the pieces are the arguments. A
longer one is handed to hiredis, which parses replies, not requests: it gives other types as if they
were lists and bulk strings, reserves room for an array before it has seen one element, and cannot
say where a half request began. So it gets a chunk only when no line in it begins like such a type,
or like an array of seven digits or more. A marker is put behind the chunk, and unless exactly lists
of bulk strings and then the marker come out, nothing of it is cut.
"""

import re
from typing import Final

import hiredis

from disque_trio.resp.limits import MAX_ARGS

_MARKER: Final = b":0\r\n"
# The start of a line that hiredis must not see. Inside of an argument it does no harm, the chunk
# then only goes the careful way.
_NOT_FOR_HIREDIS: Final = re.compile(rb"\n(?:[+=(~>|%]|\*[+0-9]{7})")
_MAX_FIRST_LINE: Final = 7
# What is cut at its line ends: beyond a few requests hiredis is quicker.
_SHORT: Final = 512  # bytes
_COUNT_LINES: Final[dict[bytes, int]] = {b"*%d" % count: count for count in range(1, 33)}
_LENGTH_LINES: Final[list[bytes]] = [b"$%d" % length for length in range(_SHORT)]


def cut_plain(data: bytes, start: int, max_bulk: int, requests: list[list[bytes]]) -> int:
    """Cut plain requests that are whole, from ``start`` on, and add them to ``requests``.

    Returns:
        where the first request begins that was not cut: one that is not plain, or not whole; or
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


def _read_replies(data: bytes) -> list[list[bytes]] | None:
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
