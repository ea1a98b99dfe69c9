"""What users are told about failures of Spark."""

import logging
import socket
import threading

import pytest
from py4j.java_gateway import GatewayClient, GatewayParameters  # type: ignore[import-untyped]

from disque_spark.failures import one_line
from disque_spark.session import quiet
from tests.support.harness import HANG_SECONDS, free_port

REFUSED = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Traceback:
  File "runner.py", line 1, in main
disque_spark.options.OptionError: fetch: expected a number, not abc

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "runner.py", line 2, in main
UnboundLocalError: cannot access local variable 'reader' where it is not associated with a value
"""


def test_an_option_that_is_refused_is_named_and_not_what_pyspark_stumbles_over_then() -> None:
    assert one_line(Exception(REFUSED)) == "OptionError: fetch: expected a number, not abc"


class Captured(Exception):
    """An exception of the JVM, as PySpark raises it."""

    __module__ = "pyspark.errors.exceptions.captured"


class OfConnect(Exception):
    """An exception of a server, as PySpark raises it."""

    __module__ = "pyspark.errors.exceptions.connect"


PLANNED = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback:
  File "/tmp/x/disque_spark.zip/disque_spark/datasources/queues.py", line 11, in <module>
    import pyarrow as pa
ModuleNotFoundError: No module named 'pyarrow'
 SQLSTATE: 38000
"""
IN_A_TASK = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "./disque_spark.zip/disque_spark/audit/partial_jobs.py", line 13, in <module>
    import numpy as np
ModuleNotFoundError: No module named 'numpy'
"""
OLD_PYTHON = """\
An error occurred while calling o145.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed \
4 times, most recent failure: Lost task 0.3 in stage 3.0 (TID 6) (10.0.0.7 executor 1): \
org.apache.spark.SparkException:
Error from python worker:
  Traceback (most recent call last):
    File "pyspark.zip/pyspark/sql/types.py", line 557, in GeographyType
      def __init__(self, srid: int | str):
  TypeError: unsupported operand type(s) for |: 'type' and 'type'
PYTHONPATH was:
  pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number from \
pyspark.daemon's stdout and terminated with code: 1..
\tat org.apache.spark.errors.SparkCoreErrors$.eofException(SparkCoreErrors.scala:55)
"""
NO_PYTHON = """\
An error occurred while calling o89.load.
: java.io.IOException: Cannot run program "/none/python": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
\tat org.apache.spark.sql.execution.python.PythonPlannerRunner.runInPython(P.scala:123)
Caused by: java.io.IOException: error=2, No such file or directory
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (PLANNED, "ModuleNotFoundError: No module named 'pyarrow' (Python of Spark beside the"
         " driver: PYSPARK_PYTHON=python-x)"),
        (IN_A_TASK, "ModuleNotFoundError: No module named 'numpy' (Python of the executors:"
         " PYSPARK_PYTHON=python-x)"),
        (OLD_PYTHON, "Python workers do not start: TypeError: unsupported operand type(s) for |:"
         " 'type' and 'type' (Python of executor 1 on 10.0.0.7: PYSPARK_PYTHON=python-x)"),
        (NO_PYTHON, 'Cannot run program "/none/python": error=2, No such file or directory'
         " (Python of Spark beside the driver: PYSPARK_PYTHON=python-x)"),
    ],
)  # fmt: skip
def test_a_python_that_lacks_something_is_named(
    text: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python-x")
    assert one_line(Captured(text)) == line


def test_of_spark_connect_it_is_known_that_it_is_at_the_server() -> None:
    assert one_line(OfConnect(IN_A_TASK)) == (
        "ModuleNotFoundError: No module named 'numpy' (Python of the Spark Connect server or"
        " its executors)"
    )


def test_the_error_says_once_whose_python_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python-x")
    line = one_line(Captured(IN_A_TASK))
    assert one_line(Captured(f"[STREAM_FAILED] Query: Traceback:\nArchiveError: {line}\n")) == (
        f"ArchiveError: {line}"
    )


def test_a_jvm_that_ends_while_objects_are_freed_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def hang_up() -> None:
        for _ in range(2):  # it is tried twice
            connection, _ = java.accept()
            with connection:
                connection.recv(100)

    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as java:
        thread = threading.Thread(target=hang_up, daemon=True)
        thread.start()
        quiet()
        gateway = GatewayParameters(address="127.0.0.1", port=port)
        GatewayClient(gateway_parameters=gateway).garbage_collect_object("o1")
        thread.join(HANG_SECONDS)
    logging.getLogger().error("something else")
    assert [record.getMessage() for record in caplog.records] == ["something else"]
