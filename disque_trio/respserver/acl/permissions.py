"""The permissions of a user: which commands, on which queues."""

from collections.abc import Iterable
from typing import Final

from disque_trio.respserver.access import ADD, TAKE, Access, grants
from disque_trio.respserver.acl.catalog import Catalog

BOTH: Final = TAKE | ADD
_SYNTAX: Final = "Syntax error"
_UNKNOWN: Final = "Unknown command or category name in ACL"
_AFTER_ALL: Final = (
    "Adding a pattern after the * pattern (or the '{flag}' flag) is not valid and does not have "
    "any effect. Try '{reset}' to start with an empty list of {what}"
)
_RIGHTS: Final = {b"R": TAKE, b"W": ADD, b"RW": BOTH, b"WR": BOTH}
_PREFIXES: Final = {TAKE: b"%R~", ADD: b"%W~", BOTH: b"~"}
_DECIDED: Final = 1000  # cached answers, since globs are slow
_LONG: Final = 256  # bytes; answers for longer names are not cached
_NONE: Final = "-@all"
_EVERYTHING: Final = "+@all"


class RuleError(ValueError):
    """A rule is wrong; the text says what is, in Redis's words."""


def has_space(text: bytes) -> bool:
    """Whether ``text`` contains a space or a NUL: a line of rules would lose what follows it."""
    return any(byte in b" \t\n\v\f\r\0" for byte in text)


class Permissions:
    """Rules about commands and queues, in the order in which they were given: the last one about a
    command counts. New permissions allow nothing.

    There are no channels: rules about them are kept for Redis's tools, and have no effect.

    Attributes:
        rules: those about commands; the first one allows all or none. Rules that later ones
            override, and most of those that change nothing, are left out.
        allowed: the words (see ``Catalog``) of the commands that may be run.
        patterns: globs for queue names, with the rights there.
        every_queue: all rights for all queues.
    """

    __slots__ = (
        "_catalog",
        "_decided",
        "allowed",
        "channels",
        "every_channel",
        "every_queue",
        "patterns",
        "rules",
    )

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.rules = [_NONE]
        self.allowed: frozenset[str] = frozenset()
        self.patterns: dict[bytes, int] = {}
        self._decided: dict[tuple[bytes, int], bool] = {}  # cache of what ``patterns`` permit
        self.every_queue = False
        self.channels: list[bytes] = []
        self.every_channel = False

    def copy(self) -> "Permissions":
        """Return a copy that can be changed independently."""
        new = Permissions(self._catalog)
        new.rules = list(self.rules)
        new.allowed = self.allowed
        new.patterns = dict(self.patterns)
        new.every_queue = self.every_queue
        new.channels = list(self.channels)
        new.every_channel = self.every_channel
        return new

    @property
    def unrestricted(self) -> bool:
        """Whether everything is allowed."""
        return self.every_queue and self.allowed >= self._catalog.all

    # ---- changing them ----------------------------------------------------------------------

    def apply(self, rule: bytes) -> None:
        """Apply one rule. Raises ``RuleError``; then nothing has changed."""
        self._decided.clear()
        word = rule.lower()
        if word in (b"allkeys", b"allqueues", b"~*"):
            self.patterns.clear()
            self.every_queue = True
        elif word in (b"resetkeys", b"resetqueues"):
            self.patterns.clear()
            self.every_queue = False
        elif word in (b"allchannels", b"&*"):
            self.channels.clear()
            self.every_channel = True
        elif word == b"resetchannels":
            self.channels.clear()
            self.every_channel = False
        elif word == b"allcommands":
            self._change_category(True, "all")
        elif word == b"nocommands":
            self._change_category(False, "all")
        elif word.startswith((b"~", b"%")):
            self._add_pattern(rule)
        elif word.startswith(b"&"):
            self._add_channel(rule[1:])
        elif word.startswith((b"+@", b"-@")):
            self._change_category(word.startswith(b"+"), word[2:].decode("latin-1"))
        elif word.startswith((b"+", b"-")):
            self._change_command(word.startswith(b"+"), word[1:].decode("latin-1"))
        else:
            raise RuleError(_SYNTAX)

    def _add_pattern(self, rule: bytes) -> None:
        """Add ``~pattern`` or ``%RW~pattern``."""
        prefix, tilde, pattern = rule.partition(b"~")
        rights = _RIGHTS.get(prefix[1:].upper(), 0) if prefix else BOTH
        if not tilde or not rights or has_space(pattern):
            raise RuleError(_SYNTAX)
        if self.every_queue:
            raise RuleError(_AFTER_ALL.format(flag="allkeys", reset="resetkeys", what="patterns"))
        rights |= self.patterns.get(pattern, 0)
        if pattern == b"*" and rights == BOTH:
            self.patterns.clear()
            self.every_queue = True
        else:
            self.patterns[pattern] = rights

    def _add_channel(self, pattern: bytes) -> None:
        if has_space(pattern):
            raise RuleError(_SYNTAX)
        if self.every_channel:
            raise RuleError(
                _AFTER_ALL.format(flag="allchannels", reset="resetchannels", what="channels")
            )
        if pattern not in self.channels:
            self.channels.append(pattern)

    def _change_category(self, allows: bool, name: str) -> None:
        words = self._catalog.category(name)
        if words is None:
            raise RuleError(_UNKNOWN)
        if name == "all":
            self.rules = [_EVERYTHING if allows else _NONE]
            self.allowed = words if allows else frozenset()
        else:
            self._change(allows, "@" + name, words)

    def _change_command(self, allows: bool, text: str) -> None:
        name = self._catalog.proper(text)
        words = self._catalog.named(name)
        if words is None:
            if allows and name.count("|") > 1:
                raise RuleError("Allowing first-arg of a subcommand is not supported")
            raise RuleError(_UNKNOWN)
        self._change(allows, name, words)

    def _change(self, allows: bool, target: str, words: frozenset[str]) -> None:
        """Allow or forbid ``words``, to which a rule refers as ``target``."""
        # This overrides earlier rules about the same, or about a part of it.
        kept = [
            rule
            for rule in self.rules[1:]
            if rule[1:] != target and not rule[1:].startswith(target + "|")
        ]
        if len(kept) + 1 != len(self.rules):
            # Without it, other rules may have no effect any more.
            del self.rules[1:]
            self.allowed = self._catalog.all if self.rules[0] == _EVERYTHING else frozenset()
            for rule in kept:
                self._append(rule.startswith("+"), rule[1:], self._words(rule[1:]))
        self._append(allows, target, words)

    def _append(self, allows: bool, target: str, words: frozenset[str]) -> None:
        """Append a rule, if it has an effect there."""
        before = self.allowed
        self.allowed = before | words if allows else before - words
        # A category may have more commands in the next version: keep a rule about it although it
        # changes nothing now, unless it never can.
        bare = before == (self._catalog.all if allows else frozenset())
        if self.allowed != before or (target.startswith("@") and not bare):
            self.rules.append(("+" if allows else "-") + target)

    def _words(self, target: str) -> frozenset[str]:
        """The words to which a rule refers as ``target``."""
        catalog = self._catalog
        found = catalog.category(target[1:]) if target[0] == "@" else catalog.named(target)
        return found or frozenset()

    # ---- asking them ------------------------------------------------------------------------

    def lets(self, name: bytes, need: int) -> bool:
        """Whether an access to the queue ``name`` that needs ``need`` (see ``access``) is
        allowed."""
        if self.every_queue:
            return True
        known = self._decided.get((name, need))
        if known is None:
            known = self._decide(name, need)
            if len(name) < _LONG:
                if len(self._decided) >= _DECIDED:
                    self._decided.clear()
                self._decided[name, need] = known
        return known

    def _decide(self, name: bytes, need: int) -> bool:
        # One rule may allow taking, and another one adding.
        for right in (TAKE, ADD):
            if need & right and not self._granted(name, need & ~BOTH | right):
                return False
        return bool(need & BOTH) or self._granted(name, need)

    def _granted(self, name: bytes, need: int) -> bool:
        return any(grants(pattern, rights, name, need) for pattern, rights in self.patterns.items())

    def first_refused(self, accesses: Iterable[Access]) -> bytes | None:
        """The first queue in ``accesses`` that is not allowed; None: all are."""
        if self.every_queue:
            return None
        for name, need in accesses:
            if not self.lets(name, need):
                return name
        return None

    # ---- describing them --------------------------------------------------------------------

    def describe_commands(self) -> str:
        """The rules about commands, as written."""
        return " ".join(self.rules)

    def describe_queues(self) -> bytes:
        """The rules about queues, as written."""
        if self.every_queue:
            return b"~*"
        return b" ".join([_PREFIXES[rights] + pattern for pattern, rights in self.patterns.items()])

    def describe_channels(self) -> bytes:
        """The rules about channels, as written."""
        if self.every_channel:
            return b"&*"
        return b" ".join([b"&" + pattern for pattern in self.channels])

    def describe(self) -> bytes:
        """Return all rules, as written; applied to new permissions, they recreate these."""
        words = [self.describe_queues()]
        if not self.every_channel:
            words.append(b"resetchannels")
        words += [self.describe_channels(), self.describe_commands().encode("latin-1")]
        return b" ".join([word for word in words if word])
