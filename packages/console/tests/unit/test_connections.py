"""Browsers that leave, on a real socket."""

from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from hypercorn.config import Config

from disque_console.io.connections import serve_browsers
from packages.console.tests.support.console_app import world
from tests.support.harness import HANG_SECONDS, free_port

UPGRADE = (
    b"GET /login HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
)


def descriptors() -> int:
    """How many this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


def prior_knowledge() -> bytes:
    """A request of a browser that speaks HTTP/2 at once."""
    browser = H2Connection(H2Configuration(client_side=True))
    browser.initiate_connection()
    names = {":method": "GET", ":path": "/login", ":scheme": "http", ":authority": "x"}
    browser.send_headers(1, list(names.items()), end_stream=True)
    return bytes(browser.data_to_send())


@pytest.mark.parametrize("request_", [UPGRADE, prior_knowledge()], ids=["upgrade", "at once"])
async def test_browsers_that_leave_before_an_answer_by_http_2_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, request_: bytes
) -> None:
    async with world(monkeypatch) as here, trio.open_nursery() as nursery:
        config = Config()
        config.bind = [f"127.0.0.1:{free_port()}"]
        config.accesslog = config.errorlog = None
        config.keep_alive_timeout = 0.1
        serve = partial(serve_browsers, here.app, config, here.console.stopping.wait)
        (address,) = await nursery.start(serve, here.console.log)
        before = descriptors()
        for _ in range(20):
            async with await trio.open_tcp_stream("127.0.0.1", urlsplit(address).port or 0) as gone:
                await gone.send_all(request_)
                assert await gone.receive_some()
        with trio.fail_after(HANG_SECONDS):
            while descriptors() > before:
                await trio.sleep(0.05)
        here.console.stopping.set()
