"""The categories of commands, with which rules for users name many at once (``+@read``).

They are Redis's where it has such commands, plus one for each thing that commands are about:
``jobs``, ``queues``, ``events``. Most follow from the flags and the group of a command; words with
an @ among its flags add the rest. A command with subcommands has only ``fast`` or ``slow`` itself;
its subcommands have the others.
"""

from collections.abc import Iterable, Mapping
from typing import Final

# In the order in which ACL CAT lists them.
CATEGORIES: Final = (
    "read",
    "write",
    "jobs",
    "queues",
    "events",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
)

_BY_GROUP: Final = {
    "jobs": ("jobs",),
    "queues": ("queues",),
    "events": ("events",),
    "okq": ("events",),
}


def categories_of(flags: Iterable[str], group: str, words: Iterable[str]) -> frozenset[str]:
    """The categories of a command with these flags, in this group. ``words``: explicit
    categories."""
    found = set(words)
    flags = set(flags)
    about = _BY_GROUP.get(group, ())
    found.update(about)
    if about and "read" not in found and "write" not in found:
        found.add("write" if "write" in flags else "read")
    if group == "connection" and "transaction" not in found:
        found.add("connection")
    if "admin" in flags:
        found.update(("admin", "dangerous"))
    return _with_speed(found, "fast" in flags)


def parts_of(parts: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """The categories of each subcommand, from a mapping of names to categories, both as words."""
    return {
        name: _with_speed(set(words.split()), "fast" in words)
        for names, words in parts.items()
        for name in names.split()
    }


def container_categories(flags: Iterable[str]) -> frozenset[str]:
    """The categories of a command that has subcommands."""
    return _with_speed(set(), "fast" in flags)


def _with_speed(found: set[str], fast: bool) -> frozenset[str]:
    return frozenset(found | {"fast" if fast else "slow"})
