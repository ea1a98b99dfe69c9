"""The record of a key of ADDJOB UNIQUE in append-only files: what a job's record does not say.

    UNIQUE queue key id until-ms state

A job's own record has its key. This one is for a key whose job is not in the file, because it is on
other nodes, or has ended and the key is kept for some time. ``until-ms`` is when the record
expires, in ms since the epoch; 0: the key is free, whatever earlier records say. C nodes do not
know this record.
"""

from typing import Final, NamedTuple

from disque_trio.protocol.serialjob import is_job_id

# What a node knows of a key, in ascending order.
PENDING: Final = 1  # a node asked for it and may add the job
CONFIRMED: Final = 2  # the job has its copies; this node will not pass it over
ADDED: Final = 3  # its producer was, or may have been, told its id
_STATES: Final = [b"", b"pending", b"confirmed", b"added"]
_DIGITS: Final = 18  # of a time
MAX_UNTIL: Final = 10**_DIGITS - 1  # ms since the epoch
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


def read_key(record: list[bytes]) -> KeyRecord | None:
    """Parse a record of a key; None: it is another record."""
    if len(record) != 6 or record[0].upper() != b"UNIQUE":
        return None
    _, queue, key, id, until, state = record
    name = state.removesuffix(_LASTS)
    if not until.isdigit() or len(until) > _DIGITS or not name or name not in _STATES:
        return None
    if not is_job_id(id):
        return None
    return KeyRecord(queue, key, id, int(until), _STATES.index(name), name != state)
