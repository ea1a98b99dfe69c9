"""The place where users are declared and saved: ``aclfile``, or ``user`` settings."""

import codecs
from pathlib import Path

from disque_trio.config import Settings
from disque_trio.config.words import to_bytes, to_text
from disque_trio.disk import replace_file
from disque_trio.respserver.acl.user import User
from disque_trio.respserver.acl.users import DeclarationError, Users

_BOTH = (
    "there are users in the configuration, and an aclfile as well. Users have to be declared in "
    "one of these places, not in both"
)
_MARK = "the file begins with a byte order mark. Save it as plain UTF-8, without one"


class UserFileError(Exception):
    """The users cannot be read; the text says where and why."""


class UserFile:
    """The users as declared.

    Args:
        settings: say where; ``keep`` sets ``user`` there.

    Attributes:
        path: of the file with users; None: they are in the settings.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Absolute, since the process may change to another directory.
        name = settings.get("aclfile")
        self.path = Path(settings.get("dir"), name) if name else None
        self._known: object = ()  # what was last read or written

    def read(self, users: Users) -> "dict[bytes, User]":
        """Return the declared users; ``users`` defines which rules there are. Raises
        ``UserFileError``."""
        settings = self._settings
        if self.path is None:
            self._known = settings.get("user")
            return _of_settings(users, settings)
        if settings.get("user"):
            raise UserFileError(_BOTH)
        data = _contents(self.path)
        self._known = data
        return _of_file(users, self.path, data)

    def is_new(self, fresh: Settings) -> bool:
        """Whether other users are declared now than were last read or written. ``fresh``: the
        current settings, whose users are adopted."""
        self._settings.put("user", fresh.get("user"))
        if self.path is None:
            return bool(fresh.get("user") != self._known)
        try:
            return _contents(self.path) != self._known
        except UserFileError:
            return True  # reading it reports why

    def write(self, users: Users) -> None:
        """Write ``users`` to the file, which must exist, in one step. Raises ``OSError``."""
        assert self.path is not None
        data = b"".join([user.line() + b"\n" for user in users.sorted()])
        replace_file(str(self.path), data)
        self._known = data

    def keep(self, users: Users) -> None:
        """Put ``users`` into the settings, unless they are in a file or already there."""
        if self.path is not None:
            return
        lines = sorted(users.own_lines())
        declared = _of_settings(users, self._settings)
        if lines != sorted(user.line() for user in declared.values()):
            words = [line.split()[1:] for line in lines]
            self._known = tuple(tuple(map(to_text, line)) for line in words)
            self._settings.put("user", self._known)


def check_users(users: Users, settings: Settings) -> None:
    """Check that the users in ``settings`` can be read. Raises ``UserFileError``."""
    UserFile(settings).read(users)


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise UserFileError(
            f"Error loading ACLs, opening file '{path}': {problem.strerror}"
        ) from problem


def _of_file(users: Users, path: Path, data: bytes) -> "dict[bytes, User]":
    """The users in the ``data`` of a file. Ignores empty lines, and those that begin with #."""
    problems = []
    declared = []
    if data.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserFileError(f"{path}:1: {_MARK}")
    for number, line in enumerate(data.split(b"\n"), 1):
        words = line.split()
        if not words or words[0].startswith(b"#"):
            continue
        if words[0].lower() != b"user" or len(words) == 1:
            problems.append((number, "line should start with user keyword, and a name behind it"))
        else:
            declared.append((number, words[1:]))
    found: dict[bytes, User] = {}
    for number, words in declared:
        try:
            users.declare(found, words)
        except DeclarationError as wrong:
            problems.append((number, str(wrong)))
    if problems:
        raise UserFileError(
            ". ".join(f"{path}:{number}: {problem}" for number, problem in sorted(problems))
        )
    return found


def _of_settings(users: Users, settings: Settings) -> "dict[bytes, User]":
    found: dict[bytes, User] = {}
    for line in settings.get("user"):
        try:
            users.declare(found, [to_bytes(word) for word in line])
        except DeclarationError as wrong:
            raise UserFileError(str(wrong)) from wrong
    return found
