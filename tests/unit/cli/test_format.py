"""Printing replies: byte for byte what Debian's redis-cli prints for the same reply."""

import io
import subprocess

import pytest

from disque_trio.cli.format import Output, format_reply
from disque_trio.cli.resp import Kind, ReplyFormatError, read_reply
from disque_trio.resp.command import encode_command
from tests.support.harness import HANG_SECONDS
from tests.support.scripted_server import scripted_server


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(text), text)


def array(*elements: bytes, mark: bytes = b"*") -> bytes:
    count = len(elements) // (2 if mark == b"%" else 1)
    return b"%b%d\r\n" % (mark, count) + b"".join(elements)


ALL_BYTES = bulk(bytes(range(256)))
NESTED = array(
    array(bulk(b"queue"), array(), array(bulk(b"x"), array(b":1\r\n", b"*-1\r\n"))),
    b":-5\r\n",
    b"$-1\r\n",
    array(array(array(bulk(b"deep")))),
)
RESP2 = {
    "status": b"+OK\r\n",
    "error": b"-ERR unknown command 'x'\r\n",
    "integer": b":42\r\n",
    "string": bulk(b"hello world"),
    "empty string": bulk(b""),
    "all bytes": ALL_BYTES,
    "null string": b"$-1\r\n",
    "null array": b"*-1\r\n",
    "empty array": b"*0\r\n",
    "flat array": array(bulk(b"a"), b":1\r\n", b"+st\r\n", b"$-1\r\n", b"-ERR in array\r\n"),
    "nine": array(*[bulk(b"%d" % n) for n in range(9)]),
    "ten": array(*[array(bulk(b"%d" % n), b":1\r\n") for n in range(10)]),
    "hundred": array(*[array(b":1\r\n", array(bulk(b"x"), bulk(b"y"))) for n in range(100)]),
    "nested": NESTED,
    "jobs": array(array(bulk(b"q"), bulk(b"D-1"), bulk(b"body"), bulk(b"nacks"), b":0\r\n")),
}
RESP3 = {
    "null": b"_\r\n",
    "true": b"#t\r\n",
    "false": b"#f\r\n",
    "double": b",3.25\r\n",
    "infinite": b",inf\r\n",
    "verbatim": b"=10\r\ntxt:a\nb\x00cd\r\n",
    "set": array(bulk(b"a"), bulk(b"b"), mark=b"~"),
    "empty set": b"~0\r\n",
    "empty map": b"%0\r\n",
    "map": array(bulk(b"k"), bulk(b"v"), bulk(b"n"), b":1\r\n", mark=b"%"),
    "map in map": array(
        *(bulk(b"k"), array(bulk(b"x"), array(b":1\r\n", b":2\r\n"), mark=b"%")),
        *(bulk(b"l"), array(bulk(b"a"), bulk(b"b"))),
        mark=b"%",
    ),
    "maps and arrays in maps": array(
        *(bulk(b"k"), array()),
        *(bulk(b"l"), array(b":1\r\n", b"%0\r\n", array(b":1\r\n", array(b":2\r\n"), mark=b"%"))),
        mark=b"%",
    ),
    "aggregates of one element in maps": array(
        *(bulk(b"k"), array(bulk(b"a"))),
        *(bulk(b"l"), array(bulk(b"x"), b":1\r\n", mark=b"%")),
        *(bulk(b"m"), array(array(bulk(b"x"), b":1\r\n", bulk(b"y"), b":2\r\n", mark=b"%"))),
        mark=b"%",
    ),
    "map in array": array(
        array(bulk(b"k"), array(bulk(b"x"), array(b":1\r\n", b":2\r\n"), mark=b"%"), mark=b"%"),
        array(array(b":1\r\n", b":3\r\n"), b":2\r\n", mark=b"%"),
    ),
    "map of ten": array(
        *[part for n in range(10) for part in (b":%d\r\n" % n, ALL_BYTES)], mark=b"%"
    ),
}
FORMS = {"--no-raw": Output.STANDARD, "--raw": Output.RAW, "--csv": Output.CSV}


def redis_cli(reply: bytes, *options: str) -> bytes:
    """Return what redis-cli prints for a reply of a scripted server."""

    def answer(command: list[bytes]) -> bytes:
        return b"%1\r\n+proto\r\n:3\r\n" if command[0].lower() == b"hello" else reply

    with scripted_server(answer) as server:
        command = ["redis-cli", "-p", server.port, *options, "get", "x"]
        return subprocess.run(
            command, capture_output=True, timeout=HANG_SECONDS, check=False
        ).stdout


def ours(reply: bytes, output: Output) -> bytes:
    return format_reply(read_reply(io.BytesIO(reply)), output)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", RESP2)
def test_a_resp2_reply_is_printed_as_redis_cli_prints_it(name: str, form: str) -> None:
    assert ours(RESP2[name], FORMS[form]) == redis_cli(RESP2[name], form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", RESP3)
def test_a_resp3_reply_is_printed_as_redis_cli_prints_it(name: str, form: str) -> None:
    assert ours(RESP3[name], FORMS[form]) == redis_cli(RESP3[name], "-3", form)


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in (*RESP2, *RESP3)
        if "bytes" not in name and "ten" not in name and name != "verbatim"
    ],
)
def test_json_is_printed_as_redis_cli_prints_it(name: str) -> None:
    reply = (RESP2 | RESP3)[name]
    assert ours(reply, Output.JSON) == redis_cli(reply, "--json")


def test_a_text_is_printed_as_it_is() -> None:
    reply = read_reply(io.BytesIO(bulk(b"# Server\r\na:1\r\n")))
    assert format_reply(reply, Output.STANDARD, is_text=True) == b"# Server\r\na:1\r\n"


def test_attributes_are_skipped() -> None:
    reply = read_reply(io.BytesIO(b"|1\r\n+ttl\r\n:1\r\n:7\r\n"))
    assert (reply.kind, reply.text) == (Kind.INTEGER, b"7")


@pytest.mark.parametrize("data", [b"HTTP/1.1\r\n", b"$x\r\n", b"*1\r\n?\r\n", b"*1\r\n" * 100_000])
def test_anything_but_resp_is_refused(data: bytes) -> None:
    with pytest.raises(ReplyFormatError):
        read_reply(io.BytesIO(data))


@pytest.mark.parametrize("data", [b"", b"+OK", b"$5\r\nabc", b"*2\r\n:1\r\n"])
def test_half_a_reply_is_an_end_of_file(data: bytes) -> None:
    with pytest.raises(EOFError):
        read_reply(io.BytesIO(data))


def test_a_command_is_an_array_of_bulk_strings() -> None:
    assert encode_command([b"a", b"", b"\r\n"]) == b"*3\r\n$1\r\na\r\n$0\r\n\r\n$2\r\n\r\n\r\n"
