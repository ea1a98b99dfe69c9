"""The web server for metrics: its answers, and the clients that it disconnects."""

from http import HTTPStatus

import pytest
import trio
import trio.testing

from disque_trio.metrics.web import BadRequest, Reply, Request, Web, parse, text_page

_Answer = tuple[int, dict[str, str], bytes]


async def _hello(request: Request) -> Reply:
    return Reply(HTTPStatus.OK, [b"hello ", b"world\n"], encoding=request.headers.get("want", ""))


async def _broken(request: Request) -> Reply:
    raise RuntimeError("broken")


async def _ask(sent: bytes, web: Web | None = None, end: bool = False) -> _Answer:
    """Return the response to ``sent``; status 0 if there is none."""
    web = web or Web({"/hello": _hello, "/broken": _broken})
    ours, theirs = trio.testing.memory_stream_pair()
    answer = b""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(web.answer, theirs)
        await ours.send_all(sent)
        if end:
            await ours.send_eof()
        async for data in ours:
            answer += data
        await ours.aclose()
    if not answer:
        return 0, {}, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), fields, body


async def test_a_page_comes_with_its_length_and_the_connection_ends() -> None:
    status, fields, body = await _ask(b"GET /hello?x=1 HTTP/1.1\r\nHost: x\r\nWant: gzip\r\n\r\n")
    assert (status, body) == (200, b"hello world\n")
    assert fields["content-length"] == "12"
    assert fields["connection"] == "close"
    assert fields["content-encoding"] == "gzip"


async def test_head_gets_everything_but_the_body() -> None:
    status, fields, body = await _ask(b"HEAD /hello HTTP/1.0\r\n\r\n")
    assert (status, fields["content-length"], body) == (200, "12", b"")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET http://127.0.0.1:9/hello HTTP/1.1\n\n", 200),
        (b"GET /hello HTTP/1.1\r\nno colon\r\n\r\nmore", 200),
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"POST /hello HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"GET /broken HTTP/1.1\r\n\r\n", 500),
        (b"GET /hello\r\n\r\n", 400),
        (b"GET /hello SPDY/1\r\n\r\n", 400),
        (b"GET http://[/hello HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01", 400),
        (b"*1\r\n$4\r\nPING\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nA: " + 20_000 * b"x" + b"\r\n\r\n", 431),
        (b"GET /hello HTTP/1.1\r\n" + 20_000 * b"x", 431),
    ],
)
async def test_each_request_gets_its_status(
    autojump_clock: trio.testing.MockClock, sent: bytes, status: int
) -> None:
    assert (await _ask(sent))[0] == status


async def test_an_incomplete_request_gets_no_answer(
    autojump_clock: trio.testing.MockClock,
) -> None:
    assert await _ask(b"GET /hello HTT") == (0, {}, b"")
    assert await _ask(b"GET /hello HTT", end=True) == (0, {}, b"")
    assert await _ask(b"", end=True) == (0, {}, b"")


async def test_a_client_that_does_not_read_is_disconnected(
    autojump_clock: trio.testing.MockClock,
) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Web({"/hello": _hello}).answer, theirs)
        await ours.send_all(b"GET /hello HTTP/1.1\r\n\r\n")
        await trio.sleep(60)
        with pytest.raises(trio.BrokenResourceError):
            await ours.send_all(b"are you there?")
        await ours.aclose()


async def test_too_many_at_once_are_refused(autojump_clock: trio.testing.MockClock) -> None:
    gate = trio.Event()

    async def slow(request: Request) -> Reply:
        await gate.wait()
        return Reply(HTTPStatus.OK, [b"ok"])

    web = Web({"/slow": slow}, most=2)
    statuses: list[int] = []

    async def ask() -> None:
        statuses.append((await _ask(b"GET /slow HTTP/1.1\r\n\r\n", web))[0])

    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        assert (await _ask(b"GET /slow HTTP/1.1\r\n\r\n", web))[0] == 503
        gate.set()
    assert statuses == [200, 200]
    assert (await _ask(b"GET /slow HTTP/1.1\r\n\r\n", web))[0] == 200


async def test_a_page_that_fails_is_logged() -> None:
    told: list[Exception] = []
    web = Web({"/broken": _broken}, told.append)
    assert (await _ask(b"GET /broken HTTP/1.1\r\n\r\n", web))[0] == 500
    assert [str(error) for error in told] == ["broken"]


async def test_a_text_is_a_page() -> None:
    page = text_page(lambda: (HTTPStatus.SERVICE_UNAVAILABLE, "no\n"))
    reply = await page(Request("GET", "/", {}))
    assert (reply.status, reply.chunks) == (503, [b"no\n"])


def test_a_repeated_header_is_joined() -> None:
    request = parse(b"GET / HTTP/1.1\r\nAccept: a\r\nACCEPT: b")
    assert request is not None
    assert request.headers == {"accept": "a, b"}
    with pytest.raises(BadRequest):
        parse(b"nothing")
