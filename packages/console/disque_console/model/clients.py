"""The clients of the nodes (CLIENT LIST)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_LINE: Final = re.compile(
    r"id=(\d+) addr=(.*?) laddr=.*? name=([^ ]*) age=(\d+) idle=(\d+) flags=([^ ]*) .*?"
    r"tot-mem=(\d+) .*?cmd=(.*?) user=([^ ]*)(?: |$)"
)
WORK: Final = frozenset(
    {"getjob", "getjobs", "consume", "credit", "working", "ackjob", "fastack", "nack", "enqueue"}
)
"""Commands that workers send."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client connection. node: the address of its node. age, idle: s. memory: bytes."""

    node: str
    id: int
    address: str
    name: str
    age: int
    idle: int
    flags: str
    memory: int
    command: str
    user: str

    @property
    def blocked(self) -> bool:
        """Whether it waits for a reply."""
        return "b" in self.flags

    @property
    def monitors(self) -> bool:
        """Whether it is in MONITOR mode."""
        return "O" in self.flags

    @property
    def works(self) -> bool:
        """Whether its last command is one of a worker's."""
        return self.command.partition("|")[0].lower() in WORK


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


def read_clients(node: str, text: str) -> list[Client]:
    """Read a node's lines; unreadable ones are left out."""
    found = []
    for line in text.split("\n"):
        match = _LINE.match(line)
        if match:
            id, address, name, age, idle, flags, memory, command, user = match.groups()
            found.append(
                Client(
                    *(node, int(id), address, name, int(age), int(idle)),
                    *(flags, int(memory), command, user),
                )
            )
    return found


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
