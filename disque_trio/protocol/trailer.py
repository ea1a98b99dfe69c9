"""The trailer of a job: what C Disque has no field for, as bytes at the end of the body.

A job has one if bit 7 of its flags is set. C nodes carry the flag and the body wherever the job
goes; nodes with extensions remove the trailer before a client sees the body. From its end: version
u8, length of the fields u32, the fields (see ``fields``), and in front of these the body. Fields of
unknown types are preserved, and so is the whole trailer of a later version.
"""

from struct import Struct
from typing import Final

from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    pack_fields,
    pack_number,
    pack_texts,
    unpack_fields,
    unpack_number,
    unpack_texts,
)
from disque_trio.protocol.serialjob import ID_LENGTH, SerialJobError, read_u32

FLAG_TRAILER: Final = 128
VERSION: Final = 1
_END: Final = Struct("<IB")
_END_SIZE: Final = 5

# Types of fields.
_HEADERS: Final = 1
_KEY: Final = 2
_KEY_UNTIL: Final = 3
_UPDATED: Final = 4
_LETTER: Final = 5
_REASON: Final = 6
_ATTEMPTS: Final = 7
_ENDING: Final = 8
_GROUP: Final = 9
_ADDED_TO: Final = 10
_NOTE: Final = 11
_KEY_STATE: Final = 12

# For how long a job has its key, if not until it has ended, or for a time.
UNTIL_START: Final = 1  # until a client gets it for the first time
STARTED: Final = 2  # a client got it: it has none any more

# How a job ended, or died.
ACKED: Final = 1
DEAD: Final = 2
EXPIRED: Final = 3
CANCELLED: Final = 4
GONE: Final = 5
REDRIVEN: Final = 6  # a dead letter was sent back
TERMINATE: Final = b"terminate"
"""Whoever cancelled the job wants its task to be ended, if that runs in a process of its own."""
ENDING_NAMES: Final = [b"", b"acked", b"dead", b"expired", b"cancelled", b"gone", b"acked"]

# Why a job became a dead letter.
BY_ATTEMPTS: Final = 1
BY_EXPIRY: Final = 2
BY_WORKER: Final = 3
BY_REDRIVE: Final = 4  # it no longer is one: it was sent back
DEATH_NAMES: Final = [b"", b"attempts", b"expired", b"refused", b"redriven"]


_NODE_LENGTH: Final = 8  # bytes of a node's id, as in job ids
_MOST: Final = 2**32 - 1  # deliveries: clients could not read the sum of larger numbers


class Letter:
    """The origin of a dead letter.

    Attributes:
        first: id of the first job, before it died for the first time.
        queue: the queue that it came from.
        why: BY_ATTEMPTS, BY_EXPIRY or BY_WORKER; BY_REDRIVE once it was sent back.
        attempts: how often it was delivered, as far as known.
        reason: given by the last worker that refused it; empty: none.
    """

    __slots__ = ("attempts", "first", "queue", "reason", "why")

    def __init__(self, first: bytes, queue: bytes, why: int, attempts: int, reason: bytes) -> None:
        self.first = first
        self.queue = queue
        self.why = why
        self.attempts = attempts
        self.reason = reason

    def shown(self) -> list[tuple[bytes, bytes | int]]:
        """Its fields, by their names in SHOW."""
        return [
            (b"dead-from", self.queue),
            (b"dead-why", DEATH_NAMES[self.why]),
            (b"dead-attempts", self.attempts),
            (b"dead-reason", self.reason),
            (b"first-id", self.first),
        ]

    def pack(self) -> bytes:
        """The value of its field."""
        numbers = pack_number(self.why) + pack_number(self.attempts)
        return pack_texts([self.first, self.queue, numbers, self.reason])


def unpack_letter(value: bytes) -> Letter:
    """The letter in the value of a field. Raises ``FieldsError``."""
    texts = unpack_texts(value)
    if len(texts) < 4 or len(texts[0]) != ID_LENGTH or len(texts[2]) != 16:
        raise FieldsError("malformed origin of a dead letter")
    why = unpack_number(texts[2][:8])
    if not 0 < why < len(DEATH_NAMES):
        raise FieldsError(f"unknown cause of death {why}")
    return Letter(texts[0], texts[1], why, _count(texts[2][8:]), texts[3])


class Ending:
    """The way a job ended, if it was not just acknowledged.

    Attributes:
        kind: ACKED, DEAD, CANCELLED or REDRIVEN.
        result: of the worker (ACKED); TERMINATE or nothing (CANCELLED).
        to: the queue of the job that follows (DEAD, REDRIVEN).
        ttl: how long that lives, s.
        letter: the origin of that job.
    """

    __slots__ = ("kind", "letter", "result", "to", "ttl")

    def __init__(
        self,
        kind: int,
        result: bytes = b"",
        to: bytes = b"",
        ttl: int = 0,
        letter: Letter | None = None,
    ) -> None:
        self.kind = kind
        self.result = result
        self.to = to
        self.ttl = ttl
        self.letter = letter

    def pack(self) -> bytes:
        """The value of its field."""
        letter = b"" if self.letter is None else self.letter.pack()
        numbers = pack_number(self.kind) + pack_number(self.ttl)
        return pack_texts([numbers, self.result, self.to, letter])


def unpack_ending(value: bytes) -> Ending:
    """The ending in the value of a field. Raises ``FieldsError``."""
    texts = unpack_texts(value)
    if len(texts) < 4 or len(texts[0]) != 16:
        raise FieldsError("malformed ending")
    kind = unpack_number(texts[0][:8])
    letter = unpack_letter(texts[3]) if texts[3] else None
    follows = kind in (DEAD, REDRIVEN)
    if not (follows or kind in (ACKED, CANCELLED)) or follows != (letter is not None):
        raise FieldsError(f"unknown ending {kind}")
    return Ending(kind, texts[1], texts[2], unpack_number(texts[0][8:]), letter)


class Trailer:
    """The fields of a job that C Disque does not have.

    Attributes:
        headers: names and values in turn.
        group: of ADDJOB GROUP; empty: none.
        note: of ADDJOB NOTE; empty: none.
        key: of ADDJOB UNIQUE; empty: none.
        key_until: when it is free again, in ms since the epoch; 0: when the job has ended.
        key_state: UNTIL_START or STARTED; 0: the job has the key as ``key_until`` says.
        updated: version of the last UPDATEJOB or QMOVE; 0: there was none.
        added_to: the queue that it was added to, if it was moved to another since; its key belongs
            to that queue. Empty: it was not moved.
        letter: its origin, if it is a dead letter.
        reason: of the last NACK; empty: none was given.
        attempts: how often clients of each node (first 8 characters of its id) got the job.
        ending: how it ended, if it was not just acknowledged.
        unknown: fields of later versions of this program.
        whole: the fields of a trailer of a later version, and that version; then there is nothing
            else.
        counted: its size in the memory account, in bytes.
        shared: whether that is also counted for the users who may add to the queue of its job.
    """

    __slots__ = (
        "added_to",
        "attempts",
        "counted",
        "ending",
        "group",
        "headers",
        "key",
        "key_state",
        "key_until",
        "letter",
        "note",
        "reason",
        "shared",
        "unknown",
        "updated",
        "whole",
    )

    def __init__(self) -> None:
        self.headers: list[bytes] = []
        self.group = b""
        self.note = b""
        self.key = b""
        self.key_until = 0
        self.key_state = 0
        self.updated = 0
        self.added_to = b""
        self.letter: Letter | None = None
        self.reason = b""
        self.attempts: dict[bytes, int] = {}
        self.ending: Ending | None = None
        self.unknown: list[Field] = []
        self.whole: tuple[bytes, int] | None = None
        self.counted = 0
        self.shared = False

    @property
    def has_key(self) -> bool:
        """Whether the job has a key now, as far as this says."""
        return self.key != b"" and self.key_state != STARTED

    def is_of_clients(self) -> bool:
        """Whether it has fields that clients, or nodes of a later version, have set, rather than
        only those that nodes add."""
        if self.headers or self.group or self.note or self.key or self.updated:
            return True
        return bool(self.unknown) or self.whole is not None

    def inherit(self, before: "Trailer") -> None:
        """Take what a job passes on to the one that follows it."""
        self.headers = before.headers
        self.group = before.group
        self.note = before.note

    def shown(self) -> list[tuple[bytes, bytes | int]]:
        """Those fields but the headers that are set and that SHOW tells, by their names there."""
        found: list[tuple[bytes, bytes | int]] = []
        if self.group:
            found.append((b"group", self.group))
        if self.note:
            found.append((b"note", self.note))
        if self.has_key:
            found.append((b"unique-key", self.key))
            if self.key_state == UNTIL_START:
                found.append((b"unique-until", b"start"))
        if self.added_to:
            found.append((b"added-to", self.added_to))
        if self.attempts:
            found.append((b"attempts", sum(self.attempts.values())))
        if self.reason:
            found.append((b"last-reason", self.reason))
        return found if self.letter is None else found + self.letter.shown()

    def pack(self) -> bytes:
        """Its bytes, which follow the body."""
        if self.whole is not None:
            data, version = self.whole
            return data + _END.pack(len(data), version)
        fields: list[Field] = []
        if self.headers:
            fields.append((_HEADERS, pack_texts(self.headers)))
        if self.group:
            fields.append((_GROUP, self.group))
        if self.note:
            fields.append((_NOTE, self.note))
        if self.key:
            fields.append((_KEY, self.key))
        if self.key_until:
            fields.append((_KEY_UNTIL, pack_number(self.key_until)))
        if self.key_state:
            fields.append((_KEY_STATE, pack_number(self.key_state)))
        if self.updated:
            fields.append((_UPDATED, pack_number(self.updated)))
        if self.added_to:
            fields.append((_ADDED_TO, self.added_to))
        if self.letter is not None:
            fields.append((_LETTER, self.letter.pack()))
        if self.reason:
            fields.append((_REASON, self.reason))
        if self.attempts:
            fields.append((_ATTEMPTS, pack_attempts(self.attempts)))
        if self.ending is not None:
            fields.append((_ENDING, self.ending.pack()))
        data = pack_fields(fields + self.unknown)
        return data + _END.pack(len(data), VERSION)


def split_body(data: bytes) -> tuple[bytes, Trailer]:
    """Split ``data`` into the body and the trailer of a job that has one.

    Raises:
        SerialJobError: there is no trailer at its end, or it is malformed.
    """
    fields_end = len(data) - _END_SIZE
    if fields_end < 0:
        raise SerialJobError("the body is too short for a trailer")
    start = fields_end - read_u32(data, fields_end)
    version = data[len(data) - 1]
    if version == 0:
        raise SerialJobError("the body does not end in a trailer")
    if start < 0:
        raise SerialJobError("the trailer is longer than the body")
    trailer = Trailer()
    if version > VERSION:
        trailer.whole = (data[start:fields_end], version)
        return data[:start], trailer
    try:
        _read(trailer, unpack_fields(data[start:fields_end]))
    except FieldsError as problem:
        raise SerialJobError(f"malformed trailer: {problem}") from problem
    return data[:start], trailer


def _read(trailer: Trailer, fields: list[Field]) -> None:
    """Set ``trailer`` from ``fields``. Raises ``FieldsError``."""
    for type, value in fields:
        if type == _HEADERS:
            trailer.headers = unpack_texts(value)
            if len(trailer.headers) % 2:
                raise FieldsError("a header without a value")
        elif type == _GROUP:
            trailer.group = value
        elif type == _NOTE:
            trailer.note = value
        elif type == _KEY:
            trailer.key = value
        elif type == _KEY_UNTIL:
            trailer.key_until = unpack_number(value)
        elif type == _KEY_STATE:
            trailer.key_state = _key_state(value)
        elif type == _UPDATED:
            trailer.updated = unpack_number(value)
        elif type == _ADDED_TO:
            trailer.added_to = value
        elif type == _LETTER:
            trailer.letter = unpack_letter(value)
        elif type == _REASON:
            trailer.reason = value
        elif type == _ATTEMPTS:
            trailer.attempts = unpack_attempts(value)
        elif type == _ENDING:
            trailer.ending = unpack_ending(value)
        else:
            trailer.unknown.append((type, value))


def pack_attempts(attempts: dict[bytes, int]) -> bytes:
    """The value of a field with deliveries by node."""
    return b"".join([node + pack_number(count) for node, count in attempts.items()])


def unpack_attempts(value: bytes) -> dict[bytes, int]:
    """Deliveries by node, from the value of a field. Raises ``FieldsError``."""
    size = _NODE_LENGTH + 8
    if len(value) % size:
        raise FieldsError("malformed count of attempts")
    return {
        value[at : at + _NODE_LENGTH]: _count(value[at + _NODE_LENGTH : at + size])
        for at in range(0, len(value), size)
    }


def _key_state(value: bytes) -> int:
    """The state of a key in the value of a field. Raises ``FieldsError``."""
    state = unpack_number(value)
    if not 0 < state <= STARTED:
        raise FieldsError(f"unknown state of a key {state}")
    return state


def _count(value: bytes) -> int:
    """The number of deliveries in ``value``. Another node may say anything."""
    return min(unpack_number(value), _MOST)
