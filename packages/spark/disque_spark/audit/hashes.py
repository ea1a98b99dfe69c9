"""Hashes of strings, which are the same in all processes and on all machines."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)
_MORE = (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))  # also odd
_WORD = 8
_ROWS = 50_000  # strings whose bytes are copied at a time


def hashes_of(texts: pa.Array) -> npt.NDArray[np.uint64]:
    """The hash of each string. There must be no nulls."""
    count = len(texts)
    hashes = np.zeros(count, np.uint64)
    _, ends, data = texts.cast(pa.string()).buffers()
    if not count or data is None:
        return hashes
    offsets = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + count + 1]
    content = np.frombuffer(data, np.uint8)
    lengths = np.diff(offsets)
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        for start in range(0, len(rows), _ROWS):
            some = rows[start : start + _ROWS]
            hashes[some] = _of_length(content, offsets[some], length)
    return hashes


def _of_length(
    content: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32], length: int
) -> npt.NDArray[np.uint64]:
    """The hashes of strings of ``length`` bytes, which begin at ``offsets``."""
    words = np.zeros((len(offsets), -(-length // _WORD) * _WORD), np.uint8)
    words[:, :length] = content[offsets[:, None] + np.arange(length, dtype=np.int32)]
    hashes = np.full(len(offsets), length, np.uint64) * _ODD
    for column in words.view("<u8").T:
        hashes = (hashes ^ column) * _ODD
        hashes ^= hashes >> _SHIFT
    # The last characters have changed only the highest bits so far.
    for factor in _MORE:
        hashes = (hashes ^ (hashes >> _SHIFT)) * factor
    result: npt.NDArray[np.uint64] = hashes ^ (hashes >> _SHIFT)
    return result
