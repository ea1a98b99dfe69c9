"""Where the records of living jobs are in an append-only file, in some 35 bytes a job.

Ids are not kept, only their hashes of 64 bits, which differ from process to process; these are in
many buckets by the checksums of the ids. For ten million jobs that is as good as 80 bits. A bucket
is a string of entries, which the interpreter searches faster than a loop could; a dict would take
200 bytes for each job.
"""

from array import array
from collections.abc import Iterator
from struct import Struct
from zlib import crc32

_ENTRY = Struct("=qQ")  # the hash, the place
_HASH = Struct("=q")
_PLACE = Struct("=Q")
_LENGTH_BITS = 20  # of a place; the others are the offset
_LONG = (1 << _LENGTH_BITS) - 1  # or longer
_MOST_BITS = 18  # of the checksum choose the bucket
_BYTES_A_BUCKET = 1 << 13  # of the file
_PARTS = 256  # of the file, whose places are sorted one after the other
_PARTS_A_PASS = 128  # over all buckets, which have to stay meanwhile


class Places:
    """The places of the jobs in a file of ``size`` bytes.

    Attributes:
        count: how many jobs there are.
    """

    def __init__(self, size: int) -> None:
        bits = min((size // _BYTES_A_BUCKET).bit_length(), _MOST_BITS)
        self.count = 0
        self._shift = 32 - bits
        self._width = size // _PARTS + 1
        self._buckets = [bytearray() for _ in range(1 << bits)]
        self._long: dict[int, int] = {}  # the lengths of long records, by offset

    def add(self, id: bytes, start: int, length: int) -> None:
        """Add the job ``id``, whose record of ``length`` bytes begins at ``start``, unless it is
        here already."""
        bucket = self._buckets[crc32(id) >> self._shift]
        if _find(bucket, id) >= 0:
            return
        if length >= _LONG:
            self._long[start] = length
            length = _LONG
        bucket += _ENTRY.pack(hash(id), start << _LENGTH_BITS | length)
        self.count += 1

    def __contains__(self, id: bytes) -> bool:
        return _find(self._buckets[crc32(id) >> self._shift], id) >= 0

    def drop(self, id: bytes) -> None:
        """Remove the job ``id``, if it is here."""
        bucket = self._buckets[crc32(id) >> self._shift]
        at = _find(bucket, id)
        if at >= 0:
            if self._long:
                place: int = _PLACE.unpack_from(bucket, at + _HASH.size)[0]
                self._long.pop(place >> _LENGTH_BITS, None)
            del bucket[at : at + _ENTRY.size]
            self.count -= 1

    def in_order(self) -> Iterator[tuple[int, int]]:
        """The offset and length of the record of each job, in order."""
        for first in range(0, _PARTS, _PARTS_A_PASS):
            parts = [array("Q") for _ in range(_PARTS_A_PASS)]
            for bucket in self._buckets:
                for place in array("Q", bucket)[1::2]:
                    part = (place >> _LENGTH_BITS) // self._width - first
                    if 0 <= part < _PARTS_A_PASS:
                        parts[part].append(place)
            for places in parts:
                for place in sorted(places):
                    start, length = place >> _LENGTH_BITS, place & _LONG
                    yield start, self._long[start] if length == _LONG else length


def _find(bucket: bytearray, id: bytes) -> int:
    """Where the entry of the job ``id`` is in ``bucket``; -1: nowhere."""
    wanted = _HASH.pack(hash(id))
    at = bucket.find(wanted)
    while at % _ENTRY.size and at >= 0:
        at = bucket.find(wanted, at + 1)
    return at
