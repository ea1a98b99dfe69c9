"""Splitting a typed line into arguments."""

import pytest

from disque_trio.cli.split import split_arguments


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        (b"", []),
        (b"  \t ", []),
        (b"addjob q body 0\r\n", [b"addjob", b"q", b"body", b"0"]),
        (b'"a b" c', [b"a b", b"c"]),
        (b'""', [b""]),
        (b"''", [b""]),
        (rb'"\n\r\t\b\a\\\"\q"', [b'\n\r\t\b\a\\"q']),
        (rb'"\x41\xff\x0"', [b"A\xffx0"]),
        (rb"'it\'s \n'", [b"it's \\n"]),
        (b'a"b c"', [b"ab c"]),
        (b"\xff\xfe", [b"\xff\xfe"]),
    ],
)
def test_a_line_is_split_as_redis_cli_does(line: bytes, arguments: list[bytes]) -> None:
    assert split_arguments(line) == arguments


@pytest.mark.parametrize("line", [b'"a', b"'a", b'"a"b', b"'a'b", rb'"a\"', b'x "'])
def test_unbalanced_quotes_are_refused(line: bytes) -> None:
    assert split_arguments(line) is None
