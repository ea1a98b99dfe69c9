"""Who added the jobs of a queue: the users and clients that added most are known by name.

A client's next job for the queue usually comes before another client's, so that the last one is
kept at hand; it costs a job a comparison. What is known is bounded, for a queue and for the node.
"""

from typing import Final

from disque_trio.node.core.jobs.job import Adder
from disque_trio.respserver.client import Client
from disque_trio.respserver.machine import Machine

MOST: Final = 64  # of a queue that stay when there are twice as many: those that added most
MOST_OF_NODE: Final = 100_000
MOST_SHOWN: Final = 256  # bytes of a name


class QueueAdders:
    """Who added jobs to one queue.

    Attributes:
        known: by token.
        dropped: how many of whom nothing is known any more. dropped_jobs: how many jobs they added.
    """

    __slots__ = ("dropped", "dropped_jobs", "known")

    def __init__(self) -> None:
        self.known: dict[bytes, Adder] = {}
        self.dropped = 0
        self.dropped_jobs = 0


class Adders:
    """Those of all queues of a node.

    Attributes:
        count: how many are known.
    """

    def __init__(self, machine: Machine) -> None:
        self.count = 0
        self._machine = machine

    def of(self, adders: QueueAdders, client: Client) -> Adder | None:
        """Who ``client`` is among those that add to a queue; None: too many are known."""
        # At least two bytes: shorter ones are one object, whoever has them.
        token = client.origin or b"%b\0%b" % (client.user.name, self._origin(client))
        found = adders.known.get(token)
        if found is None:
            if self.count >= MOST_OF_NODE:
                adders.dropped_jobs += 1
                return None
            if len(adders.known) >= 2 * MOST:
                self._drop_most(adders)
            found = adders.known[token] = Adder(client.user.name, self._origin(client), token)
            self.count += 1
        client.origin = found.token
        return found

    def _origin(self, client: Client) -> bytes:
        """The name of ``client``, or else its address without the port."""
        if client.name:
            return client.name[:MOST_SHOWN]
        label = client.label
        if label.startswith("cron:"):
            return label.encode()[:MOST_SHOWN]
        address = label or self._machine.host.address(client)
        return address.rpartition(":")[0].encode()[:MOST_SHOWN] or b"?"

    def _drop_most(self, adders: QueueAdders) -> None:
        """Forget those that added least. It happens once for many new ones."""
        known = sorted(adders.known.items(), key=_added, reverse=True)
        for _, adder in known[MOST:]:
            adders.dropped += 1
            adders.dropped_jobs += adder.added
        self.count -= len(known) - MOST
        adders.known = dict(known[:MOST])

    def forget(self, adders: QueueAdders | None) -> None:
        """Count no longer those of a queue that is gone."""
        if adders is not None:
            self.count -= len(adders.known)


def _added(entry: tuple[bytes, Adder]) -> int:
    return entry[1].added
