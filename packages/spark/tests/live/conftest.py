"""One Spark session for many tests of this folder: it takes ten seconds and 400 MB to start."""

import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from py4j.java_gateway import JavaClass, JavaPackage, JVMView
from pyspark import SparkContext
from pyspark.sql import SparkSession

from disque_spark import register
from packages.spark.tests.support import quick_java
from packages.spark.tests.support.lease_reader import Reader, place_at
from packages.spark.tests.support.s3 import s3, s3_server
from packages.spark.tests.support.spark_home import spark_home
from packages.spark.tests.support.spark_python import spark_python
from tests.support import PYTHONPATH
from tests.support.harness import HANG_SECONDS, LiveNode, free_port
from tests.support.live_helpers import session_node, shared_node, talk

__all__ = [
    "s3",
    "s3_server",
    "session_node",
    "shared_node",
    "talk",
]  # one server: each module that imports them would start another

LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c: %m%n
"""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """After a failure, give up this thread's connection to the JVM. A test that took too long was
    interrupted while it waited for an answer, which the next test would take for its own."""
    try:
        return (yield)
    except BaseException:
        client = getattr(SparkContext._gateway, "_gateway_client", None)
        connection = client and client.get_thread_connection()
        if connection:
            connection.close()
        raise


def _remember(cls: type[JVMView | JavaPackage]) -> None:
    """Let what has names in the JVM look each one up only once: PySpark has some two hundred looked
    up for an audit, and the JVM searches all its libraries for those that are no classes."""
    look_up = cls.__getattr__

    def looked_up(self: JVMView | JavaPackage, name: str) -> object:
        found = look_up(self, name)
        if isinstance(found, JavaClass | JavaPackage):
            self.__dict__[name] = found
        return found

    cls.__getattr__ = looked_up


_remember(JVMView)
_remember(JavaPackage)


def _claim_session(directory: Path) -> None:
    """Fail in a second test process."""
    try:
        (directory / "spark").mkdir()
    except FileExistsError:
        raise RuntimeError("another test process has started a Spark") from None


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores, with the data sources of this project registered."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        _claim_session(tmp_path_factory.getbasetemp().parent)
    directory = tmp_path_factory.mktemp("spark")
    logging = directory / "log4j2.properties"
    logging.write_text(LOGGING)
    # The workers are children of the JVM: they can import the project, and what test modules
    # define.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", spark_python())
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", PYTHONPATH)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_HOME", str(spark_home(directory / "home")))
        session = (
            SparkSession.builder.master("local[2]")
            .appName("disque-trio tests")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "1")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
            .config("spark.local.dir", str(directory / "local"))
            .config("spark.ui.showConsoleProgress", "false")
            # It also serves Spark Connect, which costs less than a second JVM.
            .config("spark.plugins", "org.apache.spark.sql.connect.SparkConnectPlugin")
            # As start-connect-server.sh sets it. Otherwise every session has the files of a client,
            # and fails if it has not fetched them before the client ends.
            .config("spark.sql.artifact.isolation.enabled", "true")
            .config("spark.sql.artifact.isolation.alwaysApplyClassloader", "true")
            .config("spark.connect.grpc.binding.address", "127.0.0.1")
            .config("spark.connect.grpc.binding.port", str(free_port()))
            .config(map=quick_java.SETTINGS)
            .config(
                "spark.driver.extraJavaOptions",
                f"{quick_java.OPTIONS}"
                f" -Dlog4j2.configurationFile={logging.as_uri()} -Djava.io.tmpdir={directory}",
            )
            .getOrCreate()
        )
        # Otherwise every stream, which has a session of its own, starts new Python workers.
        session.conf.set("spark.sql.artifact.isolation.enabled", "false")
        register(session)
        yield session
        gateway = SparkContext._gateway
        session.stop()
        _end_of_java(gateway)


def _end_of_java(gateway: object) -> None:
    """PySpark lets the JVM end with the interpreter; here, it has to be gone."""
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait(HANG_SECONDS)


@pytest.fixture
def another_session(spark: SparkSession) -> Iterator[SparkSession]:
    """A session in which nothing is registered."""
    yield spark.newSession()
    # Spark looks for data sources in the session that is active, which this makes the usual one.
    spark.createDataFrame([], "nothing int")


@pytest.fixture
def reader(node: LiveNode) -> Iterator[Reader]:
    reader = Reader(place_at(node), [f"127.0.0.1:{node.port}"])
    yield reader
    reader.planner.close()
