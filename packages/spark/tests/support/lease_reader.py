"""A planner of reads with leases, and the tasks of its batches."""

from pathlib import Path

import pyarrow as pa

from disque_spark.leases.directory import (
    DirectoryPlace,
)
from disque_spark.leases.fetch import ReadOptions, leased
from disque_spark.leases.planner import Offset, Planner
from disque_spark.leases.queue import QueuePlace
from disque_spark.leases.store import LeasePlace
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

    def __init__(self, place: LeasePlace, nodes: list[str], **taking: object) -> None:
        self.options = ReadOptions(
            queues=("q",),
            nodes=tuple(nodes),
            discover=False,
            partitions_per_node=2,
            max_jobs=100,
            leases=place,
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


def place_for(kind: str, tmp_path: Path, node: LiveNode) -> LeasePlace:
    """A place for leases of either kind."""
    if kind == "disque":
        return QueuePlace("test", (f"127.0.0.1:{node.port}",))
    return DirectoryPlace(tmp_path / "leases")


def add(node: LiveNode, count: int, first: int = 0) -> list[str]:
    wire = node.wire()
    for n in range(first, first + count):
        wire.send("ADDJOB", "q", f"body {n}", 0, "RETRY", 1)
    return [str(wire.read(), "ascii") for _ in range(count)]  # type: ignore[call-overload]


def jobs_at(node: LiveNode) -> int:
    reply = node.ask("JSCAN", 0, "BUSYLOOP", "QUEUE", "q", "STATE", "queued", "STATE", "active")
    assert isinstance(reply, list)
    return len(reply[1])
