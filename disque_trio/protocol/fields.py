"""Lists of typed values: bytes <-> values.

This is the format of everything for which C Disque has no room: the trailer of a job, and packets
for nodes with extensions. Each value is preceded by its type (u8) and its length (u32,
little-endian, as everywhere in a job). Readers ignore unknown types.
"""

from struct import Struct
from typing import Final, TypeAlias

from disque_trio.protocol.serialjob import read_u32

_HEAD: Final = Struct("<BI")
_HEAD_SIZE: Final = 5
_U32: Final = Struct("<I")
_U64: Final = Struct("<Q")
_U64_MAX: Final = 2**64 - 1

Field: TypeAlias = tuple[int, bytes]  # type and value


class FieldsError(ValueError):
    """The bytes are not a list of fields; the text says why."""


def pack_fields(fields: list[Field]) -> bytes:
    """The bytes of ``fields``."""
    return b"".join([_HEAD.pack(type, len(value)) + value for type, value in fields])


def unpack_fields(data: bytes) -> list[Field]:
    """The fields in ``data``, in order.

    Raises:
        FieldsError: it is not a list of fields.
    """
    found: list[Field] = []
    at = 0
    size = len(data)
    while at < size:
        start = at + _HEAD_SIZE
        if start > size:
            raise FieldsError("a field ends in its head")
        end = start + read_u32(data, at + 1)
        if end > size:
            raise FieldsError("a field goes past the end")
        found.append((data[at], data[start:end]))
        at = end
    return found


def pack_number(number: int) -> bytes:
    """A value that holds a number, limited to 0 ... 2^64 - 1."""
    if not 0 <= number <= _U64_MAX:
        number = 0 if number < 0 else _U64_MAX
    return _U64.pack(number)


def number_of(fields: list[Field], type: int) -> int:
    """The number in the first of ``fields`` with this type that holds one; 0: there is none."""
    for other, value in fields:
        if other == type and len(value) == _U64.size:
            return unpack_number(value)
    return 0


def unpack_number(value: bytes) -> int:
    """The number in a value. Raises ``FieldsError``."""
    if len(value) != _U64.size:
        raise FieldsError(f"{len(value)} bytes are not a number")
    number: int = _U64.unpack(value)[0]
    return number


def pack_texts(texts: list[bytes]) -> bytes:
    """A value that holds a list of texts, each preceded by its length (u32)."""
    return b"".join([_U32.pack(len(text)) + text for text in texts])


def unpack_texts(value: bytes) -> list[bytes]:
    """The texts in a value. Raises ``FieldsError``."""
    found: list[bytes] = []
    at = 0
    size = len(value)
    while at < size:
        start = at + 4
        if start > size:
            raise FieldsError("a text ends in its length")
        at = start + read_u32(value, start - 4)
        if at > size:
            raise FieldsError("a text goes past the end")
        found.append(value[start:at])
    return found
