"""Fills a server with jobs and ends them again, in big portions, for ``tools.bench.memory``."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from tools.bench.load import RECEIVE_BYTES, Exchange, LoadError, Script, Shape, connections, run
from tools.bench.servers import Server
from tools.bench.workloads import (
    CRLF,
    Dialect,
    Disque,
    Redis,
    add_batches,
    bad_reply,
    bodies,
    encode,
    send,
)

QUEUE = b"bench"
CLIENTS = 2  # so that server and generator work at the same time
PIPELINE = 500
PORTION = 100_000
POLL_SECONDS = 0.1
WAIT_SECONDS = 300.0
ID_REPLY = 43  # "+", an id, CRLF


class StreamReply(Shape):
    """Replies of XADD, ids of about any length."""

    def complete(self, reply: bytes, count: int) -> bool:
        if not reply.startswith(b"$"):
            raise bad_reply(reply)
        return reply.count(CRLF) == 2 * count and reply.endswith(CRLF)


class Stream(Redis):
    """A Redis stream, of which only the adding is needed here."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.added = StreamReply()

    def add(self, body: bytes) -> bytes:
        return encode(b"XADD", b"stream", b"*", b"b", body)


class Timed(Disque):
    """Jobs delivered at most once, which something happens to after LATER seconds."""

    def __init__(self, size: int, options: Sequence[bytes]) -> None:
        super().__init__(size)
        self._options = options

    def add(self, body: bytes) -> bytes:
        return encode(b"ADDJOB", QUEUE, body, b"0", b"RETRY", b"0", *self._options)


class Counted(Shape):
    """Replies that are one number, each that of the jobs in the command."""

    def __init__(self, counts: Sequence[int]) -> None:
        self._expected = b"".join(b":%d\r\n" % count for count in counts)

    def complete(self, reply: bytes, count: int) -> bool:
        if reply == self._expected:
            return True
        if not self._expected.startswith(reply):
            raise bad_reply(reply)
        return False


def ends(word: bytes, ids: Sequence[bytes], many: int, each: int) -> list[Exchange]:
    """Batches of ``each`` commands with ``many`` ids in each, as long as there are."""
    parts = [ids[at : at + many] for at in range(0, len(ids), many)]
    found = []
    for at in range(0, len(parts), each):
        batch = parts[at : at + each]
        request = b"".join(encode(word, *part) for part in batch)
        found.append(Exchange(request, Counted([len(part) for part in batch]), len(batch)))
    return found


def _collect(batches: Iterable[Exchange], replies: list[bytes]) -> Script:
    for batch in batches:
        reply = yield batch
        replies.append(reply)


def ids_in(replies: Iterable[bytes]) -> list[bytes]:
    """The ids in the replies to batches of ADDJOB."""
    return [
        reply[at + 1 : at + ID_REPLY - 2]
        for reply in replies
        for at in range(0, len(reply), ID_REPLY)
    ]


@dataclass(slots=True)
class Filler:
    """Fills one server and empties it."""

    server: Server
    size: int
    ids: list[bytes] = field(default_factory=list)

    def add(self, jobs: int, dialect: Dialect, keep: bool = False) -> None:
        """Add ``jobs`` jobs in the words of ``dialect``; ``keep`` their ids."""
        new = bodies(self.size)
        with connections(self.server.port, CLIENTS) as socks:
            for at in range(0, jobs, PORTION):
                batches = iter(add_batches(dialect, new, min(PORTION, jobs - at), PIPELINE))
                kept: list[bytes] = []
                self._run(socks, [_collect(batches, kept) for _ in socks])
                if keep:
                    self.ids += ids_in(kept)

    def end(self, word: bytes, many: int) -> None:
        """End all jobs whose ids are kept, ``many`` with one command."""
        ids, self.ids = self.ids, []
        each = max(1, PIPELINE // many)
        for at in range(0, len(ids), PORTION):
            batches = ends(word, ids[at : at + PORTION], many, each)
            with connections(self.server.port, 1) as socks:
                self._run(socks, [send(iter(batches))])

    def command(self, *words: bytes) -> bytes:
        """Send one command, return the reply, which comes in one go."""
        with socket.create_connection(("127.0.0.1", self.server.port), WAIT_SECONDS) as sock:
            sock.sendall(encode(*words))
            reply = sock.recv(RECEIVE_BYTES)
        if reply.startswith(b"-") or not reply:
            raise self.server.failure(f"{words!r} was answered with {reply[:200]!r}")
        return reply

    def held(self) -> int:
        """Jobs that the node holds."""
        found = re.search(rb"registered_jobs:(\d+)", self.command(b"INFO", b"jobs"))
        return int(found[1]) if found else 0

    def queued(self) -> int:
        """Jobs in the queue."""
        return int(self.command(b"QLEN", QUEUE)[1:-2])

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until ``condition`` holds."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise self.server.failure("it does not get done")
            time.sleep(POLL_SECONDS)

    def settled_rss(self) -> int:
        """Resident bytes once they do not change any more."""
        last = self.server.rss_bytes()
        while True:
            time.sleep(1.0)
            now = self.server.rss_bytes()
            if abs(now - last) < 1 << 20:
                return now
            last = now

    def _run(self, socks: Iterable[socket.socket], scripts: Sequence[Script]) -> None:
        try:
            run(socks, scripts)
        except LoadError as problem:
            raise self.server.failure(problem) from problem
