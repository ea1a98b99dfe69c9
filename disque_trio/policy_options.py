"""The table of the options of a policy (QSET), each declared once.

What a node reads in commands, files and packets, and what it answers, the options of the clients'
``set_policy``, and the form of the console come from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from disque_trio.notation.rates import read_rate

MAX_VALUE: Final = 2**32 - 1

# Kinds of options, by their values.
NUMBER: Final = "number"
NAME: Final = "name"  # of a queue
WORD: Final = "word"  # one of several
RATE: Final = "rate"  # a number and a period: 50/s
SECONDS: Final = "seconds"  # one or two, with decimals; in a policy ms


@dataclass(frozen=True, slots=True)
class PolicyOption:
    """An option of a policy.

    Attributes:
        name: in Python; in commands it is in upper case and without underscores.
        kind: of its values.
        fields: the attributes of a node's ``Policy`` that hold its values, and the types of their
            fields on the bus.
        values: what follows its name in QSET, for people.
        hint: what it is, in a few words.
        label: its name in a form.
        most: the greatest value; of a name, the most bytes.
        unset: what the attributes have if it is not set.
        words: the values of a WORD; a policy holds their numbers, from 1 on.
    """

    name: str
    kind: str
    fields: Mapping[str, int]
    values: str
    hint: str
    label: str = ""
    most: int = MAX_VALUE
    unset: int | bytes = 0
    words: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """The name in commands."""
        return self.name.replace("_", "").upper()

    @property
    def arity(self) -> int:
        """How many words are its value in commands."""
        return len(self.fields) if self.kind == SECONDS else 1

    @property
    def wanted(self) -> str:
        """What its values must be, for people."""
        if self.kind == NAME:
            return f"{self.word} must have {self.most} bytes at most"
        if self.kind == WORD:
            return f"{self.word} must be {' or '.join(self.words)}"
        numbers = "a number of seconds" if self.kind == SECONDS else "a number"
        if self.arity == 2:
            numbers = "two numbers of seconds"
        period = " with /s, /m or /h behind it" if self.kind == RATE else ""
        return f"{self.word} must be {numbers} from 0 to {self.most}{period}"

    def check(self, value: object) -> None:
        """Raise ValueError if no node takes ``value``, as Python programs say it."""
        if self.kind == NAME:
            known = isinstance(value, str | bytes)
            is_right = known and len(_bytes(value)) <= self.most
        elif self.kind == WORD:
            is_right = value in self.words
        elif self.kind == RATE:
            read = read_rate(value) if isinstance(value, str) else None
            is_right = read is not None and read[0] <= self.most
        else:
            values = value if self.arity > 1 and isinstance(value, tuple | list) else (value,)
            is_right = len(values) == self.arity and all(self._is_number(one) for one in values)
        if not is_right:
            raise ValueError(f"{self.name}{self.wanted[len(self.word) :]}, not {value!r}")

    def _is_number(self, value: object) -> bool:
        kinds = int | float if self.kind == SECONDS else int
        is_number = isinstance(value, kinds) and not isinstance(value, bool)
        return is_number and 0 <= value <= self.most  # type: ignore[operator]


def _bytes(text: object) -> bytes:
    return text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogateescape")


OPTIONS: Final = (
    PolicyOption(
        "attempts", NUMBER, {"attempts": 5}, "count",
        "deliveries before a job becomes a dead letter",
    ),
    PolicyOption("dead", NAME, {"dead": 6}, "queue", "dead-letter queue", most=4_096, unset=b""),
    PolicyOption(
        "backoff", SECONDS, {"backoff_min": 7, "backoff_max": 8}, "min max",
        "seconds before a job is queued again",
    ),
    PolicyOption(
        "dead_ttl", NUMBER, {"dead_ttl": 9}, "seconds", "seconds until a dead letter expires",
        "Dead TTL",
    ),
    PolicyOption("ttl", NUMBER, {"ttl": 10}, "seconds", "seconds until a job expires", "TTL"),
    PolicyOption(
        "retry", NUMBER, {"retry": 11}, "seconds", "seconds until it is redelivered", unset=-1
    ),
    PolicyOption(
        "replicate", NUMBER, {"replicate": 12}, "count", "nodes that hold a copy", most=65_535
    ),
    PolicyOption("maxlen", NUMBER, {"maxlen": 20}, "count", "queued jobs", "Max. length"),
    PolicyOption(
        "maxbytes", NUMBER, {"maxbytes": 25}, "bytes", "total body size of queued jobs",
        "Max. bytes", most=2**48,
    ),
    PolicyOption(
        "rate", RATE, {"rate": 21, "period": 22}, "count/s|count/m|count/h",
        "deliveries: 50/s, 300/m, 1000/h",
    ),
    PolicyOption("burst", NUMBER, {"burst": 23}, "count", "deliveries at once after a pause"),
    PolicyOption("active", NUMBER, {"active": 24}, "count", "jobs with workers at once"),
    PolicyOption(
        "groups", WORD, {"groups": 30}, "fair|fifo", "how groups share the queue",
        words=("fair", "fifo"),
    ),
    PolicyOption("delay", SECONDS, {"delay": 31}, "seconds", "seconds before a job is queued"),
    PolicyOption(
        "group_active", NUMBER, {"group_active": 32}, "count",
        "jobs of each group with workers at once", "Group active",
    ),
    PolicyOption(
        "group_rate", RATE, {"group_rate": 33, "group_period": 34}, "count/s|count/m|count/h",
        "deliveries of each group: 5/s, 300/m", "Group rate",
    ),
    PolicyOption(
        "group_burst", NUMBER, {"group_burst": 35}, "count",
        "deliveries of a group at once after a pause", "Group burst",
    ),
)  # fmt: skip
"""In the order of QGET."""

SYNTAX: Final = " ".join(f"[{option.word} {option.values}]" for option in OPTIONS)
"""The options of QSET, for people."""
