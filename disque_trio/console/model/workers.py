"""Who works, and which jobs are in somebody's hands, as far as nodes can tell."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from disque_trio.console.model.clients import Client
from disque_trio.respclient.connection import Reply
from disque_trio.respclient.values import elements, integer, pairs, text


def workers(clients: Iterable[Client], search: str) -> Sequence[Client]:
    """Clients that did last what workers do, those that wait for jobs first; with ``search`` in
    their name, address, user or node."""
    wanted = search.lower()
    found = [
        client
        for client in clients
        if client.works
        and (
            wanted in client.name.lower()
            or wanted in client.address
            or wanted in client.user.lower()
            or wanted in client.node
        )
    ]
    return sorted(found, key=lambda client: (not client.blocked, client.idle, client.id))


@dataclass(frozen=True, slots=True)
class Held:
    """A job that is in somebody's hands.

    Attributes:
        nodes: that hold a copy and say so.
        since: how long ago it was delivered, or its worker sent WORKING last (s); None: it is not
            known, as with RETRY 0.
        left: until it is queued again (s); None: it never is.
        age: since it was added (s). returns: how often it came back before.
    """

    id: str
    nodes: tuple[str, ...]
    since: float | None
    left: float | None
    age: float
    returns: int


def read_held(answers: Iterable[tuple[str, Reply]], now: float) -> list[Held]:
    """What SHOW told on some nodes of jobs, those with a worker for the longest time first.

    Args:
        answers: addresses, and arrays of jobs; null for one that is gone.
        now: s since the epoch.

    Raises:
        ProtocolError: an answer is none of SHOW.
    """
    found: dict[str, Held] = {}
    for node, reply in answers:
        for entry in elements(reply):
            fields = {} if entry is None else dict(pairs(entry))
            if fields.get("state") != b"active":
                continue
            id = text(fields["id"])
            retry, within = (fields.get(name) for name in ("retry", "next-requeue-within"))
            since = left = None
            if isinstance(retry, int) and retry and isinstance(within, int):
                left = within / 1000
                since = max(retry - left, 0.0)
            known = found.get(id)
            # The node that delivered it, or heard last of its worker, has it wait the longest.
            if known is not None and known.left is not None and known.left > (left or 0.0):
                since, left = known.since, known.left
            returns = integer(fields["nacks"]) + integer(fields["additional-deliveries"])
            age = max(now - integer(fields["ctime"]) / 1e9, 0.0)
            nodes = (*known.nodes, node) if known else (node,)
            found[id] = Held(id, nodes, since, left, age, returns)
    return sorted(found.values(), key=lambda held: (-(held.since or 0.0), held.id))
