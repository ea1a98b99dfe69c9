"""A time limit for a function."""

import functools
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any


def limited(function: Callable[[Any], object], seconds: float) -> Callable[[Any], object]:
    """``function``, but with a TimeoutError raised in it after ``seconds``.

    Works only in the main thread, in which Spark's workers run tasks. Cannot interrupt C code.
    """

    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"it took longer than {seconds:g} s")

    @functools.wraps(function)
    def call(jobs: Any) -> object:
        before = signal.signal(signal.SIGALRM, late)
        timer = signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            return function(jobs)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            signal.setitimer(signal.ITIMER_REAL, *timer)  # another timer that was running

    return call
