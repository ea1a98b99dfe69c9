"""Computes the deadlines of operations and of Redis's replies."""

import math

import trio

from disque_trio.redis.connection import GRACE_SECONDS


def until(timeout: float | None) -> float:
    """Return the deadline ``timeout`` seconds from now, or 0 for a timeout of 0 (do not wait).

    Raises:
        ValueError: the timeout is negative or NaN.
    """
    if timeout is None:
        return math.inf
    if not timeout >= 0:
        raise ValueError(f"a timeout must be 0 seconds or more, not {timeout!r}")
    return trio.current_time() + timeout if timeout > 0 else 0.0


def patience(deadline: float) -> float:
    """Return until when to wait for a reply of Redis, for an operation with this deadline."""
    return deadline if deadline == math.inf else max(deadline, trio.current_time()) + GRACE_SECONDS
