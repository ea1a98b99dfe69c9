"""Tracks which connections are consumers, because they wait or registered for queues (okq)."""

from disque_bananaq.core.store import Store
from disque_trio.respserver.client import Client


class Consumers:
    """Reports each connection that consumes a queue for a group to ``store`` once, whatever the
    number of reasons."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reasons: dict[tuple[int, bytes, bytes], int] = {}  # by client, queue, group
        self._registered: dict[int, tuple[bytes, list[bytes]]] = {}  # by client: group, queues

    def register(self, client: Client, group: bytes, queues: list[bytes]) -> None:
        """Make ``client`` a consumer of ``queues``, in place of those it registered for before."""
        self.unregister(client)
        names = list(dict.fromkeys(queues))
        if names:
            self._registered[client.id] = group, names
        for queue in names:
            self.enter(client, queue, group)

    def unregister(self, client: Client) -> None:
        """Remove ``client`` from all queues that it registered for."""
        registered = self._registered.pop(client.id, None)
        if registered is not None:
            group, queues = registered
            for queue in queues:
                self.leave(client, queue, group)

    def registered(self, client: Client) -> list[bytes]:
        """Return the queues that ``client`` registered for."""
        registered = self._registered.get(client.id)
        return [] if registered is None else registered[1]

    def enter(self, client: Client, queue: bytes, group: bytes) -> None:
        """Add a reason why ``client`` is a consumer."""
        key = (client.id, queue, group)
        reasons = self._reasons.get(key, 0)
        self._reasons[key] = reasons + 1
        if reasons == 0:
            self._store.enter(queue, group, client.id)

    def leave(self, client: Client, queue: bytes, group: bytes) -> None:
        """Remove such a reason."""
        key = (client.id, queue, group)
        reasons = self._reasons[key] - 1
        if reasons:
            self._reasons[key] = reasons
        else:
            del self._reasons[key]
            self._store.leave(queue, group, client.id)
