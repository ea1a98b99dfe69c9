"""Declares commands: name, arity, flags, handler, documentation and counters. Dispatch, COMMAND,
COMMAND DOCS, the hints of the command line client and the documentation are all derived from one
declaration."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeAlias, TypeVar

from disque_trio.glob import is_glob
from disque_trio.resp.reply import error
from disque_trio.respserver.access import ADD, ALL, EVERY, GLOB, PATTERN, TAKE, Access
from disque_trio.respserver.categories import categories_of, container_categories, parts_of
from disque_trio.respserver.client import Client
from disque_trio.respserver.words import SYNTAX, Found, Value, Words
from disque_trio.respserver.words import CommandError as CommandError

M = TypeVar("M", contravariant=True)

AnyCommand: TypeAlias = "Command[Any]"  # of any machine

MANY: Final = 1 << 30

# Commands that neither use nor change jobs, or events, beyond counting them: all of it, or parts.
_INDEPENDENT: Final = frozenset(
    ("auth", "client", "command", "echo", "hello", "info", "latency", "ping", "quit", "select",
     "slowlog", "time")
)  # fmt: skip
_INDEPENDENT_PARTS: Final[dict[str, tuple[bytes, ...]]] = {
    "cluster": (b"info", b"keys", b"myid", b"mykey", b"nodes"),
    "config": (b"get",),
}

# Commands that may need memory for jobs, but are about those that are in the file already.
_ABOUT_HELD: Final = frozenset(("enqueue", "nack", "promote", "queue"))

# Commands whose effect is held in memory if the file cannot be written, so their replies stand.
# If the process then dies, the job comes again.
_STANDING: Final = frozenset(("ackjob", "fastack", "nack", "working"))

# What each word of these commands costs, or what each may add to the reply, is too much for more.
_MOST_WORDS: Final = {
    "acl": 5_000,
    "client": 5_000,
    "command": 1_000,
    "config": 2_000,
    "hello": 1_000,
    "latency": 1_000,
    "qowner": 1_000,
}

INTERNAL_ERROR: Final = b"-ERR internal error, see the log of the node\r\n"


def misconf(problem: str, server: str = "") -> bytes:
    """The error for commands that are refused while the append-only file of a server cannot be
    written."""
    where = f" ({server})" if server else ""
    return error(
        f"MISCONF Errors writing to the AOF file: {problem}{where}. Free its disk, or use another "
        "node: this one tries again every second"
    )


class Command(Generic[M]):
    """One command of one server, whose state machine is an ``M``.

    Attributes:
        name: lower case.
        arity: number of arguments including the name; negative: at least that many.
        flags: words of COMMAND: write readonly denyoom admin random loading skip_monitor fast.
        categories: used by rules for users (see ``categories``): derived from the rest; words with
            an @ among the flags add to them.
        parts: the subcommands that rules know, with their categories; given as words,
            ``{"get list": "read"}``.
        handler: called with the machine, the client and all arguments, the name first.
        words: how its words are read, by a ``syntax`` in the notation of ``disque_trio.syntax``.
        summary: what it does, in one line.
        group: jobs, queues, server, connection or cluster.
        alias_of: the command that this is another name of, or empty.
        unauthenticated: whether it is served before a client has given its password.
        needs: the queues that a request is about: what is needed there (see ``access``), by the
            name of the argument or the word before it; or a function that tells; empty: none.
        writes: whether it is refused while the append-only file cannot be written.
        adds: whether it is also refused while the disk is full.
        stands: whether its reply is right even if its record cannot be written, where work goes on
            then.
        docs, rows: what COMMAND tells of it, by version of the protocol; see ``command_docs``.
        calls, nanoseconds: the counters in INFO commandstats.
    """

    def __init__(  # noqa: PLR0913
        self,
        name: str,
        arity: int,
        flags: str,
        handler: Callable[[M, Client, list[bytes]], None],
        syntax: str,
        summary: str,
        group: str,
        alias_of: str = "",
        unauthenticated: bool = False,
        needs: "Mapping[str, int | Callable[[M, Found], list[Access]]] | None" = None,
        parts: Mapping[str, str] | None = None,
        values: Mapping[str, Value] | None = None,
        wrong: str = SYNTAX,
        repeats: bool = False,
    ) -> None:
        self.name = name
        self.arity = arity
        words = flags.split()
        self.flags = [word for word in words if not word.startswith("@")]
        self.categories = (
            container_categories(words)
            if parts
            else categories_of(words, group, [word[1:] for word in words if word.startswith("@")])
        )
        self.parts = parts_of(parts or {})
        self.handler = handler
        self.words = Words(syntax, dict(values or {}), wrong, repeats)
        self.summary = summary
        self.group = group
        self.alias_of = alias_of
        self.unauthenticated = unauthenticated
        self.needs = needs or {}
        self._fixed: list[tuple[int, int]] | None = None
        self.denyoom = "denyoom" in self.flags
        self.skip_monitor = "skip_monitor" in self.flags
        self.while_loading = "loading" in self.flags
        # PING too: whatever monitors a node has to learn that it cannot take jobs.
        self.writes = "write" in self.flags or name == "ping"
        self.adds = (self.denyoom and name not in _ABOUT_HELD) or name == "ping"
        self.stands = name in _STANDING
        self.min_args = abs(arity)
        self.max_args = arity if arity > 0 else _MOST_WORDS.get(name, MANY)
        self.docs: dict[int, bytes] = {}
        self.rows: dict[int, bytes] = {}
        self.calls = 0
        self.nanoseconds = 0

    @property
    def syntax(self) -> str:
        """Its arguments, for people."""
        return self.words.syntax

    def accesses(self, machine: M, args: list[bytes]) -> tuple[list[Access], str]:
        """Return the queues that a request is about, and why it must not be served: it is malformed
        in such a way that its queues are not known. Empty: they are, or the handler refuses it."""
        found: list[Access] = []
        if not self.needs:
            return found, ""
        if self._fixed is None:
            self._fixed = self._fixed_needs()
        if self._fixed:
            return [(args[index], need) for index, need in self._fixed], ""
        form = self.words.form
        sure = all(name in form.lead for name in self.needs)
        words = form.leading(args) if sure else self.words.match(args)
        for name, need in self.needs.items():
            if not isinstance(need, int):
                found += need(machine, words)
            elif name in words.words:
                for queue in words.words[name]:
                    found += _needed(queue, need | PATTERN if words.has("PATTERN") else need)
            elif need & ALL and not words.problem:
                found.append((EVERY, need & ~ALL | PATTERN))
        return found, words.problem

    def _fixed_needs(self) -> list[tuple[int, int]]:
        """The indexes of queues and what is needed there, if these are always the same; none: they
        are not."""
        found: list[tuple[int, int]] = []
        for name, need in self.needs.items():
            index = self.words.form.lead.get(name, self.min_args)
            if not isinstance(need, int) or need > ADD or index >= self.min_args:
                return []
            found.append((index, need))
        return found

    def is_independent(self, args: list[bytes]) -> bool:
        """Whether ``args`` can be served as if it touched no job, or event."""
        parts = _INDEPENDENT_PARTS.get(self.name, ())
        return self.name in _INDEPENDENT or (len(args) > 1 and args[1].lower() in parts)


def _needed(queue: bytes, need: int) -> list[Access]:
    """What a declared ``need`` means for ``queue``."""
    if need & GLOB and is_glob(queue):
        need |= PATTERN
    need &= ~(ALL | GLOB)
    if need & TAKE and need & ADD:  # maybe from different rules
        return [(queue, need & ~ADD), (queue, need & ~TAKE)]
    return [(queue, need)]
