"""Helpers for commands that use Spark: the session, signals, progress, short errors."""

import atexit
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from disque_trio.spark import register

_WIDTH = 78
_END_SECONDS = 30.0
# Without it Spark tells the terminal how it starts.
_LOGGING = """\
rootLogger.level = fatal
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c: %m%n
"""
# What Python says of an exception in a worker, and what Java says of the reason of another one.
_PYTHON = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]*(?:Error|Exception): .*)$", re.MULTILINE)
_JAVA = re.compile(r"^Caused by: (?:[a-z]\w*\.)+\w+: (.+)$", re.MULTILINE)
_CALL = re.compile(r"^An error occurred while calling .*\n: (?:[a-z]\w*\.)+", re.MULTILINE)
# What PySpark's planner of a stream fails with when a source has refused its options.
_FOLLOWS = "UnboundLocalError: cannot access local variable 'reader'"
_LONGEST = 500


def session(master: str | None = None, settings: Sequence[str] = ()) -> SparkSession:
    """A session for the pipelines.

    The executors of a cluster get this package sent along, unless ``spark-submit`` has started the
    driver: that has ``--py-files``.

    Args:
        master: None: what ``spark-submit`` says, or else all cores of this machine.
        settings: ``name=value`` each; they come before what is set here.
    """
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        speak_utf8(os.environ)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    directory = Path(tempfile.mkdtemp(prefix="disque-pipeline-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    builder = SparkSession.Builder().appName("disque-pipeline")
    if master is not None:
        builder = builder.master(master)
    elif not submitted:
        builder = builder.master("local[*]")
    chosen = {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
        "spark.ui.showConsoleProgress": "false",
    }
    if not submitted:
        logging = directory / "log4j2.properties"
        logging.write_text(_LOGGING)
        chosen["spark.ui.enabled"] = "false"
        chosen["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={logging.as_uri()}"
    for setting in settings:
        name, _, value = setting.partition("=")
        chosen[name] = value
    for name, value in chosen.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    # What fails is raised as well, and told in short.
    spark.sparkContext.setLogLevel("FATAL")
    # A thread of PySpark's prints its stack when the JVM goes.
    setattr(spark.sparkContext._accumulatorServer, "handle_error", lambda *_: None)  # noqa: B010
    if not submitted and not re.match(r"local($|\[)", spark.sparkContext.master or ""):
        spark.sparkContext.addPyFile(str(packed(directory)))
    register(spark)
    return spark


def speak_utf8(environment: MutableMapping[str, str]) -> None:
    """Have a JVM that is started with this environment name files in UTF-8: names of queues become
    names of directories. It goes by the locale; there is no other way to tell it."""
    names = (environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next(filter(None, names), "C")
    if not re.search("utf-?8", locale, re.IGNORECASE):
        environment["LC_ALL"] = "C.UTF-8"


def packed(directory: Path) -> Path:
    """This package as a zip file in ``directory``, for executors."""
    package = Path(__file__).parents[1]
    path = directory / f"{package.name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for module in sorted(package.rglob("*.py")):
            out.write(module, module.relative_to(package.parent))
    return path


def end_java() -> int:
    """End the JVM that this process has started, without asking Spark: as when this process dies.
    It is gone when this returns. Returns the signal that had killed it, or 0."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return 0
    process.stdin.close()
    status: int = process.wait(_END_SECONDS)
    return -status if status < 0 else 0


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


class Progress:
    """A progress line on a terminal; prints nothing elsewhere."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._started = time.monotonic()

    def __call__(self, text: str) -> None:
        """Show what is being done, and since when."""
        if self._shown:
            seconds = time.monotonic() - self._started
            line = f"{seconds:6.0f} s  {text}"[:_WIDTH]
            print(f"\r{line:<{_WIDTH}}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clear the line."""
        if self._shown:
            print(f"\r{'':<{_WIDTH}}\r", end="", file=sys.stderr, flush=True)


def quiet() -> None:
    """PySpark shall not log what it raises as well, with all of Java's stack, on the terminal."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def text_of(failure: BaseException) -> str:
    """All that it says, or else what it is."""
    try:
        text = str(failure).strip()
    except Exception:  # what Java threw is asked for its text; the JVM may be gone
        text = ""
    return text or type(failure).__name__


def told(failure: BaseException) -> str:
    """What a person wants to know, in a line; Spark adds pages of Java's stack."""
    text = text_of(failure)
    found = _PYTHON.findall(text) or _JAVA.findall(text)
    causes = [cause for cause in found if not cause.startswith(_FOLLOWS)] or found
    line = causes[-1] if causes else _CALL.sub("", text).strip().splitlines()[0]
    return str(line)[:_LONGEST]
