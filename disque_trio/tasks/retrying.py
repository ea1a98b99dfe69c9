"""When a failed task is tried again, and the words for that.

In tasks, "retry" always means that a failed task is tried again. Two other things have other words:
``redeliver_after`` is the time after which a node delivers the job of a worker that is gone, which
ADDJOB calls RETRY; ``node_timeout`` is how long an app tries to reach a node.
"""

import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

from disque_trio.respclient.randomness import RANDOM
from disque_trio.tasks.definition import DEFAULT_BACKOFF, Backoff, Definition
from disque_trio.tasks.errors import BadJob

PerCall: TypeAlias = Mapping[str, Any]
"""Options of a task that a single job may have in their place: see ``OPTIONS``."""

_RETRIES, _TIMEOUT, _BACKOFF = "task-retries", "task-timeout", "task-backoff"

OPTIONS: Final = {"retries": _RETRIES, "timeout": _TIMEOUT, "backoff": _BACKOFF}
"""The options of a task that a job may have in their place, and the headers with which they travel.
Workers of older releases do not see them."""

HEADERS: Final = frozenset(OPTIONS.values())


def headers_of(options: PerCall) -> dict[str, str]:
    """Return the headers for options of one job.

    Raises:
        TypeError: ``backoff`` is a function, which cannot travel.
        ValueError: an option is invalid.
    """
    headers: dict[str, str] = {}
    for name, value in options.items():
        if value is None:
            continue
        if callable(value):
            raise TypeError(f"{name} of one job cannot be a function: give it to the task")
        words = value if isinstance(value, tuple | list) else (value,)
        headers[OPTIONS[name]] = " ".join(str(word) for word in words)
    if headers:
        try:
            _read(headers)
        except ValueError as error:
            raise ValueError(f"wrong option of a job: {error}") from None
    return headers


def of_job(definition: Definition, headers: Mapping[str, str | bytes]) -> Definition:
    """Return the definition with those options that the job with these headers has of its own.
    Raises BadJob."""
    if HEADERS.isdisjoint(headers):
        return definition
    said = {name: headers[name] for name in HEADERS & headers.keys()}
    try:
        texts = {n: v if isinstance(v, str) else v.decode() for n, v in said.items()}
        return replace(definition, **_read(texts))
    except ValueError as error:
        raise BadJob(f"bad option of the job: {error}") from None


def _read(headers: Mapping[str, str]) -> dict[str, Any]:
    """Read the options in headers. Raises ValueError."""
    options: dict[str, Any] = {}
    if (said := headers.get(_RETRIES)) is not None:
        options["retries"] = _least("retries", int(said), 0)
    if (said := headers.get(_TIMEOUT)) is not None:
        options["timeout"] = _least("timeout", float(said), 0.001)
    if (said := headers.get(_BACKOFF)) is not None:
        shortest, longest = (float(word) for word in said.split())
        options["backoff"] = (_least("backoff", shortest, 0), _least("backoff", longest, shortest))
    return options


def _least(name: str, value: float, least: float) -> float:
    if not least <= value < math.inf:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    return value


def is_final(definition: Definition, error: BaseException) -> bool:
    """Whether a task that raised ``error`` is not to be tried again, by its ``never_for`` and
    ``retry_for``.

    Of a group of exceptions, all have to be worth another attempt.
    """
    if isinstance(error, BaseExceptionGroup):
        return any(is_final(definition, one) for one in error.exceptions)
    if isinstance(error, definition.never_for):
        return True
    return definition.retry_for is not None and not isinstance(error, definition.retry_for)


def pause(backoff: tuple[float, float], failures: int) -> float:
    """Return the seconds until the next attempt, after ``failures`` earlier failures."""
    shortest, longest = backoff
    wait = min(longest, shortest * 2.0 ** min(failures, 60))
    return min(longest, wait * RANDOM.uniform(0.75, 1.25))


def pause_of(backoff: Backoff, failures: int, error: BaseException) -> tuple[float, str]:
    """Return the seconds until the next attempt after ``error``, and what was wrong with the
    program's own function for that; empty if nothing was."""
    if not callable(backoff):
        return pause(backoff, failures), ""
    try:
        seconds = float(backoff(failures + 1, error))
        if 0 <= seconds < math.inf:
            return seconds, ""
        wrong = f"backoff returned {seconds}"
    except Exception as problem:
        wrong = f"backoff raised {type(problem).__name__}: {problem}"
    return pause(DEFAULT_BACKOFF, failures), wrong


# ---- words of earlier releases -----------------------------------------------------------------


def renamed(options: Mapping[str, Any], level: int) -> dict[str, Any]:
    """Return options of a task's jobs with ``retry``, ADDJOB's word, in place of
    ``redeliver_after``. Warns of ``retry``, which meant the same.

    Args:
        level: how many calls are between the program and this function.
    """
    found = dict(options)
    if "retry" in found:
        old_word("retry", "redeliver_after", level + 1)
    if "redeliver_after" in found:
        found["retry"] = found.pop("redeliver_after")
    return found


def old_word(old: str, new: str, level: int) -> None:
    """Warn that ``new`` is the word for what was ``old``, which goes on for this release."""
    text = f"{old} is now called {new}, and the old name will be gone in the next release"
    warnings.warn(text, DeprecationWarning, stacklevel=level + 2)
