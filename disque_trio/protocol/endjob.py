"""ENDJOB: tells other holders with extensions that a job ended in another way than by a plain
acknowledgement; C nodes get a SETACK instead."""

from typing import Final

from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    pack_number,
    pack_texts,
    unpack_number,
    unpack_texts,
)
from disque_trio.protocol.serialjob import ID_LENGTH
from disque_trio.protocol.trailer import Ending, unpack_ending

# Types of fields.
_ABOUT: Final = 1
_ENDING: Final = 2


class EndJob:
    """The way a job ended.

    Attributes:
        id: of the job.
        holders: how many nodes may hold it, as far as the sender knows.
        mark: 16-bit mark of the set of these, as in ``bus.JobMessage``.
        ending: how it ended.
    """

    __slots__ = ("ending", "holders", "id", "mark")

    def __init__(self, id: bytes, holders: int, mark: int, ending: Ending) -> None:
        self.id = id
        self.holders = holders
        self.mark = mark
        self.ending = ending

    def pack(self) -> list[Field]:
        """The fields of the packet."""
        about = [self.id, pack_number(self.holders), pack_number(self.mark)]
        return [(_ABOUT, pack_texts(about)), (_ENDING, self.ending.pack())]


def unpack_endjob(fields: list[Field]) -> EndJob:
    """Read the fields of the packet. Raises ``FieldsError``."""
    about: list[bytes] = []
    ending: Ending | None = None
    for type, value in fields:
        if type == _ABOUT:
            about = unpack_texts(value)
        elif type == _ENDING:
            ending = unpack_ending(value)
    if len(about) != 3 or len(about[0]) != ID_LENGTH or ending is None:
        raise FieldsError("the job or how it ended is missing")
    return EndJob(about[0], unpack_number(about[1]), unpack_number(about[2]) & 0xFFFF, ending)
