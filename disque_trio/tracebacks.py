"""Tracebacks for those whose code failed: only the calls of their program, and not too long."""

import os
import sys
from collections.abc import Iterator
from traceback import FrameSummary, StackSummary, TracebackException
from typing import Final

_AROUND: Final = (
    "disque_trio",
    "disque_integrations",
    "trio",
    "outcome",
    "asyncio",
    "concurrent.futures",
    "contextlib",
    "threading",
)
"""What calls the functions of programs. A program's mistakes are not there."""

MOST: Final = 6_000
"""Characters of a traceback."""

_MOST_OF_PART: Final = 1_500  # characters of a call, or of what an exception says
_LEFT_OUT: Final = "...\n"


def traceback_of(error: BaseException) -> str:
    """The traceback of ``error``, as Python shows it, with its causes and the members of groups,
    but only with the calls of the program. Of a long one, what is near the error is kept.

    A group of one exception is shown as that one: a nursery raises such groups.
    """
    found = _of_one(TracebackException(type(error), error, error.__traceback__, compact=True))
    around = tuple(_places())
    for each in _all(found):
        calls = [call for call in each.stack if not _is_around(call, around)]
        # Without a stack, Python shows no heading either.
        each.stack = StackSummary.from_list(calls) if calls else None  # type: ignore[assignment]
    parts = [_shortened(part) for part in found.format()]
    size = 0
    for number, part in enumerate(reversed(parts)):
        size += len(part)
        if size > MOST:
            return _LEFT_OUT + "".join(parts[len(parts) - number :])
    return "".join(parts)


def sole(error: BaseException) -> BaseException:
    """``error``, or, if it is a group of one exception, that one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _of_one(found: TracebackException) -> TracebackException:
    """Replace each group of one exception in ``found`` by that one, which gets its calls."""
    while found.exceptions is not None and len(found.exceptions) == 1:
        inner = found.exceptions[0]
        inner.stack = StackSummary.from_list([*found.stack, *inner.stack])
        if inner.__cause__ is None and (inner.__context__ is None or inner.__suppress_context__):
            inner.__cause__, inner.__context__ = found.__cause__, found.__context__
            inner.__suppress_context__ = found.__suppress_context__
        found = inner
    if found.__cause__ is not None:
        found.__cause__ = _of_one(found.__cause__)
    if found.__context__ is not None:
        found.__context__ = _of_one(found.__context__)
    if found.exceptions is not None:
        found.exceptions = [_of_one(one) for one in found.exceptions]
    return found


def _all(found: TracebackException) -> Iterator[TracebackException]:
    todo = [found]
    while todo:
        each = todo.pop()
        yield each
        behind = (each.__cause__, each.__context__, *(each.exceptions or ()))
        todo.extend(one for one in behind if one is not None)


def _places() -> Iterator[str]:
    """Where the files of ``_AROUND`` are: directories, which end with a separator, and files."""
    for name in _AROUND:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None:
            continue
        directory, base = os.path.split(file)
        yield directory + os.sep if base.startswith("__init__.") else file
        yield name + os.sep  # as in compiled modules


def _is_around(call: FrameSummary, places: tuple[str, ...]) -> bool:
    return call.filename.startswith(places)


def _shortened(part: str) -> str:
    return part if len(part) <= _MOST_OF_PART else part[:_MOST_OF_PART] + _LEFT_OUT
