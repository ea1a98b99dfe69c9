"""The ends of the waits of blocked clients."""

from heapq import heappop, heappush

from disque_trio.respserver.client import Client


class WaitEnds:
    """The ends of the waits of one machine's clients.

    A wait that ended early leaves its entry behind; such an entry shows because the number of the
    client's wait has changed, or the client no longer waits.
    """

    def __init__(self) -> None:
        self._ends: list[tuple[int, int, Client]] = []  # heap: ms, number of the wait, client
        self._waits = 0

    def begin(self, client: Client, deadline: int, blocked: int) -> None:
        """Note that ``client`` waits until ``deadline`` (ms; 0: forever); it is one of ``blocked``
        clients that do."""
        self._waits += 1
        client.wait_number = self._waits
        if deadline:
            ends = self._ends
            # Stale entries must not pile up.
            if len(ends) > 1000 and len(ends) > 4 * blocked:
                ends[:] = sorted(e for e in ends if e[2].wait_number == e[1] and e[2].waits_for)
            heappush(ends, (deadline, self._waits, client))

    def due(self, now: int) -> Client | None:
        """Remove and return the next client whose wait ends by ``now`` (ms); None: there is
        none."""
        ends = self._ends
        while ends and ends[0][0] <= now:
            _, number, client = heappop(ends)
            if client.wait_number == number and client.waits_for:
                return client
        return None

    def next_due(self) -> int:
        """Return when the next wait ends, in ms; 0: none does."""
        ends = self._ends
        while ends:
            deadline, number, client = ends[0]
            if client.wait_number == number and client.waits_for:
                return deadline
            heappop(ends)
        return 0
