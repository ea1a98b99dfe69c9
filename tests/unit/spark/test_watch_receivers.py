"""Who is told what a watch has found."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO

import pytest

from disque_trio.spark.watch.notices import Notice, Row
from disque_trio.spark.watch.receivers import Lines, QueueOfNotices, ReceiverError, Webhook
from tests.support.harness import free_port

FOUND: Row = {
    "kind": "never-delivered",
    "reason": "log-end",
    "job": "D-1",
    "queue": "a\nb\x1b[31m",
    "time": 1_795_000_000_000,
    "nodes": ["a"],
    "detail": "nobody got it",
}
GONE: Row = {"kind": "clock-skew", "reason": None, "job": None, "queue": None}
NOTICE = Notice(1, [FOUND], [GONE], [], {"found": 7, "gone": 0, "queues": 0}, {})


class Taken(BaseHTTPRequestHandler):
    """Answers each POST with the status of the server, and keeps what it got."""

    def do_POST(self) -> None:
        assert isinstance(self.server, Web)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got.append((dict(self.headers), body))
        self.send_response(self.server.status)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Web(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", free_port()), Taken)
        self.status = 204
        self.got: list[tuple[dict[str, str], bytes]] = []


@contextmanager
def served() -> Iterator[Web]:
    with Web() as web:
        thread = threading.Thread(target=web.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield web
        finally:
            web.shutdown()
            thread.join()


def test_a_webhook_gets_json() -> None:
    with served() as web:
        url = f"http://127.0.0.1:{web.server_port}/hook"
        Webhook(url, {"Authorization": "Bearer x"}).tell(NOTICE)
        [(headers, body)] = web.got
        assert json.loads(body) == NOTICE.document()
        assert headers["Content-Type"] == "application/json"
        assert headers["Authorization"] == "Bearer x"


@pytest.mark.parametrize("status", [302, 400, 404, 503])
def test_what_a_webhook_refuses_it_has_not_got(status: int) -> None:
    with served() as web:
        web.status = status
        with pytest.raises(ReceiverError, match=f"webhook: {status}"):
            Webhook(f"http://127.0.0.1:{web.server_port}").tell(NOTICE)
        assert len(web.got) == 1  # it did not follow


def test_a_webhook_that_is_not_there() -> None:
    with pytest.raises(ReceiverError, match="refused"):
        Webhook(f"http://127.0.0.1:{free_port()}").tell(NOTICE)
    with pytest.raises(ValueError, match="no http or https address"):
        Webhook("file:///etc/passwd")


def test_a_queue_that_cannot_be_reached() -> None:
    with pytest.raises(ReceiverError, match="queue alarms: no node can be reached"):
        QueueOfNotices("alarms", [f"127.0.0.1:{free_port()}"]).tell(NOTICE)


def test_lines_say_what_is_new_and_what_is_gone() -> None:
    out = StringIO()
    Lines(out).tell(NOTICE)
    assert out.getvalue().splitlines() == [
        r"2026-11-18 11:06:40 found never-delivered (log-end) D-1 of a\nb\x1b[31m: nobody got it",
        "found 7 more",
        "gone clock-skew",
    ]
