"""The workers of a cluster: processes that take jobs, and the jobs that they have."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from disque_trio.client.shown import ShownJob
from disque_trio.overview.clients import Client


@dataclass(slots=True)
class WorkerRow:
    """A process that takes jobs: the connections of one name to all nodes. One without a name is
    taken for a process of its own.

    Attributes:
        clients: its connections, at least one.
        jobs: those that it has, the longest first.
    """

    clients: list[Client] = field(default_factory=list)
    jobs: list[ShownJob] = field(default_factory=list)

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
        """The queues of the jobs that it has."""
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


def workers(clients: Iterable[Client], running: Iterable[tuple[str, ShownJob]]) -> list[WorkerRow]:
    """The workers among ``clients``, by name: those that have jobs, or whose last command was a
    worker's.

    Args:
        running: jobs, each after the address of the node that delivered it.
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
    rows = [row for row in found.values() if row.jobs or any(each.works for each in row.clients)]
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
