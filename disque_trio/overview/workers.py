"""The workers of a cluster: processes that take jobs, and the jobs that they have."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from disque_trio.client.shown import ShownJob
from disque_trio.overview.clients import Client
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import elements, integer, text


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """What a worker process says of itself (WORKER REPORT).

    Attributes:
        node, client: the connection by which it hears what it is asked to do.
        worker: the host and the id of the process that started it and others like it.
        version: its release. state: ``serving`` or ``ending``.
        slots: how many tasks it runs at once. memory: bytes. age: s since it said so.
        queues: that it serves, or the first of them; of how many: queue_count.
        order: what it was asked to do, ``stop`` or ``handback``; empty: nothing.
    """

    node: str
    client: int
    worker: str = ""
    version: str = ""
    state: str = ""
    slots: int = 0
    memory: int = 0
    age: float = 0.0
    queues: tuple[str, ...] = ()
    queue_count: int = 0
    order: str = ""


def read_reports(node: str, reply: Reply) -> list[ProcessReport]:
    """Read what WORKER LIST tells on ``node``. Raises ProtocolError."""
    found = []
    for entry in elements(reply):
        id, _, age, order, given = elements(entry)[:5]
        words = [text(word) for word in elements(given)]
        pairs = list(zip(words[::2], words[1::2], strict=False))
        told = dict(pairs)
        queues = tuple(value for name, value in pairs if name == "queue")
        found.append(
            ProcessReport(
                node,
                integer(id),
                told.get("worker", ""),
                told.get("version", ""),
                told.get("state", ""),
                slots=_number(told, "slots"),
                memory=_number(told, "memory"),
                age=integer(age) / 1000,
                queues=queues,
                queue_count=max(_number(told, "queues"), len(queues)),
                order=text(order),
            )
        )
    return found


def _number(told: Mapping[str, str], name: str) -> int:
    value = told.get(name, "")
    return int(value) if value.isdecimal() and len(value) < 16 else 0


@dataclass(slots=True)
class WorkerRow:
    """A process that takes jobs: the connections of one name to all nodes. One without a name is
    taken for a process of its own.

    Attributes:
        clients: its connections, at least one.
        jobs: those that it has, the longest first.
        report: what it says of itself; None: it does not tell.
    """

    clients: list[Client] = field(default_factory=list)
    jobs: list[ShownJob] = field(default_factory=list)
    report: ProcessReport | None = None

    @property
    def name(self) -> str:
        """Of its connections, or the address."""
        return self.clients[0].name or self.clients[0].address

    @property
    def key(self) -> str:
        """What tells it from the others."""
        return _key(self.clients[0])

    @property
    def nodes(self) -> list[str]:
        """The addresses of the nodes to which it is connected."""
        return sorted({client.node for client in self.clients})

    @property
    def users(self) -> list[str]:
        """The users as whom it is logged in."""
        return sorted({client.user for client in self.clients})

    @property
    def queues(self) -> list[str]:
        """The queues that it serves, if it tells, or those of the jobs that it has."""
        if self.report is not None and self.report.queues:
            return list(self.report.queues)
        return sorted({job.queue for job in self.jobs})

    @property
    def waiting(self) -> int:
        """How many of its connections wait for a job."""
        return sum(client.blocked for client in self.clients)

    @property
    def longest(self) -> float | None:
        """How long (s) it has had the oldest of its jobs."""
        times = [job.client_since for job in self.jobs if job.client_since is not None]
        return max(times) / 1000 if times else None

    @property
    def idle(self) -> int:
        """Seconds since it sent its last command."""
        return min(client.idle for client in self.clients)

    @property
    def age(self) -> int:
        """Seconds since it connected."""
        return max(client.age for client in self.clients)


def workers(
    clients: Iterable[Client],
    running: Iterable[tuple[str, ShownJob]],
    reports: Sequence[ProcessReport] = (),
) -> list[WorkerRow]:
    """The workers among ``clients``, by name: those that have jobs, or report what they do, or
    whose last command was a worker's.

    Args:
        running: jobs, each after the address of the node that delivered it.
        reports: of worker processes. The last one of a process counts.
    """
    found: dict[str, WorkerRow] = {}
    by_id: dict[tuple[str, int], WorkerRow] = {}
    for client in clients:
        row = by_id[client.node, client.id] = found.setdefault(_key(client), WorkerRow())
        row.clients.append(client)
    for node, job in running:
        taker = by_id.get((node, job.client))
        if taker is not None:
            taker.jobs.append(job)
    for report in sorted(reports, key=lambda one: -one.age):
        reporter = by_id.get((report.node, report.client))
        if reporter is not None:
            reporter.report = report
    rows = [
        row
        for row in found.values()
        if row.jobs or row.report is not None or any(each.works for each in row.clients)
    ]
    for row in rows:
        row.jobs.sort(key=lambda job: (-(job.client_since or 0), job.id))
    return sorted(rows, key=lambda row: (row.name, row.key))


def _key(client: Client) -> str:
    return client.name or f"{client.node} {client.id}"


def worker_fields(row: WorkerRow) -> dict[str, Any]:
    """A worker. Times are in seconds."""
    return {
        "worker": row.name,
        "addresses": sorted({client.address for client in row.clients}),
        "user": row.clients[0].user,
        "nodes": row.nodes,
        "connections": len(row.clients),
        "waiting": row.waiting,
        "connected_for": row.age,
        "idle": row.idle,
        "queues": row.queues,
        "part_of": None if row.report is None else row.report.worker,
        "state": None if row.report is None else row.report.order or row.report.state,
        "slots": None if row.report is None else row.report.slots,
        "memory": None if row.report is None else row.report.memory,
        "jobs": [
            {
                "id": job.id,
                "queue": job.queue,
                "running_for": None if job.client_since is None else job.client_since / 1000,
                "progress": float(job.progress) if job.progress else None,
                "progress_text": job.progress_text,
            }
            for job in row.jobs
        ],
    }
