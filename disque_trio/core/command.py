"""What the node knows of a command: its name, arity, flags, the function that serves it, its
documentation and its counters. One declaration makes the dispatch, COMMAND, COMMAND DOCS, the
hints of the command line client and the page in docs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from disque_trio.core.client import Client

# The first is the machine whose commands these are.
Handler: TypeAlias = "Callable[[Any, Client, list[bytes]], None]"

MANY: Final = 1 << 30


class CommandError(Exception):
    """Ends a command with an error reply; the text starts with the error's code."""


class Command:
    """One command of one node.

    Attributes:
        name: lower case.
        arity: arguments with the name; negative: at least so many.
        flags: words of COMMAND: write readonly denyoom admin random loading skip_monitor fast.
        handler: called with the machine, the client and all arguments.
        syntax: the arguments as a person reads them.
        summary: one line on what it does.
        group: jobs, queues, server, connection or cluster.
        alias_of: the command that this is another name of, or empty.
        calls, nanoseconds: what INFO commandstats shows.
    """

    __slots__ = (
        "alias_of",
        "arity",
        "calls",
        "denyoom",
        "flags",
        "group",
        "handler",
        "max_args",
        "min_args",
        "name",
        "nanoseconds",
        "skip_monitor",
        "summary",
        "syntax",
        "unauthenticated",
        "while_loading",
        "writes",
    )

    def __init__(
        self,
        name: str,
        arity: int,
        flags: str,
        handler: "Handler",
        syntax: str,
        summary: str,
        group: str,
        alias_of: str = "",
        unauthenticated: bool = False,
    ) -> None:
        self.name = name
        self.arity = arity
        self.flags = flags.split()
        self.handler = handler
        self.syntax = syntax
        self.summary = summary
        self.group = group
        self.alias_of = alias_of
        self.unauthenticated = unauthenticated
        self.denyoom = "denyoom" in self.flags
        self.skip_monitor = "skip_monitor" in self.flags
        self.while_loading = "loading" in self.flags
        # PING too: what watches a node has to learn that it cannot take jobs.
        self.writes = "write" in self.flags or name == "ping"
        self.min_args = abs(arity)
        self.max_args = arity if arity > 0 else MANY
        self.calls = 0
        self.nanoseconds = 0
