"""The receivers of a watch's findings."""

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO, StringIO, TextIOWrapper

import pytest

from disque_spark.watch.notices import Notice, Row
from disque_spark.watch.receivers import Lines, QueueOfNotices, ReceiverError, Webhook
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
GONE: Row = {"kind": "clock-skew", "reason": None, "job": None, "queue": None, "nodes": ["a", "b"]}
NOTICE = Notice(1, 1, [FOUND], [GONE], [], {"found": 7, "gone": 0, "queues": 0}, {})


class Taken(BaseHTTPRequestHandler):
    """Answers each POST with the status of the server, and records what it got."""

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
def test_a_notice_that_a_webhook_refuses_is_not_delivered(status: int) -> None:
    with served() as web:
        web.status = status
        with pytest.raises(ReceiverError, match=f"webhook: {status}"):
            Webhook(f"http://127.0.0.1:{web.server_port}").tell(NOTICE)
        assert len(web.got) == 1  # it did not follow


def test_a_webhook_that_is_not_there() -> None:
    with pytest.raises(ReceiverError, match="refused"):
        Webhook(f"http://127.0.0.1:{free_port()}").tell(NOTICE)
    with pytest.raises(ValueError, match="not an http or https URL"):
        Webhook("file:///etc/passwd")


@pytest.mark.parametrize(
    "url", ["http://", "http://:80/", "http://h:x/", "http://[::1", "http://a b/", "http://h/ä"]
)
def test_addresses_that_cannot_be_posted_to(url: str) -> None:
    with pytest.raises(ValueError, match="not an http or https URL"):
        Webhook(url)


def test_a_password_in_the_address_of_a_webhook() -> None:
    with pytest.raises(ValueError, match="belongs in a header") as refused:
        Webhook("http://me:secret@host/")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("answer", [b"", b"what?\r\n\r\n", b"HTTP/1.1 20", b"HTTP/1.1 x y\r\n"])
def test_a_webhook_that_answers_nonsense_has_not_got_it(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as listener:

        def answers() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=answers)
        thread.start()
        with pytest.raises(ReceiverError, match="webhook: "):
            Webhook(f"http://127.0.0.1:{listener.getsockname()[1]}").tell(NOTICE)
        thread.join()


def test_a_webhook_that_never_ends_its_answer_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as listener:
        over = threading.Event()

        def drips() -> None:
            connection, _ = listener.accept()
            with connection:
                while not over.wait(0.01):
                    connection.sendall(b"H")

        thread = threading.Thread(target=drips)
        thread.start()
        webhook = Webhook(f"http://127.0.0.1:{listener.getsockname()[1]}", seconds=0.1)
        with pytest.raises(ReceiverError, match=r"no answer within 0\.1 s"):
            webhook.tell(NOTICE)
        with pytest.raises(ReceiverError, match="has not answered the last notice yet"):
            webhook.tell(NOTICE)
        over.set()
        thread.join()


def test_another_webhook_or_queue_is_told_everything() -> None:
    one, other = Webhook("http://host/a?token=secret"), Webhook("http://host/b")
    assert one.key == Webhook("http://host/a?token=secret").key != other.key
    assert "secret" not in one.key
    assert QueueOfNotices("a", []).key != QueueOfNotices("b", []).key


def test_a_queue_that_cannot_be_reached() -> None:
    with pytest.raises(ReceiverError, match="queue alarms: no node can be reached"):
        QueueOfNotices("alarms", [f"127.0.0.1:{free_port()}"]).tell(NOTICE)


def test_lines_say_what_is_new_and_what_is_gone() -> None:
    out = StringIO()
    Lines(out).tell(NOTICE)
    assert out.getvalue().splitlines() == [
        r"2026-11-18 11:06:40 found never-delivered (log-end) D-1 of a\nb\x1b[31m: nobody got it",
        "gone clock-skew: a, b",
    ]


def test_lines_where_there_is_no_such_letter_or_time() -> None:
    out = BytesIO()
    found = FOUND | {"queue": "größe", "time": 1 << 60}
    file = TextIOWrapper(out, "ascii")
    Lines(file).tell(Notice(1, 1, [found], [], [], {}, {}))
    assert out.getvalue().startswith(b"1152921504606847 s found never-delivered")
    assert rb"gr\xf6\xdfe" in out.getvalue()


def test_lines_that_nobody_reads_are_not_told() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as file:
        with pytest.raises(ReceiverError, match="standard output: Broken pipe"):
            Lines(file).tell(NOTICE)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, writer)  # or closing it fails again
        os.close(null)
