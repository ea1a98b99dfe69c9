"""How much the fuzz tests send, and damage that fits all of them."""

import os
import random
from typing import Final

BYTES_A_SEED: Final = 100_000
BYTES: Final = int(os.environ.get("FUZZ_BYTES", "0"))
"""What each fuzz test sends, in bytes; 0: what takes a few seconds."""
FIRST: Final = int(os.environ.get("FUZZ_FIRST", "0"))
"""The first seed, so that a long run can be made in slices and each night tries something new."""


def fuzz_seeds(usual: int = 1_000_000, part: int = 1) -> range:
    """The seeds of a fuzz test, which sends ``BYTES_A_SEED`` for each: one ``part``-th of ``BYTES``
    in all, or as many as are ``usual``. They begin with ``FIRST``."""
    return range(FIRST, FIRST + max(1, (BYTES // part or usual) // BYTES_A_SEED))


def damaged(data: bytes, rng: random.Random, pieces: tuple[bytes, ...]) -> bytes:
    """``data`` with a few changes. pieces: what often matters in it."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(changed) + 1)
        what = rng.randrange(7)
        if what == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif what == 1:
            del changed[at : at + rng.choice((1, 2, 8, 100))]
        elif what == 2:
            changed[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif what == 3:
            start = rng.randrange(len(changed) + 1)
            changed[at:at] = changed[start : start + rng.randrange(1, 60)]
        elif what == 4 and rng.random() < 0.2:
            del changed[at:]
        else:
            piece = rng.choice(pieces)
            changed[at : at + rng.choice((0, 1, len(piece)))] = piece
    return bytes(changed)
