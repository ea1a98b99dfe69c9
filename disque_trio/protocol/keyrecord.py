"""The record of a key of ADDJOB UNIQUE in append-only files: what a job's record does not say.

    UNIQUE queue key id until-ms state

A job's own record has its key. This one is for a key whose job is not in the file, because it is on
other nodes, or has ended and the key is kept for some time. ``until-ms`` is when the record
expires, in ms since the epoch; 0: the key is free, whatever earlier records say. C nodes do not
know this record.
"""

import re
from typing import Final, NamedTuple

from disque_trio.protocol.serialjob import is_job_id

# What a node knows of a key, in ascending order.
PENDING: Final = 1  # a node asked for it and may add the job
CONFIRMED: Final = 2  # the job has its copies; this node will not pass it over
ADDED: Final = 3  # its producer was, or may have been, told its id
_STATES: Final = [b"", b"pending", b"confirmed", b"added"]
_DIGITS: Final = 18  # of a time
MAX_UNTIL: Final = 10**_DIGITS - 1  # ms since the epoch
MAX_KEY: Final = 64 * 1024  # bytes
_PRINTABLE: Final = re.compile(rb"[!-~]+")
_LASTS: Final = b"-for"  # follows the state: the key outlives the job


class KeyRecord(NamedTuple):
    """One record.

    Attributes:
        queue, key, id: the job ``id`` has the key.
        until: ms since the epoch; 0: the key is free.
        state: PENDING, CONFIRMED or ADDED.
        lasts: it is kept until then, whatever becomes of the job.
    """

    queue: bytes
    key: bytes
    id: bytes
    until: int
    state: int
    lasts: bool

    def pack(self) -> bytes:
        """Its bytes in the file."""
        state = _STATES[self.state] + (_LASTS if self.lasts else b"")
        words = [b"UNIQUE", self.queue, self.key, self.id, b"%d" % self.until, state]
        return b"*6\r\n" + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


def is_plain_id(id: bytes) -> bool:
    """Whether ``id`` is the id of a job, and can be told to a client as it is."""
    return is_job_id(id) and _PRINTABLE.fullmatch(id) is not None


def fits(key: bytes, id: bytes, until: int, state: int) -> bool:
    """Whether a client, another node or a file may say this of a key. Anything else is damaged."""
    return (
        0 < len(key) <= MAX_KEY
        and is_plain_id(id)
        and 0 <= until <= MAX_UNTIL
        and PENDING <= state <= ADDED
    )


def read_key(record: list[bytes]) -> KeyRecord | None:
    """Parse a record of a key; None: it is another record."""
    if len(record) != 6 or record[0].upper() != b"UNIQUE":
        return None
    _, queue, key, id, until, state = record
    name = state.removesuffix(_LASTS)
    if not until.isdigit() or len(until) > _DIGITS or name not in _STATES:
        return None
    number = _STATES.index(name)
    if not fits(key, id, int(until), number):
        return None
    return KeyRecord(queue, key, id, int(until), number, name != state)
