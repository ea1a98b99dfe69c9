"""The clients of the nodes, sorted and searched."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from disque_trio.overview.clients import Client

KEYS: Final[Mapping[str, Callable[[Client], Any]]] = {
    "node": lambda client: (client.node, client.id),
    "address": lambda client: client.address,
    "name": lambda client: client.name,
    "user": lambda client: client.user,
    "age": lambda client: client.age,
    "idle": lambda client: client.idle,
    "command": lambda client: client.command,
    "memory": lambda client: client.memory,
}
"""The keys to sort by."""


def find(clients: Iterable[Client], search: str, sort: str, descending: bool) -> Sequence[Client]:
    """The clients with ``search`` in their name, address, user, command or node, sorted by one of
    ``KEYS``."""
    wanted = search.lower()
    found = [
        client
        for client in clients
        if not wanted
        or wanted in client.name.lower()
        or wanted in client.address
        or wanted in client.user.lower()
        or wanted in client.command.lower()
        or wanted in client.node
    ]
    return sorted(found, key=KEYS[sort], reverse=descending)
