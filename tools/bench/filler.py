"""Fills a server with jobs and ends them again, in large batches."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tools.bench.dialects import ID_LENGTH, QUEUE, ConstantReply, Dialect, encode
from tools.bench.load import Exchange, Script, ask_once, connections, info, run
from tools.bench.scripts import add_batches, bodies, portions, send, take
from tools.bench.servers import Server

SPARE = 2_000  # jobs to warm up a server
CLIENTS = 2  # so that server and generator work in parallel
PIPELINE = 500
PORTION = 100_000
ID_REPLY = ID_LENGTH + 3  # "+", an id, CRLF


def ends(word: bytes, ids: Sequence[bytes], many: int, each: int) -> list[Exchange]:
    """Batches of ``each`` commands with ``many`` ids each, until the ids run out. Each reply is the
    number of jobs of its command."""
    parts = [ids[at : at + many] for at in range(0, len(ids), many)]
    found = []
    for at in range(0, len(parts), each):
        batch = parts[at : at + each]
        request = b"".join(encode(word, *part) for part in batch)
        replies = b"".join(b":%d\r\n" % len(part) for part in batch)
        found.append(Exchange(request, ConstantReply(replies), 1))
    return found


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
        """Add ``jobs`` jobs in ``dialect``; ``keep``: remember their ids."""
        new = bodies(self.size)
        for count in portions(jobs, PORTION):
            batches = iter(add_batches(dialect, new, count, PIPELINE))
            kept: list[bytes] = []
            self._run([send(batches, kept) for _ in range(CLIENTS)])
            if keep:
                self.ids += ids_in(kept)

    def take(self, jobs: int, dialect: Dialect) -> None:
        """Take ``jobs`` jobs without ending them."""
        for count in portions(jobs, PORTION):
            self._run([take(dialect, 0, portions(count, PIPELINE), [])])

    def end(self, word: bytes, many: int) -> None:
        """End all remembered jobs, ``many`` per command."""
        ids, self.ids = self.ids, []
        each = max(1, PIPELINE // many)
        for at in range(0, len(ids), PORTION):
            self._run([send(ends(word, ids[at : at + PORTION], many, each))])

    def command(self, *words: bytes) -> bytes:
        """Send one command, return the reply."""
        reply = ask_once(self.server.port, encode(*words))
        if reply.startswith(b"-"):
            raise self.server.failure(f"{words!r} was answered with {reply[:200]!r}")
        return reply

    def held(self) -> int:
        """Jobs that the node holds."""
        return int(info(self.server.port, b"jobs")["registered_jobs"])

    def queued(self) -> int:
        """Jobs in the queue."""
        return int(self.command(b"QLEN", QUEUE)[1:])

    def settled_rss(self) -> int:
        """Resident bytes, once they no longer change."""
        last = self.server.rss_bytes()
        while True:
            time.sleep(1.0)
            now = self.server.rss_bytes()
            if abs(now - last) < 1 << 20:
                return now
            last = now

    def warm(self, dialect: Dialect) -> None:
        """Warm up the node, and let it hold any number of jobs."""
        self.command(b"CONFIG", b"SET", b"maxmemory", b"0")
        self.add(SPARE, dialect, keep=True)
        self.end(b"ACKJOB", 1)

    def _run(self, scripts: Sequence[Script]) -> None:
        with self.server.blamed(), connections(self.server.port, len(scripts)) as socks:
            run(socks, scripts)
