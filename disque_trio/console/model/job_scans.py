"""Which jobs are looked for, and where a page of them begins."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from disque_trio.console.model.names import to_bytes
from disque_trio.resp.command import Argument

STATES: Final = ("queued", "active", "acked", "wait-repl")
_PLACE: Final = re.compile(r"([0-9a-f]{40})-([0-9]{1,20})")


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What holds for the jobs that are looked for; empty: anything.

    Attributes:
        state: one of ``STATES``. oldest, youngest: their age in seconds, at most and at least.
        header, value: a header that they have.
        returns: how often they came back at least.
        problem: what makes no sense; empty: all does.
    """

    queue: str = ""
    state: str = ""
    youngest: str = ""
    oldest: str = ""
    header: str = ""
    value: str = ""
    returns: str = ""
    problem: str = ""

    @classmethod
    def read(cls, query: Callable[[str], str]) -> "JobFilter":
        """The filter of a query."""
        words = {
            name: query(name) if name in ("queue", "value") else query(name).strip()
            for name in ("queue", "state", "youngest", "oldest", "header", "value", "returns")
        }
        problem = ""
        if words["state"] and words["state"] not in STATES:
            problem = f"the states are {', '.join(STATES)}"
        for name in ("youngest", "oldest", "returns"):
            if words[name] and not re.fullmatch(r"[0-9]{1,15}", words[name]):
                problem = f"{words[name]!r} is no whole number"
        return cls(**words, problem=problem)

    @property
    def words(self) -> list[Argument]:
        """The options of JSCAN."""
        found: list[Argument] = []
        if self.queue:
            found += ["QUEUE", to_bytes(self.queue)]
        if self.state:
            found += ["STATE", self.state]
        for option, value in (
            ("MINAGE", self.youngest),
            ("MAXAGE", self.oldest),
            ("MINRETURNS", self.returns),
        ):
            if value:
                found += [option, value]
        if self.header:
            found += ["HEADER", to_bytes(self.header), to_bytes(self.value)]
        return found

    @property
    def query(self) -> dict[str, str]:
        """What stands in the address of a page."""
        return {
            name: getattr(self, name)
            for name in ("queue", "state", "youngest", "oldest", "header", "value", "returns")
        }


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins: at a cursor of the node with this id. Nodes come in the order of their
    ids, so it can be gone on from a node that is away meanwhile."""

    node: str = ""
    cursor: str = "0"

    @classmethod
    def read(cls, text: str) -> "Place":
        """What ``str`` made; the beginning, of anything else."""
        found = _PLACE.fullmatch(text)
        return cls(found[1], found[2]) if found else cls()

    def __str__(self) -> str:
        return f"{self.node}-{self.cursor}"
