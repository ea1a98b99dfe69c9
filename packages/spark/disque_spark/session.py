"""Helpers for commands that use Spark: the session."""

import atexit
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from disque_spark import register
from disque_spark.classic import check_java, send_file, silence_logs
from disque_spark.package import is_remote, packed
from disque_spark.signals import Signals

_LOOK_SECONDS = 0.2

# Without this, Spark logs its start on the terminal. The gateway would set a level of its own.
_LOGGING = """\
rootLogger.level = fatal
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = fatal
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c: %m%n
"""


def session(
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    remote: str | None = None,
) -> SparkSession:
    """Start a Spark session for ``disque-pipeline``.

    Sends this package to the executors of a cluster, unless ``spark-submit`` has started the
    driver: it has ``--py-files`` for that.

    Args:
        master: None: what ``spark-submit`` says, or else all cores of this machine.
        settings: of Spark; they override the settings made here.
        remote: a Spark Connect server, ``sc://host:port``, or a master that begins with ``local``,
            for which this process starts a server; None: the value of ``SPARK_REMOTE`` if
            ``master`` is None, or else no server.

    Raises:
        OSError: there is no Java, or it is too old.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        speak_utf8(os.environ)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if remote is None and master is None and not submitted:
        remote = os.environ.get("SPARK_REMOTE")
    elsewhere = remote is not None and remote.startswith("sc:")
    if not (submitted or elsewhere):
        check_java(os.environ)
    directory = Path(tempfile.mkdtemp(prefix="disque-pipeline-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    builder = SparkSession.Builder().appName("disque-pipeline")
    if remote is not None:
        builder = builder.remote(remote)
    elif master is not None:
        builder = builder.master(master)
    elif not submitted:
        builder = builder.master("local[*]")
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    }
    if not elsewhere:
        chosen["spark.ui.showConsoleProgress"] = "false"
        if not submitted:
            logging = directory / "log4j2.properties"
            logging.write_text(_LOGGING)
            chosen["spark.ui.enabled"] = "false"
            chosen["spark.driver.extraJavaOptions"] = (
                f"-Dlog4j2.configurationFile={logging.as_uri()}"
            )
    for name, value in {**chosen, **(settings or {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if not is_remote(spark):
        silence_logs(spark)
        if not submitted:
            send_file(spark, lambda: packed(directory))
    register(spark)
    return spark


def speak_utf8(environment: MutableMapping[str, str]) -> None:
    """Make a JVM that is started with this environment use UTF-8 for file names, since names of
    queues become names of directories. Only the locale decides that."""
    names = (environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next(filter(None, names), "C")
    if not re.search("utf-?8", locale, re.IGNORECASE):
        environment["LC_ALL"] = "C.UTF-8"


@contextmanager
def cancelled_by(signals: Signals, spark: SparkSession) -> Iterator[None]:
    """Let the first signal cancel Spark's jobs, which the block waits for. PySpark itself would
    wait for the end of a job before it lets an exception through.

    Raises:
        Stopped: at the end of the block, if a signal has arrived.
    """
    over = threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_SECONDS):
            if signals.stopped is not None:
                spark.interruptAll()
                return

    threading.Thread(target=look, daemon=True).start()
    try:
        with signals.held():
            yield
    except Exception:
        if signals.stopped is None:
            raise
        raise signals.stopped from None
    finally:
        over.set()


def quiet() -> None:
    """Keep PySpark from logging the errors it raises, with Java's stack, on the terminal, and its
    gateway from logging there that the JVM has ended, which it finds while it frees objects."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
    logging.getLogger().addFilter(_is_not_of_the_gateway)  # it has no logger of its own for these


def _is_not_of_the_gateway(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"
