"""A user: a name, passwords, and the permissions of those who have logged in as it."""

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from typing import Final

from disque_trio.respserver.access import ADD, Access
from disque_trio.respserver.acl.budget import Budget, Use, is_budget_rule
from disque_trio.respserver.acl.catalog import Catalog
from disque_trio.respserver.acl.permissions import Permissions, RuleError, has_space

DEFAULT: Final = b"default"  # the user of clients that have not logged in
_HASH: Final = re.compile(rb"[0-9a-f]{64}")
_BAD_HASH: Final = (
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal "
    "characters"
)
_NO_SUCH_PASSWORD: Final = "The password you are trying to remove from the user does not exist"


class SetUserError(ValueError):
    """A list of rules is wrong; the text says which one and why, as in the reply of ACL SETUSER.

    Attributes:
        rule: the wrong one.
        reason: what is wrong with it.
    """

    def __init__(self, rule: bytes, reason: str, text: str = "") -> None:
        self.rule = rule.decode("utf-8", "surrogateescape")
        self.reason = reason
        super().__init__(text or f"Error in ACL SETUSER modifier '{self.rule}': {reason}")


def hash_of(password: bytes) -> bytes:
    """The SHA-256 of a password, as 64 hex characters."""
    return hashlib.sha256(password).hexdigest().encode()


def merge_selectors(rules: Sequence[bytes]) -> list[bytes]:
    """``rules`` with each part in parentheses as a single rule. Raises ``SetUserError``."""
    merged: list[bytes] = []
    opened: list[bytes] = []
    for rule in rules:
        if opened or rule.startswith(b"("):
            opened.append(rule)
            if rule.endswith(b")"):
                merged.append(b" ".join(opened))
                opened = []
        else:
            merged.append(rule)
    if opened:
        start = opened[0].decode("utf-8", "surrogateescape")
        text = f"Unmatched parenthesis in acl selector starting at '{start}'."
        raise SetUserError(opened[0], "Unmatched parenthesis", text)
    return merged


class User:
    """One user. A new one is off, has no password and may do nothing.

    Attributes:
        name: as given.
        enabled: whether one can log in as it.
        nopass: any password will do.
        passwords: their hashes.
        root: its permissions.
        selectors: further permissions: a request is allowed if any single one of all these allows
            it as a whole.
        unrestricted: whether everything is allowed.
        budget: what its clients may take together; None: there is no limit.
        use: what they do take.
    """

    __slots__ = (
        "_catalog",
        "budget",
        "enabled",
        "name",
        "nopass",
        "passwords",
        "root",
        "selectors",
        "unrestricted",
        "use",
    )

    def __init__(self, name: bytes, catalog: Catalog) -> None:
        self.name = name
        self._catalog = catalog
        self.enabled = False
        self.nopass = False
        self.passwords: list[bytes] = []
        self.root = Permissions(catalog)
        self.selectors: list[Permissions] = []
        self.unrestricted = False
        self.budget: Budget | None = None
        self.use = Use()

    @property
    def open(self) -> bool:
        """Whether clients that have not logged in may be this user, if it is the default one."""
        return self.enabled and self.nopass

    @property
    def full(self) -> bool:
        """Whether no further client may log in as it."""
        budget = self.budget
        return budget is not None and 0 < budget.connections <= self.use.connections

    def become(self, other: "User") -> None:
        """Copy everything from ``other`` except the name and the use."""
        self.enabled = other.enabled
        self.nopass = other.nopass
        self.passwords = list(other.passwords)
        self.root = other.root.copy()
        self.selectors = [selector.copy() for selector in other.selectors]
        self.unrestricted = other.unrestricted
        self.budget = other.budget

    # ---- changing it ------------------------------------------------------------------------

    def set(self, rules: Sequence[bytes]) -> None:
        """Apply ``rules`` in order. Raises ``SetUserError``; then nothing has changed."""
        changed = User(self.name, self._catalog)
        changed.become(self)
        for rule in merge_selectors(rules):
            try:
                changed._apply(rule)
            except RuleError as wrong:
                raise SetUserError(rule, str(wrong)) from wrong
        changed.unrestricted = changed.root.unrestricted or any(
            selector.unrestricted for selector in changed.selectors
        )
        self.become(changed)

    def _apply(self, rule: bytes) -> None:
        word = rule.lower()
        if not rule:
            pass  # ignored, as in Redis
        elif word in (b"on", b"off"):
            self.enabled = word == b"on"
        elif word == b"nopass":
            self.nopass = True
            self.passwords.clear()
        elif word == b"resetpass":
            self.nopass = False
            self.passwords.clear()
        elif word == b"reset":
            self.become(User(self.name, self._catalog))
        elif word == b"clearselectors":
            self.selectors.clear()
        elif word in (b"sanitize-payload", b"skip-sanitize-payload"):
            pass  # for Redis: there are no payloads here
        elif rule.startswith((b">", b"#")):
            hashed = _checked(rule[1:]) if rule.startswith(b"#") else hash_of(rule[1:])
            self.nopass = False
            if hashed not in self.passwords:
                self.passwords.append(hashed)
        elif rule.startswith((b"<", b"!")):
            hashed = _checked(rule[1:]) if rule.startswith(b"!") else hash_of(rule[1:])
            if hashed not in self.passwords:
                raise RuleError(_NO_SUCH_PASSWORD)
            self.passwords.remove(hashed)
        elif word == b"nolimits":
            self.budget = None
        elif is_budget_rule(rule):
            budget = self.budget or Budget()
            self.budget = budget.with_rule(rule, self._catalog.about_queues)
        elif rule.startswith(b"("):
            self.selectors.append(self._selector(rule))
        else:
            self.root.apply(rule)

    def _selector(self, rule: bytes) -> Permissions:
        """The permissions in parentheses. Raises ``RuleError``."""
        if not rule.endswith(b")"):
            raise RuleError("Syntax error")
        selector = Permissions(self._catalog)
        for word in rule[1:-1].split():
            if word.endswith(b")"):
                raise RuleError("Syntax error")  # its end would be ambiguous
            selector.apply(word)
        return selector

    # ---- asking it --------------------------------------------------------------------------

    def has_password(self, password: bytes) -> bool:
        """Whether ``password`` is right. Takes the same time whatever is wrong with it."""
        hashed = hash_of(password)
        right = self.nopass
        for known in self.passwords:
            right |= hmac.compare_digest(hashed, known)
        return right

    def refusal(self, word: str, accesses: Iterable[Access]) -> tuple[str, bytes] | None:
        """Return why the command ``word`` (see ``Catalog``) with ``accesses`` must not run.

        That is "command" or "key", with its name or that of the queue. None: it may run. An empty
        ``word`` stands for a command that is always allowed.
        """
        refused: bytes | None = None
        accesses = list(dict.fromkeys(accesses))  # many jobs may be in one queue
        for permissions in (self.root, *self.selectors):
            if word and word not in permissions.allowed:
                continue
            queue = permissions.first_refused(accesses)
            if queue is None:
                return None
            if refused is None:
                refused = queue
        return ("command", word.encode()) if refused is None else ("key", refused)

    def may_add(self, queue: bytes) -> bool:
        """Whether rules let it add to ``queue``, with one command or another."""
        return any(rules.lets(queue, ADD) for rules in (self.root, *self.selectors))

    def adds_to(self) -> list[bytes]:
        """The globs of the queues that it may add to."""
        found: list[bytes] = []
        for rules in (self.root, *self.selectors):
            if rules.every_queue:
                found.append(b"*")
            found += [pattern for pattern, rights in rules.patterns.items() if rights & ADD]
        return found

    # ---- describing it ----------------------------------------------------------------------

    def describe(self) -> bytes:
        """Its rules, as written; applied to a new user, they recreate this one."""
        words = [b"on" if self.enabled else b"off"]
        if self.nopass:
            words.append(b"nopass")
        words += [b"#" + password for password in self.passwords]
        words.append(self.root.describe())
        if self.budget is not None:
            words.append(self.budget.describe())
        words += [b"(%b)" % selector.describe() for selector in self.selectors]
        return b" ".join(words)

    def line(self) -> bytes:
        """Its line in ACL LIST and in files."""
        return b"user %b %b" % (self.name, self.describe())


def _checked(hashed: bytes) -> bytes:
    if not _HASH.fullmatch(hashed):
        raise RuleError(_BAD_HASH)
    return hashed


def check_name(name: bytes) -> None:
    """Raise ``SetUserError`` unless ``name`` is valid for a user."""
    if has_space(name):
        text = "Usernames can't contain spaces or null characters"
    elif not name:
        text = "Usernames can't be empty"
    elif not _is_printable(name):
        # Shown on a terminal, they would be commands to it.
        text = "Usernames can only contain printable characters, in UTF-8"
    else:
        return
    raise SetUserError(name, text, text)


def _is_printable(name: bytes) -> bool:
    try:
        return name.decode().isprintable()
    except UnicodeDecodeError:
        return False


def everybody(catalog: Catalog | None = None) -> User:
    """Return the default user in its initial state: no password, no limits."""
    user = User(DEFAULT, catalog or Catalog(()))
    user.set((b"on", b"nopass", b"~*", b"&*", b"+@all"))
    return user
