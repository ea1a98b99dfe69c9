"""One Spark session for all tests of this folder: it takes ten seconds and 400 MB to start."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from disque_trio.spark import register

TESTS = Path(__file__).parents[1]

LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %c: %m%n
"""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores with the data sources of this project registered."""
    directory = tmp_path_factory.mktemp("spark")
    logging = directory / "log4j2.properties"
    logging.write_text(LOGGING)
    # The workers are children of the JVM: they find the project, and what test modules define.
    paths = [str(TESTS.parent), str(TESTS), str(TESTS / "spark")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        session = (
            SparkSession.builder.master("local[2]")
            .appName("disque-trio tests")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "1g")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
            .config("spark.local.dir", str(directory / "local"))
            .config("spark.ui.showConsoleProgress", "false")
            .config(
                "spark.driver.extraJavaOptions",
                # Compiling well does not pay for jobs that are as short as these.
                "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
                f" -Dlog4j2.configurationFile={logging.as_uri()} -Djava.io.tmpdir={directory}",
            )
            .getOrCreate()
        )
        register(session)
        yield session
        gateway = SparkContext._gateway
        session.stop()
        _end_of_java(gateway)


def _end_of_java(gateway: object) -> None:
    """PySpark leaves the JVM to end with the interpreter; here it has to be gone."""
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait(30)
