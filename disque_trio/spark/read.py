"""The data source ``disque``: jobs out of queues, as a stream or as a batch, and into them.

A stream acknowledges a job when Spark has committed the batch that it is in; until then its lease
keeps it, see ``leases``. A batch read leases likewise, and ``disque_trio.spark.ack`` ends it.
"""

from collections.abc import Iterator, Mapping, Sequence
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
from pyspark.sql.types import StructType

from disque_trio.spark.leases import LeaseError, Share, batch_path
from disque_trio.spark.nodes import Nodes
from disque_trio.spark.options import OptionError, arrow_schema, directory, flag, nodes_of, number
from disque_trio.spark.planning import Offset, Planner, Reading
from disque_trio.spark.taking import Taking, acknowledge, leased, take
from disque_trio.spark.wire import Wire, WireError
from disque_trio.spark.write import BatchWriter, StreamWriter

READ_SCHEMA = """
    id STRING NOT NULL, queue STRING NOT NULL, body BINARY NOT NULL, nacks INT NOT NULL,
    additional_deliveries INT NOT NULL, node STRING NOT NULL, ctime TIMESTAMP
"""
STREAM_JOBS = 10_000


class DisqueSource(DataSource):
    """``disque``: queues of a cluster."""

    @classmethod
    def name(cls) -> str:
        return "disque"

    def schema(self) -> str:
        return READ_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return BatchWriter(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return StreamWriter(schema, self.options, overwrite)


class Part(NamedTuple):
    """What a task is told: a share of a batch."""

    seq: int
    number: int
    share: Share


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads queues as a stream.

    There are two of it: one lives in the driver, plans and acknowledges; the other one is pickled
    and only reads. So what plans is made when it is first needed.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._reading = reading_of(options, batch=False)
        self._schema = arrow_schema(schema)
        self._planner: Planner | None = None

    def initialOffset(self) -> dict[str, object]:
        return self._plan().initial().json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._reading.max_jobs)

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        """Called when all up to ``start`` is committed, also after a restart."""
        return self._plan().latest(Offset.of(start)).json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._plan().only_what_is_there()

    def partitions(
        self, start: dict[str, object], end: dict[str, object]
    ) -> Sequence[InputPartition]:
        shares = self._plan().shares(Offset.of(end))
        return [InputPartition(Part(*part)) for part in shares] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._reading, self._schema, partition)

    def commit(self, end: dict[str, object]) -> None:
        self._plan().finish(Offset.of(end))

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def _plan(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._reading, self._schema, hold=True)
        return self._planner


class BatchReader(DataSourceReader):
    """Reads what is in the queues now."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._reading = reading_of(options, batch=True)
        self._schema = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        reading = self._reading
        if reading.directory is None:
            return [InputPartition(share) for share in self._unleased()]
        planner = Planner(reading, self._schema, hold=False)
        try:
            shares = planner.shares(planner.batch())
        finally:
            planner.close()
        return [InputPartition(Part(*part)) for part in shares] or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition.value, Share):
            return self._read_once(partition.value)
        return _read(self._reading, self._schema, partition)

    def _unleased(self) -> list[Share]:
        reading = self._reading
        nodes = Nodes(
            reading.nodes, reading.taking.password, reading.discover, reading.taking.timeout
        )
        try:
            found = list(nodes.ask([("PING",)]))
        finally:
            nodes.close()
        if not found:
            raise WireError("no node can be reached: " + ", ".join(reading.nodes))
        return [Share(address, 0) for address in found for _ in range(reading.partitions_per_node)]

    def _read_once(self, share: Share) -> Iterator[pa.RecordBatch]:
        """Acknowledge first: what fails after that has lost the jobs."""
        taking = self._reading.taking
        with Wire([share.address], taking.password, reply_timeout=taking.timeout) as wire:
            for jobs in take(wire, taking, share.limit, self._schema):
                acknowledge(wire, jobs.column(0).to_pylist())
                yield jobs


def reading_of(options: Mapping[str, str], batch: bool) -> Reading:
    """What the options say.

    Raises:
        OptionError: one is not what it should be, or missing.
    """
    leases = options.get("leaseDirectory")
    once = flag(options, "ackOnRead", False)
    if once and not batch:
        raise OptionError("ackOnRead: only batch reads have it; a stream acknowledges what it has")
    if once and "maxJobsPerBatch" in options:
        raise OptionError("maxJobsPerBatch: with ackOnRead all that is queued is taken")
    if not leases and not once:
        raise OptionError(
            "leaseDirectory: expected a directory that the driver and all executors share, for"
            " this query alone; on one machine for example one beside the checkpoint"
        )
    return Reading(
        nodes=tuple(nodes_of(options)),
        discover=flag(options, "discover", True),
        partitions_per_node=number(options, "partitionsPerNode", 1),
        max_jobs=number(options, "maxJobsPerBatch", 0 if batch else STREAM_JOBS, 0 if batch else 1),
        directory=directory(leases) if leases and not once else None,
        idle_wait=number(options, "idleWait", 100, 0),
        taking=Taking(
            queues=_queues_of(options),
            fetch=number(options, "fetch", 500),
            wait=number(options, "idleWait", 100, 0) if batch else 0,
            with_ctime=flag(options, "withCtime", False),
            heartbeat=number(options, "heartbeat", 10),
            password=options.get("password"),
            timeout=number(options, "timeout", 60),
        ),
    )


def _queues_of(options: Mapping[str, str]) -> tuple[str, ...]:
    one, several = options.get("queue"), options.get("queues")
    queues = [one] if one else [queue.strip() for queue in (several or "").split(",")]
    if (one and several) or not all(queues):
        raise OptionError("queue or queues: expected one name, or several separated by commas")
    return tuple(dict.fromkeys(queues))


def _read(
    reading: Reading, schema: pa.Schema, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    part = partition.value
    if part is None:  # a batch without jobs, for Spark wants a partition
        return iter(())
    if reading.directory is None or not isinstance(part, Part):
        raise LeaseError(f"no share of a batch: {part!r}")
    batch = batch_path(reading.directory, part.seq)
    return leased(batch, part.number, part.share, reading.taking, schema)
