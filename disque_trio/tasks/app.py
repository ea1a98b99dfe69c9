"""The application: tasks, and the cluster that their jobs go to."""

from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager

from disque_trio.client import Client, connect


class Disque:
    """The tasks of a program, and the cluster that their jobs go to. Making it connects to nothing.

    Attributes:
        nodes: addresses, as ``connect`` takes them.
        password: for these; None: none.
    """

    def __init__(self, url: str | None = None) -> None:
        self.nodes: list[str] = ["127.0.0.1:7711"]
        self.password: str | None = None

    def queues(self) -> list[str]:
        """The queues of the tasks, in the order in which they were defined."""
        return []

    def setup(self) -> Awaitable[None]:
        """Set the policies of the queues, and the schedules. Worth nothing to do it again, and it
        does no harm. Blocks in a thread; awaited in a task of Trio or asyncio."""
        raise NotImplementedError

    @contextmanager
    def using(self, client: Client) -> Iterator[None]:
        """Within the block all goes over ``client``, whose loop runs here: that of tasks that
        call ``add`` in this loop or in threads, too."""
        yield

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Client]:
        """Connect, and use the client; see ``using``. Raises what ``disque_trio.client.connect``
        raises."""
        async with connect(self.nodes, password=self.password) as client:
            with self.using(client):
                yield client
