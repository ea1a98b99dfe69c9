"""The users file: lines ``name:role:hash``, with scrypt hashes."""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Final

from disque_console.model.roles import Role

_COST: Final = 1 << 14
_BLOCK: Final = 8
_KIND: Final = "scrypt"


@dataclass(frozen=True, slots=True)
class User:
    """A line of the file."""

    name: str
    role: Role
    hash: str

    @property
    def mark(self) -> str:
        """A value that changes with the password, but does not reveal it."""
        return hashlib.sha256(self.hash.encode()).hexdigest()[:16]


def hash_password(password: str) -> str:
    """Hash a password, with a random salt."""
    salt = secrets.token_bytes(16)
    parts = (base64.b64encode(part).decode() for part in (salt, _scrypt(password, salt, _COST)))
    return "$".join([_KIND, str(_COST), *parts])


def is_password(password: str, hash: str) -> bool:
    """Whether ``hash`` is a hash of ``password``, which must not be empty. Deliberately takes about
    50 ms."""
    if not password:
        return False
    try:
        _, cost, salt, key = hash.split("$")
        known = base64.b64decode(key)
        return hmac.compare_digest(_scrypt(password, base64.b64decode(salt), int(cost)), known)
    except ValueError:
        return False


NOBODY: Final = f"{_KIND}${_COST}${'A' * 22}==${'A' * 43}="
"""Compared with for a user who does not exist, to take the same time."""


def read_users(text: str) -> dict[str, User]:
    """The users in a file, by name. Empty lines and lines that begin with ``#`` are ignored.

    Raises:
        ValueError: a line cannot be read; the text says which.
    """
    users: dict[str, User] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        name, _, rest = line.partition(":")
        role, _, hash = rest.partition(":")
        if not name or hash.count("$") != 3 or not hash.startswith(f"{_KIND}$"):
            raise ValueError(
                f"line {number} is not of the form name:role:hash (see --hash-password)"
            )
        if name in users:
            raise ValueError(f"line {number}: {name} is listed twice")
        try:
            users[name] = User(name, Role.parse(role), hash)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return users


def _scrypt(password: str, salt: bytes, cost: int) -> bytes:
    word = password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(word, salt=salt, n=cost, r=_BLOCK, p=1, dklen=32)
