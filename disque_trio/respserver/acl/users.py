"""The table of users."""

from collections.abc import Sequence

from disque_trio.respserver.acl.catalog import Catalog
from disque_trio.respserver.acl.log import Log
from disque_trio.respserver.acl.logins import Logins
from disque_trio.respserver.acl.user import (
    DEFAULT,
    SetUserError,
    User,
    check_name,
    everybody,
)


class DeclarationError(ValueError):
    """A declaration of a user is wrong; the text says what is."""


class Users:
    """The users of one server. Initially there is only the default one, which may do everything.

    Args:
        catalog: what rules can name.

    Attributes:
        catalog: as given.
        by_name: all users.
        default: the one of clients that have not logged in.
        log: refusals.
        logins: limits wrong passwords.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.default = everybody(catalog)
        self.by_name: dict[bytes, User] = {DEFAULT: self.default}
        self.log = Log()
        self.logins = Logins()
        self._required = b""
        self._declares_default = False

    @property
    def only_password(self) -> bool:
        """Whether the only rule is the password of ``require``, or that there is none."""
        return len(self.by_name) == 1 and self.default.describe() == self._as_required().describe()

    def sorted(self) -> list[User]:
        """Return all users, sorted by name."""
        return [self.by_name[name] for name in sorted(self.by_name)]

    # ---- changing them ----------------------------------------------------------------------

    def require(self, password: bytes, by_client: bool = False) -> None:
        """Make ``password`` the only one of the default user; empty: any will do (requirepass). A
        default user that was declared (``replace``) keeps its own, unless a client asks for
        this."""
        self._required = password
        if by_client or not self._declares_default:
            self.default.set(_password_rules(password))

    def set(self, name: bytes, rules: Sequence[bytes]) -> None:
        """Create or change a user. Raises ``SetUserError``; then nothing has changed."""
        user = self.by_name.get(name)
        if user is None:
            check_name(name)
            user = User(name, self.catalog)
        user.set(rules)
        self.by_name[name] = user

    def delete(self, name: bytes) -> User | None:
        """Remove a user, which must not be the default one; None: there is none."""
        return self.by_name.pop(name, None)

    def replace(self, new: "dict[bytes, User]") -> list[User]:
        """Replace all users with ``new``; return those that no longer exist. The default user, if
        not among them, returns to its initial state, with the password of ``require``."""
        gone = [user for name, user in self.by_name.items() if name not in new and name != DEFAULT]
        self._declares_default = DEFAULT in new
        self.default.become(new.get(DEFAULT) or self._as_required())
        kept = {DEFAULT: self.default}
        for name, user in new.items():
            if name != DEFAULT:
                # Clients have logged in as the existing object.
                there = kept[name] = self.by_name.get(name) or user
                if there is not user:
                    there.become(user)
        self.by_name = kept
        return gone

    def _as_required(self) -> User:
        user = everybody(self.catalog)
        user.set(_password_rules(self._required))
        return user

    # ---- declarations -----------------------------------------------------------------------

    def declare(self, declared: "dict[bytes, User]", words: Sequence[bytes]) -> None:
        """Add the user that ``words`` (its name and its rules) declare to ``declared``. Raises
        ``DeclarationError``."""
        name = words[0]
        shown = name.decode("utf-8", "surrogateescape")
        if name in declared:
            raise DeclarationError(f"Duplicate user '{shown}' found")
        user = User(name, self.catalog)
        try:
            check_name(name)
            user.set(words[1:])
        except SetUserError as wrong:
            raise DeclarationError(
                f"Error loading ACL rule '{wrong.rule}' for the user named '{shown}': "
                f"{wrong.reason}"
            ) from wrong
        declared[name] = user

    def own_lines(self) -> list[bytes]:
        """The lines that recreate these users, if ``require`` is called with the same password."""
        plain = self._as_required().describe()
        return [
            user.line()
            for user in self.sorted()
            if user is not self.default or user.describe() != plain
        ]

    # ---- logging in -------------------------------------------------------------------------

    def find(self, name: bytes, password: bytes) -> User | None:
        """The user who may log in as ``name`` with ``password``; None: nobody may."""
        user = self.by_name.get(name)
        # An unknown name takes as long as a known one.
        right = (user or self.default).has_password(password)
        return user if user is not None and user.enabled and right else None


def _password_rules(password: bytes) -> tuple[bytes, ...]:
    return (b"resetpass", b">" + password) if password else (b"nopass",)
