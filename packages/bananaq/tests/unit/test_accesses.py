"""A bananaq user with limited rights cannot change or see anything of others."""

import random

import pytest

from disque_bananaq.commands.table import build_table
from disque_bananaq.core.broker import Broker
from disque_bananaq.core.embedded import EmbeddedStore
from disque_bananaq.core.requests import Last, Next, Status
from disque_trio.respserver.client import Client
from disque_trio.respserver.host import Host
from tests.support.restricted import reply_to
from tests.unit.docs.test_rights import rows

START = 1_700_000_000_000
BODY, SECRET = b"body-of-mine", b"body-of-theirs"
NAMES = [b"mail.in", b"mail.out", b"admin", b"admin.x", b"mail.*", b"*", b"group", b"GROUPS"]
OPTIONS = [b"NOBLOCK", b"EX", b"5", b"BLOCK", b"0", b"REDO", b"GROUPS", b"DEADLINE", b"", b"-1"]


class World:
    """A broker with events of two users: ours are in queues ``mail.``, the others elsewhere."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.store = EmbeddedStore()
        self.broker = Broker(self.store, build_table(), Host(), lambda: 0)
        self.clients = 0
        self.ids: list[bytes] = [b"own"]
        for queue in (b"mail.in", b"mail.out", b"admin", b"admin.x"):
            body = BODY if queue.startswith(b"mail.") else SECRET
            for n in range(3):
                self.ids.append(self.ask("~*", b"QADD", queue, b"600", body).split(b"\r\n")[1])
                self.ask("~*", b"QLPUSH", queue, b"own%d" % n, body)
            self.ask("~*", b"QGET", queue, b"group")
        self.requests = [request for request, _ in rows("bananaq.md")]

    def ask(self, rule: str, *words: bytes) -> bytes:
        """Return the reply to a user with this rule."""
        self.clients += 1
        return reply_to(self.broker, Client(self.clients), rule, list(words), START)

    def request(self) -> list[bytes]:
        """Return a request that may well have an effect."""
        rng = self.rng
        words = [self.word(word) for word in rng.choice(self.requests)]
        while rng.random() < 0.4:
            at = rng.randrange(1, len(words) + 1)
            words.insert(at, rng.choice([*OPTIONS, *NAMES, *self.ids]))
        return words

    def word(self, word: bytes) -> bytes:
        if word in (b"queue", b"one", b"two"):
            return self.rng.choice(NAMES)
        return self.rng.choice(self.ids) if word == b"id" else word

    def queues(self, mine: bool) -> object:
        """Return the state of our queues, or of the others."""
        now = START
        names = [name for name in NAMES if name.startswith(b"mail.") == mine]
        results = [self.store.run(Status(names, []), now)]
        for name in names:
            results += [self.store.run(Last(name), now), self.store.run(Next(name, b"group"), now)]
        return [vars_of(result) for result in results]


def vars_of(value: object) -> object:
    """Return all attributes of ``value``, recursively."""
    if isinstance(value, list | tuple):
        return [vars_of(one) for one in value]
    if isinstance(value, dict):
        return {key: vars_of(one) for key, one in value.items()}
    # mypyc's classes have no __slots__, but say the same under another name.
    names = list(
        dict.fromkeys(
            name
            for kind in type(value).__mro__
            for also in ("__slots__", "__mypyc_attrs__")
            for name in getattr(kind, also, ())
        )
    )
    names += list(getattr(value, "__dict__", ()))
    if not names or isinstance(value, bytes | str | int):
        return value
    return [(name, vars_of(getattr(value, name))) for name in names]


@pytest.mark.parametrize(
    "rule", ["%R~mail.*", "%W~mail.*", pytest.param("~mail.*", marks=pytest.mark.slow)]
)
def test_nothing_of_others_is_changed_or_shown(rule: str) -> None:
    rng = random.Random(rule)
    served = set()
    refused = 0
    for _ in range(15):
        world = World(rng)
        for _ in range(40):
            request = world.request()
            theirs, mine = world.queues(False), world.queues(True)
            reply = world.ask(rule, *request)
            assert world.queues(False) == theirs, request
            assert SECRET not in reply, request
            if reply.startswith(b"-NOPERM"):
                refused += 1
                assert world.queues(True) == mine, request
            elif not reply.startswith(b"-"):
                served.add(request[0])
            if rule.startswith("%W"):
                assert BODY not in reply, request
    assert refused > 50
    assert len(served) >= 5, served
