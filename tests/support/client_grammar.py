"""Requests by the grammar of the command table: each command with all of its options, with right
and wrong arguments."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from disque_trio.respserver.command import AnyCommand
from disque_trio.syntax import Part, parse

USUAL: Final = 20
"""How often most commands come."""


@dataclass
class World:
    """What requests are about: ids of jobs that nodes have told, and of clients; the time in ms."""

    ids: Sequence[bytes] = ()
    clients: Sequence[int] = ()
    now: int = 0
    settings: Sequence[str] = ("maxmemory", "requirepass", "loglevel")
    commands: Sequence[bytes] = ()


_NUMBERS: Final = ("0", "1", "1", "2", "3", "5", "10", "100", "1000")
_EDGES: Final = (
    "-1", "-0", "00", "1.5", "", "nan", "inf", "1e3", " 1", "+1", "65535", "65536", "2147483647",
    "2147483648", "4294967295", "4294967296", "281474976710656", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "18446744073709551615", "18446744073709551616",
    "9" * 400,
)  # fmt: skip
_TEXTS: Final = (
    b"", b"x", b"body", b" ", b"\n", b"\r\n+OK\r\n", b"\0", b"\xff\xfe", b"\xc3\xa4", b'"', b"*",
    b"?" * 40, b"*a" * 30, b"[a-", b"\\", b"{}", b"\x1b[2J", b"x" * 300,
)  # fmt: skip
_QUEUES: Final = ("q", "r", "mail.a", "mail.b", "dead", "@news", "@mail.x", "*", "mail.*")
_ANY_ID: Final = b"D-00000000-" + b"0" * 24 + b"-05a1"

_Maker = Callable[[random.Random, World], "bytes | str"]


def _one_of(*texts: str) -> _Maker:
    return lambda rng, world: rng.choice(texts)


def _id(rng: random.Random, world: World) -> bytes:
    if world.ids and rng.random() < 0.9:
        return rng.choice(world.ids)
    return _ANY_ID


def _client(rng: random.Random, world: World) -> str:
    return str(rng.choice(world.clients or [1]))


def _request(rng: random.Random, world: World) -> bytes:
    return rng.choice(list(world.commands) or [b"ping"])


def _setting(rng: random.Random, world: World) -> str:
    return rng.choice((*world.settings, "*", "max*"))


_NUMBER: Final = _one_of(*_NUMBERS)
_QUEUE: Final = _one_of(*_QUEUES)
_TEXT: Final[_Maker] = lambda rng, world: rng.choice(_TEXTS)  # noqa: E731
_RULES: Final = (
    "on", "off", "nopass", ">p", "<p", "#" + "a" * 64, "!" + "a" * 64, "resetpass", "+@all",
    "-@all", "+@read", "-@dangerous", "+getjob", "-addjob", "+config|get", "-client|kill", "~*",
    "~mail.*", "%R~q", "%W~r", "allkeys", "resetkeys", "(+getjob ~q)", "(%W~r +addjob)",
    "clearselectors", "reset", "&*", "sanitize-payload", "(", ")", "+@nothing", "%X~q", "~",
    "%maxmemory=1kb", "%maxmemory=50mb", "%maxkeys=2", "%maxschedules=1", "%maxbindings=1",
    "%maxconnections=1", "%maxoutput=1kb", "%rate=1/s", "%rate=0", "nolimits", "%maxkeys=-1",
    "%maxnothing=1", "%rate=", "(%maxkeys=1)",
)  # fmt: skip

KINDS: Final[Mapping[str, _Maker]] = {
    **dict.fromkeys(
        ("ms-timeout", "count", "min", "max", "bytes", "length", "rate", "ms", "cursor", "port",
         "bits", "attempts"),
        _NUMBER,
    ),
    "seconds": _one_of("1", "1", "2", "3", "5", "5", "10", "100", "1000", "0"),
    "unix-ms": lambda rng, world: str(world.now + rng.choice((1, 500, 2_000, 60_000, -1))),
    "0-7": _one_of(*"01234567"),
    "fraction": _one_of("0", "0.5", "1", "1e-3", "1.5", "nan"),
    **dict.fromkeys(("queue", "from", "to", "topic"), _QUEUE),
    **dict.fromkeys(
        ("job", "text", "result", "message", "value", "serialized-job", "reason", "word", "field"),
        _TEXT,
    ),
    **dict.fromkeys(("name", "key"), _one_of("a", "b", "c")),
    "id": _id,
    "client-id": _client,
    "command": _request,
    "0": _one_of("0"),
    "key-or-id": _one_of("a" * 40, "b" * 64),
    "setting": _setting,
    "count/s|count/m|count/h": _one_of("5/s", "0/s", "1/s", "60/m", "1/m", "9/h"),
    "username": _one_of("u1", "u2", "u3", "ghost"),
    "password": _one_of("p", "wrong", ""),
    "rule": _one_of(*_RULES),
    "category": _one_of("read", "dangerous", "admin", "nothing"),
    "pattern": _one_of("*", "mail.*", "q", "[a-z]", "x*"),
    "times": _one_of("@every 1s", "@hourly", "* * * * *", "0 0 31 2 *", "*/5 1-3 * * 1"),
    "zone": _one_of("UTC", "Europe/Berlin", "No/Where"),
    **dict.fromkeys(("option", "argument"), _one_of("RETRY", "1", "DELAY", "q", "TTL", "9")),
    "section": _one_of("all", "jobs", "queues", "server", "memory", "everything"),
    "state": _one_of(
        "queued", "active", "acked", "wait-repl", "fresh", "running", "delayed", "retrying", "dead"
    ),
    "event": _one_of("command", "fork"),
    "why": _one_of("attempts", "expired", "refused", "redriven"),
    **dict.fromkeys(
        ("host", "origin"),
        _one_of("127.0.0.1", "::1", "192.0.2.1", "example.org", "10.0.0.999"),
    ),
    "address": _one_of("10.0.0.1:7000", "10.0.0.3:7000"),
    "type": _one_of("normal", "master", "pubsub", "x"),
}  # fmt: skip
"""Makes a right argument of each kind."""


class Grammar:
    """Makes requests.

    Args:
        commands: the table. world: what they are about. rng: random numbers.
        often: how often a command comes, compared with others.
    """

    def __init__(
        self,
        commands: Mapping[bytes, AnyCommand],
        world: World,
        rng: random.Random,
        often: Mapping[str, int],
    ) -> None:
        self._rng = rng
        self._world = world
        self.by_name = {
            name: Part(choices=parse(command.syntax)) for name, command in commands.items()
        }
        self._makers = {name: self._part(syntax) for name, syntax in self.by_name.items()}
        self._names = list(self.by_name)
        weights = [often.get(commands[name].name, USUAL) for name in self._names]
        self._weights = list(accumulate(weights))
        self._wrong = 0.0

    def request(self) -> list[bytes]:
        """The next request."""
        rng = self._rng
        (name,) = rng.choices(self._names, cum_weights=self._weights)
        return self.of(name)

    def of(self, name: bytes) -> list[bytes]:
        """A request of one command."""
        rng = self._rng
        self._wrong = rng.choice((0.0, 0.0, 0.05, 0.3))  # most requests should be served
        words = [name, *self._makers[name]()]
        if rng.random() < 0.1:
            self._mutate(words)
        return words

    def _sequence(self, syntax: Sequence[Part]) -> Callable[[], list[bytes]]:
        """Makes the words of a sequence."""
        rng = self._rng
        parts = [self._part(part) for part in syntax]
        options = [at for at, part in enumerate(syntax) if part.optional]

        def words() -> list[bytes]:
            found = [part() for part in parts]
            if len(options) > 1 and rng.random() < 0.3:  # they may come in any order
                moved = [found[at] for at in options]
                rng.shuffle(moved)
                for at, some in zip(options, moved, strict=True):
                    found[at] = some
            return [word for some in found for word in some]

        return words

    def _part(self, part: Part) -> Callable[[], list[bytes]]:
        """Makes the words of a part, as often as it comes."""
        rng = self._rng
        make = self._once(part)

        def words() -> list[bytes]:
            if part.optional and rng.random() > 0.3:
                return []
            times = rng.choice((1, 1, 2, 5)) if part.repeated else 1
            found = [word for _ in range(times) for word in make()]
            if len(found) > 2 and found[0] == b"HEADERS" and rng.random() < 0.9:
                found[1] = b"%d" % ((len(found) - 2) // 2)
            return found

        return words

    def _once(self, part: Part) -> Callable[[], list[bytes]]:
        if part.choices:
            choices = [
                self._part(choice) if choice.parts or not choice.name else self._word(choice.name)
                for choice in part.choices
            ]
            return lambda: self._rng.choice(choices)()
        if part.name:
            return self._word(part.name) if part.is_word else lambda: [self._argument(part.name)]
        return self._sequence(part.parts)

    def _word(self, name: str) -> Callable[[], list[bytes]]:
        return lambda: [name.encode()]

    def _argument(self, kind: str) -> bytes:
        rng = self._rng
        if rng.random() < self._wrong:
            return rng.choice((rng.choice(_EDGES).encode(), rng.choice(_TEXTS)))
        made = KINDS[kind](rng, self._world)
        return made if isinstance(made, bytes) else made.encode()

    def _mutate(self, words: list[bytes]) -> None:
        rng = self._rng
        at = rng.randrange(len(words))
        what = rng.randrange(6)
        if what == 0:
            words[at] = b"y" * 5_000 if rng.random() < 0.1 else rng.choice(_TEXTS)
        elif what == 1:
            words[at] = rng.choice(_EDGES).encode()
        elif what == 2:
            words[at] = words[at].swapcase()
        elif what == 3 and len(words) > 1:
            del words[at]
        elif what == 4:
            often = 200 if rng.random() < 0.05 else rng.choice((1, 1, 3))
            words[at:at] = words[at : at + rng.choice((1, 2, 4))] * often
        else:
            words.insert(at, rng.choice(words))
