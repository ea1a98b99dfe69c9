"""A webhook that fails in many ways, and a record of its notices."""

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODES = ("ok", "ok", "500", "302", "hang", "drip", "half", "nonsense", "away")
SAME = ("kind", "reason", "job")
Found = set[tuple[Any, ...]]


class Book:
    """What a receiver knows from its notices."""

    def __init__(self) -> None:
        self.found: Found = set()
        self.minutes: dict[tuple[int, str], dict[str, Any]] = {}
        self.notices = 0

    def take(self, notice: dict[str, Any]) -> None:
        self.notices += 1
        for row in notice["found"]:
            self.found.add(key(row))
        for row in notice["gone"]:
            self.found.discard(key(row))
        for row in notice["queues"]:
            self.minutes[row["minute"], row["queue"]] = row


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in SAME)


class Hook(BaseHTTPRequestHandler):
    """A webhook that behaves according to its server's mode."""

    def do_POST(self) -> None:
        assert isinstance(self.server, Web)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        mode = self.server.mode
        self.server.modes[mode] += 1
        self.close_connection = True
        if mode == "ok":
            with self.server.lock:
                self.server.book.take(json.loads(body))
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        elif mode in ("500", "302"):
            self.wfile.write(f"HTTP/1.1 {mode} No\r\nLocation: /\r\n\r\n".encode())
        elif mode == "hang":
            time.sleep(25)
        elif mode == "drip":
            for _ in range(60):
                try:
                    self.wfile.write(b"H")
                except OSError:
                    return
                time.sleep(1)
        elif mode == "half":
            self.wfile.write(b"HTTP/1.1 20")
        else:
            self.wfile.write(b"what?\r\n\r\n")

    def log_message(self, *_: object) -> None:
        pass


class Web(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Hook)
        self.mode = "ok"
        self.book = Book()
        self.modes: Counter[str] = Counter()
        self.lock = threading.Lock()

    def handle_error(self, *_: object) -> None:
        pass
