"""Whatever a browser sends, the console answers: no page fails, none has markup of visitors, and
nobody does more than the role allows."""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from urllib.parse import urlsplit

import pytest
import trio
from hypercorn.config import Config

from disque_console.io.connections import serve_browsers
from disque_console.model.roles import Role
from disque_console.web.headers import POLICY
from disque_trio.resp.command import Argument
from disque_trio.respserver.acl.catalog import word_of
from packages.console.tests.support.console_app import world
from packages.console.tests.support.console_fuzz import FIELDS, MARK, Browser, Noted, fuzzed, look
from tests.support.fuzzing import BYTES_A_SEED, damaged, fuzz_seeds
from tests.support.harness import HANG_SECONDS, free_port
from tests.support.node_bench import Bench

CHANGES = {"config|set", "client|kill", "cluster|forget", "cluster|meet", "cluster|leaving"}
EXPECTED = {200, 206, 303, 304, 307, 400, 403, 404, 405, 408, 413, 416, 429, 503}
READS = {"GET", "HEAD", "OPTIONS", "PUT"}


def fill(bench: Bench) -> list[str]:
    """Jobs, schedules and queues, some with hostile names; returns the ids of jobs."""
    ids = []
    for number in range(20):
        queue = ("q", "mail.a", MARK)[number % 3]
        options: list[str | int] = ["RETRY", 1, "GROUP", MARK, "HEADERS", 1, MARK, MARK]
        ids.append(bench.add(queue, (MARK, "body", "\0\n")[number % 3], *options).decode())
    stray = b"\xff\xfe\0 \n\xc3"
    more = ("GROUP", stray, "HEADERS", 1, stray, stray, "UNIQUE", stray, "RETRY", 1)
    id = bench("ADDJOB", stray, stray, 0, *more)
    assert isinstance(id, bytes)
    ids.append(id.decode())
    bench("CRON", "SET", stray, "@every 1d", stray, stray)
    bench("QSET", stray, "DEAD", stray + b"d", "ATTEMPTS", 1)
    bench("BIND", "topic.*", stray)
    for id in bench.get_all("q", count=1):
        bench("NACK", id, "REASON", stray)
    bench("CRON", "SET", "s", "@every 1d", MARK, MARK)
    bench("QSET", MARK, "DEAD", MARK, "ATTEMPTS", 1)
    bench.get_all("q", count=3)
    for id in bench.get_all(MARK, count=3):
        bench("NACK", id, "REASON", MARK)
    return ids


def does_more(bench: Bench, command: Sequence[Argument]) -> bool:
    """Whether ``command`` does more than look."""
    words = [str(word).encode("utf-8", "replace") for word in command[:2]]
    found = bench.node.commands[words[0].lower()]
    name = word_of(found, words)
    return name in CHANGES or name in bench.node.users.catalog.by_category["write"]


@pytest.mark.parametrize("seed", fuzz_seeds(200_000))
@pytest.mark.slow
async def test_the_console_answers_whatever_a_browser_sends(
    monkeypatch: pytest.MonkeyPatch, make_bench: Callable[..., Bench], seed: int
) -> None:
    rng = random.Random(seed)
    bench = make_bench()
    statuses: dict[int, int] = {}
    done: dict[str, int] = {}
    async with fuzzed(monkeypatch, bench) as here:
        browser = Browser(here, rng)
        while browser.size < BYTES_A_SEED:
            here.clock.now += 5.0
            if rng.random() < 0.05 or not browser.ids:
                browser.ids = fill(bench)
                bench.advance(1)
                look(here, bench)
            here.calls.sent.clear()
            method, reply = await browser.ask()
            statuses[reply.status] = statuses.get(reply.status, 0) + 1
            assert reply.status in EXPECTED
            assert reply.headers["content-security-policy"] == POLICY
            assert reply.headers["x-content-type-options"] == "nosniff"
            where = urlsplit(reply.headers.get("location", "/"))
            assert where.netloc in ("", browser.host)
            assert where.path.startswith("/")
            assert not where.path.startswith("//")
            if reply.headers.get("content-type", "").startswith("text/html"):
                assert MARK.encode() not in reply.body
                assert b"<fuzz" not in reply.body
            writing = [command for command in here.calls.sent if does_more(bench, command)]
            if method in READS or browser.user in ("", str(Role.VIEWER)):
                assert writing == []
            done[browser.user] = done.get(browser.user, 0) + len(writing)
    assert done[str(Role.OPERATOR)] + done[str(Role.ADMIN)] > 0
    assert {200, 303, 403, 404} <= statuses.keys()
    assert Noted.asked - set(FIELDS) == set()
    assert len(Noted.asked) > 20


SAMPLES = (
    b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /queues?search=%5B HTTP/1.1\r\nHost: x\r\nCookie: a=b\r\nAccept: text/html\r\n\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 21\r\n\r\nuser=admin&password=x",
    b"POST /login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nuser=\r\n0\r\n\r\n",
    b"GET /static/console.css HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"
    b"\0\0\x05\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01x",
)
PIECES = (
    *(b"\r\n", b"\n", b"\r", b" ", b"\0", b":", b"\r\n\r\n", b"%", b"\xff", b"Host: y\r\n"),
    *(b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Transfer-Encoding: chunked\r\n"),
    *(b"HTTP/1.1", b"HTTP/9.9", b"GET ", b"POST ", b"x" * 9_000, b"fffffffff\r\n", b"0\r\n\r\n"),
)


@pytest.mark.parametrize("seed", fuzz_seeds(100_000, part=4))
async def test_the_server_survives_whatever_is_sent_to_its_port(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    sent = answered = 0
    async with world(monkeypatch) as here, trio.open_nursery() as nursery:
        config = Config()
        config.bind = [f"127.0.0.1:{free_port()}"]
        config.accesslog = config.errorlog = None
        config.keep_alive_timeout = 0.05  # until it closes what we have closed
        serve = partial(serve_browsers, here.app, config, here.console.stopping.wait)
        (address,) = await nursery.start(serve, here.console.log)
        port = urlsplit(address).port
        while sent < BYTES_A_SEED:
            data = damaged(b"".join(rng.choices(SAMPLES, k=rng.randrange(1, 4))), rng, PIECES)
            sent += len(data)
            reply = await exchange(port, data)
            answered += reply.startswith(b"HTTP/1.1 ")
            assert b"HTTP/1.1 500" not in reply
        assert (await exchange(port, SAMPLES[0])).endswith(b"ok\n")
        assert answered > 10
        here.console.stopping.set()


async def exchange(port: int | None, data: bytes) -> bytes:
    """Send ``data``, and nothing more; returns all that is answered."""
    reply = b""
    with trio.fail_after(HANG_SECONDS):
        async with await trio.open_tcp_stream("127.0.0.1", port or 0) as stream:
            with suppress(trio.BrokenResourceError):
                await stream.send_all(data)
                await stream.send_eof()
                async for part in stream:
                    reply += part
    return reply
