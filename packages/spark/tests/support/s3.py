"""An S3 server (moto's) as a process, whose buckets live as long as it does.

A test imports ``s3`` (a new bucket) and ``s3_server`` (the process, one per session).
"""

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from enum import IntEnum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Event, Thread
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.support.harness import HANG_SECONDS, free_port, wait_until

KEYS = {
    "AWS_ACCESS_KEY_ID": "a-key",
    "AWS_SECRET_ACCESS_KEY": "a-secret",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_numbers = count(1)


@dataclass(frozen=True)
class Bucket:
    """An empty bucket.

    Attributes:
        name: of it. endpoint: URL of its server.
    """

    name: str
    endpoint: str

    @property
    def uri(self) -> str:
        """Its URI for Spark."""
        return f"s3a://{self.name}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment with which programs reach it."""
        return {**KEYS, "AWS_ENDPOINT_URL": self.endpoint}

    @property
    def settings(self) -> dict[str, str]:
        """The same, as settings of Spark."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": KEYS["AWS_REGION"],
            "spark.hadoop.fs.s3a.access.key": KEYS["AWS_ACCESS_KEY_ID"],
            "spark.hadoop.fs.s3a.secret.key": KEYS["AWS_SECRET_ACCESS_KEY"],
        }


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The URL of a server."""
    port = free_port()
    command = [sys.executable, "-c", "from moto.server import main; main()"]
    process = subprocess.Popen(
        [*command, "-H", "127.0.0.1", "-p", str(port)],
        env={**os.environ, **KEYS},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    endpoint = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: process.poll() is not None or answers(endpoint))
        assert process.poll() is None
        yield endpoint
    finally:
        process.kill()
        process.wait(HANG_SECONDS)


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A new bucket, with the environment set for it."""
    from disque_spark.files import location

    bucket = Bucket(f"bucket-{next(_numbers)}", s3_server)
    for name, value in bucket.environment.items():
        monkeypatch.setenv(name, value)
    place = location(f"{bucket.uri}?allow_bucket_creation=true").filesystem()
    place.system.create_dir(place.path)
    return bucket


def answers(endpoint: str) -> bool:
    """Whether a server is running there."""
    with suppress(URLError, OSError), urlopen(endpoint, timeout=HANG_SECONDS) as reply:
        return bool(reply.status)
    return False


class Fault(IntEnum):
    """Faults of a request, besides error statuses."""

    RESET = 0  # before the server gets it
    RESET_IN_REQUEST = -1  # when half of it is read
    RESET_IN_REPLY = -2
    LOST_REPLY = -3  # the server has done it
    SILENT = -4  # the connection stays open without a response


class Flaky(ThreadingHTTPServer):
    """A faulty proxy for a server: each request takes the next of ``faults``.

    Attributes:
        faults: a Fault, or a status to respond with; for None, or after the last, the server
            responds.
        refused: a part of the paths to which writes are refused; "" for none.
        seen: the number of requests.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", free_port()), _Passing)
        self.host = endpoint.removeprefix("http://")
        self.faults: list[int | None] = []
        self.refused = ""
        self.seen = 0
        self.over = Event()
        self._thread = Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def end(self) -> None:
        """Stop."""
        self.over.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Ignore errors: clients may hang up."""


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Flaky

    def _pass(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.server.seen += 1
        fault = self.server.faults.pop(0) if self.server.faults else None
        if fault == Fault.RESET_IN_REQUEST:
            self.rfile.read(length // 2)
            self._reset()
            return
        body = self.rfile.read(length) if length else self._chunks()
        if fault == Fault.SILENT:
            self.server.over.wait(HANG_SECONDS)
        if fault in (Fault.RESET, Fault.SILENT):
            self._reset()
            return
        if self.server.refused and self.command == "PUT" and self.server.refused in self.path:
            fault = 403
        if fault is not None and fault > 0:
            self.send_response(fault)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        with closing(HTTPConnection(self.server.host, timeout=HANG_SECONDS)) as server:
            names = ("transfer-encoding", "expect", "connection")
            headers = {k: v for k, v in self.headers.items() if k.lower() not in names}
            server.request(self.command, self.path, body, headers)
            reply = server.getresponse()
            data = reply.read()
        if fault == Fault.LOST_REPLY:
            self._reset()
            return
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "server", "date"):
                self.send_header(name, value)
        if reply.getheader("Content-Length") is None:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if fault == Fault.RESET_IN_REPLY:
            self.wfile.write(data[: len(data) // 2])
            self._reset()
            return
        self.wfile.write(data)

    def _chunks(self) -> bytes:
        """A chunked body."""
        body = b""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        return body

    def _reset(self) -> None:
        """Reset the connection."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass

    def log_message(self, *_: object) -> None:
        pass
