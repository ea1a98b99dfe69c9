"""A time limit for a function."""

import functools
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any


def limited(function: Callable[[Any], object], seconds: float) -> Callable[[Any], object]:
    """``function``, in which TimeoutError is raised when it takes longer than ``seconds``.

    In the main thread only, which is that of Spark's workers. A call into C ends first.
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
            signal.setitimer(signal.ITIMER_REAL, *timer)  # that of somebody else

    return call
