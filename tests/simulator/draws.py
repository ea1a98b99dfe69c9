"""Random numbers that are drawn for each event."""

from random import Random


def below(rng: Random, limit: int) -> int:
    """The number that ``rng.randrange(limit)`` would draw, in half the time; ``limit`` is at least
    1."""
    bits = limit.bit_length()
    number = rng.getrandbits(bits)
    while number >= limit:
        number = rng.getrandbits(bits)
    return number
