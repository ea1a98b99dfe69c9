"""REQUEUED: tells other holders with extensions that a job was not processed."""

from typing import Final

from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    pack_number,
    unpack_number,
)
from disque_trio.protocol.serialjob import ID_LENGTH
from disque_trio.protocol.trailer import pack_attempts, unpack_attempts

# Types of fields.
_ID: Final = 1
_FLAGS: Final = 2
_DELAY: Final = 3
_REASON: Final = 4
_ATTEMPTS: Final = 5
_NACKS: Final = 6


class Requeued:
    """The content of REQUEUED: how a job was not processed.

    Attributes:
        id: of the job.
        flags: INCR_NACKS: a worker handed it back. INCR_DELIVERIES: nobody acknowledged it in time.
            0: neither, the sender only shares what it knows.
        delay: ms from now on in which nobody may queue it; 0 with flags: the sender has queued
            it.
        reason: the worker's, if it gave one.
        attempts: deliveries by node, see ``Trailer``.
        nacks: how often workers handed the job back, as far as the sender knows; -1: it does not
            say.
    """

    __slots__ = ("attempts", "delay", "flags", "id", "nacks", "reason")

    def __init__(
        self,
        id: bytes,
        flags: int,
        delay: int,
        reason: bytes,
        attempts: dict[bytes, int],
        nacks: int = -1,
    ) -> None:
        self.id = id
        self.flags = flags
        self.delay = delay
        self.reason = reason
        self.attempts = attempts
        self.nacks = nacks

    def pack(self) -> list[Field]:
        """The fields of the packet."""
        fields: list[Field] = [(_ID, self.id), (_FLAGS, pack_number(self.flags))]
        if self.delay:
            fields.append((_DELAY, pack_number(self.delay)))
        if self.reason:
            fields.append((_REASON, self.reason))
        if self.attempts:
            fields.append((_ATTEMPTS, pack_attempts(self.attempts)))
        if self.nacks >= 0:
            fields.append((_NACKS, pack_number(self.nacks)))
        return fields


def unpack_requeued(fields: list[Field]) -> Requeued:
    """Read the fields of the packet. Raises ``FieldsError``."""
    found = Requeued(b"", 0, 0, b"", {})
    for type, value in fields:
        if type == _ID:
            found.id = value
        elif type == _FLAGS:
            found.flags = unpack_number(value)
        elif type == _DELAY:
            found.delay = unpack_number(value)
        elif type == _REASON:
            found.reason = value
        elif type == _ATTEMPTS:
            found.attempts = unpack_attempts(value)
        elif type == _NACKS:
            found.nacks = unpack_number(value)
    if len(found.id) != ID_LENGTH:
        raise FieldsError("a job id is missing")
    return found
