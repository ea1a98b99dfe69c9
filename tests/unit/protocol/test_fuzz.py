"""The parser gives the same result however the bytes are split, and at worst an error."""

from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from disque_trio.resp.inline import quote
from disque_trio.resp.limits import MAX_BULK, MAX_INLINE
from disque_trio.resp.request import RequestParser
from tests.support.careful_parser import CarefulParser

Result = tuple[list[list[bytes]], str | None]

words = st.one_of(
    st.binary(max_size=20),
    st.sampled_from(
        [b"PING", b"\r\n", b"*1\r\n", b"$4\r\nPING\r\n", b":0\r\n", b"*1234567", b"+=(~"]
    ),
    st.integers(0, 3000).map(lambda size: b"x" * size),
)


def as_array(args: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%b\r\n" % (len(a), a) for a in args)


def as_line(args: list[bytes]) -> bytes:
    return b" ".join(quote(arg) for arg in args) + b"\n"


arrays = st.lists(words, min_size=1, max_size=5).map(lambda args: (as_array(args), [args]))
lines = st.lists(st.binary(max_size=20), min_size=1, max_size=4).map(
    lambda args: (as_line(args), [kept] if (kept := [arg for arg in args if arg]) else [])
)  # a line loses its empty arguments
nothing: st.SearchStrategy[tuple[bytes, list[list[bytes]]]] = st.sampled_from(
    [b"\r\n", b"\n", b" \t\n", b"*0\r\n", b"*-1\r\n"]
).map(lambda data: (data, []))
streams = st.lists(st.one_of(arrays, arrays, lines, nothing), max_size=8)

# Bytes that are almost requests.
tokens = st.one_of(
    st.sampled_from([
        b"*", b"$", b"\r\n", b"\n", b"\r", b"-", b"+", b":", b"(", b"=", b"~", b">", b"|", b"%",
        b"_", b"#t", b",", b"!", b"0", b"1", b"2", b"4", b"9", b"99999999", b"4294967295", b"-1",
        b" ", b'"', b"'", b"PING", b"txt:", b"*1\r\n", b"*2\r\n", b"$1\r\na\r\n", b"$4\r\nPING\r\n",
        b"%1\r\n", b"~1\r\n", b">1\r\n", b"|1\r\n", b"*0\r\n",
    ]),
    st.binary(max_size=3),
)  # fmt: skip
soup = st.lists(tokens, min_size=1, max_size=40).map(b"".join).filter(bool)


def parse(chunks: list[bytes], parser: RequestParser | None = None) -> Result:
    parser = parser or RequestParser()
    requests: list[list[bytes]] = []
    for chunk in chunks:
        requests += parser.feed(chunk)
    return requests, parser.error


def cut(data: bytes, places: list[int]) -> list[bytes]:
    borders = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(borders)]


def carefully(data: bytes, max_bulk: int = MAX_BULK, max_inline: int = MAX_INLINE) -> Result:
    """Parse with the careful parser, the reference."""
    parser = CarefulParser(max_bulk, max_inline)
    return parser.feed(data), parser.error


@given(streams, st.lists(st.integers(0, 100_000), max_size=12))
def test_requests_come_out_as_they_went_in_however_they_are_cut(
    stream: list[tuple[bytes, list[list[bytes]]]], places: list[int]
) -> None:
    data = b"".join(part for part, _ in stream)
    expected = [request for _, requests in stream for request in requests]
    assert parse(cut(data, places)) == (expected, None)
    assert parse([data] if data else []) == (expected, None)


@given(st.lists(arrays, min_size=1, max_size=6))
def test_requests_are_those_of_the_careful_parser(
    stream: list[tuple[bytes, list[list[bytes]]]],
) -> None:
    data = b"".join(part for part, _ in stream)
    assert parse([data]) == carefully(data)


@given(soup, st.lists(st.integers(0, 1000), max_size=6))
@example(b"*1\r\n%1\r\n*1\r\n$1\r\na\r\n+b\r\n", [])  # hiredis: TypeError
@example(b"*1\r\n~4294967295\r\n", [])  # hiredis: MemoryError
@example(b"*1\r\n|1\r\n$1\r\na\r\n$1\r\nb\r\n", [])
@example(b"*1\r\n$7\r\nabc\r\n", [])  # the marker after the chunk is not part of it
def test_nearly_requests_end_the_same_however_they_are_cut(data: bytes, places: list[int]) -> None:
    whole = parse([data])
    assert parse(cut(data, places)) == whole
    assert parse([data[i : i + 1] for i in range(len(data))]) == whole


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=6))
def test_random_bytes_are_requests_or_an_error_and_never_an_exception(
    chunks: list[bytes],
) -> None:
    parser = RequestParser()
    for chunk in chunks:
        for request in parser.feed(chunk):
            assert request
            assert all(type(arg) is bytes for arg in request)
    assert parser.error is None or parser.error.startswith("Protocol error: ")


@given(soup)
def test_one_client_that_breaks_the_protocol_does_not_disturb_another(data: bytes) -> None:
    parse([data])
    assert parse([b"*1\r\n$4\r\nPING\r\n"]) == ([[b"PING"]], None)


@given(
    st.lists(st.one_of(arrays, lines), min_size=1, max_size=5),
    st.integers(1, 200),
    st.lists(st.integers(0, 10_000), max_size=6),
)
def test_the_limits_hold_however_the_bytes_are_cut(
    stream: list[tuple[bytes, list[list[bytes]]]], limit: int, places: list[int]
) -> None:
    data = b"".join(part for part, _ in stream)
    whole = parse([data], RequestParser(max_bulk=limit, max_inline=limit))
    assert parse(cut(data, places), RequestParser(max_bulk=limit, max_inline=limit)) == whole
    assert whole == carefully(data, max_bulk=limit, max_inline=limit)


@given(st.lists(st.binary(min_size=1, max_size=400), max_size=30), st.integers(1, 500))
def test_no_more_is_held_than_allowed(chunks: list[bytes], limit: int) -> None:
    parser = RequestParser(max_query=limit)
    parser.feed(b"*1000\r\n$1000\r\n")
    for chunk in chunks:
        parser.feed(chunk)
        assert parser.pending <= limit
