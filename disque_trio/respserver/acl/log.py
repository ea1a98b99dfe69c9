"""The entries of ACL LOG: refused requests and failed logins."""

from collections import deque
from typing import Final

GROUPED: Final = 60_000  # ms within which repetitions are counted in one entry
_LONGEST: Final = 256  # bytes of a name to keep


class AclEntry:
    """Something that was refused.

    Attributes:
        reason: command, key, auth, or auth-limit.
        context: toplevel or multi.
        object: the command, the queue, the command that gave the password, or its origin.
        user: its name, or the given one.
        client: the last one, as in CLIENT LIST.
        time: of the last one, in ms.
        count: how many there were.
    """

    __slots__ = ("client", "context", "count", "object", "reason", "time", "user")

    def __init__(
        self, reason: str, context: str, object: bytes, user: bytes, client: str, time: int
    ) -> None:
        self.reason = reason
        self.context = context
        self.object = object
        self.user = user
        self.client = client
        self.time = time
        self.count = 1


class Log:
    """The entries, the newest first.

    Attributes:
        max_len: how many to keep.
    """

    def __init__(self) -> None:
        self.entries: deque[AclEntry] = deque()
        self.max_len = 128

    def add(
        self, now: int, reason: str, context: str, object: bytes, user: bytes, client: str
    ) -> None:
        """Record what was refused at ``now`` (ms)."""
        new = AclEntry(reason, context, object[:_LONGEST], user[:_LONGEST], client, now)
        for entry in self.entries:
            if now - entry.time > GROUPED:
                break  # the rest are older
            if (entry.reason, entry.context, entry.object, entry.user) == (
                new.reason,
                new.context,
                new.object,
                new.user,
            ):
                new.count += entry.count
                self.entries.remove(entry)
                break
        self.entries.appendleft(new)
        self.trim()

    def trim(self) -> None:
        """Drop the oldest entries beyond ``max_len``."""
        while len(self.entries) > self.max_len:
            self.entries.pop()
