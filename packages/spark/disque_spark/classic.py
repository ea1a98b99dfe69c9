"""Everything that needs a classic session: one with a JVM that this process has started, or that
has started this process, and with py4j to talk to it.

All other modules also work with Spark Connect, where the JVM is elsewhere and py4j may be missing.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

try:
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
except ModuleNotFoundError:  # pyspark-client does not need it, and nothing raises these errors then

    class Py4JError(Exception):  # type: ignore[no-redef]
        """The base class of py4j's errors."""

    class Py4JJavaError(Py4JError):  # type: ignore[no-redef, misc]
        """An exception thrown in Java."""


__all__ = [
    "Py4JError",
    "Py4JJavaError",
    "check_java",
    "end_java",
    "is_gone",
    "search_file",
    "send_file",
    "silence_logs",
    "work_done",
]

_END_SECONDS = 30.0
_OLDEST = 17
_VERSION = re.compile(r'version[ =]"(?:1\.)?(\d+)', re.IGNORECASE)


def check_java(environment: Mapping[str, str]) -> None:
    """Check that Spark will find a Java that is new enough.

    Raises:
        OSError: there is no Java, or it is too old.
    """
    advice = f"Spark needs Java {_OLDEST} or later: apt-get install default-jre-headless"
    home = environment.get("JAVA_HOME")
    if home:
        found = shutil.which("java", path=str(Path(home, "bin")))
        if found is None:
            raise FileNotFoundError(f"no Java at JAVA_HOME={home}. {advice}, or unset JAVA_HOME")
    else:
        found = shutil.which("java", path=environment.get("PATH"))
        if found is None:
            raise FileNotFoundError(f"no Java. {advice}, or set JAVA_HOME")
    release = Path(found).resolve().parents[1] / "release"
    if release.exists():  # quicker than starting Java
        text = release.read_text(errors="replace")
    else:
        text = subprocess.run([found, "-version"], capture_output=True, text=True).stderr
    version = _VERSION.search(text)
    if version and int(version[1]) < _OLDEST:
        raise OSError(f"{found} is Java {version[1]}. {advice}, or set JAVA_HOME")


def silence_logs(spark: SparkSession) -> None:
    """Keep Spark from logging failures, which are raised and reported in a line anyway."""
    spark.sparkContext.setLogLevel("FATAL")
    # When the JVM ends, this thread of PySpark would print a traceback.
    setattr(spark.sparkContext._accumulatorServer, "handle_error", lambda *_: None)  # noqa: B010


def send_file(spark: SparkSession, packed: Callable[[], Path]) -> None:
    """Send a package to the executors, unless they run in this process's JVM.

    Args:
        packed: makes the zip file of the package.
    """
    if not re.match(r"local($|\[)", spark.sparkContext.master or ""):
        path = packed()
        spark.sparkContext.addPyFile(str(path))
        search_file(spark, path)


def search_file(spark: SparkSession, path: Path) -> None:
    """Let the Python processes of sources that are registered from now on find modules in a zip
    file. Files added to the session do not reach the processes that plan a stream (Spark up to
    4.3): these run beside the driver, and look for the files in a directory of the stream."""
    environment = spark.sparkContext.environment
    known = environment.get("PYTHONPATH", "")
    paths = known.split(os.pathsep) if known else []
    if str(path) not in paths:
        environment["PYTHONPATH"] = os.pathsep.join([str(path), *paths])


def work_done(spark: SparkSession) -> float | None:
    """The share, 0 to 1, of the tasks of running Spark jobs that are done, averaged over stages;
    None if no job is running."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getActiveJobsIds()]
    stages = [stage for job in jobs if job is not None for stage in job.stageIds]
    shares = []
    for stage in stages:
        info = tracker.getStageInfo(stage)
        some = info is not None and info.numTasks > 0
        shares.append(info.numCompletedTasks / info.numTasks if info and some else 0.0)
    return sum(shares) / len(shares) if shares else None


def is_gone(spark: SparkSession) -> bool:
    """Whether the JVM of a classic session has ended or its context has been stopped."""
    context = getattr(spark, "_sc", None)
    if context is None:  # Spark Connect
        return False
    try:
        return bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError, AttributeError):
        return True


def end_java() -> int:
    """End the JVM, if this process has started one, without asking Spark, as happens when this
    process dies. Wait until it is gone. Returns the signal that had killed it before, or 0."""
    try:
        from pyspark import SparkContext
    except ImportError:  # pyspark-client has no SparkContext
        return 0
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return 0
    process.stdin.close()
    status: int = process.wait(_END_SECONDS)
    return -status if status < 0 else 0
