"""Job filters, and where a page of jobs begins."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

from disque_console.model.job_lists import BY_STAGE, JobList
from disque_console.model.jobs import WITH_WORKER
from disque_trio.overview.names import shown, to_bytes
from disque_trio.resp.command import Argument

STATES: Final = (*BY_STAGE, "queued", WITH_WORKER, "active", "acked", "wait-repl")
_ID_BEGINS: Final = re.compile(r"|D|D-[A-Za-z0-9+/-]{0,38}")
_PLACE: Final = re.compile(r"([0-9a-f]{40})-([0-9]{1,20})")


_WORDS: Final = ("queue", "state", "youngest", "oldest", "returns", "group", "text", "id")
FIELDS: Final = frozenset({*_WORDS, "header", "value"})
"""Names in the query of a search."""
_AS_THEY_ARE: Final = ("queue", "group", "text")  # spaces count
HEADERS: Final = 20  # in one search


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The conditions of a search for jobs, all of which must hold; empty matches anything.

    Attributes:
        state: one of ``STATES``. oldest, youngest: the maximum and minimum age in seconds.
        returns: the minimum number of returns.
        text: what their bodies contain.
        id: how the ids begin. Nodes cannot filter by it, so all jobs are scanned.
        headers: names and values that the jobs must have.
        staged: only jobs in a stage, so that a job is listed by the node that has it, not by those
            with copies.
        problem: why the filter is invalid; empty if it is valid.
    """

    queue: str = ""
    state: str = ""
    youngest: str = ""
    oldest: str = ""
    returns: str = ""
    group: str = ""
    text: str = ""
    id: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    staged: bool = False

    @classmethod
    def read(cls, query: Callable[[str], Sequence[str]]) -> "JobFilter":
        """Read a filter from ``query``, which returns the values of a name, in order."""
        words: dict[str, Any] = {}
        for name in _WORDS:
            value = next(iter(query(name)), "")
            words[name] = value if name in _AS_THEY_ARE else value.strip()
        pairs = zip_longest(query("header"), query("value"), fillvalue="")
        headers = tuple((name.strip(), value) for name, value in pairs if name.strip())
        problem = ""
        if words["state"] and words["state"] not in STATES:
            problem = f"the state must be one of {', '.join(STATES)}"
        for name in ("youngest", "oldest", "returns"):
            if words[name] and not re.fullmatch(r"[0-9]{1,15}", words[name]):
                problem = f"{words[name]!r} is not a whole number"
        if not _ID_BEGINS.fullmatch(words["id"]):
            problem = "an id starts like D-dcb833cf-8YL1NT17"
        if len(headers) > HEADERS:
            problem = f"at most {HEADERS} headers"
        return cls(headers=headers, problem=problem, **words)

    @property
    def job_list(self) -> JobList | None:
        """The list that the jobs are in, if nodes can tell the first ones of it."""
        return None if self.id or self.problem else BY_STAGE.get(self.state)

    @property
    def words(self) -> list[Argument]:
        """The options of JSCAN."""
        if self.state == WITH_WORKER:
            return ["TAKEN", *self.conditions]
        states = [self.state] if self.state else [*BY_STAGE] if self.staged else []
        found: list[Argument] = []
        for state in states:
            found += ["STATE", to_bytes(state)]
        return [*found, *self.conditions]

    @property
    def conditions(self) -> list[Argument]:
        """The options but those for the state."""
        found: list[Argument] = []
        for option, value in (
            ("QUEUE", self.queue),
            ("MINAGE", self.youngest),
            ("MAXAGE", self.oldest),
            ("MINRETURNS", self.returns),
            ("GROUP", self.group),
            ("BODY", self.text),
        ):
            if value:
                found += [option, to_bytes(value)]
        for name, value in self.headers:
            found += ["HEADER", to_bytes(name), to_bytes(value)]
        return found

    @property
    def narrow(self) -> bool:
        """Whether it has conditions other than a state."""
        return bool(self.conditions or self.id)

    def takes(self, id: str) -> bool:
        """Whether ``id``, which a node found with ``words``, matches."""
        return id.startswith(self.id)

    @property
    def query(self) -> dict[str, str | list[str]]:
        """The query of the page's address."""
        found: dict[str, str | list[str]] = {name: getattr(self, name) for name in _WORDS}
        found["header"] = [name for name, _ in self.headers]
        found["value"] = [value for _, value in self.headers]
        return found

    @property
    def described(self) -> dict[str, object]:
        """The conditions that are set, for display."""
        found: dict[str, object] = {
            name: shown(value) for name in _WORDS if (value := getattr(self, name))
        }
        if self.headers:
            found["headers"] = {shown(name): shown(value) for name, value in self.headers}
        return found


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page begins: at a cursor of the node with this id. Nodes are ordered by id, so paging
    can continue after a node that has become unreachable."""

    node: str = ""
    cursor: str = "0"

    @classmethod
    def read(cls, text: str) -> "Place":
        """Read what ``str`` made; anything else means the beginning."""
        found = _PLACE.fullmatch(text)
        return cls(found[1], found[2]) if found else cls()

    def __str__(self) -> str:
        return f"{self.node}-{self.cursor}"
