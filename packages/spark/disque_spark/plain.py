"""Errors that Spark's workers report in one line, without a traceback, since the line says it all:
what is wrong in the options or rows that a user gave, or what a node answers."""

import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from disque_spark.client import RefusedError, WireError
from disque_spark.options import OptionError

P = ParamSpec("P")
T = TypeVar("T")

_HIDE = "SPARK_HIDE_TRACEBACK"  # read by PySpark's workers when they report an exception


class PlainError(Exception):
    """An error that says what the user can do about it."""


def plain(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that Spark calls in a worker, so that it reports such errors plainly."""

    @wraps(function)
    def called(*args: P.args, **more: P.kwargs) -> T:
        try:
            return function(*args, **more)
        except (OptionError, PlainError, RefusedError, WireError):
            main = getattr(sys.modules.get("__main__"), "__spec__", None)
            if main is not None and main.name.startswith("pyspark."):
                os.environ[_HIDE] = "1"  # the worker ends when it has reported the exception
            raise

    return called
