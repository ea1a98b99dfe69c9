"""The jobs that workers have, as far as nodes can tell."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from disque_console.model.jobs import read_copy
from disque_trio.overview.clients import Client
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import elements


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
