"""A live cluster as tables: ``disque-jobs`` and ``disque-queues``.

Each node is a partition. Rows are what JSCAN and QSTAT return while the nodes go on working: a job
that exists throughout is returned exactly once by each node that holds a copy of it.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import cache
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from disque_spark.append_only import STATES
from disque_spark.client import Arg, BlockingClient, WireError, accepted
from disque_spark.datasources.pushdown import JobFilters, QueueFilters
from disque_spark.nodes import Nodes
from disque_spark.options import (
    CONNECTION,
    arrow_schema,
    check_names,
    choice,
    flag,
    login_of,
    nodes_of,
    number,
    seconds,
    text,
    words,
)
from disque_trio.respclient.blocking import Reply

Column: TypeAlias = str | int | bytes | list[str] | None

JOBS_SCHEMA = """
    id STRING NOT NULL, queue STRING NOT NULL, state STRING NOT NULL, repl INT, ttl BIGINT,
    ctime TIMESTAMP, delay BIGINT, retry BIGINT, nacks INT, additional_deliveries INT,
    nodes_delivered ARRAY<STRING>, nodes_confirmed ARRAY<STRING>, next_requeue_within BIGINT,
    next_awake_within BIGINT, body BINARY, node STRING NOT NULL
"""
QUEUES_SCHEMA = """
    queue STRING NOT NULL, len BIGINT, age BIGINT, idle BIGINT, blocked INT,
    import_from ARRAY<STRING>, import_rate BIGINT, jobs_in BIGINT, jobs_out BIGINT, pause STRING,
    node STRING NOT NULL
"""

_BOTH = (*CONNECTION, "discover", "unreachable", "batchSize", "timeout", "pushdown")
JOBS_OPTIONS = (*_BOTH, "queue", "state")
QUEUES_OPTIONS = (*_BOTH, "minLen", "maxLen", "importRate", "maxIdle")


class JobsSource(DataSource):
    """``disque-jobs``: the jobs that the nodes hold."""

    @classmethod
    def name(cls) -> str:
        return "disque-jobs"

    def schema(self) -> str:
        check_names(self.options, self.name(), JOBS_OPTIONS)
        return JOBS_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        check_names(self.options, self.name(), JOBS_OPTIONS)
        pushdown = flag(self.options, "pushdown", False)
        return (PushingJobsReader if pushdown else JobsReader)(schema, self.options)


class QueuesSource(DataSource):
    """``disque-queues``: the queues that the nodes have."""

    @classmethod
    def name(cls) -> str:
        return "disque-queues"

    def schema(self) -> str:
        check_names(self.options, self.name(), QUEUES_OPTIONS)
        return QUEUES_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        check_names(self.options, self.name(), QUEUES_OPTIONS)
        pushdown = flag(self.options, "pushdown", False)
        return (PushingQueuesReader if pushdown else QueuesReader)(schema, self.options)


class NodesReader(DataSourceReader):
    """The base class of both readers: finds the nodes, and iterates over each with a cursor.

    Options: ``nodes``, those of ``login_of``, ``discover`` (whether to ask ``nodes`` for all nodes
    of the cluster), ``unreachable`` (fail or skip), ``batchSize`` (entries that a node visits in
    one call), ``timeout`` (seconds to wait for a reply).
    """

    def __init__(
        self, schema: StructType, options: Mapping[str, str], filters: JobFilters | QueueFilters
    ) -> None:
        self.filters = filters
        self._schema = schema
        self._nodes = nodes_of(options)
        self._login = login_of(options)
        self._discover = flag(options, "discover", True)
        self._skip = choice(options, "unreachable", "fail", "skip") == "skip"
        self._count = number(options, "batchSize", 1000)
        self._timeout = seconds(options, "timeout", 60)

    def partitions(self) -> list[InputPartition]:
        """A partition for each node; the value is its address."""
        with closing(Nodes(self._nodes, self._login, self._discover, self._timeout)) as nodes:
            return [InputPartition(address) for address in nodes.addresses()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one node; each step of its cursor is a batch."""
        schema = arrow_schema(self._schema)
        with BlockingClient([partition.value], self._login, self._timeout) as client:
            try:
                node, _ = client.hello()
            except WireError:
                if self._skip:
                    return
                raise
            for name, *options in self.filters.walks(self._count):
                cursor: Arg = 0
                while cursor != b"0":
                    step = client.call(name, cursor, *options)
                    if not isinstance(step, list) or not isinstance(step[0], bytes):
                        raise WireError(f"{client.address}: unexpected reply to {name!r}: {step!r}")
                    cursor = step[0]
                    rows = self._rows(client, step[1], node)
                    if rows:
                        yield pa.RecordBatch.from_pylist(rows, schema=schema)

    @abstractmethod
    def _rows(self, client: BlockingClient, found: Reply, node: str) -> list[dict[str, Column]]:
        """The rows for one step of the cursor."""


class JobsReader(NodesReader):
    """Reads jobs."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        states = words(options, "state", STATES)
        super().__init__(schema, options, JobFilters(options.get("queue"), states))

    def _rows(self, client: BlockingClient, found: Reply, node: str) -> list[dict[str, Column]]:
        assert isinstance(found, list)
        rows: list[dict[str, Column]] = []
        for job in found:
            row = columns_of(job)
            if isinstance(row["ctime"], int):
                row["ctime"] //= 1000  # from ms * 1,000,000 + counter to microseconds
            row["node"] = node
            rows.append(row)
        return rows


class QueuesReader(NodesReader):
    """Reads queues."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        filters = QueueFilters(
            number(options, "minLen", 0, 0),
            number(options, "maxLen", 0, 0) if "maxLen" in options else None,
            number(options, "importRate", 0, 0),
            seconds(options, "maxIdle", 0, 0) if "maxIdle" in options else None,
        )
        super().__init__(schema, options, filters)

    def _rows(self, client: BlockingClient, found: Reply, node: str) -> list[dict[str, Column]]:
        assert isinstance(found, list)
        names = [name for name in found if isinstance(name, bytes)]
        rows: list[dict[str, Column]] = []
        for reply in client.pipeline([("QSTAT", name) for name in names]):
            fields = accepted(reply)
            if fields is not None:  # None if the queue has gone since
                row = columns_of(fields)
                row["queue"] = row.pop("name")
                row["node"] = node
                rows.append(row)
        return rows


class Pushing(NodesReader):
    """Accepts filters; ``datasources.pushdown`` explains why not every reader does."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Called by Spark with the filters of the query."""
        return self.filters.take(filters)


class PushingJobsReader(Pushing, JobsReader):
    """Reads jobs, with filter pushdown."""


class PushingQueuesReader(Pushing, QueuesReader):
    """Reads queues, with filter pushdown."""


@cache
def _column(field: bytes) -> str:
    """The name of the column for a field of SHOW or QSTAT."""
    return field.decode().replace("-", "_")


def columns_of(fields: Reply) -> dict[str, Column]:
    """The columns for alternating names and values, as in replies of SHOW and QSTAT."""
    assert isinstance(fields, list)
    row: dict[str, Column] = {}
    for name, value in zip(fields[::2], fields[1::2], strict=True):
        assert isinstance(name, bytes)
        column = _column(name)
        if isinstance(value, bytes):
            row[column] = value if column == "body" else text(value)
        elif isinstance(value, list):
            row[column] = [text(item) for item in value if isinstance(item, bytes)]
        elif value is None or isinstance(value, int):
            row[column] = value
    return row
