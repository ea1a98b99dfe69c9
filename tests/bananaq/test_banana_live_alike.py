"""Both stores give the same answers to the same commands, whatever they are."""

import random
import re

import hiredis
import pytest
from banana_daemons import Daemon
from harness import Wire

pytestmark = pytest.mark.live

STEPS = 2_500
QUEUES = ("one", "two", "")
GROUPS = ("g", "h", "okq")
OWN_IDS = ("a", "b", "c", "d", "")
HOLDS = (("EX", "0"), ("EX", "300"), (), ("DEADLINE", "@1"), ("EX", "300", "BLOCK", "0"))
EXPIRES = ("600", "600", "600", "600", "0", "-1", "@5")


class Twin:
    """One daemon and the names it gave to events: the n-th that came into a queue is `n`."""

    def __init__(self, wire: Wire, prefix: str) -> None:
        self.wire = wire
        self._prefix = prefix
        self._names: dict[bytes, dict[bytes, bytes]] = {}
        self._ids: dict[bytes, dict[bytes, bytes]] = {}

    def run(self, command: str, queue: str, words: list[str]) -> object:
        """The reply to a command about a queue, with names for ids. In ``words`` are names for ids
        as well, such as ``#3`` or ``#3_2``."""
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
    """Draws commands, some of them about what was answered before."""

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


@pytest.mark.parametrize("run", range(2))
def test_the_stores_answer_alike(
    shared_embedded: Daemon, shared_redis: Daemon, queue: str, run: int
) -> None:
    seed = random.randrange(1 << 30)
    script = Script(seed)
    twins = [Twin(daemon.wire(), queue + "-") for daemon in (shared_embedded, shared_redis)]
    done: list[tuple[object, ...]] = []
    for step in range(STEPS):
        command, name, words = script.draw()
        replies = [twin.run(command, name, words) for twin in twins]
        done.append((command, name, *words, replies[0]))
        assert replies[0] == replies[1], (seed, step, done[-40:])
        script.learn(command, name, words, replies[0])
    for name in QUEUES:
        assert [twin.run("QFLUSH", name, []) for twin in twins] == [b"OK", b"OK"]
    for daemon in (shared_embedded, shared_redis):
        daemon.hang_up()
