"""What only a classic session has: a JVM that this process has started, or that has started it,
and py4j to speak with it.

No other module touches that: the rest also works with Spark Connect, where the JVM is elsewhere
and py4j need not be installed.
"""

import re
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

try:
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
except ModuleNotFoundError:  # pyspark-client does without; nothing raises these then

    class Py4JError(Exception):  # type: ignore[no-redef]
        """What py4j raises."""

    class Py4JJavaError(Py4JError):  # type: ignore[no-redef, misc]
        """What Java has thrown."""


__all__ = ["Py4JError", "Py4JJavaError", "end_java", "hush", "send_file"]

_END_SECONDS = 30.0


def hush(spark: SparkSession) -> None:
    """What fails is raised, and told in short: Spark shall not log it as well."""
    spark.sparkContext.setLogLevel("FATAL")
    # A thread of PySpark's prints its stack when the JVM goes.
    setattr(spark.sparkContext._accumulatorServer, "handle_error", lambda *_: None)  # noqa: B010


def send_file(spark: SparkSession, packed: Callable[[], Path]) -> None:
    """Give executors, if they run elsewhere, a package.

    Args:
        packed: makes it a zip file.
    """
    if not re.match(r"local($|\[)", spark.sparkContext.master or ""):
        spark.sparkContext.addPyFile(str(packed()))


def end_java() -> int:
    """End the JVM that this process has started, if it has, without asking Spark: as when this
    process dies. It is gone when this returns. Returns the signal that had killed it, or 0."""
    try:
        from pyspark import SparkContext
    except ImportError:  # pyspark-client has none
        return 0
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return 0
    process.stdin.close()
    status: int = process.wait(_END_SECONDS)
    return -status if status < 0 else 0
