"""Event ids as consumers write them: ``T_EXPIRE`` or ``T_EXPIRE_N`` (see ``ops``)."""

from typing import Final

_LONGEST: Final = 16  # digits of a number


def is_event_id(id: bytes) -> bool:
    """Whether ``id`` could be that of an event."""
    parts = id.split(b"_")
    if not 2 <= len(parts) <= 3:
        return False
    return all(part.isdigit() and len(part) <= _LONGEST for part in parts)
