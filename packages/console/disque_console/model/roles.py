"""The roles of visitors."""

from enum import IntEnum


class Role(IntEnum):
    """A role. Each one includes the permissions of those before it."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @classmethod
    def parse(cls, word: str) -> "Role":
        """The role with this name. Raises ValueError."""
        try:
            return cls[word.strip().upper()]
        except KeyError:
            known = ", ".join(str(role) for role in cls)
            raise ValueError(f"{word!r} is not a role; the roles are {known}") from None

    def __str__(self) -> str:
        return self.name.lower()
