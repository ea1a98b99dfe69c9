"""The budget of a user: what all clients that have logged in as the user may take together."""

import re
from typing import Final

from disque_trio.notation.rates import format_rate, read_rate
from disque_trio.notation.sizes import EXPECTED, format_size, read_size
from disque_trio.respserver.acl.permissions import RuleError
from disque_trio.respserver.pace import Pace

MAX_COUNT: Final = 2**31 - 1
MAX_RATE: Final = 1_000_000  # commands a second
TOLD_AGAIN: Final = 60_000  # ms between log lines about one limit of a user

# The rules, in the order in which they are shown, and the attributes of ``Budget`` that they set.
_RULES: Final = {
    b"maxmemory": "memory",
    b"maxkeys": "keys",
    b"maxschedules": "schedules",
    b"maxbindings": "bindings",
    b"maxpolicies": "policies",
    b"maxconnections": "connections",
    b"maxoutput": "output",
    b"rate": "rate",
}
_SIZES: Final = (b"maxmemory", b"maxoutput")
MAX_SIZE: Final = 2**62 - 1  # bytes
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_OF_QUEUES: Final = ("memory", "keys", "schedules", "bindings", "policies")
_COUNT: Final = f"a number from 0 to {MAX_COUNT}"
_RATE: Final = f"a number of commands a second from 0 to {MAX_RATE}, such as 500/s"


def is_budget_rule(rule: bytes) -> bool:
    """Whether ``rule`` is about a budget, and not about queues: ``%maxkeys=100``, ``%R~a=b``."""
    return rule.startswith(b"%") and b"=" in rule.partition(b"~")[0]


class Budget:
    """Limits of a user; 0: there is none.

    Attributes:
        memory: bytes of jobs in the queues that the user may add to.
        keys: of UNIQUE in these queues.
        schedules, bindings, policies: for these queues.
        connections: of clients that have logged in as the user.
        output: bytes of replies, and of unfinished requests, that wait in all these connections.
        rate: commands a second of all these clients.
    """

    __slots__ = tuple(_RULES.values())

    memory: int
    keys: int
    schedules: int
    bindings: int
    policies: int
    connections: int
    output: int
    rate: int

    def __init__(self) -> None:
        for name in _RULES.values():
            setattr(self, name, 0)

    def with_rule(self, rule: bytes, about_queues: bool) -> "Budget | None":
        """A copy to which ``rule`` was applied; None: no limit is left. ``about_queues``: there can
        be limits for what is in queues. Raises ``RuleError``."""
        word, _, value = rule[1:].partition(b"=")
        word = word.lower()
        attribute = _RULES.get(word)
        if attribute is None or (attribute in _OF_QUEUES and not about_queues):
            raise RuleError("Syntax error")
        new = Budget()
        for name in _RULES.values():
            setattr(new, name, getattr(self, name))
        setattr(new, attribute, _value(word, value.decode("utf-8", "replace").lower()))
        return new if new.describe() else None

    @property
    def about_queues(self) -> bool:
        """Whether it limits what is in queues."""
        return any(name in _OF_QUEUES for name in self.limits())

    def limits(self) -> "dict[str, int]":
        """The limits that there are, in a fixed order, by the names of the attributes."""
        limits = {name: int(getattr(self, name)) for name in _RULES.values()}
        return {name: limit for name, limit in limits.items() if limit}

    def describe(self) -> bytes:
        """The rules, as written, in a fixed order."""
        words = []
        for word, name in _RULES.items():
            limit = getattr(self, name)
            if limit:
                text = format_size(limit) if word in _SIZES else str(limit)
                if word == b"rate":
                    text = format_rate(limit, 1)
                words.append(b"%%%b=%b" % (word, text.encode()))
        return b" ".join(words)


class Use:
    """What the clients of one user use, as far as no other part of the server counts it.

    Attributes:
        connections: of clients that have logged in.
        waited: how often a connection had to wait because of the rate.
        refused: how many commands and logins were refused because of other limits.
        closed: how many connections were closed because of the replies that waited.
        pace: what they have sent lately.
    """

    __slots__ = ("_told", "closed", "connections", "pace", "refused", "waited")

    def __init__(self) -> None:
        self.connections = 0
        self.waited = 0
        self.refused = 0
        self.closed = 0
        self.pace = Pace()
        self._told: dict[str, int] = {}

    def tells(self, rule: str, now: int) -> bool:
        """Whether to log at ``now`` (ms) that the limit of ``rule`` was reached: it was not in the
        minute before."""
        last = self._told.get(rule)
        if last is not None and last <= now < last + TOLD_AGAIN:
            return False
        self._told[rule] = now
        return True


def _value(word: bytes, text: str) -> int:
    """The limit in the ``text`` of the rule ``word``. Raises ``RuleError``."""
    if word in _SIZES:
        what, most, value = EXPECTED, MAX_SIZE, read_size(text)
    elif word == b"rate":
        what, most = _RATE, MAX_RATE
        times, seconds = read_rate(text) or (0, 0)
        value = times if seconds == 1 else None
    else:
        what, most, value = _COUNT, MAX_COUNT, _number(text)
    if value is None or value > most:
        raise RuleError(f"The limit must be {what}; 0 takes it away")
    return value


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None
