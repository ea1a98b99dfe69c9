"""Computes the time limits of operations and of Redis's replies."""

import math

import trio

from disque_trio.redis.connection import GRACE_SECONDS


def until(timeout: float | None) -> float:
    """The time at which ``timeout`` seconds are over; 0 for a timeout of 0, that waits for nothing.

    Raises:
        ValueError: it is negative or no number.
    """
    if timeout is None:
        return math.inf
    if not timeout >= 0:
        raise ValueError(f"a timeout is a number of seconds from 0, not {timeout!r}")
    return trio.current_time() + timeout if timeout > 0 else 0.0


def patience(deadline: float) -> float:
    """Until when Redis may reply, for who has time until ``deadline``."""
    return deadline if deadline == math.inf else max(deadline, trio.current_time()) + GRACE_SECONDS
