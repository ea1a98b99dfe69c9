"""Who may do what."""

from enum import IntEnum


class Role(IntEnum):
    """A role may all that the ones before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @classmethod
    def parse(cls, word: str) -> "Role":
        """The role of this name. Raises ValueError."""
        try:
            return cls[word.strip().upper()]
        except KeyError:
            known = ", ".join(str(role) for role in cls)
            raise ValueError(f"{word!r} is no role; there are {known}") from None

    def __str__(self) -> str:
        return self.name.lower()
