"""The fast parser gives the same requests as the careful one."""

import os
import random
from collections.abc import Callable, Iterator

import pytest

from disque_trio.resp import plain, request
from disque_trio.resp.command import encode_command
from disque_trio.resp.limits import MAX_BULK, PLAIN_LINE
from disque_trio.resp.request import RequestParser
from tests.support.careful_parser import CarefulParser

INPUTS = int(os.environ.get("REQUEST_INPUTS", 20_000))
BLOCKS = max(4, INPUTS // 100_000)

# Parts of requests, and near misses.
TOKENS = [
    b"*", b"$", b"\r\n", b"\r\n", b"\r", b"\n", b"-1", b"+1", b"0", b"1", b"2", b"3", b"9", b"01",
    b"0000000001", b"00000000001", b"9999999999", b"1048577", b"536870913", b" ", b"'", b'"', b"a",
    b"*1\r\n", b"*2\r\n", b"*0\r\n", b"*-1\r\n", b"*01\r\n", b"$1\r\na\r\n", b"$0\r\n\r\n",
    b"$2\r\n\r\n\r\n", b"$4\r\nPING\r\n", b"$4\r\nPINGxx", b"$12\r\n0123456789ab\r\n", b":0\r\n",
    b"*1\r\n$4\r\nPING\r\n", b"*2\r\n$4\r\nECHO\r\n$1\r\n*\r\n", b"%1\r\n", b"+a\r\n", b"PING\r\n",
    b"x" * 600, b"$600\r\n" + b"*" * 600 + b"\r\n",
]  # fmt: skip

Requests = list[list[bytes]]

Cut = Callable[[bytes, int, int, Requests], int]

# Both are the same function unless the package is compiled.
CUTS: list[Cut] = list({plain.cut_plain: None, request.cut_plain: None})
in_c = pytest.mark.skipif(
    request.cut_plain is plain.cut_plain, reason="the package is not compiled"
)


def inputs(seed: int, count: int) -> Iterator[tuple[bytes, int]]:
    """Yield pairs of bytes and a place to cut them at."""
    rng = random.Random(seed)
    for _ in range(count):
        data = b"".join(rng.choices(TOKENS, k=int(rng.random() * 9) + 1))
        if rng.random() < 0.5:
            data = b"*1\r\n$4\r\nPING\r\n" + data
        yield data, int(rng.random() * len(data))


def carefully(data: bytes, trusted: bool = True) -> tuple[Requests, str | None]:
    parser = CarefulParser(trusted=trusted)
    return parser.feed(data), parser.error


@pytest.mark.parametrize("block", range(BLOCKS))
def test_requests_and_errors_are_those_of_the_careful_parser(block: int) -> None:
    for data, place in inputs(block, INPUTS // BLOCKS):
        expected = carefully(data)
        parser = RequestParser()
        found = parser.feed(data[:place]) if place else []
        found += parser.feed(data[place:])
        assert (found, parser.error) == expected, (data, place)
        for cut in CUTS:
            found = []
            end = cut(data, 0, MAX_BULK, found)
            rest, error = carefully(data[end:])
            assert (found + rest, error) == expected, data


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize(
    "data",
    [
        b"*0\r\n",
        b"*-1\r\n",
        b"*1048577\r\n$1\r\na\r\n",
        b"*\r\n",
        b"*1\r\n$\r\n\r\n",
        b"*1\r\n$-1\r\n",
        b"*1\r\n$5\r\nabcd\r\n",
        b"*1\n$1\na\n",
        b"*1\r\n:1\r\n",
        b"PING\r\n",
        b"*1\r\n$4\r\nPING\r",
    ],
)
def test_what_is_not_plain_or_not_whole_is_left(cut: Cut, data: bytes) -> None:
    requests: Requests = []
    assert cut(data, 0, MAX_BULK, requests) == 0
    assert not requests


@in_c
def test_what_is_cut_ends_where_a_request_is_not_whole() -> None:
    requests: Requests = []
    whole = b"*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n"
    assert request.cut_plain(whole * 2 + whole[:-1], 0, MAX_BULK, requests) == 2 * len(whole)
    assert requests == [[b"ECHO", b"a\r\n"]] * 2


@in_c
def test_lines_are_plain_up_to_their_longest_length() -> None:
    longest = b"*" + b"0" * (PLAIN_LINE - 2) + b"1\r\n$1\r\na\r\n"
    requests: Requests = []
    assert request.cut_plain(longest, 0, MAX_BULK, requests) == len(longest)
    assert request.cut_plain(longest.replace(b"*", b"*0"), 0, MAX_BULK, requests) == 0
    assert requests == [[b"a"]]


@in_c
@pytest.mark.parametrize("start", [-1, 5, 2**40])
def test_cutting_begins_inside_of_the_data(start: int) -> None:
    with pytest.raises(ValueError, match="inside"):
        request.cut_plain(b"*1\r\n", start, MAX_BULK, [])


@pytest.mark.parametrize("cut", CUTS)
def test_arguments_of_all_lengths_are_told_apart(cut: Cut) -> None:
    """Including those that begin or end alike, or repeat."""
    wanted = [
        [b"%b%b" % (first * (length - 1), last) for length in range(1, 40)]
        for first in (b"a", b"b", b"\r\n$")
        for last in (b"a", b"b", b"\0", b"\r\n")
    ] * 2
    data = b"".join(encode_command(request) for request in wanted)
    requests: Requests = []
    assert cut(data, 0, MAX_BULK, requests) == len(data)
    assert requests == wanted
