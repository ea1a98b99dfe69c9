"""Holds back replies, messages to other nodes and clients while a thread writes the turn's records.

Small records are written before the turn's replies are sent. A thread writes large ones, which may
take seconds. Meanwhile nobody may hear of what a crash or a failed write would take back: the
replies of that turn wait, and so do its packets about jobs for other nodes. Clients without such a
reply are served with requests that neither change jobs nor tell about them; everything else waits
as in a CLIENT PAUSE. The same holds while a long group of commands is run in slices.
"""

from disque_trio.respserver.client import Client
from disque_trio.respserver.io.connection import Connection
from disque_trio.respserver.io.links import Links
from disque_trio.respserver.machine import Machine


class Hold:
    """Holds back what depends on records that are not in the file yet.

    Attributes:
        on: records are being written, or a group is being run.
        waiting: clients with replies that depend on them.
        passed_over: packets of other nodes still wait, since clients sent large records first.
    """

    def __init__(self, node: Machine, bus: Links) -> None:
        self.on = False
        self.waiting: dict[Connection, None] = {}
        self.passed_over = False
        self._node = node
        self._bus = bus
        self._uncommitted: list[tuple[Client, int, int]] = []

    def begin(self, connections: list[Connection]) -> None:
        """Hold back the replies to ``connections``."""
        self.on = True
        self.waiting = dict.fromkeys(connections)
        # What is served meanwhile promises nothing.
        self._uncommitted = self._node.uncommitted
        self._node.uncommitted = []
        self._bus.hold()

    def begin_group(self) -> None:
        """Let nothing else happen while a group is run, in slices. Nothing waits for records; what
        the group has yet to confirm is with the node."""
        self.on = True
        self._bus.hold()

    def end_group(self) -> None:
        """End the hold: the group is over, and its records are still to be written."""
        self.on = False
        self._bus.release()

    def may_serve(self, connection: Connection, request: list[bytes]) -> bool:
        """Whether ``request`` need not wait."""
        return connection not in self.waiting and self._node.is_independent(request)

    def may_serve_of(self, connection: Connection, requests: list[list[bytes]]) -> int:
        """Return how many of the first ``requests`` need not wait."""
        for count, request in enumerate(requests):
            if not self.may_serve(connection, request):
                return count
        return len(requests)

    def end(self, good: bool) -> list[Connection]:
        """End the hold: the records are in the file or, if not ``good``, they are not. Return the
        connections whose replies may be sent; packets that arrived meanwhile are still to be
        handled."""
        node = self._node
        node.uncommitted = self._uncommitted
        self._uncommitted = []
        if not good:
            node.roll_back(node.misconf)
            self._bus.roll_back()
        node.commit()
        self.on = False
        waited = list(self.waiting)
        self.waiting = {}
        self._bus.release()
        return waited
