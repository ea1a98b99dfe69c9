"""The request parser: what it accepts, its errors, and its limits."""

from collections.abc import Callable

import pytest

from disque_trio.resp.limits import MAX_ARGS
from disque_trio.resp.request import RequestParser

Parse = Callable[..., tuple[list[list[bytes]], str | None]]


def feed(data: bytes, **limits: int | bool) -> tuple[list[list[bytes]], str | None]:
    """Feed one chunk; return the requests and the error."""
    parser = RequestParser(**limits)  # type: ignore[arg-type]
    return parser.feed(data), parser.error


def drip(data: bytes, **limits: int | bool) -> tuple[list[list[bytes]], str | None]:
    """Feed ``data`` byte by byte; return the requests and the error."""
    parser = RequestParser(**limits)  # type: ignore[arg-type]
    requests: list[list[bytes]] = []
    for i in range(len(data)):
        requests += parser.feed(data[i : i + 1])
    return requests, parser.error


# ---- requests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("parse", [feed, drip])
@pytest.mark.parametrize(
    ("data", "requests"),
    [
        (b"*1\r\n$4\r\nPING\r\n", [[b"PING"]]),
        (b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", [[b"ECHO", b""]]),
        (b"*1\r\n$4\r\nPI\r\n\r\n", [[b"PI\r\n"]]),
        (b"*0\r\n", []),
        (b"*-1\r\n", []),
        (b"*-12345678901\r\n", []),
        (b"*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n*0\r\n", [[b"PING"]]),
        (b"*01\r\n$04\r\nPING\r\n", [[b"PING"]]),
        (b"*+1\r\n$+4\r\nPING\r\n", [[b"PING"]]),
        (b"PING\r\n", [[b"PING"]]),
        (b"PING\n", [[b"PING"]]),
        (b"\r\n\n  \r\n\t\n", []),
        (b"PING\nECHO x\n*1\r\n$4\r\nPING\r\n", [[b"PING"], [b"ECHO", b"x"], [b"PING"]]),
        (b"ADDJOB q \"a\\x00b\\n\" '0'\r\n", [[b"ADDJOB", b"q", b"a\0b\n", b"0"]]),
        (b"*1\r\n$4\r\nPING\r\nECHO x\r\n*1\r\n$1\r\na\r\n", [[b"PING"], [b"ECHO", b"x"], [b"a"]]),
        (b"+OK\r\n:1\r\n$4\r\n", [[b"+OK"], [b":1"], [b"$4"]]),
    ],
)
def test_requests_are_arrays_of_bulk_strings_or_lines(
    parse: Parse, data: bytes, requests: list[list[bytes]]
) -> None:
    assert parse(data) == (requests, None)


def test_a_bare_newline_does_not_eat_the_next_byte() -> None:
    assert feed(b"PING\n*1\r\n$4\r\nPING\r\n") == ([[b"PING"], [b"PING"]], None)
    assert drip(b"PING\nPING\nPING\r\n")[0] == [[b"PING"]] * 3


def test_the_rest_of_a_request_may_come_much_later() -> None:
    parser = RequestParser()
    assert parser.feed(b"*3\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$5\r\nab") == []
    assert parser.pending > 0
    assert parser.feed(b"cd") == []
    assert parser.feed(b"e\r\nPING\r\n*1\r\n") == [[b"ADDJOB", b"q", b"abcde"], [b"PING"]]
    assert parser.feed(b"$1\r\nx\r\n") == [[b"x"]]
    assert parser.pending == 0


def test_a_long_argument_comes_whole() -> None:
    body = bytes(range(256)) * 4096
    data = b"*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n" % (len(body), body)
    parser = RequestParser()
    requests: list[list[bytes]] = []
    for i in range(0, len(data), 65536):
        requests += parser.feed(data[i : i + 65536])
    assert requests == [[b"ECHO", body]]


@pytest.mark.parametrize("length", [(1 << 20) - 1, 1 << 20, (3 << 20) + 5])
@pytest.mark.parametrize("chunk", [100_000, 1 << 20, 1 << 22])
def test_a_large_argument_may_come_in_any_pieces(length: int, chunk: int) -> None:
    body = bytes(range(256)) * (length // 256) + b"\r\n*"[: length % 256]
    body += bytes(length - len(body))
    data = b"*3\r\n$1\r\na\r\n$%d\r\n%b\r\n$1\r\nz\r\nPING\r\n" % (length, body)
    for end in (0, 1, 2, 3):  # pieces that end around the end of the body
        parser = RequestParser()
        found = []
        first = len(data) - 17 + end
        pieces = [data[at : min(at + chunk, first)] for at in range(0, first, chunk)]
        for piece in [*pieces, data[first:]]:
            found += parser.feed(piece)
        assert found == [[b"a", body, b"z"], [b"PING"]]
        assert parser.pending == 0


def test_a_large_argument_counts_as_held_while_it_comes() -> None:
    parser = RequestParser(max_query=3 << 20)
    assert parser.feed(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % (4 << 20)) == []
    for size in range(1, 4):
        assert parser.error is None
        parser.feed(bytes(1 << 20))
        assert parser.error or parser.pending == (size << 20) + 4
    assert parser.error == "Protocol error: too big query buffer"
    assert parser.pending == 0


def test_many_arguments() -> None:
    count = 50_000
    data = b"*%d\r\n" % count + b"$1\r\nx\r\n" * count
    assert feed(data) == ([[b"x"] * count], None)


# ---- errors -------------------------------------------------------------------------------------

BROKEN = [
    (b"*x\r\n", "invalid multibulk length"),
    (b"*1x\r\n", "invalid multibulk length"),
    (b"* 1\r\n", "invalid multibulk length"),
    (b"*1048577\r\n", "invalid multibulk length"),
    (b"*9223372036854775808\r\n", "invalid multibulk length"),
    (b"*" + b"9" * 5000 + b"\r\n", "invalid multibulk length"),
    (b"*1\r\nPING\r\n", "expected '$', got 'P'"),
    (b"*1\r\n:1\r\n", "expected '$', got ':'"),
    (b"*1\r\n+PING\r\n", "expected '$', got '+'"),
    (b"*1\r\n-ERR\r\n", "expected '$', got '-'"),
    (b"*1\r\n(12345678901234567890\r\n", "expected '$', got '('"),
    (b"*1\r\n=8\r\ntxt:PING\r\n", "expected '$', got '='"),
    (b"*1\r\n_\r\n", "expected '$', got '_'"),
    (b"*1\r\n#t\r\n", "expected '$', got '#'"),
    (b"*1\r\n,1.5\r\n", "expected '$', got ','"),
    (b"*1\r\n*1\r\n$4\r\nPING\r\n", "expected '$', got '*'"),
    (b"*1\r\n*0\r\n", "expected '$', got '*'"),
    (b"*1\r\n~1\r\n$4\r\nPING\r\n", "expected '$', got '~'"),
    (b"*1\r\n>1\r\n$4\r\nPING\r\n", "expected '$', got '>'"),
    (b"*1\r\n%1\r\n$1\r\na\r\n$1\r\nb\r\n", "expected '$', got '%'"),
    (b"*1\r\n%1\r\n*1\r\n$1\r\na\r\n$1\r\nb\r\n", "expected '$', got '%'"),
    (b"*1\r\n|1\r\n$1\r\na\r\n$1\r\nb\r\n$4\r\nPING\r\n", "expected '$', got '|'"),
    (b"*1\r\n~4294967295\r\n", "expected '$', got '~'"),
    (b"*1\r\n>400000000\r\n", "expected '$', got '>'"),
    (b"*1\r\n\r\n", "expected '$', got ' '"),
    (b"*2\r\n$4\r\nPING\r\n:1\r\n", "expected '$', got ':'"),
    (b"*1\r\n$-1\r\n", "invalid bulk length"),
    (b"*1\r\n$x\r\n", "invalid bulk length"),
    (b"*1\r\n$536870913\r\n", "invalid bulk length"),
    (b"*1\r\n$4294967296\r\n", "invalid bulk length"),
    (b"*1\r\n$9223372036854775808\r\n", "invalid bulk length"),
    (b'ECHO "abc\r\n', "unbalanced quotes in request"),
    (b"ECHO 'abc\r\n", "unbalanced quotes in request"),
    (b'ECHO "abc"def\r\n', "unbalanced quotes in request"),
]


@pytest.mark.parametrize("parse", [feed, drip])
@pytest.mark.parametrize(("data", "text"), BROKEN)
def test_what_is_malformed_is_named(parse: Parse, data: bytes, text: str) -> None:
    assert parse(data) == ([], f"Protocol error: {text}")


@pytest.mark.parametrize(("data", "text"), BROKEN)
def test_requests_before_an_error_are_served(data: bytes, text: str) -> None:
    before = b"*1\r\n$4\r\nPING\r\nECHO x\r\n"
    assert feed(before + data) == ([[b"PING"], [b"ECHO", b"x"]], f"Protocol error: {text}")


@pytest.mark.parametrize("line", [b"~1", b">1", b"|1"])
def test_other_aggregates_are_lines_not_requests(line: bytes) -> None:
    # A RESP3 parser would read these as arrays of one bulk string, or skip them.
    requests, error = feed(b"*1\r\n$4\r\nPING\r\n" + line + b"\r\n$4\r\nPING\r\n")
    assert requests == [[b"PING"], [line], [b"$4"], [b"PING"]]
    assert error is None


@pytest.mark.parametrize(
    "data",
    [
        b"*2\r\n$1\r\naXX%1\r\n*0\r\n$1\r\nb\r\n",  # a list as the key of a map
        b"*2\r\n$1\r\naXX~4294967295\r\n",  # announces four billion elements
    ],
)
def test_what_hides_behind_a_wrong_end_of_an_argument_does_no_harm(data: bytes) -> None:
    feed(data)
    assert feed(b"*1\r\n$4\r\nPING\r\n") == ([[b"PING"]], None)


def test_after_an_error_nothing_is_taken() -> None:
    parser = RequestParser()
    parser.feed(b"*x\r\n")
    assert parser.feed(b"PING\r\n") == []
    assert parser.feed(b"*1\r\n$4\r\nPING\r\n") == []
    assert parser.error == "Protocol error: invalid multibulk length"
    assert parser.pending == 0


# ---- limits -------------------------------------------------------------------------------------


def test_a_million_arguments_may_be_announced_and_one_more_not() -> None:
    parser = RequestParser()
    assert parser.feed(b"*%d\r\n" % MAX_ARGS) == []
    assert parser.error is None
    assert parser.pending < 100


def test_an_announced_length_reserves_nothing() -> None:
    parser = RequestParser()
    parser.feed(b"*1\r\n$536870912\r\nabc")
    assert parser.error is None
    assert parser.pending < 100


@pytest.mark.parametrize("parse", [feed, drip])
def test_an_argument_over_the_limit_is_refused_also_when_it_came_whole(
    parse: Parse,
) -> None:
    ok = b"*1\r\n$10\r\n" + b"x" * 10 + b"\r\n"
    long = b"*1\r\n$11\r\n" + b"x" * 11 + b"\r\n"
    assert parse(ok + long, max_bulk=10) == (
        [[b"x" * 10]],
        "Protocol error: invalid bulk length",
    )


@pytest.mark.parametrize("end", [b"", b"\r\n"])
@pytest.mark.parametrize(
    ("start", "text"),
    [
        (b"", "too big inline request"),
        (b"*", "too big mbulk count string"),
        (b"*1\r\n$", "too big bulk count string"),
    ],
)
def test_lines_have_a_longest_length(start: bytes, text: str, end: bytes) -> None:
    filler = b"1" * 70_000
    assert feed(start + filler + end) == ([], f"Protocol error: {text}")
    parser = RequestParser()
    for i in range(0, len(filler), 1000):
        parser.feed((start if i == 0 else b"") + filler[i : i + 1000])
    assert parser.error == f"Protocol error: {text}"


def test_an_inline_request_of_the_longest_length_is_taken() -> None:
    requests, error = feed(b"ECHO " + b"x" * (64 * 1024 - 5) + b"\n")
    assert error is None
    assert len(requests[0][1]) == 64 * 1024 - 5


def test_a_client_can_have_only_so_much_held_for_it() -> None:
    parser = RequestParser(max_query=10_000)
    assert parser.feed(b"*20\r\n" + b"$1000\r\n" + b"x" * 1000 + b"\r\n") == []
    assert parser.error is None
    for _ in range(10):
        parser.feed(b"$1000\r\n" + b"x" * 1000 + b"\r\n")
    assert parser.error == "Protocol error: too big query buffer"
    assert parser.pending == 0


def test_a_request_below_the_limit_does_not_count_against_the_next() -> None:
    parser = RequestParser(max_query=3000)
    request = b"*2\r\n$4\r\nECHO\r\n$2000\r\n" + b"x" * 2000 + b"\r\n"
    for _ in range(10):
        assert parser.feed(request[:1500]) == []
        assert len(parser.feed(request[1500:])) == 1
    assert parser.error is None


@pytest.mark.parametrize("parse", [feed, drip])
def test_strangers_may_send_ten_arguments_of_16_kilobytes(parse: Parse) -> None:
    ten = b"*10\r\n" + b"$1\r\nx\r\n" * 10
    assert parse(ten, trusted=False) == ([[b"x"] * 10], None)
    assert parse(b"*11\r\n", trusted=False) == (
        [],
        "Protocol error: unauthenticated multibulk length",
    )
    assert parse(b"*1\r\n$16385\r\n", trusted=False) == (
        [],
        "Protocol error: unauthenticated bulk length",
    )
    big = b"*1\r\n$16384\r\n" + b"x" * 16384 + b"\r\n"
    assert parse(big, trusted=False) == ([[b"x" * 16384]], None)


def test_the_limits_of_strangers_end_with_the_password() -> None:
    parser = RequestParser(trusted=False)
    assert parser.feed(b"*2\r\n$4\r\nAUTH\r\n$1\r\nx\r\n") == [[b"AUTH", b"x"]]
    parser.trusted = True
    assert len(parser.feed(b"*11\r\n" + b"$1\r\nx\r\n" * 11)[0]) == 11


def test_what_a_stranger_sends_behind_the_password_waits_for_it_to_be_checked() -> None:
    eleven = b"*11\r\n" + b"$1\r\nx\r\n" * 11
    login = b"*2\r\n$4\r\nAUTH\r\n$1\r\ny\r\n"
    parser = RequestParser(trusted=False)
    assert parser.feed(login + eleven + eleven) == [[b"AUTH", b"y"]]
    assert parser.held_back
    parser.trusted = True
    assert parser.go_on() == [[b"x"] * 11] * 2
    assert not parser.held_back
    assert parser.feed(eleven) == [[b"x"] * 11]


def test_with_a_wrong_password_the_limits_of_strangers_stay() -> None:
    parser = RequestParser(trusted=False)
    parser.feed(b"*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nPING\r\n*11\r\n")
    assert parser.go_on() == [[b"PING"]]
    assert parser.held_back
    assert parser.go_on() == []
    assert parser.error == "Protocol error: unauthenticated multibulk length"
    assert not parser.held_back


def test_half_of_a_line_end_does_not_count_as_a_part_of_the_line() -> None:
    parser = RequestParser(max_bulk=2, max_inline=2)
    assert parser.feed(b"*1\r") == []
    assert parser.feed(b"\n$2\r") == []
    assert parser.feed(b"\nok\r\n") == [[b"ok"]]
    assert parser.feed(b"*11\r") == []
    assert parser.error == "Protocol error: too big mbulk count string"
