"""Runs the work of an audit on Spark: it divides the work, repeats failed tasks and brings rows
together, but no single job or event passes through the JVM."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, redirect_stdout
from io import StringIO

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from disque_spark.audit.engine import BUCKET, Engine, Step, Tasks
from disque_spark.classic import Py4JError, is_gone
from disque_spark.failures import one_line
from disque_spark.files import settings_of
from disque_spark.segments import SegmentError
from disque_spark.terminal import TerminalProgress

_MOST_CORES = 1 << 16


class SparkEngine(Engine):
    """Runs tasks as tasks of Spark.

    Args:
        spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self.settings = settings_of(spark)
        self.failures = (PySparkException, Py4JError)
        self._cores = 0

    def is_gone(self) -> bool:
        return is_gone(self.spark)

    @property
    def cores(self) -> int:
        """The number of Spark's cores, which is its default number of tasks."""
        if not self._cores:
            tasks = self.spark.range(_MOST_CORES).select(f.spark_partition_id().alias("task"))
            self._cores = int(tasks.agg(f.max("task")).collect()[0][0]) + 1
        return self._cores

    def shown_by(self, progress: TerminalProgress) -> AbstractContextManager[None]:
        return progress.of(self.spark)

    def rows(self, tasks: Tasks, *steps: Step) -> pa.Table:
        """See ``Engine``.

        Raises:
            SegmentError: a task raised it.
            PySparkException: Spark failed, or a task did for another reason.
        """
        schema = steps[-1].schema if steps else tasks.schema
        if not tasks.count:
            return schema.empty_table()
        try:
            return self._frame(tasks, *steps).toArrow().cast(schema)
        except PySparkException as failure:
            if SegmentError.__name__ not in str(failure):
                raise
            text = one_line(failure).removeprefix(f"{SegmentError.__name__}: ")
            raise SegmentError(text) from None

    def explain(self, tasks: Tasks, *steps: Step) -> str:
        """Spark's plan."""
        with redirect_stdout(StringIO()) as text:
            self._frame(tasks, *steps).explain("formatted")
        return text.getvalue()

    def _frame(self, tasks: Tasks, *steps: Step) -> DataFrame:
        task = tasks.run

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from task(number)

        numbers = self.spark.range(0, tasks.count, 1, tasks.count)
        rows = numbers.mapInArrow(run, from_arrow_schema(tasks.schema))
        for step in steps:
            together = rows.repartitionById(step.buckets, BUCKET)
            rows = together.mapInArrow(step.merge, from_arrow_schema(step.schema))
        return rows


def spark_of(engine: Engine) -> SparkSession:
    """The session of an engine.

    Raises:
        TypeError: it has none.
    """
    if not isinstance(engine, SparkEngine):
        raise TypeError("the engine has no Spark session")
    return engine.spark
