"""Remembers jobs that ended a moment ago, so that late copies do not bring them back.

A copy that was sent earlier may still arrive, over a connection that was given up since.
"""

from collections.abc import Callable

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.jobs.outcomes import Outcomes
from disque_trio.node.core.jobs.trailers import Trailers
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketWriter
from disque_trio.protocol.endjob import EndJob
from disque_trio.protocol.trailer import ACKED, CANCELLED, Ending


class Tombstones:
    """The ids of the jobs that ended most recently on one node.

    Args:
        peers: the rest of the cluster.
        outcomes: how jobs ended.
        trailers: know which jobs have become letters.

    Attributes:
        ended: the ids.
        tell_followed: see ``Successors``.
    """

    def __init__(
        self, peers: Peers, packets: PacketWriter, outcomes: Outcomes, trailers: Trailers
    ) -> None:
        self.ended = outcomes.gone
        self.tell_followed: Callable[[bytes, bytes], bool] = _not_followed
        self._followed = trailers.followed
        self._peers = peers
        self._packets = packets
        self._outcomes = outcomes
        self._cancelled = outcomes.cancelled

    def refuse(self, sender: bytes, id: bytes) -> bool:
        """Whether the job ``id``, a copy of which arrived from ``sender``, has ended, or become
        another one; if so, tells ``sender``."""
        if self._cancelled.by_id.count and self._cancelled.of(id) is not None:
            return self.refuse_cancelled(sender, id)
        ended = self.ended
        if id not in ended.latest and id not in ended.older:  # without a call
            if self._followed.has(id) and self._peers.understands(sender):
                return self.tell_followed(sender, id)
            return False
        flags = 0
        if self._peers.understands(sender):
            outcome = self._outcomes.of(id)
            if outcome is None or outcome.kind != ACKED:
                # Not acknowledged, or it is not known. The details are gone, so a node whose client
                # wants to know asks all nodes.
                flags = bus.UNKNOWN_END
            elif outcome.result is not None:
                self._tell_ending(sender, id, Ending(ACKED, outcome.result))
                return True
        self._peers.send(sender, self._packets.about_job(bus.SETACK, id, 1, flags))
        return True

    def _tell_ending(self, node: bytes, id: bytes, ending: Ending) -> None:
        """Tell ``node``, which has extensions, how the job ``id`` ended."""
        fields = EndJob(id, 1, 0, ending).pack()
        self._peers.send(node, self._packets.fields(bus.ENDJOB, fields))

    def refuse_cancelled(self, sender: bytes, id: bytes) -> bool:
        """Whether the job ``id``, which ``sender`` holds and this node does not, was cancelled; if
        so, tells ``sender``."""
        if not self._outcomes.is_cancelled(id):
            return False
        if self._peers.understands(sender):
            self._tell_ending(sender, id, Ending(CANCELLED))
        else:
            self._peers.send(sender, self._packets.about_job(bus.SETACK, id, 1))
        return True


def _not_followed(sender: bytes, id: bytes) -> bool:
    """In the place of ``tell_followed`` while nobody makes letters."""
    return False
