"""Both stores reply to all commands in the same way."""

import random
import re

import hiredis
import pytest

from packages.bananaq.tests.support.banana_daemons import Daemon
from packages.bananaq.tests.support.banana_fixtures import DaemonFactory
from tests.support.harness import Wire, wait_until

pytestmark = pytest.mark.live

STEPS = 2_500
QUEUES = ("one", "two", "")
GROUPS = ("g", "h", "okq")
OWN_IDS = ("a", "b", "c", "d", "")
HOLDS = (("EX", "0"), ("EX", "300"), (), ("DEADLINE", "@1"), ("EX", "300", "BLOCK", "0"))
EXPIRES = ("600", "600", "600", "600", "0", "-1", "@5")


class Twin:
    """One daemon and names for its events: the n-th event of a queue is ``#n``."""

    def __init__(self, wire: Wire, prefix: str) -> None:
        self.wire = wire
        self._prefix = prefix
        self._names: dict[bytes, dict[bytes, bytes]] = {}
        self._ids: dict[bytes, dict[bytes, bytes]] = {}

    def run(self, command: str, queue: str, words: list[str]) -> object:
        """Return the reply to a command about a queue, with names for ids. ``words`` may contain
        such names, too, for example ``#3`` or ``#3_2``."""
        key = queue.encode()
        known = self._ids.setdefault(key, {})

        def real(match: "re.Match[str]") -> str:
            id = known.get(match[1].encode(), b"1_1")
            return id.decode() + (match[2] or "")

        sent = [re.sub(r"^(#\d+)(_\d+)?$", real, word) for word in words]
        reply = self.wire(command, self._prefix + queue, *sent)
        if isinstance(reply, hiredis.ReplyError):
            return str(reply)
        if command == "QADD" and isinstance(reply, bytes):
            name = b"#%d" % len(known)
            known[name] = reply
            self._names.setdefault(key, {})[reply] = name
        return self._named(key, reply)

    def _named(self, queue: bytes, reply: object) -> object:
        if isinstance(reply, list):
            return [self._named(queue, item) for item in reply]
        if not isinstance(reply, bytes):
            return reply
        match = re.fullmatch(rb"(\d{16}_\d{1,16})(_\d+)?", reply)
        if match:
            names = self._names.get(queue, {})
            return names.get(match[1], b"own id") + (match[2] or b"")
        return reply.replace(self._prefix.encode(), b"")


class Script:
    """Draws commands, some of them based on earlier replies."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._held: list[tuple[str, str, str]] = []
        self._added = dict.fromkeys(QUEUES, 0)

    def draw(self) -> tuple[str, str, list[str]]:
        rng = self.rng
        queue, group = rng.choice(QUEUES), rng.choice(GROUPS)
        kind = rng.random()
        if kind < 0.25:
            return "QADD", queue, [rng.choice(EXPIRES), f"body {rng.randrange(1000)}"]
        if kind < 0.32:
            command = rng.choice(("QLPUSH", "QRPUSH"))
            return command, queue, [rng.choice(OWN_IDS), f"pushed {rng.randrange(1000)}"]
        if kind < 0.55:
            return "QGET", queue, [group, *rng.choice(HOLDS)]
        if kind < 0.60:
            return "QRPOP", queue, list(rng.choice((("EX", "0"), ("EX", "300"), ())))
        if kind < 0.85 and self._held:
            return self._about_one()
        if kind < 0.88:
            return "QACK", queue, [rng.choice(OWN_IDS), *rng.choice(((), ("REDO",)))]
        if kind < 0.93:
            return rng.choice(("QLPEEK", "QRPEEK")), queue, []
        if kind < 0.995:
            return rng.choice(("QSTATUS", "QINFO")), queue, rng.choice([[], ["GROUPS", *GROUPS]])
        return "QFLUSH", queue, []

    def _about_one(self) -> tuple[str, str, list[str]]:
        rng = self.rng
        queue, group, id = rng.choice(self._held[-8:])
        if rng.random() < 0.1:
            group = rng.choice(GROUPS)
        if rng.random() < 0.1:
            id = id.partition("_")[0] + rng.choice(("", "_1", "_2", "_3"))
        kind = rng.random()
        if kind < 0.5:
            return "QACK", queue, [group, id]
        if kind < 0.75:
            return "QACK", queue, [group, id, "REDO"]
        return "QWORKING", queue, [group, id, "EX", rng.choice(("300", "600"))]

    def learn(self, command: str, queue: str, words: list[str], reply: object) -> None:
        if command in ("QGET", "QRPOP") and isinstance(reply, list):
            group = words[0] if command == "QGET" else "okq"
            id = reply[0]
            if id.startswith(b"#"):
                self._held.append((queue, group, id.decode()))


class Pair:
    """A daemon with each store, and a script that both execute."""

    def __init__(self, daemons: list[Daemon], queue: str) -> None:
        self.daemons = daemons
        self._seed = random.randrange(1 << 30)
        self._script = Script(self._seed)
        self._twins = [Twin(daemon.wire(), queue + "-") for daemon in daemons]
        self._done: list[tuple[object, ...]] = []

    def follow(self, steps: int) -> None:
        """Execute more steps of the script."""
        for _ in range(steps):
            command, name, words = self._script.draw()
            replies = [twin.run(command, name, words) for twin in self._twins]
            self._done.append((command, name, *words, replies[0]))
            assert replies[0] == replies[1], (self._seed, len(self._done), self._done[-40:])
            self._script.learn(command, name, words, replies[0])

    def reconnect(self) -> None:
        """Connect again after a restart of one daemon."""
        for twin, daemon in zip(self._twins, self.daemons, strict=True):
            twin.wire = daemon.wire()

    def compare(self) -> None:
        """Compare all state that can be read without changing it."""
        for name in QUEUES:
            for command, words in (
                ("QSTATUS", []),
                ("QSTATUS", ["GROUPS", *GROUPS]),
                ("QLPEEK", []),
                ("QRPEEK", []),
            ):
                replies = [twin.run(command, name, words) for twin in self._twins]
                assert replies[0] == replies[1], (self._seed, self._done[-40:])

    def end(self) -> None:
        for name in QUEUES:
            assert [twin.run("QFLUSH", name, []) for twin in self._twins] == [b"OK", b"OK"]
        for daemon in self.daemons:
            daemon.hang_up()


def test_the_stores_reply_alike(shared_embedded: Daemon, shared_redis: Daemon, queue: str) -> None:
    pair = Pair([shared_embedded, shared_redis], queue)
    pair.follow(STEPS)
    pair.end()


def test_a_killed_daemon_replies_like_one_that_was_not_killed(
    run_bananaq: DaemonFactory, shared_redis: Daemon, queue: str
) -> None:
    """The daemon with the events in its file is killed repeatedly; the other one is not."""
    daemon = run_bananaq("embedded", "--auto-aof-rewrite-percentage", "0")
    pair = Pair([daemon, shared_redis], queue)
    file = daemon.directory / "bananaq.aof"
    for end in ("kill", "rewrite", "stop", "rewrite, some more"):
        pair.follow(300)
        if end.startswith("rewrite"):
            before = file.stat().st_ino
            daemon.ask("BGREWRITEAOF")
            if end.endswith("more"):
                pair.follow(100)
            wait_until(lambda before=before: file.stat().st_ino != before)
        daemon.hang_up()
        daemon.stop() if end == "stop" else daemon.kill()
        daemon.restart()
        pair.reconnect()
        pair.compare()
    pair.follow(300)
    pair.end()
