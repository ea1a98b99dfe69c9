"""The names that rules can use: commands, their subcommands, and categories."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from disque_trio.respserver.categories import CATEGORIES


class Described(Protocol):
    """A command as rules see it: its name, the command that it is another name of (or empty), its
    categories, and those of its subcommands by name."""

    @property
    def name(self) -> str: ...
    @property
    def alias_of(self) -> str: ...
    @property
    def categories(self) -> frozenset[str]: ...
    @property
    def parts(self) -> Mapping[str, frozenset[str]]: ...


def word_of(command: Described, args: list[bytes]) -> str:
    """The word for a request in rules: ``addjob``, or ``config|get``. Other names count as the
    command itself, and so do unknown subcommands."""
    name = command.alias_of or command.name
    if command.parts and len(args) > 1:
        part = args[1].decode("latin-1").lower()
        if part in command.parts:
            return f"{name}|{part}"
    return name


class Catalog:
    """The words of rules.

    Attributes:
        all: every word: names of commands, and of subcommands such as ``config|get``.
        by_category: the words in each category, in the order of ACL CAT; none is empty.
        about_queues: whether jobs are added to queues, so that there can be limits for these.
    """

    def __init__(self, commands: Iterable[Described]) -> None:
        self._named: dict[str, frozenset[str]] = {}
        self._proper: dict[str, str] = {}
        by_category: dict[str, list[str]] = {category: [] for category in CATEGORIES}
        every: set[str] = set()
        for command in commands:
            if command.alias_of:
                self._proper[command.name] = command.alias_of
                continue
            words = {command.name: command.categories}
            for part, categories in command.parts.items():
                words[f"{command.name}|{part}"] = categories
            for word, categories in words.items():
                self._named[word] = frozenset((word,))
                for category in categories:
                    by_category[category].append(word)
            self._named[command.name] = frozenset(words)
            every.update(words)
        self.all = frozenset(every)
        self.about_queues = "addjob" in self._named
        self.by_category = {name: words for name, words in by_category.items() if words}

    def proper(self, text: str) -> str:
        """The name in rules of the command ``text``, which may be another name of it."""
        name, bar, part = text.lower().partition("|")
        return self._proper.get(name, name) + bar + part

    def named(self, name: str) -> frozenset[str] | None:
        """The words that the command or subcommand ``name`` stands for; None: there is none."""
        return self._named.get(name)

    def category(self, name: str) -> frozenset[str] | None:
        """The words in the category ``name``; None: there is none."""
        if name == "all":
            return self.all
        words = self.by_category.get(name)
        return None if words is None else frozenset(words)
