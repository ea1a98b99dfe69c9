"""The names of the subcommands. Loads none of them, since most calls are of another command."""

import os
from collections.abc import Sequence


class Listing:
    """A subcommand.

    Attributes:
        name: one or two words, in lower case.
        about: what it does, for ``disque --help``.
        module: of its ``SUBCOMMAND``, in this package.
        shared: whether nodes have a command with this name.
        any_case: whether the name may be in capital letters, too.
        wrong: the exit status after wrong arguments.
    """

    def __init__(
        self,
        name: str,
        about: str,
        module: str,
        *,
        shared: bool = False,
        any_case: bool = False,
        wrong: int = 1,
    ) -> None:
        self.name = name
        self.about = about
        self.module = module
        self.shared = shared
        self.any_case = any_case
        self.wrong = wrong


TABLE = (
    Listing(
        "check", "Say in one line how the cluster is.", "check", any_case=True, wrong=3
    ),  # as before it was in this table, and as Nagios wants it
    Listing("queues", "List the queues of the cluster.", "queues"),
    Listing("jobs", "List jobs, by queue and state.", "jobs"),
    Listing("nodes", "List the nodes, and what is wrong with them.", "nodes"),
    Listing("workers", "List the workers, and the jobs that they have.", "workers"),
    Listing("move", "Move queued jobs to another queue.", "move"),
    Listing("redrive", "Send dead letters back.", "redrive", shared=True),
    Listing("copies", "List jobs that have lost copies, and make these again.", "copies"),
    Listing("export", "Write jobs to a file.", "export"),
    Listing("backup", "Copy the files of the nodes of this machine.", "backup"),
    Listing("cluster create", "Make nodes a cluster.", "cluster_create"),
    Listing("cluster leave", "Empty a node, so that it can be stopped for good.", "cluster_leave"),
    Listing("import", "Add the jobs of such a file.", "importing"),
    Listing("definitions export", "Write policies, schedules and users.", "definitions_export"),
    Listing("definitions import", "Set those of such a file.", "definitions_import"),
)


def find(command: Sequence[bytes]) -> tuple[Listing, list[str]] | None:
    """The subcommand that these words call, and the words after its name; None: they are a command
    for the node.

    Only lower case calls most subcommands: nodes take commands in any case. If nodes have a command
    of the same name, two operands in a row are for that, as in ``redrive q COUNT 10``.
    """
    words = [os.fsdecode(word) for word in command]
    for entry in TABLE:
        name = entry.name.split()
        first = words[: len(name)]
        if first == name or (entry.any_case and [word.lower() for word in first] == name):
            rest = words[len(name) :]
            plain = [not word.startswith("-") for word in rest[:2]]
            return None if entry.shared and plain == [True, True] else (entry, rest)
    return None


def listed() -> str:
    """The lines for ``disque --help``."""
    return "".join(f"  {entry.name:<18} {entry.about}\n" for entry in TABLE)
