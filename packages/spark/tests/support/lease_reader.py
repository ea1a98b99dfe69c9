"""A planner of reads with leases, and the tasks of its batches."""

import pyarrow as pa

from disque_spark.leases.fetch import ReadOptions, leased
from disque_spark.leases.planner import Offset, Planner
from disque_spark.leases.queue import QueuePlace
from packages.spark.tests.support.lease_model import ModelPlace
from tests.support.harness import (
    LiveNode,
)

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("queue", pa.string()),
        ("body", pa.binary()),
        ("nacks", pa.int32()),
        ("additional_deliveries", pa.int32()),
        ("node", pa.string()),
        ("ctime", pa.timestamp("us", "UTC")),
    ]
)


class Reader:
    """A planner, and the tasks of its batches."""

    def __init__(self, place: QueuePlace | ModelPlace, nodes: list[str], **taking: object) -> None:
        self.options = ReadOptions(
            queues=("q",),
            nodes=tuple(nodes),
            discover=False,
            partitions_per_node=2,
            max_jobs=100,
            leases=place,  # type: ignore[arg-type]
            idle_wait=5,
            **taking,  # type: ignore[arg-type]
        )
        self.place = place
        self.planner = Planner(self.options, SCHEMA, hold=False)

    def read(self, offset: Offset) -> list[str]:
        """The bodies of a batch."""
        return [
            body.decode()
            for seq, number, share in self.planner.plans(offset)
            for rows in leased(
                self.place.batch(seq, self.planner.owner, share.address),
                number,
                share,
                self.options,
                SCHEMA,
            )
            for body in rows.column(2).to_pylist()
        ]

    def again(self) -> None:
        """Restart."""
        self.planner.close()
        self.planner = Planner(self.options, SCHEMA, hold=False)

    def to_acknowledge(self) -> list[int]:
        """The finished batches that are not acknowledged."""
        self.planner.close()
        log = self.place.open()
        pending = log.to_acknowledge()
        log.close()
        self.again()
        return pending


def place_at(*nodes: LiveNode) -> QueuePlace:
    """A place for leases."""
    return QueuePlace("test", tuple(f"127.0.0.1:{node.port}" for node in nodes))


def add(node: LiveNode, count: int, first: int = 0) -> list[str]:
    wire = node.wire()
    for n in range(first, first + count):
        wire.send("ADDJOB", "q", f"body {n}", 0, "RETRY", 1)
    return [str(wire.read(), "ascii") for _ in range(count)]  # type: ignore[call-overload]


def jobs_at(node: LiveNode) -> int:
    reply = node.ask("JSCAN", 0, "BUSYLOOP", "QUEUE", "q", "STATE", "queued", "STATE", "active")
    assert isinstance(reply, list)
    return len(reply[1])


def left_at(node: LiveNode) -> list[dict[bytes, object]]:
    """The queued and delivered jobs at a node, except leases."""
    reply = node.ask("JSCAN", 0, "BUSYLOOP", "STATE", "queued", "STATE", "active", "REPLY", "all")
    assert isinstance(reply, list)
    jobs = [dict(zip(job[::2], job[1::2], strict=True)) for job in reply[1]]
    return [job for job in jobs if not job[b"queue"].startswith(b"spark-leases/")]
