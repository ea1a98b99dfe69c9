"""Clients that know nothing of the processes of a server, and use the port of the first."""

import re

from disque_trio.node.core.queues.owners import owner
from tests.support.harness import Wire, wait_until
from tests.support.several import COUNT, Several

IDS = 1_000_000_000  # clients of a process; the ids of the next one's are above


class OnePort:
    """A server that serves, as its clients see it.

    Attributes:
        server: as given.
        admins: a client of each process, which asks about that process.
    """

    def __init__(self, server: Several) -> None:
        self.server = server
        self.admins = [node.wire() for node in server.nodes]
        for admin in self.admins:
            admin("HELLO")  # so it stays where it is
        self._ids = [admin("CLUSTER", "MYID") for admin in self.admins]
        assert len(set(self._ids)) == COUNT
        self._names = [f"q{number}" for number in range(1_000)]
        self._before = self._counts()

    def queue(self, number: int) -> str:
        """A queue that nobody has used, and that is best at that process."""
        ids = [id for id in self._ids if isinstance(id, bytes)]
        while True:
            name = self._names.pop()
            if owner(name.encode(), ids) == ids[number]:
                return name

    def client(self) -> Wire:
        """A new client."""
        return self.server.main.wire()

    def client_of(self, number: int) -> Wire:
        """A new client whose connection was accepted by that process."""
        found: list[Wire] = []

        def is_there() -> bool:
            found.append(self.client())
            id = found[-1]("CLIENT", "ID")
            assert isinstance(id, int)
            return id // IDS == number

        wait_until(is_there)
        return found[-1]

    def clients(self, number: int) -> dict[str, dict[str, str]]:
        """The clients of a process by id, as CLIENT LIST shows them."""
        text = self.admins[number]("CLIENT", "LIST")
        assert isinstance(text, bytes)
        lines = [
            dict(word.split("=", 1) for word in line.split(" "))
            for line in text.decode().splitlines()
        ]
        return {line["id"]: line for line in lines}

    def move(self, client: Wire, number: int, queue: str = "") -> None:
        """Use ``queue``, by default a new one, of that process until the client is handed over to
        it. A process that was busy when it was offered the client gets it later."""
        queue = queue or self.queue(number)
        id = str(client("CLIENT", "ID"))
        for _ in range(1_000):
            use(client, queue, 1)
            if id in self.clients(number):
                return
        raise AssertionError(f"process {number} was not given the client {id}")

    def _counts(self) -> list[list[int]]:
        texts = [admin("INFO", "stats") for admin in self.admins]
        return [
            [
                int(number)
                for text in texts
                if isinstance(text, bytes)
                for number in re.findall(rb"connections_%b_over:(\d+)" % how, text)
            ]
            for how in (b"handed", b"taken")
        ]

    def handed_over(self) -> list[int]:
        """How many clients each process has handed over since this was created; the others have
        taken them over."""
        handed, taken = (
            [count - before for count, before in zip(now, then, strict=True)]
            for now, then in zip(self._counts(), self._before, strict=True)
        )
        assert handed == taken[::-1]
        return handed


def use(client: Wire, queue: str, times: int = 3) -> None:
    """Send commands about a queue, one by one."""
    for _ in range(times):
        assert client("QLEN", queue) == 0
