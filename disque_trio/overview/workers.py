"""The workers of a cluster: processes that take jobs, and the jobs that they have."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from disque_trio.client.shown import ShownJob
from disque_trio.overview.clients import Client

_OF_PROCESS: Final = re.compile(r"[^:]+:[^:]+:\d+")
"""The name of a connection of a program of ours: program, host, process."""

Hands: TypeAlias = Mapping[tuple[str, int], list[ShownJob]]
"""Jobs, by the address of the node that delivered them and the id of the client that has them."""


@dataclass(slots=True)
class WorkerRow:
    """A process that takes jobs, or a connection that does not tell its process.

    Attributes:
        name: of its connections, or the address.
        clients: its connections, on all nodes.
        jobs: those that it has.
    """

    name: str
    clients: list[Client] = field(default_factory=list)
    jobs: list[ShownJob] = field(default_factory=list)

    @property
    def nodes(self) -> list[str]:
        """The addresses of the nodes to which it is connected."""
        return sorted({client.node for client in self.clients})

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


def workers(clients: Iterable[Client], hands: Hands) -> list[WorkerRow]:
    """The workers among ``clients``: those that have jobs, or whose last command was a
    worker's."""
    found: dict[str, WorkerRow] = {}
    at_work: set[str] = set()
    for client in clients:
        name = client.name if _OF_PROCESS.fullmatch(client.name) else client.address
        row = found.setdefault(name, WorkerRow(client.name or client.address))
        row.clients.append(client)
        jobs = hands.get((client.node, client.id), [])
        row.jobs += jobs
        if jobs or client.works:
            at_work.add(name)
    rows = [found[name] for name in at_work]
    return sorted(rows, key=lambda row: (row.name, row.clients[0].address))


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
