"""The clients of a node, as it lists them (CLIENT LIST)."""

import re
from dataclasses import dataclass
from typing import Final

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
