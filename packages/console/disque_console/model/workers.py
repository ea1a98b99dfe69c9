"""Workers, searched, the busiest first."""

from collections.abc import Iterable

from disque_trio.overview.clients import Client
from disque_trio.overview.workers import WorkerRow


def find(workers: Iterable[WorkerRow], search: str) -> list[WorkerRow]:
    """The workers with ``search`` in the name, address, user or node of a connection. Those whose
    job has been running longest come first; then those that wait, and those that were active
    last."""
    wanted = search.lower()
    chosen = [row for row in workers if any(_matches(client, wanted) for client in row.clients)]
    return sorted(chosen, key=_busy_first)


def _busy_first(row: WorkerRow) -> tuple[float, bool, int, str]:
    longest = (row.longest or 0.0) if row.jobs else -1.0
    return -longest, not row.waiting, row.idle, row.key


def _matches(client: Client, wanted: str) -> bool:
    return (
        wanted in client.name.lower()
        or wanted in client.address
        or wanted in client.user.lower()
        or wanted in client.node
    )
