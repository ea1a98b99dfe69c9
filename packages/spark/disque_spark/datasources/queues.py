"""The data source ``disque``: reads jobs from queues, as a stream or a batch, and adds jobs.

A stream acknowledges a job when Spark has committed its micro-batch; until then, the stream holds
a lease on it (see ``leases``). A batch read takes leases, too; ``disque_spark.ack`` ends them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from disque_spark.client import BlockingClient, RefusedError, WireError
from disque_spark.leases.backlog import Queued
from disque_spark.leases.division import divide, divide_all
from disque_spark.leases.fetch import HEADERS, ReadOptions, acknowledge, leased, take
from disque_spark.leases.places import place_of, refuse_directory
from disque_spark.leases.planner import Offset, Planner
from disque_spark.leases.store import LeaseError, PartitionPlan
from disque_spark.nodes import Nodes
from disque_spark.options import (
    CONNECTION,
    MOST_TASKS,
    MOST_TIME,
    OptionError,
    arrow_schema,
    check_names,
    choice,
    flag,
    login_of,
    nodes_of,
    number,
    seconds,
    size,
)
from disque_spark.plain import plain
from disque_spark.sink.writer import WRITE_OPTIONS, BatchWriter, StreamWriter

READ_SCHEMA = StructType(
    [
        StructField("id", StringType(), False),
        StructField("queue", StringType(), False),
        StructField("body", BinaryType(), False),
        StructField("nacks", IntegerType(), False),
        StructField("additional_deliveries", IntegerType(), False),
        StructField("node", StringType(), False),
        StructField("ctime", TimestampType()),
    ]
)
_HEADER = StructType(
    [StructField("key", StringType(), False), StructField("value", BinaryType(), False)]
)
MOST_PATTERN = 255  # bytes; GETJOB takes no longer pattern
STREAM_JOBS = 10_000
READ_OPTIONS = (
    *(*CONNECTION, "discover", "timeout", "queue", "queues", "queuePattern"),
    *("leases", "leaseQueue"),
    *("ackOnRead", "maxJobsPerBatch", "maxBytesPerBatch", "partitionsPerNode", "minPartitions"),
    *("fetch", "heartbeat", "idleWait", "withCtime", "withHeaders", "acks"),
)
ACKS = "disque.acks"  # metadata of the column id: who acknowledges the jobs
COMMIT, PROCESS = "commit", "process"
ALL = "all"
HOW_MANY = (
    "ackOnRead: a read removes the jobs that it takes from their queues, whatever becomes of the"
    " rows (a limit(5) of the frame does not matter); set ackOnRead=true and maxJobsPerBatch to how"
    " many to take, or ackOnRead=all for all; to look at jobs that stay, read disque-jobs"
)


class DisqueSource(DataSource):
    """``disque``: the queues of a cluster."""

    @classmethod
    def name(cls) -> str:
        return "disque"

    @plain
    def schema(self) -> StructType:
        self._check_read()
        acks = {ACKS: choice(self.options, "acks", COMMIT, PROCESS)}
        fields = [StructField("id", StringType(), False, acks), *READ_SCHEMA.fields[1:]]
        if flag(self.options, "withHeaders", False):
            fields.append(StructField(HEADERS, ArrayType(_HEADER)))
        return StructType(fields)

    @plain
    def reader(self, schema: StructType) -> DataSourceReader:
        self._check_read()
        return BatchReader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        self._check_read()
        return StreamReader(schema, self.options)

    @plain
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        self._check_write()
        return BatchWriter(schema, self.options, overwrite)

    @plain
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        self._check_write()
        return StreamWriter(schema, self.options, overwrite)

    def _check_read(self) -> None:
        refuse_directory(self.options)
        check_names(self.options, self.name(), READ_OPTIONS, WRITE_OPTIONS, "when it reads")

    def _check_write(self) -> None:
        check_names(self.options, self.name(), WRITE_OPTIONS, READ_OPTIONS, "when it writes")


class Part(NamedTuple):
    """The input of a task: a partition of a batch, and the ``owner`` that planned it."""

    seq: int
    number: int
    plan: PartitionPlan
    owner: str


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads queues as a stream.

    There are two instances: one lives in the driver, plans and acknowledges; the other one is
    pickled and only reads. So the planner is created on first use.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._options = read_options(options, batch=False)
        self._schema = arrow_schema(schema)
        self._planner: Planner | None = None
        self._latest = Offset(0, "")

    def initialOffset(self) -> dict[str, object]:
        return self._plan().initial().json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.max_jobs)

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        """Called when everything up to ``start`` is committed, also after a restart."""
        self._latest = self._plan().latest(Offset.of(start))
        return self._latest.json()

    def reportLatestOffset(self) -> dict[str, object] | None:
        """What there is after the last batch of ``latestOffset``; None if no node can say."""
        try:
            return self._plan().report(self._latest)
        except (OSError, RefusedError):
            return None

    def prepareForTriggerAvailableNow(self) -> None:
        self._plan().only_what_is_there()

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        planner = self._plan()
        plans = planner.plans(Offset.of(end))
        return [InputPartition(Part(*part, planner.owner)) for part in plans] or [
            InputPartition(None)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)

    def commit(self, end: dict[str, object]) -> None:
        self._plan().finish(Offset.of(end))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def _plan(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options, self._schema, hold=True)
        return self._planner


class BatchReader(DataSourceReader):
    """Reads the jobs that are in the queues now."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._options = read_options(options, batch=True)
        self._schema = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        if self._options.leases is None:
            return [InputPartition(plan) for plan in self._unleased()] or [InputPartition(None)]
        with closing(Planner(self._options, self._schema, hold=False)) as planner:
            plans = planner.plans(planner.batch())
            owner = planner.owner
        return [InputPartition(Part(*part, owner)) for part in plans] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition.value, PartitionPlan):
            return self._read_once(partition.value)
        return _read(self._options, self._schema, partition)

    def _unleased(self) -> list[PartitionPlan]:
        options = self._options
        with closing(
            Nodes(options.nodes, options.login, options.discover, options.timeout)
        ) as nodes:
            found = Queued(nodes, options.queues, options.pattern).ask()
        if not found:
            raise WireError("no node can be reached: " + ", ".join(options.nodes))
        parts = (options.partitions_per_node, options.min_partitions)
        if not options.max_jobs:
            return divide_all(list(found), *parts)
        lengths = {address: 0 if node.leaving else node.jobs() for address, node in found.items()}
        return divide(lengths, options.max_jobs, *parts)

    def _read_once(self, plan: PartitionPlan) -> Iterator[pa.RecordBatch]:
        """Acknowledge jobs before returning them: a failure after that loses them."""
        options = self._options
        with BlockingClient([plan.address], options.login, options.timeout) as client:
            for jobs in take(client, options, plan.limit, self._schema):
                acknowledge(client, jobs.column(0).to_pylist())
                yield jobs


def read_options(options: Mapping[str, str], batch: bool) -> ReadOptions:
    """Parse the options of a read.

    Raises:
        OptionError: an option is invalid or missing.
    """
    taken = choice(options, "ackOnRead", "false", "true", ALL)
    once = taken != "false"
    if once and not batch:
        raise OptionError("ackOnRead: for batch reads; a stream acknowledges committed batches")
    acks = choice(options, "acks", COMMIT, PROCESS)
    if once and acks == PROCESS:
        raise OptionError("acks: with ackOnRead, jobs are acknowledged when they are read")
    if once and "maxBytesPerBatch" in options:
        raise OptionError("maxBytesPerBatch: cannot be combined with ackOnRead")
    most = number(options, "maxJobsPerBatch", 0 if batch else STREAM_JOBS, 0 if batch else 1)
    if once and (taken == ALL) == bool(most):
        raise OptionError(HOW_MANY)
    pattern = options.get("queuePattern")
    return ReadOptions(
        queues=_queues_of(options) if pattern is None else (),
        nodes=tuple(nodes_of(options)),
        discover=flag(options, "discover", True),
        partitions_per_node=number(options, "partitionsPerNode", 1, most=MOST_TASKS),
        max_jobs=most,
        leases=None if once else place_of(options),
        idle_wait=number(options, "idleWait", 100, 0, MOST_TIME),
        fetch=number(options, "fetch", 500),
        wait=number(options, "idleWait", 100, 0, MOST_TIME) if batch else 0,
        with_ctime=flag(options, "withCtime", False),
        heartbeat=seconds(options, "heartbeat", 10),
        login=login_of(options),
        timeout=seconds(options, "timeout", 60),
        pattern=None if pattern is None else _pattern_of(pattern, options),
        min_partitions=number(options, "minPartitions", 1, most=MOST_TASKS),
        max_bytes=size(options, "maxBytesPerBatch", 0) if "maxBytesPerBatch" in options else 0,
        with_headers=flag(options, "withHeaders", False),
        elsewhere=acks == PROCESS,
    )


def _pattern_of(pattern: str, options: Mapping[str, str]) -> str:
    if options.get("queue") or options.get("queues"):
        raise OptionError("queuePattern: cannot be combined with queue or queues")
    if not 1 <= len(pattern.encode()) <= MOST_PATTERN:
        raise OptionError(f"queuePattern: expected 1 to {MOST_PATTERN} bytes")
    return pattern


def _queues_of(options: Mapping[str, str]) -> tuple[str, ...]:
    one, several = options.get("queue"), options.get("queues")
    queues = [one] if one else [queue.strip() for queue in (several or "").split(",")]
    if (one and several) or not all(queues):
        raise OptionError(
            "queue or queues: expected one name, or several separated by commas; or queuePattern"
        )
    return tuple(dict.fromkeys(queues))


def _read(
    options: ReadOptions, schema: pa.Schema, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """Read the jobs of a task."""
    part = partition.value
    if part is None:  # a batch without jobs; Spark needs at least one partition
        return iter(())
    if options.leases is None or not isinstance(part, Part):
        raise LeaseError(f"not a partition of a leased batch: {part!r}")
    batch = options.leases.batch(part.seq, part.owner, part.plan.address)
    return leased(batch, part.number, part.plan, options, schema)
