"""Helpers for commands that use Spark: the session, signals, progress, short errors."""

import atexit
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from disque_trio.spark import register
from disque_trio.spark.classic import check_java, hush, send_file
from disque_trio.spark.package import is_remote, packed

# Without it Spark tells the terminal how it starts. The gateway would set a level of its own.
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
    master: str | None = None, settings: Sequence[str] = (), remote: str | None = None
) -> SparkSession:
    """A session for the pipelines.

    The executors of a cluster get this package sent along, unless ``spark-submit`` has started the
    driver: that has ``--py-files``.

    Args:
        master: None: what ``spark-submit`` says, or else all cores of this machine.
        settings: ``name=value`` each; they come before what is set here.
        remote: a server of Spark Connect, ``sc://host:port``, or a master that starts with
            ``local``, for which this process starts one; None: what ``SPARK_REMOTE`` says, if there
            is no master, or else none.

    Raises:
        OSError: there is no Java, or an old one.
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
    for setting in settings:
        name, _, value = setting.partition("=")
        chosen[name] = value
    for name, value in chosen.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if not is_remote(spark):
        hush(spark)
        if not submitted:
            send_file(spark, lambda: packed(directory))
    register(spark)
    return spark


def speak_utf8(environment: MutableMapping[str, str]) -> None:
    """Have a JVM that is started with this environment name files in UTF-8: names of queues become
    names of directories. It goes by the locale; there is no other way to tell it."""
    names = (environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next(filter(None, names), "C")
    if not re.search("utf-?8", locale, re.IGNORECASE):
        environment["LC_ALL"] = "C.UTF-8"


class Stopped(BaseException):
    """The process was asked to stop.

    Attributes:
        signal: which one it was.
    """

    def __init__(self, number: int) -> None:
        self.signal = signal.Signals(number)
        super().__init__(f"stopped by {self.signal.name}")


class Signals:
    """SIGINT and SIGTERM become ``Stopped`` in the main thread; what must not be torn apart holds
    the first one back.

    Attributes:
        stopped: the one that is held back, or was.
    """

    def __init__(self) -> None:
        self.stopped: Stopped | None = None
        self._held = 0
        self._before: dict[int, object] = {}

    def catch(self) -> None:
        """From now on; again after others have taken a signal for themselves, as Spark does."""
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.signal(number, self._handle)
            self._before.setdefault(number, before)

    def release(self) -> None:
        """As it was before the first ``catch``."""
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]
        self._before.clear()

    @contextmanager
    def held(self) -> Iterator[None]:
        """A block that the first signal does not end; a second one does. Who is in it looks at
        ``stopped``.

        Raises:
            Stopped: at its end.
        """
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
        if self.stopped is not None:
            raise self.stopped

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first = self.stopped is None
        self.stopped = Stopped(number)
        if not (self._held and first):
            raise self.stopped


def quiet() -> None:
    """PySpark shall not log what it raises as well, with all of Java's stack, on the terminal."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
