"""Workers, and the jobs that they have, as far as nodes can tell."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from disque_console.model.clients import Client
from disque_console.model.job_lists import ListedJob
from disque_console.model.jobs import read_copy
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import elements


@dataclass(slots=True)
class WorkerProcess:
    """The connections of one process to all nodes: those of the same name. One without a name is
    taken for a process of its own.

    Attributes:
        clients: the connections, at least one.
        jobs: that it has, the longest first.
    """

    clients: list[Client] = field(default_factory=list)
    jobs: list[ListedJob] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name; empty: it has none."""
        return self.clients[0].name

    @property
    def nodes(self) -> list[str]:
        """The nodes that it is connected to."""
        return sorted({client.node for client in self.clients})

    @property
    def users(self) -> list[str]:
        """The users as whom it is logged in."""
        return sorted({client.user for client in self.clients})

    @property
    def queues(self) -> list[str]:
        """The queues of its jobs."""
        return sorted({job.copy.queue for job in self.jobs})

    @property
    def age(self) -> int:
        """Seconds since its first connection."""
        return max(client.age for client in self.clients)

    @property
    def idle(self) -> int:
        """Seconds since its last command."""
        return min(client.idle for client in self.clients)

    @property
    def blocked(self) -> bool:
        """Whether it waits for jobs."""
        return any(client.blocked for client in self.clients)

    @property
    def key(self) -> str:
        """What tells it from the others."""
        first = self.clients[0]
        return self.name or f"{first.node} {first.id}"


def processes(
    clients: Iterable[Client], running: Iterable[ListedJob], search: str
) -> list[WorkerProcess]:
    """The processes that have jobs, or with a connection whose last command was a worker's, and
    with ``search`` in the name, address, user or node of a connection. Those whose job has been
    running longest come first; then those that wait, and those that were active last."""
    found: dict[str, WorkerProcess] = {}
    by_id: dict[tuple[str, int], WorkerProcess] = {}
    for client in clients:
        process = found.setdefault(client.name or f"{client.node} {client.id}", WorkerProcess())
        process.clients.append(client)
        by_id[client.node, client.id] = process
    for job in running:
        taker = by_id.get((job.address, job.copy.client))
        if taker is not None:
            taker.jobs.append(job)
    wanted = search.lower()
    chosen = [
        process
        for process in found.values()
        if (process.jobs or any(client.works for client in process.clients))
        and any(_matches(client, wanted) for client in process.clients)
    ]
    return sorted(chosen, key=_busy_first)


def _busy_first(process: WorkerProcess) -> tuple[int, bool, int, str]:
    longest = max((job.copy.client_since or 0 for job in process.jobs), default=-1)
    return -longest, not process.blocked, process.idle, process.key


def _matches(client: Client, wanted: str) -> bool:
    return (
        wanted in client.name.lower()
        or wanted in client.address
        or wanted in client.user.lower()
        or wanted in client.node
    )


@dataclass(frozen=True, slots=True)
class JobInHand:
    """A job that a worker has.

    Attributes:
        nodes: the node that delivered it; with older releases, all nodes with a copy.
        since: s since it was delivered, or since its worker last sent WORKING; None if unknown, as
            with older releases.
        left: s until it is requeued; None for never.
        age: s since it was added. returns: how often it was requeued.
        taker: id of the client that has it, on the node ``taken_on``; 0 if unknown.
    """

    id: str
    nodes: tuple[str, ...]
    since: float | None
    left: float | None
    age: float
    returns: int
    taker: int = 0
    taken_on: str = ""

    def holder(self, clients: Mapping[tuple[str, int], Client]) -> Client | None:
        """The client that has it, from ``clients`` by node and id; None if unknown or gone."""
        return clients.get((self.taken_on, self.taker))


def read_held(answers: Iterable[tuple[str, Reply]], now: float) -> list[JobInHand]:
    """Read nodes' replies to SHOW; the job that has been with a worker for longest comes first.

    Args:
        answers: addresses, and arrays of jobs, with null for jobs that are gone.
        now: s since the epoch.

    Raises:
        ProtocolError: a reply is not one to SHOW.
    """
    found: dict[str, JobInHand] = {}
    for node, reply in answers:
        for entry in elements(reply):
            job = read_copy(elements(entry)) if entry is not None else None
            if job is None or job.state != "active":
                continue
            left = job.requeued_in if job.retry else None
            known = found.get(job.id)
            # The node that delivered it, or last heard from its worker, requeues it last.
            if known is not None and known.left is not None:
                left = max(known.left, left or 0.0)
            returns = job.nacks + job.additional_deliveries
            age = max(now - job.created, 0.0)
            nodes = (*known.nodes, node) if known else (node,)
            taker, taken_on = job.client, node
            since = None if job.client_since is None else job.client_since / 1000
            if not taker and known is not None:
                taker, taken_on, since = known.taker, known.taken_on, known.since
            found[job.id] = JobInHand(job.id, nodes, since, left, age, returns, taker, taken_on)
    return sorted(found.values(), key=lambda held: (-(held.since or 0.0), held.id))
