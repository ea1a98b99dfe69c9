"""Messages between nodes about keys of ADDJOB UNIQUE: questions of the kind CLAIM, some of which
have no answer, and their answers."""

from typing import Final

from disque_trio.node.core.rpc.calls import CLAIM as KIND
from disque_trio.node.core.rpc.calls import untracked
from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    pack_number,
    pack_texts,
    unpack_number,
    unpack_texts,
)
from disque_trio.protocol.keyrecord import ADDED, MAX_UNTIL, PENDING, fits, is_plain_id

# What a node says.
CLAIM: Final = 1  # may this job have the key? Answered by a ``Vote``
ASK: Final = 2  # what do you know of this job? Answered by a ``Vote``
CANCEL: Final = 3  # forget your copy of this job: it was not added. Answered by a ``Vote``
WITHDRAW: Final = 4  # this job does not want the key
SAY_ADDED: Final = 5  # this job was added
FREE: Final = 6  # this job has ended, or has started and had the key only until then
BURY: Final = 7  # take no copy of this job

# What a node knows of a job.
NOTHING: Final = 0
ADDING: Final = 1  # it is about to add the job
HELD: Final = 2  # it holds the job, which has not ended
ENDED: Final = 3  # it knows that the job has ended
REFUSED: Final = 4  # the job was given up: it does not hold it, and will not take a copy
STARTED: Final = 5  # it holds the job, which had its key until a client got it

# What became of a request to replace a job (see ``replacements``); anything else is an error.
REPLACED: Final = b"+OK\r\n"
HAS_STARTED: Final = b"+STARTED\r\n"  # a client has had it, and so it has no key any more
AGAIN: Final = b"+AGAIN\r\n"  # it is not here, has ended, or another change came between

_BODY: Final = 2  # type of the only field besides the ticket, whose type is lower


class KeyMessage:
    """A message about the job ``id`` and the key ``key`` of ``queue``.

    Attributes:
        op: CLAIM to BURY.
        final: CLAIM: the job has its copies, and the voter must not pass it over.
        lasts: the key is kept for ``left`` ms, whatever becomes of the job; otherwise no longer
            than the job.
        instead: CLAIM: the job that may have the key has ended, or was never added. If it is the
            job itself: the node that began to add it is away, so its holders see to its copies
            before they agree.
        replaces: CLAIM: a job that has the key is given the contents of this one, and lives as long
            as this one, ``left`` ms.
        any: this is certain; otherwise it counts only if the voter knows of no more than a claim.
    """

    __slots__ = ("any", "final", "id", "instead", "key", "lasts", "left", "op", "queue", "replaces")

    def __init__(self, op: int, queue: bytes, key: bytes, id: bytes) -> None:
        self.op = op
        self.queue = queue
        self.key = key
        self.id = id
        self.final = False
        self.lasts = False
        self.left = 0
        self.instead = b""
        self.any = False
        self.replaces = False

    def pack(self) -> list[Field]:
        """The fields of the message as a question."""
        bits = self.final | self.lasts << 1 | self.any << 2 | self.replaces << 3
        numbers = pack_number(self.op) + pack_number(bits) + pack_number(self.left)
        texts = [self.queue, self.key, self.id, self.instead, numbers]
        return [(_BODY, pack_texts(texts))]

    def untracked(self) -> list[Field]:
        """The fields of the message as a question without an answer."""
        return untracked(KIND, self.pack())


def read_message(fields: list[Field]) -> KeyMessage:
    """The message in ``fields``. Raises ``FieldsError``."""
    texts = unpack_texts(fields[0][1]) if fields and fields[0][0] == _BODY else []
    if len(texts) != 5 or len(texts[4]) != 24 or len(texts[2]) != 40:
        raise FieldsError("malformed message about a key")
    message = KeyMessage(unpack_number(texts[4][:8]), texts[0], texts[1], texts[2])
    bits = unpack_number(texts[4][8:16])
    message.final = bits & 1 != 0
    message.lasts = bits & 2 != 0
    message.any = bits & 4 != 0
    message.replaces = bits & 8 != 0
    message.left = unpack_number(texts[4][16:])
    message.instead = texts[3]
    if (
        not CLAIM <= message.op <= BURY
        or not fits(message.key, message.id, message.left, PENDING)
        or not (message.instead == b"" or is_plain_id(message.instead))
    ):
        raise FieldsError("a message about a key that there cannot be")
    return message


class Vote:
    """A node's answer about a key.

    Attributes:
        id: the job that has it; empty: none.
        state: of that entry; 0: there is none.
        lasts, left: see ``KeyMessage``.
        status: what it knows of that job, or, in answer to ASK and CANCEL, of the job in question.
    """

    __slots__ = ("id", "lasts", "left", "state", "status")

    def __init__(self, id: bytes, state: int, lasts: bool, left: int, status: int) -> None:
        self.id = id
        self.state = state
        self.lasts = lasts
        self.left = left
        self.status = status

    def pack(self) -> list[Field]:
        """The fields of the vote as an answer."""
        numbers = [self.state, int(self.lasts), self.left, self.status]
        return [(_BODY, pack_texts([self.id, b"".join([pack_number(n) for n in numbers])]))]


def read_vote(fields: list[Field]) -> Vote | None:
    """The vote in ``fields``; None: none could be read, which counts as no answer."""
    try:
        texts = unpack_texts(fields[0][1]) if fields and fields[0][0] == _BODY else []
        if len(texts) != 2 or len(texts[1]) != 32 or len(texts[0]) not in (0, 40):
            return None
        state, lasts, left, status = [
            unpack_number(texts[1][at : at + 8]) for at in range(0, 32, 8)
        ]
        if texts[0] and not is_plain_id(texts[0]):
            return None
        if state > ADDED or left > MAX_UNTIL or status > STARTED:
            return None
        return Vote(texts[0], state, lasts != 0, left, status)
    except FieldsError:
        return None
